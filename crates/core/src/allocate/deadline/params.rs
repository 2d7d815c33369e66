//! What can be set of the strategy `deadline`.

use alloc::format;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::allocate::{millis, number, share};

/// Parameters of [`Deadline`](super::Deadline).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// How sure the plan is that a path carries what is counted on (0.5 to 1).
    #[serde(deserialize_with = "confidence")]
    pub confidence: f64,
    /// How long before its deadline an object is to be there, in ms: what no
    /// forecast knows, as the last segment's repetition.
    #[serde(deserialize_with = "millis")]
    pub margin_ms: f64,
    /// A path that carries is switched off when the cheaper ones would be done
    /// so much before the object must be there, in ms.
    #[serde(deserialize_with = "millis")]
    pub spare_ms: f64,
    /// A path that carries pauses only if it could for so long, in ms: each
    /// change costs what is queued, a round trip and a slow start.
    #[serde(deserialize_with = "millis")]
    pub pause_ms: f64,
    /// What is counted on while no path has been seen for long, as a part of the
    /// rate it shows or, if it was never seen, of the least that another shows (0
    /// to 1).
    #[serde(deserialize_with = "share")]
    pub prior_share: f64,
    /// Part of the time until the deadline in which nothing is done while no
    /// path is known (0 to 1).
    #[serde(deserialize_with = "share")]
    pub learn_share: f64,
    /// Bytes that a sender may have unacknowledged at least and at most, as
    /// multiples of rate × least round trip of each path that carries: 1 is
    /// under way, the rest lets the rate grow and covers what waits for another
    /// path's bytes. It grows while that does not queue in the network. Where
    /// several paths carry it is at least what they carry while the slowest is
    /// busy with what it is given at once.
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
    let [least, most] = <[f64; 2]>::deserialize(from)?;
    if 1.0 <= least && least <= most && most <= 100.0 {
        return Ok([least, most]);
    }
    Err(D::Error::custom(format!("[{least}, {most}] is no range within 1 to 100; give the least and the greatest")))
}
