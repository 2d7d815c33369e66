//! Slow start: how a path of unknown rate finds it (after RFC 5681, section 3.1), so that the slow start of
//! an inner sender is never delayed.
//!
//! The congestion window grows by the bytes acknowledged while it is used. Slow start ends when a queue
//! appears, a round loses many packets, or the rate has stopped growing although the window allowed more
//! (as BBR ends its Startup: draft-ietf-ccwg-bbr, section 5.3.1.2).

/// Share of a round's packets whose loss shows that the path is full; random loss on radio links is lower.
const HEAVY_LOSS: f64 = 0.15;
/// Minimum growth of the rate per round.
const MIN_GROWTH: f64 = 1.25;
/// Rounds without growth that end slow start.
const STALLED_ROUNDS: u8 = 3;

/// State of slow start.
#[derive(Debug, Default)]
pub(super) struct SlowStart {
    /// Bytes acknowledged while the window was used: the window beyond the initial one.
    pub(super) acknowledged_bytes: u64,
    max_bytes_s: f64,
    stalled_rounds: u8,
}

impl SlowStart {
    /// Evaluates a round in which the window was used; whether slow start is over.
    pub(super) fn is_over(&mut self, bytes_s: Option<f64>, loss: f64, has_queue: bool) -> bool {
        if let Some(rate) = bytes_s {
            let is_growing = rate > self.max_bytes_s * MIN_GROWTH;
            self.stalled_rounds = if is_growing { 0 } else { self.stalled_rounds.saturating_add(1) };
            self.max_bytes_s = self.max_bytes_s.max(rate);
        }
        has_queue || loss > HEAVY_LOSS || self.stalled_rounds >= STALLED_ROUNDS
    }
}
