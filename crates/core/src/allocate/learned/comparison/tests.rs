use alloc::vec::Vec;

use super::*;

/// Windows in a minute.
const MINUTE: usize = 240;
const SHARE: f64 = 0.02;

/// Runs windows in which each order delivers so much, in Mbit/s; returns the number of windows in trials, and the
/// window of each verdict with it.
fn run(
    comparison: &mut Comparison,
    windows: usize,
    mut delivers: impl FnMut(By) -> Option<f32>,
) -> (usize, Vec<(usize, Verdict)>) {
    let (mut in_trials, mut verdicts) = (0, Vec::new());
    for place in 0..windows {
        in_trials += usize::from(comparison.is_trial());
        let delivered = delivers(comparison.applies());
        let window = delivered.map(|delivered_mbit_s| Window { delivered_mbit_s, rtt_windows: 0.2, delay_ms: 50.0 });
        verdicts.extend(comparison.end_window(window, true, true).map(|verdict| (place, verdict)));
    }
    (in_trials, verdicts)
}

/// Delivery with noise: uniform within ± `noise` of the mean.
fn noisy(seed: u32, tree: f32, user: f32, noise: f32) -> impl FnMut(By) -> Option<f32> {
    let mut state = seed;
    move |by| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mean = if by == By::Tree { tree } else { user };
        Some(mean * (1.0 + noise * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0)))
    }
}

#[test]
fn a_tree_whose_order_brings_half_is_withdrawn_after_three_trials() {
    let mut comparison = Comparison::new(SHARE);
    let (_, verdicts) = run(&mut comparison, MINUTE, noisy(1, 5.0, 10.0, 0.2));
    let (window, verdict) = verdicts[0];
    assert_eq!((verdicts.len(), verdict.trials, comparison.in_force()), (1, 3, By::Fallback));
    assert!(window < MINUTE / 4 && (1.6..2.0).contains(&verdict.ratio), "{window} {verdict:?}");
}

#[test]
fn while_all_is_well_trials_take_a_hundredth_of_the_windows_after_the_first_two() {
    let mut comparison = Comparison::new(SHARE);
    let (in_trials, verdicts) = run(&mut comparison, 60 * MINUTE, noisy(1, 10.0, 7.0, 0.1));
    assert!(verdicts.is_empty() && comparison.in_force() == By::Tree);
    // Each takes five windows, one of them until what is in flight has arrived. One is enough for a new series, as it
    // delivers less by more than a fifth.
    assert_eq!(in_trials, 5 * (usize::from(NEW_SERIES) + 29));
    let (in_trials, _) = run(&mut Comparison::new(SHARE), 60 * MINUTE, noisy(1, 10.0, 4.0, 0.1));
    assert_eq!(in_trials, 5 * 30, "a tree that brings more than twice as much is new no longer");
}

#[test]
fn a_tree_that_shows_no_advantage_is_compared_in_a_second_series() {
    let mut comparison = Comparison::new(SHARE);
    let (in_trials, _) = run(&mut comparison, MINUTE / 2, |_| Some(10.0));
    assert_eq!(in_trials, 5 * FIRST * usize::from(NEW_SERIES));
    let steady = |by| Some(if by == By::Tree { 10.0 } else { 9.0 });
    let (in_trials, _) = run(&mut Comparison::new(SHARE), MINUTE / 2, steady);
    assert_eq!(in_trials, 5 * FIRST, "but not one whose advantage is beyond doubt");
}

#[test]
fn a_trial_ends_once_it_delivers_less_than_a_third() {
    let trial = |delivers: &[f32]| {
        let (mut comparison, mut delivers) = (Comparison::new(SHARE), delivers.iter());
        let mut next = |by| Some(if by == By::Tree { 12.0 } else { *delivers.next().unwrap() });
        let (in_trial, _) = run(&mut comparison, START as usize + 11, &mut next);
        (in_trial, comparison.take_outcome().unwrap().goodput_mbit_s)
    };
    assert_eq!(trial(&[12.0, 3.9]), (2, [12.0, 3.9]), "the first window is not counted");
    assert_eq!(trial(&[0.0, 4.1, 3.1]), (3, [12.0, 3.6]));
    assert_eq!(trial(&[12.0, 6.0, 3.0, 5.0, 6.0]), (5, [12.0, 5.0]));
}

#[test]
fn whatever_happens_a_fiftieth_of_the_windows_and_half_a_minute_are_the_limit() {
    for seed in 0..50 {
        let mut comparison = Comparison::new(SHARE);
        let (in_trials, _) = run(&mut comparison, 20 * MINUTE, noisy(seed, 10.0, 10.0, 0.9));
        assert!(in_trials as f64 <= SHARE * 20.0 * MINUTE as f64 + MAX_CREDIT, "{in_trials}");
    }
}

#[test]
fn chance_seldom_withdraws_a_tree_that_brings_a_fifth_more() {
    let withdrawn = (0..200).filter(|seed| {
        let mut comparison = Comparison::new(SHARE);
        !run(&mut comparison, 60 * MINUTE, noisy(*seed, 12.0, 10.0, 0.6)).1.is_empty()
    });
    let withdrawn = withdrawn.count();
    assert!(withdrawn <= 20, "{withdrawn} of 200 hours");
}

