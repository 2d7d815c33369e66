//! Reordering of a path as the sender saw it, and how long RACK therefore waits (RFC 8985 §6.2 steps 2 and 4, Linux
//! `tcp_check_sack_reordering`, `tcp_rack_reo_wnd`, `tcp_rack_update_reo_wnd`).

use crosslane_core::time::Duration;

/// Segments by which a delivered one is ahead before one counts as lost (`net.ipv4.tcp_reordering`).
pub(super) const DUP_THRESH: u32 = 3;
/// Maximum of the degree, in segments (`net.ipv4.tcp_max_reordering`).
const DEGREE_MAX: u32 = 300;
/// Recoveries without a duplicate after which the window shrinks again (`TCP_RACK_RECOVERY_THRESH`).
const PERSISTS: u8 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// Greatest distance by which a segment was overtaken, in segments.
    degree: u32,
    /// A segment was overtaken.
    seen: bool,
    /// Length of the window, in quarters of the minimum RTT.
    steps: u8,
    /// Recoveries for which it keeps that length.
    persist: u8,
    /// A duplicate was reported, and the window has not grown yet.
    duplicate: bool,
    /// Segments delivered when it last grew.
    grown_at: u64,
}

impl Default for Reordering {
    fn default() -> Reordering {
        Reordering { degree: DUP_THRESH, seen: false, steps: 1, persist: 0, duplicate: false, grown_at: 0 }
    }
}

impl Reordering {
    /// A segment that was sent once and begins at `seq` arrived after one that begins at `newest`.
    pub(super) fn note(&mut self, seq: u64, newest: u64, mss: u64) {
        if seq < newest {
            let distance = (newest - seq).div_ceil(mss).min(u64::from(DEGREE_MAX)) as u32;
            self.degree = self.degree.max(distance);
            self.seen = true;
        }
    }

    /// A retransmission was needless.
    pub(super) fn note_duplicate(&mut self) {
        self.duplicate |= self.seen;
    }

    /// An acknowledgement delivered a segment, before which `before` had been delivered when it was sent. The window
    /// grows once a round.
    pub(super) fn update(&mut self, before: u64, delivered: u64) {
        self.duplicate &= before >= self.grown_at;
        if std::mem::take(&mut self.duplicate) {
            self.steps = self.steps.saturating_add(1);
            (self.grown_at, self.persist) = (delivered, PERSISTS);
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery ended; it was undone because of duplicates.
    pub(super) fn note_undone(&mut self) {
        self.persist = (self.persist + 1).min(PERSISTS);
    }

    /// A recovery ended, and nothing shows that it was spurious.
    pub(super) fn note_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
    }

    /// After a timeout with so many segments delivered out of order the degree was too high (`tcp_enter_loss`).
    pub(super) fn note_timeout(&mut self, sacked: u32) {
        if sacked >= DUP_THRESH {
            self.degree = DUP_THRESH;
        }
    }

    /// True if the path reorders by more than usual: the window then grows with every delivery
    /// (`tcp_may_raise_cwnd`).
    pub(super) fn is_high(&self) -> bool {
        self.degree > DUP_THRESH
    }

    /// How much longer than the RTT RACK waits for a segment.
    pub(super) fn window(&self, in_recovery: bool, sacked: u32, min_rtt: Duration, srtt: Duration) -> Duration {
        if !self.seen && (in_recovery || sacked >= self.degree) {
            return Duration::ZERO;
        }
        (min_rtt / 4 * u32::from(self.steps)).min(srtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window_ms(reordering: &Reordering, in_recovery: bool, sacked: u32) -> u128 {
        reordering.window(in_recovery, sacked, Duration::from_millis(40), Duration::from_millis(90)).as_millis()
    }

    #[test]
    fn three_deliveries_suffice_until_a_segment_was_overtaken() {
        let mut reordering = Reordering::default();
        assert_eq!([window_ms(&reordering, false, 2), window_ms(&reordering, false, 3)], [10, 0]);
        assert_eq!(window_ms(&reordering, true, 0), 0);
        reordering.note(1, 5001, 1000);
        assert_eq!((reordering.degree, window_ms(&reordering, true, 9)), (5, 10));
        reordering.note(1, 1_000_001, 1000);
        assert_eq!(reordering.degree, 300);
    }

    #[test]
    fn the_window_grows_once_a_round_with_duplicates_and_shrinks_after_16_recoveries_without() {
        let mut reordering = Reordering::default();
        reordering.note_duplicate();
        reordering.update(0, 10);
        assert_eq!(window_ms(&reordering, false, 0), 10, "nothing was overtaken");
        reordering.note(1, 5001, 1000);
        for (before, delivered, expected_ms) in [(5, 20, 20), (19, 30, 20), (20, 40, 30)] {
            reordering.note_duplicate();
            reordering.update(before, delivered);
            assert_eq!(window_ms(&reordering, true, 9), expected_ms);
        }
        for _ in 0..15 {
            reordering.note_recovered();
            reordering.update(50, 50);
        }
        assert_eq!(window_ms(&reordering, true, 9), 30);
        reordering.note_recovered();
        reordering.update(50, 50);
        assert_eq!(window_ms(&reordering, true, 9), 10);
    }

    #[test]
    fn the_window_is_at_most_the_smoothed_rtt() {
        let mut reordering = Reordering { seen: true, steps: 200, ..Reordering::default() };
        assert_eq!(window_ms(&reordering, true, 9), 90);
        reordering.note(1, 50_001, 1000);
        reordering.note_timeout(2);
        assert!(reordering.is_high());
        reordering.note_timeout(3);
        assert!(!reordering.is_high());
    }
}
