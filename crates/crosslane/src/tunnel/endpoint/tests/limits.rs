//! How long packets inside may be, and how many wait.

use super::super::limits::MOST_WAITING_BYTES;
use super::*;

/// The longest packet inside that a vehicle and its gateway take for each other.
fn mtus(bed: &Bed, vehicle: usize) -> [u32; 2] {
    let of = |side: usize, peer: usize| bed.sides[side].end.view(bed.now).peers[peer].mtu_bytes;
    [of(vehicle, 0), of(GATEWAY, vehicle - 1)]
}

#[test]
fn a_path_that_carries_less_shortens_the_packets_of_its_vehicle_and_no_others() {
    let mut bed = Bed::new(2, true);
    bed.run(300);
    assert_eq!([mtus(&bed, 1), mtus(&bed, 2)], [[MTU; 2]; 2]);
    // Vehicle 1's first path swallows what is longer, and says nothing.
    bed.narrow = Some((1, 0, 1400));
    for number in 0..600 {
        bed.offer(1, packet(1, GATEWAY, number, 1350));
        bed.offer(GATEWAY, packet(GATEWAY, 1, number, 1350));
        bed.offer(2, packet(2, GATEWAY, number, 1350));
        bed.step();
    }
    bed.run(300);
    let narrow = mtus(&bed, 1);
    assert!(narrow.iter().all(|mtu| (1324..=1332).contains(mtu)), "{narrow:?}");
    assert_eq!(mtus(&bed, 2), [MTU; 2]);
    bed.came(GATEWAY);
    for number in 0..100 {
        bed.offer(1, packet(1, GATEWAY, number, 1280));
        bed.step();
    }
    bed.run(300);
    assert_eq!(bed.came(GATEWAY).len(), 100, "what fits now comes whole");
    bed.sides[1].answers.clear();
    bed.offer(1, packet(1, GATEWAY, 1, 1350));
    let told = bed.sides[1].answers.pop().unwrap();
    assert_eq!(Inner::parse(&told).unwrap().payload()[6..8], (narrow[0] as u16).to_be_bytes());
}

#[test]
fn what_ipv6_needs_goes_through_a_path_that_carries_less_if_routers_may_cut_it() {
    let mut bed = Bed::new(1, true);
    bed.narrow = Some((1, 0, 1000));
    bed.sides[1].end.set_path(bed.now, PathId(1), None);
    bed.run(1000);
    assert_eq!(mtus(&bed, 1), [1280; 2]);
    for number in 0..100 {
        bed.offer(1, packet(1, GATEWAY, number, 1280 - 28));
        bed.step();
    }
    bed.run(300);
    assert_eq!((bed.came(GATEWAY).len(), bed.sides[1].answers.len()), (100, 0));
}

#[test]
fn what_waits_for_vehicles_that_are_away_is_bounded_over_all_and_goes_again() {
    let bed = Bed::new(20, true);
    for vehicle in 1..=20 {
        for number in 0..8500 {
            let end = &bed.sides[GATEWAY].end;
            end.take_in(bed.now, &mut packet(GATEWAY, vehicle, number, 1200), |_| {});
        }
    }
    let waiting = |bed: &Bed| {
        let end = &bed.sides[GATEWAY].end;
        let of_each: Vec<u64> = end.peers.iter().map(|peer| lock(&peer.tunnel).waiting_bytes()).collect();
        assert_eq!(of_each.iter().sum::<u64>(), end.waiting_bytes.load(Relaxed));
        of_each
    };
    let of_each = waiting(&bed);
    let all: u64 = of_each.iter().sum();
    assert!((MOST_WAITING_BYTES - 2000..=MOST_WAITING_BYTES).contains(&all), "{all}");
    let (least, most) = (of_each.iter().min().unwrap(), of_each.iter().max().unwrap());
    assert!(most - least < 5000, "who has most loses: {of_each:?}");
    bed.sides[GATEWAY].end.upkeep(bed.now + Duration::from_secs(6), bed.unix_ns, |_| {});
    assert_eq!(waiting(&bed), [0; 20]);
}
