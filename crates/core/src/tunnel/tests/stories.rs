use super::*;
use crate::wanted::Order;

/// Rate of the packets' own bytes that fits into `mbit_s` of datagrams.
fn inside(mbit_s: f64) -> f64 {
    mbit_s * f64::from(BYTES) / f64::from(BYTES + OVERHEAD)
}

fn sum(links: &[(f64, f64, f64)]) -> f64 {
    inside(links.iter().map(|(rate, ..)| rate).sum())
}

#[test]
fn the_sum_of_unequal_paths_is_filled() {
    for (links, share) in [
        ([(60.0, 0.1, 0.0), (60.0, 0.1, 0.0)], 0.999),
        ([(25.0, 0.1, 0.0), (47.0, 0.1, 0.0)], 0.999),
        ([(246.0, 0.1, 0.0), (469.0, 0.1, 0.0)], 0.999),
        ([(20.0, 10.0, 0.0), (80.0, 30.0, 0.0)], 0.999),
        ([(100.0, 5.0, 0.0), (5.0, 105.0, 0.0)], 0.99),
        ([(5.0, 5.0, 0.0), (100.0, 105.0, 0.0)], 0.99),
        ([(50.0, 20.0, 0.02), (50.0, 20.0, 0.0)], 0.97),
    ] {
        let mut testbed = Testbed::new(Mode::Aggregate, &links);
        testbed.stream(1, sum(&links) * 1.1, 6000);
        let filled = testbed.goodput(2000, 6000) / sum(&links);
        assert!(filled > share, "{links:?}: {filled}");
    }
}

#[test]
fn an_idle_path_is_not_taken_for_a_slow_one() {
    let links = [(60.0, 10.0, 0.0), (60.0, 10.0, 0.0)];
    let mut testbed = Testbed::new(Mode::Aggregate, &links);
    testbed.run_until(Instant::from_millis(3000));
    testbed.stream(1, sum(&links) * 1.1, 6000);
    assert!(testbed.goodput(4000, 6000) > sum(&links) * 0.99);
}

#[test]
fn a_failed_path_is_abandoned_within_300_ms_and_used_again_within_a_second() {
    for rate in [0.002, 0.0] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)]);
        testbed.stream(1, 80.0, 3000);
        testbed.set(1, rate, 5.0, 0.0);
        testbed.stream(1, 80.0, 6000);
        assert!(testbed.goodput(3300, 6000) > inside(25.0) * 0.9, "{rate}");
        assert_ne!(testbed.endpoints[0].path(PathId(1)).map(|path| path.liveness), Some(Liveness::Up));
        testbed.set(1, 47.0, 5.0, 0.0);
        testbed.stream(1, 80.0, 9000);
        assert!(testbed.goodput(7000, 9000) > inside(72.0) * 0.97, "{rate}");
    }
}

#[test]
fn probes_alone_detect_that_a_path_delivers_again() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(60.0, 5.0, 0.0), (60.0, 5.0, 0.0)]);
    testbed.stream(1, 150.0, 2000);
    testbed.set(1, 0.0, 5.0, 0.0);
    testbed.stream(1, 150.0, 4000);
    testbed.set(1, 60.0, 5.0, 0.0);
    // Only probes show that it delivers again.
    testbed.run_until(Instant::from_millis(7000));
    let path = testbed.endpoints[0].path(PathId(1)).map(|path| (path.liveness, path.rate_bit_s));
    assert!(
        path.is_some_and(|(liveness, rate)| liveness == Liveness::Up && rate.is_none_or(|rate| rate > 30e6)),
        "{path:?}"
    );
}

#[test]
fn a_path_added_again_with_another_address_is_used() {
    let links = [(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)];
    let mut testbed = Testbed::new(Mode::Aggregate, &links);
    testbed.stream(1, 80.0, 3000);
    testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(1), false));
    testbed.stream(1, 80.0, 3500);
    testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(1), true));
    testbed.stream(1, 80.0, 7000);
    assert!(testbed.goodput(5000, 7000) > sum(&links) * 0.97, "{}", testbed.goodput(5000, 7000));
}

#[test]
fn a_sparse_flow_next_to_a_bulk_flow_has_a_low_delay() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)]);
    testbed.stream(1, 50.0, 1000);
    for step in 0..200u64 {
        testbed.offer(2);
        testbed.stream(1, 110.0, 1000 + step * 20 + 20);
    }
    testbed.run_until(Instant::from_millis(6000));
    let (delays, lost) = testbed.delays(2, 1000, 6000);
    assert_eq!(lost, 0);
    assert!(delays[delays.len() / 2] < 25.0 && delays[delays.len() * 99 / 100] < 60.0, "{delays:?}");
}

