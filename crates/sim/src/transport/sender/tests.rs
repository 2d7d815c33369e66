use super::super::congestion::Coupled;
use super::super::sack::Sack;
use super::*;

const MSS: u64 = 1424;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Number of segments transmitted at `now`.
fn transmit(sender: &mut Sender, now: Instant) -> usize {
    std::iter::from_fn(|| sender.poll(now)).count()
}

/// A subflow with an RTT of 100 ms and 100 segments to send, at 1 s.
fn sender_of(algorithm: Congestion) -> Sender {
    let mut sender = Sender::new(algorithm, Ticks::default(), MSS as u16, 1_000_000);
    sender.begin(at(900), Duration::from_millis(100));
    sender.enqueue(at(1000), Mapping { dsn: 0, len: 100 * MSS });
    sender
}

fn sender() -> Sender {
    sender_of(Congestion::Bbr)
}

/// Acknowledges a range of segments by a SACK block.
fn sack(sender: &mut Sender, now: Instant, segments: std::ops::Range<u64>) {
    let block = (1 + segments.start * MSS, 1 + segments.end * MSS);
    sender.on_ack(now, 1, &Sack::new([block], 1), at(1000), &Coupled::default());
}

#[test]
fn the_first_ten_segments_are_not_paced() {
    let mut sender = sender();
    assert_eq!(transmit(&mut sender, at(1000)), 10);
    sack(&mut sender, at(1100), 0..10);
    assert_eq!(transmit(&mut sender, at(1100)), 1);
}

#[test]
fn bbrs_window_follows_the_losses_in_the_first_round_of_recovery() {
    let mut sender = sender();
    transmit(&mut sender, at(1000));
    sack(&mut sender, at(1100), 3..6);
    assert_eq!((sender.flight.lost, sender.control.window), (3, 4 + 3), "four in flight and three that arrived");
    for ms in 1100..1120 {
        transmit(&mut sender, at(ms));
    }
    assert_eq!(sender.in_flight(), 7);
    sack(&mut sender, at(1120), 7..8);
    assert_eq!((sender.flight.lost, sender.control.window), (4, 7 - 1));
}

#[test]
fn what_a_sack_named_does_not_count_again_when_it_is_acknowledged_in_order() {
    let mut sender = sender_of(Congestion::Cubic);
    transmit(&mut sender, at(1000));
    // The first of ten is lost; its retransmission arrives last.
    sack(&mut sender, at(1100), 1..9);
    assert_eq!((sender.flight.lost, sender.control.ssthresh), (1, 7));
    let sent = transmit(&mut sender, at(1100));
    sender.on_ack(at(1200), 1 + 9 * MSS, &Sack::default(), at(1100), &Coupled::default());
    assert_eq!(sender.delivered, 9);
    let in_flight = sent as u32 - 1;
    assert_eq!(sender.in_flight(), in_flight, "the rest of 1.1 s; the tenth is lost, as it precedes them");
    assert!(sender.control.window <= in_flight + 2, "one delivered, and one as it is in order");
}

#[test]
fn an_answer_sooner_than_the_least_rtt_to_a_retransmission_says_nothing_of_later_segments() {
    let mut sender = sender_of(Congestion::Cubic);
    transmit(&mut sender, at(1000));
    sack(&mut sender, at(1100), 1..4);
    assert_eq!(sender.flight.lost, 1);
    transmit(&mut sender, at(1100));
    // The original arrives late, 20 ms after it was sent again, and two more.
    let block = (1 + 6 * MSS, 1 + 8 * MSS);
    sender.on_ack(at(1120), 1 + 4 * MSS, &Sack::new([block], 1), at(1100), &Coupled::default());
    assert_eq!(sender.flight.lost, 2, "what precedes them, not the last two, which are still in flight");
}

/// Acknowledges everything below a segment, with an echo.
fn acknowledge(sender: &mut Sender, now: Instant, segment: u64, sack: Sack, echo: Instant) {
    sender.on_ack(now, 1 + segment * MSS, &sack, echo, &Coupled::default());
}

/// Ten segments at 1 s of which the first counts as lost at 1.1 s and is retransmitted.
fn recovering() -> (Sender, [u32; 2]) {
    let mut sender = sender_of(Congestion::Cubic);
    transmit(&mut sender, at(1000));
    let before = [sender.control.window, sender.control.ssthresh];
    sack(&mut sender, at(1100), 1..5);
    assert_eq!((sender.flight.lost, sender.control.ssthresh), (1, 7));
    transmit(&mut sender, at(1100));
    (sender, before)
}

#[test]
fn a_recovery_is_undone_if_the_original_fills_the_hole() {
    let (mut sender, before) = recovering();
    // The echo is older than the retransmission.
    acknowledge(&mut sender, at(1110), 10, Sack::default(), at(1000));
    assert_eq!(sender.state, RecoveryState::None);
    assert!([sender.control.window, sender.control.ssthresh] >= before, "{:?}", sender.control);
}

#[test]
fn a_recovery_is_undone_when_every_retransmission_was_a_duplicate() {
    let (mut sender, before) = recovering();
    // The retransmission fills the hole by its echo, then the receiver reports that it was the second one.
    acknowledge(&mut sender, at(1210), 10, Sack::default(), at(1100));
    assert_eq!(sender.control.ssthresh, 7);
    acknowledge(&mut sender, at(1212), 10, Sack::new([(1, 1 + MSS)], 3), at(1100));
    assert_eq!(sender.state, RecoveryState::None);
    assert!([sender.control.window, sender.control.ssthresh] >= before, "{:?}", sender.control);
}

#[test]
fn a_late_segment_makes_rack_wait_for_the_next_one() {
    let mut sender = sender_of(Congestion::Cubic);
    transmit(&mut sender, at(1000));
    sack(&mut sender, at(1100), 1..3);
    sack(&mut sender, at(1105), 0..1);
    acknowledge(&mut sender, at(1106), 3, Sack::default(), at(1000));
    // Without the late one three would be enough.
    acknowledge(&mut sender, at(1107), 3, Sack::new([(1 + 5 * MSS, 1 + 9 * MSS)], 1), at(1000));
    assert_eq!(sender.flight.lost, 0);
    assert!(sender.recovery.reorder_at.is_some_and(|due| due >= at(1125)), "{:?}", sender.recovery);
}

#[test]
fn a_timeout_is_undone_if_what_was_sent_before_it_arrives() {
    let mut sender = sender_of(Congestion::Cubic);
    transmit(&mut sender, at(1000));
    let before = [sender.control.window, sender.control.ssthresh];
    while sender.state != RecoveryState::Loss {
        let due = sender.wakeup().unwrap_or_default();
        sender.on_time(due);
        sender.probe.due = false;
    }
    let late = sender.last_sent + Duration::from_secs(3);
    transmit(&mut sender, late);
    acknowledge(&mut sender, late + Duration::from_millis(5), 4, Sack::default(), at(1000));
    assert_eq!((sender.state, sender.flight.lost), (RecoveryState::None, 0));
    assert!([sender.control.window, sender.control.ssthresh] >= before, "{:?}", sender.control);
}
