//! Effects of a cellular link besides rate, delay and loss.

use crosslane_core::link::Middlebox;
use crosslane_core::link::delay_steps::DelayStepParams;
use crosslane_core::link::handover_gap::CellularNetwork;
use crosslane_core::link::jitter::JitterParams;
use crosslane_core::link::policer::PolicerParams;
use crosslane_core::time::Duration;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::schema::{number, period, whole};

/// The effects of a link; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effects {
    /// Gaps of handovers, in the manner of this network.
    pub handovers: Option<CellularNetwork>,
    /// Policer of a used-up volume.
    pub policer: Option<PolicerKeys>,
    /// Jitter that reorders.
    pub jitter: Option<JitterKeys>,
    /// Periodic steps of the delay.
    pub delay_steps: Option<DelayStepKeys>,
    /// What does not let MPTCP pass.
    pub middlebox: Option<Middlebox>,
}

/// Keys of `policer`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerKeys {
    /// Volume of both directions before it acts, in MB (0 to 1,000,000).
    #[serde(default, deserialize_with = "number::<_, _, 0, 1_000_000>")]
    after_mb: f64,
    /// Rate of each direction then, in Mbit/s (above 0, at most 100,000).
    #[serde(deserialize_with = "period::<_, _, 100_000>")]
    rate_mbit_s: f64,
    /// Depth of the token bucket, in kB (2 to 1,000,000).
    #[serde(default = "whole::<20>", deserialize_with = "number::<_, _, 2, 1_000_000>")]
    burst_kb: f64,
}

/// Keys of `jitter`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JitterKeys {
    /// Longest further delay, in ms (above 0, at most 10,000).
    #[serde(deserialize_with = "period::<_, _, 10_000>")]
    most_ms: f64,
    /// Share of the packets that get one (0 to 1).
    #[serde(default = "whole::<1>", deserialize_with = "number::<_, _, 0, 1>")]
    share: f64,
}

/// Keys of `delay_steps`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DelayStepKeys {
    /// Time between steps, in s (0.01 to 7200).
    #[serde(default = "whole::<15>", deserialize_with = "interval")]
    period_s: f64,
    /// Longest further delay, in ms (above 0, at most 10,000).
    #[serde(deserialize_with = "period::<_, _, 10_000>")]
    most_ms: f64,
}

impl PolicerKeys {
    /// The parameters of the link.
    pub fn params(&self) -> PolicerParams {
        PolicerParams {
            volume_bytes: self.after_mb * 1e6,
            bit_s: self.rate_mbit_s * 1e6,
            burst_bytes: self.burst_kb * 1e3,
        }
    }
}

impl JitterKeys {
    /// The parameters of the link.
    pub fn params(&self) -> JitterParams {
        JitterParams { share: self.share, most: Duration::from_secs_f64(self.most_ms / 1e3) }
    }
}

impl DelayStepKeys {
    /// The parameters of the steps.
    pub fn params(&self) -> DelayStepParams {
        DelayStepParams {
            period: Duration::from_secs_f64(self.period_s),
            most: Duration::from_secs_f64(self.most_ms / 1e3),
        }
    }
}

/// A period in s, of at least one update of the links.
fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let period_s = f64::deserialize(from)?;
    if (0.01..=7200.0).contains(&period_s) {
        return Ok(period_s);
    }
    Err(D::Error::custom(format!("{period_s} is outside 0.01 to 7200; choose a number in this range")))
}

/// The network of `handovers`, by its name.
pub(super) fn network<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CellularNetwork>, D::Error> {
    let word = String::deserialize(from)?;
    let found = CellularNetwork::ALL.into_iter().find(|(name, _)| *name == word);
    let names = CellularNetwork::ALL.map(|(name, _)| name).join(", ");
    let unknown = || D::Error::custom(format!("`{word}` is no network of handovers; choose one of {names}"));
    found.map(|(_, network)| Some(network)).ok_or_else(unknown)
}

/// The behaviour of `middlebox`, by its word.
pub(super) fn middlebox<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Middlebox>, D::Error> {
    let word = String::deserialize(from)?;
    let found = Middlebox::ALL.into_iter().find(|(name, _)| *name == word);
    let names = Middlebox::ALL.map(|(name, _)| name).join(", ");
    let unknown = || D::Error::custom(format!("`{word}` is no middlebox; choose one of {names}"));
    found.map(|(_, middlebox)| Some(middlebox)).ok_or_else(unknown)
}

impl Effects {
    /// The word of `handovers` in the file.
    pub(super) fn handovers_word(&self) -> Option<&'static str> {
        let named = |(_, network): &(_, CellularNetwork)| Some(*network) == self.handovers;
        CellularNetwork::ALL.into_iter().find(named).map(|(name, _)| name)
    }
}
