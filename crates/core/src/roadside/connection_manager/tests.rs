use alloc::vec;

use proptest::prelude::*;

use super::*;

fn manager(slots: u8, stations: impl IntoIterator<Item = u32>) -> ConnectionManager {
    let mut manager = ConnectionManager::new(Params { slots, ..Params::default() });
    let station = |id| Station { id, name: format!("rsu{id}") };
    manager.handle(Instant::ZERO, Input::Directory(stations.into_iter().map(station).collect()));
    manager
}

fn cam(manager: &mut ConnectionManager, ms: u64, station: u32, rssi_dbm: f32) -> Vec<Output> {
    let now = Instant::from_millis(ms);
    manager.handle(now, Input::Cam(Cam { station, rssi_dbm, position: None }));
    outputs(manager, now)
}

fn believe(manager: &mut ConnectionManager, station: u32, belief: Belief) {
    manager.handle(Instant::ZERO, Input::Belief { station, belief });
}

fn outputs(manager: &mut ConnectionManager, now: Instant) -> Vec<Output> {
    core::iter::from_fn(|| manager.poll(now)).collect()
}

/// True and station of each slot that opens, false and station of each that closes.
fn brief(outputs: &[Output]) -> Vec<(bool, u32, u8)> {
    let brief = |output: &Output| match output {
        Output::Open { slot, station, .. } => (true, *station, *slot),
        Output::Close { slot, station, .. } => (false, *station, *slot),
    };
    outputs.iter().map(brief).collect()
}

#[test]
fn a_unit_takes_a_slot_when_its_first_cam_arrives_and_leaves_it_when_they_stop() {
    let mut manager = manager(2, [1, 2]);
    let opened = cam(&mut manager, 0, 1, -80.0);
    assert_eq!(brief(&opened), [(true, 1, 0)]);
    assert!(matches!(&opened[0], Output::Open { reason, .. } if reason.text == "a CAM of rsu1 arrived, -80.0 dBm"));
    assert_eq!(brief(&cam(&mut manager, 100, 1, -80.0)), [], "it has one");
    assert_eq!(manager.next_wakeup(), Some(Instant::from_millis(3100)));
    assert_eq!(brief(&outputs(&mut manager, Instant::from_millis(3099))), []);
    let closed = outputs(&mut manager, Instant::from_millis(3100));
    assert_eq!(brief(&closed), [(false, 1, 0)]);
    assert!(matches!(&closed[0], Output::Close { reason, .. } if reason.text == "no CAM of rsu1 for 3.0 s"));
    assert_eq!((manager.units().count(), manager.next_wakeup()), (0, None));
}

#[test]
fn a_unit_that_carries_data_keeps_its_slot_without_cams() {
    let mut manager = manager(1, [1, 2]);
    cam(&mut manager, 0, 1, -80.0);
    believe(&mut manager, 1, Belief::Good);
    assert_eq!(brief(&outputs(&mut manager, Instant::from_millis(60_000))), []);
    assert_eq!(brief(&cam(&mut manager, 60_000, 2, -40.0)), [], "nor does it give it to another");
    believe(&mut manager, 1, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 60_100, 2, -90.0)), [(false, 1, 0), (true, 2, 0)]);
}

#[test]
fn of_units_that_carry_nothing_the_weakest_gives_its_slot_to_a_clearly_stronger_one() {
    let mut manager = manager(2, 1..=4);
    cam(&mut manager, 0, 1, -80.0);
    cam(&mut manager, 0, 2, -85.0);
    assert_eq!(brief(&cam(&mut manager, 10, 3, -80.0)), [], "not clearly stronger");
    assert_eq!(brief(&cam(&mut manager, 20, 4, -78.0)), [(false, 2, 1), (true, 4, 1)]);
}

#[test]
fn a_unit_of_a_lost_path_gives_its_slot_to_any_other() {
    let mut manager = manager(2, 1..=3);
    cam(&mut manager, 0, 1, -90.0);
    cam(&mut manager, 0, 2, -50.0);
    believe(&mut manager, 2, Belief::Stalled);
    assert_eq!(brief(&cam(&mut manager, 10, 3, -92.0)), [(false, 2, 1), (true, 3, 1)]);
}

#[test]
fn stations_that_the_directory_lacks_take_no_room() {
    let mut manager = manager(4, [1]);
    for station in 2..10_000 {
        assert_eq!(cam(&mut manager, 0, station, -40.0), []);
    }
    assert_eq!(cam(&mut manager, 0, 1, f32::NAN), []);
    assert_eq!((manager.units().count(), manager.slot(2)), (0, None));
}

#[test]
fn a_unit_that_is_no_longer_known_loses_its_slot() {
    let mut manager = manager(4, [1, 2]);
    cam(&mut manager, 0, 1, -80.0);
    believe(&mut manager, 1, Belief::Good);
    manager.handle(Instant::ZERO, Input::Directory(vec![Station { id: 2, name: "rsu2".into() }]));
    assert_eq!(brief(&outputs(&mut manager, Instant::ZERO)), [(false, 1, 0)]);
    assert_eq!(manager.units().count(), 0);
}

proptest! {
    #[test]
    fn no_slot_has_two_units_and_a_unit_that_carries_data_keeps_its_slot(
        slots in 0_u8..20,
        steps in prop::collection::vec((0_u64..2000, 1_u32..12, -100_f32..-40.0, 0_u8..4), 0..200),
    ) {
        let mut manager = manager(slots, 1..10);
        let (mut now, mut held) = (Instant::ZERO, BTreeMap::new());
        for (wait, station, rssi_dbm, kind) in steps {
            now = now + Duration::from_millis(wait);
            let carried: Vec<u32> = manager.units().filter(|(_, unit)| unit.carries()).map(|(id, _)| id).collect();
            manager.handle(now, match kind {
                0 => Input::Belief { station, belief: Belief::Good },
                1 => Input::Belief { station, belief: Belief::Lost },
                _ => Input::Cam(Cam { station, rssi_dbm, position: None }),
            });
            let lost = (kind == 1).then_some(station);
            for output in outputs(&mut manager, now) {
                match output {
                    Output::Open { slot, station, .. } => {
                        prop_assert_eq!(held.insert(slot, station), None);
                        prop_assert!(slot < slots.clamp(1, 16) && held.values().filter(|id| **id == station).count() == 1);
                    }
                    Output::Close { slot, station, .. } => {
                        prop_assert_eq!(held.remove(&slot), Some(station));
                        prop_assert!(!carried.contains(&station) || lost == Some(station));
                    }
                }
            }
            prop_assert!(manager.next_wakeup().is_none_or(|at| at > now));
            prop_assert_eq!(manager.units().filter(|(_, unit)| unit.slot.is_some()).count(), held.len());
        }
    }
}
