//! What echo requests say of a path that carries nothing.
//!
//! While none has ever been answered they say nothing. What the path carries is the better evidence: it takes their place.

use alloc::format;

use crate::assess::averages::ms;
use crate::path::Echo;
use crate::reason::{Reason, Sentence};
use crate::time::{Duration, Instant};

/// An RTT of so many times the least is late, if the least is long.
const LONG_RTTS: f64 = 2.0;

/// The sign of one path.
#[derive(Clone, Debug)]
pub(super) struct EchoSign {
    late_ms: f64,
    least_ms: f64,
    waiting_since: Option<Instant>,
    /// When one was last answered; `None`: never, or data has shown that the answers mean nothing.
    answered: Option<Instant>,
    rtt_ms: f64,
    /// When one was last sent or answered since the path carried.
    active: Option<Instant>,
    /// Since when they have been answered in time, and how many.
    in_time: Option<(Instant, u32)>,
    is_late: bool,
}

impl Default for EchoSign {
    fn default() -> EchoSign {
        EchoSign::new(0.0)
    }
}

impl EchoSign {
    /// A sign without answers. A message is late after this time, in ms.
    pub(super) fn new(late_ms: f64) -> EchoSign {
        let (least_ms, rtt_ms) = (f64::INFINITY, 0.0);
        let (waiting_since, answered, active, in_time) = (None, None, None, None);
        EchoSign { late_ms, least_ms, waiting_since, answered, rtt_ms, active, in_time, is_late: false }
    }

    /// Another network may be there now.
    pub(super) fn restart(&mut self) {
        *self = EchoSign::new(self.late_ms);
    }

    pub(super) fn observe(&mut self, now: Instant, echo: Echo) {
        (self.waiting_since, self.active) = (echo.waiting_since, Some(now));
        let Some(rtt) = echo.rtt else { return };
        (self.rtt_ms, self.answered) = (ms(rtt), Some(now));
        self.least_ms = self.least_ms.min(self.rtt_ms);
        self.is_late = self.rtt_ms > self.limit_ms();
        self.in_time = match self.in_time {
            _ if self.is_late => None,
            Some((since, number)) => Some((since, number.saturating_add(1))),
            None => Some((now, 1)),
        };
    }

    /// The path carries: requests without an answer count no more.
    pub(super) fn on_data(&mut self) {
        (self.waiting_since, self.active, self.in_time, self.is_late) = (None, None, None, false);
    }

    /// The path was left for another reason: earlier answers count no more.
    pub(super) fn on_leave(&mut self) {
        self.in_time = None;
    }

    /// Data is delivered in time though no request was answered: they say nothing until the next answer.
    pub(super) fn distrust(&mut self) {
        self.on_data();
        self.answered = None;
    }

    fn limit_ms(&self) -> f64 {
        self.late_ms.max(LONG_RTTS * self.least_ms)
    }

    /// Since when the oldest request without an answer has been late, if any answer has ever come.
    fn late_at(&self) -> Option<Instant> {
        let since = self.waiting_since.filter(|_| self.answered.is_some())?;
        Some(since + Duration::from_secs_f64(self.limit_ms() / 1e3))
    }

    pub(super) fn advance(&mut self, now: Instant) {
        if self.late_at().is_some_and(|at| now >= at) {
            (self.is_late, self.in_time) = (true, None);
        }
    }

    /// Whether the last request is late, answered or not; it remains so until one is answered in time.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// When it may become late.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.late_at().filter(|_| !self.is_late)
    }

    /// When one was last answered.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// When one was last sent or answered since the path carried, if any answer has ever come.
    pub(super) fn active(&self) -> Option<Instant> {
        self.active.filter(|_| self.answered.is_some())
    }

    /// Why a path is good again: for `pause` at least, all are answered in time.
    pub(super) fn proof(&self, now: Instant, pause: Duration) -> Option<Reason> {
        let (since, number) = self.in_time?;
        let inputs = [("requests", f64::from(number)), ("rtt_ms", self.rtt_ms)];
        (now.since(since) >= pause).then(|| {
            Reason::new("quality.return", inputs, |[number, rtt_ms, ..]| {
                format!("{number} echo requests in a row were answered in time, the last after {rtt_ms:.0} ms")
            })
        })
    }

    /// Why a path is not good while they are late.
    pub(super) fn reason(&self, now: Instant) -> Reason {
        let limit_ms = self.limit_ms();
        let (figure, sentence): (_, Sentence) = match self.waiting_since.map(|since| ms(now.since(since))) {
            Some(age_ms) if age_ms >= limit_ms => (age_ms, |[age_ms, limit_ms, ..]| {
                format!("an echo request is not answered for {age_ms:.0} ms, {limit_ms:.0} ms allowed")
            }),
            _ => (self.rtt_ms, |[rtt_ms, limit_ms, ..]| {
                format!("an echo request was answered after {rtt_ms:.0} ms, {limit_ms:.0} ms allowed")
            }),
        };
        Reason::new("quality.echo", [("echo_ms", figure), ("limit_ms", limit_ms)], sentence)
    }
}
