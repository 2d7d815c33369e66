//! What is received tells how late it comes.

use super::*;

/// A cellular path over which messages of 1 kB come, each so long after the one before, and with this RTT of the receiver
/// beside a minimum of 50 ms.
fn receives(messages: impl IntoIterator<Item = (u64, u64)>) -> Drive {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.transport.min_rtt = Some(Duration::from_millis(50));
    for (pause_ms, rtt_ms) in messages {
        (0..pause_ms / 10).for_each(|_| drive.step(0));
        let rtt = Duration::from_millis(rtt_ms);
        let before = drive.transport.receive_rtt.unwrap_or(rtt);
        drive.transport.receive_rtt = Some(if rtt < before { rtt } else { (before * 7 + rtt) / 8 });
        drive.transport.bytes_received += 1000;
        drive.transport.segments_received += 1;
        drive.step(0);
    }
    drive
}

/// For 0.2 s nothing ran: then ten messages arrive at once, each with an RTT that is longer by that.
#[test]
fn a_machine_that_stood_still_is_no_sign() {
    for segments in [10, 1] {
        let mut drive = receives((0..100).map(|_| (20, 60)));
        drive.now = drive.now + Duration::from_millis(190);
        drive.transport.bytes_received += 10_000;
        drive.transport.segments_received += segments;
        let rtt = (0..10).fold(Duration::from_millis(60), |rtt, _| (rtt * 7 + Duration::from_millis(260)) / 8);
        drive.transport.receive_rtt = Some(rtt);
        drive.step(0);
        assert_eq!(drive.is().1, "quality.link-up", "{segments} segments");
    }
}

/// A receiver also measures how long a window takes.
#[test]
fn a_delay_that_grows_faster_than_time_passes_is_no_sign() {
    let regular = (0..200).map(|place| (10, 55 + place % 2 * 10));
    assert_eq!(receives(regular.chain([(10, 2000), (10, 2000)])).is(), (Belief::Good, "quality.link-up"));
}

#[test]
fn messages_that_wait_in_the_network_are_a_sign() {
    let regular = || (0..200).map(|place| (10, 55 + place % 2 * 10));
    assert_eq!(receives(regular()).is(), (Belief::Good, "quality.link-up"));
    // A link of 0.2 Mbit/s brings one each 40 ms, each later by 20 ms; one that stood still brings all at once.
    let slow = (1..7).map(|place| (30, 60 + 20 * place));
    assert_eq!(receives(regular().chain(slow)).is(), (Belief::Fading, "quality.received"));
    let stood = (0..4).map(|place| (if place == 0 { 850 } else { 10 }, 900));
    assert_eq!(receives(regular().chain(stood)).is(), (Belief::Stalled, "quality.received"), "longer than it may take");
}

#[test]
fn a_sender_that_pauses_is_no_sign() {
    let pauses = (0..200).map(|place| if place % 10 == 9 { (300, 350) } else { (20, 70) });
    assert_eq!(receives(pauses).is(), (Belief::Good, "quality.link-up"));
}

#[test]
fn the_queue_of_a_burst_is_its_own() {
    let mut drive = receives((0..100).map(|_| (20, 60)));
    drive.transport.bytes_received += 15_000;
    drive.step(0);
    for place in 1..20 {
        drive.transport.bytes_received += 15_000;
        drive.transport.receive_rtt = Some(Duration::from_millis(60 + 10 * place));
        drive.step(0);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
}
