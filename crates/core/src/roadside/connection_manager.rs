//! Which roadside units have a tunnel and a path: the connection manager of Torrinhas et al.,
//! section III, for any number of units.
//!
//! A radio has a number of slots. A unit takes a slot when its first CAM arrives, so that
//! its tunnel is up before it is needed; the strategy then decides about its subflow as on
//! any path. The slot is free again when the unit's CAMs have stopped and its path does
//! not carry data. A CAM only opens: a unit whose path is good, or fading and the
//! best there is, keeps its slot whatever messages say or do not say.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::agent::MAX_PATHS;
use crate::assess::{Belief, Reason};
use crate::engine::Engine;
use crate::path::Position;
use crate::time::{Duration, Instant};

/// Maximum number of units of a directory; those beyond it are ignored.
pub const MAX_UNITS: usize = 4096;
/// A unit gives its slot to another whose signal is stronger by more than this.
const HYSTERESIS_DB: f32 = 6.0;
/// Longest period of CAMs (EN 302 637-2 clause 6.1.3: T_GenCamMax).
const MAX_CAM_PERIOD: Duration = Duration::from_secs(1);
/// From the time at which a unit takes a slot, for this long, its signal suffices; then a
/// subflow over its path must prove that it carries.
const GRACE: Duration = Duration::from_secs(1);
/// A unit that left its slot without such a proof takes no other's slot for this long.
const PENALTY: Duration = Duration::from_secs(3);
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
    /// A subflow over a unit's path exists.
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
}

/// A unit in reach, as [`ConnectionManager::units`] shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its slot, if it has one.
    pub slot: Option<u8>,
    /// When its last CAM arrived.
    pub last_cam: Instant,
    /// Its smoothed RSSI, in dBm.
    pub rssi_dbm: f32,
    /// Its position, as its last CAM states it.
    pub position: Option<Position>,
    /// What the agent believes of its path.
    pub belief: Belief,
    /// Until when it is taken to carry what it is believed to.
    proven_until: Instant,
    /// When a subflow over its path last existed, since it has its slot.
    proven: Option<Instant>,
    /// Until when it takes no other unit's slot.
    barred_until: Instant,
}

impl Unit {
    /// True if it is believed to carry, and nothing speaks against it.
    fn carries(&self, proof: Proof) -> bool {
        self.belief == Belief::Fading || (self.belief == Belief::Good && !proof.lacks(self))
    }

    /// True if its path is lost, or carries nothing although its signal is good. Of one radio
    /// all paths stall at once: a stalled one that has a subflow is not lost.
    fn is_lost(&self, proof: Proof) -> bool {
        let had_one = self.proven.is_some_and(|at| proof.now < at + GRACE);
        match self.belief {
            Belief::Lost => true,
            Belief::Stalled => !had_one,
            Belief::Good => proof.lacks(self),
            Belief::Fading | Belief::Unknown => false,
        }
    }
}

/// Whether subflows prove which units carry.
#[derive(Clone, Copy)]
struct Proof {
    now: Instant,
    /// Some unit has one: there are connections.
    exists: bool,
}

impl Proof {
    fn lacks(self, unit: &Unit) -> bool {
        self.exists && self.now >= unit.proven_until
    }
}

/// Assigns units to slots.
pub struct ConnectionManager {
    params: Params,
    directory: BTreeMap<u32, String>,
    /// Units of the directory whose CAMs arrive, by station id.
    units: BTreeMap<u32, Unit>,
    outputs: VecDeque<Output>,
    now: Instant,
}

