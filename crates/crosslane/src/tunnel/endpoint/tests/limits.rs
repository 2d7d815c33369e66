//! Limits of packet lengths and of queued bytes.

use super::super::queued_bytes::MAX_QUEUED_BYTES;
use super::*;

/// The inner MTU of a vehicle and of its gateway for each other.
fn mtus(testbed: &Testbed, vehicle: usize) -> [u32; 2] {
    let of = |side: usize, peer: usize| testbed.sides[side].endpoint.status(testbed.now).peers[peer].mtu_bytes;
    [of(vehicle, 0), of(GATEWAY, vehicle - 1)]
}

#[test]
fn a_path_with_a_smaller_mtu_shortens_the_packets_of_its_vehicle_only() {
    let mut testbed = Testbed::new(2, true);
    testbed.run(300);
    assert_eq!([mtus(&testbed, 1), mtus(&testbed, 2)], [[MTU; 2]; 2]);
    // Vehicle 1's first path drops longer datagrams silently.
    testbed.narrow = Some((1, 0, 1400));
    for number in 0..600 {
        testbed.offer(1, packet(1, GATEWAY, number, 1350));
        testbed.offer(GATEWAY, packet(GATEWAY, 1, number, 1350));
        testbed.offer(2, packet(2, GATEWAY, number, 1350));
        testbed.step();
    }
    testbed.run(300);
    let narrow = mtus(&testbed, 1);
    assert!(narrow.iter().all(|mtu| (1333..=1341).contains(mtu)), "{narrow:?}");
    assert_eq!(mtus(&testbed, 2), [MTU; 2]);
    testbed.received(GATEWAY);
    for number in 0..100 {
        testbed.offer(1, packet(1, GATEWAY, number, 1280));
        testbed.step();
    }
    testbed.run(300);
    assert_eq!(testbed.received(GATEWAY).len(), 100, "packets within the new MTU arrive");
    testbed.sides[1].answers.clear();
    testbed.offer(1, packet(1, GATEWAY, 1, 1350));
    let message = testbed.sides[1].answers.pop().unwrap();
    assert_eq!(IpView::parse(&message).unwrap().payload()[6..8], (narrow[0] as u16).to_be_bytes());
}

#[test]
fn packets_of_the_ipv6_minimum_mtu_pass_a_smaller_path_in_fragments() {
    let mut testbed = Testbed::new(1, true);
    testbed.narrow = Some((1, 0, 1000));
    testbed.sides[1].endpoint.set_path(testbed.now, PathId(1), None);
    testbed.run(1000);
    assert_eq!(mtus(&testbed, 1), [1280; 2]);
    for number in 0..100 {
        testbed.offer(1, packet(1, GATEWAY, number, 1280 - 28));
        testbed.step();
    }
    testbed.run(300);
    assert_eq!((testbed.received(GATEWAY).len(), testbed.sides[1].answers.len()), (100, 0));
}

#[test]
fn queues_of_absent_vehicles_are_bounded_in_total_and_expire() {
    let testbed = Testbed::new(20, true);
    for vehicle in 1..=20 {
        for number in 0..8500 {
            let endpoint = &testbed.sides[GATEWAY].endpoint;
            endpoint.ingress(testbed.now, &mut packet(GATEWAY, vehicle, number, 1200), |_| {});
        }
    }
    let waiting = |testbed: &Testbed| {
        let endpoint = &testbed.sides[GATEWAY].endpoint;
        let of_each: Vec<u64> =
            endpoint.peers.iter().map(|(_, peer)| peer.multipath().unwrap().waiting_bytes()).collect();
        assert_eq!(of_each.iter().sum::<u64>(), endpoint.queued.total());
        of_each
    };
    let of_each = waiting(&testbed);
    let all: u64 = of_each.iter().sum();
    assert!((MAX_QUEUED_BYTES - 2000..=MAX_QUEUED_BYTES).contains(&all), "{all}");
    let (min, max) = (of_each.iter().min().unwrap(), of_each.iter().max().unwrap());
    assert!(max - min < 5000, "the longest queue drops first: {of_each:?}");
    testbed.sides[GATEWAY].endpoint.maintain(testbed.now + Duration::from_secs(6), testbed.unix_ns, |_| {});
    assert_eq!(waiting(&testbed), [0; 20]);
}
