use alloc::vec;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Takes a packet that is reported soon, in a message.
fn take(receiver: &mut RecvPath, now: Instant, number: u32, bytes: u32) -> bool {
    receiver.take(now, number, bytes, Urgency::default())
}

#[test]
fn a_loss_is_reported_at_once_and_no_longer_after_late_arrival() {
    let mut receiver = RecvPath::default();
    for number in [5, 6, 9] {
        assert!(take(&mut receiver, at(1), number, 1000));
    }
    assert_eq!(receiver.due(), Some(at(1)));
    let report =
        |receiver: &mut RecvPath| receiver.report(at(2), PathId(0), PathState::Active, 0).expect("packets arrived");
    assert_eq!(report(&mut receiver).missing, [(7, 2)]);
    assert!(
        take(&mut receiver, at(3), 7, 1000)
            && !take(&mut receiver, at(3), 7, 1000)
            && !take(&mut receiver, at(3), 9, 1000)
    );
    let after_fill = report(&mut receiver);
    assert_eq!(
        (after_fill.missing, after_fill.packets, after_fill.bytes, after_fill.highest),
        (vec![(8, 1)], 4, 4000, 9)
    );
    assert_eq!(receiver.due(), None);
    for _ in 0..2 {
        assert_eq!(report(&mut receiver).missing, [(8, 1)]);
    }
    assert!(report(&mut receiver).missing.is_empty());
}

#[test]
fn a_requested_report_before_any_packet_is_due_once() {
    let mut receiver = RecvPath::default();
    receiver.request_immediate_feedback(at(1));
    assert_eq!(receiver.due(), Some(at(1)));
    assert_eq!(receiver.report(at(1), PathId(0), PathState::Active, 0), None);
    assert_eq!(receiver.due(), None);
}

#[test]
fn a_report_waits_for_a_few_packets_or_a_few_milliseconds() {
    let mut receiver = RecvPath::default();
    assert_eq!(receiver.due(), None);
    take(&mut receiver, at(10), 0, 100);
    assert_eq!(receiver.due(), Some(at(18)));
    (1..4).for_each(|number| assert!(take(&mut receiver, at(11), number, 100)));
    assert_eq!(receiver.due(), Some(at(10)));
    assert!(receiver.report(at(11), PathId(0), PathState::Active, 0).is_some());
    (4..8).for_each(|number| assert!(take(&mut receiver, at(11), number, 100)));
    assert_eq!(receiver.due(), Some(at(13)));
}

#[test]
fn numbers_go_on_beyond_32_bits() {
    let mut receiver = RecvPath::default();
    assert!(take(&mut receiver, at(1), u32::MAX, 100) && take(&mut receiver, at(1), 1, 100));
    let report = receiver.report(at(1), PathId(0), PathState::Active, 0).expect("packets arrived");
    assert_eq!((report.highest, report.missing), (1, vec![(0, 1)]));
}

#[test]
fn a_gap_is_a_loss_only_after_the_lateness_of_late_packets() {
    let mut receiver = RecvPath::default();
    let report = |receiver: &mut RecvPath, ms| {
        let report = receiver.report(at(ms), PathId(0), PathState::Active, 0).expect("packets arrived");
        (report.highest, report.missing, report.arrival_us / 1000, report.packets)
    };
    for (ms, number) in [(1, 0), (1, 2), (5, 1), (10, 3), (11, 5)] {
        assert!(take(&mut receiver, at(ms), number, 1000));
    }
    assert_eq!(report(&mut receiver, 12), (3, vec![], 10, 4), "packet 4 may be as late as packet 1 was, 4 ms");
    assert!(take(&mut receiver, at(13), 4, 1000));
    assert_eq!(report(&mut receiver, 13), (5, vec![], 11, 6));
    assert!(take(&mut receiver, at(20), 7, 1000));
    assert_eq!(receiver.due(), Some(at(25)), "1.25 times that");
    assert_eq!(report(&mut receiver, 24), (5, vec![], 11, 6));
    assert_eq!(report(&mut receiver, 25), (7, vec![(6, 1)], 20, 7));
    assert!(take(&mut receiver, at(9000), 9, 1000));
    assert_eq!(report(&mut receiver, 9000), (9, vec![(6, 1), (8, 1)], 9000, 8), "no packet was late for 8 s");
}

#[test]
fn a_report_covers_no_more_losses_than_it_has_room_for() {
    let mut receiver = RecvPath::default();
    (0..40).for_each(|number| assert!(take(&mut receiver, at(1), number * 2, 1000)));
    let report = receiver.report(at(1), PathId(0), PathState::Active, 0).expect("packets arrived");
    let room = MAX_MISSING_RANGES as u32;
    assert_eq!((report.highest, report.missing.len()), (room * 2, MAX_MISSING_RANGES));
    let report = receiver.report(at(1), PathId(0), PathState::Active, 0).expect("packets arrived");
    assert_eq!(report.highest, (room * 4).min(78));
}

#[test]
fn a_report_waits_for_a_packet_that_carries_it_and_no_longer_than_a_moment() {
    let mut receiver = RecvPath::default();
    let soon = Urgency { may_ride: true, may_be_late: false };
    assert!(!receiver.may_ride(at(9)), "nothing arrived");
    assert!(receiver.take(at(10), 5, 100, soon));
    assert!(receiver.may_ride(at(10)));
    assert_eq!(receiver.due(), Some(at(18)));
    (6..9).for_each(|number| assert!(receiver.take(at(10), number, 100, soon)));
    assert_eq!(receiver.due(), Some(at(11)), "four packets");
    let feedback = receiver.ride(at(10), PathId(3), 1).expect("packets arrived");
    assert_eq!((feedback.path, feedback.highest, feedback.bytes, feedback.held), (PathId(3), 8, 400, 0));
    assert_eq!((receiver.due(), receiver.may_ride(at(10))), (None, false));
    assert!(receiver.take(at(10), 9, 100, soon));
    assert_eq!([receiver.may_ride(at(17)), receiver.may_ride(at(18))], [false, true]);
}

#[test]
fn acknowledgements_are_reported_late_unless_another_packet_follows() {
    let mut receiver = RecvPath::default();
    let late = Urgency { may_ride: true, may_be_late: true };
    assert!(receiver.take(at(10), 5, 60, late));
    assert_eq!(receiver.due(), Some(at(110)));
    assert_eq!([receiver.may_ride(at(79)), receiver.may_ride(at(80))], [false, true]);
    assert!(receiver.take(at(30), 6, 1000, Urgency { may_ride: true, may_be_late: false }));
    assert_eq!((receiver.due(), receiver.may_ride(at(30))), (Some(at(38)), true));
}

#[test]
fn no_packet_carries_a_report_of_a_loss() {
    let mut receiver = RecvPath::default();
    let soon = Urgency { may_ride: true, may_be_late: false };
    (1..3).for_each(|number| assert!(receiver.take(at(1), number * 2, 1000, soon)));
    for _ in 0..MAX_RANGE_REPORTS {
        assert!(!receiver.may_ride(at(9)) && receiver.ride(at(9), PathId(0), 1).is_none());
        let report = receiver.report(at(9), PathId(0), PathState::Active, 0).expect("packets arrived");
        assert_eq!(report.missing, [(3, 1)]);
    }
    assert!(receiver.take(at(10), 5, 1000, soon) && receiver.may_ride(at(17)));
}
