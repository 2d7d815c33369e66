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

/// Receives a CAM, and polls nothing.
fn receive(manager: &mut ConnectionManager, ms: u64, station: u32, rssi_dbm: f32) {
    manager.handle(Instant::from_millis(ms), Input::Cam(Cam { station, rssi_dbm, position: None }));
}

fn prove(manager: &mut ConnectionManager, ms: u64, station: u32) {
    manager.handle(Instant::from_millis(ms), Input::Proof { station });
}

fn outputs(manager: &mut ConnectionManager, now: Instant) -> Vec<Output> {
    core::iter::from_fn(|| manager.poll(now)).collect()
}

/// True and station of each slot that opens, false and station of each that closes.
fn brief(outputs: &[Output]) -> Vec<(bool, u32, u8)> {
    let brief = |output: &Output| match output {
        Output::Open { slot, station, .. } => Some((true, *station, *slot)),
        Output::Close { slot, station, .. } => Some((false, *station, *slot)),
        Output::Probe { .. } | Output::Answers { .. } => None,
    };
    outputs.iter().filter_map(brief).collect()
}

/// Station and payload of each probe until `until_ms`, in steps of 10 ms; those of `answering` are answered at once.
fn probes(manager: &mut ConnectionManager, from_ms: u64, until_ms: u64, answering: &[u32]) -> Vec<(u64, u32, u16)> {
    let mut sent = Vec::new();
    for ms in (from_ms..until_ms).step_by(10) {
        for output in outputs(manager, Instant::from_millis(ms)) {
            let Output::Probe { station, bytes } = output else { continue };
            sent.push((ms, station, bytes));
            if answering.contains(&station) {
                prove(manager, ms, station);
            }
        }
    }
    sent
}

#[test]
fn a_unit_takes_a_slot_when_its_first_cam_arrives_and_leaves_it_when_they_stop() {
    let mut manager = manager(2, [1, 2]);
    let opened = cam(&mut manager, 0, 1, -90.0);
    assert_eq!(brief(&opened), [(true, 1, 0)]);
    assert!(matches!(&opened[0], Output::Open { reason, .. } if reason.text() == "a CAM of rsu1 arrived, -90.0 dBm"));
    assert_eq!(brief(&cam(&mut manager, 100, 1, -90.0)), [], "it has one");
    assert_eq!(manager.next_wakeup(), Some(Instant::from_millis(3100)));
    assert_eq!(brief(&outputs(&mut manager, Instant::from_millis(3099))), []);
    let closed = outputs(&mut manager, Instant::from_millis(3100));
    assert_eq!(brief(&closed), [(false, 1, 0)]);
    assert!(matches!(&closed[0], Output::Close { reason, .. } if reason.text() == "no CAM of rsu1 for 3.0 s"));
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
fn a_unit_that_does_not_answer_loses_its_slot_and_is_tried_again_after_a_second() {
    let mut manager = manager(2, 1..=3);
    receive(&mut manager, 0, 1, -80.0);
    receive(&mut manager, 0, 2, -40.0);
    believe(&mut manager, 2, Belief::Good);
    let sent = probes(&mut manager, 0, 700, &[1]);
    assert_eq!(sent[..3], [(0, 1, 1), (10, 2, 1), (110, 1, MAX_PROBE_BYTES)], "one after the other");
    assert_eq!(manager.slot(2), None, "{sent:?}");
    assert_eq!(manager.slot(1), Some(0), "it answers");
    let retry = |manager: &mut ConnectionManager, ms| brief(&cam(manager, ms, 2, -82.0));
    assert_eq!(retry(&mut manager, 800), []);
    assert_eq!(retry(&mut manager, 1400), [(true, 2, 1)]);
}

#[test]
fn while_no_unit_answers_a_good_one_keeps_its_slot_for_a_second() {
    let mut manager = manager(1, 1..=2);
    cam(&mut manager, 0, 1, -40.0);
    believe(&mut manager, 1, Belief::Good);
    probes(&mut manager, 0, 900, &[]);
    assert_eq!(brief(&cam(&mut manager, 900, 2, -40.0)), []);
    probes(&mut manager, 900, 1200, &[]);
    assert_eq!(brief(&cam(&mut manager, 1200, 2, -40.0)), [(false, 1, 0), (true, 2, 0)]);
}

#[test]
fn a_proof_takes_several_answers_and_is_renewed() {
    let mut manager = manager(1, 1..=2);
    receive(&mut manager, 0, 1, -70.0);
    let sent = probes(&mut manager, 0, 1000, &[1]);
    let times: Vec<u64> = sent.iter().map(|(ms, ..)| *ms).collect();
    assert_eq!(times, [0, 100, 200, 300, 800], "{sent:?}");
    assert!(sent[1..].iter().all(|(_, _, bytes)| *bytes == MAX_PROBE_BYTES));
    assert_eq!(brief(&cam(&mut manager, 1000, 2, -40.0)), [], "it displaces none that answers");
    cam(&mut manager, 1000, 1, -70.0);
    let before = manager.has_answers;
    let later = outputs(&mut manager, Instant::from_millis(1801));
    assert!(before && later.contains(&Output::Answers { station: 1, answers: false }), "{later:?}");
}

#[test]
fn of_units_that_do_not_answer_the_one_that_has_waited_longest_is_tried_next() {
    let mut manager = manager(2, 1..=4);
    cam(&mut manager, 0, 1, -80.0);
    probes(&mut manager, 0, 400, &[1]);
    for (ms, station) in [(400, 2), (800, 3)] {
        assert_eq!(brief(&cam(&mut manager, ms, station, -40.0)), [(true, station, 1)]);
        probes(&mut manager, ms, ms + 390, &[1]);
        assert_eq!(manager.slot(station), None);
    }
    cam(&mut manager, 2300, 4, -60.0);
    assert_eq!(manager.slot(4), Some(1));
    believe(&mut manager, 4, Belief::Lost);
    cam(&mut manager, 2310, 2, -82.0);
    assert_eq!(manager.slot(2), Some(1), "a lost one gives way");
    believe(&mut manager, 2, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 2320, 3, -82.0)), [], "the fourth never failed");
}

