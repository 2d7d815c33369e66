use super::*;

/// Two links of 25 Mbit/s that have carried traffic for two seconds.
fn running() -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(25.0, 5.0, 0.0), (25.0, 5.0, 0.0)]);
    testbed.stream(1, 30.0, 2000);
    assert!(testbed.goodput(1000, 2000) > 28.0, "{}", testbed.goodput(1000, 2000));
    testbed
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
    testbed.endpoints[1] = Tunnel::new(Setup {
        mode: Mode::Aggregate,
        is_initiator: false,
        copies: Copies::default(),
        ranks: vec![],
        epoch: 99,
        overhead: HEADERS,
    });
    testbed.stream(1, 30.0, 4000);
    assert!(testbed.goodput(2500, 4000) > 28.0, "{}", testbed.goodput(2500, 4000));
}

/// Packets of the previous instance in flight arrive after the first message of the new epoch.
#[test]
fn a_restarted_sender_carries_the_same_rate() {
    let mut testbed = running();
    testbed.endpoints[0] = Tunnel::new(Setup {
        mode: Mode::Aggregate,
        is_initiator: true,
        copies: Copies::default(),
        ranks: vec![],
        epoch: 99,
        overhead: HEADERS,
    });
    for path in 0..2 {
        testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(path), true));
    }
    testbed.stream(1, 30.0, 4000);
    assert!(testbed.goodput(2500, 4000) > 28.0, "{}", testbed.goodput(2500, 4000));
}
