use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::path::PathId;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn key(path: u8, sequence: u32) -> GreKey {
    GreKey { path: PathId(path), flow: 3, sequence }
}

const BOTH: ActivePaths = ActivePaths { paths: 0b11, retransmits: false };

fn drained<P>(reorder: &mut ReorderBuffer<P>) -> Vec<P> {
    core::iter::from_fn(|| reorder.ready.pop_front()).collect()
}

#[test]
fn a_gap_is_abandoned_when_every_path_has_delivered_a_newer_packet() {
    let mut flows = ReorderBuffer::new();
    for (path, sequence) in [(0, 0), (0, 2), (0, 3)] {
        assert!(flows.take(at(1), key(path, sequence), sequence, false, BOTH));
    }
    assert_eq!(drained(&mut flows), [0]);
    assert!(flows.take(at(2), key(1, 4), 4, false, BOTH));
    assert_eq!(drained(&mut flows), [2, 3, 4]);
    // It arrives late, and then again.
    assert!(flows.take(at(3), key(1, 1), 1, false, BOTH));
    assert!(!flows.take(at(3), key(0, 1), 1, false, BOTH) && !flows.take(at(3), key(0, 3), 3, false, BOTH));
    assert_eq!((drained(&mut flows), flows.late), (vec![1], 1));
}

#[test]
fn a_retransmission_is_waited_for() {
    let active_paths = ActivePaths { retransmits: true, ..BOTH };
    let mut flows = ReorderBuffer::new();
    for (path, sequence) in [(0, 0), (0, 2), (1, 3)] {
        flows.take(at(1), key(path, sequence), sequence, false, active_paths);
    }
    assert_eq!(drained(&mut flows), [0]);
    flows.take(at(30), key(1, 1), 1, false, active_paths);
    assert_eq!(drained(&mut flows), [1, 2, 3]);
    flows.take(at(100), key(0, 5), 5, false, active_paths);
    assert_eq!(flows.next_wakeup(), Some(at(250)));
    // 110 ms late: the timeout is one and a half times that, plus 5 ms.
    flows.take(at(210), key(1, 4), 4, false, active_paths);
    flows.take(at(300), key(0, 7), 7, false, active_paths);
    assert_eq!(flows.next_wakeup(), Some(at(470)));
}

#[test]
fn the_wait_follows_a_path_that_becomes_slow_up_to_the_maximum() {
    let active_paths = ActivePaths { retransmits: true, ..BOTH };
    let mut flows = ReorderBuffer::new();
    flows.take(at(0), key(0, 0), 0, false, active_paths);
    for (number, begin_ms, late_ms, wait_ms) in
        [(1, 1000, 140, 215), (6, 2000, 210, 320), (11, 3000, 310, 470), (16, 4000, 460, 600)]
    {
        flows.take(at(begin_ms), key(0, number + 1), number + 1, false, active_paths);
        flows.take(at(begin_ms + late_ms), key(1, number), number, false, active_paths);
        assert_eq!(drained(&mut flows).last(), Some(&(number + 1)), "in order");
        flows.take(at(begin_ms + 500), key(0, number + 2), number + 2, false, active_paths);
        flows.take(at(begin_ms + 500), key(0, number + 4), number + 4, false, active_paths);
        assert_eq!(flows.next_wakeup(), Some(at(begin_ms + 500 + wait_ms)));
        flows.take(at(begin_ms + 501), key(0, number + 3), number + 3, false, active_paths);
    }
    assert_eq!(flows.late, 0);
}

#[test]
fn a_pure_acknowledgement_does_not_wait_for_a_lost_one_and_data_waits() {
    let active_paths = ActivePaths { retransmits: true, ..BOTH };
    let mut flows = ReorderBuffer::new();
    for (sequence, is_pure_ack) in [(0, true), (2, true), (3, false), (4, true)] {
        assert!(flows.take(at(1), key(0, sequence), sequence, is_pure_ack, active_paths));
    }
    assert_eq!(drained(&mut flows), [0, 2, 4]);
    assert!(!flows.take(at(2), key(1, 2), 2, true, active_paths), "a duplicate");
    flows.take(at(30), key(0, 1), 1, true, active_paths);
    assert_eq!(drained(&mut flows), [1, 3]);
    flows.take(at(31), key(0, 5), 5, false, active_paths);
    assert_eq!((drained(&mut flows), flows.held), (vec![5], 0));
}

