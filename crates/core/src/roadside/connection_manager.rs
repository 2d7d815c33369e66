//! Which roadside units have a tunnel and a path: the connection manager of Torrinhas et al.,
//! section III, for any number of units.
//!
//! A radio has a number of slots. A unit takes a slot when its first CAM arrives, so that
//! its tunnel is up before it is needed; the strategy then decides about its subflow as on
//! any path. The slot is free again when the unit's CAMs have stopped and its path does
//! not carry data. A CAM only opens: a unit that answers probes, or over whose path data is
//! delivered, keeps its slot while its path is good, or fading and the best there is. Units
//! that do not answer take turns in the slots that are left, the one that has waited
//! longest first.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::agent::MAX_PATHS;
use crate::assess::Belief;
use crate::engine::Engine;
use crate::path::Position;
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use proof::{ANSWER_TIMEOUT, Proof};
use unit::Evidence;

mod cam_filter;
mod proof;
mod unit;

pub use proof::MAX_PROBE_BYTES;
pub use unit::Unit;

/// Maximum number of units of a directory; those beyond it are ignored.
pub const MAX_UNITS: usize = 4096;
/// A unit gives its slot to another whose signal is stronger by more than this.
const HYSTERESIS_DB: f32 = 6.0;
/// Weight of a new RSSI in the smoothed one.
const RSSI_WEIGHT: f32 = 0.25;

/// Parameters of a [`ConnectionManager`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Number of slots, 1 to 16.
    pub slots: u8,
    /// A unit without a CAM for this time is out of reach.
    pub timeout: Duration,
}

impl Default for Params {
    fn default() -> Params {
        Params { slots: 4, timeout: Duration::from_secs(3) }
    }
}

/// A roadside unit of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its station id.
    pub id: u32,
    /// Its name, also that of its path.
    pub name: String,
}

/// A received CAM of a roadside unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cam {
    /// Station id of the sender, as the message states it.
    pub station: u32,
    /// RSSI in dBm.
    pub rssi_dbm: f32,
    /// Position of the sender, as the message states it.
    pub position: Option<Position>,
}

/// An input of a [`ConnectionManager`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A CAM arrived. Only stations of the directory count.
    Cam(Cam),
    /// The known units. A unit that is no longer among them loses its slot, as soon as its
    /// path does not carry data.
    Directory(Vec<Station>),
    /// What the agent believes of a unit's path.
    Belief {
        /// The unit's station id.
        station: u32,
        /// The belief.
        belief: Belief,
    },
    /// A unit answered a probe, or data was delivered over its path.
    Proof {
        /// The unit's station id.
        station: u32,
    },
}

/// An output of a [`ConnectionManager`].
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A unit takes a slot: its tunnel and its path are to be set up.
    Open {
        /// The slot, from 0.
        slot: u8,
        /// The unit's station id.
        station: u32,
        /// The reason.
        reason: Reason,
    },
    /// A unit leaves its slot: its path and its tunnel are to be removed.
    Close {
        /// The slot, from 0.
        slot: u8,
        /// The unit's station id.
        station: u32,
        /// The reason.
        reason: Reason,
    },
    /// A datagram is to be sent through the unit's tunnel, which the unit returns.
    Probe {
        /// The unit's station id.
        station: u32,
        /// Payload, in bytes (1 to [`MAX_PROBE_BYTES`]).
        bytes: u16,
    },
    /// Whether a unit with a slot answers changed. Without this output, nothing is known.
    Answers {
        /// The unit's station id.
        station: u32,
        /// True if it does.
        answers: bool,
    },
}

/// Assigns units to slots.
pub struct ConnectionManager {
    params: Params,
    directory: BTreeMap<u32, String>,
    /// Units of the directory whose CAMs arrive, by station id.
    units: BTreeMap<u32, Unit>,
    /// When a unit of the directory that is out of reach last lost its slot because it did not answer.
    refuted: BTreeMap<u32, Instant>,
    outputs: VecDeque<Output>,
    now: Instant,
    /// Some unit has answered.
    has_answers: bool,
    /// The unit that was probed last, and when its answer is waited for no longer.
    probed: Option<(u32, Instant)>,
}

impl ConnectionManager {
    /// A manager without units. The number of slots is limited to 1 to 16.
    pub fn new(params: Params) -> ConnectionManager {
        let slots = params.slots.clamp(1, MAX_PATHS as u8);
        ConnectionManager {
            params: Params { slots, ..params },
            directory: BTreeMap::new(),
            units: BTreeMap::new(),
            refuted: BTreeMap::new(),
            outputs: VecDeque::new(),
            now: Instant::ZERO,
            has_answers: false,
            probed: None,
        }
    }

    /// The units in reach and those that hold a slot, by station id.
    pub fn units(&self) -> impl Iterator<Item = (u32, &Unit)> {
        self.units.iter().map(|(station, unit)| (*station, unit))
    }

    /// Slot of a unit, if it has one.
    pub fn slot(&self, station: u32) -> Option<u8> {
        self.units.get(&station)?.slot
    }

