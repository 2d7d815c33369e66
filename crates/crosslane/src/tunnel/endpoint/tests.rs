mod bed;
mod limits;

use std::net::Ipv4Addr;

use crosslane_core::rng::Rng;
use crosslane_core::tunnel::wire::gre;
use proptest::prelude::*;

use super::*;
use bed::{Bed, Flight, GATEWAY, MTU, Side, inner, packet};

#[test]
fn packets_go_both_ways_once_and_in_order() {
    for is_encrypted in [true, false] {
        let mut bed = Bed::new(1, is_encrypted);
        bed.run(100);
        let up: Vec<Vec<u8>> = (0..500).map(|number| packet(1, GATEWAY, number, 1000)).collect();
        let down: Vec<Vec<u8>> = (0..500).map(|number| packet(GATEWAY, 1, number, 700)).collect();
        for (up, down) in up.iter().zip(&down) {
            assert_eq!(bed.offer(1, up.clone()), Some(0));
            assert_eq!(bed.offer(GATEWAY, down.clone()), Some(0));
            bed.step();
        }
        bed.run(500);
        assert_eq!(bed.came(GATEWAY), up);
        assert_eq!(bed.came(1), down);
        // The answer to the initiation comes over each path, and counts once.
        assert_eq!((bed.refused(GATEWAY), bed.refused(1)), (0, u64::from(is_encrypted)));
    }
}

/// Traffic of both ends, as recorded, and such as has not arrived.
fn recorded() -> (Bed, Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut bed = Bed::new(1, true);
    bed.seen = Some(Vec::new());
    for number in 0..300 {
        bed.offer(1, packet(1, GATEWAY, number, 100 + number as usize));
        bed.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
        bed.step();
    }
    bed.run(50);
    let seen = bed.seen.take().unwrap();
    bed.offer(1, packet(1, GATEWAY, 1000, 300));
    bed.sides[GATEWAY].is_up = false;
    bed.step();
    let held_back = bed.wire.iter().filter(|flight| flight.to == GATEWAY).map(|flight| flight.bytes.clone()).collect();
    bed.wire.clear();
    bed.step();
    bed.wire.clear();
    bed.sides[GATEWAY].is_up = true;
    bed.came(GATEWAY);
    bed.came(1);
    (bed, seen.into_iter().map(|flight| flight.bytes).collect(), held_back)
}

