//! Roadside units as paths: their CAMs to the connection manager, its decisions to tunnels and paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use crosslane_core::agent::Input;
use crosslane_core::assess::{Belief, Reason};
use crosslane_core::path::{PathId, PathSpec, Rat, Signal, UNITS_RADIO};
use crosslane_core::roadside::connection_manager::{self, Params, Station};
use crosslane_core::roadside::unit_paths::UnitPaths;
use crosslane_core::time::Instant;
use toml::Spanned;

use super::Driver;
use super::config::Config;
use super::config::roadside::{RoadsideConfig, TunnelKind};
use super::unit_tunnel::{self, Closing, Radio, UnitTunnel};
use crate::clock::Clock;
use crate::error::Result;
use crate::observe::vanetza::Rejected;

/// The units, and the tunnels to those that have a slot.
pub struct Roadside {
    config: Arc<Config>,
    clock: Clock,
    paths: UnitPaths,
    slots: BTreeMap<u8, Slot>,
    /// Tunnels whose interfaces are being removed.
    closing: Vec<Closing>,
    radio: Option<Radio>,
}

struct Slot {
    station: u32,
    path: PathId,
    tunnel: Option<UnitTunnel>,
    /// Whether the user knows that there is no tunnel.
    is_reported: bool,
}

impl Roadside {
    /// The units of the configuration, if it has any.
    pub fn new(config: &Arc<Config>, clock: Clock) -> Option<Roadside> {
        let section = config.roadside.as_ref()?.get_ref();
        let params = Params { slots: *section.slots.get_ref(), ..Params::default() };
        let units = section.units.iter().map(Spanned::get_ref);
        let directory = units.map(|unit| Station { id: unit.station, name: unit.name.clone() }).collect();
        let paths = UnitPaths::new(params, directory);
        Some(Roadside {
            config: config.clone(),
            clock,
            paths,
            slots: BTreeMap::new(),
            closing: Vec::new(),
            radio: None,
        })
    }

    fn section(&self) -> Option<&RoadsideConfig> {
        self.config.roadside.as_ref().map(Spanned::get_ref)
    }

    /// When the connection manager may decide without an input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.paths.next_wakeup()
    }

    /// Passes the belief about a path to the connection manager.
    pub fn believe(&mut self, now: Instant, path: PathId, belief: Belief) {
        self.paths.on_belief(now, path, belief);
    }

    /// A subflow over a path exists.
    pub fn note_subflow(&mut self, now: Instant, path: PathId) {
        self.paths.on_subflow(now, path);
    }

    /// Opens the tunnel of a slot, if the radio has an address.
    fn open(&mut self, slot: u8) -> Result<()> {
        let (config, clock, radio) = (self.config.clone(), self.clock, self.radio);
        let (Some(section), Some(slot), Some(radio)) = (&config.roadside, self.slots.get_mut(&slot), radio) else {
            return Ok(());
        };
        if let Some(unit) = section.get_ref().unit(slot.station) {
            let former = self.closing.extract_if(.., |closing| closing.is_of(&unit.name));
            former.for_each(Closing::wait);
            slot.tunnel = Some(UnitTunnel::open(section.get_ref(), unit, slot.path, radio, clock)?);
            slot.is_reported = false;
        }
        Ok(())
    }

    /// Removes every tunnel.
    pub fn finish(mut self) {
        let tunnels = self.slots.values_mut().filter_map(|slot| slot.tunnel.take());
        self.closing.extend(tunnels.map(UnitTunnel::close));
        self.closing.into_iter().for_each(Closing::wait);
    }
}

impl Driver {
    /// Removes what a killed agent left, and says once what the tunnels do not protect.
    pub(super) fn start_roadside(&mut self) {
        let Some(roadside) = &mut self.roadside else { return };
        let Some(section) = roadside.section() else { return };
        let kind = section.tunnel;
        roadside.radio = unit_tunnel::find_radio(section).0;
        match unit_tunnel::remove_former() {
            Ok(names) if names.is_empty() => {}
            Ok(names) => self.journal.note(&format!("removed what a former agent left: {}", names.join(", "))),
            Err(fault) => self.journal.fault(&fault),
        }
        if kind.is_of_kernel() {
            let name = if kind == TunnelKind::Vxlan { "VXLAN" } else { "GRE" };
            self.note_to_user(&format!(
                "the tunnels to roadside units are {name}, which neither encrypts nor authenticates: anybody on the \
                 air can read and forge what they carry; use it only in closed networks, or set roadside.tunnel = \
                 \"crosslane\""
            ));
        }
    }