/// Station 1 answers, and station 2 failed at 800 ms; slot 1 is free.
fn manager_with_a_failure() -> ConnectionManager {
    let mut manager = manager(2, 1..=5);
    cam(&mut manager, 0, 1, -80.0);
    probes(&mut manager, 0, 400, &[1]);
    assert_eq!(brief(&cam(&mut manager, 400, 2, -40.0)), [(true, 2, 1)]);
    probes(&mut manager, 400, 800, &[1]);
    assert_eq!((manager.slot(1), manager.slot(2)), (Some(0), None));
    manager
}

fn has_failed(manager: &ConnectionManager, station: u32) -> bool {
    manager.units().any(|(id, unit)| id == station && unit.refuted.is_some())
}

#[test]
fn a_free_slot_is_left_to_a_unit_that_did_not_fail() {
    let mut manager = manager_with_a_failure();
    cam(&mut manager, 800, 4, -88.0);
    assert_eq!(brief(&cam(&mut manager, 1850, 3, -88.0)), []);
    let stations = (1..=3).map(|id| Station { id, name: "rsu".into() });
    manager.handle(Instant::from_millis(1860), Input::Directory(stations.collect()));
    assert_eq!(brief(&outputs(&mut manager, Instant::from_millis(1860))), [(false, 4, 1)]);
    assert_eq!(brief(&cam(&mut manager, 1870, 2, -80.0)), [], "station 3 waits");
    assert_eq!(brief(&cam(&mut manager, 1950, 3, -88.0)), [(true, 3, 1)]);
}

#[test]
fn a_failure_is_remembered_without_cams_and_slots_until_the_unit_answers() {
    let mut manager = manager_with_a_failure();
    outputs(&mut manager, Instant::from_millis(3900));
    assert_eq!(manager.units().count(), 0, "out of reach");
    assert_eq!(brief(&cam(&mut manager, 4000, 2, -80.0)), [(true, 2, 0)]);
    assert!(has_failed(&manager, 2));
    cam(&mut manager, 4010, 3, -88.0);
    believe(&mut manager, 2, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 4020, 4, -88.0)), [(false, 2, 0), (true, 4, 0)]);
    assert!(has_failed(&manager, 2), "it was not probed enough");
    believe(&mut manager, 4, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 4110, 2, -80.0)), [(false, 4, 0), (true, 2, 0)]);
    (0..4).for_each(|_| prove(&mut manager, 4120, 2));
    assert!(!has_failed(&manager, 2));
}

#[test]
fn of_a_unit_that_failed_only_weak_cams_count_for_five_seconds() {
    let mut manager = manager_with_a_failure();
    let mut counts =
        |ms, rssi_dbm| manager.on_cam(Instant::from_millis(ms), &Cam { station: 2, rssi_dbm, position: None });
    assert!(!counts(900, -40.0) && counts(1000, -81.0) && !counts(1100, -40.0));
    assert!(counts(6000, -40.0));
}

#[test]
fn an_answer_of_a_unit_without_a_slot_proves_nothing() {
    let mut manager = manager(1, 1..=2);
    receive(&mut manager, 0, 1, -80.0);
    receive(&mut manager, 0, 2, -80.0);
    prove(&mut manager, 10, 2);
    assert!(!manager.has_answers);
}

