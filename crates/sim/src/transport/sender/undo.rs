//! Undo of a reduction that was spurious: all retransmissions turned out to be needless (DSACK, RFC 3708), or the
//! original arrived before a retransmission could (Eifel, RFC 3522). As in Linux (`undo_marker`, `undo_retrans`,
//! `retrans_stamp`).

use crosslane_core::time::Instant;

use super::{Sender, timestamp};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// State before the reduction; `None`: there is nothing to undo.
    before: Option<Before>,
    /// Retransmissions since that were not reported as duplicates; `None` before the first.
    needed: Option<u32>,
    /// Time of the first retransmission of those in flight.
    first_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    una: u64,
    window: u32,
    ssthresh: u32,
}

/// What filled a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// A retransmission.
    Repaired,
    /// The original, and retransmissions are still in flight.
    LateWhileRepaired,
    /// The original; the recovery was undone.
    Late,
}

impl Undo {
    /// True if the window is still the reduced one.
    pub(super) fn is_pending(&self) -> bool {
        self.before.is_some()
    }

    pub(super) fn note_retransmission(&mut self, now: Instant) {
        self.first_at = self.first_at.or(Some(now));
        self.needed = Some(self.needed.unwrap_or(0) + 1);
    }

    /// Notes that so many retransmissions up to `end` were needless.
    pub(super) fn note_duplicates(&mut self, count: u32, end: u64) {
        if self.before.is_some_and(|before| end > before.una) {
            self.needed = self.needed.map(|needed| needed.saturating_sub(count));
        }
    }

    fn is_needless(&self) -> bool {
        self.before.is_some() && self.needed == Some(0)
    }

    /// Linux `tcp_packet_delayed`: what arrived, with this echo, was sent before the first retransmission.
    fn is_delayed(&self, echo: Instant) -> bool {
        self.before.is_some() && self.first_at.is_none_or(|first| timestamp(echo) < timestamp(first))
    }
}

impl Sender {
    /// Notes what a reduction that begins now would have to restore (Linux `tcp_init_undo`).
    pub(super) fn begin_undo(&mut self) {
        let control = &self.control;
        // Linux `tcp_current_ssthresh`.
        let ssthresh = control.ssthresh.max(control.window / 2 + control.window / 4);
        self.undo.before = Some(Before { una: self.una, window: control.window, ssthresh });
        let in_flight = self.flight.retransmitted + u32::from(self.probe.until.is_some() && self.probe.repeats);
        self.undo.needed = (in_flight > 0).then_some(in_flight);
        self.forget_first_retransmission();
    }

    /// Linux `tcp_retrans_stamp_cleanup`.
    fn forget_first_retransmission(&mut self) {
        let any = self.flight.retransmitted > 0 || self.flight.front().is_some_and(|head| head.ever_retransmitted);
        self.undo.first_at = self.undo.first_at.filter(|_| any);
    }

    /// Linux `tcp_try_undo_dsack`; true if it was undone.
    pub(super) fn undo_needless(&mut self) -> bool {
        let needless = self.undo.is_needless();
        if needless {
            self.reordering.note_undone();
            self.restore(false);
        }
        needless
    }

    /// Linux `tcp_may_undo` and undo; true if it was undone. `unmark`: nothing counts as lost any more.
    pub(super) fn undo_spurious(&mut self, echo: Instant, unmark: bool) -> bool {
        let spurious = self.undo.is_needless() || self.undo.is_delayed(echo);
        if spurious {
            self.restore(unmark);
        }
        spurious
    }

    /// Linux `tcp_try_undo_partial`: undoes the recovery if a hole was filled by what was only late, unless
    /// retransmissions are in flight.
    pub(super) fn undo_partial(&mut self, una_before: u64, echo: Instant) -> Filled {
        if !self.undo.is_delayed(echo) {
            return Filled::Repaired;
        }
        self.reordering.note(una_before, self.newest_sacked(), self.mss);
        if self.flight.retransmitted > 0 {
            return Filled::LateWhileRepaired;
        }
        self.forget_first_retransmission();
        self.restore(true);
        Filled::Late
    }

    /// Linux `tcp_undo_cwnd_reduction`.
    pub(super) fn restore(&mut self, unmark: bool) {
        if unmark {
            self.flight.unmark_lost();
            self.recovery.from = 0;
        }
        if let Some(before) = self.undo.before.take() {
            self.control.undo(before.window, before.ssthresh);
        }
        self.recovery.advanced = true;
    }
}
