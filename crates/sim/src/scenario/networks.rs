//! The networks of a scenario: radios with their roadside units, cellular and
//! Wi-Fi links.

use crosslane_core::link::ieee80211p::{self, PhyRate};
use crosslane_core::link::{CoDel, Loss, QueueLimit};
use crosslane_core::path::Rat;
use serde::Deserialize;

use super::Wire;
use super::schema::{number, optional_number, optional_period, period, phy_rate, spans, station, stations, whole};
use crate::radio::access_link::AccessModel;
use crate::radio::cam;
use crate::radio::fading::Fading;
use crate::radio::path_loss::PathLoss;

/// An 802.11p interface of the vehicle; its units share it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Name of the path and of the interface.
    pub name: String,
    /// Always 802.11p.
    pub rat: Rat,
    /// PHY rate.
    #[serde(rename = "rate_mbit_s", deserialize_with = "phy_rate")]
    pub rate: PhyRate,
    /// Effective radiated power, in dBm (−30 to 60), of either side.
    #[serde(default = "whole::<23>", deserialize_with = "number::<_, -30, 60>")]
    pub eirp_dbm: f64,
    /// Noise floor, in dBm (−130 to 0).
    #[serde(default = "whole::<-97>", deserialize_with = "number::<_, -130, 0>")]
    pub noise_dbm: f64,
    /// Tries before a unicast frame is dropped (1 to 7).
    #[serde(default = "seven")]
    pub tries: u8,
    /// Packets that may wait for the channel (1 to 100,000).
    #[serde(default = "hundred")]
    pub queue_packets: u32,
    /// Path loss.
    pub path_loss: PathLoss,
    /// Standard deviation of shadowing, in dB (0 to 20); none: the model's.
    #[serde(default, deserialize_with = "optional_number::<_, 0, 20>")]
    pub shadowing_db: Option<f64>,
    /// Decorrelation distance of shadowing, in m; none: the model's.
    #[serde(default, deserialize_with = "optional_period::<_, 10_000>")]
    pub shadowing_distance_m: Option<f64>,
    /// Fading of each frame.
    #[serde(default)]
    pub fading: Fading,
    /// Other vehicles in range; none by default.
    #[serde(default)]
    pub background: Background,
}

impl Radio {
    /// Part of the channel's time (0 and up) that other vehicles' CAMs take,
    /// each sent at the radio's rate.
    pub fn channel_load(&self) -> f64 {
        let air_time = ieee80211p::broadcast_air_time(self.rate, cam::VEHICLE_BYTES);
        let Background { stations, cam_period_ms } = self.background;
        f64::from(stations) * air_time.as_secs_f64() * 1000.0 / cam_period_ms
    }
}

/// Other vehicles in range, whose CAMs are on the air too.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// How many (0 to 1000).
    #[serde(deserialize_with = "stations")]
    pub stations: u32,
    /// Period of their CAMs, in ms (10 to 10,000).
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, 10, 10_000>")]
    pub cam_period_ms: f64,
}

impl Default for Background {
    fn default() -> Background {
        Background { stations: 0, cam_period_ms: 100.0 }
    }
}

/// A roadside unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoadsideUnit {
    /// Name, unique among the units.
    pub name: String,
    /// Radio that it serves.
    pub radio: String,
    /// Position, in m.
    pub position_m: [f64; 2],
    /// Height of its antenna, in m (above 0, at most 100).
    #[serde(default = "whole::<6>", deserialize_with = "period::<_, 100>")]
    pub antenna_m: f64,
    /// Period of its CAMs, in ms (10 to 10,000).
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, 10, 10_000>")]
    pub cam_period_ms: f64,
    /// Station id; none in the file: 1000 and its place in it.
    #[serde(default, deserialize_with = "station")]
    pub station_id: u32,
    /// One-way delay of the wire to the server, in ms (0 to 10,000).
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, 0, 10_000>")]
    pub delay_ms: f64,
    /// Times, in s, in which it is off.
    #[serde(default, deserialize_with = "spans")]
    pub outages_s: Vec<[f64; 2]>,
}

/// A cellular or Wi-Fi link, from constants, a trace or a model; or a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLink {
    /// Name of the path and of the interface.
    pub name: String,
    /// Radio access technology.
    pub rat: Rat,
    /// Rate from the vehicle, in Mbit/s; what a trace or the model says comes
    /// first. Of a model: its usual rate at a good signal.
    pub up_mbit_s: f64,
    /// Rate to the vehicle, in Mbit/s; none: as from the vehicle.
    pub down_mbit_s: Option<f64>,
    /// One-way delay, in ms.
    pub delay_ms: f64,
    /// Loss; what a trace says comes first.
    pub loss: Loss,
    /// Drops what has waited too long; none: drop-tail.
    pub codel: Option<CoDel>,
    /// What may wait for the link.
    pub queue: Queue,
    /// Signal, in dBm.
    pub rssi_dbm: f64,
    /// Standard deviation of the reported signal around it, in dB.
    pub rssi_sigma_db: f64,
    /// Period of the reports, in ms.
    pub sample_period_ms: f64,
    /// Trace of the way up, and of the way down unless that has its own rate or
    /// trace; its delay, loss and signal are the link's.
    pub trace: Option<String>,
    /// Trace of the way down.
    pub trace_down: Option<String>,
    /// What its signal and rates come from, where that is a model.
    pub model: Option<AccessModel>,
    /// Times, in s, in which nothing passes.
    pub outages_s: Vec<[f64; 2]>,
    /// Of a wire: what shapes it in a drive.
    pub wire: Option<Wire>,
    /// Where it stands in the file, as `cellular.0`.
    pub(super) key: String,
}

/// Size of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// What the link carries in so many ms at its rate, but two packets at least.
    Millis(f64),
    /// A fixed limit.
    Limit(QueueLimit),
}

fn seven() -> u8 {
    7
}

fn hundred() -> u32 {
    100
}
