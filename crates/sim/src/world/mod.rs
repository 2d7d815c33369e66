//! The world of a drive: it moves the vehicle and generates the parameters of
//! each link, the CAMs of the RSUs and the signal reports of the modems.

use std::collections::{BTreeSet, VecDeque};

use crosslane_core::link::{Direction, DirectionParams, Link};
use crosslane_core::path::{PathId, Position, VehicleState};
use crosslane_core::time::{Duration, Instant};

use crate::input::mobility::{State, Track};
use crate::radio::access_link::Quality;
use crate::radio::cam::{self, Cam, CamError};
use crate::scenario::{Effects, LinkEntry, Scenario, ScenarioError};
use crate::world::coverage::Coverage;

pub mod coverage;
mod modem;
mod radio_link;
mod sample;
mod vehicle_cams;

use modem::ModemLink;
use radio_link::RadioLink;
pub use sample::WorldSample;
pub use vehicle_cams::VehicleCam;
use vehicle_cams::vehicle_state;

/// Period of link updates and of the ground truth.
pub const TICK: Duration = Duration::from_millis(10);

/// Interval of the reports of a satellite receiver.
const FIX_INTERVAL: Duration = Duration::from_secs(1);

/// Mean signal-to-noise ratio, in dB, of a link whose RSUs are all off:
/// transmissions take airtime and are not acknowledged.
pub const SILENT_SNR_DB: f64 = -100.0;

/// An event of the world.
#[derive(Clone, Debug, PartialEq)]
pub enum WorldEvent {
    /// The parameters of a link change.
    LinkParams {
        /// Path of the link.
        path: PathId,
        /// Direction.
        direction: Direction,
        /// New parameters.
        params: DirectionParams,
    },
    /// An RSU sent a CAM.
    CamSent(CamSent),
    /// The vehicle sent a CAM (radios with `paths = "units"` only).
    VehicleCam(VehicleCam),
    /// A modem reported its signal.
    Signal {
        /// Time.
        at: Instant,
        /// Path of the modem.
        path: PathId,
        /// RSRP or RSSI, in dBm.
        rssi_dbm: f64,
        /// Further signal figures.
        quality: Quality,
    },
    /// The vehicle's satellite receiver reported.
    Vehicle(VehicleState),
    /// A modem reported a measurement that precedes a handover, or the end of the handover.
    Handover {
        /// Path of the modem.
        path: PathId,
        /// True for the report.
        is_announced: bool,
    },
    /// Position of the vehicle and capacity of a link.
    Truth(Truth),
}

/// A transmitted CAM.
#[derive(Clone, Debug, PartialEq)]
pub struct CamSent {
    /// Transmission time.
    pub at: Instant,
    /// Path of the radio.
    pub path: PathId,
    /// Station id of the RSU.
    pub station: u32,
    /// Position of the RSU, in m.
    pub position_m: [f64; 2],
    /// Time for which it occupied the channel.
    pub air_time: Duration,
    /// RSSI at the vehicle, in dBm; none if it was not received.
    pub received: Option<f64>,
}

impl CamSent {
    /// The position of the RSU on the globe.
    pub fn position(&self) -> Position {
        let [latitude_deg, longitude_deg] = cam::to_degrees(self.position_m);
        Position { latitude_deg, longitude_deg }
    }

    /// The frame, starting with the GeoNetworking header.
    ///
    /// # Errors
    /// The position of the RSU has no valid latitude and longitude.
    pub fn frame(&self) -> Result<Vec<u8>, CamError> {
        let Position { latitude_deg, longitude_deg } = self.position();
        cam::encode(&Cam {
            protocol_version: 2,
            station_id: self.station,
            station_type: cam::ROADSIDE_UNIT,
            generation_delta_time: (self.at.as_nanos() / 1_000_000 % 65_536) as u16,
            latitude_deg: Some(latitude_deg),
            longitude_deg: Some(longitude_deg),
            vehicle: None,
        })
    }
}

/// Ground truth of the vehicle and one path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Time.
    pub at: Instant,
    /// The path.
    pub path: PathId,
    /// Position of the vehicle, in m.
    pub position_m: [f64; 2],
    /// Speed of the vehicle, in m/s.
    pub speed_m_s: f64,
    /// Distance to the serving RSU or modelled station, in m; none for other links.
    pub distance_m: Option<f64>,
    /// Mean signal with shadowing, before fading, in dBm; none if every
    /// transmitter is off or out of reach.
    pub rssi_dbm: Option<f64>,
    /// Uplink rate, in Mbit/s. For 802.11p: the throughput of back-to-back
    /// packets of 1500 bytes, averaged over fading.
    pub up_mbit_s: f64,
    /// Downlink rate, in Mbit/s, likewise.
    pub down_mbit_s: f64,
    /// One-way delay after the bottleneck, in ms.
    pub delay_ms: f64,
    /// Probability that a packet of 1500 bytes is lost, after all attempts.
    pub loss: f64,
    /// Further signal figures.
    pub quality: Quality,
}

