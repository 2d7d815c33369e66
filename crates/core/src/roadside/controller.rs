//! Which roadside unit serves the home address of each vehicle: the decisions of the controller.
//!
//! A unit is a candidate only while its tunnel to the vehicle stands. One whose tunnel carries packets
//! precedes one whose tunnel does not; among equals, the one that receives the vehicle clearly stronger.
//! What a vehicle's CAMs say only opens: a unit is left for what its tunnel does, or because it is silent.
//! The new unit serves before the route changes, and the old one until the change is confirmed.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::engine::Engine;
use crate::path::Position;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

use super::messages::{Announcement, MAX_UNITS, MAX_VEHICLES, Report};

mod directory;
mod vehicle;

pub use directory::{Directory, UnitSpec, VehicleSpec, inner};
pub use vehicle::{MAX_SIGHTS, Sight, Vehicle};

/// A unit without a report of a vehicle for this time is silent about it.
pub const SILENCE: Duration = Duration::from_millis(500);
/// A route to a unit whose tunnel is gone is kept for this time if there is no other.
pub const KEPT: Duration = Duration::from_secs(10);
/// After a start, a unit that served before is waited for this long.
pub const GRACE: Duration = Duration::from_secs(2);
/// A redirection without an answer for this time has failed; so long the next attempt waits, too.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A unit or a vehicle, by its station id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A unit.
    Unit(u32),
    /// A vehicle.
    Vehicle(u32),
}

/// An input of a [`Controller`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The units and vehicles of the configuration; again after a change.
    Directory(Directory),
    /// At the start: packets to a vehicle's home address are led to this unit.
    Present {
        /// The vehicle.
        vehicle: u32,
        /// The unit.
        unit: u32,
    },
    /// A peer of the directory has connected, and nothing of what it said before holds.
    Connected(Peer),
    /// The connection of a peer has ended.
    Disconnected(Peer),
    /// A unit reports.
    Report {
        /// The unit.
        unit: u32,
        /// The message.
        report: Report,
    },
    /// The answer to [`Output::Redirect`].
    Redirected {
        /// The vehicle.
        vehicle: u32,
        /// As in the request.
        unit: Option<u32>,
        /// Why it failed, if it did.
        fault: Option<String>,
    },
}

/// An output of a [`Controller`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Packets to this home address are to be led to the unit, or nowhere.
    Redirect {
        /// The vehicle; one that is no longer in the directory sends no answer.
        vehicle: u32,
        /// Its home address.
        home: Ipv4Addr,
        /// The unit.
        unit: Option<u32>,
    },
    /// A message to a peer.
    Announce {
        /// The peer.
        to: Peer,
        /// The message.
        announcement: Announcement,
    },
    /// A decision, or what became of it.
    Event(Event),
}

/// For the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Another unit shall serve, or none.
    Decided {
        /// The vehicle.
        vehicle: u32,
        /// The unit that serves.
        from: Option<u32>,
        /// The unit that shall serve.
        to: Option<u32>,
        /// The reason.
        reason: Reason,
    },
    /// The redirection is done.
    Confirmed {
        /// The vehicle.
        vehicle: u32,
        /// The unit that serves.
        unit: Option<u32>,
        /// Time since the decision.
        after: Duration,
    },
    /// The redirection failed, and is tried again.
    Failed {
        /// The vehicle.
        vehicle: u32,
        /// The unit that should have served.
        unit: Option<u32>,
        /// The cause.
        cause: String,
    },
}

/// The engine.
#[derive(Default)]
pub struct Controller {
    directory: Directory,
    /// Places in the directory.
    units: BTreeMap<u32, usize>,
    vehicles: BTreeMap<u32, Vehicle>,
    connected: BTreeSet<Peer>,
    /// No rule of time applies before.
    check_at: Option<Instant>,
    ignored: u64,
    outputs: VecDeque<Output>,
}

impl Controller {
    /// A controller without units and vehicles.
    pub fn new() -> Controller {
        Controller::default()
    }

    /// The units and vehicles of the configuration.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The vehicles, by station id.
    pub fn vehicles(&self) -> impl Iterator<Item = (u32, &Vehicle)> {
        self.vehicles.iter().map(|(station, vehicle)| (*station, vehicle))
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self, peer: Peer) -> bool {
        self.connected.contains(&peer)
    }

    /// The unit that a redirection without an answer leads to, if there is one.
    pub fn requested(&self, vehicle: u32) -> Option<Option<u32>> {
        self.vehicles.get(&vehicle)?.requested()
    }

