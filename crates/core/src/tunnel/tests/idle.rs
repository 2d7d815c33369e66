//! What a path costs that carries nothing, and that it is known alive meanwhile.

use super::*;

/// Two links of 10 Mbit/s, of 30 and 20 ms. Modes that follow the order prefer the first.
const LINKS: [(f64, f64, f64); 2] = [(10.0, 30.0, 0.0), (10.0, 20.0, 0.0)];
/// Bytes that encryption adds to a datagram.
const ENCRYPTION: u32 = 28;
/// Flow and endpoint of the traffic in each direction.
const UP: (u8, usize) = (1, 0);
const DOWN: (u8, usize) = (2, 1);
const BOTH: &[(u8, usize)] = &[UP, DOWN];

fn at_s(s: u64) -> Instant {
    Instant::from_millis(s * 1000)
}

/// A tunnel whose second path has these keepalives.
fn with_keepalive(mode: Mode, keepalive: Keepalive) -> Testbed {
    let mut testbed = Testbed::new(mode, &LINKS);
    testbed.endpoints[0].set_keepalives(&[Keepalive::DEFAULT, keepalive]);
    testbed.set_clocks([Clock::default(); 2]);
    testbed
}

/// Offers 0.4 Mbit/s of messages in each of these directions.
fn talk(testbed: &mut Testbed, flows: &[(u8, usize)], until: Instant) {
    while testbed.now < until {
        flows.iter().for_each(|(flow, endpoint)| testbed.offer_at(*endpoint, *flow));
        testbed.run_until(testbed.now + Duration::from_millis(28));
    }
}

/// Megabytes that a path carries in an hour in both directions, encrypted, by what it carries now.
fn mb_an_hour(testbed: &mut Testbed, path: u8, run: impl Fn(&mut Testbed)) -> f64 {
    let (since, first) = (testbed.now, testbed.in_flight.len());
    run(testbed);
    let of_path = |output: &Sent| match output {
        Output::Send { key, .. } => key.path == PathId(path),
        Output::Message { path: over, .. } => *over == PathId(path),
        _ => false,
    };
    let sent = testbed.in_flight[first..].iter().filter(|(output, _)| of_path(output));
    let bytes: u32 = sent.map(|(_, bytes)| bytes + ENCRYPTION).sum();
    f64::from(bytes) / 1e6 * 3600.0 / testbed.now.since(since).as_secs_f64()
}

/// What the unused path of two costs while the other one carries messages.
fn cost_of_the_reserve(mut testbed: Testbed, reserve: u8) -> f64 {
    talk(&mut testbed, BOTH, at_s(40));
    let mb = mb_an_hour(&mut testbed, reserve, |testbed| talk(testbed, BOTH, at_s(160)));
    testbed.run_until(at_s(162));
    assert_eq!(testbed.delays(1, 0, 159_000).1 + testbed.delays(2, 0, 159_000).1, 0);
    mb
}

#[test]
fn a_path_that_carries_nothing_costs_less_than_a_megabyte_an_hour() {
    // Aggregate uses the path of the lower delay.
    for (mode, reserve) in [(Mode::Standby, 1), (Mode::CheapestFirst, 1), (Mode::Aggregate, 0)] {
        let mb = cost_of_the_reserve(Testbed::new(mode, &LINKS), reserve);
        assert!((0.3..1.0).contains(&mb), "{mode:?}: {mb} MB");
    }
}

#[test]
fn a_backup_path_costs_less_than_a_megabyte_an_hour() {
    let mut testbed = Testbed::new(Mode::Aggregate, &LINKS);
    let states = vec![PathState::Active, PathState::Backup];
    testbed.endpoints[0].handle(testbed.now, Input::SetWantedStates(states));
    let mb = cost_of_the_reserve(testbed, 1);
    assert!((0.3..1.0).contains(&mb), "{mb} MB");
}

#[test]
fn a_path_with_a_price_costs_less_than_a_tenth_of_a_megabyte_an_hour() {
    let mb = cost_of_the_reserve(with_keepalive(Mode::Standby, Keepalive::PRICED), 1);
    assert!((0.03..0.1).contains(&mb), "{mb} MB");
}