/// The world, an engine: call [`poll`](World::poll) until it returns `None`,
/// then wait until [`next_wakeup`](World::next_wakeup).
#[derive(Debug)]
pub struct World {
    track: Track,
    start_s: f64,
    end: Instant,
    next_tick: Instant,
    next_fix: Instant,
    truth_period: Option<Duration>,
    next_truth: Instant,
    radios: Vec<RadioLink>,
    access: Vec<ModemLink>,
    /// Events of the last time step; at most three per path.
    ready: VecDeque<WorldEvent>,
}

/// The next action.
enum Due {
    Tick,
    Cam { radio: usize, unit: usize },
    VehicleCheck { radio: usize },
    Forged { radio: usize, attacker: usize },
    Sample { access: usize },
}

impl World {
    /// The world of a scenario whose files are [resolved](Scenario::resolve). The
    /// same scenario and seed give the same events.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<World, ScenarioError> {
        World::with_track(scenario, scenario.track()?, seed)
    }

    /// The same with another track for the vehicle, as for a member of a fleet.
    /// The scenario's `start_s` applies to it too.
    pub fn with_track(scenario: &Scenario, track: Track, seed: u64) -> Result<World, ScenarioError> {
        let position_m = track.at(0.0).position_m;
        let mut first_paths = scenario.links().into_iter().map(|link| PathId(link.paths.start as u8));
        let radios = scenario.radios.iter().zip(first_paths.by_ref()).map(|(radio, path)| {
            let coverage = Coverage::new(scenario, radio, Some(seed), position_m);
            RadioLink::new(path, coverage, seed, scenario.vehicle_station(), &scenario.attackers)
        });
        let radios: Vec<RadioLink> = radios.collect();
        let access = scenario.access.iter().zip(first_paths);
        let access = access.map(|(link, path)| ModemLink::new(scenario, link, path, seed, position_m));
        Ok(World {
            track,
            start_s: scenario.vehicle.start_s,
            end: Instant::from_secs_f64(scenario.duration_s),
            next_tick: Instant::ZERO,
            next_fix: Instant::ZERO,
            truth_period: Some(TICK),
            next_truth: Instant::ZERO,
            access: access.collect::<Result<_, _>>()?,
            radios,
            ready: VecDeque::new(),
        })
    }

    /// The scenario's links, with their parameters at time 0, and the first ground truth
    /// of each path. To be called before [`poll`](World::poll).
    pub fn links(&mut self, scenario: &Scenario, seed: u64) -> (Vec<Link>, Vec<Truth>) {
        let paths = scenario.paths();
        let mut first: Vec<[Option<DirectionParams>; 2]> = paths.iter().map(|_| [None, None]).collect();
        let mut truths = Vec::new();
        while let Some(event) = self.poll(Instant::ZERO) {
            match event {
                WorldEvent::LinkParams { path, direction, params } => {
                    first[usize::from(path.0)][direction as usize] = Some(params);
                }
                WorldEvent::Truth(truth) => truths.push(truth),
                _ => {}
            }
        }
        let link = |entry: LinkEntry<'_>| {
            let stations = entry.paths.filter_map(|path| {
                let [up, down] = first[path].each_mut().map(Option::take);
                Some((paths[path].name, [up?, down?]))
            });
            let mut link = Link::shared(seed, entry.name, stations);
            let effects = scenario.access.iter().find(|access| access.name == entry.name).map(|access| access.effects);
            let Effects { policer, jitter, middlebox, .. } = effects.unwrap_or_default();
            policer.into_iter().for_each(|keys| link.set_policer(keys.params()));
            jitter.into_iter().for_each(|keys| link.set_jitter(seed, entry.name, keys.params()));
            middlebox.into_iter().for_each(|middlebox| link.set_middlebox(middlebox));
            link
        };
        (scenario.links().into_iter().map(link).collect(), truths)
    }

    /// Sets the period of the ground truth (rounded up to whole [`TICK`]s); none:
    /// no ground truth. The default is one tick.
    pub fn set_truth_period(&mut self, period: Option<Duration>) {
        self.truth_period = period;
    }

    /// The next event due at `now`, in order of time; each is returned once.
    pub fn poll(&mut self, now: Instant) -> Option<WorldEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let (at, due) = self.next_due();
            if at > now || at > self.end {
                return None;
            }
            match due {
                Due::Tick => self.tick(at),
                Due::Cam { radio, unit } => self.send_cam(at, radio, unit),
                Due::Forged { radio, attacker } => {
                    let sent = self.radios[radio].send_forged(at, attacker);
                    self.ready.extend(sent.map(WorldEvent::CamSent));
                }
                Due::VehicleCheck { radio } => self.check_vehicle(at, radio),
                Due::Sample { access } => self.sample(at, access),
            }
        }
    }

    /// The strongest RSU of a radio (by its place in the scenario), by its index among
    /// those of the radio.
    pub fn serving(&self, radio: usize) -> Option<usize> {
        self.radios.get(radio)?.serving
    }

    /// Time of the next event; none after the end of the drive.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let (at, _) = self.next_due();
        (at <= self.end).then_some(at)
    }

    fn next_due(&self) -> (Instant, Due) {
        let mut next = (self.next_tick, Due::Tick);
        for (radio, link) in self.radios.iter().enumerate() {
            if let Some((at, unit)) = link.next_cam.filter(|(at, _)| *at < next.0) {
                next = (at, Due::Cam { radio, unit });
            }
            if let Some((at, attacker)) = link.next_forged().filter(|(at, _)| *at < next.0) {
                next = (at, Due::Forged { radio, attacker });
            }
            if let Some(at) = link.next_vehicle_check().filter(|at| *at < next.0) {
                next = (at, Due::VehicleCheck { radio });
            }
        }
        for (access, link) in self.access.iter().enumerate() {
            if link.next_sample < next.0 {
                next = (link.next_sample, Due::Sample { access });
            }
        }
        next
    }

    fn vehicle(&self, at: Instant) -> State {
        self.track.at(at.as_secs_f64() - self.start_s)
    }

    /// What its satellite receiver knows of the vehicle.
    fn vehicle_state(&self, at: Instant) -> VehicleState {
        let State { position_m, speed_m_s } = self.vehicle(at);
        vehicle_state(position_m, self.track.heading_deg(at.as_secs_f64() - self.start_s), speed_m_s)
    }

    fn tick(&mut self, at: Instant) {
        self.next_tick = at + TICK;
        let vehicle = self.vehicle(at);
        let truth_due = self.truth_period.filter(|_| at >= self.next_truth);
        if let Some(period) = truth_due {
            self.next_truth = at + period;
        }
        if at >= self.next_fix {
            self.next_fix = at + FIX_INTERVAL;
            self.ready.push_back(WorldEvent::Vehicle(self.vehicle_state(at)));
        }
        for radio in &mut self.radios {
            radio.receive(at, vehicle.position_m);
            for (place, path) in radio.paths() {
                let params = radio.params(at, place);
                announce(&mut self.ready, path, &mut radio.last[place], params);
                if truth_due.is_some() {
                    self.ready.push_back(WorldEvent::Truth(radio.truth(at, vehicle, place)));
                }
            }
        }
        for modem in &mut self.access {
            let params = modem.params(at.as_secs_f64(), vehicle);
            self.ready.extend(modem.handover_report());
            announce(&mut self.ready, modem.path, &mut modem.last, params);
            if truth_due.is_some() {
                self.ready.push_back(WorldEvent::Truth(modem.truth(at, vehicle)));
            }
        }
    }

    fn send_cam(&mut self, at: Instant, radio: usize, unit: usize) {
        let vehicle = self.vehicle(at);
        let sent = self.radios[radio].send_cam(at, unit, vehicle.position_m);
        self.ready.extend(sent.map(WorldEvent::CamSent));
    }

    fn check_vehicle(&mut self, at: Instant, radio: usize) {
        let state = self.vehicle_state(at);
        let sent = self.radios[radio].send_vehicle_cam(at, state);
        self.ready.extend(sent.map(WorldEvent::VehicleCam));
    }

    fn sample(&mut self, at: Instant, access: usize) {
        self.ready.extend(self.access[access].sample(at));
    }
}

