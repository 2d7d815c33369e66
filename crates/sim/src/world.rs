//! The world of a drive: it moves the vehicle and says what each link does,
//! who sent which roadside message, and who heard it.

use std::collections::VecDeque;

use crosslane_core::link::{Air, Bottleneck, Direction, DirectionParams, QueueLimit, ieee80211p};
use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use crate::cam::{self, Cam};
use crate::fading::{self, MeanError};
use crate::mobility::{State, Track};
use crate::radio::{Coverage, Signal, is_within};
use crate::scenario::{AccessLink, Queue, Scenario, ScenarioError};
use crate::trace::{Trace, TraceRow};

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
    /// When its transmission ended.
    pub at: Instant,
    /// Path of the radio it was sent on.
    pub path: PathId,
    /// Station id of the unit.
    pub station: u32,
    /// How long it held the channel.
    pub air_time: Duration,
    /// The frame, from the GeoNetworking header on.
    pub bytes: Vec<u8>,
    /// Signal, in dBm, with which the vehicle received it; none if it did not.
    pub received: Option<f64>,
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
    /// Distance to the serving unit, in m; none for other links.
    pub distance_m: Option<f64>,
    /// Mean signal, with shadowing, before fading, in dBm; none if all is off.
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
}

/// The world. Drive it as any engine: [`poll`](World::poll) until it answers
/// `None`, then wait until [`next_wakeup`](World::next_wakeup).
#[derive(Debug)]
pub struct World {
    track: Track,
    start_s: f64,
    end: Instant,
    next_tick: Instant,
    radios: Vec<RadioLink>,
    access: Vec<ModemLink>,
    /// What came of the last moment; at most three events per link.
    ready: VecDeque<WorldEvent>,
}

#[derive(Debug)]
struct RadioLink {
    path: PathId,
    coverage: Coverage,
    senders: Vec<Sender>,
    mean_error: MeanError,
    last: Option<[DirectionParams; 2]>,
}

#[derive(Debug)]
struct Sender {
    next: Instant,
    rng: Rng,
}

#[derive(Debug)]
struct ModemLink {
    path: PathId,
    link: AccessLink,
    up: Option<Trace>,
    down: Option<Trace>,
    next_sample: Instant,
    rng: Rng,
    last: Option<[DirectionParams; 2]>,
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
        let track = scenario.track()?;
        let position_m = track.at(0.0).position_m;
        let radios = scenario.radios.iter().zip(0..).map(|(radio, path)| {
            let coverage = Coverage::new(scenario, radio, Some(seed), position_m);
            RadioLink {
                path: PathId(path),
                senders: coverage
                    .units()
                    .map(|unit| Sender::new(seed, &unit.name, unit.cam_period_ms))
                    .collect(),
                coverage,
                mean_error: MeanError::default(),
                last: None,
            }
        });
        let radios: Vec<RadioLink> = radios.collect();
        let access = scenario.access.iter().zip(radios.len()..);
        let access = access.map(|(link, path)| {
            let path = PathId(u8::try_from(path).unwrap_or(u8::MAX));
            ModemLink::new(scenario, link, path, seed)
        });
        Ok(World {
            track,
            start_s: scenario.vehicle.start_s,
            end: Instant::from_secs_f64(scenario.duration_s),
            next_tick: Instant::ZERO,
            access: access.collect::<Result<_, _>>()?,
            radios,
            ready: VecDeque::new(),
        })
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

