//! Use of the congestion window (RFC 7661 as in Linux, `tcp_cwnd_validate`).

/// Whether the window was the limit in the last round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowUsage {
    limited: bool,
    max_out: u32,
    round_ends: u64,
}

impl WindowUsage {
    /// Updates the state: `out` segments are not acknowledged, of the data up to `next`
    /// everything below `una` is.
    pub(super) fn note(&mut self, limited: bool, out: u32, una: u64, next: u64) {
        if una >= self.round_ends || limited || (!self.limited && out > self.max_out) {
            *self = WindowUsage { limited, max_out: out, round_ends: next };
        }
    }

    /// What was used of a window of this size, in segments: the maximum in flight in the
    /// last round unless the window was the limit.
    pub(super) fn of(&self, window: u32) -> u32 {
        if self.limited { window } else { window.min(self.max_out) }
    }

    /// True if a window of this size was the limit: in slow start also if half of it
    /// was used.
    pub(super) fn is_limited(&self, window: u32, in_slow_start: bool) -> bool {
        self.limited || (in_slow_start && window < 2 * self.max_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_as_the_limit_until_the_round_ends() {
        let mut usage = WindowUsage::default();
        usage.note(true, 10, 1, 101);
        usage.note(false, 4, 50, 141);
        assert!(usage.is_limited(10, false));
        usage.note(false, 4, 101, 141);
        assert!(!usage.is_limited(10, false) && !usage.is_limited(10, true));
        assert!(usage.is_limited(7, true), "more than half was used");
    }

    #[test]
    fn of_a_window_that_is_not_the_limit_what_was_in_flight_counts() {
        let mut usage = WindowUsage::default();
        usage.note(true, 10, 1, 101);
        assert_eq!(usage.of(10), 10);
        usage.note(false, 4, 101, 141);
        assert_eq!((usage.of(10), usage.of(3)), (4, 3));
    }
}
