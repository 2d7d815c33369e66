//! Regular messages that stop, on simple series.

use super::*;

fn sample(token: u32, bytes_received: u64, backup: bool) -> Transport {
    Transport {
        token,
        peer: SocketAddr::from(([10, 0, 0, 1], 80)),
        backup,
        rtt: Duration::from_millis(10),
        bytes_received,
        ..Transport::IDLE
    }
}

/// Samples the bytes received so far each 10 ms; returns when a break was reported,
/// in ms.
fn feed(arrivals: &mut Arrivals, token: u32, until: u64, bytes: impl Fn(u64) -> u64) -> Option<u64> {
    let samples = (0..until).step_by(10);
    let mut samples =
        samples.map(|ms| (ms, arrivals.observe(Instant::from_millis(ms), PathId(0), &sample(token, bytes(ms), false))));
    samples.find(|(_, broken)| broken.is_some()).map(|(ms, _)| ms)
}

#[test]
fn messages_that_came_regularly_and_stop_mean_loss() {
    let broken = feed(&mut Arrivals::default(), 1, 3000, |ms| ms.min(2000) / 20 * 200);
    assert_eq!(broken, Some(2060), "50 ms: two pauses and a sampling interval");
}

/// Of messages each 20 ms one is lost, at 2 s, and sent again after 140 ms: those after it arrive out of order.
#[test]
fn what_arrives_after_a_message_that_was_lost_is_no_silence() {
    let mut arrivals = Arrivals::default();
    for ms in (0..3000).step_by(10) {
        let in_order = if (2000..2140).contains(&ms) { 1980 } else { ms };
        let segments = (ms - if ms < 2000 { 0 } else { 20 }) / 20;
        let transport = Transport { segments_received: segments as u32, ..sample(1, in_order / 20 * 200, false) };
        assert_eq!(arrivals.observe(Instant::from_millis(ms), PathId(0), &transport), None, "{ms} ms");
    }
}

#[test]
fn a_connection_over_every_path_there_can_be_is_followed() {
    let mut arrivals = Arrivals::default();
    let mut broken = None;
    for ms in (0..3000).step_by(10) {
        let now = Instant::from_millis(ms);
        broken = broken.or(arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)));
        for path in 1..16 {
            assert_eq!(arrivals.observe(now, PathId(path), &sample(1, 0, true)), None);
        }
    }
    assert!(broken.is_some());
}

#[test]
fn the_end_of_a_transfer_or_of_sporadic_messages_is_no_loss() {
    assert_eq!(feed(&mut Arrivals::default(), 1, 5000, |ms| ms.min(2000) * 1000), None);
    assert_eq!(feed(&mut Arrivals::default(), 1, 9000, |ms| ms.min(5000) / 700 * 700), None);
    let uneven = |ms: u64| ms.min(4000) / 200 * 200 + if ms % 200 < 100 { ms % 200 } else { 100 };
    assert_eq!(feed(&mut Arrivals::default(), 1, 9000, uneven), None);
}

/// Messages each 20 ms, which stop at 2 s; what follows over another path 100 ms after the report, and when that stops.
#[test]
fn a_break_after_which_the_peer_catches_up_makes_the_next_one_no_later() {
    let second = |catches_up: bool| {
        let (mut arrivals, mut reports) = (Arrivals::default(), Vec::new());
        for ms in (0..7000_u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let near = ms.min(2000) / 20 * 200;
            let sent_from = if catches_up { 2000 } else { 2160 };
            let far = if ms < 2180 { 0 } else { (ms.min(5000) - sent_from) / 20 * 200 };
            // The agent closes it.
            let near = (ms < 2100).then(|| arrivals.observe(now, PathId(0), &sample(1, near, false)));
            reports.extend(near.flatten().map(|_| ms));
            reports.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|_| ms));
        }
        assert!(reports.len() >= 2 && reports[0] < 2100, "{reports:?}");
        reports[1]
    };
    let (soon, later) = (second(true), second(false));
    assert!((5050..5100).contains(&soon) && later >= soon + 40, "{soon} {later}");
}

