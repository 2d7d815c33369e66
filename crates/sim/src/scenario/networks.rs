//! The networks of a scenario: radios with their RSUs, cellular and Wi-Fi
//! links.

use crosslane_core::link::ieee80211p::{self, PhyRate};
use crosslane_core::link::{CoDel, Loss, QueueLimit};
use crosslane_core::path::Rat;
use serde::{Deserialize, Serialize};

use super::Wire;
use super::schema::{integer, number, period, phy_rate, spans, station, whole};
use crate::radio::access_link::AccessModel;
use crate::radio::cam;
use crate::radio::fading::Fading;
use crate::radio::path_loss::PathLoss;

/// An 802.11p interface of the vehicle, shared by its RSUs.
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
    /// Effective radiated power of each side, in dBm (−30 to 60).
    #[serde(default = "whole::<23>", deserialize_with = "number::<_, _, -30, 60>")]
    pub eirp_dbm: f64,
    /// Noise floor, in dBm (−130 to 0).
    #[serde(default = "whole::<-97>", deserialize_with = "number::<_, _, -130, 0>")]
    pub noise_dbm: f64,
    /// Transmission attempts before a unicast frame is dropped (1 to 7).
    #[serde(default = "seven")]
    pub tries: u8,
    /// Packets that may wait for the channel (1 to 100,000).
    #[serde(default = "hundred")]
    pub queue_packets: u32,
    /// Path loss.
    pub path_loss: PathLoss,
    /// Standard deviation of shadowing, in dB (0 to 20); none: from the model.
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    pub shadowing_db: Option<f64>,
    /// Decorrelation distance of shadowing, in m; none: from the model.
    #[serde(default, deserialize_with = "period::<_, _, 10_000>")]
    pub shadowing_distance_m: Option<f64>,
    /// Fading of each frame.
    #[serde(default)]
    pub fading: Fading,
    /// Other vehicles in range; none by default.
    #[serde(default)]
    pub background: Background,
}

impl Radio {
    /// Share of the airtime (0 or more) that the CAMs of other vehicles take,
    /// each sent at the radio's rate.
    pub fn channel_load(&self) -> f64 {
        let air_time = ieee80211p::broadcast_air_time(self.rate, cam::VEHICLE_BYTES);
        let Background { stations, cam_period_ms } = self.background;
        f64::from(stations) * air_time.as_secs_f64() * 1000.0 / cam_period_ms
    }
}

/// Other vehicles in range, whose CAMs use the same channel.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Number of vehicles (0 to 1000).
    #[serde(deserialize_with = "integer::<_, 0, 1000>")]
    pub stations: u32,
    /// Period of their CAMs, in ms (10 to 10,000).
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, _, 10, 10_000>")]
    pub cam_period_ms: f64,
}

impl Default for Background {
    fn default() -> Background {
        Background { stations: 0, cam_period_ms: 100.0 }
    }
}

/// A roadside unit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoadsideUnit {
    /// Name, unique among the RSUs.
    pub name: String,
    /// Radio that it serves.
    pub radio: String,
    /// Position, in m.
    pub position_m: [f64; 2],
    /// Height of its antenna, in m (above 0, at most 100).
    #[serde(default = "whole::<6>", deserialize_with = "period::<_, _, 100>")]
    pub antenna_m: f64,
    /// Period of its CAMs, in ms (10 to 10,000).
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, _, 10, 10_000>")]
    pub cam_period_ms: f64,
    /// Station id; none in the file: 1000 plus its index.
    #[serde(default, deserialize_with = "station")]
    pub station_id: u32,
    /// One-way delay between the RSU and the server, in ms (0 to 10,000).
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, _, 0, 10_000>")]
    pub delay_ms: f64,
    /// Intervals `[from, to]`, in s, in which it is off.
    #[serde(default, deserialize_with = "spans")]
    pub outages_s: Vec<[f64; 2]>,
}

/// A cellular or Wi-Fi link from constants, a trace or a model; or a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLink {
    /// Name of the path and of the interface.
    pub name: String,
    /// Radio access technology.
    pub rat: Rat,
    /// Uplink rate, in Mbit/s; a trace or a model overrides it. Of a model: the
    /// nominal rate at a good signal.
    pub up_mbit_s: f64,
    /// Downlink rate, in Mbit/s; none: equal to the uplink rate.
    pub down_mbit_s: Option<f64>,
    /// One-way delay, in ms; a trace overrides it. `None`: the trace has it.
    pub delay_ms: Option<f64>,
    /// Loss; a trace overrides it.
    pub loss: Loss,
    /// CoDel parameters of the queue; none: drop-tail.
    pub codel: Option<CoDel>,
    /// Queue limit.
    pub queue: Queue,
    /// Signal, in dBm.
    pub rssi_dbm: f64,
    /// Standard deviation of the reported signal around it, in dB.
    pub rssi_sigma_db: f64,
    /// Period of the reports, in ms.
    pub sample_period_ms: f64,
    /// Trace of the uplink, and of the downlink unless that has a separate rate or
    /// trace; delay, loss and signal of this trace apply to the link.
    pub trace: Option<String>,
    /// Trace of the downlink.
    pub trace_down: Option<String>,
    /// Model of its signal and rates, if it is modelled.
    pub model: Option<AccessModel>,
    /// Intervals `[from, to]`, in s, in which nothing passes.
    pub outages_s: Vec<[f64; 2]>,
    /// Of a wire: its shaping in a drive.
    pub wire: Option<Wire>,
    /// Its key in the file, for example `cellular.0`.
    pub(super) key: String,
}

/// Size of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// The bytes that the link carries in this many ms, but at least two packets.
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
