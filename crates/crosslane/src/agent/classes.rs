//! Which class a connection belongs to: by its peer, and by the program that opened it.

use std::net::SocketAddr;

use crosslane_core::actuator;
use crosslane_core::mptcp::{Event, Subflow, Token};
use crosslane_core::wanted::ConnectionClass;

use super::Driver;
use super::config::Config;
use super::config::class::{ClassConfig, ClassMode};
use super::machine::user;
use crate::netlink::diag::{Connection, Diag, Owner};

/// The classes of the configuration.
pub struct Classes(Vec<Class>);

struct Class {
    config: ClassConfig,
    user: Option<u32>,
    /// `None`: its connections are not managed.
    id: Option<ConnectionClass>,
}

impl Classes {
    /// The classes, in the order of the file.
    pub fn new(config: &Config) -> Classes {
        let mut last = 0;
        let mut class = |config: &ClassConfig| {
            let is_managed = config.mode != ClassMode::Off;
            last += u8::from(is_managed);
            let user = config.user.as_deref().and_then(user);
            Class { config: config.clone(), user, id: is_managed.then_some(ConnectionClass(last)) }
        };
        Classes(config.classes.iter().map(|config| class(config.get_ref())).collect())
    }

    /// Whether a condition needs to know the program.
    fn needs_owner(&self) -> bool {
        self.0
            .iter()
            .any(|class| class.config.user.is_some() || class.config.mark.is_some() || class.config.cgroup.is_some())
    }

    /// The class of a connection that this machine opens by this subflow.
    fn of_first(&self, diag: &mut Diag, subflow: &Subflow) -> Option<ConnectionClass> {
        let owner = match self.needs_owner() {
            // Without an answer, the connection has gone.
            true => diag.socket(subflow.local, subflow.remote).ok().flatten().map(|socket| socket.owner),
            false => None,
        };
        self.of(subflow.remote, owner)
    }

    /// The class of a connection to a peer: the first that matches. `None`: it is not managed.
    fn of(&self, peer: SocketAddr, owner: Option<Owner>) -> Option<ConnectionClass> {
        let found = self.0.iter().find(|class| class.matches(peer, owner));
        found.map_or(Some(ConnectionClass::default()), |class| class.id)
    }
}

impl Class {
    fn matches(&self, peer: SocketAddr, owner: Option<Owner>) -> bool {
        let ClassConfig { port, to, user, mark, cgroup, .. } = &self.config;
        let peer_ip = peer.ip().to_canonical();
        port.as_ref().is_none_or(|ports| ports.0.contains(&peer.port()))
            && to.as_ref().is_none_or(|prefix| prefix.0.contains(&peer_ip))
            && (user.is_none() || owner.is_some_and(|owner| self.user == Some(owner.user)))
            && mark.is_none_or(|mark| owner.is_some_and(|owner| owner.mark == mark))
            && cgroup.as_ref().is_none_or(|cgroup| owner.is_some_and(|owner| cgroup.contains(owner.cgroup)))
    }
}

impl Driver {
    /// Passes an event to the engine, and a new connection's class before any command is issued for it. An accepted
    /// connection has the default class: its peer opens the subflows, and sets their priorities.
    pub(super) fn classified(&mut self, event: Event) {
        let mut found = None;
        if let Event::Created { token, subflow, server_side: false }
        | Event::Established { token, subflow, server_side: false } = &event
            && let Some(mptcp) = &mut self.mptcp
        {
            let Some(class) = mptcp.classes.of_first(&mut mptcp.diag, subflow) else { return };
            found = (class != ConnectionClass::default()).then_some((*token, class));
        }
        self.handle(actuator::Event::Mptcp(event).into());
        found.into_iter().for_each(|(token, class)| self.handle(actuator::Event::Class(token, class).into()));
    }

    /// The connections of a class of the engine after the default one; those that are not managed are removed.
    pub(super) fn take_classes(&self, connections: &mut Vec<Connection>) -> Vec<(Token, ConnectionClass)> {
        let Some(mptcp) = &self.mptcp else { return Vec::new() };
        let mut found = Vec::new();
        connections.retain(|connection| {
            if connection.server_side == Some(true) {
                return true;
            }
            let class = mptcp.classes.of(connection.remote, Some(connection.owner));
            found.extend(
                class.filter(|class| *class != ConnectionClass::default()).map(|class| (connection.token, class)),
            );
            class.is_some()
        });
        found
    }
}
