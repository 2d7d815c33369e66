//! When lost packets are retransmitted, and how long the receiver waits for them.

use super::*;

/// One path of 100 Mbit/s, with loss in each direction.
fn lossy(delay_ms: f64, forward: f64, backward: f64) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, delay_ms, forward)]);
    testbed.links[0].set(testbed.now, Direction::Down, params(100.0, delay_ms, backward));
    testbed
}

/// Maximum delay of a light flow's packets, in ms, and its lost packets, until `until_ms`, after slow
/// start.
fn light_flow(mut testbed: Testbed, until_ms: u64) -> (f64, usize) {
    testbed.stream(1, 10.0, 4000);
    testbed.stream(2, 10.0, until_ms);
    testbed.run_until(Instant::from_millis(until_ms + 1000));
    let (delays, lost) = testbed.delays(2, 4000, until_ms);
    (delays.last().copied().unwrap_or(f64::INFINITY), lost)
}

#[test]
fn a_loss_on_a_long_path_delays_no_later_packet() {
    let (max_delay_ms, lost) = light_flow(lossy(105.0, 0.02, 0.0), 9500);
    assert!(max_delay_ms < 125.0, "{max_delay_ms} ms");
    assert!(lost > 50, "{lost}");
}

#[test]
fn packets_after_a_loss_on_a_short_path_wait_for_the_retransmission() {
    let (max_delay_ms, lost) = light_flow(lossy(10.0, 0.02, 0.02), 9500);
    assert!((20.0..100.0).contains(&max_delay_ms), "{max_delay_ms} ms");
    assert_eq!(lost, 0);
}

#[test]
fn a_path_keeps_its_rate_without_retransmission() {
    let (max_delay_ms, lost) = light_flow(lossy(105.0, 0.0, 0.0), 25_000);
    assert!(max_delay_ms < 125.0, "{max_delay_ms} ms");
    assert_eq!(lost, 0);
}

#[test]
fn a_lost_probe_of_the_receiver_stalls_no_flow() {
    let (max_delay_ms, _) = light_flow(lossy(105.0, 0.02, 0.1), 9500);
    assert!(max_delay_ms < 125.0, "{max_delay_ms} ms");
}

#[test]
fn no_retransmission_is_announced_while_the_only_path_is_long_and_stalled() {
    let mut testbed = lossy(105.0, 0.0, 0.0);
    testbed.stream(1, 10.0, 2000);
    testbed.set(0, 0.0, 105.0, 0.0);
    testbed.stream(1, 10.0, 2400);
    assert_ne!(testbed.sender(0).liveness(), Liveness::Up);
    assert!(!testbed.endpoints[0].retransmits());
}

/// Packets of a flow on a path of 45 ms, beside one of 12 ms that loses 1.6 %: the flow needs no second path, so they are
/// retransmissions. Retransmitted on the lossy path a packet arrives sooner in the mean, and later one time in sixty.
#[test]
fn a_retransmission_takes_the_quickest_path_for_bulk_and_a_reliable_one_for_messages() {
    for (bulk, bytes_allowed) in [(true, 20_000), (false, u64::MAX)] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 12.0, 0.016), (10.0, 45.0, 0.0)]);
        testbed.bulk = bulk;
        testbed.stream(1, 40.0, 8000);
        let copied = testbed.sender(1).counts.copied_bytes;
        assert!(copied <= bytes_allowed, "bulk {bulk}: {copied} bytes");
        assert!(bulk || copied > 100_000, "{copied} bytes");
        assert!(testbed.sender(0).counts.lost > 200);
    }
}