    /// Processes a CAM. False if it does not count: it is of no station of the directory, or
    /// another sender's.
    pub fn on_cam(&mut self, now: Instant, cam: &Cam) -> bool {
        self.now = now;
        if !self.directory.contains_key(&cam.station) || !cam.rssi_dbm.is_finite() {
            return false;
        }
        let refuted = &mut self.refuted;
        let new = || Unit { refuted: refuted.remove(&cam.station), ..Unit::new(now, cam.rssi_dbm) };
        let unit = self.units.entry(cam.station).or_insert_with(new);
        if !unit.filter.accepts(now, cam.rssi_dbm) {
            return false;
        }
        unit.rssi_dbm += RSSI_WEIGHT * (cam.rssi_dbm - unit.rssi_dbm);
        (unit.last_cam, unit.position) = (now, cam.position);
        if unit.slot.is_some() {
            return true;
        }
        let waiting = unit.clone();
        if !waiting.waits(now) {
            return true;
        }
        let Some(slot) = self.free_slot(now, &waiting).or_else(|| self.vacate(now, &waiting)) else { return true };
        let rssi_dbm = waiting.rssi_dbm;
        let text = format!("a CAM of {} arrived, {rssi_dbm:.1} dBm", self.name(cam.station));
        let inputs = [("station", f64::from(cam.station)), ("rssi_dbm", f64::from(rssi_dbm))];
        let reason = Reason::plain("roadside.in-reach", text).with(inputs);
        if let Some(unit) = self.units.get_mut(&cam.station) {
            (unit.slot, unit.belief, unit.proof, unit.answers) = (Some(slot), Belief::Unknown, Proof::new(now), None);
            self.outputs.push_back(Output::Open { slot, station: cam.station, reason });
        }
        true
    }

    fn on_proof(&mut self, now: Instant, station: u32) {
        let Some(unit) = self.units.get_mut(&station).filter(|unit| unit.slot.is_some()) else { return };
        unit.proof.on_answer(now);
        unit.refuted = unit.refuted.filter(|_| !unit.proof.is_given(now));
        self.has_answers = true;
        self.probed = self.probed.filter(|(probed, _)| *probed != station);
    }

    fn evidence(&self, now: Instant) -> Evidence {
        Evidence { now, exists: self.has_answers }
    }

    /// A free slot for a unit that waits. One that failed leaves it to those that were not tried yet.
    fn free_slot(&self, now: Instant, waiting: &Unit) -> Option<u8> {
        let is_new = |unit: &Unit| unit.refuted.is_none() && unit.proof.expires_at().is_none() && unit.waits(now);
        if waiting.refuted.is_some() && self.units.values().any(is_new) {
            return None;
        }
        (0..self.params.slots).find(|slot| self.units.values().all(|unit| unit.slot != Some(*slot)))
    }

    /// Takes the slot of the unit that needs it least for one that waits: of a unit whose
    /// path is lost, else of the weakest that carries nothing and is clearly weaker. Of those
    /// that wait the one that has not failed for longest goes first, and then a clearly
    /// stronger one, each with its next CAM.
    fn vacate(&mut self, now: Instant, waiting: &Unit) -> Option<u8> {
        let evidence = self.evidence(now);
        let rssi_dbm = waiting.rssi_dbm;
        let precedes = |unit: &Unit| {
            unit.refuted < waiting.refuted
                || (unit.refuted == waiting.refuted && unit.rssi_dbm > rssi_dbm + HYSTERESIS_DB)
        };
        if self.units.values().any(|unit| unit.waits(now) && precedes(unit)) {
            return None;
        }
        let is_good = |unit: &Unit| unit.belief == Belief::Good && evidence.carries(unit);
        let has_good = self.units.values().any(is_good);
        let carries = |unit: &Unit| is_good(unit) || (evidence.carries(unit) && !has_good);
        let holders = self.units.iter().filter(|(_, unit)| unit.slot.is_some() && !carries(unit));
        let is_lost = |unit: &Unit| evidence.is_lost(unit);
        let order = |a: &Unit, b: &Unit| is_lost(b).cmp(&is_lost(a)).then(a.rssi_dbm.total_cmp(&b.rssi_dbm));
        let (&station, unit) = holders.min_by(|(_, a), (_, b)| order(a, b))?;
        // It displaces none that answers, however strong it claims to be.
        if !is_lost(unit) && (unit.proof.is_given(now) || unit.rssi_dbm + HYSTERESIS_DB >= rssi_dbm) {
            return None;
        }
        let name = self.name(station);
        let text = format!("another unit needs the slot of {name}, {:.1} dBm: {rssi_dbm:.1} dBm", unit.rssi_dbm);
        let inputs = [("rssi_dbm", f64::from(unit.rssi_dbm)), ("other_rssi_dbm", f64::from(rssi_dbm))];
        self.close(station, Reason::plain("roadside.replaced", text).with(inputs))
    }

    fn on_directory(&mut self, stations: Vec<Station>) {
        self.directory = stations.into_iter().take(MAX_UNITS).map(|station| (station.id, station.name)).collect();
        self.refuted.retain(|station, _| self.directory.contains_key(station));
    }