#[test]
fn an_idle_tunnel_costs_less_than_a_third_of_a_megabyte_an_hour_on_each_path() {
    for path in 0..2 {
        let mut testbed = with_keepalive(Mode::Standby, Keepalive::PRICED);
        talk(&mut testbed, BOTH, at_s(5));
        testbed.run_until(at_s(20));
        let mb = mb_an_hour(&mut testbed, path, |testbed| testbed.run_until(at_s(3620)));
        assert!(mb < [0.33, 0.1][usize::from(path)], "path {path}: {mb} MB");
    }
}

/// Maximum delay of the messages, in ms, when the preferred path loses everything in these directions after
/// this time.
fn worst_at_failover(flows: &[(u8, usize)], dead: &[Direction], after_s: u64) -> f64 {
    let mut testbed = Testbed::new(Mode::Standby, &LINKS);
    talk(&mut testbed, flows, at_s(after_s));
    for direction in dead {
        testbed.links[0].set(testbed.now, *direction, params(10.0, 30.0, 1.0));
    }
    talk(&mut testbed, flows, at_s(after_s + 10));
    testbed.run_until(at_s(after_s + 12));
    let worst = |flow| {
        let (delays, lost) = testbed.delays(flow, 0, (after_s + 10) * 1000);
        assert_eq!(lost, 0, "{flows:?} {dead:?}");
        delays.last().copied().unwrap_or_default()
    };
    flows.iter().map(|(flow, _)| worst(*flow)).fold(0.0, f64::max)
}

#[test]
fn a_reserve_that_was_idle_for_long_takes_over_as_fast_as_one_just_used() {
    let (up, down) = (Direction::Up, Direction::Down);
    for flows in [&[UP][..], &[DOWN], BOTH] {
        for dead in [&[up][..], &[down], &[up, down]] {
            let [soon, late] = [1, 30].map(|after_s| worst_at_failover(flows, dead, after_s));
            // RTT and feedback timeout, and the delay of the reserve.
            assert!(soon < 120.0 && late < 120.0, "{flows:?} {dead:?}: {soon} ms, then {late} ms");
        }
    }
}

#[test]
fn the_path_that_carries_again_after_a_long_silence_is_left_as_fast() {
    let mut testbed = Testbed::new(Mode::Standby, &LINKS);
    talk(&mut testbed, BOTH, at_s(5));
    testbed.run_until(at_s(120));
    testbed.set(0, 10.0, 30.0, 1.0);
    talk(&mut testbed, BOTH, at_s(125));
    testbed.run_until(at_s(127));
    for flow in [1, 2] {
        let (delays, lost) = testbed.delays(flow, 110_000, 125_000);
        assert_eq!(lost, 0);
        assert!(delays.last().is_some_and(|max_ms| *max_ms < 125.0), "{:?} ms", delays.last());
    }
}

#[test]
fn a_reserve_that_dies_while_idle_is_known_dead_within_three_keepalives() {
    for keepalive in [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(25)] {
        let mut testbed = with_keepalive(Mode::Standby, Keepalive::every(keepalive));
        talk(&mut testbed, BOTH, at_s(60));
        let liveness = |testbed: &Testbed| {
            testbed.endpoints.each_ref().map(|endpoint| endpoint.path(PathId(1)).map(|path| path.liveness))
        };
        assert_eq!(liveness(&testbed), [Some(Liveness::Up); 2]);
        testbed.set(1, 10.0, 20.0, 1.0);
        let until = testbed.now + keepalive * 3;
        talk(&mut testbed, BOTH, until);
        assert_eq!(liveness(&testbed)[0], Some(Liveness::Down), "{keepalive:?}");
        let until = testbed.now + NAT_TIMEOUT;
        talk(&mut testbed, BOTH, until);
        assert_eq!(liveness(&testbed)[1], Some(Liveness::Down), "{keepalive:?}");
    }
}

