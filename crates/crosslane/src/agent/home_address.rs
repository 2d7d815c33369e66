//! A vehicle's home address, for traffic that knows no MPTCP: it is an address of the loopback
//! interface, and packets from it leave through the tunnel to the roadside unit that the
//! strategy prefers now. Hellos through each tunnel tell the units that it delivers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};

use crosslane_core::assess::Belief;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::roadside::reception::HELLO_INTERVAL;
use crosslane_core::time::Instant;
use ipnet::Ipv4Net;
use toml::Spanned;

use super::Driver;
use crate::error::Result;
use crate::netlink::Wiring;
use crate::netlink::home::{HomeRoute, Hop, Owner};

/// UDP port of hellos, at the unit's first address.
pub const HELLO_PORT: u16 = 4762;
/// A hello: the version of its form. The sender's address says which vehicle it is.
pub const HELLO: &[u8] = &[1];
/// Routing table of packets from the home address, beside those of the paths.
const TABLE: u32 = 0x4352_5310;

/// The tunnel to a unit, as packets from the home address may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The unit's path.
    pub path: PathId,
    /// Index of the tunnel's interface.
    pub interface: u32,
    /// The vehicle's address in the tunnel, and the unit's prefix.
    pub net: Ipv4Net,
}

/// The home address of this vehicle.
pub struct HomeAddress {
    wiring: Wiring,
    /// The present way, and whether the kernel took it.
    way: Option<(Way, bool)>,
    hellos: BTreeMap<PathId, (Way, UdpSocket)>,
    next_hello: Instant,
}

/// Removes the home address that a killed agent left, with its rule and routes.
///
/// # Errors
/// The kernel rejects it.
pub fn remove_former() -> Result<usize> {
    let mut wiring = Wiring::open()?;
    wiring.remove_rules(TABLE..=TABLE)?;
    wiring.remove_home_routes(Owner::Agent)?;
    wiring.remove_home_addresses()
}

impl HomeAddress {
    /// Adds the address; packets from it are unreachable until there is a way.
    ///
    /// # Errors
    /// The kernel rejects it; nothing is left.
    pub fn start(home: Ipv4Addr, now: Instant) -> Result<HomeAddress> {
        let mut wiring = Wiring::open()?;
        let added = wiring.add_home_address(home).and_then(|()| {
            wiring.replace_home_route(Owner::Agent, &default_route(None))?;
            wiring.add_rule(home.into(), TABLE)
        });
        if let Err(fault) = added {
            drop(remove_former());
            return Err(fault);
        }
        Ok(HomeAddress { wiring, way: None, hellos: BTreeMap::new(), next_hello: now })
    }

    /// Leads packets from the home address over this way, or nowhere.
    fn lead(&mut self, way: Option<Way>) -> Result<()> {
        if self.way.map(|(way, _)| way) == way {
            return Ok(());
        }
        let done = match way {
            Some(way) => self.wiring.replace_home_route(Owner::Agent, &default_route(hop(way))),
            None => self.wiring.remove_home_routes(Owner::Agent).and_then(|_| {
                // Without a way packets from it must not take another default route.
                self.wiring.replace_home_route(Owner::Agent, &default_route(None))
            }),
        };
        self.way = way.map(|way| (way, done.is_ok()));
        done
    }

    /// Lets a way that the kernel rejected be tried again, and sets the route of another one again: the kernel removes it when
    /// the interface goes down.
    fn restore(&mut self) {
        self.way = self.way.filter(|(_, is_taken)| *is_taken);
        if let Some((way, _)) = self.way {
            drop(self.wiring.replace_home_route(Owner::Agent, &default_route(hop(way))));
        }
    }

    /// Sends the hellos that are due, and one through a new tunnel at once: the unit knows the neighbour
    /// before packets from the home address follow. Those that fail are missed by the unit.
    fn greet(&mut self, now: Instant, ways: &[Way]) {
        self.hellos.retain(|_, (known, _)| ways.contains(known));
        for way in ways {
            if !self.hellos.contains_key(&way.path)
                && let Some(socket) = hello_socket(way)
            {
                drop(socket.send(HELLO));
                self.hellos.insert(way.path, (*way, socket));
            }
        }
        if now >= self.next_hello {
            self.next_hello = now + HELLO_INTERVAL;
            self.hellos.values().for_each(|(_, socket)| drop(socket.send(HELLO)));
        }
    }

    /// When the next hello is due.
    pub fn next_wakeup(&self) -> Instant {
        self.next_hello
    }
}

fn hop(way: Way) -> Option<Hop> {
    way.net.hosts().next().map(|via| Hop { via, interface: Some(way.interface) })
}

