use super::ieee80211p::PhyRate;
use super::*;
use alloc::vec;
use proptest::prelude::*;

mod shared;
mod stations;

fn rate(bit_s: f64, delay_ms: u64, loss: f64, queue: QueueLimit) -> DirectionParams {
    DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s },
        delay: Duration::from_millis(delay_ms),
        loss: Loss::Independent(loss),
        queue,
        codel: None,
    }
}

fn plain(bit_s: f64, delay_ms: u64) -> DirectionParams {
    rate(bit_s, delay_ms, 0.0, QueueLimit::Packets(1000))
}

fn trace(opportunities_ms: &[u64]) -> DirectionParams {
    DirectionParams { bottleneck: Bottleneck::Opportunities(Arc::new(opportunities_ms.to_vec())), ..plain(0.0, 0) }
}

fn air(mean_snr_db: f64) -> DirectionParams {
    shared_air(mean_snr_db, 1.0)
}

fn shared_air(mean_snr_db: f64, share: f64) -> DirectionParams {
    DirectionParams {
        bottleneck: Bottleneck::Ieee80211p(Channel {
            rate: PhyRate::Mbit6,
            mean_snr_db,
            nakagami_m: f64::INFINITY,
            tries: 7,
            share,
            limit_bit_s: f64::INFINITY,
        }),
        ..plain(0.0, 0)
    }
}

fn both(params: DirectionParams) -> Link {
    Link::new(1, "test", params.clone(), params)
}

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn up(link: &mut Link, at_ms: u64, packet: u64, ip_bytes: u32) {
    let sent = link.send(ms(at_ms), Direction::Up, PacketId(packet), ip_bytes);
    assert_eq!(sent, Ok(()));
}

/// Packets that leave by `until`, each with the microsecond it was due.
fn exits(link: &mut Link, until: Instant) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| link.poll(until)).map(|exit| (exit.packet.0, exit.at.as_nanos() / 1000)).collect()
}

#[test]
fn a_packet_takes_its_serialization_time_and_the_delay() {
    let mut link = both(plain(12e6, 20));
    up(&mut link, 0, 1, 1500);
    up(&mut link, 0, 2, 1500);
    assert_eq!(link.next_wakeup(), Some(ms(21)));
    assert_eq!(exits(&mut link, ms(100)), [(1, 21_000), (2, 22_000)]);
    assert_eq!(link.next_wakeup(), None);
}

#[test]
fn a_new_rate_holds_for_the_rest_of_the_packet_in_service() {
    let mut link = both(plain(12e6, 0));
    up(&mut link, 0, 1, 1500);
    up(&mut link, 0, 2, 1500);
    link.set(Instant::from_nanos(500_000), Direction::Up, plain(6e6, 0));
    assert_eq!(exits(&mut link, ms(100)), [(1, 1500), (2, 3500)]);
}

#[test]
fn rate_zero_holds_packets_until_a_rate_returns() {
    let mut link = both(plain(0.0, 5));
    up(&mut link, 0, 1, 1500);
    up(&mut link, 1, 2, 1500);
    assert_eq!(link.next_wakeup(), None);
    link.set(ms(10), Direction::Up, plain(12e6, 5));
    assert_eq!(exits(&mut link, ms(100)), [(1, 16_000), (2, 17_000)]);
}

#[test]
fn a_rate_that_pauses_keeps_what_was_carried() {
    let mut link = both(plain(12e6, 0));
    up(&mut link, 0, 1, 3000);
    link.set(ms(1), Direction::Up, plain(0.0, 0));
    link.set(ms(50), Direction::Up, plain(12e6, 0));
    assert_eq!(exits(&mut link, ms(100)), [(1, 51_000)]);
}

