use std::sync::Arc;

use super::testbed::{GATEWAY, Testbed, packet, vehicle_plan};
use super::*;
use crate::error::Result;

fn set(testbed: &Testbed, vehicles: &[usize]) -> Result<VehicleChanges> {
    let keys = testbed.keys.as_ref().unwrap();
    let vehicles = vehicles.iter().map(|place| (vehicle_plan(*place), keys[*place].public()));
    testbed.sides[GATEWAY].endpoint.set_vehicles(testbed.unix_ns, vehicles.collect())
}

fn changes(added: &[&str], removed: &[&str]) -> VehicleChanges {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    VehicleChanges { added: owned(added), removed: owned(removed) }
}

/// Packets of a vehicle that the gateway receives, and of the gateway that the vehicle receives, of 20 each.
fn carried(testbed: &mut Testbed, vehicle: usize) -> (usize, usize) {
    for number in 0..20 {
        testbed.offer(vehicle, packet(vehicle, GATEWAY, number, 500));
        testbed.offer(GATEWAY, packet(GATEWAY, vehicle, number, 500));
        testbed.step();
    }
    testbed.run(1000);
    (testbed.received(GATEWAY).len(), testbed.received(vehicle).len())
}

#[test]
fn vehicles_come_and_go_and_the_others_keep_their_sessions() {
    let mut testbed = Testbed::new(3, true);
    testbed.run(100);
    let session = |testbed: &Testbed| {
        let keys = testbed.sides[GATEWAY].endpoint.keys.as_ref().unwrap();
        keys.security().session_for(testbed.now, 0).unwrap()
    };
    let before = session(&testbed);
    assert_eq!(carried(&mut testbed, 3), (20, 20));
    let of = |plan: usize| set(&testbed, &[1, 2][..plan]).unwrap();
    assert_eq!(of(2), changes(&[], &["car3"]));
    assert_eq!(of(2), VehicleChanges::default());
    let rejected = testbed.rejected(GATEWAY);
    testbed.recorded = Some(Vec::new());
    assert_eq!(carried(&mut testbed, 3), (0, 0));
    let recorded = testbed.recorded.take().unwrap();
    assert!(testbed.rejected(GATEWAY) > rejected + 20 && recorded.iter().all(|flight| flight.to != 3), "no answer");
    assert_eq!(testbed.sides[GATEWAY].endpoint.status(testbed.now).peers.len(), 2);

    assert_eq!(set(&testbed, &[3, 1, 2]).unwrap(), changes(&["car3"], &[]));
    testbed.run(5000);
    testbed.received(3);
    assert_eq!(carried(&mut testbed, 3), (20, 20));
    assert_eq!(carried(&mut testbed, 1), (20, 20));
    assert!(Arc::ptr_eq(&before, &session(&testbed)));
}

#[test]
fn a_vehicle_with_another_key_is_another() {
    let mut testbed = Testbed::new(2, true);
    testbed.run(100);
    let keys = testbed.keys.clone().unwrap();
    let stolen = vec![(vehicle_plan(1), keys[2].public())];
    let done = testbed.sides[GATEWAY].endpoint.set_vehicles(testbed.unix_ns, stolen).unwrap();
    assert_eq!(done, changes(&["car1"], &["car1", "car2"]));
    assert_eq!(carried(&mut testbed, 1), (0, 0), "the former key opens nothing");
}

#[test]
fn without_room_nothing_changes() {
    let testbed = Testbed::new(3, true);
    assert_eq!(set(&testbed, &[1, 2]).unwrap(), changes(&[], &["car3"]));
    assert_eq!(set(&testbed, &[1, 2, 3]).unwrap(), changes(&["car3"], &[]));
    set(&testbed, &[2, 3]).unwrap();
    let fault = set(&testbed, &[1, 2]).unwrap_err().to_string();
    assert!(fault.contains("1 are new, and there is room for 0; restart the agent"), "{fault}");
    let names = testbed.sides[GATEWAY].endpoint.status(testbed.now).peers.into_iter().map(|peer| peer.name);
    assert_eq!(names.collect::<Vec<_>>(), ["car2", "car3"]);
    assert!(Testbed::new(1, false).sides[GATEWAY].endpoint.set_vehicles(1, Vec::new()).is_err());
}
