use super::*;
use crate::path::{Rat, Signal, Transport};
use PathState::{Active, Backup, Closed};

const PARAMS: Params =
    Params { mode: Mode::Backup, threshold_dbm: -82.0, hysteresis_db: 3.0, smoothing: Duration::from_millis(300) };

#[test]
fn a_reserve_that_is_not_good_is_closed_only_beside_a_good_path_beyond_its_radio() {
    let unit = |belief, was| PathInput { belief, was, rank: 0, radio: Some(0) };
    let lte = |belief| PathInput { belief, was: Backup, rank: 1, radio: None };
    let states = |paths: &[PathInput]| Adaptive::new(PARAMS).allocate(paths).states().to_vec();
    let units = [unit(Belief::Good, Active), unit(Belief::Fading, Backup)];
    assert_eq!(states(&[units[0], units[1], lte(Belief::Good)]), [Active, Closed, Backup]);
    assert_eq!(states(&[units[0], units[1], lte(Belief::Fading)]), [Active, Backup, Backup]);
    assert_eq!(states(&units), [Active, Backup]);
}

#[test]
fn paths_of_one_radio_take_no_turns() {
    let path = |belief, was, radio| PathInput { belief, was, rank: 0, radio };
    for (radio, takes_turns) in [(Some(0), false), (None, true)] {
        let mut allocator = Adaptive::new(PARAMS);
        let inputs = [path(Belief::Fading, Active, radio), path(Belief::Stalled, Active, radio)];
        assert_eq!(allocator.allocate(&inputs).states(), [Active, Closed]);
        let latest = Latest::default();
        let supply =
            |input| PathSupply { unit_cost: None, input, rat: Rat::Ieee80211p, history: None, latest: &latest };
        let reason = allocator.review(Instant::ZERO + FIRST_TURN, &inputs.map(supply));
        assert_eq!(reason.is_some_and(|reason| reason.rule == "adaptive.turn"), takes_turns);
    }
}

/// Reviews and allocates with these beliefs about two paths of this radio access technology,
/// of which the first is preferred; returns the states, and the rule if there is one.
fn advance(
    adaptive: &mut Adaptive,
    was: &mut [PathState; 2],
    at_ms: u64,
    rat: Rat,
    beliefs: [Belief; 2],
) -> Option<&'static str> {
    advance_at_prices(adaptive, was, at_ms, rat, beliefs, [0.0; 2])
}

/// The same with a price of a byte over each path.
fn advance_at_prices(
    adaptive: &mut Adaptive,
    was: &mut [PathState; 2],
    at_ms: u64,
    rat: Rat,
    beliefs: [Belief; 2],
    unit_costs: [f64; 2],
) -> Option<&'static str> {
    let input = |place: usize, was: &[PathState; 2]| PathInput {
        belief: beliefs[place],
        was: was[place],
        rank: place as u8,
        radio: None,
    };
    let latest = Latest::default();
    let wanted = adaptive.allocate(&[input(0, was), input(1, was)]);
    was.copy_from_slice(wanted.states());
    let supply = |place: usize| PathSupply {
        input: input(place, was),
        rat,
        unit_cost: Some(unit_costs[place]),
        history: None,
        latest: &latest,
    };
    let reason = adaptive.review(Instant::from_millis(at_ms), &[supply(0), supply(1)]);
    if reason.is_some() {
        let wanted = adaptive.allocate(&[input(0, was), input(1, was)]);
        was.copy_from_slice(wanted.states());
    }
    reason.map(|reason| reason.rule)
}

