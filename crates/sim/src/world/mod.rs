//! The world of a drive: it moves the vehicle and says what each link does,
//! who sent which roadside message, and who heard it.

use std::collections::VecDeque;

use crosslane_core::link::{Direction, DirectionParams};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};

use crate::input::mobility::{State, Track};
use crate::radio::access_link::Quality;
use crate::radio::cam::{self, Cam, CamError};
use crate::scenario::{Scenario, ScenarioError};
use crate::world::coverage::Coverage;

pub mod coverage;
mod modem;
mod radio_link;

use modem::ModemLink;
use radio_link::RadioLink;

/// How often links change and the truth is told.
pub const TICK: Duration = Duration::from_millis(10);

/// Mean signal-to-noise ratio, in dB, of a link whose units are all off:
/// tries are made, cost air time, and no one answers.
pub const SILENT_SNR_DB: f64 = -100.0;

/// What the world says.
#[derive(Clone, Debug, PartialEq)]
pub enum WorldEvent {
    /// A link treats packets differently from now on.
    LinkParams {
        /// The link's path.
        path: PathId,
        /// Which way.
        direction: Direction,
        /// How.
        params: DirectionParams,
    },
    /// A roadside unit sent a CAM.
    CamSent(CamSent),
    /// A modem reported its signal.
    Signal {
        /// When.
        at: Instant,
        /// The modem's path.
        path: PathId,
        /// RSRP or RSSI, in dBm.
        rssi_dbm: f64,
    },
    /// Where the vehicle is and what a link could do.
    Truth(Truth),
}

/// A CAM on the air.
#[derive(Clone, Debug, PartialEq)]
pub struct CamSent {
    /// When it was sent.
    pub at: Instant,
    /// Path of the radio it was sent on.
    pub path: PathId,
    /// Station id of the unit.
    pub station: u32,
    /// Where the unit stands, in m.
    pub position_m: [f64; 2],
    /// How long it held the channel.
    pub air_time: Duration,
    /// Signal, in dBm, with which the vehicle received it; none if it did not.
    pub received: Option<f64>,
}

impl CamSent {
    /// The frame, from the GeoNetworking header on.
    ///
    /// # Errors
    /// The unit stands where no degrees of latitude and longitude are.
    pub fn frame(&self) -> Result<Vec<u8>, CamError> {
        let [latitude_deg, longitude_deg] = cam::to_degrees(self.position_m);
        cam::encode(&Cam {
            protocol_version: 2,
            station_id: self.station,
            station_type: cam::ROADSIDE_UNIT,
            generation_delta_time: (self.at.as_nanos() / 1_000_000 % 65_536) as u16,
            latitude_deg: Some(latitude_deg),
            longitude_deg: Some(longitude_deg),
            speed_m_s: None,
            heading_deg: None,
        })
    }
}

/// The truth about the vehicle and one path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// When.
    pub at: Instant,
    /// The path.
    pub path: PathId,
    /// Position of the vehicle, in m.
    pub position_m: [f64; 2],
    /// Speed of the vehicle, in m/s.
    pub speed_m_s: f64,
    /// Distance to the serving unit or modelled station, in m; none for others.
    pub distance_m: Option<f64>,
    /// Mean signal, with shadowing, before fading, in dBm; none if all is off or
    /// out of reach.
    pub rssi_dbm: Option<f64>,
    /// Rate from the vehicle, in Mbit/s. For 802.11p: what packets of 1500
    /// bytes one after the other would get, averaged over fading.
    pub up_mbit_s: f64,
    /// Rate to the vehicle, in Mbit/s, likewise.
    pub down_mbit_s: f64,
    /// One-way delay after the bottleneck, in ms.
    pub delay_ms: f64,
    /// Chance that a packet of 1500 bytes is lost, after all tries.
    pub loss: f64,
    /// What else is known of the signal.
    pub quality: Quality,
}

