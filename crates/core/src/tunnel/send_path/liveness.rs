//! Whether a path lives, by what it delivers.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use super::cwnd::FEEDBACK_DELAY;
use super::delivery_rate::Rate;
use super::slow_start::SlowStart;
use super::{Retransmittable, SendPath};
use crate::path::PathState;
use crate::time::{Duration, Instant};

/// Beyond round trip and its variation a report may take so long.
const FEEDBACK_MARGIN: Duration = Duration::from_millis(25);
/// After that the path is asked, and so much later given up.
const PROBE_TIMEOUT: Duration = Duration::from_millis(25);
/// Between two questions to a path that does not answer.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between two questions while another is unanswered.
const PROBE_INTERVAL_UNANSWERED: Duration = Duration::from_millis(250);
/// A path that carries nothing is asked so often, to be known when it is needed,
/// while others carry.
const KEEPALIVE: Duration = Duration::from_millis(500);
/// The same while none carries: in time for translators of addresses, which
/// forget after 30 s (RFC 4787, section 4.3, has 2 minutes at least).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// What is known of the rate of a path that others have been preferred to for so
/// long is forgotten.
const UNUSED_AFTER: Duration = Duration::from_secs(10);
/// Copies that must arrive before a path that was given up is trusted again.
const RECOVERY_PACKETS: u32 = 10;
/// Share of copies that may be lost meanwhile, and of packets of a path that is trusted.
const RECOVERY_LOSS: f64 = 0.2;
/// A path that loses more gets copies only.
const UNTRUSTED_LOSS: f64 = 0.35;
/// The answer to a question that came later than so many times the shortest round trip, and
/// [`LATE`] more, speaks against the path.
const LATE_RTTS: u32 = 2;
const LATE_MARGIN: Duration = Duration::from_millis(80);

/// Whether a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Liveness {
    /// It does.
    Up,
    /// Nothing is known yet.
    Unknown,
    /// It was given up and has answered; copies are sent over it.
    Recovering,
    /// What it should have delivered is late; it has been asked.
    Probing,
    /// It is given up.
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
    /// It delivered: what that says of its health.
    pub(super) fn on_delivery(&mut self, took: Duration) {
        let min_rtt = self.rtt.min().unwrap_or(took);
        let in_time = took < min_rtt * LATE_RTTS + LATE_MARGIN;
        match self.liveness {
            Liveness::Probing | Liveness::Unknown if in_time => self.set_liveness(Liveness::Up, "it delivers".into()),
            Liveness::Down if in_time => {
                self.recovery = (0, 0);
                self.rate = Rate::default();
                self.slow_start = Some(SlowStart::default());
                self.set_liveness(Liveness::Recovering, format!("it answers within {} ms", took.as_millis()));
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
        let (came, lost) = self.recovery;
        if came + lost < RECOVERY_PACKETS {
            return;
        }
        let share = f64::from(lost) / f64::from(came + lost);
        if share <= RECOVERY_LOSS {
            self.loss = share;
            self.set_liveness(Liveness::Up, format!("{came} of {} copies arrived", came + lost));
        }
        self.recovery = (0, 0);
    }

    fn set_liveness(&mut self, liveness: Liveness, reason: String) {
        if self.liveness != liveness {
            self.liveness = liveness;
            self.reason = reason;
        }
    }

    /// Lets time pass; what is to be sent elsewhere.
    pub(in super::super) fn advance(&mut self, now: Instant, has_other_path: bool) -> VecDeque<Retransmittable<P>> {
        let is_unused =
            now.since(self.last_carried) > UNUSED_AFTER && !self.tunnel_idle && self.wanted_state == PathState::Active;
        if is_unused && self.liveness == Liveness::Up {
            // Too slow to be used, as far as is known: that may be long ago.
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
                let back = if has_other_path { self.take_in_flight() } else { VecDeque::new() };
                self.in_flight.clear();
                self.bytes_in_flight = 0;
                back
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

    /// When the other end is asked for what may be lost at the end of a burst: a gap
    /// shows only by what comes after it.
    fn tail_probe_at(&self) -> Option<Instant> {
        let since = self.oldest().filter(|sent| self.liveness == Liveness::Up && *sent >= self.tail_probed)?;
        Some(since + self.rtt.smoothed() + self.rtt.variation() * 4 + FEEDBACK_DELAY * 4)
    }

    fn down_at(&self) -> Option<Instant> {
        self.oldest().map(|sent| sent + self.feedback_timeout() * 2 + PROBE_TIMEOUT)
    }

    /// Whether a probe should leave now.
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