#[test]
fn a_shorter_delay_never_lets_a_packet_overtake() {
    let mut link = both(plain(f64::INFINITY, 50));
    up(&mut link, 0, 1, 100);
    link.set(ms(1), Direction::Up, plain(f64::INFINITY, 1));
    up(&mut link, 1, 2, 100);
    assert_eq!(exits(&mut link, ms(100)), [(1, 50_000), (2, 50_000)]);
}

#[test]
fn an_opportunity_carries_several_small_packets_or_part_of_one() {
    let mut link = both(trace(&[2, 4]));
    up(&mut link, 0, 1, 600);
    up(&mut link, 0, 2, 600);
    up(&mut link, 0, 3, 600);
    up(&mut link, 0, 4, 1500);
    // 2 ms: all of 1 and 2 and half of 3; 4 ms: its rest and 1200 of packet 4; 6 ms
    // (the trace repeats after 4): the last 300.
    let expected = [(1, 2000), (2, 2000), (3, 4000), (4, 6000)];
    assert_eq!(exits(&mut link, ms(100)), expected);
}

#[test]
fn a_packet_misses_the_opportunity_of_its_own_millisecond_and_unused_ones_are_lost() {
    let mut link = both(trace(&[1, 1, 5]));
    up(&mut link, 1, 1, 1500);
    up(&mut link, 1, 2, 1500);
    assert_eq!(exits(&mut link, ms(5)), [(1, 5000)]);
    assert_eq!(exits(&mut link, ms(100)), [(2, 6000)]);
    up(&mut link, 123, 3, 1500);
    assert_eq!(exits(&mut link, ms(200)), [(3, 125_000)]);
}

#[test]
fn other_parameters_change_without_restarting_the_trace() {
    let params = trace(&[10]);
    let mut link = both(params.clone());
    up(&mut link, 0, 1, 1500);
    let slower = DirectionParams { delay: Duration::from_millis(3), ..params };
    link.set(ms(5), Direction::Up, slower);
    assert_eq!(exits(&mut link, ms(100)), [(1, 13_000)]);
}

#[test]
fn a_trace_without_length_carries_nothing() {
    for opportunities in [vec![], vec![0, 0]] {
        let mut link = both(trace(&opportunities));
        up(&mut link, 0, 1, 1500);
        assert_eq!(link.next_wakeup(), None);
        assert_eq!(exits(&mut link, ms(100)), []);
    }
}

#[test]
fn both_directions_share_the_air() {
    let mut link = both(air(40.0));
    let one_try = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500);
    for packet in 0..50 {
        up(&mut link, 0, packet, 1500);
        let down = link.send(ms(0), Direction::Down, PacketId(100 + packet), 1500);
        assert_eq!(down, Ok(()));
    }
    let left: Vec<Exit> = core::iter::from_fn(|| link.poll(ms(1000))).collect();
    assert_eq!(left.len(), 100);
    for pair in left.windows(2) {
        assert!(pair[1].at >= pair[0].at + one_try, "two frames at once");
        assert_ne!(pair[0].hop, pair[1].hop, "one side was starved");
    }
}

#[test]
fn a_packet_whose_tries_all_fail_is_dropped_and_costs_its_air_time() {
    let mut link = both(air(-20.0));
    up(&mut link, 0, 1, 1500);
    let exit = link.poll(ms(1000)).expect("it leaves");
    assert_eq!((exit.dropped, exit.tries), (Some(DropReason::Retries), 7));
    let one_try = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500);
    assert!(exit.at >= Instant::ZERO + one_try * 7);
}

#[test]
fn a_station_that_finds_the_air_free_sends_at_once() {
    let mut link = both(air(40.0));
    up(&mut link, 10, 1, 1500);
    let one_try = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500);
    assert_eq!(link.poll(ms(100)).map(|exit| exit.at), Some(ms(10) + one_try));
}

#[test]
fn another_transmission_delays_a_packet() {
    let mut link = both(air(40.0));
    assert_eq!(link.occupy(ms(10), Duration::from_millis(3)), ms(13));
    up(&mut link, 10, 1, 1500);
    let one_try = ieee80211p::attempt_air_time(PhyRate::Mbit6, 1500);
    let exit = link.poll(ms(100)).expect("it leaves");
    assert!(exit.at >= ms(13) + one_try);
}

