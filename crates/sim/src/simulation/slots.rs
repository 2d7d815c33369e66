//! Roadside units that take turns in the slots of a radio. A unit without a slot has no
//! tunnel: nothing passes over its path.

use std::collections::BTreeSet;
use std::ops::Range;

use crosslane_core::assess::Belief;
use crosslane_core::path::{PathId, Sample, Signal, Transport};
use crosslane_core::reason::Reason;
use crosslane_core::roadside::connection_manager::{Output, Params, Station};
use crosslane_core::roadside::unit_paths::UnitPaths;
use crosslane_core::time::{Duration, Instant};

use crate::scenario::Scenario;

/// From the first unit's slot on, for this long, an application waits before it connects:
/// three periods of CAMs, in which each unit in reach sends.
const SETTLE: Duration = Duration::from_millis(300);

/// A roadside unit takes a slot, or leaves it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotChange {
    /// Path of the unit.
    pub path: PathId,
    /// Station id of the unit.
    pub station: u32,
    /// The slot, from 0.
    pub slot: u8,
    /// True if it takes the slot.
    pub opened: bool,
    /// The reason.
    pub reason: Reason,
}

/// The slots of all radios that have some.
#[derive(Default)]
pub(super) struct Slots {
    radios: Vec<RadioSlots>,
    /// For each path, whether packets can take it.
    stands: Vec<bool>,
    ranks: Vec<u8>,
    first_opened: Option<Instant>,
}

struct RadioSlots {
    paths: Range<usize>,
    /// Station id of each path.
    stations: Vec<u32>,
    units: UnitPaths,
}

/// What the slots decide.
pub(super) enum SlotOutput {
    /// A unit takes a slot, or leaves it.
    Change(SlotChange),
    /// A probe with this UDP payload, in bytes, is to be sent over this path.
    Probe(PathId, u16),
    /// What the agent is to know of one of its paths.
    Sample(Option<Sample>),
}

impl RadioSlots {
    /// The path of a unit.
    fn path(&self, station: u32) -> Option<PathId> {
        let place = self.stations.iter().position(|id| *id == station)?;
        Some(PathId((self.paths.start + place) as u8))
    }
}

impl Slots {
    /// All slots free; paths of radios without slots stand.
    pub(super) fn new(scenario: &Scenario) -> Slots {
        let links = scenario.links();
        let mut stands = Vec::new();
        for link in &links {
            stands.extend(link.paths.clone().map(|_| link.slots.is_none()));
        }
        let radios = scenario.radios.iter().zip(links).filter_map(|(radio, link)| {
            let params = Params { slots: link.slots?, ..Params::default() };
            let units = || scenario.units_of(radio);
            let directory = units().map(|unit| Station { id: unit.station_id, name: unit.name.clone() });
            Some(RadioSlots {
                paths: link.paths,
                stations: units().map(|unit| unit.station_id).collect(),
                units: UnitPaths::new(params, directory.collect()),
            })
        });
        Slots { radios: radios.collect(), stands, ranks: scenario.ranks(), first_opened: None }
    }

    /// Whether packets can take a path.
    pub(super) fn stands(&self, path: PathId) -> bool {
        self.stands.get(usize::from(path.0)).is_none_or(|stands| *stands)
    }

    /// This path if it stands, else the most preferred one that does, of several not `tried` the one
    /// with the strongest signal; none before the CAMs of those in reach have arrived.
    pub(super) fn standing(&self, now: Instant, path: PathId, tried: &BTreeSet<PathId>) -> Option<PathId> {
        if self.stands(path) && !self.is_slotted(path) {
            return Some(path);
        }
        let standing = (0..).map(PathId).zip(&self.stands).filter(|(_, stands)| **stands).map(|(path, _)| path);
        let rank = |path: PathId| (self.ranks[usize::from(path.0)], tried.contains(&path));
        let weaker = |a: PathId, b: PathId| self.rssi_dbm(b).total_cmp(&self.rssi_dbm(a));
        let best = standing.min_by(|a, b| rank(*a).cmp(&rank(*b)).then(weaker(*a, *b)))?;
        let is_early = self.is_slotted(best) && self.settled_at().is_none_or(|at| now < at);
        (!is_early).then_some(best)
    }

