use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The last samples after `ms` in which two paths carry so many bytes each 10 ms, the first full.
fn carried(rates: &mut Rates, from_ms: u64, ms: u64, bytes: [u64; 2], total: &mut [u64; 2]) -> Vec<Carried> {
    for at in (from_ms..from_ms + ms).step_by(10) {
        for place in 0..2 {
            total[place] += bytes[place];
            let unacked = if place == 0 { 10 } else { 0 };
            let transport = Transport { bytes_acked: total[place], unacked, ..Transport::IDLE };
            rates.observe(Instant::from_millis(at), PathId(place as u8), &transport);
        }
    }
    [0, 1].map(|place| of(rates, place)).to_vec()
}

fn of(rates: &Rates, place: u8) -> Carried {
    rates.carried(PathId(place))
}

#[test]
fn rates_of_a_second_come_with_that_of_the_fastest_other_path() {
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    let now = carried(&mut rates, 0, 3000, [1250, 12_500], &mut total);
    let is = |value: f64, bit_s: f64| (value / bit_s - 1.0).abs() < 0.05;
    assert!(is(now[0].bit_s, 1e6) && is(now[0].fastest_other_bit_s, 1e7), "{now:?}");
    assert!(now[0].is_full && now[0].constant_for == SECOND && !now[1].is_full, "{now:?}");
    assert!(is(now[1].fastest_other_bit_s, 1e6), "{now:?}");
    let after = carried(&mut rates, 3000, 2000, [1250, 0], &mut total);
    assert!(is(after[0].fastest_other_bit_s, 1e7), "what it carried within the last minute: {after:?}");
}

#[test]
fn what_is_lost_and_what_waits_in_the_network_is_measured() {
    let mut rates = Rates::default();
    for at in (0..2000).step_by(10) {
        let (bytes_acked, retransmitted) = (at * 1424 / 10, at as u32 / 100);
        let (rtt, min_rtt) = (Duration::from_millis(50), Some(Duration::from_millis(40)));
        let transport = Transport { bytes_acked, retransmitted, unacked: 10, rtt, min_rtt, ..Transport::IDLE };
        rates.observe(Instant::from_millis(at), PathId(0), &transport);
    }
    let carried = of(&rates, 0);
    assert!((carried.loss - 1.0 / 11.0).abs() < 0.01, "{carried:?}");
    assert_eq!(carried.queued, Some(Duration::from_millis(10)));
}

#[test]
fn what_arrives_beyond_a_hole_counts_when_it_arrives_and_a_queue_is_more_than_the_path_takes() {
    let mut rates = Rates::default();
    for step in 0..200_u32 {
        // A hole of 50 samples: then all is acknowledged at once.
        let (bytes_acked, sacked) = (u64::from(step / 50 * 50) * 1424, step % 50);
        let (rtt, min_rtt) = (Duration::from_millis(400), Some(Duration::from_millis(40)));
        let transport = Transport { bytes_acked, sacked, unacked: 5, rtt, min_rtt, ..Transport::IDLE };
        rates.observe(Instant::from_millis(u64::from(step) * 10), PathId(0), &transport);
    }
    let carried = of(&rates, 0);
    assert!(
        carried.constant_for == SECOND && carried.is_full && (carried.bit_s / 1.139e6 - 1.0).abs() < 0.05,
        "{carried:?}"
    );
}

#[test]
fn a_rate_that_fell_is_constant_half_a_second_later_and_another_subflow_counts_from_0() {
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    carried(&mut rates, 0, 2000, [12_500, 0], &mut total);
    let falling = carried(&mut rates, 2000, 300, [1250, 0], &mut total);
    assert_eq!(falling[0].constant_for, Duration::ZERO, "{falling:?}");
    let fallen = carried(&mut rates, 2300, 300, [1250, 0], &mut total);
    assert!(fallen[0].constant_for == SECOND / 2 && fallen[0].bit_s < 1.1e6, "{fallen:?}");
    total = [0; 2];
    let again = carried(&mut rates, 2600, 1500, [1250, 0], &mut total);
    assert!(again[0].constant_for == SECOND && again[0].bit_s < 1.1e6, "{again:?}");
}

#[test]
fn an_interval_shows_the_rate_of_a_path_in_which_packets_wait() {
    let of = |waited_ms: u64| {
        let (mut rates, mut bytes_acked) = (Rates::default(), 0_u64);
        for at in (0..2300).step_by(10) {
            bytes_acked += if at < 2000 { 12_500 } else { 1250 };
            let (rtt, min_rtt) = (Duration::from_millis(40 + waited_ms), Some(Duration::from_millis(40)));
            let transport = Transport { bytes_acked, unacked: 10, rtt, min_rtt, ..Transport::IDLE };
            rates.observe(Instant::from_millis(at), PathId(0), &transport);
        }
        of(&rates, 0)
    };
    let (queued, policed) = (of(300), of(5));
    assert!(queued.constant_for == SECOND / 4 && (queued.bit_s / 1e6 - 1.0).abs() < 0.1, "{queued:?}");
    assert_eq!(policed.constant_for, Duration::ZERO, "{policed:?}");
}