#[test]
fn another_flow_does_not_wait() {
    let mut flows = ReorderBuffer::new();
    flows.take(at(1), key(0, 1), 1, false, BOTH);
    flows.take(at(1), GreKey { flow: 4, ..key(0, 0) }, 10, false, BOTH);
    assert_eq!(drained(&mut flows), [10]);
}

#[test]
fn after_a_restart_of_the_receiver_a_flow_begins_with_the_first_arrival() {
    let mut flows = ReorderBuffer::new();
    flows.take(at(1), key(0, 70_000), 70_000, false, BOTH);
    flows.take(at(1), key(0, 400_000), 400_000, false, BOTH);
    assert_eq!(drained(&mut flows), [70_000, 400_000]);
}

/// The first packet of each flow never arrives.
#[test]
fn held_packets_are_limited_over_all_flows() {
    for count in [1, 40] {
        let mut flows = ReorderBuffer::new();
        let count_all = MAX_HELD as u32 + 5000;
        for number in 0..count_all {
            let key = GreKey { path: PathId(0), flow: (number % count) as u8, sequence: 1 + number / count };
            flows.take(at(1), key, number, false, ActivePaths { retransmits: true, ..BOTH });
            assert!(flows.held <= MAX_HELD, "{}", flows.held);
        }
        let held = flows.flows.iter().map(|flow| flow.held.len()).sum::<usize>();
        assert_eq!(held, flows.held);
        assert_eq!(held + drained(&mut flows).len(), count_all as usize);
    }
}

/// Each of them splits an abandoned gap in two.
#[test]
fn remembered_gaps_are_limited_for_any_late_packets() {
    let mut flows = ReorderBuffer::new();
    flows.take(at(1), key(0, 0), 0, false, BOTH);
    flows.take(at(1), key(0, 200_000), 200_000, false, BOTH);
    flows.advance(at(1000), BOTH);
    assert_eq!(drained(&mut flows), [0, 200_000]);
    for sequence in (1..10_000).step_by(2) {
        flows.take(at(1001), key(1, sequence), sequence, false, BOTH);
        assert!(flows.flows[3].abandoned.len() <= MAX_ABANDONED, "{} after {sequence}", flows.flows[3].abandoned.len());
    }
    assert!(flows.late > 30);
}

proptest! {
    /// Each packet is delivered at most once, held no longer than the limit, and in order unless its gap
    /// was abandoned.
    #[test]
    fn packets_are_delivered_once_in_order_and_in_time(
        steps in prop::collection::vec((0u64..400, 0u8..2, 0u64..30_000, any::<bool>()), 1..300),
        retransmits in any::<bool>(),
    ) {
        let active_paths = ActivePaths { paths: 0b11, retransmits };
        let mut flows = ReorderBuffer::new();
        let (mut delivered, mut arrived): (Vec<u64>, BTreeMap<u64, Instant>) = (Vec::new(), BTreeMap::new());
        let mut now = at(1);
        for (sequence, path, wait_us, twice) in steps {
            let until = now + Duration::from_micros(wait_us);
            while let Some(due) = flows.next_wakeup().filter(|due| *due <= until) {
                now = now.max(due);
                flows.advance(now, active_paths);
                for released in drained(&mut flows) {
                    prop_assert!(now.since(arrived[&released]) <= MAX_WAIT);
                    delivered.push(released);
                }
            }
            now = until;
            for _ in 0..=u8::from(twice) {
                let first = !arrived.contains_key(&sequence);
                let taken = flows.take(now, key(path, sequence as u32), sequence, false, active_paths);
                prop_assert!(first || !taken, "{sequence} was accepted twice");
                arrived.entry(sequence).or_insert(now);
            }
            delivered.extend(drained(&mut flows));
        }
        let mut sorted = delivered.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(sorted.len(), delivered.len());
        let backwards = delivered.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        prop_assert!(backwards <= flows.late);
    }
}
