//! Why a path is left: what shows that it delivers late, and how that is said.

use alloc::format;

use super::super::Reason;
use crate::time::Instant;

/// A sign that a path delivers late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sign {
    /// The RTTs end so far above the least one, in ms.
    Rtt,
    /// The age of the oldest unacknowledged byte, in ms.
    Age,
    /// The share of segments that were retransmitted.
    Loss,
    /// Delivered while more waited, compared with what is usually offered, in kbit/s.
    Rate,
}

/// A sign, its figure, and the limit that it exceeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    pub(super) sign: Sign,
    pub(super) figure: f64,
    pub(super) limit: f64,
}

impl Evidence {
    /// Whether data waits on the path.
    pub(super) fn is_stall(self) -> bool {
        matches!(self.sign, Sign::Age | Sign::Rate)
    }

    /// Why the path is left, at this smoothed signal.
    pub(super) fn reason(self, dbm: Option<f64>) -> Reason {
        let Evidence { sign, figure, limit } = self;
        let (rule, mut text, names) = match sign {
            Sign::Rtt => (
                "quality.rtt",
                format!("RTTs are up to {figure:.0} ms above the least, {limit:.0} ms allowed"),
                ["rtt_ms", "limit_ms"],
            ),
            Sign::Age => (
                "quality.age",
                format!("the oldest byte is unacknowledged for {figure:.0} ms, {limit:.0} ms allowed"),
                ["age_ms", "limit_ms"],
            ),
            Sign::Rate => (
                "quality.rate",
                format!("{figure:.0} kbit/s are delivered while more waits, {limit:.0} kbit/s are usually offered"),
                ["delivered_kbit_s", "offered_kbit_s"],
            ),
            Sign::Loss => (
                "quality.loss",
                format!("{:.1} % of the segments are retransmitted, {:.1} % allowed", figure * 1e2, limit * 1e2),
                ["loss", "limit"],
            ),
        };
        let mut inputs = alloc::vec![(names[0], figure), (names[1], limit)];
        if let Some(dbm) = dbm {
            text.push_str(&format!(", at {dbm:.1} dBm"));
            inputs.push(("rssi_dbm", dbm));
        }
        Reason { rule, text, inputs }
    }
}

/// Why and when a path was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) at: Instant,
    /// Whether its signal explains it.
    pub(super) by_signal: bool,
    /// Whether data waits on it.
    pub(super) stalled: bool,
    /// Whether less was delivered than is offered.
    pub(super) starved: bool,
    /// Whether echo requests were late, or nothing was received.
    pub(super) by_echo: bool,
}

impl Left {
    pub(super) fn new(at: Instant, by_signal: bool, stalled: bool) -> Left {
        Left { at, by_signal, stalled, starved: false, by_echo: false }
    }

    pub(super) fn by_echo(at: Instant) -> Left {
        Left { by_echo: true, ..Left::new(at, false, false) }
    }
}
