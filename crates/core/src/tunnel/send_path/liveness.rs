//! The liveness of a path, judged by its feedback.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use super::cwnd::FEEDBACK_DELAY;
use super::delivery_rate::Rate;
use super::slow_start::SlowStart;
use super::{Retransmittable, SendPath};
use crate::path::PathState;
use crate::time::{Duration, Instant};

/// Feedback is overdue by this time beyond RTT and its variation.
const FEEDBACK_MARGIN: Duration = Duration::from_millis(25);
/// A path is declared down this time after an unanswered probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(25);
/// Interval of probes on a path with nothing in flight, or recovering.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of probes while a packet is unacknowledged.
const PROBE_INTERVAL_UNANSWERED: Duration = Duration::from_millis(250);
/// Keepalive interval of an idle path while other paths carry traffic, so that its state is known when it
/// is needed.
const KEEPALIVE: Duration = Duration::from_millis(500);
/// Keepalive interval while the whole tunnel is idle: below the 30 s after which some NATs drop a mapping
/// (RFC 4787, section 4.3, requires 2 minutes).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// The rate of a path that carried no packet for this time while other paths did is discarded.
const UNUSED_AFTER: Duration = Duration::from_secs(10);
/// Number of copies that decide whether a recovering path is up.
const RECOVERY_PACKETS: u32 = 10;
/// Maximum share of lost copies for a recovering path to be up.
const RECOVERY_LOSS: f64 = 0.2;
/// A path with a greater share of lost packets carries copies only.
const UNTRUSTED_LOSS: f64 = 0.35;
/// An acknowledgement is in time within this number of min RTTs plus [`LATE_MARGIN`].
const LATE_RTTS: u32 = 2;
const LATE_MARGIN: Duration = Duration::from_millis(80);

/// Liveness of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveness {
    /// It delivers.
    Up,
    /// No feedback yet.
    Unknown,
    /// It was down or too lossy, and answers; it carries copies.
    Recovering,
    /// Its feedback is overdue, and it is probed.
    Probing,
    /// It does not answer.
    Down,
}

impl Liveness {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            Liveness::Up => "up",
            Liveness::Unknown => "unknown",
            Liveness::Recovering => "recovering",
            Liveness::Probing => "probing",
            Liveness::Down => "down",
        }
    }
}

impl<P: Clone> SendPath<P> {
    /// Updates the liveness after a delivery with this RTT.
    pub(super) fn on_delivery(&mut self, rtt: Duration) {
        let min_rtt = self.rtt.min().unwrap_or(rtt);
        let in_time = rtt < min_rtt * LATE_RTTS + LATE_MARGIN;
        match self.liveness {
            Liveness::Probing | Liveness::Unknown if in_time => self.set_liveness(Liveness::Up, "it delivers".into()),
            Liveness::Down if in_time => {
                self.recovery = (0, 0);
                self.rate = Rate::default();
                self.slow_start = Some(SlowStart::default());
                self.set_liveness(Liveness::Recovering, format!("it answers within {} ms", rtt.as_millis()));
            }
            Liveness::Recovering => self.judge_recovery(),
            Liveness::Up if self.loss > UNTRUSTED_LOSS => {
                self.recovery = (0, 0);
                self.set_liveness(Liveness::Recovering, format!("it loses {:.0} % of packets", self.loss * 100.0));
            }
            _ => {}
        }
    }

    fn judge_recovery(&mut self) {
        let (arrived, lost) = self.recovery;
        if arrived + lost < RECOVERY_PACKETS {
            return;
        }
        let share = f64::from(lost) / f64::from(arrived + lost);
        if share <= RECOVERY_LOSS {
            self.loss = share;
            self.set_liveness(Liveness::Up, format!("{arrived} of {} copies arrived", arrived + lost));
        }
        self.recovery = (0, 0);
    }

    fn set_liveness(&mut self, liveness: Liveness, reason: String) {
        if self.liveness != liveness {
            self.liveness = liveness;
            self.reason = reason;
        }
    }

