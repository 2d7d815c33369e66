//! A radio of the vehicle, with the units that serve it.

use crosslane_core::link::{Air, Bottleneck, DirectionParams, QueueLimit, ieee80211p};
use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::Instant;

use super::{CamSent, SILENT_SNR_DB, Truth, millis};
use crate::access::Quality;
use crate::cam::{self, Cam};
use crate::fading::{self, MeanError};
use crate::mobility::State;
use crate::radio::{Coverage, Signal, is_within};

/// Packet for which the truth is told.
const FULL_BYTES: u32 = 1500;

#[derive(Debug)]
pub(super) struct RadioLink {
    pub(super) path: PathId,
    pub(super) coverage: Coverage,
    pub(super) senders: Vec<Sender>,
    mean_error: MeanError,
    pub(super) last: Option<[DirectionParams; 2]>,
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) next: Instant,
    rng: Rng,
}

impl RadioLink {
    pub(super) fn new(path: PathId, coverage: Coverage, seed: u64) -> RadioLink {
        let senders = coverage.units().map(|unit| Sender::new(seed, &unit.name, unit.cam_period_ms));
        RadioLink {
            path,
            senders: senders.collect(),
            mean_error: MeanError::new(coverage.radio().rate, FULL_BYTES),
            coverage,
            last: None,
        }
    }

    pub(super) fn params(&self, signal: Option<Signal>) -> [DirectionParams; 2] {
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

    pub(super) fn truth(&mut self, at: Instant, vehicle: State, signal: Option<Signal>) -> Truth {
        let radio = self.coverage.radio();
        let serving = signal.and_then(|signal| self.coverage.units().nth(signal.unit));
        let error = signal.map_or(1.0, |signal| {
            let snr_db = signal.mean_dbm - radio.noise_dbm;
            let m = radio.fading.m(signal.distance_m);
            self.mean_error.of(snr_db, m)
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
            quality: Quality::default(),
        }
    }

    /// Broadcasts a CAM of one unit, unless that is off. The vehicle hears it
    /// over the same channel that carries packets.
    pub(super) fn send_cam(&mut self, at: Instant, unit: usize, position_m: [f64; 2]) -> Option<CamSent> {
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

impl Sender {
    /// Units are not in step: each begins somewhere in its first period.
    fn new(seed: u64, unit: &str, period_ms: f64) -> Sender {
        let mut rng = Rng::new(seed, &format!("cam {unit}"));
        let next = Instant::from_secs_f64(rng.uniform() * period_ms / 1000.0);
        Sender { next, rng }
    }
}
