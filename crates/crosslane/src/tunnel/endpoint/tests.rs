mod limits;
mod testbed;
mod vehicles;

use std::net::{IpAddr, Ipv4Addr};

use crosslane_core::rng::Rng;
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::wire::{compressed_gre, gre};
use proptest::prelude::*;

use super::contact::SILENCE_TIMEOUT;
use super::*;
use testbed::{Flight, GATEWAY, MTU, PATHS, Side, Testbed, inner, packet};

#[test]
fn packets_arrive_once_and_in_order_in_both_directions() {
    for is_encrypted in [true, false] {
        let mut testbed = Testbed::new(1, is_encrypted);
        testbed.run(100);
        let up: Vec<Vec<u8>> = (0..500).map(|number| packet(1, GATEWAY, number, 1000)).collect();
        let down: Vec<Vec<u8>> = (0..500).map(|number| packet(GATEWAY, 1, number, 700)).collect();
        for (up, down) in up.iter().zip(&down) {
            assert_eq!(testbed.offer(1, up.clone()), Some(0));
            assert_eq!(testbed.offer(GATEWAY, down.clone()), Some(0));
            testbed.step();
        }
        testbed.run(500);
        assert_eq!(testbed.received(GATEWAY), up);
        assert_eq!(testbed.received(1), down);
        // The response to the initiation arrives over each path, and counts once.
        assert_eq!((testbed.rejected(GATEWAY), testbed.rejected(1)), (0, u64::from(is_encrypted)));
    }
}

/// Recorded traffic of both endpoints, and datagrams that have not arrived.
fn recorded() -> (Testbed, Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut testbed = Testbed::new(1, true);
    testbed.recorded = Some(Vec::new());
    for number in 0..300 {
        testbed.offer(1, packet(1, GATEWAY, number, 100 + number as usize));
        testbed.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
        testbed.step();
    }
    testbed.run(50);
    let recorded = testbed.recorded.take().unwrap();
    testbed.offer(1, packet(1, GATEWAY, 1000, 300));
    testbed.sides[GATEWAY].is_up = false;
    testbed.step();
    let held_back =
        testbed.wire.iter().filter(|flight| flight.to == GATEWAY).map(|flight| flight.bytes.clone()).collect();
    testbed.wire.clear();
    testbed.step();
    testbed.wire.clear();
    testbed.sides[GATEWAY].is_up = true;
    testbed.received(GATEWAY);
    testbed.received(1);
    (testbed, recorded.into_iter().map(|flight| flight.bytes).collect(), held_back)
}

