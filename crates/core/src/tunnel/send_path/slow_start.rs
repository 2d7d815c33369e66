//! How a path that nothing is known of finds its rate: as a slow start does (RFC
//! 5681, section 3.1), so that a sender's own slow start inside is never held up.
//!
//! What may be under way grows by what arrives, as long as it is used. The search
//! is over when a queue shows, much is lost, or the rate has stopped growing though
//! more was allowed (as BBR ends its startup: draft-ietf-ccwg-bbr, section 5.3.1.2).

/// Share of a round's packets whose loss says that the path is full; on radio
/// links less is lost at random.
const HEAVY_LOSS: f64 = 0.15;
/// A rate that grows at all grows so many times in a round.
const MIN_GROWTH: f64 = 1.25;
/// Rounds without growth that end the search.
const STALLED_ROUNDS: u8 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SlowStart {
    arrived_bytes: u64,
    max_bytes_s: f64,
    stalled_rounds: u8,
}

impl SlowStart {
    /// What was allowed was used, and so much of it arrived.
    pub(super) fn grow(&mut self, bytes: u32) {
        self.arrived_bytes += u64::from(bytes);
    }

    /// Bytes that may be under way beyond the first.
    pub(super) fn extra_bytes(&self) -> f64 {
        self.arrived_bytes as f64
    }

    /// A round is over in which what was allowed was used: whether the search is.
    pub(super) fn is_over(&mut self, bytes_s: Option<f64>, loss: f64, has_queue: bool) -> bool {
        if let Some(rate) = bytes_s {
            let is_growing = rate > self.max_bytes_s * MIN_GROWTH;
            self.stalled_rounds = if is_growing { 0 } else { self.stalled_rounds.saturating_add(1) };
            self.max_bytes_s = self.max_bytes_s.max(rate);
        }
        has_queue || loss > HEAVY_LOSS || self.stalled_rounds >= STALLED_ROUNDS
    }
}