#[test]
fn a_path_that_was_left_is_preferred_again_only_after_a_hold_down() {
    use Belief::{Fading, Good};
    for (rat, states) in [(Rat::Lte, [Backup, Active]), (Rat::Wifi, [Active, Backup])] {
        let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
        advance(&mut adaptive, &mut was, 0, rat, [Good, Good]);
        advance(&mut adaptive, &mut was, 10, rat, [Good, Good]);
        assert_eq!(was, [Active, Backup]);
        advance(&mut adaptive, &mut was, 20, rat, [Fading, Good]);
        assert_eq!(was, [Backup, Active], "it is left at once");
        advance(&mut adaptive, &mut was, 2000, rat, [Good, Good]);
        assert_eq!(was, states, "the signal of Wi-Fi tells when it recovers");
    }
}

#[test]
fn while_a_handover_that_its_modem_announced_lasts_another_path_carries() {
    for (other, during, after) in
        [(Belief::Good, [Backup, Active], [Active, Backup]), (Belief::Fading, [Active, Backup], [Active, Backup])]
    {
        let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
        let mut handover = None;
        let mut at = |at_ms, announced: Option<bool>| {
            handover = announced.map(|is_announced| (Instant::from_millis(at_ms), is_announced)).or(handover);
            let latest = [Latest { handover, ..Latest::default() }, Latest::default()];
            let input = |place: usize, was: &[PathState; 2]| PathInput {
                belief: [Belief::Good, other][place],
                was: was[place],
                rank: place as u8,
                radio: None,
            };
            let supply = |place: usize| PathSupply {
                unit_cost: None,
                input: input(place, &was),
                rat: Rat::Lte,
                history: None,
                latest: &latest[place],
            };
            let reason = adaptive.review(Instant::from_millis(at_ms), &[supply(0), supply(1)]);
            let wanted = adaptive.allocate(&[input(0, &was), input(1, &was)]);
            was.copy_from_slice(wanted.states());
            (was, reason.map(|reason| (reason.rule, reason.inputs[0].1 as u64)))
        };
        at(0, None);
        at(10, None);
        assert_eq!(at(1000, Some(true)), (during, Some(("forecast.handover", 0))));
        assert_eq!(at(1100, None), (during, None));
        assert_eq!(at(1200, Some(false)), (during, None), "what waited is let go");
        assert_eq!(at(1310, None), (after, Some(("forecast.handover", 310))), "without a hold-down");
        assert_eq!(at(2000, Some(true)).0, during);
        assert_eq!(at(2350, None).0, after, "its end is not reported");
    }
}

#[test]
fn a_path_that_is_only_late_carries_on_beside_one_of_low_signal_until_it_stalls_or_its_turn_ends() {
    use Belief::{Fading, Good, Stalled};
    let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
    let mut at = |at_ms, beliefs| {
        advance(&mut adaptive, &mut was, at_ms, Rat::Wifi, beliefs);
        was
    };
    at(0, [Fading, Good]);
    assert_eq!(at(1000, [Fading, Good])[1], Active);
    assert_eq!(at(1010, [Fading, Fading]), [Closed, Active], "the other was left before");
    assert_eq!(at(1400, [Fading, Fading])[1], Active);
    assert_eq!(at(1410, [Fading, Stalled])[0], Active);
    at(1420, [Fading, Good]);
    assert_eq!(at(1430, [Fading, Fading])[1], Active);
    assert_eq!(at(1950, [Fading, Fading])[0], Active, "its turn is over");
    let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
    for (at_ms, belief) in [(0, Good), (1000, Good), (1010, Fading)] {
        advance(&mut adaptive, &mut was, at_ms, Rat::Lte, [Fading, belief]);
    }
    assert_eq!(was, [Backup, Active], "nothing says that the other is better");
}

