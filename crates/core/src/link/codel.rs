//! CoDel, a queue that drops packets by their waiting time (RFC 8289).

use super::CoDel;
use crate::time::{Duration, Instant};

/// RFC 8289 §5.3, MAXPACKET: a backlog of less than one full packet is no queue.
const MAX_PACKET_BYTES: u64 = 1500;
/// RFC 8289 §5.5: this many intervals after the last drop, the control law restarts.
const MEMORY_INTERVALS: u32 = 16;

/// State of the control law; the names are those of RFC 8289 §5.2.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
}

/// A packet taken from the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<P> {
    pub(crate) packet: P,
    pub(crate) arrived: Instant,
    /// Bytes that wait behind it.
    pub(crate) backlog_bytes: u64,
}

impl State {
    /// RFC 8289 §5.5, `deque`: takes packets at `now` until one may pass; those before
    /// it are dropped.
    pub(crate) fn take<P>(
        &mut self,
        codel: CoDel,
        now: Instant,
        mut pop: impl FnMut() -> Option<Taken<P>>,
        mut drop: impl FnMut(P),
    ) -> Option<P> {
        let mut head = pop();
        let mut may_drop = self.may_drop(codel, now, head.as_ref());
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                head.into_iter().for_each(|taken| drop(taken.packet));
                self.count = self.count.saturating_add(1);
                head = pop();
                may_drop = self.may_drop(codel, now, head.as_ref());
                if may_drop {
                    self.drop_next = control_law(self.drop_next, codel.interval, self.count);
                }
                self.dropping = may_drop;
            }
        } else if may_drop {
            head.into_iter().for_each(|taken| drop(taken.packet));
            head = pop();
            self.may_drop(codel, now, head.as_ref());
            self.dropping = true;
            let more = self.count.saturating_sub(self.last_count);
            let is_recent = now.since(self.drop_next) < codel.interval.saturating_mul(MEMORY_INTERVALS);
            self.count = if more > 1 && is_recent { more } else { 1 };
            self.drop_next = control_law(now, codel.interval, self.count);
            self.last_count = self.count;
        }
        head.map(|taken| taken.packet)
    }

    /// RFC 8289 §5.6, `dodeque`: whether packets have waited too long for an interval.
    fn may_drop<P>(&mut self, codel: CoDel, now: Instant, head: Option<&Taken<P>>) -> bool {
        let waits = |head: &Taken<P>| now.since(head.arrived) >= codel.target && head.backlog_bytes > MAX_PACKET_BYTES;
        if !head.is_some_and(waits) {
            self.first_above = None;
            return false;
        }
        let first_above = *self.first_above.get_or_insert(now + codel.interval);
        now >= first_above
    }
}

/// RFC 8289 §5.6: the interval between drops decreases with the square root of their
/// number.
fn control_law(from: Instant, interval: Duration, count: u32) -> Instant {
    from + Duration::from_nanos((interval.as_nanos() as f64 / libm::sqrt(f64::from(count.max(1)))) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const CODEL: CoDel = CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };

    /// When packets are dropped if one is taken each ms, having waited `waits_ms(t)`.
    fn drops(until_ms: u64, waits_ms: impl Fn(u64) -> u64, backlog_bytes: u64) -> Vec<u64> {
        let mut state = State::default();
        let mut dropped = Vec::new();
        for t in 1000..1000 + until_ms {
            let arrived = Instant::from_millis(t - waits_ms(t - 1000));
            let pop = || Some(Taken { packet: t - 1000, arrived, backlog_bytes });
            let _ = state.take(CODEL, Instant::from_millis(t), pop, |packet| dropped.push(packet));
        }
        dropped
    }

    #[test]
    fn a_standing_queue_loses_a_packet_after_an_interval_and_then_by_the_control_law() {
        // 100 ms, then + 100/√1, + 100/√2, + 100/√3, + 100/√4, rounded up to
        // the ms at which a packet is taken.
        assert_eq!(drops(440, |_| 6, 100_000), [100, 200, 271, 329, 379, 424]);
    }

    #[test]
    fn a_queue_shorter_than_the_target_or_than_a_packet_loses_none() {
        assert_eq!(drops(3000, |_| 4, 100_000), []);
        assert_eq!(drops(3000, |_| 500, 1500), []);
    }

    #[test]
    fn one_good_packet_restarts_the_interval() {
        assert_eq!(drops(190, |t| if t == 90 { 1 } else { 6 }, 100_000), []);
        assert_eq!(drops(192, |t| if t == 90 { 1 } else { 6 }, 100_000), [191]);
    }

    #[test]
    fn a_queue_that_soon_returns_resumes_the_control_law() {
        // Four drops by 329 ms, good until 400 ms: the next drops come 500 ms
        // and 100/√3 ms later (count 4 − last 1).
        let soon = drops(560, |t| if (330..400).contains(&t) { 1 } else { 6 }, 100_000);
        assert_eq!(soon, [100, 200, 271, 329, 500, 558]);
        // After 16 intervals it restarts.
        let late = drops(2310, |t| if (330..2100).contains(&t) { 1 } else { 6 }, 100_000);
        assert_eq!(late, [100, 200, 271, 329, 2200, 2300]);
    }
}