#[test]
fn datagrams_below_the_sum_are_neither_lost_nor_reordered() {
    for links in [[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)], [(20.0, 10.0, 0.0), (80.0, 30.0, 0.0)]] {
        let mut testbed = Testbed::new(Mode::Aggregate, &links);
        testbed.stream(1, sum(&links) * 0.9, 5000);
        let (late, lost) = (testbed.endpoints[1].late(), testbed.delays(1, 0, 5000).1);
        testbed.stream(1, sum(&links) * 0.9, 15_000);
        testbed.run_until(Instant::from_millis(16_000));
        assert_eq!(testbed.endpoints[1].late(), late);
        // Packets in flight at 5 s had not arrived yet.
        assert!(testbed.delays(1, 5000, 15_000).1 <= lost, "{links:?}");
    }
}

#[test]
fn copies_over_two_paths_lose_only_what_both_lose() {
    let mut testbed = Testbed::new(Mode::Redundant, &[(25.0, 10.0, 0.05), (25.0, 10.0, 0.05)]);
    testbed.stream(1, 11.2, 20_000);
    testbed.run_until(Instant::from_millis(21_000));
    let (delays, lost) = testbed.delays(1, 0, 20_000);
    assert!((20..80).contains(&lost), "{lost} of {}", testbed.offered[1]);
    assert!(delays[delays.len() * 99 / 100] < delays[0] + 0.5);
}

#[test]
fn only_the_preferred_path_carries_until_it_is_full() {
    let links = [(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)];
    for (mode, offered, second) in [
        (Mode::CheapestFirst, 15.0, false),
        (Mode::CheapestFirst, 60.0, true),
        (Mode::Standby, 15.0, false),
        (Mode::Standby, 60.0, false),
    ] {
        let mut testbed = Testbed::new(mode, &links);
        testbed.stream(1, offered, 4000);
        let sent = |path| testbed.endpoints[0].path(PathId(path)).map_or(0, |path| path.sent_bytes);
        assert_eq!(sent(1) > 1_000_000, second, "{mode:?} {offered}: {} and {}", sent(0), sent(1));
    }
}

/// Bytes sent on two paths by each endpoint while both offer 15 Mbit/s for a second.
fn sent_in_a_second(testbed: &mut Testbed) -> [[u64; 2]; 2] {
    let sent = |testbed: &Testbed| {
        let on =
            |endpoint: usize, path| testbed.endpoints[endpoint].path(PathId(path)).map_or(0, |path| path.sent_bytes);
        [0, 1].map(|endpoint| [0, 1].map(|path| on(endpoint, path)))
    };
    let before = sent(testbed);
    for _ in 0..1340 {
        testbed.offer_at(0, 1);
        testbed.offer_at(1, 2);
        testbed.run_until(testbed.now + Duration::from_micros(746));
    }
    let after = sent(testbed);
    [0, 1].map(|endpoint| [0, 1].map(|path| after[endpoint][path] - before[endpoint][path]))
}

#[test]
fn an_order_set_while_running_moves_the_traffic_of_both_endpoints() {
    for mode in [Mode::CheapestFirst, Mode::Standby] {
        let mut testbed = Testbed::new(mode, &[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)]);
        sent_in_a_second(&mut testbed);
        for (order, carries) in
            [(vec![0, 1], 0), (vec![1, 0], 1), (vec![0, 0], 1), (vec![0, 16], 1), (vec![], 0), (vec![1], 1)]
        {
            let input = Input::SetOrder(Order::Paths(order.iter().copied().map(PathId).collect()));
            testbed.endpoints[0].handle(testbed.now, input);
            testbed.run_until(testbed.now + Duration::from_millis(20));
            for sent in sent_in_a_second(&mut testbed) {
                let (used, other) = (sent[carries], sent[1 - carries]);
                assert!(used > 1_800_000 && other < 60_000, "{mode:?} {order:?}: {sent:?}");
            }
        }
    }
}

#[test]
fn without_an_order_cheapest_first_uses_both_paths_in_both_directions_until_there_is_one() {
    let mut testbed = Testbed::new(Mode::CheapestFirst, &[(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)]);
    sent_in_a_second(&mut testbed);
    for (order, carries) in [(Order::Free, [true, true]), (Order::Paths(vec![PathId(1)]), [false, true])] {
        testbed.endpoints[0].handle(testbed.now, Input::SetOrder(order.clone()));
        testbed.run_until(testbed.now + Duration::from_millis(20));
        for sent in sent_in_a_second(&mut testbed) {
            assert_eq!(sent.map(|bytes| bytes > 60_000), carries, "{order:?}: {sent:?}");
        }
    }
}

