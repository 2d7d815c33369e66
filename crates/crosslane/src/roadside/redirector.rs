//! Leads the home addresses of vehicles to roadside units: by routes of the kernel at the
//! gateway, or by an OpenFlow switch.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::clock::Clock;
use crate::error::{Error, Result};

mod openflow;
mod routes;

use openflow::OpenFlow;
use routes::Routes;

/// Maximum number of home addresses, as `crosslane-lab openflow` keeps.
pub const MAX_HOMES: usize = 4096;

/// A roadside unit, as the fixed network reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlace {
    /// Its name at the controller.
    pub name: String,
    /// Its address on the backhaul.
    pub next_hop: Ipv4Addr,
}

/// What became of a request, or of the back end.
#[derive(Debug)]
pub enum Outcome {
    /// Traffic to the home address takes this way now.
    Led {
        /// The home address.
        home: Ipv4Addr,
        /// Name of the unit; `None`: withdrawn.
        unit: Option<String>,
    },
    /// The request is not carried out: traffic to the home address goes on as before. `Routes` forgets the
    /// request; `OpenFlow` keeps it, and it is carried out when the switch can.
    Failed {
        /// The home address.
        home: Ipv4Addr,
        /// The reason.
        fault: Error,
    },
    /// The back end does not answer. It keeps what it has carried out, and gets all requests when it is back.
    Lost(Error),
    /// The back end answers, for the first time or again.
    Ready,
}

/// A back end.
pub enum Redirector {
    /// Routes of this host's kernel.
    Routes(Routes),
    /// A switch, by `crosslane-lab openflow`.
    OpenFlow(OpenFlow),
}

impl Redirector {
    /// Leads by routes in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel can open no netlink socket, or its routes cannot be listed.
    pub fn routes() -> Result<Redirector> {
        Routes::open().map(Redirector::Routes)
    }

    /// Leads by the process that listens on this Unix socket, which need not be there yet.
    pub fn openflow(socket: PathBuf, clock: Clock) -> Redirector {
        Redirector::OpenFlow(OpenFlow::new(socket, clock))
    }

    /// The home addresses that were led when this started, and the next hop of each; none are known of a switch.
    pub fn found(&self) -> BTreeMap<Ipv4Addr, Ipv4Addr> {
        match self {
            Redirector::Routes(routes) => routes.found().clone(),
            Redirector::OpenFlow(_) => BTreeMap::new(),
        }
    }

    /// Leads a home address to a unit, or to none. A later call for the same address replaces an earlier one.
    pub fn lead(&mut self, home: Ipv4Addr, unit: Option<&UnitPlace>) {
        match self {
            Redirector::Routes(routes) => routes.lead(home, unit),
            Redirector::OpenFlow(switch) => switch.lead(home, unit),
        }
    }

    /// Leads again what another program, or the kernel with an interface that went down, led nowhere.
    pub fn restore(&mut self) {
        if let Redirector::Routes(routes) = self {
            routes.restore();
        }
    }

    /// The next outcome; it also drives the back end, so it must be awaited. Safe to cancel.
    pub async fn next(&mut self) -> Outcome {
        match self {
            Redirector::Routes(routes) => routes.next().await,
            Redirector::OpenFlow(switch) => switch.next().await,
        }
    }
}
