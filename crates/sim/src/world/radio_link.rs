//! A radio of the vehicle, with its RSUs: one path over the strongest, or a path to each.

use crosslane_core::link::{Bottleneck, Channel, DirectionParams, Loss, QueueLimit, ieee80211p};
use crosslane_core::path::PathId;
use crosslane_core::path::VehicleState;
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use super::vehicle_cams::{VehicleCam, VehicleSender};
use super::{CamSent, SILENT_SNR_DB, Truth, millis};
use crate::input::mobility::State;
use crate::radio::access_link::Quality;
use crate::radio::cam;
use crate::radio::fading::{self, MeanError};
use crate::scenario::{Attacker, RadioPaths, RoadsideUnit, UnitDelay};
use crate::world::coverage::{Coverage, Signal, is_within};

/// Packet size of the ground truth, in bytes.
const FULL_BYTES: u32 = 1500;

/// An RSU's CAM collides with another station's frame if it starts during that
/// frame or up to one frame length earlier, and that station is hidden from the
/// RSU; a quarter of those in reach of the vehicle are (`docs/design/radio.md`).
const COLLISIONS_PER_LOAD: f64 = 2.0 * 0.25;

#[derive(Debug)]
pub(super) struct RadioLink {
    /// Its first path; the others follow.
    pub(super) path: PathId,
    pub(super) coverage: Coverage,
    senders: Vec<Sender>,
    /// Index of the serving RSU.
    pub(super) serving: Option<usize>,
    /// The next CAM of an RSU in reach.
    pub(super) next_cam: Option<(Instant, usize)>,
    /// The coverage update that `next_cam` is based on.
    updates: u64,
    cam_air_time: Duration,
    /// With a path to each RSU, the vehicle sends CAMs.
    vehicle: Option<VehicleSender>,
    attackers: Vec<AttackerSender>,
    mean_error: MeanError,
    /// Signal of each path at the last tick.
    signals: Vec<Option<Signal>>,
    /// Parameters of each path when last announced.
    pub(super) last: Vec<Option<[DirectionParams; 2]>>,
}

/// Effect of other stations on the channel at one time.
#[derive(Clone, Copy, Debug)]
struct Background {
    /// Share of the airtime that they leave (0 to 1).
    share: f64,
    /// Mean time for which an RSU's CAM waits for the channel, in s.
    mean_wait_s: f64,
    /// Probability that an RSU's CAM collides with another frame at the vehicle.
    collision: f64,
}

#[derive(Debug)]
struct Sender {
    period: Duration,
    /// Scheduled time of the next CAM.
    due: Instant,
    /// Transmission time of the next CAM.
    next: Instant,
    rng: Rng,
    /// Random numbers used only for the background.
    others: Rng,
}

#[derive(Debug)]
struct AttackerSender {
    keys: Attacker,
    /// Indices of the RSUs in whose names it sends.
    units: Vec<usize>,
    turn: usize,
    period: Duration,
    next: Instant,
    rng: Rng,
}

impl RadioLink {
    pub(super) fn new(path: PathId, coverage: Coverage, seed: u64, station: u32, attackers: &[Attacker]) -> RadioLink {
        let radio = coverage.radio();
        let cam_air_time = ieee80211p::broadcast_air_time(radio.rate, cam::UNIT_BYTES);
        let background = Background::of(radio.background.load(radio.rate, 0.0), cam_air_time);
        let paths = match radio.paths {
            RadioPaths::Radio => 1,
            RadioPaths::Units => coverage.units().count(),
        };
        let senders = coverage.units().map(|unit| Sender::new(seed, &unit.name, unit.cam_period_ms, background));
        let names = || coverage.units().map(|unit| unit.name.as_str());
        let vehicle =
            (radio.paths == RadioPaths::Units).then(|| VehicleSender::new(seed, &radio.name, names(), station));
        let of_radio = attackers.iter().filter(|attacker| attacker.radio == radio.name);
        let attackers = of_radio.enumerate().map(|(number, attacker)| {
            let unit = |name: &String| coverage.units().position(|unit| unit.name == *name);
            AttackerSender::new(seed, number, attacker, attacker.names.iter().filter_map(unit).collect())
        });
        let mut link = RadioLink {
            vehicle,
            attackers: attackers.collect(),
            path,
            senders: senders.collect(),
            serving: None,
            next_cam: None,
            updates: coverage.updates(),
            cam_air_time,
            mean_error: MeanError::new(radio.rate, FULL_BYTES),
            signals: vec![None; paths],
            last: vec![None; paths],
            coverage,
        };
        link.plan();
        link
    }