/// A forged datagram, or one that was received before.
fn forged(random: &mut Rng, old: &[Vec<u8>], fresh: &[Vec<u8>]) -> Vec<u8> {
    let below = |random: &mut Rng, limit: usize| random.below(limit as u32) as usize;
    let kind = below(random, 6);
    let all = old.len() + fresh.len();
    let any = |place: usize| old.get(place).unwrap_or_else(|| &fresh[place - old.len()]);
    let mut datagram = if kind == 0 { old[below(random, old.len())].clone() } else { any(below(random, all)).clone() };
    match kind {
        // Replayed unchanged.
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
fn no_forged_replayed_truncated_or_flipped_datagram_is_delivered_or_answered() {
    const COUNT: usize = 1_000_000;
    let (mut testbed, old, fresh) = recorded();
    assert!(old.len() > 600 && !fresh.is_empty(), "{} {}", old.len(), fresh.len());
    let mut random = Rng::new(5, "forged");
    let unknown = PathAddress { via: 0, to: (Ipv4Addr::new(203, 0, 113, 9), 1).into(), from: None };
    let rejected_before = testbed.rejected(GATEWAY);
    let mut tried = 0;
    for _ in 0..COUNT {
        let datagram = forged(&mut random, &old, &fresh);
        // Two flips of one bit, or two halves of one datagram, restore it.
        if fresh.contains(&datagram) {
            continue;
        }
        tried += 1;
        let Side { endpoint, state, received, .. } = &mut testbed.sides[GATEWAY];
        let reply = endpoint.on_datagram(state, testbed.now, unknown, 0, &datagram);
        assert_eq!(reply, None, "{datagram:02x?}");
        assert!(state.inputs.is_empty(), "{datagram:02x?}");
        endpoint.flush(state, testbed.now, |packet| received.push(packet.packet().into()));
    }
    assert_eq!(testbed.received(GATEWAY), Vec::<Vec<u8>>::new());
    assert_eq!(testbed.rejected(GATEWAY) - rejected_before, tried);
    assert!(testbed.until_bidirectional(1, 1000) < 100, "the tunnel still works");
}

#[test]
fn a_path_that_comes_late_is_initiated_over_at_once() {
    let testbed = Testbed::new(1, true);
    let (endpoint, now) = (&testbed.sides[1].endpoint, testbed.now);
    let initiations = || {
        let mut count = 0;
        endpoint.maintain(now, testbed.unix_ns, |_| count += 1);
        count
    };
    (0..PATHS).for_each(|path| endpoint.set_path(now, PathId(path as u8), None));
    assert_eq!(initiations(), 0);
    endpoint.set_path(now, PathId(1), Some(1));
    assert_eq!((initiations(), initiations()), (1, 0));
}

#[test]
fn a_source_that_is_not_the_vehicles_is_dropped() {
    for is_encrypted in [true, false] {
        let mut testbed = Testbed::new(1, is_encrypted);
        testbed.run(100);
        testbed.offer(1, packet(2, GATEWAY, 1, 100));
        testbed.offer(1, packet(1, GATEWAY, 2, 100));
        testbed.run(300);
        assert_eq!(testbed.received(GATEWAY), [packet(1, GATEWAY, 2, 100)]);
        assert_eq!(testbed.misrouted(GATEWAY), 1);
    }
}

#[test]
fn each_vehicle_gets_its_own_packets() {
    let mut testbed = Testbed::new(2, true);
    testbed.run(100);
    for number in 0..50 {
        for vehicle in [1, 2] {
            assert_eq!(testbed.offer(GATEWAY, packet(GATEWAY, vehicle, number, 100)), Some(vehicle - 1));
            testbed.offer(vehicle, packet(vehicle, GATEWAY, number, 100));
        }
        testbed.step();
    }
    assert_eq!(testbed.offer(GATEWAY, packet(GATEWAY, 3, 0, 100)), None, "no vehicle has this address");
    // A vehicle cannot use the other's address.
    testbed.offer(1, packet(2, GATEWAY, 99, 100));
    testbed.run(300);
    let of = |vehicle| (0..50).map(|number| packet(GATEWAY, vehicle, number, 100)).collect::<Vec<_>>();
    assert_eq!((testbed.received(1), testbed.received(2)), (of(1), of(2)));
    assert_eq!(testbed.received(GATEWAY).len(), 100);
    assert_eq!(testbed.misrouted(GATEWAY), 2);
}

#[test]
fn two_vehicles_with_one_key_are_noticed() {
    let mut testbed = Testbed::new(2, true);
    testbed.run(1000);
    let doubled = |testbed: &Testbed| {
        let status = testbed.sides[GATEWAY].endpoint.status(testbed.now);
        status.peers.iter().map(|peer| peer.is_doubled).collect::<Vec<_>>()
    };
    testbed.restart(1);
    testbed.run(5000);
    assert_eq!(doubled(&testbed), [false; 2]);
    let keys = testbed.keys.as_mut().unwrap();
    keys[2] = keys[1].clone();
    testbed.restart(2);
    for number in 0..500 {
        for vehicle in [1, 2] {
            testbed.offer(vehicle, packet(vehicle, GATEWAY, number, 100));
        }
        testbed.run(10);
    }
    assert_eq!(doubled(&testbed), [true, false]);
}

#[test]
fn traffic_flows_within_a_second_of_a_restart_of_either_endpoint() {
    for is_encrypted in [true, false] {
        for side in [GATEWAY, 1] {
            let mut testbed = Testbed::new(1, is_encrypted);
            testbed.until_bidirectional(1, 1000);
            // So that the flows' sequence numbers are far from 0.
            assert_eq!(testbed.exchange(1000), [1000, 1000]);
            for away_ms in [0, 700, 20_000] {
                testbed.sides[side].is_up = false;
                for number in 0..away_ms / 10 {
                    testbed.offer(1 - side, packet(1 - side, side, number as u32, 100));
                    testbed.run(10);
                }
                testbed.restart(side);
                let outage_ms = testbed.until_bidirectional(1, 5000);
                assert!(outage_ms < 1000, "side {side} after {away_ms} ms, encrypted {is_encrypted}: {outage_ms} ms");
                let received = testbed.exchange(200);
                assert!(received.iter().all(|count| *count >= 190), "{received:?} of 200 packets arrived afterwards");
                testbed.run(1000);
            }
        }
    }
}

#[test]
fn replies_go_to_the_newest_source_address_of_a_path() {
    let mut testbed = Testbed::new(1, true);
    testbed.until_bidirectional(1, 1000);
    testbed.run(500);
    for (path, last) in [(0, 77), (1, 78)] {
        testbed.addresses[0][path] = (Ipv4Addr::new(203, 0, 113, last), 1234).into();
    }
    let outage_ms = testbed.until_bidirectional(1, 1000);
    assert!(outage_ms < 500, "{outage_ms} ms");
    testbed.recorded = Some(Vec::new());
    testbed.until_bidirectional(1, 1000);
}

#[test]
fn a_replayed_datagram_does_not_change_the_peers_address() {
    let (mut testbed, old, _) = recorded();
    let attacker = PathAddress { via: 0, to: (Ipv4Addr::new(203, 0, 113, 66), 6).into(), from: None };
    for datagram in &old {
        let Side { endpoint, state, .. } = &mut testbed.sides[GATEWAY];
        endpoint.on_datagram(state, testbed.now, attacker, 0, datagram);
    }
    let known = testbed.sides[GATEWAY].endpoint.peers.first().unwrap().addresses();
    assert!(known.iter().flatten().all(|address| *address != attacker));
}

/// The header inside has no path.
#[test]
fn a_path_address_is_learned_for_the_path_that_the_message_is_encrypted_for() {
    let mut testbed = Testbed::new(1, true);
    testbed.until_bidirectional(1, 1000);
    let session = testbed.sides[1].endpoint.keys.as_ref().unwrap().security().session_for(testbed.now, 0).unwrap();
    let elsewhere = PathAddress { via: 0, to: (Ipv4Addr::new(203, 0, 113, 66), 6).into(), from: None };
    for sealed in [1, 0] {
        let mut expected = testbed.sides[GATEWAY].endpoint.peers.first().unwrap().addresses();
        let key = GreKey { path: PathId(1 - sealed), flow: 9, sequence: 0 }.key();
        let header = gre::Header { payload: gre::Payload::Ipv4, key: Some(key), sequence: Some(0), checksum: false };
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        compressed_gre::write(&header, &mut plain).unwrap();
        plain.extend(packet(1, GATEWAY, 5, 100));
        session.seal(sealed, &plain, &mut datagram).unwrap();
        let Side { endpoint, state, .. } = &mut testbed.sides[GATEWAY];
        assert_eq!(endpoint.on_datagram(state, testbed.now, elsewhere, 0, &datagram), None);
        expected[usize::from(sealed)] = Some(elsewhere);
        assert_eq!(endpoint.peers.first().unwrap().addresses(), expected, "encrypted for {sealed}");
    }
}

#[test]
fn without_a_gateway_memory_is_bounded_and_there_is_no_panic() {
    for (is_encrypted, is_known) in [(true, false), (true, true), (false, true)] {
        let mut testbed = Testbed::new(1, is_encrypted);
        if is_known {
            testbed.until_bidirectional(1, 1000);
        }
        testbed.sides[GATEWAY].is_up = false;
        for number in 0..40_000 {
            testbed.offer(1, packet(1, GATEWAY, number, 100));
            if number % 4 == 0 {
                testbed.step();
                testbed.sides[1].answers.clear();
            }
        }
        let dropped = testbed.sides[1].endpoint.peers.first().unwrap().multipath().unwrap().dropped();
        assert!(dropped > 20_000, "encrypted {is_encrypted}, known {is_known}: only {dropped} dropped");
        let silent_ms = testbed.sides[1].endpoint.unanswered(testbed.now).map(|wait| wait.as_millis());
        assert!(silent_ms.is_some_and(|ms| ms > 9000), "{silent_ms:?}");
        testbed.restart(GATEWAY);
        assert!(testbed.until_bidirectional(1, 5000) < 1000);
        testbed.run(50);
        assert_eq!(testbed.sides[1].endpoint.unanswered(testbed.now).filter(|wait| *wait > SILENCE_TIMEOUT), None);
    }
}

#[test]
fn an_idle_tunnel_does_not_count_as_silent() {
    for is_encrypted in [true, false] {
        let mut testbed = Testbed::new(1, is_encrypted);
        testbed.until_bidirectional(1, 1000);
        for ms in 0..200_000 {
            testbed.step();
            let unanswered = testbed.sides[1].endpoint.unanswered(testbed.now);
            assert!(unanswered.is_none_or(|wait| wait < SILENCE_TIMEOUT), "{unanswered:?} after {ms} ms");
        }
    }
}

#[test]
fn packets_longer_than_the_mtu_are_answered_and_others_are_carried() {
    let mut testbed = Testbed::new(1, true);
    testbed.run(100);
    let head = 28;
    testbed.offer(1, packet(1, GATEWAY, 1, MTU as usize - head));
    assert!(testbed.sides[1].answers.is_empty());
    testbed.offer(1, packet(1, GATEWAY, 2, MTU as usize - head + 1));
    let message = testbed.sides[1].answers.pop().unwrap();
    let parsed = IpView::parse(&message).unwrap();
    assert_eq!((parsed.protocol(), parsed.destination()), (1, IpAddr::from(inner(1))));
    // Destination unreachable, fragmentation needed, and the MTU (RFC 1191).
    assert_eq!(parsed.payload()[..2], [3, 4]);
    assert_eq!(parsed.payload()[6..8], (MTU as u16).to_be_bytes());
    testbed.run(300);
    assert_eq!(testbed.received(GATEWAY), [packet(1, GATEWAY, 1, MTU as usize - head)]);
}

#[test]
fn an_rfc_8086_peer_receives_neither_key_nor_sequence_number_nor_control() {
    let mut testbed = Testbed::of(1, false, true);
    testbed.recorded = Some(Vec::new());
    for number in 0..20 {
        testbed.offer(1, packet(1, GATEWAY, number, 100));
        testbed.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
        testbed.run(10);
    }
    // Packets queued at the gateway before it had received from the peer were kept.
    let of = |from, to| (0..20).map(|number| packet(from, to, number, 100)).collect::<Vec<_>>();
    assert_eq!((testbed.received(GATEWAY), testbed.received(1)), (of(1, GATEWAY), of(GATEWAY, 1)));
    let recorded = testbed.recorded.take().unwrap();
    assert_eq!(recorded.len(), 40, "one datagram for each packet");
    for flight in &recorded {
        assert_eq!(flight.bytes[..4], [0, 0, 8, 0], "{:02x?}", flight.bytes);
        assert_eq!(flight.to == GATEWAY, flight.address.to == testbed.addresses[0][0], "the first path only");
    }
    testbed.sides[1].endpoint.set_path(testbed.now, PathId(0), None);
    testbed.offer(1, packet(1, GATEWAY, 99, 100));
    testbed.run(5);
    testbed.offer(GATEWAY, packet(GATEWAY, 1, 99, 100));
    testbed.recorded = Some(Vec::new());
    testbed.run(5);
    assert_eq!(testbed.recorded.as_ref().unwrap()[0].address.via, 1, "back over the path of the newest packet");
    assert_eq!(testbed.received(1).len(), 1);
}

/// Datagrams of an attacker: random, and such as resemble ours.
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
    fn any_datagrams_leave_an_endpoint_working(
        datagrams in proptest::collection::vec((strange(), any::<u8>(), 0u64..300), 1..60), kind in 0..3
    ) {
        let mut testbed = Testbed::of(1, kind == 0, kind == 1);
        for (bytes, tos, wait_ms) in datagrams {
            let address = PathAddress { via: 0, to: testbed.addresses[0][0], from: None };
            testbed.wire.push(Flight { to: GATEWAY, address, tos, bytes });
            testbed.offer(GATEWAY, packet(GATEWAY, 1, 7, 100));
            testbed.step();
            testbed.now = testbed.now + Duration::from_millis(wait_ms);
        }
        for packet in testbed.received(GATEWAY) {
            let source = IpView::parse(&packet).map(|packet| packet.source());
            prop_assert_eq!(source, Some(IpAddr::from(inner(1))));
        }
        prop_assert!(testbed.wire.len() < 5000);
    }
}
