//! Paths that hold up the others rest.
//!
//! Data arrives in order: what is given to a path that carries next to nothing
//! is waited for at the peer, and when so much is under way that the sender may
//! write no more, the other paths run idle. A path that costs the others more
//! than it carries itself is left alone for a while, longer each time. If what
//! it holds would take long even so, its subflow is closed, which makes the
//! kernel send that over the others (Linux `__mptcp_retransmit_pending_data`),
//! and opened again: whether the path answers is known from the handshake.

use alloc::vec::Vec;

use crate::assess::rate::History;
use crate::time::{Duration, Instant};

/// Time for which paths must have carried together before they are judged.
const SETTLED: Duration = Duration::from_millis(1500);
/// How long a path rests, for the first time and at most.
const FIRST_REST: Duration = Duration::from_millis(2000);
const LONGEST_REST: Duration = Duration::from_millis(16_000);
/// The subflow of a path that holds so much, in s at its rate, is closed for so
/// long.
const LONG_DRAIN_S: f64 = 1.0;
const CLOSED: Duration = Duration::from_millis(1000);

/// How each path stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Rests {
    paths: Vec<Rest>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    until: Instant,
    closed_until: Instant,
    /// How long it rested last; zero after it has done well.
    last: Duration,
    carries_since: Instant,
}

impl Rests {
    /// True while the path rests.
    pub(super) fn is_resting(&self, now: Instant, place: usize) -> bool {
        self.paths.get(place).is_some_and(|rest| now < rest.until)
    }

    /// Whether the subflow of each path is to be closed.
    pub(super) fn closed(&self, now: Instant) -> Vec<bool> {
        self.paths.iter().map(|rest| now < rest.closed_until).collect()
    }

    /// Notes which paths carry from now on.
    pub(super) fn note(&mut self, now: Instant, carries: &[bool]) {
        self.paths.resize(carries.len(), Rest::default());
        for (rest, _) in self.paths.iter_mut().zip(carries).filter(|(_, carries)| !**carries) {
            rest.carries_since = now;
        }
    }

    /// The first of the paths that carry (by place) that is to rest now.
    pub(super) fn judge(&mut self, now: Instant, carrying: &[(usize, &History)]) -> Option<usize> {
        let settled = |(place, _): &(usize, &History)| {
            self.paths.get(*place).is_some_and(|rest| now.since(rest.carries_since) >= SETTLED)
        };
        if !carrying.iter().all(settled) {
            return None;
        }
        for &(place, history) in carrying {
            let others = carrying.iter().filter(|(other, _)| *other != place);
            let lost: f64 = others.map(|(_, other)| other.level().unwrap_or(0.0) * other.idle_share()).sum();
            let rest = self.paths.get_mut(place)?;
            if history.lately() >= lost {
                rest.last = Duration::ZERO;
                continue;
            }
            rest.last = (rest.last * 2).max(FIRST_REST).min(LONGEST_REST);
            rest.until = now + rest.last;
            if history.queued_bytes() as f64 > LONG_DRAIN_S * history.lately() {
                rest.closed_until = now + CLOSED;
            }
            return Some(place);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::rate::tests::looked_at;

    /// Carries over two paths for 10 s that acknowledge so many bytes each 10 ms
    /// and hold so much; says when the first of them was let rest, and whether
    /// it was closed.
    fn first_rest(bytes: [u64; 2], unacked: [fn(u64) -> u32; 2]) -> Option<(usize, u64, bool)> {
        let mut rests = Rests::default();
        for step in 1..1000 {
            let now = Instant::from_millis(step * 10);
            let of = |place: usize| looked_at(step, |_| bytes[place], unacked[place]);
            if step % 20 != 0 {
                rests.note(now, &[true; 2]);
                continue;
            }
            let histories = [of(0), of(1)];
            rests.note(now, &[true; 2]);
            if let Some(place) = rests.judge(now, &[(0, &histories[0]), (1, &histories[1])]) {
                return Some((place, step * 10, rests.closed(now)[place]));
            }
        }
        None
    }

    /// Under way for half of the time: the rest of it, it waited for others.
    fn half(step: u64) -> u32 {
        u32::from(step % 60 < 30) * 200
    }

    #[test]
    fn a_slow_path_that_makes_a_fast_one_wait_rests_once_both_have_settled() {
        let rest = first_rest([20_000, 500], [half, |_| 5]);
        assert!(rest.is_some_and(|(place, at_ms, closed)| place == 1 && at_ms >= 1500 && !closed), "{rest:?}");
    }

    #[test]
    fn it_is_closed_if_what_it_holds_would_take_long() {
        assert!(first_rest([20_000, 500], [half, |_| 100]).is_some_and(|(place, _, closed)| place == 1 && closed));
    }

    #[test]
    fn a_slow_path_that_nobody_waits_for_goes_on() {
        assert_eq!(first_rest([20_000, 500], [|_| 200, |_| 5]), None);
    }

    #[test]
    fn a_path_that_carries_more_than_the_others_lose_goes_on() {
        assert_eq!(first_rest([20_000, 19_000], [half, |_| 50]), None);
    }

    #[test]
    fn rests_grow_longer_until_the_path_has_done_well() {
        let mut rests = Rests::default();
        let slow = looked_at(400, |_| 500, |_| 5);
        let blocked = looked_at(400, |_| 20_000, half);
        let mut lengths = Vec::new();
        let mut now = Instant::from_millis(4000);
        for _ in 0..5 {
            assert_eq!(rests.judge(now + SETTLED, &[(0, &blocked), (1, &slow)]).is_some(), !rests.paths.is_empty());
            rests.note(now, &[true; 2]);
            now = now + SETTLED;
            if rests.judge(now, &[(0, &blocked), (1, &slow)]) == Some(1) {
                lengths.push(rests.paths[1].until.since(now).as_millis());
            }
            now = now + LONGEST_REST;
        }
        assert!(lengths.is_sorted() && lengths.last() > lengths.first(), "{lengths:?}");
    }
}