impl Scenario {
    /// The vehicle's track.
    pub(crate) fn track(&self) -> Result<Track, ScenarioError> {
        self.known_track().ok_or_else(|| self.unresolved("the mobility file"))
    }

    /// The vehicle's station id: the lowest that no RSU has.
    fn vehicle_station(&self) -> u32 {
        let taken: BTreeSet<u32> = self.units.iter().map(|unit| unit.station_id).collect();
        (1..=u32::MAX).find(|id| !taken.contains(id)).unwrap_or(u32::MAX)
    }

    fn unresolved(&self, what: &str) -> ScenarioError {
        ScenarioError {
            file: self.name.clone(),
            line: None,
            what: format!("{what} has not been read"),
            remedy: "resolve the scenario's files first".into(),
        }
    }
}

/// Queues an event for each direction whose parameters changed.
fn announce(
    ready: &mut VecDeque<WorldEvent>,
    path: PathId,
    last: &mut Option<[DirectionParams; 2]>,
    params: [DirectionParams; 2],
) {
    for (place, direction) in [Direction::Up, Direction::Down].into_iter().enumerate() {
        let known = last.as_ref().is_some_and(|last| last[place] == params[place]);
        if !known {
            ready.push_back(WorldEvent::LinkParams { path, direction, params: params[place].clone() });
        }
    }
    *last = Some(params);
}

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6) as u64)
}