    /// A CAM of a station that is no path of the configuration.
    pub(super) fn on_station(&mut self, signal: Signal) {
        let now = self.clock.now();
        let station = signal.station.unwrap_or_default();
        let Some(roadside) = &mut self.roadside else { return };
        if roadside.section().is_none_or(|section| section.unit(station).is_none()) {
            return self.journal.rejected(&Rejected::UnknownStation(signal));
        }
        if let Some(sample) = roadside.paths.on_signal(now, signal) {
            self.handle(sample.into());
        }
    }

    /// Carries out one decision of the connection manager; false if there is none.
    pub(super) fn act_on_units(&mut self) -> bool {
        let now = self.clock.now();
        let output = self.roadside.as_mut().and_then(|roadside| roadside.paths.poll(now));
        match output {
            Some(connection_manager::Output::Open { slot, station, reason }) => self.open_slot(slot, station, &reason),
            Some(connection_manager::Output::Close { slot, station, reason }) => {
                self.close_slot(slot, station, &reason);
            }
            None => return false,
        }
        true
    }

    fn open_slot(&mut self, slot: u8, station: u32, reason: &Reason) {
        let (Some(roadside), Some(path)) = (&mut self.roadside, self.engine.vacant()) else { return };
        let config = roadside.config.clone();
        let unit = config.roadside.as_ref().and_then(|section| section.get_ref().unit(station));
        let Some((unit, net)) = unit.and_then(|unit| Some((unit, unit.net()?))) else { return };
        roadside.slots.insert(slot, Slot { station, path, tunnel: None, is_reported: false });
        let first = roadside.paths.add(station, path);
        self.journal.name_path(path, &unit.name);
        self.journal.roadside(true, (&unit.name, station), slot, reason);
        self.interfaces.assign(path, Some((&unit.name, net.addr().into())));
        self.counters.assign(path, &unit.name);
        let spec = PathSpec {
            name: unit.name.clone(),
            rat: Rat::Ieee80211p,
            local: None,
            if_index: 0,
            radio: Some(UNITS_RADIO),
        };
        self.handle(Input::AddPath(spec, config.unit_rank()));
        if let Some(sample) = first {
            self.handle(sample.into());
        }
        self.open_tunnel(slot);
    }

    /// A fault is reported once for each unit in a slot; it is retried every second.
    fn open_tunnel(&mut self, slot: u8) {
        let Some(roadside) = &mut self.roadside else { return };
        let Err(fault) = roadside.open(slot) else { return };
        let slot = roadside.slots.get_mut(&slot);
        if slot.is_some_and(|slot| !std::mem::replace(&mut slot.is_reported, true)) {
            self.note_to_user(&format!("{fault}; the agent retries until the unit's tunnel works"));
        }
    }

    fn close_slot(&mut self, slot: u8, station: u32, reason: &Reason) {
        let Some(roadside) = &mut self.roadside else { return };
        let Some(Slot { path, tunnel, .. }) = roadside.slots.remove(&slot) else { return };
        roadside.paths.remove(station);
        let name = roadside.section().and_then(|section| section.unit(station)).map(|unit| unit.name.clone());
        self.journal.roadside(false, (&name.unwrap_or_default(), station), slot, reason);
        self.interfaces.assign(path, None);
        self.counters.assign(path, "");
        self.handle(Input::RemovePath(path));
        if let Some(roadside) = &mut self.roadside {
            roadside.closing.extend(tunnel.map(UnitTunnel::close));
        }
    }

    /// Rebuilds tunnels that do not work, and all of them if the radio's address changed.
    pub(super) fn check_units(&mut self) {
        let Some(roadside) = &mut self.roadside else { return };
        let Some(section) = roadside.section() else { return };
        let (radio, names) = unit_tunnel::find_radio(section);
        let has_moved = roadside.radio != radio;
        roadside.radio = radio;
        roadside.closing.retain(|closing| !closing.is_done());
        let mut missing = Vec::new();
        for (&number, slot) in &mut roadside.slots {
            let news = slot.tunnel.as_ref().map(|tunnel| tunnel.news(slot.path));
            let (faults, changes) = news.unwrap_or_default();
            let broken = slot.tunnel.as_mut().and_then(|tunnel| tunnel.fault(&names));
            faults.iter().chain(&broken).for_each(|fault| self.journal.fault(fault));
            changes.iter().for_each(|change| self.journal.tunnel(change));
            if (has_moved || broken.is_some())
                && let Some(tunnel) = slot.tunnel.take()
            {
                roadside.closing.push(tunnel.close());
            }
            if slot.tunnel.is_none() {
                missing.push(number);
            }
        }
        missing.into_iter().for_each(|slot| self.open_tunnel(slot));
    }
}