#[test]
fn a_stalled_unit_that_answered_is_not_lost() {
    let mut manager = manager(1, 1..=2);
    cam(&mut manager, 0, 1, -80.0);
    (0..4).for_each(|_| prove(&mut manager, 10, 1));
    believe(&mut manager, 1, Belief::Stalled);
    assert_eq!(brief(&cam(&mut manager, 20, 2, -40.0)), []);
}

#[test]
fn a_unit_that_does_not_answer_is_probed_more_and_more_rarely_and_not_without_cams() {
    let mut manager = manager(1, [1]);
    receive(&mut manager, 0, 1, -70.0);
    let times: Vec<u64> = probes(&mut manager, 0, 5000, &[]).into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(times, [0, 100, 200, 400, 800]);
}

#[test]
fn answers_are_a_proof_only_if_they_are_four_in_a_row() {
    let at = Instant::from_millis;
    let mut proof = Proof::new(at(0));
    for _ in 0..3 {
        proof.on_probe(at(0));
        proof.on_answer(at(0));
    }
    assert!(!proof.is_given(at(0)));
    [100, 200].into_iter().for_each(|ms| proof.on_probe(at(ms)));
    proof.on_answer(at(200));
    assert!(!proof.is_given(at(200)), "one was not answered");
    (0..3).for_each(|_| proof.on_answer(at(300)));
    assert!(proof.is_given(at(300)) && !proof.is_given(at(1300)));
}

#[test]
fn the_level_of_mixed_cams_follows_the_weaker_faster() {
    let mut filter = cam_filter::CamFilter::new(-60.0);
    let mut accepts = |ms, rssi_dbm| filter.accepts(Instant::from_millis(ms), rssi_dbm);
    assert!(accepts(0, -60.0) && accepts(10, -70.0));
    assert!(!accepts(20, -54.0), "the level is -65 dBm");
}

#[test]
fn forged_cams_of_a_unit_are_ignored_also_when_the_true_ones_are_lost() {
    let mut manager = manager(1, [1]);
    let mut counts = |ms: u64, rssi_dbm: f32| {
        let cam = Cam { station: 1, rssi_dbm, position: None };
        manager.on_cam(Instant::from_millis(ms), &cam)
    };
    assert!(counts(0, -80.0) && counts(100, -82.0), "the true ones");
    assert!(!counts(130, -50.0), "too soon, and far stronger");
    assert!(counts(200, -84.0) && counts(300, -78.0));
    assert!(!counts(3000, -50.0), "the true ones are lost");
    assert!(counts(5200, -50.0), "for five seconds");
}

#[test]
fn forged_cams_that_are_weaker_do_not_hide_the_unit() {
    let mut manager = manager(1, [1]);
    for ms in (0..3000).step_by(100) {
        cam(&mut manager, ms, 1, -60.0);
        cam(&mut manager, ms + 30, 1, -84.0);
    }
    let rssi_dbm = manager.units().next().map(|(_, unit)| unit.rssi_dbm);
    assert!(rssi_dbm.is_some_and(|dbm| (-84.5..-60.0).contains(&dbm)), "{rssi_dbm:?}");
    assert_eq!(manager.slot(1), Some(0));
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
fn a_fading_unit_gives_its_slot_to_a_clearly_stronger_one_only_while_another_is_good() {
    let mut manager = manager(2, 1..=3);
    cam(&mut manager, 0, 1, -88.0);
    cam(&mut manager, 0, 2, -70.0);
    believe(&mut manager, 1, Belief::Fading);
    believe(&mut manager, 2, Belief::Fading);
    assert_eq!(brief(&cam(&mut manager, 10, 3, -60.0)), [], "either may be all that carries data");
    believe(&mut manager, 2, Belief::Good);
    assert_eq!(brief(&cam(&mut manager, 20, 3, -60.0)), [(false, 1, 0), (true, 3, 0)]);
}

#[test]
fn of_units_that_wait_a_clearly_stronger_one_takes_the_slot_first() {
    let mut manager = manager(1, 1..=3);
    cam(&mut manager, 0, 1, -80.0);
    believe(&mut manager, 1, Belief::Good);
    cam(&mut manager, 10, 2, -60.0);
    believe(&mut manager, 1, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 20, 3, -90.0)), [], "station 2 waits");
    assert_eq!(brief(&cam(&mut manager, 110, 2, -60.0)), [(false, 1, 0), (true, 2, 0)]);
    believe(&mut manager, 2, Belief::Lost);
    assert_eq!(brief(&cam(&mut manager, 2000, 3, -90.0)), [(false, 2, 0), (true, 3, 0)]);
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
fn a_unit_that_is_no_longer_known_loses_its_slot_when_it_carries_nothing() {
    let mut manager = manager(4, [1, 2, 3]);
    cam(&mut manager, 0, 1, -90.0);
    cam(&mut manager, 0, 2, -90.0);
    believe(&mut manager, 1, Belief::Good);
    manager.handle(Instant::ZERO, Input::Directory(vec![Station { id: 3, name: "rsu3".into() }]));
    assert_eq!(manager.next_wakeup(), Some(Instant::ZERO));
    assert_eq!(brief(&outputs(&mut manager, Instant::ZERO)), [(false, 2, 1)], "the other carries data");
    assert_eq!(manager.next_wakeup(), None);
    assert_eq!(brief(&cam(&mut manager, 10, 2, -40.0)), [], "its CAMs open nothing");
    believe(&mut manager, 1, Belief::Lost);
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
            let carried: Vec<u32> = manager.units().filter(|(_, unit)| manager.evidence(now).carries(unit)).map(|(id, _)| id).collect();
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
                    Output::Probe { .. } | Output::Answers { .. } => {}
                }
            }
            prop_assert!(manager.next_wakeup().is_none_or(|at| at > now));
            prop_assert_eq!(manager.units().filter(|(_, unit)| unit.slot.is_some()).count(), held.len());
        }
    }
}