    /// The paths, with the place of each among them.
    pub(super) fn paths(&self) -> impl Iterator<Item = (usize, PathId)> + use<> {
        (0..self.signals.len()).zip(self.path.0..).map(|(place, path)| (place, PathId(path)))
    }

    fn background(&self, at: Instant) -> Background {
        let radio = self.coverage.radio();
        Background::of(radio.background.load(radio.rate, at.as_secs_f64()), self.cam_air_time)
    }

    /// Updates the signals at the vehicle.
    pub(super) fn receive(&mut self, at: Instant, position_m: [f64; 2]) {
        let t_s = at.as_secs_f64();
        match self.coverage.radio().paths {
            RadioPaths::Radio => self.signals[0] = self.coverage.serving(t_s, position_m),
            RadioPaths::Units => {
                for (unit, signal) in self.signals.iter_mut().enumerate() {
                    *signal = self.coverage.signal_if_on(unit, t_s, position_m);
                }
            }
        }
        let strongest = self.signals.iter().flatten().max_by(|a, b| a.mean_dbm.total_cmp(&b.mean_dbm));
        self.serving = strongest.map(|signal| signal.unit);
        if self.updates != self.coverage.updates() {
            self.updates = self.coverage.updates();
            let background = self.background(at);
            for &unit in self.coverage.near() {
                self.senders[unit].catch_up(at, background);
            }
            self.plan();
        }
    }

    fn plan(&mut self) {
        let near = self.coverage.near().iter();
        self.next_cam = near.map(|&unit| (self.senders[unit].next, unit)).min();
    }

    /// Signal of a path, by its place, and the RSU that it is or that serves it.
    fn signal(&self, place: usize) -> (Option<Signal>, Option<&RoadsideUnit>) {
        let signal = self.signals[place];
        let unit = match self.coverage.radio().paths {
            RadioPaths::Radio => signal.map(|signal| signal.unit),
            RadioPaths::Units => Some(place),
        };
        (signal, unit.and_then(|unit| self.coverage.unit(unit)))
    }

    pub(super) fn params(&self, at: Instant, place: usize) -> [DirectionParams; 2] {
        let radio = self.coverage.radio();
        let (signal, unit) = self.signal(place);
        let delay = unit.map_or(UnitDelay { up: 0.0, down: 0.0 }, |unit| unit.delay_ms);
        let up = DirectionParams {
            bottleneck: Bottleneck::Ieee80211p(Channel {
                rate: radio.rate,
                mean_snr_db: signal.map_or(SILENT_SNR_DB, |s| s.mean_dbm - radio.noise_dbm),
                nakagami_m: signal.map_or(f64::INFINITY, |s| radio.fading.m(s.distance_m)),
                tries: radio.tries,
                share: self.background(at).share,
                limit_bit_s: radio.limit_mbit_s.map_or(f64::INFINITY, |mbit_s| mbit_s * 1e6),
            }),
            delay: millis(delay.up),
            loss: Loss::NONE,
            queue: QueueLimit::Packets(radio.queue_packets),
            codel: None,
        };
        let down = DirectionParams { delay: millis(delay.down), ..up.clone() };
        [up, down]
    }

