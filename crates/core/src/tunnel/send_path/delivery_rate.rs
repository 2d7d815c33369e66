//! The rate at which a path delivers, as the other end's clock and count tell.

use super::feedback::Mark;
use crate::time::{Duration, Instant};

/// The greatest rate seen over the last and the present span counts; a span is
/// so many round trips long.
const SPAN_RTTS: u32 = 3;
/// Least time over which a rate is measured: reports come in lumps.
const MIN_INTERVAL: Duration = Duration::from_millis(8);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Beginning of the present measurement: clock and count of the other end, and
    /// when the packet was sent that the report spoke of.
    begin: Option<(Mark, Instant)>,
    span_since: Instant,
    before: Option<f64>,
    now: Option<f64>,
    /// Whether the present span measured what the path can do, not what was offered.
    full: bool,
    /// The newest measurement, full or not.
    last: Option<f64>,
    idle: Instant,
    limited: Instant,
}

impl Rate {
    /// In bytes a second.
    pub(super) fn bytes_s(&self) -> Option<f64> {
        larger(self.before, self.now)
    }

    /// What was measured last, full or not.
    pub(super) fn last(&self) -> Option<f64> {
        self.last
    }

    /// The path was full.
    pub(super) fn adopt(&mut self) {
        self.now = larger(self.now, self.last);
    }

    /// More could have been sent.
    pub(super) fn note_idle(&mut self, now: Instant) {
        self.idle = now;
    }

    /// More was there to be sent than was allowed.
    pub(super) fn note_limited(&mut self, now: Instant) {
        self.limited = now;
    }

    /// A report that speaks of a packet sent at `sent`. In a `min_rtt_probe` the rate is not judged.
    pub(super) fn note(&mut self, now: Instant, sent: Instant, at: Mark, rtt: Duration, min_rtt_probe: bool) {
        let Some((begin, begin_sent)) = self.begin else {
            self.begin = Some((at, sent));
            return;
        };
        if at.since(begin) < MIN_INTERVAL.max(rtt / 2) {
            return;
        }
        self.begin = Some((at, sent));
        let rate = at.bytes_s_since(begin);
        self.last = Some(rate);
        let full = self.idle < begin_sent && self.limited >= begin_sent && !min_rtt_probe;
        // What was offered says how much can be carried at least, once that is known.
        if full || self.bytes_s().is_some_and(|known| rate > known) {
            self.now = larger(self.now, self.last);
        }
        self.full |= full;
        if now.since(self.span_since) > rtt * SPAN_RTTS {
            self.span_since = now;
            if self.full {
                self.before = self.now.take().or(self.before);
                self.full = false;
            }
        }
    }
}

fn larger(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    left.into_iter().chain(right).reduce(f64::max)
}
