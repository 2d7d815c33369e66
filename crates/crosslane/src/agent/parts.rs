//! The agent's parts that can come later, and what the user is told of them.

use std::net::SocketAddr;
use std::time::Duration;

use crosslane_core::path::PathId;
use tokio::net::UdpSocket;

use super::Driver;
use super::later::Part;
use super::machine::{self, trusted};
use super::tunnel_actuator::{Carried, Gateway};
use crate::control::demand::server::Server;
use crate::control::tunnel::server as steer;
use crate::error::{Error, Result};
use crate::netlink::udp::UdpOwners;
use crate::netlink::{PathManager, selected_path_manager};
use crate::observe::admission::Admission;

/// How often the agent looks whether another path manager was selected, and says
/// what its journal left out.
pub const GLANCE: Duration = Duration::from_secs(1);
/// So long a start waits for the address of a gateway that has a name.
const RESOLVED_WITHIN: Duration = Duration::from_millis(500);

/// Where received CAMs come in.
pub struct Datagrams {
    /// The socket.
    pub socket: UdpSocket,
    admission: Admission,
    owners: Option<UdpOwners>,
}

impl Driver {
    /// Sets up every part that the configuration asks for; what this machine
    /// cannot have yet is tried again later.
    pub(super) fn set_up_all(&mut self) {
        if self.config.observe.vanetza.is_some() {
            self.set_up(Part::Datagrams);
        }
        if self.config.service.demands.is_some() {
            self.set_up(Part::Demands);
        }
        if self.config.tunnel.is_some() {
            self.set_up(Part::Tunnel);
            if let Some(resolving) = &mut self.resolving {
                // With a name server at hand, the tunnel is there before anybody is told that we are ready.
                let answer = resolving.wait(RESOLVED_WITHIN);
                answer.into_iter().for_each(|answer| self.resolved(answer));
            }
        }
    }

    /// Tries the parts again whose time has come.
    pub(super) fn try_again(&mut self) {
        let due = self.missing.take_due(self.clock.now());
        due.into_iter().for_each(|part| self.set_up(part));
    }

    fn set_up(&mut self, part: Part) {
        let done = match part {
            Part::Datagrams => self.open_datagrams().map(Some),
            Part::Demands => self.open_demands().map(Some),
            Part::Tunnel => self.start_tunnel(),
        };
        match done {
            Ok(Some(())) => self.came(part),
            Ok(None) => {}
            Err(fault) => self.is_missing(part, &fault),
        }
    }

    fn came(&mut self, part: Part) {
        if self.missing.came(part) {
            self.say(match part {
                Part::Datagrams => "listening for CAMs works now",
                Part::Demands => "listening for demands works now",
                Part::Tunnel => "the tunnel works now",
            });
        }
    }

    fn is_missing(&mut self, part: Part, fault: &Error) {
        if self.missing.failed(self.clock.now(), part) {
            self.say(&format!("{fault}; the agent does the rest and tries again until it works"));
        }
    }

    fn open_datagrams(&mut self) -> Result<()> {
        let observe = &self.config.observe;
        let Some(address) = observe.vanetza.as_ref().map(|address| *address.get_ref()) else { return Ok(()) };
        let (users, _) = trusted(&observe.vanetza_users);
        let socket = listen_for_cams(address)?;
        let admission = Admission::new(observe.vanetza_from.iter().copied(), users);
        self.datagrams = Some(Datagrams { socket, admission, owners: UdpOwners::open().ok() });
        Ok(())
    }

    fn open_demands(&mut self) -> Result<()> {
        let service = &self.config.service;
        let Some(name) = &service.demands else { return Ok(()) };
        let group = service.demands_group.as_ref().and_then(|group| machine::group(group.get_ref()));
        self.demands = Some(Server::open(name.get_ref(), self.clock, self.config.unit_costs(), group)?);
        Ok(())
    }

    /// Nothing yet, if the gateway's address has to be found first.
    fn start_tunnel(&mut self) -> Result<Option<()>> {
        match Carried::start(&self.config, self.clock)? {
            Gateway::Found(carried) => {
                self.tunnel = carried.map(|carried| *carried);
                self.join_tunnel();
                Ok(Some(()))
            }
            Gateway::Sought(resolving) => {
                self.resolving = Some(resolving);
                Ok(None)
            }
        }
    }

