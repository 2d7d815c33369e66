use super::*;

/// Two links of 25 Mbit/s that have carried traffic for two seconds.
fn running() -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (25.0, 5.0, 0.0)]);
    testbed.stream(1, 30.0, 2000);
    assert!(testbed.goodput(1000, 2000) > 28.0, "{}", testbed.goodput(1000, 2000));
    testbed
}

/// An endpoint after a restart.
fn next_instance(is_initiator: bool) -> Tunnel<Numbered> {
    Tunnel::new(Setup {
        mode: Mode::Aggregate,
        is_initiator,
        copies: Copies::default(),
        ranks: vec![],
        epoch: 99,
        overhead: HEADERS,
    })
}

#[test]
fn a_path_added_again_carries_as_before() {
    let mut testbed = running();
    for present in [false, true] {
        for path in 0..2 {
            testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(path), present));
        }
    }
    testbed.stream(1, 30.0, 4000);
    assert!(testbed.goodput(2500, 4000) > 28.0, "{}", testbed.goodput(2500, 4000));
}

#[test]
fn a_restarted_receiver_gets_the_same_rate() {
    let mut testbed = running();
    // It receives packets for its previous instance first.
    testbed.endpoints[1] = next_instance(false);
    testbed.stream(1, 30.0, 4000);
    assert!(testbed.goodput(2500, 4000) > 28.0, "{}", testbed.goodput(2500, 4000));
}

/// Packets of the previous instance in flight arrive after the first message of the new epoch.
#[test]
fn a_restarted_sender_carries_the_same_rate() {
    let mut testbed = running();
    testbed.endpoints[0] = next_instance(true);
    for path in 0..2 {
        testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(path), true));
    }
    testbed.stream(1, 30.0, 4000);
    assert!(testbed.goodput(2500, 4000) > 28.0, "{}", testbed.goodput(2500, 4000));
}

/// It closes a path, which then vanishes and comes back.
fn closed_and_added_again(restarts: bool) -> Testbed {
    let mut testbed = running();
    let wanted = |first| Input::SetWantedStates(vec![first, PathState::Active]);
    testbed.endpoints[0].handle(testbed.now, wanted(PathState::Closed));
    testbed.stream(1, 10.0, 3000);
    assert_eq!(testbed.endpoints[1].paths.get(PathId(0)).map(|path| path.sender.wanted_state), Some(PathState::Closed));
    testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(0), false));
    testbed.stream(1, 10.0, 7000);
    if restarts {
        testbed.endpoints[0] = next_instance(true);
        testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(1), true));
    }
    testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(0), true));
    testbed.endpoints[0].handle(testbed.now, wanted(PathState::Active));
    testbed.stream(1, 10.0, 9000);
    testbed
}

#[test]
fn a_closed_path_that_is_added_again_is_used_by_both_ends() {
    for restarts in [false, true] {
        let testbed = closed_and_added_again(restarts);
        for (end, endpoint) in testbed.endpoints.iter().enumerate() {
            let found = endpoint.paths.get(PathId(0)).map(|path| (path.sender.wanted_state, path.sender.liveness()));
            assert_eq!(found, Some((PathState::Active, Liveness::Up)), "end {end}, restarts {restarts}");
        }
    }
}