    /// Frees the slot of a unit, and returns it.
    fn close(&mut self, station: u32, reason: Reason) -> Option<u8> {
        let evidence = self.evidence(self.now);
        let unit = self.units.get_mut(&station)?;
        let slot = unit.slot.take()?;
        if evidence.lacks(unit) {
            unit.refuted = Some(self.now);
            unit.filter.on_silence(self.now);
        }
        (unit.belief, unit.answers) = (Belief::Unknown, None);
        self.outputs.push_back(Output::Close { slot, station, reason });
        Some(slot)
    }

    /// When a unit is to be removed; never while it carries data. Its CAMs have stopped
    /// then, or the directory lacks it.
    fn removal(&self, evidence: Evidence, station: u32, unit: &Unit) -> Option<Instant> {
        let at =
            if self.directory.contains_key(&station) { unit.last_cam + self.params.timeout } else { Instant::ZERO };
        (!evidence.carries(unit)).then_some(at)
    }

    /// A unit that does not answer loses its slot, if any unit answers.
    fn close_silent(&mut self, now: Instant) {
        let evidence = self.evidence(now);
        let lacks = |unit: &Unit| unit.slot.is_some() && evidence.exists && evidence.lacks(unit);
        let silent = self.units.iter_mut().filter(|(_, unit)| lacks(unit));
        let stations: Vec<u32> = silent.map(|(station, _)| *station).collect();
        for station in stations {
            let text = format!("{} does not answer", self.name(station));
            self.close(station, Reason::plain("roadside.silent", text));
        }
    }

    fn remove_due(&mut self, now: Instant) {
        let evidence = self.evidence(now);
        let removal = |station: u32, unit: &Unit| self.removal(evidence, station, unit);
        let is_due = |(station, unit): &(&u32, &Unit)| removal(**station, unit).is_some_and(|at| at <= now);
        let due: Vec<u32> = self.units.iter().filter(is_due).map(|(station, _)| *station).collect();
        for station in due {
            if !self.directory.contains_key(&station) {
                self.close(station, Reason::plain("roadside.unknown", "the unit is no longer known"));
                self.units.remove(&station);
                continue;
            }
            let silence = now.since(self.units[&station].last_cam).as_secs_f64();
            let text = format!("no CAM of {} for {silence:.1} s", self.name(station));
            let inputs = [("station", f64::from(station)), ("silence_s", silence)];
            self.close(station, Reason::plain("roadside.out-of-reach", text).with(inputs));
            let refuted = self.units.remove(&station).and_then(|unit| unit.refuted);
            self.refuted.extend(refuted.map(|at| (station, at)));
        }
    }

    /// Reports whether units with a slot answer, once any unit did.
    fn report_answers(&mut self, now: Instant) {
        let units = self.units.iter_mut().filter(|(_, unit)| self.has_answers && unit.slot.is_some());
        for (&station, unit) in units {
            let answers = unit.proof.is_given(now);
            if unit.answers.replace(answers) != Some(answers) {
                self.outputs.push_back(Output::Answers { station, answers });
            }
        }
    }

    /// Probes the unit that has waited for it longest, unless an answer is waited for.
    fn probe_due(&mut self, now: Instant) {
        if self.probed.is_some_and(|(_, until)| now < until) {
            return;
        }
        let due = self.units.iter_mut().filter_map(|(station, unit)| Some((unit.probe_at()?, *station, unit)));
        let next = due.filter(|(at, ..)| *at <= now).min_by_key(|(at, station, _)| (*at, *station));
        let Some((_, station, unit)) = next else { return };
        unit.proof.on_probe(now);
        self.probed = Some((station, now + ANSWER_TIMEOUT));
        let bytes = unit.proof.probe_bytes();
        self.outputs.push_back(Output::Probe { station, bytes });
    }

    fn name(&self, station: u32) -> &str {
        self.directory.get(&station).map_or("a former unit", String::as_str)
    }
}

impl Engine for ConnectionManager {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Cam(cam) => {
                self.on_cam(now, &cam);
            }
            Input::Directory(stations) => self.on_directory(stations),
            Input::Belief { station, belief } => {
                if let Some(unit) = self.units.get_mut(&station).filter(|unit| unit.slot.is_some()) {
                    unit.belief = belief;
                }
            }
            Input::Proof { station } => self.on_proof(now, station),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        self.now = now;
        self.remove_due(now);
        self.close_silent(now);
        self.report_answers(now);
        self.probe_due(now);
        self.outputs.pop_front()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if !self.outputs.is_empty() {
            return Some(Instant::ZERO);
        }
        let evidence = self.evidence(self.now);
        let removals = self.units.iter().filter_map(|(station, unit)| self.removal(evidence, *station, unit));
        let free_at = self.probed.map_or(Instant::ZERO, |(_, until)| until);
        let probes = self.units.values().filter_map(|unit| Some(unit.probe_at()?.max(free_at)));
        let answers = self.units.values().filter(|unit| unit.answers == Some(true));
        let expiries = answers.filter_map(|unit| unit.proof.expires_at());
        removals.chain(probes).chain(expiries).min()
    }
}

#[cfg(test)]
mod tests;
