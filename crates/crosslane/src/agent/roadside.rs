//! Roadside units as paths: their CAMs to the connection manager, its decisions to tunnels and paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use crosslane_core::agent::Input;
use crosslane_core::assess::Belief;
use crosslane_core::path::{PathId, PathSpec, Rat, Signal, Transport, UNITS_RADIO};
use crosslane_core::reason::Reason;
use crosslane_core::roadside::connection_manager::{self, Params, Unit};
use crosslane_core::roadside::messages::{Announcement, Role};
use crosslane_core::roadside::unit_paths::UnitPaths;
use crosslane_core::time::Instant;
use toml::Spanned;

use super::config::roadside::{RoadsideConfig, TunnelKind, UnitConfig};
use super::config::{Config, UNITS};
use super::home_address::Way;
use super::unit_directory::{UnitDirectory, station};
use super::unit_probe::{self, ProbeSocket};
use super::unit_tunnel::{self, Closing, Radio, UnitTunnel};
use super::{Driver, or_pending};
use crate::clock::Clock;
use crate::control::status::UnitStatus;
use crate::error::{Error, Result};
use crate::observe::vanetza::{self, Rejected};
use crate::roadside::link::{Follower, Link, LinkEvent};
use crate::tunnel::security::PrivateKey;

/// The units, and the tunnels to those that have a slot.
pub struct Roadside {
    config: Arc<Config>,
    clock: Clock,
    directory: UnitDirectory,
    /// The connection to the controller, if there is one.
    link: Option<Link>,
    /// Whether the user knows that it is down.
    is_down_noted: bool,
    paths: UnitPaths,
    slots: BTreeMap<u8, Slot>,
    /// Tunnels whose interfaces are being removed.
    closing: Vec<Closing>,
    radio: Option<Radio>,
}

struct Slot {
    /// The unit, as it was when it took the slot.
    unit: UnitConfig,
    path: PathId,
    tunnel: Option<UnitTunnel>,
    /// The socket of probes, since the first one through this tunnel.
    probes: Option<ProbeSocket>,
    /// Whether the user knows that there is no tunnel.
    is_reported: bool,
}

/// What arrives at the units' side of a vehicle.
pub enum Arrived {
    /// From the controller.
    Link(LinkEvent),
    /// The unit with this station id answered a probe.
    Answer(u32),
}

impl Roadside {
    /// The units of the configuration, if it has any.
    pub fn new(config: &Arc<Config>, clock: Clock) -> Option<Roadside> {
        let section = config.roadside.as_ref()?.get_ref();
        let params = Params { slots: *section.slots.get_ref(), ..Params::default() };
        let directory = UnitDirectory::new(config);
        let paths = UnitPaths::new(params, directory.units().map(station).collect());
        Some(Roadside {
            config: config.clone(),
            clock,
            directory,
            link: None,
            is_down_noted: false,
            paths,
            slots: BTreeMap::new(),
            closing: Vec::new(),
            radio: None,
        })
    }

    fn section(&self) -> Option<&RoadsideConfig> {
        self.config.roadside.as_ref().map(Spanned::get_ref)
    }

    /// The unit with this station id: of a slot, or else of the directory.
    fn unit(&self, station: u32) -> Option<&UnitConfig> {
        let mut held = self.slots.values().map(|slot| &slot.unit);
        held.find(|unit| unit.station == station).or_else(|| self.directory.unit(station))
    }

    /// Connects to the controller, if there is one.
    fn follow_controller(&mut self) -> Result<()> {
        let Some(section) = self.config.roadside.as_ref().map(Spanned::get_ref) else { return Ok(()) };
        let (Some(controller), Some(public), Some(key)) = (&section.controller, &section.controller_key, &section.key)
        else {
            return Ok(());
        };
        let attempt = "following the controller";
        let controller_key = public.get_ref().parse().map_err(|cause| Error::failure(attempt, cause))?;
        let key = PrivateKey::read(key.get_ref())?;
        let controller = controller.get_ref().clone();
        self.link = Some(Link::start(Follower { controller, controller_key, key, role: Role::Vehicle }));
        Ok(())
    }

    /// What arrives next. Safe to cancel.
    pub async fn next(&mut self) -> Arrived {
        let probed = self.slots.values().filter_map(|slot| Some((slot.unit.station, slot.probes.as_ref()?)));
        tokio::select! {
            event = or_pending(self.link.as_mut().map(Link::next)) => Arrived::Link(event),
            station = unit_probe::answer(probed) => Arrived::Answer(station),
        }
    }