#[test]
fn an_order_reaches_the_follower_at_once_without_traffic() {
    let mut testbed = Testbed::new(Mode::Standby, &[(60.0, 5.0, 0.0), (60.0, 5.0, 0.0)]);
    testbed.run_until(Instant::from_millis(1800));
    testbed.endpoints[0].handle(testbed.now, Input::SetOrder(Order::Paths(vec![PathId(1), PathId(0)])));
    testbed.run_until(testbed.now + Duration::from_millis(15));
    for endpoint in &testbed.endpoints {
        assert_eq!([0, 1].map(|path| endpoint.paths.order.rank(PathId(path))), [1, 0]);
    }
}

#[test]
fn each_flow_keeps_to_its_path() {
    let mut testbed = Testbed::new(Mode::PerFlow, &[(60.0, 5.0, 0.0), (60.0, 5.0, 0.0)]);
    testbed.stream(1, 40.0, 2000);
    let shares = [0, 1].map(|path| testbed.endpoints[0].path(PathId(path)).map_or(0, |path| path.sent_bytes) > 100_000);
    assert_eq!(shares.iter().filter(|used| **used).count(), 1);
    assert_eq!(testbed.endpoints[1].late(), 0);
}

#[test]
fn the_follower_takes_mode_and_wanted_states_from_the_initiator() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(60.0, 5.0, 0.0), (60.0, 5.0, 0.0)]);
    testbed.stream(1, 10.0, 500);
    let wanted_states = vec![PathState::Backup, PathState::Active];
    testbed.endpoints[0].handle(testbed.now, Input::SetWantedStates(wanted_states));
    testbed.endpoints[0].handle(testbed.now, Input::SetMode(Mode::Standby));
    testbed.stream(1, 10.0, 1000);
    let states = [0, 1].map(|path| testbed.endpoints[1].path(PathId(path)).map(|path| path.wanted_state));
    assert_eq!(states, [Some(PathState::Backup), Some(PathState::Active)]);
    assert_eq!(testbed.endpoints[1].mode, Mode::Standby);
}

#[test]
fn a_change_of_mode_reaches_the_follower_at_once_without_traffic() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(60.0, 5.0, 0.0), (60.0, 5.0, 0.0)]);
    testbed.run_until(Instant::from_millis(1800));
    testbed.endpoints[0].handle(testbed.now, Input::SetMode(Mode::PerFlow));
    testbed.run_until(testbed.now + Duration::from_millis(15));
    assert_eq!(testbed.endpoints.each_ref().map(Tunnel::mode), [Mode::PerFlow, Mode::PerFlow]);
}

/// Each time for 100 ms: packets sent before redundant mode are still retransmitted.
#[test]
fn a_change_of_mode_loses_no_packet_in_flight() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(60.0, 5.0, 0.02), (60.0, 5.0, 0.02)]);
    testbed.stream(1, 50.0, 1000);
    let mut lost = 0;
    for round in 0..10 {
        let at_ms = 1000 + round * 200;
        let flow = 2 + round as u8;
        testbed.stream(flow, 50.0, at_ms + 100);
        testbed.endpoints[0].handle(testbed.now, Input::SetMode(Mode::Redundant));
        testbed.run_until(Instant::from_millis(at_ms + 200));
        testbed.endpoints[0].handle(testbed.now, Input::SetMode(Mode::Aggregate));
        lost += testbed.delays(flow, at_ms, at_ms + 100).1;
    }
    assert_eq!(lost, 0);
}

#[test]
fn traffic_continues_after_a_restart_of_either_endpoint() {
    for endpoint in [0, 1] {
        let links = [(25.0, 5.0, 0.0), (47.0, 5.0, 0.0)];
        let mut testbed = Testbed::new(Mode::Aggregate, &links);
        testbed.stream(1, 30.0, 2000);
        let epoch = 100 + endpoint as u32;
        testbed.endpoints[endpoint] = Tunnel::new(Setup {
            copies: Copies::default(),
            mode: Mode::Aggregate,
            is_initiator: endpoint == 0,
            ranks: vec![],
            epoch,
            overhead: HEADERS,
        });
        for path in 0..2 {
            testbed.endpoints[endpoint].handle(testbed.now, Input::Present(PathId(path), true));
        }
        testbed.stream(1, 30.0, 5000);
        assert!(testbed.goodput(3000, 5000) > 29.5, "end {endpoint}: {}", testbed.goodput(3000, 5000));
    }
}

#[test]
fn no_wakeup_is_repeated_without_progress() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(25.0, 5.0, 0.02), (47.0, 50.0, 0.0)]);
    testbed.stream(1, 100.0, 1000);
    for _ in 0..2000 {
        let Some(at) = testbed.endpoints[0].next_wakeup() else { return };
        assert!(at > testbed.now, "due at {at}, and it is {}", testbed.now);
        testbed.run_until(at);
    }
}
