//! A cellular path that does not answer, and does again.

use super::*;

/// A path over which messages were delivered, and one then waited for 150 ms.
fn silent() -> Drive {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    drive.sent += 1;
    (0..15).for_each(|_| drive.step(1));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
    drive
}

#[test]
fn another_subflow_that_is_open_is_an_answer_and_its_own_silence_a_sign_again() {
    let mut drive = silent();
    (drive.transport.delivered, drive.transport.bytes_acked, drive.sent) = (0, 0, 0);
    drive.step(0);
    assert_eq!(drive.is(), (Belief::Fading, "quality.answer"));
    drive.sent += 1;
    (0..15).for_each(|_| drive.step(1));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
    // One that delivered nothing either is known by the time without any.
    drive.now = drive.now + Duration::from_millis(100);
    drive.step(0);
    assert_eq!(drive.is(), (Belief::Fading, "quality.answer"));
}

#[test]
fn what_waited_and_is_acknowledged_is_an_answer() {
    let mut drive = silent();
    drive.transport.delivered = drive.sent;
    drive.transport.bytes_acked += 1000;
    drive.step(0);
    assert_eq!(drive.is(), (Belief::Fading, "quality.answer"));
}

#[test]
fn nothing_acknowledged_is_a_sign_though_the_window_is_full() {
    let mut drive = Drive::new(Rat::Lte, 100);
    for _ in 0..50 {
        drive.transport.delivered += 10;
        drive.transport.bytes_acked += 10_000;
        drive.step(40);
    }
    assert_eq!(drive.is().0, Belief::Good);
    (0..8).for_each(|_| drive.step(40));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
}

/// A full window of 40 segments, of which `each` are acknowledged every 10 ms, and the path left since RTTs grew.
fn left_with_a_queue(each: u32) -> Drive {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    drive.messages(200, 90);
    assert_eq!(drive.is(), (Belief::Fading, "quality.rtt"));
    (0..10).for_each(|_| drive.step(40));
    drive.transport.backup = true;
    for step in 0..10 {
        drive.transport.delivered += each;
        drive.transport.bytes_acked += u64::from(each) * 1000;
        drive.step(40_u32.saturating_sub(each * step));
    }
    drive
}

#[test]
fn what_waits_on_a_path_that_was_left_is_a_sign_unless_it_is_soon_gone() {
    assert_eq!(left_with_a_queue(2).is(), (Belief::Stalled, "quality.age"));
    assert_eq!(left_with_a_queue(20).is(), (Belief::Fading, "quality.rtt"));
}

/// As on Linux 6.18: what comes after a lost segment is acknowledged out of order, the lost one is sent again and lost
/// again, and with a window of one segment the next messages wait.
#[test]
fn a_message_that_is_lost_twice_is_a_sign_though_the_window_of_the_recovery_is_full() {
    let mut drive = Drive::new(Rat::Ieee80211p, 100);
    drive.signal(-60.0);
    for rtt_ms in [10, 20].into_iter().cycle().take(250) {
        drive.messages(20, rtt_ms);
    }
    [1, 1, 2].into_iter().for_each(|unacked| drive.step(unacked));
    assert_eq!(drive.is().0, Belief::Good);
    (drive.transport.delivered, drive.transport.sacked, drive.transport.retransmitted) = (drive.sent + 1, 1, 1);
    (drive.transport.cwnd, drive.transport.notsent_bytes) = (1, 1000);
    (0..3).for_each(|_| drive.step(2));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
}

#[test]
fn a_byte_that_waits_for_twice_as_long_as_a_message_may_take_is_a_sign_whatever_the_rtts_were() {
    let mut drive = Drive::new(Rat::Lte, 100);
    for rtt_ms in [50, 400, 80, 300].into_iter().cycle().take(400) {
        drive.messages(20, rtt_ms);
    }
    drive.sent += 1;
    (0..22).for_each(|_| drive.step(1));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
}

#[test]
fn statistics_are_wanted_when_a_byte_is_late_and_not_before() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    assert_eq!(drive.quality.query_at(), None, "nothing is in flight");
    drive.step(1);
    let at = drive.quality.query_at().unwrap();
    assert!(at > drive.now + Duration::from_millis(20), "{at:?}");
    drive.now = at - Duration::from_micros(10);
    drive.observe(SampleKind::Transport(drive.transport));
    assert_eq!((drive.is().0, drive.quality.query_at()), (Belief::Good, Some(at)));
    drive.now = at;
    drive.observe(SampleKind::Transport(drive.transport));
    assert_eq!((drive.is(), drive.quality.query_at()), ((Belief::Stalled, "quality.age"), None));
}

#[test]
fn a_connection_that_ended_with_a_byte_in_flight_does_not_hide_the_late_bytes_of_others() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    drive.step(1);
    let ended = drive.quality.query_at().unwrap();
    drive.transport = Transport { token: 2, ..drive.transport };
    drive.step(0);
    assert_eq!(drive.quality.query_at(), Some(ended), "it may still live");
    for unacked in [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] {
        drive.step(unacked);
    }
    assert!(drive.quality.query_at().is_some_and(|at| at > drive.now), "{ended:?}");
}
