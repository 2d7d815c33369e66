use super::*;
use crate::assess::throughput::tests::looked_at;

/// Carries over two paths for 10 s that acknowledge so many bytes each 10 ms
/// and hold so much; says when the first of them was let rest, and whether
/// it was closed.
fn first_rest(bytes: [u64; 2], unacked: [fn(u64) -> u32; 2]) -> Option<(usize, u64, bool)> {
    let mut suspensions = Suspensions::default();
    for step in 1..1000 {
        let now = Instant::from_millis(step * 10);
        let of = |place: usize| looked_at(step, |_| bytes[place], unacked[place]);
        if step % 20 != 0 {
            suspensions.note(now, &[true; 2]);
            continue;
        }
        let histories = [of(0), of(1)];
        suspensions.note(now, &[true; 2]);
        if let Some(place) = suspensions.judge(now, &[(0, &histories[0]), (1, &histories[1])]) {
            return Some((place, step * 10, suspensions.closed(now)[place]));
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
    let mut suspensions = Suspensions::default();
    let (blocked, slow) = (looked_at(400, |_| 20_000, half), looked_at(400, |_| 500, |_| 5));
    let mut now = Instant::ZERO;
    let mut rest = |other: &History| {
        suspensions.note(now, &[false; 2]);
        now = now + LONGEST_REST;
        suspensions.note(now, &[true; 2]);
        let rests_now = suspensions.judge(now, &[(0, other), (1, &slow)]) == Some(1);
        rests_now.then(|| suspensions.paths[1].until.since(now))
    };
    let first = rest(&blocked);
    assert_eq!(first, Some(FIRST_REST));
    assert_eq!(rest(&blocked), Some(FIRST_REST * 2));
    for _ in 0..5 {
        rest(&blocked);
    }
    assert_eq!(rest(&blocked), Some(LONGEST_REST));
    let free = looked_at(400, |_| 20_000, |_| 200);
    assert_eq!(rest(&free), None);
    assert_eq!(rest(&blocked), first);
}