/// Any input, with times that pass before it, in ms, and whether the outputs are polled after it.
fn any_step() -> impl Strategy<Value = (u64, Input, bool)> {
    let station = prop_oneof![0_u32..14, any::<u32>()];
    let rssi_dbm = prop_oneof![-100_f32..-40.0, any::<f32>()];
    let beliefs = [Belief::Unknown, Belief::Good, Belief::Fading, Belief::Lost, Belief::Stalled];
    let cam = (station.clone(), rssi_dbm, any::<(f64, f64)>()).prop_map(
        |(station, rssi_dbm, (latitude_deg, longitude_deg))| {
            Input::Cam(Cam { station, rssi_dbm, position: Some(Position { latitude_deg, longitude_deg }) })
        },
    );
    let named = |id| Station { id, name: format!("rsu{id}") };
    let directory = prop::collection::vec(0_u32..14, 0..20)
        .prop_map(move |ids| Input::Directory(ids.into_iter().map(named).collect()));
    let proof = station.clone().prop_map(|station| Input::Proof { station });
    let belief = (station, prop::sample::select(beliefs.to_vec()))
        .prop_map(|(station, belief)| Input::Belief { station, belief });
    let wait = prop_oneof![0_u64..500, 0_u64..10_000];
    (wait, prop_oneof![6 => cam, 1 => directory, 3 => belief, 3 => proof], any::<bool>())
}

proptest! {
    #[test]
    fn any_inputs_keep_each_slot_with_one_unit_that_is_known_or_carries_data(
        slots in 0_u8..20,
        steps in prop::collection::vec(any_step(), 0..200),
    ) {
        let mut manager = manager(slots, 0..8);
        let mut known: Vec<u32> = (0..8).collect();
        let (mut now, mut held) = (Instant::ZERO, BTreeMap::new());
        for (wait, input, is_polled) in steps {
            now = now + Duration::from_millis(wait);
            if let Input::Directory(stations) = &input {
                known = stations.iter().map(|station| station.id).collect();
            }
            manager.handle(now, input);
            if !is_polled {
                continue;
            }
            for output in outputs(&mut manager, now) {
                match output {
                    Output::Open { slot, station, reason } => {
                        prop_assert!(slot < slots.clamp(1, 16) && !reason.is_empty());
                        prop_assert!(!held.values().any(|id| *id == station), "a unit has one slot");
                        prop_assert_eq!(held.insert(slot, station), None, "a slot is free before it is taken");
                    }
                    Output::Close { slot, station, reason } => {
                        prop_assert!(!reason.is_empty());
                        prop_assert_eq!(held.remove(&slot), Some(station), "what closes has been open");
                    }
                    Output::Probe { station, bytes } => {
                        prop_assert!(held.values().any(|id| *id == station) && (1..=MAX_PROBE_BYTES).contains(&bytes));
                    }
                    Output::Answers { .. } => {}
                }
            }
            let evidence = manager.evidence(now);
            prop_assert!(manager.units().all(|(station, unit)| known.contains(&station) || evidence.carries(unit)));
            let shown: BTreeMap<u8, u32> =
                manager.units().filter_map(|(station, unit)| Some((unit.slot?, station))).collect();
            prop_assert_eq!(&shown, &held);
            prop_assert!(manager.next_wakeup().is_none_or(|at| at > now));
        }
    }
}

#[test]
fn a_directory_beyond_its_limit_is_cut_and_ids_that_repeat_count_once() {
    let mut manager = manager(16, (0..2 * MAX_UNITS as u32).chain(0..10));
    for station in 0..2 * MAX_UNITS as u32 {
        cam(&mut manager, 0, station, -80.0);
    }
    assert_eq!(manager.units().count(), MAX_UNITS);
}