/// The world. Drive it as any engine: [`poll`](World::poll) until it answers
/// `None`, then wait until [`next_wakeup`](World::next_wakeup).
#[derive(Debug)]
pub struct World {
    track: Track,
    start_s: f64,
    end: Instant,
    next_tick: Instant,
    truth_period: Option<Duration>,
    next_truth: Instant,
    radios: Vec<RadioLink>,
    access: Vec<ModemLink>,
    /// What came of the last moment; at most three events per link.
    ready: VecDeque<WorldEvent>,
}

/// What is due next.
enum Due {
    Tick,
    Cam { radio: usize, unit: usize },
    Sample { access: usize },
}

impl World {
    /// The world of a scenario, whose files are [resolved](Scenario::resolve).
    /// Same scenario and seed, same events.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<World, ScenarioError> {
        World::with_track(scenario, scenario.track()?, seed)
    }

    /// The same with another way for the vehicle, as one of a fleet. The
    /// scenario's `start_s` holds for it too.
    pub fn with_track(scenario: &Scenario, track: Track, seed: u64) -> Result<World, ScenarioError> {
        let position_m = track.at(0.0).position_m;
        let radios = scenario.radios.iter().zip(0..).map(|(radio, path)| {
            let coverage = Coverage::new(scenario, radio, Some(seed), position_m);
            RadioLink::new(PathId(path), coverage, seed)
        });
        let radios: Vec<RadioLink> = radios.collect();
        let access = scenario.access.iter().zip(radios.len()..);
        let access = access.map(|(link, path)| {
            let path = PathId(u8::try_from(path).unwrap_or(u8::MAX));
            ModemLink::new(scenario, link, path, seed, position_m)
        });
        Ok(World {
            track,
            start_s: scenario.vehicle.start_s,
            end: Instant::from_secs_f64(scenario.duration_s),
            next_tick: Instant::ZERO,
            truth_period: Some(TICK),
            next_truth: Instant::ZERO,
            access: access.collect::<Result<_, _>>()?,
            radios,
            ready: VecDeque::new(),
        })
    }

    /// Tells the truth so often (rounded up to whole [`TICK`]s), or never; by
    /// default each tick.
    pub fn set_truth_period(&mut self, period: Option<Duration>) {
        self.truth_period = period;
    }

    /// The next event due at `now`, in order of time; each comes once.
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
                Due::Sample { access } => self.sample(at, access),
            }
        }
    }

    /// The unit that serves the vehicle on the path of a radio, by its place
    /// among those of the radio.
    pub fn serving(&self, path: PathId) -> Option<usize> {
        self.radios.get(usize::from(path.0))?.serving
    }

    /// When the next event is due; none after the drive's end.
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

    fn tick(&mut self, at: Instant) {
        self.next_tick = at + TICK;
        let vehicle = self.vehicle(at);
        let tells = self.truth_period.filter(|_| at >= self.next_truth);
        if let Some(period) = tells {
            self.next_truth = at + period;
        }
        for radio in &mut self.radios {
            let signal = radio.signal(at, vehicle.position_m);
            let params = radio.params(signal);
            announce(&mut self.ready, radio.path, &mut radio.last, params);
            if tells.is_some() {
                self.ready.push_back(WorldEvent::Truth(radio.truth(at, vehicle, signal)));
            }
        }
        for modem in &mut self.access {
            let params = modem.params(at.as_secs_f64(), vehicle);
            announce(&mut self.ready, modem.path, &mut modem.last, params);
            if tells.is_some() {
                self.ready.push_back(WorldEvent::Truth(modem.truth(at, vehicle)));
            }
        }
    }

    fn send_cam(&mut self, at: Instant, radio: usize, unit: usize) {
        let vehicle = self.vehicle(at);
        let sent = self.radios[radio].send_cam(at, unit, vehicle.position_m);
        self.ready.extend(sent.map(WorldEvent::CamSent));
    }

    fn sample(&mut self, at: Instant, access: usize) {
        self.ready.extend(self.access[access].sample(at));
    }
}

impl Scenario {
    /// The vehicle's way.
    pub(crate) fn track(&self) -> Result<Track, ScenarioError> {
        self.known_track().ok_or_else(|| self.unresolved("the mobility file"))
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

/// Queues the directions that changed.
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