    pub(super) fn truth(&mut self, at: Instant, vehicle: State, place: usize) -> Truth {
        let share = self.background(at).share;
        let (signal, unit) = self.signal(place);
        let delay_ms = unit.map_or(0.0, |unit| unit.delay_ms.up);
        let radio = self.coverage.radio();
        let error = signal.map_or(1.0, |signal| {
            let snr_db = signal.mean_dbm - radio.noise_dbm;
            let m = radio.fading.m(signal.distance_m);
            self.mean_error.of(snr_db, m)
        });
        let attempt = ieee80211p::attempt_air_time(radio.rate, FULL_BYTES);
        let mean_backoff = ieee80211p::SLOT.as_secs_f64() * 7.5;
        let bits = f64::from(FULL_BYTES) * 8.0 * (1.0 - error);
        let mbit_s = bits / (attempt.as_secs_f64() + mean_backoff) / 1e6 * share;
        let mbit_s = radio.limit_mbit_s.map_or(mbit_s, |limit| mbit_s.min(limit));
        Truth {
            at,
            path: PathId(self.path.0 + place as u8),
            position_m: vehicle.position_m,
            speed_m_s: vehicle.speed_m_s,
            distance_m: signal.map(|signal| signal.distance_m),
            rssi_dbm: signal.map(|signal| signal.mean_dbm),
            up_mbit_s: mbit_s,
            down_mbit_s: mbit_s,
            delay_ms,
            loss: libm::pow(error, f64::from(radio.tries)),
            quality: Quality::default(),
        }
    }

    /// Broadcasts a CAM of one RSU, unless the RSU is off. It uses the same
    /// channel as the packets.
    pub(super) fn send_cam(&mut self, at: Instant, unit: usize, position_m: [f64; 2]) -> Option<CamSent> {
        let signal = self.coverage.signal(unit, position_m);
        let background = self.background(at);
        let sender = self.senders.get_mut(unit)?;
        sender.schedule_next(background);
        self.plan();
        let radio = self.coverage.radio();
        let path = match radio.paths {
            RadioPaths::Radio => self.path,
            RadioPaths::Units => PathId(self.path.0 + unit as u8),
        };
        let station = self.coverage.unit(unit)?;
        let sender = self.senders.get_mut(unit)?;
        if is_within(at.as_secs_f64(), &station.outages_s) {
            return None;
        }
        let gain_db = fading::gain_db(&mut sender.rng, radio.fading.m(signal.distance_m));
        let rssi_dbm = signal.mean_dbm + gain_db;
        let error = ieee80211p::packet_error_rate(radio.rate, rssi_dbm - radio.noise_dbm, cam::UNIT_BYTES);
        let is_lost = sender.rng.chance(error) | sender.others.chance(background.collision);
        Some(CamSent {
            at,
            path,
            station: station.station_id,
            position_m: station.position_m,
            air_time: self.cam_air_time,
            received: (!is_lost).then_some(rssi_dbm),
        })
    }
}

impl RadioLink {
    /// The next CAM of an attacker, and its index.
    pub(super) fn next_forged(&self) -> Option<(Instant, usize)> {
        let senders = self.attackers.iter().enumerate().filter(|(_, sender)| !sender.units.is_empty());
        senders.map(|(place, sender)| (sender.next, place)).min()
    }

    /// Broadcasts a CAM of an attacker, in the name of an RSU.
    pub(super) fn send_forged(&mut self, at: Instant, attacker: usize) -> Option<CamSent> {
        let radio = self.coverage.radio();
        let sender = self.attackers.get_mut(attacker)?;
        let unit = sender.turn()?;
        let is_active = sender.keys.active_s.is_empty() || is_within(at.as_secs_f64(), &sender.keys.active_s);
        let (rssi_dbm, position_m) = (sender.keys.rssi_dbm, sender.keys.position_m);
        let error = ieee80211p::packet_error_rate(radio.rate, rssi_dbm - radio.noise_dbm, cam::UNIT_BYTES);
        let path = match radio.paths {
            RadioPaths::Radio => self.path,
            RadioPaths::Units => PathId(self.path.0 + unit as u8),
        };
        let is_lost = sender.rng.chance(error);
        let station = self.coverage.unit(unit)?.station_id;
        let air_time = self.cam_air_time;
        let received = (!is_lost).then_some(rssi_dbm);
        is_active.then_some(CamSent { at, path, station, position_m, air_time, received })
    }

