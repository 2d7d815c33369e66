//! The tunnel of an agent: it applies the engine's wanted states.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane_core::actuator::Steering;
use crosslane_core::path::{PathId, Sample};
use crosslane_core::tunnel::Mode;
use tokio::sync::oneshot;

use super::config::Config;
use crate::clock::Clock;
use crate::control::status::Status;
use crate::error::{Error, Result};
use crate::tunnel::config::find_gateway;
use crate::tunnel::data_plane::DataPlane;
use crate::tunnel::endpoint::{Change, Counts};

/// Time without an answer of the gateway before the user is notified.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// A running tunnel and its paths.
pub struct ActiveTunnel {
    data_plane: DataPlane,
    interface: String,
    /// The gateway, as the configuration names it.
    gateway: String,
    /// Whether the user was notified of the gateway's silence.
    silence_reported: bool,
    is_vehicle: bool,
    paths: Vec<Path>,
}

/// Result of starting a tunnel.
pub enum Gateway {
    /// The tunnel runs; `None` if the configuration has none.
    Resolved(Option<Box<ActiveTunnel>>),
    /// The gateway's name is being resolved.
    Resolving(Resolving),
}

/// A name that a separate thread resolves: name servers may take long, and the
/// agent must not block.
pub struct Resolving(oneshot::Receiver<Result<SocketAddr>>);

impl Resolving {
    fn start(name: &str) -> Result<Resolving> {
        let (sender, answer) = oneshot::channel();
        let name = name.to_owned();
        let look_up = move || drop(sender.send(find_gateway(&name)));
        let thread = std::thread::Builder::new().name("gateway-name".into()).spawn(look_up);
        thread.map_err(|cause| Error::failure("looking up the gateway's name", cause))?;
        Ok(Resolving(answer))
    }

    /// The answer, if it arrives within that time; this blocks.
    pub fn wait(&mut self, within: Duration) -> Option<Result<SocketAddr>> {
        const POLL_PERIOD: Duration = Duration::from_millis(5);
        for _ in 0..within.as_millis() / POLL_PERIOD.as_millis() {
            match self.0.try_recv() {
                Ok(answer) => return Some(answer),
                Err(_) => std::thread::sleep(POLL_PERIOD),
            }
        }
        None
    }
}

/// The answer; pends forever without a request. Safe to cancel.
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

impl ActiveTunnel {
    /// Starts the tunnel of the configuration, if it has one; or begins to resolve
    /// the gateway's name, if its address is not known yet.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub fn start(config: &Config, clock: Clock) -> Result<Gateway> {
        let Some(tunnel) = &config.tunnel else { return Ok(Gateway::Resolved(None)) };
        let name = tunnel.get_ref().gateway.as_ref().filter(|_| tunnel.get_ref().known_gateway_address().is_none());
        if let Some(name) = name {
            return Resolving::start(name.get_ref()).map(Gateway::Resolving);
        }
        let data_plane = DataPlane::start(tunnel.get_ref(), config.ranks(), clock)?;
        let paths = config.paths.iter().map(|path| {
            let path = path.get_ref();
            Path { name: path.name.clone(), interface: path.interface().into(), address: None }
        });
        let interface = tunnel.get_ref().interface.clone();
        let gateway = tunnel.get_ref().gateway.as_ref().map(|name| name.get_ref().clone());
        let is_vehicle = gateway.is_some();
        let gateway = gateway.unwrap_or_default();
        let tunnel = ActiveTunnel {
            data_plane,
            interface,
            gateway,
            silence_reported: false,
            is_vehicle,
            paths: paths.collect(),
        };
        Ok(Gateway::Resolved(Some(Box::new(tunnel))))
    }

    /// Sets the present address of a path, or none.
    ///
    /// # Errors
    /// The path cannot be used; the others continue.
    pub fn set_path(&mut self, path: PathId, address: Option<IpAddr>) -> Result<()> {
        let Some(known) = self.paths.get_mut(usize::from(path.0)).filter(|_| self.is_vehicle) else { return Ok(()) };
        if known.address == address {
            return Ok(());
        }
        known.address = address;
        self.data_plane.set_path(path, address, &known.interface)
    }

    /// Passes the wanted state of each path to the tunnel, and their order.
    pub fn steer(&mut self, steering: &Steering) {
        self.data_plane.set_wanted(&steering.states, &steering.order);
    }

    /// A sample of each path; none on a gateway, whose vehicles decide.
    pub fn samples(&self) -> Vec<Sample> {
        if self.is_vehicle { self.data_plane.samples() } else { Vec::new() }
    }

    /// Faults for the user: paths without a working socket, and a gateway that does
    /// not answer, reported once until it answers.
    pub fn faults(&mut self) -> Vec<Error> {
        let mut faults: Vec<Error> = self.data_plane.faults.try_iter().collect();
        let is_silent = self.data_plane.unanswered().is_some_and(|wait| wait > SILENCE_TIMEOUT);
        if is_silent && !self.silence_reported {
            let cause = format!("no answer from the gateway {} for {} s", self.gateway, SILENCE_TIMEOUT.as_secs());
            let remedy = "check its address, its key and whether it has our key";
            faults.push(Error::failure("carrying packets through the tunnel", cause).with_remedy(remedy));
        }
        self.silence_reported = is_silent;
        faults
    }

    /// The failure that stopped the tunnel and must end the agent.
    pub fn fault(&mut self) -> Option<Error> {
        self.data_plane.fault()
    }

    /// Whether its threads run.
    pub fn is_alive(&self) -> bool {
        self.data_plane.is_alive()
    }

    /// Stops the tunnel and removes its interface.
    pub fn finish(self) {
        self.data_plane.finish();
    }

    /// The tunnel's status.
    pub fn status(&self) -> Status {
        let names: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        Status::new(&self.interface, &names, self.data_plane.status())
    }

    /// Counts of packets that were not carried.
    pub fn counts(&self) -> &Counts {
        self.data_plane.counts()
    }

    /// Sets the mode; returns the previous one.
    ///
    /// # Errors
    /// This endpoint does not control the mode.
    pub fn use_mode(&self, mode: Mode) -> Result<Mode> {
        self.data_plane.use_mode(mode)
    }

    /// Changes since the last call.
    pub fn changes(&self) -> Vec<Change> {
        self.data_plane.changes.try_iter().collect()
    }
}