/// The path with the lower delay loses one packet of 70; the other loses one in all.
#[test]
fn messages_return_to_a_lossy_path_neither_after_a_loss_of_another_nor_by_chance() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(28.0, 44.0, 0.014), (22.0, 66.0, 0.002)]);
    testbed.run_until(Instant::from_millis(1000));
    testbed.stream(1, 1.0, 4000);
    let before = [0, 1].map(|path| testbed.sender(path).counts.sent_bytes);
    testbed.stream(1, 1.0, 30_000);
    let sent = [0, 1].map(|path| testbed.sender(path).counts.sent_bytes - before[usize::from(path)]);
    assert!(testbed.sender(1).counts.lost > 0);
    assert!(sent[0] * 5 < sent[1], "{sent:?}");
}

/// Bulk waits for a retransmission, and as long again for a second one.
#[test]
fn a_retransmission_for_bulk_is_sent_twice_on_a_lossy_path() {
    for (bulk, loss, times) in [(true, 0.02, 2.0), (false, 0.02, 1.0), (true, 0.001, 1.0)] {
        let mut testbed = lossy(30.0, loss, 0.0);
        testbed.bulk = bulk;
        testbed.stream(1, 40.0, 9000);
        let counts = &testbed.sender(0).counts;
        let copies = counts.copied_bytes as f64 / f64::from(BYTES + OVERHEAD) / counts.lost as f64;
        assert!((copies - times).abs() < 0.05 * times, "bulk {bulk}, loss {loss}: {copies} copies for each loss");
        let (delays, _) = testbed.delays(1, 1000, 8000);
        let late = delays.iter().filter(|delay_ms| **delay_ms > 140.0).count();
        let has_late = loss > 0.01 && !bulk;
        assert_eq!(late > 100, has_late, "bulk {bulk}, loss {loss}: {late} packets wait for a second retransmission");
    }
}

#[test]
fn a_packet_that_is_late_and_may_not_be_lost_is_sent_again_once() {
    for (is_lost, times) in [(true, 2), (false, 1)] {
        let mut testbed = lossy(30.0, 0.05, 0.0);
        testbed.stream(1, 10.0, 3000);
        let packet = Numbered { flow: 2, number: 0, offered: testbed.now };
        let queued = Queued { flow: 2, bytes: BYTES, bulk: true, arrived: testbed.now, packet };
        let copy = Retransmittable::new(testbed.now, queued, 0);
        let retransmits = &mut testbed.endpoints[0].retransmits;
        match is_lost {
            true => retransmits.push_lost(testbed.now, [copy]),
            false => retransmits.push_moved(testbed.now, [copy.avoiding(PathId(1))]),
        }
        testbed.run_until(testbed.now + Duration::from_millis(5));
        assert_eq!(testbed.paths_of(2).len(), times, "lost {is_lost}");
    }
}

/// A whole window sent twice would fill the queue of the path that is left.
#[test]
fn what_was_in_flight_on_a_path_that_fails_is_sent_again_once() {
    for is_removed in [true, false] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(40.0, 30.0, 0.0), (20.0, 30.0, 0.02)]);
        testbed.bulk = true;
        testbed.stream(1, 50.0, 5000);
        let first = testbed.in_flight.len();
        match is_removed {
            true => testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(0), false)),
            false => testbed.set(0, 0.0, 30.0, 0.0),
        }
        testbed.stream(1, 5.0, 6000);
        let sent = |on: u8, output: &Sent| match output {
            Output::Send { key, packet, .. } if key.path == PathId(on) => Some(packet.number),
            _ => None,
        };
        let (before, after) = testbed.in_flight.split_at(first);
        let before: Vec<u64> = before.iter().filter_map(|(output, _)| sent(0, output)).collect();
        let mut moved: Vec<u64> = after.iter().filter_map(|(output, _)| sent(1, output)).collect();
        moved.retain(|number| before.contains(number));
        let copies = moved.len() as f64;
        moved.sort_unstable();
        moved.dedup();
        assert!(moved.len() > 10, "removed {is_removed}: {} packets", moved.len());
        assert!(copies < 1.15 * moved.len() as f64, "removed {is_removed}: {copies} copies of {}", moved.len());
    }
}
