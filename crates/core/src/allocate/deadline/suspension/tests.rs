use super::*;
use crate::assess::throughput::tests::history_after;

/// The first suspension within 10 s over two paths that acknowledge `bytes` each 10 ms
/// with `unacked` segments in flight: path, time in ms, and whether its subflow was
/// closed.
fn first_suspension(bytes: [u64; 2], unacked: [fn(u64) -> u32; 2]) -> Option<(usize, u64, bool)> {
    let mut suspensions = Suspensions::default();
    for step in 1..1000 {
        let now = Instant::from_millis(step * 10);
        let of = |place: usize| history_after(step, |_| bytes[place], unacked[place]);
        if step % 20 != 0 {
            suspensions.set_carrying(now, &[true; 2]);
            continue;
        }
        let histories = [of(0), of(1)];
        suspensions.set_carrying(now, &[true; 2]);
        if let Some(place) = suspensions.suspend_one(now, &[(0, &histories[0]), (1, &histories[1])]) {
            return Some((place, step * 10, suspensions.closed(now)[place]));
        }
    }
    None
}

/// In flight for half of the time; in the other half it waits for others.
fn half(step: u64) -> u32 {
    u32::from(step % 60 < 30) * 200
}

#[test]
fn a_slow_path_that_delays_a_fast_one_is_suspended_once_both_have_settled() {
    let suspension = first_suspension([20_000, 500], [half, |_| 5]);
    assert!(suspension.is_some_and(|(place, at_ms, closed)| place == 1 && at_ms >= 1500 && !closed), "{suspension:?}");
}

#[test]
fn it_is_closed_if_its_queued_data_would_take_long() {
    assert!(first_suspension([20_000, 500], [half, |_| 100]).is_some_and(|(place, _, closed)| place == 1 && closed));
}

#[test]
fn a_slow_path_that_delays_no_other_continues() {
    assert_eq!(first_suspension([20_000, 500], [|_| 200, |_| 5]), None);
}

#[test]
fn a_path_that_carries_more_than_the_others_lose_continues() {
    assert_eq!(first_suspension([20_000, 19_000], [half, |_| 50]), None);
}

#[test]
fn suspensions_grow_until_the_path_carries_enough() {
    let mut suspensions = Suspensions::default();
    let (blocked, slow) = (history_after(400, |_| 20_000, half), history_after(400, |_| 500, |_| 5));
    let mut now = Instant::ZERO;
    let mut suspension = |other: &History| {
        suspensions.set_carrying(now, &[false; 2]);
        now = now + MAX_SUSPENSION;
        suspensions.set_carrying(now, &[true; 2]);
        let is_suspended = suspensions.suspend_one(now, &[(0, other), (1, &slow)]) == Some(1);
        is_suspended.then(|| suspensions.paths[1].until.since(now))
    };
    let first = suspension(&blocked);
    assert_eq!(first, Some(FIRST_SUSPENSION));
    assert_eq!(suspension(&blocked), Some(FIRST_SUSPENSION * 2));
    for _ in 0..5 {
        suspension(&blocked);
    }
    assert_eq!(suspension(&blocked), Some(MAX_SUSPENSION));
    let free = history_after(400, |_| 20_000, |_| 200);
    assert_eq!(suspension(&free), None);
    assert_eq!(suspension(&blocked), first);
}