    /// Sends a probe to a unit whose tunnel exists. Where none can be sent, a unit counts as one that answers.
    fn probe(&mut self, station: u32, bytes: u16) -> Result<()> {
        let Some(slot) = self.slots.values_mut().find(|slot| slot.unit.station == station) else { return Ok(()) };
        if let (None, Some(way)) = (&slot.probes, slot.tunnel.as_ref().and_then(|tunnel| tunnel.way(slot.path))) {
            let opened = ProbeSocket::open(&way);
            if opened.is_err() {
                self.paths.on_answer(self.clock.now(), station);
            }
            slot.probes = Some(opened?);
        }
        slot.probes.iter().for_each(|probes| probes.send(bytes));
        Ok(())
    }

    /// Passes the directory on. A unit that holds a slot and has changed is passed on when it has left the
    /// slot, which it does when its path does not carry data: it takes the next one as it is then.
    fn pass_directory(&mut self, now: Instant) {
        let is_current = |unit: &&UnitConfig| {
            let held = self.slots.values().find(|slot| slot.unit.station == unit.station);
            held.is_none_or(|slot| slot.unit.is_same(unit))
        };
        let stations = self.directory.units().filter(is_current).map(station).collect();
        self.paths.set_directory(now, stations);
    }

    /// When the connection manager may decide without an input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.paths.next_wakeup()
    }

    /// The tunnels that exist, for packets from the home address.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        self.slots.values().filter_map(|slot| slot.tunnel.as_ref()?.way(slot.path))
    }

    /// Passes the belief about a path to the connection manager.
    pub fn believe(&mut self, now: Instant, path: PathId, belief: Belief) {
        self.paths.on_belief(now, path, belief);
    }

    /// Processes the statistics of a subflow over a path.
    pub fn note_subflow(&mut self, now: Instant, path: PathId, transport: &Transport) {
        self.paths.on_subflow(now, path, transport);
    }

    /// Opens the tunnel of a slot, if the radio has an address.
    fn open(&mut self, slot: u8) -> Result<()> {
        let (config, clock, radio) = (self.config.clone(), self.clock, self.radio);
        let (Some(section), Some(slot), Some(radio)) = (&config.roadside, self.slots.get_mut(&slot), radio) else {
            return Ok(());
        };
        let former = self.closing.extract_if(.., |closing| closing.is_of(&slot.unit.name));
        former.for_each(Closing::wait);
        (slot.tunnel, slot.probes) = (None, None);
        slot.tunnel = Some(UnitTunnel::open(section.get_ref(), &slot.unit, slot.path, radio, clock)?);
        slot.is_reported = false;
        Ok(())
    }

    /// Status of the units in reach; `bytes` are sent and received by each interface.
    pub fn status(&self, now: Instant, bytes: &BTreeMap<String, [u64; 2]>) -> Vec<UnitStatus> {
        let Some(section) = self.section() else { return Vec::new() };
        let status = |(station, unit): (u32, &Unit)| {
            let name = self.unit(station)?.name.clone();
            let tunnel = unit.slot.and_then(|slot| self.slots.get(&slot)?.tunnel.as_ref());
            let stats = tunnel.and_then(UnitTunnel::stats);
            let bytes = tunnel.and_then(|_| bytes.get(&name));
            Some(UnitStatus {
                station,
                slot: unit.slot,
                kind: section.tunnel.name().into(),
                belief: unit.belief.name().into(),
                rssi_dbm: unit.rssi_dbm.into(),
                last_cam_s: now.since(unit.last_cam).as_secs_f64(),
                has_tunnel: tunnel.is_some(),
                liveness: stats.as_ref().map(|stats| stats.liveness.name().into()),
                min_rtt_ms: stats.and_then(|stats| stats.rtt).map(|rtt| rtt.as_secs_f64() * 1e3),
                sent_bytes: bytes.map(|[sent, _]| *sent),
                received_bytes: bytes.map(|[_, received]| *received),
                name,
            })
        };
        self.paths.units().filter_map(status).collect()
    }

    /// Removes every tunnel.
    pub fn finish(mut self) {
        let tunnels = self.slots.values_mut().filter_map(|slot| slot.tunnel.take());
        self.closing.extend(tunnels.map(UnitTunnel::close));
        self.closing.into_iter().for_each(Closing::wait);
    }
}

