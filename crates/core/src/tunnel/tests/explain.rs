//! What the status says of what a path carries.

use alloc::string::String;

use super::*;

fn carries(testbed: &Testbed) -> [String; 2] {
    [0, 1].map(|path| testbed.endpoints[0].path(PathId(path)).expect("the path is present").carries)
}

/// After some packets over links of 25 Mbit/s, of 10 ms and this delay.
fn after_packets(mode: Mode, states: [PathState; 2], second_ms: f64) -> Testbed {
    let mut testbed = Testbed::new(mode, &[(25.0, 10.0, 0.0), (25.0, second_ms, 0.0)]);
    testbed.endpoints[0].handle(testbed.now, Input::SetWantedStates(states.to_vec()));
    testbed.stream(1, 1.0, 1000);
    testbed
}

#[test]
fn each_mode_says_what_a_path_carries_and_why() {
    let active = [PathState::Active; 2];
    for (mode, first, second) in [
        (Mode::Aggregate, "it has the lowest delay", "packets only while many wait: "),
        (Mode::Redundant, "a copy of each packet", "a copy of each packet"),
        (Mode::Standby, "all packets: it is the most preferred", "nothing: a more preferred path"),
        (Mode::CheapestFirst, "what it has room for", "what has waited for 5 ms"),
        (Mode::PerFlow, "the packets of 1 flow slots", "the packets of 0 flow slots"),
    ] {
        let texts = carries(&after_packets(mode, active, 60.0));
        assert!(texts[0].contains(first), "{mode:?}: {texts:?}");
        assert!(texts[1].contains(second), "{mode:?}: {texts:?}");
    }
    let texts = carries(&after_packets(Mode::Aggregate, active, 20.0));
    assert!(texts[1].contains(" ms later than the lowest-delay path"), "{texts:?}");
}

#[test]
fn a_path_that_carries_nothing_says_why() {
    let backup = after_packets(Mode::Aggregate, [PathState::Active, PathState::Backup], 20.0);
    assert_eq!(carries(&backup)[0], "all packets: no other path may carry any");
    assert_eq!(carries(&backup)[1], "nothing: it is a backup, and an active path is up");
    let closed = after_packets(Mode::Aggregate, [PathState::Active, PathState::Closed], 20.0);
    assert_eq!(carries(&closed)[1], "nothing: its wanted state is closed");
    let mut dead = after_packets(Mode::Standby, [PathState::Active; 2], 20.0);
    dead.set(0, 25.0, 10.0, 1.0);
    dead.stream(1, 1.0, 2000);
    assert_eq!(carries(&dead)[0], "probes only: another path delivers");
}

#[test]
fn a_slow_path_that_loses_packets_says_so() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 20.0, 0.0), (10.0, 15.0, 0.015)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    testbed.stream(1, 150.0, 4000);
    let texts = carries(&testbed);
    let expected = "bulk flows only while much waits: it is much slower than another path and loses ";
    assert!(texts[1].starts_with(expected) && !texts[0].contains("loses"), "{texts:?}");
}
