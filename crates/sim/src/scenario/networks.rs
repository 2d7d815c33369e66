//! The networks of a scenario: radios with their RSUs, cellular and Wi-Fi
//! links.

use std::fmt;

use crosslane_core::link::ieee80211p::PhyRate;
use crosslane_core::link::{CoDel, Loss, QueueLimit};
use crosslane_core::path::Rat;
use crosslane_core::tunnel::wire::overhead::{Overhead, VXLAN_BYTES};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::effects::Effects;
use super::schema::{integer, near, number, period, phy_rate, spans, station, whole};
use super::{Background, Wire};
use crate::radio::access_link::AccessModel;
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
    /// Whether the radio is one path, or each of its RSUs.
    #[serde(default)]
    pub paths: RadioPaths,
    /// Tunnel from the vehicle to each RSU, with `paths = "units"`; none: each path has a
    /// separate interface.
    #[serde(default)]
    pub tunnel: Option<RadioTunnel>,
    /// Number of RSUs that are paths at the same time (1 to 16), with `paths = "units"`;
    /// none: all are paths from the start.
    #[serde(default, deserialize_with = "slots")]
    pub slots: Option<u8>,
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
    /// Rate of IP packets at which each station passes packets to the air, in Mbit/s
    /// (above 0, at most 100); none: no shaper.
    #[serde(default, deserialize_with = "period::<_, _, 100>")]
    pub limit_mbit_s: Option<f64>,
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
    /// Other stations on the channel; none by default.
    #[serde(default)]
    pub background: Background,
}

/// The paths of a radio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RadioPaths {
    /// One, with the radio's name: the strongest RSU serves.
    #[default]
    Radio,
    /// One to each RSU, with the RSU's name. They share the air and the vehicle's queue.
    Units,
}

/// The tunnels from the vehicle to the RSUs of a radio, which all use its one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RadioTunnel {
    /// The kernel's VXLAN (RFC 7348).
    Vxlan,
    /// The encrypted tunnel of Crosslane.
    Crosslane,
}

impl RadioTunnel {
    /// Bytes around a packet in the tunnel.
    pub fn overhead_bytes(self) -> u16 {
        let bytes = match self {
            RadioTunnel::Vxlan => VXLAN_BYTES,
            RadioTunnel::Crosslane => Overhead::new(false, true).around_packet(),
        };
        bytes as u16
    }

    /// The word of the scenario file.
    pub fn name(self) -> &'static str {
        match self {
            RadioTunnel::Vxlan => "vxlan",
            RadioTunnel::Crosslane => "crosslane",
        }
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
    /// One-way delay between the RSU and the server.
    #[serde(default)]
    pub delay_ms: UnitDelay,
    /// Intervals `[from, to]`, in s, in which it is off.
    #[serde(default, deserialize_with = "spans")]
    pub outages_s: Vec<[f64; 2]>,
}

/// A station that sends CAMs in the names of RSUs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Attacker {
    /// Radio whose channel it uses.
    pub radio: String,
    /// Names of the RSUs in whose names it sends, in turn.
    pub names: Vec<String>,
    /// CAMs a second (1 to 1000).
    #[serde(deserialize_with = "number::<_, _, 1, 1000>")]
    pub cams_per_s: f64,
    /// RSSI at the vehicle, in dBm (−120 to 0).
    #[serde(deserialize_with = "number::<_, _, -120, 0>")]
    pub rssi_dbm: f64,
    /// Position that its CAMs state, in m.
    #[serde(deserialize_with = "near")]
    pub position_m: [f64; 2],
    /// Intervals `[from, to]`, in s, in which it sends.
    #[serde(default, deserialize_with = "spans")]
    pub active_s: Vec<[f64; 2]>,
}

/// One-way delay in each direction, in ms (0 to 10,000).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitDelay {
    /// To the server.
    pub up: f64,
    /// From the server.
    pub down: f64,
}

impl Default for UnitDelay {
    fn default() -> UnitDelay {
        UnitDelay { up: 2.0, down: 2.0 }
    }
}

impl<'de> Deserialize<'de> for UnitDelay {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UnitDelay, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Each {
            #[serde(deserialize_with = "number::<_, _, 0, 10_000>")]
            up: f64,
            #[serde(deserialize_with = "number::<_, _, 0, 10_000>")]
            down: f64,
        }
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = UnitDelay;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of ms, or a table of `up` and `down`")
            }

            fn visit_i64<E: Error>(self, ms: i64) -> Result<UnitDelay, E> {
                self.visit_f64(ms as f64)
            }

            fn visit_f64<E: Error>(self, ms: f64) -> Result<UnitDelay, E> {
                let ms = number::<_, _, 0, 10_000>(ms.into_deserializer())?;
                Ok(UnitDelay { up: ms, down: ms })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UnitDelay, A::Error> {
                Each::deserialize(MapAccessDeserializer::new(map)).map(|Each { up, down }| UnitDelay { up, down })
            }
        }
        from.deserialize_any(Shapes)
    }
}

impl Serialize for UnitDelay {
    /// A number if both directions are equal, else a table.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.up == self.down {
            return to.serialize_f64(self.up);
        }
        let mut each = to.serialize_struct("UnitDelay", 2)?;
        each.serialize_field("up", &self.up)?;
        each.serialize_field("down", &self.down)?;
        each.end()
    }
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
    /// Further effects.
    pub effects: Effects,
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

fn slots<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    integer::<_, 1, 16>(from).map(|slots| u8::try_from(slots).ok())
}

fn hundred() -> u32 {
    100
}