impl ConnectionManager {
    /// A manager without units. The number of slots is limited to 1 to 16.
    pub fn new(params: Params) -> ConnectionManager {
        let slots = params.slots.clamp(1, MAX_PATHS as u8);
        ConnectionManager {
            params: Params { slots, ..params },
            directory: BTreeMap::new(),
            units: BTreeMap::new(),
            outputs: VecDeque::new(),
            now: Instant::ZERO,
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

    fn on_cam(&mut self, now: Instant, cam: &Cam) {
        if !self.directory.contains_key(&cam.station) || !cam.rssi_dbm.is_finite() {
            return;
        }
        let first = Unit {
            slot: None,
            last_cam: now,
            rssi_dbm: cam.rssi_dbm,
            position: None,
            belief: Belief::Unknown,
            proven_until: now,
            proven: None,
            barred_until: now,
        };
        let unit = self.units.entry(cam.station).or_insert(first);
        unit.rssi_dbm += RSSI_WEIGHT * (cam.rssi_dbm - unit.rssi_dbm);
        (unit.last_cam, unit.position) = (now, cam.position);
        if unit.slot.is_some() {
            return;
        }
        let rssi_dbm = unit.rssi_dbm;
        let may_replace = now >= unit.barred_until;
        let replaced = |manager: &mut Self| may_replace.then(|| manager.vacate(now, rssi_dbm)).flatten();
        let Some(slot) = self.free_slot().or_else(|| replaced(self)) else { return };
        let text = format!("a CAM of {} arrived, {rssi_dbm:.1} dBm", self.name(cam.station));
        let inputs = [("station", f64::from(cam.station)), ("rssi_dbm", f64::from(rssi_dbm))];
        let reason = Reason { rule: "roadside.in-reach", text, inputs: inputs.into() };
        if let Some(unit) = self.units.get_mut(&cam.station) {
            (unit.slot, unit.belief, unit.proven_until) = (Some(slot), Belief::Unknown, now + GRACE);
            self.outputs.push_back(Output::Open { slot, station: cam.station, reason });
        }
    }

    fn proof(&self, now: Instant) -> Proof {
        let is_proven = |unit: &Unit| unit.proven.is_some_and(|at| now < at + GRACE);
        Proof { now, exists: self.units.values().any(is_proven) }
    }

    fn free_slot(&self) -> Option<u8> {
        (0..self.params.slots).find(|slot| self.units.values().all(|unit| unit.slot != Some(*slot)))
    }

    /// Takes the slot of the unit that needs it least for one of this RSSI: of a unit whose
    /// path is lost, else of the weakest that carries nothing and is clearly weaker. A unit
    /// that waits and is clearly stronger takes it first, with its next CAM.
    fn vacate(&mut self, now: Instant, rssi_dbm: f32) -> Option<u8> {
        let proof = self.proof(self.now);
        let waits = |unit: &Unit| unit.slot.is_none() && now < unit.last_cam + MAX_CAM_PERIOD;
        if self.units.values().any(|unit| waits(unit) && unit.rssi_dbm > rssi_dbm + HYSTERESIS_DB) {
            return None;
        }
        let is_good = |unit: &Unit| unit.belief == Belief::Good && unit.carries(proof);
        let has_good = self.units.values().any(is_good);
        let carries = |unit: &Unit| is_good(unit) || (unit.carries(proof) && !has_good);
        let holders = self.units.iter().filter(|(_, unit)| unit.slot.is_some() && !carries(unit));
        let is_lost = |unit: &Unit| unit.is_lost(proof);
        let order = |a: &Unit, b: &Unit| is_lost(b).cmp(&is_lost(a)).then(a.rssi_dbm.total_cmp(&b.rssi_dbm));
        let (&station, unit) = holders.min_by(|(_, a), (_, b)| order(a, b))?;
        if !is_lost(unit) && unit.rssi_dbm + HYSTERESIS_DB >= rssi_dbm {
            return None;
        }
        let name = self.name(station);
        let text = format!("another unit needs the slot of {name}, {:.1} dBm: {rssi_dbm:.1} dBm", unit.rssi_dbm);
        let inputs = [("rssi_dbm", f64::from(unit.rssi_dbm)), ("other_rssi_dbm", f64::from(rssi_dbm))];
        self.close(station, Reason { rule: "roadside.replaced", text, inputs: inputs.into() })
    }

    fn on_directory(&mut self, stations: Vec<Station>) {
        self.directory = stations.into_iter().take(MAX_UNITS).map(|station| (station.id, station.name)).collect();
    }

    /// Frees the slot of a unit, and returns it.
    fn close(&mut self, station: u32, reason: Reason) -> Option<u8> {
        let proof = self.proof(self.now);
        let unit = self.units.get_mut(&station)?;
        let slot = unit.slot.take()?;
        if unit.belief == Belief::Good && unit.is_lost(proof) {
            unit.barred_until = self.now + PENALTY;
        }
        (unit.belief, unit.proven) = (Belief::Unknown, None);
        self.outputs.push_back(Output::Close { slot, station, reason });
        Some(slot)
    }

    /// When a unit is to be removed; never while it carries data. Its CAMs have stopped
    /// then, or the directory lacks it.
    fn removal(&self, proof: Proof, station: u32, unit: &Unit) -> Option<Instant> {
        let at =
            if self.directory.contains_key(&station) { unit.last_cam + self.params.timeout } else { Instant::ZERO };
        (!unit.carries(proof)).then_some(at)
    }

    fn remove_due(&mut self, now: Instant) {
        let proof = self.proof(now);
        let is_due = |(station, unit): &(&u32, &Unit)| self.removal(proof, **station, unit).is_some_and(|at| at <= now);
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
            self.close(station, Reason { rule: "roadside.out-of-reach", text, inputs: inputs.into() });
            self.units.remove(&station);
        }
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
            Input::Cam(cam) => self.on_cam(now, &cam),
            Input::Directory(stations) => self.on_directory(stations),
            Input::Belief { station, belief } => {
                if let Some(unit) = self.units.get_mut(&station).filter(|unit| unit.slot.is_some()) {
                    unit.belief = belief;
                }
            }
            Input::Proof { station } => {
                if let Some(unit) = self.units.get_mut(&station) {
                    unit.proven_until = unit.proven_until.max(now + GRACE);
                    unit.proven = Some(now);
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        self.now = now;
        self.remove_due(now);
        self.outputs.pop_front()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if !self.outputs.is_empty() {
            return Some(Instant::ZERO);
        }
        let proof = self.proof(self.now);
        self.units.iter().filter_map(|(station, unit)| self.removal(proof, *station, unit)).min()
    }
}

#[cfg(test)]
mod tests;