/// The follower has no interval to keep: it learns by its own probes, which answer those of the initiator.
#[test]
fn the_initiator_sets_the_keepalive_interval_of_both_endpoints() {
    for (keepalive_s, probes) in [(1, 50..=62), (10, 4..=7)] {
        let mut testbed = with_keepalive(Mode::Standby, Keepalive::every(Duration::from_secs(keepalive_s)));
        talk(&mut testbed, BOTH, at_s(20));
        let delivered = |testbed: &Testbed| {
            testbed.endpoints.each_ref().map(|endpoint| endpoint.path(PathId(1)).map_or(0, |path| path.delivered))
        };
        let before = delivered(&testbed);
        talk(&mut testbed, BOTH, at_s(80));
        let after = delivered(&testbed);
        for endpoint in 0..2 {
            let answered = after[endpoint] - before[endpoint];
            assert!(probes.contains(&answered), "endpoint {endpoint}: {answered} probes in a minute");
        }
    }
}

#[test]
fn a_path_without_keepalives_costs_nothing_and_takes_over() {
    let mut testbed = with_keepalive(Mode::Standby, Keepalive::OFF);
    talk(&mut testbed, BOTH, at_s(60));
    let mb = mb_an_hour(&mut testbed, 1, |testbed| talk(testbed, BOTH, at_s(660)));
    assert!(mb < 1e-9, "{mb} MB");
    testbed.set(0, 10.0, 30.0, 1.0);
    talk(&mut testbed, BOTH, at_s(670));
    testbed.run_until(at_s(672));
    for flow in [1, 2] {
        let (delays, lost) = testbed.delays(flow, 0, 670_000);
        assert_eq!(lost, 0);
        assert!(delays.last().is_some_and(|max_ms| *max_ms < 120.0), "{:?} ms", delays.last());
    }
}

/// One keepalive a minute of the initiator and, between two of these, one of the follower.
#[test]
fn a_path_with_a_keepalive_a_minute_costs_less_than_a_twentieth_of_a_megabyte_an_hour() {
    let mb = cost_of_the_reserve(with_keepalive(Mode::Standby, Keepalive::every(Duration::from_secs(60))), 1);
    assert!((0.01..0.05).contains(&mb), "{mb} MB");
}

#[test]
fn an_interval_that_the_user_chose_holds_while_the_tunnel_is_idle_too() {
    let [default, chosen] = [0, 1].map(|path| {
        let mut testbed = with_keepalive(Mode::Standby, Keepalive::every(Duration::from_secs(5)));
        talk(&mut testbed, BOTH, at_s(5));
        testbed.run_until(at_s(20));
        mb_an_hour(&mut testbed, path, |testbed| testbed.run_until(at_s(3620)))
    });
    assert!(default < 0.33 && (0.25..0.4).contains(&chosen), "{default} MB, {chosen} MB");
}

#[test]
fn control_bytes_are_what_was_sent_without_packets() {
    let mut testbed = with_keepalive(Mode::Standby, Keepalive::DEFAULT);
    talk(&mut testbed, &[UP], at_s(20));
    for (endpoint, path) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let stats = testbed.endpoints[endpoint].path(PathId(path)).expect("present");
        let data_bytes = stats.sent_bytes - stats.control_bytes;
        assert!(stats.control_bytes > 0);
        assert_eq!(data_bytes > 100_000, (endpoint, path) == (0, 0), "{endpoint} {path}: {stats:?}");
        assert!(data_bytes == 0 || endpoint == 0, "{stats:?}");
    }
}

#[test]
fn copied_bytes_are_those_of_packets_sent_before_or_over_another_path() {
    let sent = |mode| {
        let mut testbed = with_keepalive(mode, Keepalive::DEFAULT);
        talk(&mut testbed, &[UP], at_s(20));
        [0, 1].map(|path| testbed.endpoints[0].path(PathId(path)).expect("present"))
    };
    assert!(sent(Mode::Standby).iter().all(|stats| stats.copied_bytes == 0));
    let copies: u64 = sent(Mode::Redundant).iter().map(|stats| stats.copied_bytes).sum();
    let first: u64 =
        sent(Mode::Redundant).iter().map(|path| path.sent_bytes - path.control_bytes - path.copied_bytes).sum();
    assert!(first > 100_000 && copies.abs_diff(first) < first / 100, "{copies} of {first}");
}
