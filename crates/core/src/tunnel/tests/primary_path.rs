//! The path that elastic flows begin on.

use super::*;

const NEAR: Option<PathId> = Some(PathId(0));
const FAR: Option<PathId> = Some(PathId(1));

/// A path of 5 ms and one of 55 ms, of these rates in Mbit/s, that have carried nothing yet.
fn rested(mode: Mode, near: f64, far: f64) -> Bed {
    let mut bed = Bed::new(mode, &[(near, 5.0, 0.0), (far, 55.0, 0.0)]);
    bed.run_until(Instant::from_millis(1000));
    bed
}

#[test]
fn an_elastic_flow_begins_on_a_far_path_that_is_faster_and_another_on_the_near_one() {
    let mut bed = rested(Mode::Aggregate, 5.0, 100.0);
    assert_eq!([bed.way_of(1, true), bed.way_of(2, false)], [FAR, NEAR]);
}

#[test]
fn every_flow_begins_on_the_near_path_if_the_far_one_is_not_faster() {
    for (near, far) in [(50.0, 50.0), (100.0, 5.0), (90.0, 100.0)] {
        let mut bed = rested(Mode::Aggregate, near, far);
        assert_eq!([bed.way_of(1, true), bed.way_of(2, false)], [NEAR, NEAR], "{near} and {far}");
    }
}

#[test]
fn there_is_no_main_path_in_standby() {
    let mut bed = rested(Mode::Standby, 5.0, 100.0);
    assert_eq!((bed.way_of(1, true), bed.ends[0].main), (NEAR, None));
    let mut bed = rested(Mode::Aggregate, 5.0, 100.0);
    assert_eq!(bed.ends[0].main, FAR);
    bed.ends[0].handle(bed.now, Input::Use(Mode::Standby));
    assert_eq!((bed.way_of(1, true), bed.ends[0].main), (NEAR, None));
}

#[test]
fn the_main_path_is_kept_until_the_near_one_is_as_fast() {
    let mut bed = rested(Mode::Aggregate, 5.0, 100.0);
    bed.stream(1, 110.0, 3000);
    bed.set(0, 90.0, 5.0, 0.0);
    bed.stream(1, 210.0, 9000);
    assert_eq!(bed.ends[0].main, FAR);
    bed.set(0, 120.0, 5.0, 0.0);
    bed.stream(1, 240.0, 13_000);
    assert_eq!(bed.ends[0].main, None);
}

#[test]
fn elastic_flows_go_near_as_soon_as_the_main_path_is_lost() {
    let mut bed = rested(Mode::Aggregate, 5.0, 100.0);
    assert_eq!(bed.way_of(1, true), FAR);
    bed.ends[0].handle(bed.now, Input::Present(PathId(1), false));
    assert_eq!((bed.way_of(2, true), bed.ends[0].main), (NEAR, None));
}

#[test]
fn elastic_flows_go_near_as_soon_as_the_main_path_delivers_nothing() {
    let mut bed = rested(Mode::Aggregate, 5.0, 100.0);
    bed.set(1, 0.0, 55.0, 0.0);
    assert_eq!(bed.way_of(1, true), FAR);
    // A round trip, its variation, and what a report is waited for.
    bed.run_until(bed.now + Duration::from_millis(300));
    assert_eq!((bed.way_of(2, true), bed.ends[0].main), (NEAR, None));
}