    /// When the next event is due; none after the drive's end.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let (at, _) = self.next_due();
        (at <= self.end).then_some(at)
    }

    fn next_due(&self) -> (Instant, Due) {
        let mut next = (self.next_tick, Due::Tick);
        for (radio, link) in self.radios.iter().enumerate() {
            for (unit, sender) in link.senders.iter().enumerate() {
                if sender.next < next.0 {
                    next = (sender.next, Due::Cam { radio, unit });
                }
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
        for radio in &mut self.radios {
            let signal = radio.coverage.serving(at.as_secs_f64(), vehicle.position_m);
            let params = radio.params(signal);
            announce(&mut self.ready, radio.path, &mut radio.last, params);
            self.ready
                .push_back(WorldEvent::Truth(radio.truth(at, vehicle, signal)));
        }
        for modem in &mut self.access {
            let params = modem.params(at.as_secs_f64());
            announce(&mut self.ready, modem.path, &mut modem.last, params);
            self.ready
                .push_back(WorldEvent::Truth(modem.truth(at, vehicle)));
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
        Track::of(self).ok_or_else(|| self.unresolved("the mobility file"))
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
        let known = last
            .as_ref()
            .is_some_and(|last| last[place] == params[place]);
        if !known {
            ready.push_back(WorldEvent::LinkParams {
                path,
                direction,
                params: params[place].clone(),
            });
        }
    }
    *last = Some(params);
}

impl Sender {
    /// Units are not in step: each begins somewhere in its first period.
    fn new(seed: u64, unit: &str, period_ms: f64) -> Sender {
        let mut rng = Rng::new(seed, &format!("cam {unit}"));
        let next = Instant::from_secs_f64(rng.uniform() * period_ms / 1000.0);
        Sender { next, rng }
    }
}

impl RadioLink {
    fn params(&self, signal: Option<Signal>) -> [DirectionParams; 2] {
        let radio = self.coverage.radio();
        let serving = signal.and_then(|signal| self.coverage.units().nth(signal.unit));
        let params = DirectionParams {
            bottleneck: Bottleneck::Ieee80211p(Air {
                rate: radio.rate,
                mean_snr_db: signal.map_or(SILENT_SNR_DB, |s| s.mean_dbm - radio.noise_dbm),
                nakagami_m: signal.map_or(f64::INFINITY, |s| radio.fading.m(s.distance_m)),
                tries: radio.tries,
            }),
            delay: millis(serving.map_or(0.0, |unit| unit.delay_ms)),
            loss: 0.0,
            queue: QueueLimit::Packets(radio.queue_packets),
        };
        [params.clone(), params]
    }

    fn truth(&mut self, at: Instant, vehicle: State, signal: Option<Signal>) -> Truth {
        let radio = self.coverage.radio();
        let serving = signal.and_then(|signal| self.coverage.units().nth(signal.unit));
        let error = signal.map_or(1.0, |signal| {
            let snr_db = signal.mean_dbm - radio.noise_dbm;
            let m = radio.fading.m(signal.distance_m);
            self.mean_error.of(radio.rate, snr_db, m, FULL_BYTES)
        });
        let attempt = ieee80211p::attempt_air_time(radio.rate, FULL_BYTES);
        let mean_backoff = ieee80211p::SLOT.as_secs_f64() * 7.5;
        let bits = f64::from(FULL_BYTES) * 8.0 * (1.0 - error);
        let mbit_s = bits / (attempt.as_secs_f64() + mean_backoff) / 1e6;
        Truth {
            at,
            path: self.path,
            position_m: vehicle.position_m,
            speed_m_s: vehicle.speed_m_s,
            distance_m: signal.map(|signal| signal.distance_m),
            rssi_dbm: signal.map(|signal| signal.mean_dbm),
            up_mbit_s: mbit_s,
            down_mbit_s: mbit_s,
            delay_ms: serving.map_or(0.0, |unit| unit.delay_ms),
            loss: libm::pow(error, f64::from(radio.tries)),
        }
    }

    /// Broadcasts a CAM of one unit, unless that is off. The vehicle hears it
    /// over the same channel that carries packets.
    fn send_cam(&mut self, at: Instant, unit: usize, position_m: [f64; 2]) -> Option<CamSent> {
        let signal = self.coverage.signal(unit, position_m);
        let radio = self.coverage.radio();
        let station = self.coverage.units().nth(unit)?;
        let sender = self.senders.get_mut(unit)?;
        sender.next = at + millis(station.cam_period_ms);
        if is_within(at.as_secs_f64(), &station.silent_s) {
            return None;
        }
        let [latitude_deg, longitude_deg] = cam::to_degrees(station.position_m);
        let bytes = cam::encode(&Cam {
            protocol_version: 2,
            station_id: station.station_id,
            station_type: cam::ROADSIDE_UNIT,
            generation_delta_time: (at.as_nanos() / 1_000_000 % 65_536) as u16,
            latitude_deg: Some(latitude_deg),
            longitude_deg: Some(longitude_deg),
            speed_m_s: None,
            heading_deg: None,
        })
        .ok()?;
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let gain_db = fading::gain_db(&mut sender.rng, radio.fading.m(signal.distance_m));
        let rssi_dbm = signal.mean_dbm + gain_db;
        let error = ieee80211p::packet_error_rate(radio.rate, rssi_dbm - radio.noise_dbm, size);
        Some(CamSent {
            at,
            path: self.path,
            station: station.station_id,
            air_time: ieee80211p::broadcast_air_time(radio.rate, size),
            bytes,
            received: (!sender.rng.chance(error)).then_some(rssi_dbm),
        })
    }
}

/// Packet for which the truth is told.
const FULL_BYTES: u32 = 1500;

impl ModemLink {
    fn new(
        scenario: &Scenario,
        link: &AccessLink,
        path: PathId,
        seed: u64,
    ) -> Result<ModemLink, ScenarioError> {
        let trace = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match scenario.data.traces.get(name) {
                Some(trace) => Ok(Some(trace.clone())),
                None => Err(scenario.unresolved(&format!("`{name}`"))),
            },
        };
        let up = trace(&link.trace)?;
        let down = trace(&link.trace_down)?;
        let mut rng = Rng::new(seed, &format!("signal {}", link.name));
        let phase_s = rng.uniform() * link.sample_period_ms / 1000.0;
        Ok(ModemLink {
            path,
            up,
            down,
            next_sample: Instant::from_secs_f64(phase_s),
            rng,
            link: link.clone(),
            last: None,
        })
    }

    /// Rates up and down, in Mbit/s, and the row of the trace, at `t_s`.
    fn rates(&self, t_s: f64) -> ([f64; 2], TraceRow) {
        if is_within(t_s, &self.link.silent_s) {
            return ([0.0, 0.0], self.row(t_s));
        }
        let rate = |trace: Option<&Trace>, constant: f64| {
            let traced = trace.and_then(|trace| trace.at(t_s).rate_mbit_s.or(trace.mean_mbit_s()));
            traced.unwrap_or(constant)
        };
        let up = rate(self.up.as_ref(), self.link.up_mbit_s);
        let down = rate(self.down_trace(), self.link.down_mbit_s);
        ([up, down], self.row(t_s))
    }

    fn row(&self, t_s: f64) -> TraceRow {
        self.up
            .as_ref()
            .map_or(TraceRow::default(), |trace| trace.at(t_s))
    }

    fn down_trace(&self) -> Option<&Trace> {
        // A constant rate down beats the trace of the way up.
        let fallback = || self.up.as_ref().filter(|_| self.link.down_mbit_s == 0.0);
        self.down.as_ref().or_else(fallback)
    }

    fn params(&self, t_s: f64) -> [DirectionParams; 2] {
        let ([up, down], row) = self.rates(t_s);
        let silent = is_within(t_s, &self.link.silent_s);
        let params = |mbit_s: f64, trace: Option<&Trace>, constant: f64| DirectionParams {
            bottleneck: match trace {
                Some(Trace::Opportunities(moments)) if !silent => {
                    Bottleneck::Opportunities(moments.clone())
                }
                _ => Bottleneck::Rate {
                    bit_s: mbit_s * 1e6,
                },
            },
            delay: millis(row.delay_ms.unwrap_or(self.link.delay_ms)),
            loss: row.loss.unwrap_or(self.link.loss),
            queue: queue(self.link.queue, trace, constant),
        };
        [
            params(up, self.up.as_ref(), self.link.up_mbit_s),
            params(down, self.down_trace(), self.link.down_mbit_s),
        ]
    }

    fn truth(&self, at: Instant, vehicle: State) -> Truth {
        let t_s = at.as_secs_f64();
        let ([up_mbit_s, down_mbit_s], row) = self.rates(t_s);
        let on = !is_within(t_s, &self.link.silent_s);
        Truth {
            at,
            path: self.path,
            position_m: vehicle.position_m,
            speed_m_s: vehicle.speed_m_s,
            distance_m: None,
            rssi_dbm: on.then(|| row.rssi_dbm.unwrap_or(self.link.rssi_dbm)),
            up_mbit_s,
            down_mbit_s,
            delay_ms: row.delay_ms.unwrap_or(self.link.delay_ms),
            loss: row.loss.unwrap_or(self.link.loss),
        }
    }

    fn sample(&mut self, at: Instant) -> Option<WorldEvent> {
        self.next_sample = at + millis(self.link.sample_period_ms);
        let noise_db = self.rng.normal() * self.link.rssi_sigma_db;
        let t_s = at.as_secs_f64();
        if is_within(t_s, &self.link.silent_s) {
            return None;
        }
        // What a trace recorded needs no further noise.
        let recorded = self.row(t_s).rssi_dbm;
        Some(WorldEvent::Signal {
            at,
            path: self.path,
            rssi_dbm: recorded.unwrap_or((self.link.rssi_dbm + noise_db).min(0.0)),
        })
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6) as u64)
}

/// Limit of a queue; one in ms is held against the mean rate of the trace.
fn queue(queue: Queue, trace: Option<&Trace>, constant_mbit_s: f64) -> QueueLimit {
    match queue {
        Queue::Limit(limit) => limit,
        Queue::Millis(millis) => {
            let mbit_s = trace
                .and_then(Trace::mean_mbit_s)
                .unwrap_or(constant_mbit_s);
            QueueLimit::Bytes((mbit_s * millis * 1000.0 / 8.0).max(3000.0) as u32)
        }
    }
}