#[test]
fn the_wakeup_considers_that_the_other_direction_may_be_faster() {
    let slow = DirectionParams { delay: Duration::from_millis(50), ..air(40.0) };
    let mut link = Link::new(1, "test", slow, air(40.0));
    up(&mut link, 0, 1, 1500);
    let down = link.send(ms(0), Direction::Down, PacketId(2), 100);
    assert_eq!(down, Ok(()));
    let mut first = None;
    while first.is_none() {
        let at = link.next_wakeup().expect("packets are in flight");
        first = link.poll(at).map(|exit| (exit.packet, at.since(exit.at)));
    }
    assert_eq!(first, Some((PacketId(2), Duration::ZERO)));
}

#[test]
fn while_off_it_accepts_nothing_and_drops_queued_packets_but_not_those_in_flight() {
    let mut link = both(plain(12e6, 10));
    for packet in 0..4 {
        up(&mut link, 0, packet, 1500);
    }
    link.set_on(Instant::from_nanos(1_500_000), false);
    let rejected = link.send(ms(2), Direction::Up, PacketId(9), 100);
    assert_eq!(rejected, Err(DropReason::Down));
    let left: Vec<_> = core::iter::from_fn(|| link.poll(ms(100))).map(|exit| (exit.packet.0, exit.dropped)).collect();
    let down = Some(DropReason::Down);
    assert_eq!(left, [(0, None), (1, down), (2, down), (3, down)]);
    link.set_on(ms(200), true);
    up(&mut link, 200, 5, 1500);
    assert_eq!(exits(&mut link, ms(300)), [(5, 211_000)]);
}

/// An action of a driver on a link.
#[derive(Clone, Debug)]
enum Act {
    Send(Direction, u32),
    Set(Direction, DirectionParams),
    Occupy(u64),
    Switch(bool),
}

fn any_params() -> impl Strategy<Value = DirectionParams> {
    let bottleneck = prop_oneof![
        Just(0.0).prop_map(|bit_s| Bottleneck::Rate { bit_s }),
        (1e4..1e9).prop_map(|bit_s| Bottleneck::Rate { bit_s }),
        prop::collection::vec(0u64..30, 1..8).prop_map(|mut opportunities| {
            opportunities.sort_unstable();
            Bottleneck::Opportunities(Arc::new(opportunities))
        }),
        (0.0..20.0, 1u8..8, prop_oneof![Just(1.0), 0.0..1.0]).prop_map(|(mean_snr_db, tries, share)| {
            Bottleneck::Ieee80211p(Channel {
                rate: PhyRate::Mbit6,
                mean_snr_db,
                nakagami_m: 1.5,
                tries,
                share,
                limit_bit_s: f64::INFINITY,
            })
        }),
    ];
    let queue = prop_oneof![(0u32..20).prop_map(QueueLimit::Packets), (0u32..20_000).prop_map(QueueLimit::Bytes),];
    let loss = prop_oneof![
        Just(Loss::NONE),
        (0.0..1.0).prop_map(Loss::Independent),
        (0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0).prop_map(|(good, bad, to_bad, to_good)| {
            Loss::GilbertElliott(GilbertElliott { good, bad, to_bad, to_good })
        }),
    ];
    let codel = prop_oneof![
        Just(None),
        (1u64..20, 1u64..50).prop_map(|(target, interval)| {
            Some(CoDel { target: Duration::from_millis(target), interval: Duration::from_millis(interval) })
        }),
    ];
    (bottleneck, 0u64..40, loss, queue, codel).prop_map(|(bottleneck, delay_ms, loss, queue, codel)| DirectionParams {
        bottleneck,
        delay: Duration::from_millis(delay_ms),
        loss,
        queue,
        codel,
    })
}