#[test]
fn a_trial_between_what_was_before_and_after_it_shows_nothing() {
    assert_eq!([advantage(9.0, [5.0, 10.0]), advantage(9.0, [10.0, 5.0])], [0.0; 2]);
    assert_eq!(advantage(0.0, [5.0, 0.0]), 0.0, "a connection that stalls in the trial and after it");
    assert_eq!([advantage(30.0, [5.0, 10.0]), advantage(5.0, [10.0, 15.0])], [0.5, -1.0 / 3.0]);
}

#[test]
fn the_first_trial_waits_until_a_connection_has_begun() {
    let mut comparison = Comparison::new(SHARE);
    assert_eq!(run(&mut comparison, START as usize, |_| Some(10.0)).0, 0);
    assert!(comparison.is_trial());
}

#[test]
fn a_tree_that_was_withdrawn_is_used_again_when_its_order_brings_more() {
    let mut comparison = Comparison::new(SHARE);
    run(&mut comparison, MINUTE, noisy(1, 5.0, 10.0, 0.2));
    assert_eq!(comparison.in_force(), By::Fallback);
    let (_, verdicts) = run(&mut comparison, 20 * MINUTE, noisy(2, 5.0, 10.0, 0.2));
    assert!(verdicts.is_empty(), "{verdicts:?}");
    let (_, verdicts) = run(&mut comparison, 10 * MINUTE, noisy(3, 15.0, 10.0, 0.2));
    assert_eq!((verdicts.len(), comparison.in_force()), (1, By::Tree), "{verdicts:?}");
}

#[test]
fn without_a_share_or_a_delivery_nothing_is_tried() {
    let wrong = || noisy(1, 5.0, 10.0, 0.2);
    assert_eq!(run(&mut Comparison::new(0.0), 10 * MINUTE, wrong()).0, 0);
    assert_eq!(run(&mut Comparison::new(SHARE), 10 * MINUTE, |_| None).0, 0);
    assert_eq!(run(&mut Comparison::new(SHARE), 10 * MINUTE, |_| Some(0.0)).0, 0);
    let mut comparison = Comparison::new(SHARE);
    let window = Window { delivered_mbit_s: 5.0, rtt_windows: 0.2, delay_ms: 50.0 };
    let agreed = (0..10 * MINUTE)
        .filter(|_| comparison.end_window(Some(window), false, false).is_some() || comparison.is_trial());
    assert_eq!(agreed.count(), 0, "the tree agrees with the user");
}

#[test]
fn a_trial_in_which_the_delivery_becomes_unknown_counts_for_nothing() {
    let mut comparison = Comparison::new(SHARE);
    let mut window = 0;
    let (_, verdicts) = run(&mut comparison, MINUTE, |by| {
        window += 1;
        (window % 6 != 0).then_some(if by == By::Tree { 5.0 } else { 10.0 })
    });
    assert!(verdicts.is_empty() && comparison.series.is_empty());
}

/// Windows of an hour in which the tree agrees with the user, of `tree` and `swapped` Mbit/s: how many are in trials, and
/// what each showed.
fn agreeing(comparison: &mut Comparison, tree: f32, swapped: f32) -> (usize, Vec<Outcome>) {
    let (mut in_trials, mut outcomes) = (0, Vec::new());
    for _ in 0..60 * MINUTE {
        in_trials += usize::from(comparison.is_trial());
        let is_swapped = comparison.applies() == By::Swap;
        let (delivered_mbit_s, delay_ms) = if is_swapped { (swapped, 80.0) } else { (tree, 20.0) };
        let window = Window { delivered_mbit_s, rtt_windows: 0.2, delay_ms };
        assert!(comparison.end_window(Some(window), false, true).is_none(), "a swap withdraws nothing");
        outcomes.extend(comparison.take_outcome());
    }
    (in_trials, outcomes)
}

#[test]
fn where_the_tree_agrees_the_paths_are_swapped_every_75_s_and_the_outcome_is_reported() {
    let mut comparison = Comparison::new(SHARE);
    let (in_trials, outcomes) = agreeing(&mut comparison, 10.0, 5.0);
    assert_eq!((in_trials, outcomes.len()), (5 * 48, 48));
    assert_eq!(outcomes[0], Outcome { goodput_mbit_s: [10.0, 5.0], delay_ms: [20.0, 80.0] });
    assert!(comparison.series.is_empty() && comparison.in_force() == By::Tree);
}

#[test]
fn swaps_leave_half_of_the_windows_to_the_comparison_with_the_users_order() {
    let mut comparison = Comparison::new(0.002);
    let (in_trials, _) = agreeing(&mut comparison, 10.0, 10.0);
    assert!(in_trials as f64 <= MAX_CREDIT - RESERVE + 0.002 * 60.0 * MINUTE as f64 + 5.0, "{in_trials}");
    assert_eq!(agreeing(&mut Comparison::new(0.0), 10.0, 10.0).0, 0, "without a share nothing is swapped");
    let (_, verdicts) = run(&mut comparison, 10 * MINUTE, noisy(1, 5.0, 10.0, 0.2));
    assert_eq!(verdicts.len(), 1, "and what is left suffices to withdraw a tree");
}
