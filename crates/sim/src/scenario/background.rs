//! Other stations on the channel of a radio.

use std::fmt;

use crosslane_core::link::ieee80211p::{self, PhyRate};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::schema::{integer, number, whole};
use crate::radio::cam;

/// Other stations that use the same channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Background {
    /// Vehicles in range that send CAMs at the radio's rate.
    Cams(BackgroundCams),
    /// `[from_s, to_s, share]`, in order of time: the share of the airtime (0 to 1) that
    /// other stations take, 0 in between.
    Shares(Vec<[f64; 3]>),
}

/// Vehicles in range, each of which sends CAMs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundCams {
    /// Number of vehicles (0 to 1000).
    #[serde(deserialize_with = "integer::<_, 0, 1000>")]
    pub stations: u32,
    /// Period of their CAMs, in ms (10 to 10,000).
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, _, 10, 10_000>")]
    pub cam_period_ms: f64,
}

impl Background {
    /// Share of the airtime (0 or more) that other stations take at a time, in s; their
    /// CAMs are sent at `rate`.
    pub fn load(&self, rate: PhyRate, t_s: f64) -> f64 {
        match self {
            Background::Cams(BackgroundCams { stations, cam_period_ms }) => {
                let air_time = ieee80211p::broadcast_air_time(rate, cam::VEHICLE_BYTES);
                f64::from(*stations) * air_time.as_secs_f64() * 1000.0 / cam_period_ms
            }
            Background::Shares(spans) => {
                let span = spans.iter().find(|[from, to, _]| (*from..*to).contains(&t_s));
                span.map_or(0.0, |[.., share]| *share)
            }
        }
    }

    /// The greatest load.
    pub(super) fn max_load(&self, rate: PhyRate) -> f64 {
        match self {
            Background::Cams(_) => self.load(rate, 0.0),
            Background::Shares(spans) => spans.iter().map(|[.., share]| *share).fold(0.0, f64::max),
        }
    }
}

impl Default for Background {
    fn default() -> Background {
        Background::Cams(BackgroundCams { stations: 0, cam_period_ms: 100.0 })
    }
}

impl<'de> Deserialize<'de> for Background {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Background, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = Background;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of `stations` and `cam_period_ms`, or a list of `[from_s, to_s, share]`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Background, A::Error> {
                let spans = Vec::<[f64; 3]>::deserialize(SeqAccessDeserializer::new(seq))?;
                let mut earliest = 0.0;
                for &[from, to, share] in &spans {
                    if !(from >= earliest && from < to && (0.0..=1.0).contains(&share)) {
                        return Err(A::Error::custom(format!(
                            "[{from}, {to}, {share}] is no share of 0 to 1 from {earliest} s or later until a later \
                             time; give `[from_s, to_s, share]` in order"
                        )));
                    }
                    earliest = to;
                }
                Ok(Background::Shares(spans))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Background, A::Error> {
                BackgroundCams::deserialize(MapAccessDeserializer::new(map)).map(Background::Cams)
            }
        }
        from.deserialize_any(Shapes)
    }
}