#[test]
fn if_no_cellular_path_is_good_the_one_that_carries_goes_on_until_another_answers() {
    use Belief::{Fading, Good, Stalled};
    let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
    let mut at = |at_ms, beliefs| {
        let rule = advance(&mut adaptive, &mut was, at_ms, Rat::Lte, beliefs);
        (was, rule)
    };
    at(0, [Fading, Good]);
    assert_eq!(at(1000, [Fading, Fading]), ([Backup, Active], None));
    assert_eq!(at(3000, [Fading, Fading]), ([Backup, Active], None), "it is not the other's turn");
    assert_eq!(at(3010, [Fading, Stalled]), ([Active, Backup], Some("adaptive.reserve")));
    assert_eq!(at(3200, [Stalled, Stalled]), ([Active, Backup], None), "nothing is closed while none answers");
    assert_eq!(at(9000, [Stalled, Stalled]), ([Active, Backup], None));
    assert_eq!(at(9010, [Stalled, Fading]).0, [Backup, Active], "it answers");
}

#[test]
fn a_path_is_opened_again_as_soon_as_the_subflow_on_which_data_waited_is_closed() {
    use Belief::{Good, Stalled};
    let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Active, Backup]);
    let mut at = |at_ms, seen_ms| {
        let transport = Some((Instant::from_millis(seen_ms), Transport::IDLE));
        let latest = [Latest { transport, ..Latest::default() }, Latest::default()];
        let belief = if at_ms < 1000 { Good } else { Stalled };
        let input = |place: usize, was: &[PathState; 2]| PathInput {
            belief: [belief, Good][place],
            was: was[place],
            rank: place as u8,
            radio: None,
        };
        for _ in 0..2 {
            let wanted = adaptive.allocate(&[input(0, &was), input(1, &was)]);
            was.copy_from_slice(wanted.states());
            let supply = |place: usize| PathSupply {
                input: input(place, &was),
                rat: Rat::Lte,
                unit_cost: None,
                history: None,
                latest: &latest[place],
            };
            adaptive.review(Instant::from_millis(at_ms), &[supply(0), supply(1)]);
        }
        (was, adaptive.next_wakeup().map(Instant::as_secs_f64))
    };
    assert_eq!(at(990, 990).0, [Active, Backup]);
    assert_eq!(at(1000, 1000), ([Closed, Active], Some(1.025)));
    assert_eq!(at(1500, 1500).0, [Closed, Active], "it is not closed yet");
    assert_eq!(at(1524, 1500).0, [Closed, Active]);
    assert_eq!(at(1525, 1500).0, [Backup, Active]);
    assert_eq!(at(1600, 1600).0, [Backup, Active], "the new subflow stays");
}

#[test]
fn a_path_that_stalls_carries_on_beside_one_over_which_no_signal_arrives() {
    use Belief::{Fading, Good, Stalled};
    // When the last signal of the other path was received, and its state just after the stall.
    for (received_ms, rat, other) in [(0, Rat::Lte, Closed), (1500, Rat::Lte, Active), (0, Rat::Ieee80211p, Active)] {
        let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
        let mut at = |at_ms, beliefs: [Belief; 2]| {
            let signal = (Instant::from_millis(received_ms), Signal::default());
            let latest = [Latest { signal: Some(signal), ..Latest::default() }, Latest::default()];
            let input = |place: usize, was: &[PathState; 2]| PathInput {
                belief: beliefs[place],
                was: was[place],
                rank: place as u8,
                radio: None,
            };
            let supply = |place: usize| PathSupply {
                input: input(place, &was),
                rat: [Rat::Ieee80211p, rat][place],
                unit_cost: None,
                history: None,
                latest: &latest[place],
            };
            adaptive.review(Instant::from_millis(at_ms), &[supply(0), supply(1)]);
            let wanted = adaptive.allocate(&[input(0, &was), input(1, &was)]);
            was.copy_from_slice(wanted.states());
            was
        };
        at(0, [Fading, Good]);
        at(1900, [Fading, Good]);
        assert_eq!(at(2000, [Fading, Stalled])[0], other, "received {received_ms}, {rat:?}");
        if other == Closed {
            assert_eq!(at(2490, [Fading, Stalled]), [Closed, Active]);
            assert_eq!(at(2510, [Fading, Stalled])[0], Active, "its turn is over");
        }
    }
}

