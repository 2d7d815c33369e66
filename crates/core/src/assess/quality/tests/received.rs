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
        drive.step(0);
    }
    drive
}

#[test]
fn messages_that_wait_in_the_network_are_a_sign() {
    let regular = || (0..200).map(|place| (10, 55 + place % 2 * 10));
    assert_eq!(receives(regular()).is(), (Belief::Good, "quality.link-up"));
    // A link of 0.2 Mbit/s brings one each 40 ms, each later by 20 ms; one that stood still brings all at once.
    let slow = (1..7).map(|place| (30, 60 + 20 * place));
    assert_eq!(receives(regular().chain(slow)).is(), (Belief::Fading, "quality.received"));
    let stood = (0..4).map(|_| (10, 900));
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