    /// Updates the liveness at `now`; returns packets to retransmit on another path.
    pub(in super::super) fn advance(&mut self, now: Instant, has_other_path: bool) -> VecDeque<Retransmittable<P>> {
        let is_unused =
            now.since(self.last_carried) > UNUSED_AFTER && !self.tunnel_idle && self.wanted_state == PathState::Active;
        if is_unused && self.liveness == Liveness::Up {
            // Its last measured rate was too low to use it, but that may have changed.
            self.rate = Rate::default();
            self.slow_start = Some(SlowStart::default());
            self.last_carried = now;
        }
        if self.tail_probe_at().is_some_and(|at| now >= at) {
            self.tail_probed = now;
            self.probe_wanted = true;
        }
        match self.liveness {
            Liveness::Up | Liveness::Recovering | Liveness::Unknown
                if self.overdue_at().is_some_and(|at| now >= at) =>
            {
                self.probe_wanted = true;
                let waited = self.oldest().map_or(Duration::ZERO, |sent| now.since(sent));
                if self.liveness == Liveness::Recovering {
                    self.set_liveness(Liveness::Down, format!("copies unacknowledged for {} ms", waited.as_millis()));
                } else {
                    self.set_liveness(
                        Liveness::Probing,
                        format!("packets unacknowledged for {} ms", waited.as_millis()),
                    );
                }
                if has_other_path { self.take_in_flight() } else { VecDeque::new() }
            }
            Liveness::Probing if self.down_at().is_some_and(|at| now >= at) => {
                let waited = self.oldest().map_or(Duration::ZERO, |sent| now.since(sent));
                self.set_liveness(Liveness::Down, format!("no answer for {} ms", waited.as_millis()));
                self.window_gain = 1.0;
                let to_retransmit = if has_other_path { self.take_in_flight() } else { VecDeque::new() };
                self.in_flight.clear();
                self.bytes_in_flight = 0;
                to_retransmit
            }
            _ => VecDeque::new(),
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.in_flight.front().map(|packet| packet.sent)
    }

    fn feedback_timeout(&self) -> Duration {
        self.rtt.smoothed() + self.rtt.variation() * 4 + FEEDBACK_DELAY * 3 + FEEDBACK_MARGIN + self.delay_difference
    }

    fn overdue_at(&self) -> Option<Instant> {
        let since = self.oldest()?;
        let known = self.rtt.min().is_some();
        Some(since + if known { self.feedback_timeout() } else { PROBE_INTERVAL_UNANSWERED })
    }

    /// When to send a tail-loss probe: a loss at the end of a burst shows only by a later packet.
    fn tail_probe_at(&self) -> Option<Instant> {
        let since = self.oldest().filter(|sent| self.liveness == Liveness::Up && *sent >= self.tail_probed)?;
        Some(since + self.rtt.smoothed() + self.rtt.variation() * 4 + FEEDBACK_DELAY * 4)
    }

    fn down_at(&self) -> Option<Instant> {
        self.oldest().map(|sent| sent + self.feedback_timeout() * 2 + PROBE_TIMEOUT)
    }

    /// Whether a probe is due.
    pub(in super::super) fn wants_probe(&self, now: Instant) -> bool {
        self.probe_at().is_some_and(|at| now >= at)
    }

    fn probe_at(&self) -> Option<Instant> {
        if self.wanted_state == PathState::Closed {
            return None;
        }
        if self.probe_wanted {
            return Some(self.last_sent);
        }
        let idle = self.in_flight.is_empty();
        match self.liveness {
            Liveness::Up => {
                let interval = if self.tunnel_idle { KEEPALIVE_IDLE } else { KEEPALIVE };
                Some(self.last_sent + interval).filter(|_| idle)
            }
            Liveness::Recovering | Liveness::Unknown | Liveness::Down | Liveness::Probing => Some(
                self.last_sent
                    + if idle || self.liveness == Liveness::Recovering {
                        PROBE_INTERVAL
                    } else {
                        PROBE_INTERVAL_UNANSWERED
                    },
            ),
        }
    }

    pub(in super::super) fn probed(&mut self) {
        self.probe_wanted = false;
    }

    /// When [`advance`](Self::advance) or a probe is due.
    pub(in super::super) fn next_wakeup(&self) -> Option<Instant> {
        let liveness_due = match self.liveness {
            Liveness::Up | Liveness::Recovering | Liveness::Unknown => self.overdue_at(),
            Liveness::Probing => self.down_at(),
            Liveness::Down => None,
        };
        liveness_due.into_iter().chain(self.tail_probe_at()).chain(self.probe_at()).min()
    }
}
