//! The tunnel of an agent: it applies the engine's wanted states.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane_core::path::{PathId, Sample};
use nix::libc::c_uint;
use nix::net::if_::if_nametoindex;
use tokio::sync::oneshot;
use toml::Spanned;

use super::config::{Config, PathConfig};
use crate::clock::Clock;
use crate::control::status::Status;
use crate::error::{Error, Result};
use crate::tunnel::config::{TunnelConfig, find_gateway};
use crate::tunnel::data_plane::DataPlane;

/// Time without an answer of the gateway before the user is notified.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// A running tunnel and its paths.
pub struct ActiveTunnel {
    pub data_plane: DataPlane,
    interface: String,
    /// A vehicle's gateway, as the configuration names it.
    gateway: Option<String>,
    /// Whether the user was notified of the gateway's silence.
    silence_reported: bool,
    paths: Vec<Path>,
}

/// A name that a separate thread resolves: name servers may take long, and the
/// agent must not block.
pub struct Resolving(oneshot::Receiver<Result<SocketAddr>>);

impl Resolving {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(name: &str) -> Result<Resolving> {
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

    /// The answer. Safe to cancel.
    pub async fn answer(&mut self) -> Result<SocketAddr> {
        let gone = |_| Err(Error::failure("looking up the gateway's name", "the thread ended"));
        (&mut self.0).await.unwrap_or_else(gone)
    }
}

struct Path {
    name: String,
    interface: String,
    /// The address, and the index of the interface, to which its socket is bound.
    bound: Option<(IpAddr, c_uint)>,
}

impl ActiveTunnel {
    /// Starts the tunnel of the configuration; its gateway's address must be known.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub fn start(tunnel: &TunnelConfig, config: &Config, clock: Clock) -> Result<ActiveTunnel> {
        let data_plane = DataPlane::start(tunnel, config.ranks(), config.keepalives(), clock)?;
        let path = |path: &Spanned<PathConfig>| {
            let path = path.get_ref();
            Path { name: path.name.clone(), interface: path.interface().into(), bound: None }
        };
        Ok(ActiveTunnel {
            data_plane,
            interface: tunnel.interface.clone(),
            gateway: tunnel.gateway.as_ref().map(|name| name.get_ref().clone()),
            silence_reported: false,
            paths: config.paths.iter().map(path).collect(),
        })
    }

    /// Sets the present address of a path, or none.
    ///
    /// # Errors
    /// The path cannot be used; the others continue.
    pub fn set_path(&mut self, path: PathId, address: Option<IpAddr>) -> Result<()> {
        let Some(known) = self.paths.get_mut(usize::from(path.0)).filter(|_| self.gateway.is_some()) else {
            return Ok(());
        };
        // An interface that was removed and added again has the same name and another index.
        let bound = address.and_then(|address| Some((address, if_nametoindex(known.interface.as_str()).ok()?)));
        if known.bound == bound {
            return Ok(());
        }
        known.bound = None;
        self.data_plane.set_path(path, bound.map(|(address, _)| address), &known.interface)?;
        known.bound = bound;
        Ok(())
    }

    /// A sample of each path; none on a gateway, whose vehicles decide.
    pub fn samples(&self) -> Vec<Sample> {
        if self.gateway.is_some() { self.data_plane.samples() } else { Vec::new() }
    }

    /// Faults for the user: paths without a working socket, and a gateway that does
    /// not answer, reported once until it answers.
    pub fn faults(&mut self) -> Vec<Error> {
        let mut faults: Vec<Error> = self.data_plane.faults.try_iter().collect();
        let is_silent = self.data_plane.unanswered().is_some_and(|wait| wait > SILENCE_TIMEOUT);
        if is_silent && !self.silence_reported {
            let gateway = self.gateway.as_deref().unwrap_or_default();
            let cause = format!("no answer from the gateway {gateway} for {} s", SILENCE_TIMEOUT.as_secs());
            let remedy = "check its address, its key and whether it has our key";
            faults.push(Error::failure("carrying packets through the tunnel", cause).with_remedy(remedy));
        }
        self.silence_reported = is_silent;
        faults
    }

    /// Why it carries nothing any more: its interface is gone.
    pub fn removed(&self) -> Option<Error> {
        let attempt = format!("carrying packets through the tunnel {}", self.interface);
        self.data_plane.is_removed().then(|| Error::failure(attempt, "another program removed its interface"))
    }

    pub fn status(&self) -> Status {
        let names: Vec<&str> = self.paths.iter().map(|path| path.name.as_str()).collect();
        Status::new(&self.interface, &names, self.data_plane.status())
    }
}