/// Messages each 20 ms, which stop at 2 s on a path that is closed then; what part of them comes over another one.
#[test]
fn a_path_that_carries_too_little_after_a_break_is_reported_a_few_times_and_later_each_time() {
    let reports = |share: u64| {
        let (mut arrivals, mut reports) = (Arrivals::default(), Vec::new());
        for ms in (0..20_000_u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let near = (ms < 2100).then(|| {
                arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)).map(|broken| broken.path)
            });
            reports.extend(near.flatten().map(|path| (ms, path)));
            // From 2.1 s it is no reserve.
            let far = ms.saturating_sub(2000) / 20 * 200 * share / 100;
            let far = sample(1, if ms < 2150 { 0 } else { far }, ms < 2100);
            reports.extend(arrivals.observe(now, PathId(1), &far).map(|broken| (ms, broken.path)));
        }
        reports.into_iter().map(|(ms, PathId(path))| (ms / 100, path)).collect::<Vec<_>>()
    };
    let later = [(26, 1), (36, 1), (56, 1)];
    assert_eq!(reports(0), [[(20, 0)].as_slice(), &later].concat());
    assert_eq!(reports(40)[..4], [[(20, 0)].as_slice(), &later].concat());
    assert_eq!(reports(100), [(20, 0)]);
}

#[test]
fn data_of_another_connection_clears_the_path() {
    let mut arrivals = Arrivals::default();
    for ms in (0..4000).step_by(10) {
        let now = Instant::from_millis(ms);
        assert_eq!(arrivals.observe(now, PathId(0), &sample(2, ms / 20 * 200, false)), None);
        assert_eq!(arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)), None);
    }
}

#[test]
fn a_path_that_was_left_before_is_suspected_first() {
    let mut arrivals = Arrivals::default();
    let mut broken = Vec::new();
    for ms in (0..9000u64).step_by(10) {
        let now = Instant::from_millis(ms);
        let (near, far) = (ms.min(2000) / 20 * 200, ms.clamp(2000, 3500) / 20 * 200);
        if broken.is_empty() {
            broken.extend(arrivals.observe(now, PathId(0), &sample(1, near, false)).map(|broken| (ms, broken.path)));
        }
        broken.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|broken| (ms, broken.path)));
    }
    let [(first, PathId(0)), (second, PathId(1)), ..] = broken[..] else { panic!("{broken:?}") };
    assert!((3550..3600).contains(&first) && (first + 50..6500).contains(&second), "{broken:?}");
}

#[test]
fn of_two_recently_used_paths_neither_is_suspected() {
    let both = |until: u64, far_exists: bool, is_reserve: bool| {
        let mut arrivals = Arrivals::default();
        let mut broken = Vec::new();
        for ms in (0..4000u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let (near, far) = (ms.min(until) / 20 * 200, ms.clamp(until, 3500) / 20 * 200);
            broken.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|broken| broken.path));
            if ms < 1000 || far_exists {
                let near = sample(1, near, is_reserve && ms >= 1000);
                broken.extend(arrivals.observe(now, PathId(0), &near).map(|broken| broken.path));
            }
        }
        broken
    };
    assert_eq!(both(300, true, false), []);
    assert_eq!(both(300, true, true), [PathId(1)], "the other is a reserve now");
    assert_eq!(both(300, false, false), [PathId(1)], "the other was closed");
}

#[test]
fn one_cpu_stall_is_not_taken_for_a_break() {
    let late = |ms: u64| if (300..410).contains(&ms) { 300 } else { ms.min(800) };
    let broken = feed(&mut Arrivals::default(), 1, 3000, |ms| late(ms) / 20 * 200);
    assert!(broken.is_some_and(|ms| (850..900).contains(&ms)), "{broken:?}");
}

#[test]
fn messages_that_continue_over_another_path_have_not_stopped() {
    let mut arrivals = Arrivals::default();
    for ms in (0..4000u64).step_by(10) {
        let now = Instant::from_millis(ms);
        let (near, far) = (ms.min(2000) / 20 * 200, ms.saturating_sub(2000) / 20 * 200);
        assert_eq!(arrivals.observe(now, PathId(1), &sample(1, far, false)), None);
        assert_eq!(arrivals.observe(now, PathId(0), &sample(1, near, false)), None);
    }
}