impl Driver {
    /// Removes what a killed agent left, and says once what the tunnels do not protect, and whether units can be probed.
    pub(super) fn start_roadside(&mut self) {
        let Some(roadside) = &mut self.roadside else { return };
        let Some(section) = roadside.section() else { return };
        let kind = section.tunnel;
        roadside.radio = unit_tunnel::find_radio(section).0;
        if let Err(fault) = roadside.follow_controller() {
            self.journal.fault(&fault);
        }
        // The tunnels work without requests.
        if let Err(fault) = self.control.listen_for_tunnel(UNITS) {
            self.journal.fault(&fault);
        }
        match unit_tunnel::remove_former() {
            Ok(names) if names.is_empty() => {}
            Ok(names) => self.journal.note(&format!("removed what a former agent left: {}", names.join(", "))),
            Err(fault) => self.journal.fault(&fault),
        }
        if let Err(fault) = unit_probe::check() {
            self.note_to_user(&format!("{fault}; without probes every unit whose CAMs arrive counts as in reach"));
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
        if roadside.unit(station).is_none() {
            return self.journal.rejected(&Rejected::UnknownStation(signal));
        }
        if let Some(sample) = roadside.paths.on_signal(now, signal) {
            self.signals.note(now, sample.path, signal.rssi_dbm, vanetza::NAME);
            self.handle(sample.into());
        }
    }

    /// Processes what arrived from a unit or the controller.
    pub(super) fn on_roadside(&mut self, arrived: Arrived) {
        let now = self.clock.now();
        match arrived {
            Arrived::Link(event) => self.on_link_event(event),
            Arrived::Answer(station) => {
                self.roadside.iter_mut().for_each(|roadside| roadside.paths.on_answer(now, station));
            }
        }
    }

    /// The controller announced units, or is gone or back; what it announced stays while it is gone.
    fn on_link_event(&mut self, event: LinkEvent) {
        let now = self.clock.now();
        let Some(roadside) = &mut self.roadside else { return };
        match event {
            LinkEvent::Up => {
                if std::mem::take(&mut roadside.is_down_noted) {
                    self.note_to_user("following the controller works now");
                }
            }
            LinkEvent::Down(fault) => {
                roadside.is_down_noted = true;
                self.note_to_user(&format!("{fault}; the units that are known stay in use"));
            }
            LinkEvent::Announcement(Announcement::Units(entries)) => {
                let sentences = roadside.directory.announce(&entries);
                roadside.pass_directory(now);
                self.journal.note(&format!("the controller announces {} roadside units", entries.len()));
                sentences.iter().for_each(|sentence| self.note_to_user(sentence));
            }
            // Meant for units.
            LinkEvent::Announcement(_) => {}
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
            Some(connection_manager::Output::Probe { station, bytes }) => {
                let sent = self.roadside.as_mut().map_or(Ok(()), |roadside| roadside.probe(station, bytes));
                sent.err().iter().for_each(|fault| self.journal.fault(fault));
            }
            Some(connection_manager::Output::Answers { station, answers }) => {
                let sample = self.roadside.as_ref().and_then(|roadside| roadside.paths.answers(station, answers));
                sample.into_iter().for_each(|sample| self.handle(sample.into()));
            }
            None => return false,
        }
        true
    }

    fn open_slot(&mut self, slot: u8, station: u32, reason: &Reason) {
        let (Some(roadside), Some(path)) = (&mut self.roadside, self.engine.vacant()) else { return };
        let unit = roadside.directory.unit(station).cloned();
        let Some((net, unit)) = unit.and_then(|unit| Some((unit.net()?, unit))) else { return };
        roadside.slots.insert(slot, Slot { unit: unit.clone(), path, tunnel: None, probes: None, is_reported: false });
        let first = roadside.paths.add(station, path);
        self.journal.name_path(path, &unit.name);
        self.journal.roadside(true, (&unit.name, station), slot, reason);
        self.interfaces.assign(path, Some((&unit.name, net.addr().into())));
        self.counters.assign(path, &unit.name);
        self.signals.forget(path);
        let spec = PathSpec {
            name: unit.name.clone(),
            rat: Rat::Ieee80211p,
            local: None,
            if_index: 0,
            radio: Some(UNITS_RADIO),
        };
        self.handle(Input::AddPath(spec, self.config.unit_rank()));
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
        let now = self.clock.now();
        let Some(roadside) = &mut self.roadside else { return };
        let Some(Slot { unit, path, tunnel, .. }) = roadside.slots.remove(&slot) else { return };
        roadside.paths.remove(station);
        // If it has changed meanwhile, it is known again now.
        roadside.pass_directory(now);
        self.journal.roadside(false, (&unit.name, station), slot, reason);
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
                slot.probes = None;
                roadside.closing.push(tunnel.close());
            }
            match &slot.tunnel {
                Some(tunnel) => tunnel.restore_routes(),
                None => missing.push(number),
            }
        }
        missing.into_iter().for_each(|slot| self.open_tunnel(slot));
    }
}