fn any_direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Up), Just(Direction::Down)]
}

fn any_act() -> impl Strategy<Value = (u64, Act)> {
    let act = prop_oneof![
        12 => (any_direction(), 40u32..1501).prop_map(|(direction, bytes)| Act::Send(direction, bytes)),
        1 => (any_direction(), any_params()).prop_map(|(direction, params)| Act::Set(direction, params)),
        1 => (0u64..3000).prop_map(Act::Occupy),
        1 => any::<bool>().prop_map(Act::Switch),
    ];
    (0u64..4000, act)
}

/// Runs `acts`, each some µs after the last, polling at every wakeup if `eager`, else
/// only at the end; returns the exits, and the packets accepted.
fn run(acts: &[(u64, Act)], eager: bool) -> (Vec<Exit>, Vec<(PacketId, Direction, Instant)>) {
    let mut link = both(plain(5e6, 10));
    let (mut left, mut accepted) = (Vec::new(), Vec::new());
    let mut now = Instant::ZERO;
    for (number, (wait_us, act)) in acts.iter().enumerate() {
        now = now + Duration::from_micros(*wait_us);
        while let Some(at) = link.next_wakeup().filter(|at| eager && *at <= now) {
            left.extend(core::iter::from_fn(|| link.poll(at)));
        }
        match act {
            Act::Send(direction, bytes) => {
                let packet = PacketId(number as u64);
                let before = link.waiting(*direction);
                if link.send(now, *direction, packet, *bytes).is_ok() {
                    accepted.push((packet, *direction, now));
                    let (packets, bytes) = link.waiting(*direction);
                    let within = match link.params(*direction).queue {
                        QueueLimit::Packets(limit) => packets <= limit as usize,
                        QueueLimit::Bytes(limit) => bytes <= u64::from(limit),
                    };
                    assert!(within || packets <= before.0, "the queue took too much");
                }
            }
            Act::Set(direction, params) => link.set(now, *direction, params.clone()),
            Act::Occupy(us) => {
                link.occupy(now, Duration::from_micros(*us));
            }
            Act::Switch(on) => link.set_on(now, *on),
        }
    }
    link.set_on(now, false);
    left.extend(core::iter::from_fn(|| link.poll(now + Duration::from_secs(1))));
    assert_eq!(link.next_wakeup(), None, "packets were left");
    (left, accepted)
}