/// A datagram that nobody of ours sent, or that came before.
fn forged(random: &mut Rng, old: &[Vec<u8>], fresh: &[Vec<u8>]) -> Vec<u8> {
    let below = |random: &mut Rng, most: usize| random.below(most as u32) as usize;
    let kind = below(random, 6);
    let all = old.len() + fresh.len();
    let any = |place: usize| old.get(place).unwrap_or_else(|| &fresh[place - old.len()]);
    let mut datagram = if kind == 0 { old[below(random, old.len())].clone() } else { any(below(random, all)).clone() };
    match kind {
        // Replayed as it was.
        0 => {}
        1 => datagram.truncate(below(random, datagram.len())),
        2 => {
            for _ in 0..=below(random, 3) {
                let bit = below(random, datagram.len() * 8);
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
        }
        // The head of one and the tail of another.
        3 => {
            let other = any(below(random, all));
            let cut = 1 + below(random, other.len().min(datagram.len()) - 1);
            datagram.truncate(cut);
            datagram.extend(&other[cut..]);
        }
        4 => datagram.extend((0..=below(random, 40)).map(|byte| byte as u8)),
        _ => {
            let kept = below(random, 13);
            datagram.iter_mut().skip(kept).for_each(|byte| *byte = random.below(256) as u8);
        }
    }
    datagram
}

#[test]
fn nothing_forged_replayed_cut_or_flipped_is_delivered_or_answered() {
    const COUNT: usize = 1_000_000;
    let (mut bed, old, fresh) = recorded();
    assert!(old.len() > 600 && !fresh.is_empty(), "{} {}", old.len(), fresh.len());
    let mut random = Rng::new(5, "forged");
    let stranger = Way { via: 0, to: (Ipv4Addr::new(203, 0, 113, 9), 1).into(), from: None };
    let refused = bed.refused(GATEWAY);
    let mut tried = 0;
    for _ in 0..COUNT {
        let datagram = forged(&mut random, &old, &fresh);
        // Two flips of one bit, or two halves of one, are what was there before.
        if fresh.contains(&datagram) {
            continue;
        }
        tried += 1;
        let Side { end, intake, came, .. } = &mut bed.sides[GATEWAY];
        let reply = end.take_out(intake, bed.now, stranger, 0, &datagram);
        assert_eq!(reply, None, "{datagram:02x?}");
        assert!(intake.inputs.is_empty(), "{datagram:02x?}");
        end.settle(intake, bed.now, |packet| came.push(packet.into()));
    }
    assert_eq!(bed.came(GATEWAY), Vec::<Vec<u8>>::new());
    assert_eq!(bed.refused(GATEWAY) - refused, tried);
    assert!(bed.until_both_ways(1, 1000) < 100, "the tunnel goes on");
}

#[test]
fn a_source_that_is_not_the_vehicles_is_dropped() {
    for is_encrypted in [true, false] {
        let mut bed = Bed::new(1, is_encrypted);
        bed.run(100);
        bed.offer(1, packet(2, GATEWAY, 1, 100));
        bed.offer(1, packet(1, GATEWAY, 2, 100));
        bed.run(300);
        assert_eq!(bed.came(GATEWAY), [packet(1, GATEWAY, 2, 100)]);
        assert_eq!(bed.misrouted(GATEWAY), 1);
    }
}

#[test]
fn each_vehicle_gets_its_own_packets() {
    let mut bed = Bed::new(2, true);
    bed.run(100);
    for number in 0..50 {
        for vehicle in [1, 2] {
            assert_eq!(bed.offer(GATEWAY, packet(GATEWAY, vehicle, number, 100)), Some(vehicle - 1));
            bed.offer(vehicle, packet(vehicle, GATEWAY, number, 100));
        }
        bed.step();
    }
    assert_eq!(bed.offer(GATEWAY, packet(GATEWAY, 3, 0, 100)), None, "nobody has this address");
    // One vehicle does not pass for the other.
    bed.offer(1, packet(2, GATEWAY, 99, 100));
    bed.run(300);
    let of = |vehicle| (0..50).map(|number| packet(GATEWAY, vehicle, number, 100)).collect::<Vec<_>>();
    assert_eq!((bed.came(1), bed.came(2)), (of(1), of(2)));
    assert_eq!(bed.came(GATEWAY).len(), 100);
    assert_eq!(bed.misrouted(GATEWAY), 2);
}

#[test]
fn traffic_flows_within_a_second_of_a_restart_of_either_end() {
    for is_encrypted in [true, false] {
        for side in [GATEWAY, 1] {
            let mut bed = Bed::new(1, is_encrypted);
            bed.until_both_ways(1, 1000);
            // So that the flows are far from their beginning.
            assert_eq!(bed.both_ways(1000), [1000, 1000]);
            for away_ms in [0, 700, 20_000] {
                bed.sides[side].is_up = false;
                for number in 0..away_ms / 10 {
                    bed.offer(1 - side, packet(1 - side, side, number as u32, 100));
                    bed.run(10);
                }
                bed.restart(side);
                let took_ms = bed.until_both_ways(1, 5000);
                assert!(took_ms < 1000, "side {side} after {away_ms} ms, encrypted {is_encrypted}: {took_ms} ms");
                let came = bed.both_ways(200);
                assert!(came.iter().all(|came| *came >= 190), "{came:?} of 200 packets came afterwards");
                bed.run(1000);
            }
        }
    }
}

#[test]
fn what_comes_from_another_address_is_answered_there() {
    let mut bed = Bed::new(1, true);
    bed.until_both_ways(1, 1000);
    bed.run(500);
    for (path, last) in [(0, 77), (1, 78)] {
        bed.homes[0][path] = (Ipv4Addr::new(203, 0, 113, last), 1234).into();
    }
    let took_ms = bed.until_both_ways(1, 1000);
    assert!(took_ms < 500, "{took_ms} ms");
    bed.seen = Some(Vec::new());
    bed.until_both_ways(1, 1000);
}

#[test]
fn a_forged_address_takes_nobody_there() {
    let (mut bed, old, _) = recorded();
    let thief = Way { via: 0, to: (Ipv4Addr::new(203, 0, 113, 66), 6).into(), from: None };
    for datagram in &old {
        let Side { end, intake, .. } = &mut bed.sides[GATEWAY];
        end.take_out(intake, bed.now, thief, 0, datagram);
    }
    assert!(bed.sides[GATEWAY].end.peers[0].ways.lock().unwrap().iter().flatten().all(|way| *way != thief));
}

/// What is sealed as of one path and says in its GRE key that it is of another tells
/// of neither where it leads.
#[test]
fn a_path_leads_where_packets_come_from_that_are_sealed_as_of_it_and_say_so() {
    let mut bed = Bed::new(1, true);
    bed.until_both_ways(1, 1000);
    let session = lock(bed.sides[1].end.security.as_ref().unwrap()).session_for(bed.now, 0).unwrap();
    let elsewhere = Way { via: 0, to: (Ipv4Addr::new(203, 0, 113, 66), 6).into(), from: None };
    for (sealed, said) in [(0, 1), (1, 0), (1, 1)] {
        let before = *lock(&bed.sides[GATEWAY].end.peers[0].ways);
        let key = GreKey { path: PathId(said), flow: 9, sequence: 0 }.key();
        let header = gre::Header { payload: gre::Payload::Ipv4, key: Some(key), sequence: None, checksum: false };
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        header.write(&packet(1, GATEWAY, 5, 100), &mut plain);
        session.seal(sealed, &plain, &mut datagram).unwrap();
        let Side { end, intake, .. } = &mut bed.sides[GATEWAY];
        assert_eq!(end.take_out(intake, bed.now, elsewhere, 0, &datagram), None);
        let mut after = before;
        if sealed == said {
            after[usize::from(sealed)] = Some(elsewhere);
        }
        assert_eq!(*lock(&end.peers[0].ways), after, "sealed as of {sealed}, said to be of {said}");
    }
}

#[test]
fn without_a_gateway_memory_is_bounded_and_nothing_panics() {
    for (is_encrypted, is_known) in [(true, false), (true, true), (false, true)] {
        let mut bed = Bed::new(1, is_encrypted);
        if is_known {
            bed.until_both_ways(1, 1000);
        }
        bed.sides[GATEWAY].is_up = false;
        for number in 0..40_000 {
            bed.offer(1, packet(1, GATEWAY, number, 100));
            if number % 4 == 0 {
                bed.step();
                bed.sides[1].answers.clear();
            }
        }
        let dropped = bed.sides[1].end.peers[0].tunnel.lock().unwrap().dropped();
        assert!(dropped > 20_000, "encrypted {is_encrypted}, known {is_known}: only {dropped} dropped");
        let silent_ms = bed.sides[1].end.unanswered(bed.now).map(|wait| wait.as_millis());
        assert!(silent_ms.is_some_and(|ms| ms > 9000), "{silent_ms:?}");
        bed.restart(GATEWAY);
        assert!(bed.until_both_ways(1, 5000) < 1000);
        bed.run(50);
        assert_eq!(bed.sides[1].end.unanswered(bed.now).filter(|wait| *wait > SILENCE), None);
    }
}

#[test]
fn a_tunnel_at_rest_is_not_taken_for_silent() {
    for is_encrypted in [true, false] {
        let mut bed = Bed::new(1, is_encrypted);
        bed.until_both_ways(1, 1000);
        for ms in 0..200_000 {
            bed.step();
            let unanswered = bed.sides[1].end.unanswered(bed.now);
            assert!(unanswered.is_none_or(|wait| wait < SILENCE), "{unanswered:?} after {ms} ms");
        }
    }
}

#[test]
fn what_is_too_long_is_answered_and_what_is_not_goes() {
    let mut bed = Bed::new(1, true);
    bed.run(100);
    let head = 28;
    bed.offer(1, packet(1, GATEWAY, 1, MTU as usize - head));
    assert!(bed.sides[1].answers.is_empty());
    bed.offer(1, packet(1, GATEWAY, 2, MTU as usize - head + 1));
    let told = bed.sides[1].answers.pop().unwrap();
    let inner_told = Inner::parse(&told).unwrap();
    assert_eq!((inner_told.protocol(), inner_told.destination()), (1, IpAddr::from(inner(1))));
    // Destination unreachable, fragmentation needed, and the MTU (RFC 1191).
    assert_eq!(inner_told.payload()[..2], [3, 4]);
    assert_eq!(inner_told.payload()[6..8], (MTU as u16).to_be_bytes());
    bed.run(300);
    assert_eq!(bed.came(GATEWAY), [packet(1, GATEWAY, 1, MTU as usize - head)]);
}

#[test]
fn a_standard_peer_sees_neither_key_nor_number_nor_control() {
    let mut bed = Bed::of(1, false, true);
    bed.seen = Some(Vec::new());
    for number in 0..20 {
        bed.offer(1, packet(1, GATEWAY, number, 100));
        bed.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
        bed.run(10);
    }
    // What the gateway was given before it had heard of the peer has waited.
    let of = |from, to| (0..20).map(|number| packet(from, to, number, 100)).collect::<Vec<_>>();
    assert_eq!((bed.came(GATEWAY), bed.came(1)), (of(1, GATEWAY), of(GATEWAY, 1)));
    let seen = bed.seen.take().unwrap();
    assert_eq!(seen.len(), 40, "one datagram for each packet");
    for flight in &seen {
        assert_eq!(flight.bytes[..4], [0, 0, 8, 0], "{:02x?}", flight.bytes);
        assert_eq!(flight.to == GATEWAY, flight.way.to == bed.homes[0][0], "the first path only");
    }
    bed.sides[1].end.set_path(bed.now, PathId(0), None);
    bed.offer(1, packet(1, GATEWAY, 99, 100));
    bed.run(5);
    bed.offer(GATEWAY, packet(GATEWAY, 1, 99, 100));
    bed.seen = Some(Vec::new());
    bed.run(5);
    assert_eq!(bed.seen.as_ref().unwrap()[0].way.via, 1, "back over the path it came by");
    assert_eq!(bed.came(1).len(), 1);
}

#[test]
fn packets_for_a_standard_peer_that_is_not_there_are_bounded() {
    let bed = Bed::of(1, false, true);
    for number in 0..20_000 {
        let end = &bed.sides[GATEWAY].end;
        end.take_in(bed.now, &mut packet(GATEWAY, 1, number, 100), |_| {});
    }
    let waiting = bed.sides[GATEWAY].end.peers[0].bare.lock().unwrap();
    assert_eq!(waiting.len(), MOST_BARE);
    assert_eq!(waiting[MOST_BARE - 1].bytes[28..32], 19_999u32.to_be_bytes(), "the newest are kept");
}

/// Datagrams of anybody: random, and such as pass for ours.
fn strange() -> impl Strategy<Value = Vec<u8>> {
    let random = || proptest::collection::vec(any::<u8>(), 0..120);
    let flags = prop_oneof![Just(0x30u8), Just(0x00), Just(0x20), Just(0x10), Just(0xb0)];
    let kind = prop_oneof![Just([0x08u8, 0x00]), Just([0x86, 0xdd]), Just([0x88, 0xb5])];
    let body = prop_oneof![
        random(),
        random().prop_map(|body| [&[1, 2, 0, 3], &body[..]].concat()),
        any::<u32>().prop_map(|number| packet(1, GATEWAY, number, 40)),
    ];
    let likely = (flags, kind, any::<[u8; 8]>(), body)
        .prop_map(|(flags, kind, words, body)| [&[flags, 0], &kind[..], &words[..], &body[..]].concat());
    prop_oneof![1 => random(), 4 => likely]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_an_end_stays_well(
        datagrams in proptest::collection::vec((strange(), any::<u8>(), 0u64..300), 1..60), kind in 0..3
    ) {
        let mut bed = Bed::of(1, kind == 0, kind == 1);
        for (bytes, tos, wait_ms) in datagrams {
            let way = Way { via: 0, to: bed.homes[0][0], from: None };
            bed.wire.push(Flight { to: GATEWAY, way, tos, bytes });
            bed.offer(GATEWAY, packet(GATEWAY, 1, 7, 100));
            bed.step();
            bed.now = bed.now + Duration::from_millis(wait_ms);
        }
        for packet in bed.came(GATEWAY) {
            let source = Inner::parse(&packet).map(|inner| inner.source());
            prop_assert_eq!(source, Some(IpAddr::from(inner(1))));
        }
        prop_assert!(bed.wire.len() < 5000);
    }
}
