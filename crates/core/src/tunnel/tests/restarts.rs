use super::*;

/// Two links of 25 Mbit/s that have carried for two seconds.
fn running() -> Bed {
    let mut bed = Bed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (25.0, 5.0, 0.0)]);
    bed.stream(1, 30.0, 2000);
    assert!(bed.goodput(1000, 2000) > 28.0, "{}", bed.goodput(1000, 2000));
    bed
}

#[test]
fn a_path_that_comes_back_carries_as_before() {
    let mut bed = running();
    for there in [false, true] {
        for path in 0..2 {
            bed.ends[0].handle(bed.now, Input::Present(PathId(path), there));
        }
    }
    bed.stream(1, 30.0, 4000);
    assert!(bed.goodput(2500, 4000) > 28.0, "{}", bed.goodput(2500, 4000));
}

#[test]
fn another_end_that_began_anew_gets_as_much_as_before() {
    let mut bed = running();
    // It hears packets of before first.
    bed.ends[1] = Tunnel::new(Setup {
        mode: Mode::Aggregate,
        is_initiator: false,
        ranks: vec![],
        epoch: 99,
        overhead_bytes: AROUND,
    });
    bed.stream(1, 30.0, 4000);
    assert!(bed.goodput(2500, 4000) > 28.0, "{}", bed.goodput(2500, 4000));
}

/// Packets of before that are still under way come after the first message of the
/// new epoch.
#[test]
fn what_began_anew_itself_carries_as_much_as_before() {
    let mut bed = running();
    bed.ends[0] = Tunnel::new(Setup {
        mode: Mode::Aggregate,
        is_initiator: true,
        ranks: vec![],
        epoch: 99,
        overhead_bytes: AROUND,
    });
    for path in 0..2 {
        bed.ends[0].handle(bed.now, Input::Present(PathId(path), true));
    }
    bed.stream(1, 30.0, 4000);
    assert!(bed.goodput(2500, 4000) > 28.0, "{}", bed.goodput(2500, 4000));
}
