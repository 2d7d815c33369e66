//! Home addresses by routes of the kernel at the gateway.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{MAX_HOMES, Outcome, UnitPlace};
use crate::error::Result;
use crate::netlink::Wiring;
use crate::netlink::home::{HomeRoute, Hop, Owner};

/// Routes of the controller in the main table: `HOME/32 via NEXT_HOP`.
pub struct Routes {
    wiring: Wiring,
    found: BTreeMap<Ipv4Addr, Ipv4Addr>,
    /// The next hop of each home address that is led.
    led: BTreeMap<Ipv4Addr, Ipv4Addr>,
    outcomes: VecDeque<Outcome>,
}

impl Routes {
    pub fn open() -> Result<Routes> {
        let mut wiring = Wiring::open()?;
        let routes = wiring.home_routes(Owner::Controller)?.into_iter();
        let found = routes.filter_map(|route| Some((route.to.addr(), route.hop?.via))).take(MAX_HOMES);
        let found: BTreeMap<_, _> = found.collect();
        Ok(Routes { wiring, led: found.clone(), found, outcomes: VecDeque::from([Outcome::Ready]) })
    }

    pub fn found(&self) -> &BTreeMap<Ipv4Addr, Ipv4Addr> {
        &self.found
    }

    pub fn lead(&mut self, home: Ipv4Addr, unit: Option<&UnitPlace>) {
        let route = route(home, unit.map_or(Ipv4Addr::UNSPECIFIED, |unit| unit.next_hop));
        let done = match unit {
            Some(unit) => self.wiring.replace_home_route(Owner::Controller, &route).map(|()| {
                self.led.insert(home, unit.next_hop);
            }),
            None => self.wiring.remove_home_route(Owner::Controller, &route).map(|_| {
                self.led.remove(&home);
            }),
        };
        let outcome = match done {
            Ok(()) => Outcome::Led { home, unit: unit.map(|unit| unit.name.clone()) },
            Err(fault) => {
                let fault = match unit {
                    Some(unit) => fault.with_remedy(format!("check the `next_hop` of unit {:?}", unit.name)),
                    None => fault,
                };
                Outcome::Failed { home, fault }
            }
        };
        // Whoever leads without reading loses the oldest outcomes.
        if self.outcomes.len() >= MAX_HOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    /// Sets again what the kernel removed, as it does when an interface goes down; a route that is there stays, without a
    /// notice. While the interface is down, the kernel rejects routes over it.
    pub fn restore(&mut self) {
        for (&home, &via) in &self.led {
            drop(self.wiring.replace_home_route(Owner::Controller, &route(home, via)));
        }
    }

    pub async fn next(&mut self) -> Outcome {
        match self.outcomes.pop_front() {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

fn route(home: Ipv4Addr, via: Ipv4Addr) -> HomeRoute {
    HomeRoute { to: Ipv4Net::from(home), hop: Some(Hop { via, interface: None }), table: None }
}
