//! Wires: links without a radio. In a drive the kernel shapes them.

use crosslane_core::link::Loss;
use crosslane_core::path::Rat;
use serde::{Deserialize, Serialize};

use super::effects::Effects;
use super::networks::{AccessLink, Queue};
use super::schema::{period, spans, whole};

/// Shaping of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wire {
    /// Rate of both directions, in Mbit/s (above 0, at most 100,000); none: not
    /// shaped.
    pub rate_mbit_s: Option<f64>,
    /// Queue limit, in ms at that rate (above 0, at most 60,000).
    pub queue_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireKeys {
    name: String,
    #[serde(default = "lte")]
    rat: Rat,
    #[serde(default, deserialize_with = "period::<_, _, 100_000>")]
    rate_mbit_s: Option<f64>,
    #[serde(default = "whole::<50>", deserialize_with = "period::<_, _, 60_000>")]
    queue_ms: f64,
    #[serde(default, deserialize_with = "spans")]
    outages_s: Vec<[f64; 2]>,
}

/// Simulated rate of a wire without a rate, in Mbit/s.
const UNSHAPED_MBIT_S: f64 = 10_000.0;
/// Simulated one-way delay of a wire, in ms.
const DELAY_MS: f64 = 0.1;
/// Reported signal of a wire, in dBm: above the threshold of every strategy.
const RSSI_DBM: f64 = -50.0;

fn lte() -> Rat {
    Rat::Lte
}

impl WireKeys {
    pub(super) fn build(self, key: String) -> AccessLink {
        AccessLink {
            name: self.name,
            rat: self.rat,
            up_mbit_s: self.rate_mbit_s.unwrap_or(UNSHAPED_MBIT_S),
            down_mbit_s: None,
            delay_ms: Some(DELAY_MS),
            loss: Loss::default(),
            codel: None,
            queue: Queue::Millis(self.queue_ms),
            rssi_dbm: RSSI_DBM,
            rssi_sigma_db: 0.0,
            sample_period_ms: 100.0,
            trace: None,
            trace_down: None,
            model: None,
            effects: Effects::default(),
            outages_s: self.outages_s,
            wire: Some(Wire { rate_mbit_s: self.rate_mbit_s, queue_ms: self.queue_ms }),
            key,
        }
    }
}
