//! Parameters of the strategy `deadline`.

use alloc::format;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::allocate::{millis, number, share};

/// Parameters of [`Deadline`](super::Deadline).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Probability that a path carries what is planned on it (0.5 to 1).
    #[serde(deserialize_with = "confidence")]
    pub confidence: f64,
    /// How long before its deadline an object is to be complete, in ms: for what no
    /// forecast includes, e.g. the last segment's retransmission.
    #[serde(deserialize_with = "millis")]
    pub margin_ms: f64,
    /// A path that carries is switched off when the cheaper ones would be done this
    /// long before the object must be complete, in ms.
    #[serde(deserialize_with = "millis")]
    pub spare_ms: f64,
    /// A path that carries pauses only if it could for this long, in ms: each change
    /// costs the queued data, an RTT and a slow start.
    #[serde(deserialize_with = "millis")]
    pub pause_ms: f64,
    /// Rate assumed while no path has been observed for long, as a part of the rate it
    /// shows or, if it was never observed, of the lowest rate of the others (0 to 1).
    #[serde(deserialize_with = "share")]
    pub prior_share: f64,
    /// Part of the time until the deadline in which nothing is done while no
    /// path is known (0 to 1).
    #[serde(deserialize_with = "share")]
    pub learn_share: f64,
    /// Minimum and maximum of the sender's unacknowledged bytes, as multiples of rate ×
    /// minimum RTT of each active path: 1 is in flight, the rest lets the rate grow and
    /// covers what waits for another path's bytes. It grows while no queue builds in
    /// the network. With several active paths it is at least what they carry while the
    /// slowest sends one burst.
    #[serde(deserialize_with = "multiples")]
    pub backlog_rtts: [f64; 2],
}

impl Default for Params {
    fn default() -> Params {
        Params {
            confidence: 0.95,
            margin_ms: 70.0,
            spare_ms: 50.0,
            pause_ms: 2000.0,
            prior_share: 0.7,
            learn_share: 0.15,
            backlog_rtts: [2.0, 3.0],
        }
    }
}

fn confidence<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, 0.5, 1.0)
}

fn multiples<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 2], D::Error> {
    let [min, max] = <[f64; 2]>::deserialize(from)?;
    if 1.0 <= min && min <= max && max <= 100.0 {
        return Ok([min, max]);
    }
    Err(D::Error::custom(format!("[{min}, {max}] is not a range within 1 to 100; give the minimum and the maximum")))
}