    /// Reports of vehicles that are not in the directory, or of more units than a vehicle can have.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    fn on_directory(&mut self, now: Instant, mut directory: Directory) {
        directory.units.truncate(MAX_UNITS);
        directory.vehicles.truncate(MAX_VEHICLES);
        let of_before = core::mem::replace(&mut self.directory, directory);
        self.units = self.directory.units.iter().enumerate().map(|(place, unit)| (unit.station, place)).collect();
        let specs: BTreeMap<u32, &VehicleSpec> =
            self.directory.vehicles.iter().map(|spec| (spec.station, spec)).collect();
        let (outputs, vehicles) = (&mut self.outputs, &mut self.vehicles);
        vehicles.retain(|station, vehicle| {
            let is_kept = specs.get(station).is_some_and(|spec| spec.home == vehicle.home());
            if !is_kept {
                outputs.extend(vehicle.remove(*station));
            }
            is_kept
        });
        for (station, spec) in specs {
            vehicles.entry(station).or_insert_with(|| Vehicle::new(spec.home));
        }
        let moved = |unit: &&UnitSpec| {
            let next_hop = self.units.get(&unit.station).map(|place| self.directory.units[*place].next_hop);
            next_hop.is_some_and(|next_hop| next_hop != unit.next_hop)
        };
        for unit in of_before.units.iter().filter(moved) {
            self.vehicles.values_mut().for_each(|vehicle| vehicle.unit_moved(unit.station));
        }
        let is_known = |peer: &Peer| match peer {
            Peer::Unit(station) => self.units.contains_key(station),
            Peer::Vehicle(station) => self.vehicles.contains_key(station),
        };
        let removed: Vec<Peer> = self.connected.iter().copied().filter(|peer| !is_known(peer)).collect();
        removed.into_iter().for_each(|peer| self.forget(now, peer));
        for peer in self.connected.clone() {
            self.introduce(peer);
        }
        self.decide_all(now);
    }

    /// Announces to a peer all that it must know.
    fn introduce(&mut self, to: Peer) {
        let announcement = match to {
            Peer::Unit(_) => Announcement::Vehicles(self.directory.vehicle_entries()),
            Peer::Vehicle(station) => Announcement::Units(self.directory.unit_entries(station)),
        };
        self.outputs.push_back(Output::Announce { to, announcement });
    }

    fn on_connected(&mut self, now: Instant, peer: Peer) {
        self.forget(now, peer);
        self.connected.insert(peer);
        self.introduce(peer);
        let Peer::Unit(unit) = peer else { return };
        // It may have missed that another unit serves since.
        let is_led = |vehicle: &Vehicle| vehicle.serving().is_some() || vehicle.is_served_by(unit);
        for (station, vehicle) in self.vehicles.iter().filter(|(_, vehicle)| is_led(vehicle)) {
            self.outputs.push_back(vehicle::serving(unit, *station, vehicle.is_served_by(unit)));
        }
    }

    /// What a peer said no longer holds.
    fn forget(&mut self, now: Instant, peer: Peer) {
        self.connected.remove(&peer);
        let Peer::Unit(unit) = peer else { return };
        let reported =
            self.vehicles.iter_mut().filter_map(|(station, vehicle)| vehicle.forget(unit).then_some(*station));
        for station in reported.collect::<Vec<_>>() {
            self.decide(now, station);
        }
    }

    fn on_report(&mut self, now: Instant, unit: u32, report: &Report) {
        let station = match report {
            Report::Vehicle { station, .. } | Report::Left { station } => *station,
            Report::Hello { .. } | Report::Keepalive => return,
        };
        let Some(vehicle) = self.vehicles.get_mut(&station).filter(|_| self.connected.contains(&Peer::Unit(unit)))
        else {
            self.ignored += 1;
            return;
        };
        if !vehicle.sight(now, unit, report) {
            self.ignored += 1;
        }
        self.decide(now, station);
    }

    fn decide(&mut self, now: Instant, station: u32) {
        let name = |unit: u32| {
            self.units.get(&unit).map_or("a former unit", |place| self.directory.units[*place].name.as_str())
        };
        let Some(vehicle) = self.vehicles.get_mut(&station) else { return };
        vehicle.decide(now, station, name, &mut self.outputs);
        self.check_at = self.check_at.into_iter().chain(vehicle.check_at(now)).min();
    }

    fn decide_all(&mut self, now: Instant) {
        self.check_at = None;
        for station in self.vehicles.keys().copied().collect::<Vec<_>>() {
            self.decide(now, station);
        }
    }
}

impl Engine for Controller {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Directory(directory) => self.on_directory(now, directory),
            Input::Present { vehicle, unit } => {
                if let Some(vehicle) = self.vehicles.get_mut(&vehicle).filter(|_| self.units.contains_key(&unit)) {
                    vehicle.present(now, unit);
                }
            }
            Input::Connected(peer) => self.on_connected(now, peer),
            Input::Disconnected(peer) => self.forget(now, peer),
            Input::Report { unit, report } => self.on_report(now, unit, &report),
            Input::Redirected { vehicle: station, unit, fault } => {
                if let Some(vehicle) = self.vehicles.get_mut(&station) {
                    vehicle.answered(now, station, unit, fault, &mut self.outputs);
                    self.decide(now, station);
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.check_at.is_some_and(|at| now >= at) {
            self.decide_all(now);
        }
        self.outputs.pop_front()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.outputs.is_empty() { self.check_at } else { Some(Instant::ZERO) }
    }
}

#[cfg(test)]
mod tests;