proptest! {
    #[test]
    fn each_packet_leaves_once_in_order_and_no_sooner_than_it_entered(
        acts in prop::collection::vec(any_act(), 1..120)
    ) {
        let (left, accepted) = run(&acts, false);
        for direction in Direction::BOTH {
            let left: Vec<_> = left.iter().filter(|exit| exit.hop.direction == direction).collect();
            let accepted: Vec<_> = accepted.iter().filter(|sent| sent.1 == direction).collect();
            let order: Vec<_> = left.iter().map(|exit| exit.packet).collect();
            let expected: Vec<_> = accepted.iter().map(|sent| sent.0).collect();
            prop_assert_eq!(order, expected);
            prop_assert!(left.is_sorted_by_key(|exit| exit.at));
            for (exit, sent) in left.iter().zip(accepted) {
                prop_assert!(exit.at >= sent.2);
            }
        }
    }

    #[test]
    fn exits_do_not_depend_on_when_the_link_is_polled(
        acts in prop::collection::vec(any_act(), 1..120)
    ) {
        let (mut eager, _) = run(&acts, true);
        let (mut lazy, _) = run(&acts, false);
        eager.sort_by_key(|exit| exit.packet);
        lazy.sort_by_key(|exit| exit.packet);
        prop_assert_eq!(eager, lazy);
    }

    #[test]
    fn a_wakeup_is_never_later_than_the_packet_it_is_for(
        acts in prop::collection::vec(any_act(), 1..120)
    ) {
        let mut link = both(plain(5e6, 10));
        let mut now = Instant::ZERO;
        for (number, (wait_us, act)) in acts.into_iter().enumerate() {
            now = now + Duration::from_micros(wait_us);
            while let Some(at) = link.next_wakeup().filter(|at| *at <= now) {
                while let Some(exit) = link.poll(at) {
                    prop_assert_eq!(exit.at, at);
                }
                prop_assert!(link.next_wakeup().is_none_or(|next| next > at));
            }
            match act {
                Act::Send(direction, bytes) => {
                    let _ = link.send(now, direction, PacketId(number as u64), bytes);
                    while link.poll(now).is_some() {}
                }
                Act::Set(direction, params) => link.set(now, direction, params),
                Act::Occupy(us) => {
                    link.occupy(now, Duration::from_micros(us));
                }
                Act::Switch(_) => {}
            }
        }
    }

    #[test]
    fn nothing_is_faster_than_the_rate_or_earlier_than_the_delay(
        sizes in prop::collection::vec((0u64..3000, 40u32..1501), 1..200),
        bit_s in 1e5..1e9,
        delay_ms in 0u64..50,
    ) {
        let mut link = both(plain(bit_s, delay_ms));
        let mut now = Instant::ZERO;
        let mut sent = Vec::new();
        for (wait_us, bytes) in sizes {
            now = now + Duration::from_micros(wait_us);
            if link.send(now, Direction::Up, PacketId(sent.len() as u64), bytes).is_ok() {
                sent.push((now, bytes));
            }
        }
        let mut free = Instant::ZERO;
        while let Some(exit) = link.poll(now + Duration::from_secs(1000)) {
            let (entered, bytes) = sent[exit.packet.0 as usize];
            let wire = Duration::from_secs_f64(f64::from(bytes) * 8.0 / bit_s);
            let earliest = entered.max(free) + wire;
            let passed = exit.at - Duration::from_millis(delay_ms);
            prop_assert!(passed + Duration::from_nanos(2) >= earliest);
            prop_assert!(passed <= earliest + Duration::from_nanos(2));
            free = passed;
        }
    }

    #[test]
    fn mahimahi_text_never_panics(text in "[0-9 \r\n+-]{0,60}") {
        let _ = mahimahi::parse("any", &text);
    }
}

#[test]
fn the_ratio_of_packets_lost_is_the_configured_one() {
    let mut link = both(rate(f64::INFINITY, 1, 0.1, QueueLimit::Packets(0)));
    let n = 20_000;
    for packet in 0..n {
        let at = Instant::from_nanos(packet * 1000);
        assert_eq!(link.send(at, Direction::Up, PacketId(packet), 100), Ok(()));
    }
    let lost =
        core::iter::from_fn(|| link.poll(ms(1000))).filter(|exit| exit.dropped == Some(DropReason::Loss)).count();
    let share = lost as f64 / n as f64;
    assert!((share - 0.1).abs() < 0.01, "{share}");
}

#[test]
fn the_error_of_a_trace_names_file_and_line() {
    for (text, expected) in [
        ("", "t.up:1: the trace is empty; it needs at least one line"),
        ("1\n2x\n", "t.up:2: \"2x\" is not a whole number of milliseconds"),
        ("1\n\n3\n", "t.up:2: \"\" is not a whole number of milliseconds"),
        ("+1\n", "t.up:1: \"+1\" is not a whole number of milliseconds"),
        ("5\n4\n", "t.up:2: 4 ms after 5 ms; times must not fall"),
        ("0\n0\n", "t.up:2: the trace ends at 0 ms; its last line is its length and must be above 0"),
    ] {
        let error = mahimahi::parse("t.up", text).expect_err(text);
        assert_eq!(alloc::format!("{error}"), expected);
    }
    assert_eq!(mahimahi::parse("t.up", "0\n5\r\n5\n"), Ok(vec![0, 5, 5]));
}
