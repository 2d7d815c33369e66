//! The tunnel of an agent: it carries what the engine wants carried.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane_core::agent::Agent;
use crosslane_core::path::{PathId, PathState, Sample};
use crosslane_core::tunnel::Mode;
use tokio::sync::oneshot;

use super::config::Config;
use crate::clock::Clock;
use crate::control::tunnel::Status;
use crate::error::{Error, Result};
use crate::tunnel::config::find_gateway;
use crate::tunnel::data_plane::Carrier;
use crate::tunnel::endpoint::{Change, Counts};

/// So long a gateway may be silent before that is told.
const SILENCE: Duration = Duration::from_secs(3);

/// A running tunnel and the paths it has.
pub struct Carried {
    carrier: Carrier,
    interface: String,
    /// The gateway, as the user names it.
    gateway: String,
    /// Whether its silence was told.
    told: bool,
    is_vehicle: bool,
    paths: Vec<Path>,
}

/// What starting a tunnel has come to.
pub enum Gateway {
    /// It runs, unless the configuration has none.
    Found(Option<Box<Carried>>),
    /// The gateway's address must be found first.
    Sought(Resolving),
}

/// A name that is being looked up, by a thread that nobody waits for: name
/// servers may take long, and the agent has other things to do.
pub struct Resolving(oneshot::Receiver<Result<SocketAddr>>);

impl Resolving {
    fn start(name: &str) -> Result<Resolving> {
        let (tell, answer) = oneshot::channel();
        let name = name.to_owned();
        let look = move || drop(tell.send(find_gateway(&name)));
        let thread = std::thread::Builder::new().name("gateway-name".into()).spawn(look);
        thread.map_err(|cause| Error::failure("looking up the gateway's name", cause))?;
        Ok(Resolving(answer))
    }

    /// The answer, if it comes within that time; this blocks.
    pub fn wait(&mut self, within: Duration) -> Option<Result<SocketAddr>> {
        const NAP: Duration = Duration::from_millis(5);
        for _ in 0..within.as_millis() / NAP.as_millis() {
            match self.0.try_recv() {
                Ok(answer) => return Some(answer),
                Err(_) => std::thread::sleep(NAP),
            }
        }
        None
    }
}

/// The answer; never, without a question. Safe to cancel.
pub async fn resolved(resolving: Option<&mut Resolving>) -> Result<SocketAddr> {
    match resolving {
        Some(resolving) => {
            let gone = |_| Err(Error::failure("looking up the gateway's name", "the thread ended"));
            (&mut resolving.0).await.unwrap_or_else(gone)
        }
        None => std::future::pending().await,
    }
}

struct Path {
    name: String,
    interface: String,
    address: Option<IpAddr>,
}

impl Carried {
    /// Starts the tunnel that the configuration asks for, if it does; or looks up
    /// the gateway's name, if it has one whose address is not known yet.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub fn start(config: &Config, clock: Clock) -> Result<Gateway> {
        let Some(tunnel) = &config.tunnel else { return Ok(Gateway::Found(None)) };
        let name = tunnel.get_ref().gateway.as_ref().filter(|_| tunnel.get_ref().known_gateway_address().is_none());
        if let Some(name) = name {
            return Resolving::start(name.get_ref()).map(Gateway::Sought);
        }
        let carrier = Carrier::start(tunnel.get_ref(), config.ranks(), clock)?;
        let paths = config.paths.iter().map(|path| {
            let path = path.get_ref();
            Path { name: path.name.clone(), interface: path.interface().into(), address: None }
        });
        let interface = tunnel.get_ref().interface.clone();
        let gateway = tunnel.get_ref().gateway.as_ref().map(|name| name.get_ref().clone());
        let is_vehicle = gateway.is_some();
        let gateway = gateway.unwrap_or_default();
        let carried = Carried { carrier, interface, gateway, told: false, is_vehicle, paths: paths.collect() };
        Ok(Gateway::Found(Some(Box::new(carried))))
    }

    /// A path has this address now, or none.
    ///
    /// # Errors
    /// The path cannot be used; the others go on.
    pub fn set_path(&mut self, path: PathId, address: Option<IpAddr>) -> Result<()> {
        let Some(known) = self.paths.get_mut(usize::from(path.0)).filter(|_| self.is_vehicle) else { return Ok(()) };
        if known.address == address {
            return Ok(());
        }
        known.address = address;
        self.carrier.set_path(path, address, &known.interface)
    }

    /// Tells the tunnel what is wanted of each path.
    pub fn want(&self, engine: &Agent) {
        let states: Vec<PathState> = engine.paths().map(|(_, _, state)| state).collect();
        self.carrier.want(&states);
    }

    /// What was seen of each path; a gateway's is its vehicles' affair.
    pub fn samples(&self) -> Vec<Sample> {
        if self.is_vehicle { self.carrier.samples() } else { Vec::new() }
    }

    /// What the user must know: paths that nothing can be sent over, and a gateway
    /// that does not answer, once until it does.
    pub fn faults(&mut self) -> Vec<Error> {
        let mut faults: Vec<Error> = self.carrier.faults.try_iter().collect();
        let is_silent = self.carrier.unanswered().is_some_and(|wait| wait > SILENCE);
        if is_silent && !self.told {
            let cause = format!("no answer from the gateway {} for {} s", self.gateway, SILENCE.as_secs());
            let remedy = "check its address, its key and whether it knows ours";
            faults.push(Error::failure("carrying packets through the tunnel", cause).with_remedy(remedy));
        }
        self.told = is_silent;
        faults
    }

    /// Why it carries nothing any more, and the agent is to end.
    pub fn fault(&mut self) -> Option<Error> {
        self.carrier.fault()
    }

    /// Whether its threads run.
    pub fn is_alive(&self) -> bool {
        self.carrier.is_alive()
    }

    /// Ends it, and takes its interface away.
    pub fn finish(self) {
        self.carrier.finish();
    }

    /// How it fares.
    pub fn status(&self) -> Status {
        let names: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        Status::new(&self.interface, &names, self.carrier.view())
    }

    /// What did not go through.
    pub fn counts(&self) -> &Counts {
        self.carrier.counts()
    }

    /// Uses the paths so from now on; how they were used before.
    ///
    /// # Errors
    /// That is not for this end to say.
    pub fn use_mode(&self, mode: Mode) -> Result<Mode> {
        self.carrier.use_mode(mode)
    }

    /// What changed since the last time.
    pub fn changes(&self) -> Vec<Change> {
        self.carrier.changes.try_iter().collect()
    }
}