    /// Whether a path stands only while its unit has a slot.
    pub(super) fn is_slotted(&self, path: PathId) -> bool {
        self.radios.iter().any(|radio| radio.paths.contains(&usize::from(path.0)))
    }

    /// When the CAMs of the units in reach have arrived.
    fn settled_at(&self) -> Option<Instant> {
        self.first_opened.map(|at| at + SETTLE)
    }

    fn rssi_dbm(&self, path: PathId) -> f32 {
        let radio = self.radios.iter().find(|radio| radio.paths.contains(&usize::from(path.0)));
        let rssi_dbm =
            radio.and_then(|radio| radio.units.rssi_dbm(*radio.stations.get(usize::from(path.0) - radio.paths.start)?));
        rssi_dbm.unwrap_or(f32::NEG_INFINITY)
    }

    fn of(&mut self, path: PathId) -> Option<&mut RadioSlots> {
        self.radios.iter_mut().find(|radio| radio.paths.contains(&usize::from(path.0)))
    }

    /// Processes a signal over a path; `None` if the path is no unit that needs a slot, else
    /// the sample for the agent, if the unit is a path of it.
    pub(super) fn on_signal(&mut self, now: Instant, path: PathId, signal: Signal) -> Option<Option<Sample>> {
        self.of(path).map(|radio| radio.units.on_signal(now, signal))
    }

    /// Processes what an agent believes of one of its paths.
    pub(super) fn on_belief(&mut self, now: Instant, path: PathId, belief: Belief) {
        self.radios.iter_mut().for_each(|radio| radio.units.on_belief(now, path, belief));
    }

    /// Processes the statistics of a subflow over a path of the agent.
    pub(super) fn on_subflow(&mut self, now: Instant, path: PathId, transport: &Transport) {
        self.radios.iter_mut().for_each(|radio| radio.units.on_subflow(now, path, transport));
    }

    /// The unit of a path answered a probe.
    pub(super) fn on_answer(&mut self, now: Instant, path: PathId) {
        if let Some(radio) = self.of(path)
            && let Some(&station) = radio.stations.get(usize::from(path.0) - radio.paths.start)
        {
            radio.units.on_answer(now, station);
        }
    }

    /// A unit that has taken a slot is this path of the agent; returns the first sample.
    pub(super) fn add(&mut self, change: &SlotChange, path: PathId) -> Option<Sample> {
        self.of(change.path)?.units.add(change.station, path)
    }

    /// A unit is no path of the agent any more.
    pub(super) fn remove(&mut self, change: &SlotChange) -> Option<PathId> {
        self.of(change.path)?.units.remove(change.station)
    }

    /// The next decision that is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<SlotOutput> {
        let (radio, output) = self.radios.iter_mut().find_map(|radio| {
            let output = radio.units.poll(now)?;
            Some((radio, output))
        })?;
        let (slot, station, reason, opened) = match output {
            Output::Open { slot, station, reason } => (slot, station, reason, true),
            Output::Close { slot, station, reason } => (slot, station, reason, false),
            Output::Probe { station, bytes } => return Some(SlotOutput::Probe(radio.path(station)?, bytes)),
            Output::Answers { station, answers } => {
                return Some(SlotOutput::Sample(radio.units.answers(station, answers)));
            }
        };
        let path = radio.path(station)?;
        self.stands[usize::from(path.0)] = opened;
        self.first_opened.get_or_insert(now);
        Some(SlotOutput::Change(SlotChange { path, station, slot, opened, reason }))
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.radios.iter().filter_map(|radio| radio.units.next_wakeup()).min()
    }
}
