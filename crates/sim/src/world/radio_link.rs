//! A radio of the vehicle, with the RSUs that serve it.

use crosslane_core::link::{Bottleneck, Channel, DirectionParams, Loss, QueueLimit, ieee80211p};
use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use super::{CamSent, SILENT_SNR_DB, Truth, millis};
use crate::input::mobility::State;
use crate::radio::access_link::Quality;
use crate::radio::cam;
use crate::radio::fading::{self, MeanError};
use crate::world::coverage::{Coverage, Signal, is_within};

/// Packet size of the ground truth, in bytes.
const FULL_BYTES: u32 = 1500;

/// An RSU's CAM collides with another station's frame if it starts during that
/// frame or up to one frame length earlier, and that station is hidden from the
/// RSU; a quarter of those in reach of the vehicle are (`docs/design/radio.md`).
const COLLISIONS_PER_LOAD: f64 = 2.0 * 0.25;

#[derive(Debug)]
pub(super) struct RadioLink {
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
    background: Background,
    mean_error: MeanError,
    pub(super) last: Option<[DirectionParams; 2]>,
}

/// Effect of other vehicles on the channel.
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

impl RadioLink {
    pub(super) fn new(path: PathId, coverage: Coverage, seed: u64) -> RadioLink {
        let radio = coverage.radio();
        let cam_air_time = ieee80211p::broadcast_air_time(radio.rate, cam::UNIT_BYTES);
        let load = radio.channel_load();
        let background = Background {
            share: 1.0 - load,
            mean_wait_s: cam_air_time.as_secs_f64() * load / (1.0 - load),
            collision: -libm::expm1(-COLLISIONS_PER_LOAD * load),
        };
        let senders = coverage.units().map(|unit| Sender::new(seed, &unit.name, unit.cam_period_ms, background));
        let mut link = RadioLink {
            path,
            senders: senders.collect(),
            serving: None,
            next_cam: None,
            updates: coverage.updates(),
            cam_air_time,
            background,
            mean_error: MeanError::new(radio.rate, FULL_BYTES),
            coverage,
            last: None,
        };
        link.plan();
        link
    }

    /// Signal of the serving RSU at the vehicle.
    pub(super) fn signal(&mut self, at: Instant, position_m: [f64; 2]) -> Option<Signal> {
        let signal = self.coverage.serving(at.as_secs_f64(), position_m);
        self.serving = signal.map(|signal| signal.unit);
        if self.updates != self.coverage.updates() {
            self.updates = self.coverage.updates();
            for &unit in self.coverage.near() {
                self.senders[unit].catch_up(at, self.background);
            }
            self.plan();
        }
        signal
    }

    fn plan(&mut self) {
        let near = self.coverage.near().iter();
        self.next_cam = near.map(|&unit| (self.senders[unit].next, unit)).min();
    }

    pub(super) fn params(&self, signal: Option<Signal>) -> [DirectionParams; 2] {
        let radio = self.coverage.radio();
        let serving = signal.and_then(|signal| self.coverage.unit(signal.unit));
        let params = DirectionParams {
            bottleneck: Bottleneck::Ieee80211p(Channel {
                rate: radio.rate,
                mean_snr_db: signal.map_or(SILENT_SNR_DB, |s| s.mean_dbm - radio.noise_dbm),
                nakagami_m: signal.map_or(f64::INFINITY, |s| radio.fading.m(s.distance_m)),
                tries: radio.tries,
                share: self.background.share,
            }),
            delay: millis(serving.map_or(0.0, |unit| unit.delay_ms)),
            loss: Loss::NONE,
            queue: QueueLimit::Packets(radio.queue_packets),
            codel: None,
        };
        [params.clone(), params]
    }

    pub(super) fn truth(&mut self, at: Instant, vehicle: State, signal: Option<Signal>) -> Truth {
        let radio = self.coverage.radio();
        let serving = signal.and_then(|signal| self.coverage.unit(signal.unit));
        let error = signal.map_or(1.0, |signal| {
            let snr_db = signal.mean_dbm - radio.noise_dbm;
            let m = radio.fading.m(signal.distance_m);
            self.mean_error.of(snr_db, m)
        });
        let attempt = ieee80211p::attempt_air_time(radio.rate, FULL_BYTES);
        let mean_backoff = ieee80211p::SLOT.as_secs_f64() * 7.5;
        let bits = f64::from(FULL_BYTES) * 8.0 * (1.0 - error);
        let mbit_s = bits / (attempt.as_secs_f64() + mean_backoff) / 1e6 * self.background.share;
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
            quality: Quality::default(),
        }
    }

    /// Broadcasts a CAM of one RSU, unless the RSU is off. It uses the same
    /// channel as the packets.
    pub(super) fn send_cam(&mut self, at: Instant, unit: usize, position_m: [f64; 2]) -> Option<CamSent> {
        let signal = self.coverage.signal(unit, position_m);
        let sender = self.senders.get_mut(unit)?;
        sender.schedule_next(self.background);
        self.plan();
        let radio = self.coverage.radio();
        let station = self.coverage.unit(unit)?;
        let sender = self.senders.get_mut(unit)?;
        if is_within(at.as_secs_f64(), &station.outages_s) {
            return None;
        }
        let gain_db = fading::gain_db(&mut sender.rng, radio.fading.m(signal.distance_m));
        let rssi_dbm = signal.mean_dbm + gain_db;
        let error = ieee80211p::packet_error_rate(radio.rate, rssi_dbm - radio.noise_dbm, cam::UNIT_BYTES);
        let is_lost = sender.rng.chance(error) | sender.others.chance(self.background.collision);
        Some(CamSent {
            at,
            path: self.path,
            station: station.station_id,
            position_m: station.position_m,
            air_time: self.cam_air_time,
            received: (!is_lost).then_some(rssi_dbm),
        })
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