#[test]
fn a_path_in_hold_down_takes_over_from_one_that_is_not_good_and_later_from_one_that_is() {
    use Belief::{Fading, Good};
    let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
    let mut at = |at_ms, beliefs| {
        let rule = advance(&mut adaptive, &mut was, at_ms, Rat::Lte, beliefs);
        (was, rule)
    };
    at(0, [Good, Good]);
    at(10, [Good, Good]);
    assert_eq!(at(20, [Fading, Good]).0, [Backup, Active]);
    assert_eq!(at(1000, [Good, Fading]).0, [Active, Backup]);
    assert_eq!(at(1010, [Fading, Good]).0, [Backup, Active], "it is left again soon: the hold-down doubles");
    assert_eq!(at(61_000, [Good, Good]).0, [Backup, Active]);
    assert_eq!(at(121_020, [Good, Good]), ([Active, Backup], Some("adaptive.return")));
}

#[test]
fn a_path_that_was_left_returns_sooner_from_one_that_costs_more() {
    use Belief::{Fading, Good};
    for (unit_costs, returned_ms) in [([0.0, 1.0], 10_020), ([1.0, 1.0], 60_020), ([0.0, 0.0], 60_020)] {
        let (mut adaptive, mut was) = (Adaptive::new(PARAMS), [Closed; 2]);
        let mut at = |at_ms, beliefs| {
            let rule = advance_at_prices(&mut adaptive, &mut was, at_ms, Rat::Lte, beliefs, unit_costs);
            (was, rule)
        };
        at(0, [Good, Good]);
        at(10, [Good, Good]);
        assert_eq!(at(20, [Fading, Good]).0, [Backup, Active]);
        assert_eq!(at(30, [Good, Good]).0, [Backup, Active]);
        assert_eq!(at(returned_ms - 10, [Good, Good]).0, [Backup, Active], "{unit_costs:?}");
        assert_eq!(at(returned_ms, [Good, Good]), ([Active, Backup], Some("adaptive.return")), "{unit_costs:?}");
    }
}

#[test]
fn all_paths_carry_on_while_together_they_carry_more_than_any_of_them_did() {
    use Belief::Good;
    for (mbit_s, highest_mbit_s, stays) in [([5.0, 5.0], 8.0, true), ([3.0, 2.0], 6.0, false), ([5.0, 0.0], 5.0, false)]
    {
        let mut adaptive = Adaptive::new(Params { mode: Mode::Aggregate, ..PARAMS });
        let mut was = [Active, Backup];
        for at_ms in (0..6000).step_by(10) {
            let now = Instant::from_millis(at_ms);
            // The sender has more data than a path takes for 0.3 s.
            let notsent_bytes = if at_ms < 300 { 1 } else { 0 };
            let transport = Some((now, Transport { notsent_bytes, ..Transport::IDLE }));
            let carried = |place: usize| {
                let fastest_other_bit_s = highest_mbit_s * 1e6;
                Some((now, Carried { bit_s: mbit_s[place] * 1e6, fastest_other_bit_s, ..Carried::default() }))
            };
            let latest = [0, 1].map(|place| Latest { transport, carried: carried(place), ..Latest::default() });
            let input = |place: usize| PathInput { belief: Good, was: was[place], rank: place as u8, radio: None };
            let supply = |place: usize| PathSupply {
                input: input(place),
                rat: Rat::Lte,
                unit_cost: None,
                history: None,
                latest: &latest[place],
            };
            if adaptive.review(now, &[supply(0), supply(1)]).is_some() {
                let wanted = adaptive.allocate(&[input(0), input(1)]);
                was.copy_from_slice(wanted.states());
            }
            assert!(at_ms != 1000 || was == [Active, Active], "the second path helps");
        }
        assert_eq!(was == [Active, Active], stays, "{mbit_s:?}");
    }
}