    /// When the vehicle next checks whether a CAM is due.
    pub(super) fn next_vehicle_check(&self) -> Option<Instant> {
        self.vehicle.as_ref()?.next_check()
    }

    /// Broadcasts a CAM of the vehicle if one is due. It reaches the RSUs over the
    /// channels of the last tick, with fading at each.
    pub(super) fn send_vehicle_cam(&mut self, at: Instant, state: VehicleState) -> Option<VehicleCam> {
        let background = self.background(at);
        let radio = self.coverage.radio();
        let vehicle = self.vehicle.as_mut()?;
        let due = vehicle.check(at, state)?;
        let bytes = VehicleCam::bytes(due);
        let loss = |rssi_dbm: f64| {
            let error = ieee80211p::packet_error_rate(radio.rate, rssi_dbm - radio.noise_dbm, bytes);
            1.0 - (1.0 - error) * (1.0 - background.collision)
        };
        let mut receive = |signal: &Signal| {
            let m = radio.fading.m(signal.distance_m);
            let rssi_dbm = vehicle.receive(signal.unit, signal.mean_dbm, m, loss)?;
            Some((PathId(self.path.0 + signal.unit as u8), rssi_dbm))
        };
        let received = self.signals.iter().flatten().filter_map(&mut receive).collect();
        Some(VehicleCam {
            at,
            path: self.path,
            station: vehicle.station,
            state,
            low_frequency: due.low_frequency,
            air_time: ieee80211p::broadcast_air_time(radio.rate, bytes),
            received,
        })
    }
}

impl AttackerSender {
    /// It begins at a random phase of its period.
    fn new(seed: u64, number: usize, keys: &Attacker, units: Vec<usize>) -> AttackerSender {
        let mut rng = Rng::new(seed, &format!("attacker {number}"));
        let period = Duration::from_secs_f64(1.0 / keys.cams_per_s);
        let next = Instant::from_secs_f64(rng.uniform() * period.as_secs_f64());
        AttackerSender { keys: keys.clone(), units, turn: 0, period, next, rng }
    }

    /// The RSU whose turn it is.
    fn turn(&mut self) -> Option<usize> {
        self.next = self.next + self.period;
        let unit = self.units.get(self.turn).copied();
        self.turn = (self.turn + 1) % self.units.len().max(1);
        unit
    }
}

impl Background {
    /// Other stations that take this share of the airtime.
    fn of(load: f64, cam_air_time: Duration) -> Background {
        Background {
            share: 1.0 - load,
            mean_wait_s: cam_air_time.as_secs_f64() * load / (1.0 - load),
            collision: -libm::expm1(-COLLISIONS_PER_LOAD * load),
        }
    }
}

impl Sender {
    /// RSUs are not synchronized: each starts at a random phase of its period.
    fn new(seed: u64, unit: &str, period_ms: f64, background: Background) -> Sender {
        let mut rng = Rng::new(seed, &format!("cam {unit}"));
        let due = Instant::from_secs_f64(rng.uniform() * period_ms / 1000.0);
        let others = Rng::new(seed, &format!("background {unit}"));
        let mut sender = Sender { period: millis(period_ms), due, next: due, rng, others };
        sender.wait(background);
        sender
    }

    fn schedule_next(&mut self, background: Background) {
        self.due = self.due + self.period;
        self.wait(background);
    }

    /// Skips the CAMs that were due before `now`, while out of reach.
    fn catch_up(&mut self, now: Instant, background: Background) {
        if self.next < now {
            let skipped = now.since(self.due).as_nanos().div_ceil(self.period.as_nanos().max(1));
            self.due = self.due + self.period * u32::try_from(skipped).unwrap_or(u32::MAX);
            self.wait(background);
        }
    }

    fn wait(&mut self, background: Background) {
        let mut wait = Duration::ZERO;
        if background.mean_wait_s > 0.0 {
            wait = Duration::from_secs_f64(background.mean_wait_s * self.others.exponential());
        }
        // A CAM waits for one period at most: then the next one replaces it.
        self.next = self.due + wait.min(self.period);
    }
}