    /// The gateway's name has an address, or has none.
    pub(super) fn resolved(&mut self, answer: Result<SocketAddr>) {
        self.resolving = None;
        let config = self.config.clone();
        match (answer, &config.tunnel) {
            (Ok(address), Some(tunnel)) => {
                tunnel.get_ref().set_gateway_address(address);
                self.set_up(Part::Tunnel);
            }
            (Ok(_), None) => {}
            (Err(fault), _) => self.is_missing(Part::Tunnel, &fault),
        }
    }

    /// A tunnel that came late learns what has happened.
    fn join_tunnel(&mut self) {
        for path in (0..self.config.paths.len()).map(|place| PathId(place as u8)) {
            let address = self.interfaces.configured(path);
            if let Some(Err(fault)) = self.tunnel.as_mut().map(|tunnel| tunnel.set_path(path, address)) {
                self.journal.fault(&fault);
            }
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.want(&self.engine);
        }
        self.let_steer();
    }

    /// Lets people look at the tunnel and steer it; without that, it carries all the same.
    fn let_steer(&mut self) {
        let Some(tunnel) = &self.config.tunnel else { return };
        match steer::Server::open(&tunnel.get_ref().interface) {
            Ok(server) => self.steer = Some(server),
            Err(fault) => self.journal.fault(&fault),
        }
    }

    /// Whether a datagram of this sender is believed; if not, that is noted.
    pub(super) fn believes(&mut self, from: SocketAddr) -> bool {
        let Some(datagrams) = &mut self.datagrams else { return false };
        let owners = &mut datagrams.owners;
        let ask = |port| match owners {
            Some(owners) => owners.of(port).map_err(|cause| cause.to_string()),
            None => Err("the kernel has no sock_diag; name the address in observe.vanetza_from".into()),
        };
        let admitted = datagrams.admission.admit(self.clock.now(), from, ask);
        if let Err(refusal) = &admitted {
            self.journal.rejected(refusal);
        }
        admitted.is_ok()
    }

    /// Says what stands in the way at the start.
    pub(super) fn note_lacks(&mut self) {
        self.config.renamed.iter().for_each(|sentence| self.journal.note(sentence));
        let lacks = machine::lacks(&self.config).into_iter();
        // The glance says that one.
        lacks.filter(|lack| lack != machine::KERNEL_MANAGES).for_each(|lack| self.journal.note(&lack));
        self.glance();
    }

    /// What changes without notice.
    pub(super) fn glance(&mut self) {
        self.journal.tick();
        if !self.talks || self.mptcp.is_none() || self.config.paths.is_empty() {
            return;
        }
        let Ok(selected) = selected_path_manager() else { return };
        let was = self.path_manager.replace(selected);
        match (selected, was) {
            (PathManager::Kernel, None | Some(PathManager::UserSpace)) => self.say(machine::KERNEL_MANAGES),
            (PathManager::UserSpace, Some(PathManager::Kernel)) => self.say(
                "net.mptcp.path_manager is `userspace` now: connections that begin from now on are managed by this agent",
            ),
            _ => {}
        }
    }

    fn say(&mut self, sentence: &str) {
        self.journal.note(sentence);
        if self.talks {
            eprintln!("crosslane: {sentence}");
        }
    }
}

/// The socket that the configuration asks for; within a runtime.
///
/// # Errors
/// The port is taken, or the address not ours.
pub(super) fn listen_for_cams(address: SocketAddr) -> Result<UdpSocket> {
    let bind = || {
        let socket = std::net::UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    };
    bind().map_err(|cause| {
        let attempt = format!("listening for CAMs on {address}");
        Error::failure(attempt, cause).with_remedy("set observe.vanetza to a free local address and port")
    })
}

/// The length of the next datagram and its sender; never, without a socket.
pub(super) async fn receive(datagrams: Option<&Datagrams>, buffer: &mut [u8]) -> (usize, SocketAddr) {
    match datagrams {
        Some(Datagrams { socket, .. }) => loop {
            if let Ok(received) = socket.recv_from(buffer).await {
                return received;
            }
        },
        None => std::future::pending().await,
    }
}