#[test]
fn a_path_that_is_full_counts_by_what_it_delivers_now_one_that_has_room_by_what_it_did() {
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    carried(&mut rates, 0, 2000, [12_500, 1250], &mut total);
    let fades = carried(&mut rates, 2000, 1000, [1250, 1250], &mut total);
    assert!((fades[1].fastest_other_bit_s / 1e6 - 1.0).abs() < 0.1, "{fades:?}");
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    carried(&mut rates, 0, 2000, [1250, 12_500], &mut total);
    let has_room = carried(&mut rates, 2000, 1000, [1250, 1250], &mut total);
    assert!((has_room[0].fastest_other_bit_s / 1e7 - 1.0).abs() < 0.1, "{has_room:?}");
}

#[test]
fn a_slow_start_is_not_constant() {
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    for round in 0..8 {
        let now = carried(&mut rates, round * 250, 250, [570 << round, 0], &mut total);
        assert!(now.iter().all(|carried| carried.constant_for == Duration::ZERO), "{now:?}");
    }
}

/// What is received over a path at 1 Mbit/s after a second, with so many segments in a hundred out of order, and this RTT
/// of the receiver beside a minimum of 40 ms; and whether the other direction carries more.
fn received(out_of_order: u64, rtt_ms: u64, sends_more: bool) -> Carried {
    let mut rates = Rates::default();
    for step in 0..200_u64 {
        let sent = if sends_more { step * 2500 } else { step * 50 };
        let transport = Transport {
            bytes_received: step * 1250,
            out_of_order: (step * out_of_order / 100) as u32,
            receive_rtt: Some(Duration::from_millis(rtt_ms)),
            min_rtt: Some(Duration::from_millis(40)),
            bytes_acked: sent,
            ..Transport::IDLE
        };
        rates.observe(Instant::from_millis(step * 10), PathId(0), &transport);
    }
    of(&rates, 0)
}

#[test]
fn what_is_received_fills_a_path_if_much_comes_out_of_order_or_waits() {
    for (out_of_order, rtt_ms, is_full) in [(30, 45, true), (3, 45, false), (0, 300, true), (0, 45, false)] {
        let carried = received(out_of_order, rtt_ms, false);
        assert!(carried.is_received() && carried.is_from_peer() == Some(true), "{carried:?}");
        assert!((carried.bit_s / 1e6 - 1.0).abs() < 0.05, "{carried:?}");
        assert_eq!(carried.is_full, is_full, "{out_of_order} of 100 segments, {rtt_ms} ms: {carried:?}");
        assert_eq!(carried.constant_for == SECOND, is_full, "{carried:?}");
    }
    let mut sparse = Rates::default();
    for step in 0..400_u64 {
        let (bytes_received, min_rtt) = (step / 20 * 1000, Some(Duration::from_millis(40)));
        let receive_rtt = Some(Duration::from_millis(230));
        let transport = Transport { bytes_received, receive_rtt, min_rtt, ..Transport::IDLE };
        sparse.observe(Instant::from_millis(step * 10), PathId(0), &transport);
    }
    assert!(!of(&sparse, 0).is_full, "a message each 0.2 s: {:?}", of(&sparse, 0));
    let sent = received(30, 300, true);
    assert!(!sent.is_received() && !sent.is_full && (sent.bit_s / 2e6 - 1.0).abs() < 0.05, "{sent:?}");
    assert_eq!(of(&Rates::default(), 3).is_from_peer(), None, "nothing was carried");
}

#[test]
fn what_is_sent_while_a_path_is_full_comes_with_what_is_usually_sent() {
    let (mut rates, mut total) = (Rates::default(), [0; 2]);
    let mut send = |seconds: core::ops::Range<u64>, bytes: [u64; 2], unacked: u32| {
        for at in (seconds.start * 1000..seconds.end * 1000).step_by(10) {
            for place in 0..2 {
                total[place] += bytes[place];
                let unacked = if place == 0 { unacked } else { 0 };
                let transport = Transport { bytes_acked: total[place], unacked, ..Transport::IDLE };
                rates.observe(Instant::from_millis(at), PathId(place as u8), &transport);
            }
        }
        [0, 1].map(|place| of(&rates, place).sent_of_usual)
    };
    send(0..5, [250, 250], 1);
    assert_eq!(send(5..7, [200, 0], 10), [None; 2], "no path carried alone");
    assert_eq!(send(7..12, [500, 0], 1), [None; 2], "no path is full");
    let [Some([sent, usual]), None] = send(12..14, [200, 0], 10) else { panic!() };
    assert!((sent / 1.6e5 - 1.0).abs() < 0.05 && (usual / 4e5 - 1.0).abs() < 0.05, "{sent} of {usual} bit/s");
    assert_eq!(send(14..24, [200, 0], 10), [None; 2], "it was long ago");
}
