//! Whether a sender has more data than a path takes: of what is sent from here its window tells, of what is received
//! that it arrives without a pause, or that much of it waits in the network or is lost.

use super::Latest;
use crate::assess::SAMPLE_INTERVAL;
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// A path is full after this long: a new connection fills its window for some RTTs only.
pub(super) const FULL: Duration = Duration::from_millis(200);
/// Statistics older than this say nothing.
const STALE: Duration = Duration::from_millis(50);
/// What was carried in a second counts until the next sample of that.
const CARRIED: Duration = Duration::from_millis(300);
/// Nothing received for longer than two sampling intervals is a pause.
const PAUSE: Duration = Duration::from_millis(20);
/// What arrives without a pause for this long shows a rate.
const SHOWN: Duration = Duration::from_millis(50);
/// Least rate of what fills a path, in bit/s: a full segment in each sampling interval. Messages bring less, or pause.
const LEAST_BIT_S: f64 = 1448.0 * 8.0 / SAMPLE_INTERVAL.as_secs_f64();
/// The same of what waits in the network or is lost: messages of 1 kB each 20 ms bring less.
const WAITING_BIT_S: f64 = 5e5;

/// The time in which the congestion window of a path has been full, bytes have waited to be sent, or data has arrived
/// without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fullness {
    /// Since when, and until when.
    span: Option<[Instant; 2]>,
    arrivals: Option<Arrivals>,
}

/// What a subflow received without a pause.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    token: u32,
    /// When it began and when data arrived last, with the bytes received since the subflow began.
    began: (Instant, u64),
    last: (Instant, u64),
}

impl Arrivals {
    /// Whether it fills the path.
    fn fill(&self) -> bool {
        let lasted = self.last.0.since(self.began.0);
        lasted >= SHOWN && (self.last.1 - self.began.1) as f64 * 8.0 >= LEAST_BIT_S * lasted.as_secs_f64()
    }
}

impl Fullness {
    /// Notes the latest measurements of the path.
    pub(super) fn observe(&mut self, now: Instant, latest: &Latest) {
        let Some((at, transport)) = latest.transport.filter(|(at, _)| now.since(*at) < STALE) else { return };
        self.follow(at, &transport);
        let carried = latest.carried.filter(|(at, _)| now.since(*at) < CARRIED);
        let waits = carried
            .is_some_and(|(_, carried)| carried.is_received() && carried.is_full && carried.bit_s >= WAITING_BIT_S);
        if transport.is_full() || waits || self.arrivals.is_some_and(|arrivals| arrivals.fill()) {
            let since = self.span.filter(|[_, last]| now.since(*last) < STALE).map_or(now, |[since, _]| since);
            self.span = Some([since, now]);
        }
    }

    fn follow(&mut self, at: Instant, transport: &Transport) {
        let here = (at, transport.bytes_received);
        let goes_on = |arrivals: &Arrivals| {
            arrivals.token == transport.token && arrivals.last.1 <= here.1 && at.since(arrivals.last.0) <= PAUSE
        };
        self.arrivals = Some(match self.arrivals.filter(goes_on) {
            Some(arrivals) if arrivals.last.1 < here.1 => Arrivals { last: here, ..arrivals },
            Some(arrivals) => arrivals,
            None => Arrivals { token: transport.token, began: here, last: here },
        });
    }

    /// Whether it lasts for [`FULL`] already.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.span.is_some_and(|[since, last]| now == last && now.since(since) >= FULL)
    }

    /// When it was so last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.span.map(|[_, last]| last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Carried;

    /// Whether a path is full after a second of one received chunk of these bytes each so many ms, sampled each 10 ms.
    fn is_full(chunk: u64, every_ms: u64) -> bool {
        let mut full = Fullness::default();
        (0..=1000).step_by(10).any(|ms| {
            let now = Instant::from_millis(ms);
            let transport = Transport { bytes_received: ms / every_ms * chunk, ..Transport::IDLE };
            full.observe(now, &Latest { transport: Some((now, transport)), ..Latest::default() });
            full.lasts(now)
        })
    }

    #[test]
    fn a_download_fills_a_path_and_messages_do_not() {
        assert!(is_full(1448, 5), "2.3 Mbit/s without a pause");
        assert!(is_full(20 * 1448, 20), "bursts of 20 ms");
        assert!(!is_full(1000, 20), "messages");
        assert!(!is_full(1000, 10), "more messages");
        assert!(!is_full(50_000, 40), "frames of video, each with a pause");
    }

    #[test]
    fn what_waits_in_the_network_or_is_lost_fills_a_slow_path() {
        for (received_share, bit_s, is) in [(0.9, 1e6, true), (0.1, 1e6, false), (0.9, 4e5, false)] {
            let mut full = Fullness::default();
            for ms in (0..=1000).step_by(10) {
                let now = Instant::from_millis(ms);
                let received_share = Some(received_share);
                let carried = Carried { bit_s, is_full: true, received_share, ..Carried::default() };
                let transport = Transport { bytes_received: ms / 100 * 1448, ..Transport::IDLE };
                let (transport, carried) = (Some((now, transport)), Some((now, carried)));
                full.observe(now, &Latest { transport, carried, ..Latest::default() });
            }
            assert_eq!(full.lasts(Instant::from_millis(1000)), is, "{received_share}, {bit_s}");
        }
    }

    #[test]
    fn arrivals_are_of_one_subflow() {
        let mut full = Fullness::default();
        for ms in (0..1000).step_by(10) {
            let now = Instant::from_millis(ms);
            let transport = Transport { token: (ms / 10 % 2) as u32, bytes_received: ms * 1000, ..Transport::IDLE };
            full.observe(now, &Latest { transport: Some((now, transport)), ..Latest::default() });
        }
        assert_eq!(full.last(), None);
    }
}