fn default_route(hop: Option<Hop>) -> HomeRoute {
    HomeRoute { to: Ipv4Net::default(), hop, table: Some(TABLE) }
}

fn hello_socket(way: &Way) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((way.net.addr(), 0)).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect((way.net.hosts().next()?, HELLO_PORT)).ok()?;
    Some(socket)
}

/// The way that the strategy prefers: by wanted state, then by belief. Among equals the present one stays.
fn preferred(ways: &[(Way, PathState, Belief)], present: Option<Way>) -> Option<Way> {
    let merit = |belief: Belief| match belief {
        Belief::Good => 4,
        Belief::Fading => 3,
        Belief::Unknown => 2,
        Belief::Lost => 1,
        Belief::Stalled => 0,
    };
    let key = |&&(way, state, belief): &&(Way, PathState, Belief)| {
        (state, merit(belief), Some(way) == present, Reverse(way.path))
    };
    ways.iter().max_by_key(key).map(|(way, ..)| *way)
}

impl Driver {
    /// The configured home address.
    fn home(&self) -> Option<Ipv4Addr> {
        self.config.roadside.as_ref().map(Spanned::get_ref)?.home()
    }

    /// Removes what a killed agent left, and adds the home address if there is one.
    pub(super) fn start_home(&mut self) {
        if self.config.roadside.is_none() {
            return;
        }
        if let Err(fault) = remove_former() {
            self.journal.fault(&fault);
        }
        let Some(home) = self.home() else { return };
        match HomeAddress::start(home, self.clock.now()) {
            Ok(started) => self.home = Some(started),
            Err(fault) => self.note_to_user(&format!("{fault}; the agent continues without its home address")),
        }
    }

    /// Follows the strategy's preference, and greets the units.
    pub(super) fn act_on_home(&mut self) {
        let (Some(home), Some(roadside)) = (&mut self.home, &self.roadside) else { return };
        let states: Vec<(Belief, PathState)> = self.engine.paths().map(|(_, belief, state)| (belief, state)).collect();
        let ways: Vec<Way> = roadside.ways().collect();
        let judged = ways.iter().filter_map(|way| {
            let (belief, state) = *states.get(usize::from(way.path.0))?;
            Some((*way, state, belief))
        });
        let judged: Vec<_> = judged.collect();
        let way = preferred(&judged, home.way.map(|(way, _)| way));
        let is_other = home.way.map(|(way, _)| way) != way;
        home.greet(self.clock.now(), &ways);
        let done = home.lead(way);
        match done {
            Ok(()) if is_other => {
                let reason = judged
                    .iter()
                    .find(|(judged, ..)| Some(*judged) == way)
                    .map_or("no tunnel to a unit stands".to_owned(), |(_, state, belief)| {
                        format!("the path is {} and {}", state.name(), belief.name())
                    });
                self.journal.home(way.map(|way| way.path), &reason);
            }
            Ok(()) => {}
            Err(fault) => self.journal.fault(&fault),
        }
    }

    /// Tries again what failed, and restores what is gone.
    pub(super) fn check_home(&mut self) {
        self.home.iter_mut().for_each(HomeAddress::restore);
    }

    /// Removes the home address.
    pub(super) fn finish_home(&mut self) {
        if self.home.take().is_some()
            && let Err(fault) = remove_former()
        {
            self.journal.fault(&fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(path: u8) -> Way {
        Way { path: PathId(path), interface: u32::from(path), net: Ipv4Net::new_assert([10, 81, 0, 2].into(), 24) }
    }

    #[test]
    fn the_home_address_follows_the_strategy_and_stays_among_equals() {
        let (active, backup, closed) = (PathState::Active, PathState::Backup, PathState::Closed);
        let cases = [
            ("the active one", [(closed, Belief::Good), (active, Belief::Fading)], Some(0), Some(1)),
            ("the good one", [(active, Belief::Fading), (active, Belief::Good)], Some(0), Some(1)),
            ("the present one", [(active, Belief::Good), (active, Belief::Good)], Some(1), Some(1)),
            ("the first one", [(active, Belief::Good), (active, Belief::Good)], None, Some(0)),
            ("one that answers", [(backup, Belief::Stalled), (backup, Belief::Unknown)], Some(0), Some(1)),
        ];
        for (what, states, present, expected) in cases {
            let ways: Vec<_> = (0..).zip(states).map(|(path, (state, belief))| (way(path), state, belief)).collect();
            assert_eq!(preferred(&ways, present.map(way)), expected.map(way), "{what}");
        }
        assert_eq!(preferred(&[], Some(way(0))), None);
    }
}
