use super::*;
use crate::allocate::Latest;
use crate::assess::throughput::History;
use crate::assess::throughput::tests::{history, history_after, triangle};
use crate::path::{PathState, Rat};

/// Step of a transfer: the interval at which an agent receives acknowledgements.
const STEP_S: f64 = 0.01;

const LATEST: Latest =
    Latest { signal: None, radio: None, transport: None, carried: None, answers: None, handover: None, echo: None };

fn input(rank: u8, was: PathState) -> PathInput {
    PathInput { belief: Belief::Good, was, rank, radio: None }
}

fn demand(size_bytes: u64, acked_bytes: u64, deadline_ms: u64) -> Vec<Object> {
    let (start, deadline) = (Instant::ZERO, Instant::from_millis(deadline_ms));
    vec![Object { number: 0, size_bytes, acked_bytes, start, deadline }]
}

/// Carries an object over paths whose rates (in bytes/s) are constant and equal the
/// forecast; returns the bytes on each path and the completion time in s.
fn carry(rates: &[f64], unit_costs: &[f64], size: f64, deadline_s: f64) -> (Vec<f64>, f64) {
    let histories: Vec<History> = rates.iter().map(|&rate| history(&[rate], 100)).collect();
    let mut deadline = Deadline::new(Params::default());
    let mut states = vec![PathState::Backup; rates.len()];
    let mut bytes = vec![0.0; rates.len()];
    let mut since_s = vec![0.0; rates.len()];
    for step in 0..100_000 {
        let now_s = f64::from(step) * STEP_S;
        let acked: f64 = bytes.iter().sum();
        if acked >= size {
            return (bytes, now_s);
        }
        let inputs: Vec<PathInput> = states.iter().zip(0..).map(|(&was, rank)| input(rank, was)).collect();
        let supply = inputs.iter().zip(&histories).zip(unit_costs).map(|((&input, history), &unit_cost)| PathSupply {
            unit_cost: Some(unit_cost),
            rat: Rat::Lte,
            input,
            history: Some(history),
            latest: &LATEST,
        });
        let demand = demand(size as u64, acked as u64, (deadline_s * 1e3) as u64);
        deadline.on_demand(Instant::from_secs_f64(now_s), &demand, &supply.collect::<Vec<_>>());
        let wanted = deadline.allocate(&inputs).states().to_vec();
        for place in 0..rates.len() {
            if wanted[place] != PathState::Active {
                continue;
            }
            if states[place] != PathState::Active {
                since_s[place] = now_s;
            }
            // An RTT until the first acknowledgement.
            if now_s - since_s[place] >= 0.1 {
                bytes[place] += rates[place] * STEP_S;
            }
        }
        states = wanted;
    }
    (bytes, f64::INFINITY)
}

/// 8 + 8, 4 + 12 and 3.8 + 3 Mbit/s of which 95 % are payload, and others.
const CASES: [([f64; 2], f64); 5] = [
    ([0.95e6, 0.95e6], 10e6),
    ([0.475e6, 1.425e6], 10e6),
    ([0.451e6, 0.356e6], 5e6),
    ([2e6, 0.2e6], 15e6),
    ([0.1e6, 3e6], 12e6),
];

#[test]
fn with_an_exact_forecast_no_feasible_deadline_is_missed() {
    for ([a, b], size) in CASES {
        for tenths in 12..40 {
            let deadline_s = size / (a + b) * f64::from(tenths) / 10.0;
            let (_, took_s) = carry(&[a, b], &[1.0, 5.0], size, deadline_s.max(2.0));
            assert!(took_s <= deadline_s.max(2.0), "{a} {b} {size} in {deadline_s}: {took_s}");
        }
    }
}

#[test]
fn it_never_costs_more_than_all_paths_and_little_more_than_the_minimum() {
    for ([a, b], size) in CASES {
        for tenths in 12..40 {
            let deadline_s = (size / (a + b) * f64::from(tenths) / 10.0).max(2.0);
            let (bytes, _) = carry(&[a, b], &[1.0, 5.0], size, deadline_s);
            let all = size * b / (a + b);
            assert!(bytes[1] <= all + b * 0.1, "{a} {b} in {deadline_s}: {} of {all}", bytes[1]);
            // What the margin, the start and one step may add.
            let minimum = (size - a * deadline_s).max(0.0);
            assert!(bytes[1] <= minimum + a * 0.6 + b * 0.1, "{a} {b} in {deadline_s}: {} of {minimum}", bytes[1]);
        }
    }
}

#[test]
fn a_later_deadline_costs_no_more() {
    for ([a, b], size) in CASES {
        let mut before = f64::INFINITY;
        for tenths in 12..40 {
            let deadline_s = (size / (a + b) * f64::from(tenths) / 10.0).max(2.0);
            let (bytes, _) = carry(&[a, b], &[1.0, 5.0], size, deadline_s);
            assert!(bytes[1] <= before + b * STEP_S * 2.0, "{a} {b} in {deadline_s}: {} after {before}", bytes[1]);
            before = bytes[1];
        }
    }
}

#[test]
fn the_most_expensive_of_three_paths_carries_only_what_the_others_cannot() {
    let (bytes, took_s) = carry(&[1e6, 0.5e6, 2e6], &[1.0, 9.0, 3.0], 10e6, 5.0);
    assert!(took_s <= 5.0 && bytes[1] == 0.0 && bytes[2] > 5e6, "{bytes:?} in {took_s}");
    let (bytes, took_s) = carry(&[1e6, 0.5e6, 2e6], &[1.0, 9.0, 3.0], 16e6, 5.0);
    assert!(took_s <= 5.0 && bytes[1] > 1e6, "{bytes:?} in {took_s}");
}

fn first_admission(rates: [f64; 2], size: u64) -> Option<Admission> {
    let histories = rates.map(|rate| history(&[rate], 100));
    let mut deadline = Deadline::new(Params::default());
    let supply = [0, 1].map(|place| PathSupply {
        unit_cost: None,
        rat: Rat::Lte,
        input: input(place as u8, PathState::Active),
        history: histories.get(place),
        latest: &LATEST,
    });
    deadline.on_demand(Instant::ZERO, &demand(size, 0, 10_000), &supply);
    deadline.poll_admission()
}

#[test]
fn feasibility_is_reported_before_an_object_begins() {
    let rates = [0.95e6, 0.95e6];
    assert_eq!(first_admission(rates, 10_000_000).and_then(|a| a.can_be_met()), Some(true));
    let infeasible = first_admission(rates, 30_000_000);
    assert_eq!(infeasible.and_then(|a| a.can_be_met()), Some(false));
    let best_s = infeasible.and_then(|a| a.best).map_or(0.0, Instant::as_secs_f64);
    assert!((15.7..17.5).contains(&best_s), "{best_s}");
}

/// What the cheapest path carries in time is not expected sooner because others could carry it too, and what it does not
/// is expected just in time.
#[test]
fn completion_is_expected_as_it_is_planned() {
    for (size, expected) in
        [(6_000_000, 6.3..6.5), (9_700_000, 9.8..10.0), (15_000_000, 9.8..10.0), (30_000_000, 15.7..16.0)]
    {
        let admission = first_admission([0.95e6, 0.95e6], size);
        let expected_s = admission.and_then(|admission| admission.expected).map_or(0.0, Instant::as_secs_f64);
        assert!(expected.contains(&expected_s), "{size}: {expected_s}");
    }
}

#[test]
fn unknown_paths_give_no_prediction_and_the_cheapest_is_used_first() {
    let mut deadline = Deadline::new(Params::default());
    let supply = [0, 1].map(|rank| PathSupply {
        unit_cost: None,
        rat: Rat::Lte,
        input: input(rank, PathState::Backup),
        history: None,
        latest: &LATEST,
    });
    deadline.on_demand(Instant::ZERO, &demand(10_000_000, 0, 10_000), &supply);
    assert_eq!(deadline.poll_admission().and_then(|a| a.can_be_met()), None);
    let inputs = supply.map(|supply| supply.input);
    assert_eq!(deadline.allocate(&inputs).states(), [PathState::Active, PathState::Backup]);
    deadline.on_demand(Instant::from_millis(2000), &demand(10_000_000, 0, 10_000), &supply);
    assert_eq!(deadline.allocate(&inputs).states(), [PathState::Active; 2]);
}

#[test]
fn objects_due_earlier_come_first_in_the_shortage() {
    let fast = history(&[1e6], 100);
    let mut deadline = Deadline::new(Params::default());
    let supply = [0, 1].map(|rank| PathSupply {
        unit_cost: None,
        rat: Rat::Lte,
        input: input(rank, PathState::Backup),
        history: Some(&fast),
        latest: &LATEST,
    });
    let object = |number, size_bytes, due_ms| Object {
        number,
        size_bytes,
        acked_bytes: 0,
        start: Instant::ZERO,
        deadline: Instant::from_millis(due_ms),
    };
    let mut on = |objects: Vec<Object>| {
        deadline.on_demand(Instant::ZERO, &objects, &supply);
        deadline.allocate(&supply.map(|supply| supply.input)).states().to_vec()
    };
    assert_eq!(on(vec![object(0, 3_000_000, 10_000)]), [PathState::Active, PathState::Backup]);
    let both = vec![object(0, 4_900_000, 2_800), object(1, 3_000_000, 10_000)];
    assert_eq!(on(both), [PathState::Active; 2]);
}

#[test]
fn a_path_that_delays_the_others_is_closed_and_then_opened_again() {
    let mut deadline = Deadline::new(Params::default());
    let mut states = vec![PathState::Active; 2];
    let mut observed = Vec::new();
    for step in (100..400).step_by(2) {
        // 100 packets wait for a path of 50 kB/s; the other is idle half of the time.
        let histories = [
            history_after(step, |_| 500, |_| 100),
            history_after(step, |_| 20_000, |step| u32::from(step % 60 < 30) * 200),
        ];
        let inputs = [0, 1].map(|place| input(place as u8, states[place]));
        let supply = [0, 1].map(|place| PathSupply {
            unit_cost: None,
            rat: Rat::Lte,
            input: inputs[place],
            history: histories.get(place),
            latest: &LATEST,
        });
        deadline.on_demand(Instant::from_millis(step * 10), &demand(100_000_000, 0, 10_000), &supply);
        states = deadline.allocate(&inputs).states().to_vec();
        assert_eq!(states[1], PathState::Active);
        observed.push(states[0]);
    }
    observed.dedup();
    assert_eq!(observed, [PathState::Active, PathState::Closed, PathState::Backup]);
}

#[test]
fn an_object_submitted_before_any_path_is_known_gets_its_prediction_later() {
    let mut deadline = Deadline::new(Params::default());
    let object = demand(10_000_000, 0, 20_000);
    let rates = [0.95e6, 0.95e6].map(|rate| history(&[rate], 100));
    let mut reports = Vec::new();
    for step in 0..5 {
        let known = |place: usize| rates.get(place).filter(|_| step >= 2);
        let supply = [0, 1].map(|place| PathSupply {
            unit_cost: None,
            rat: Rat::Lte,
            input: input(place as u8, PathState::Active),
            history: known(place),
            latest: &LATEST,
        });
        deadline.on_demand(Instant::from_millis(step * 10), &object, &supply);
        reports.extend(deadline.poll_admission().map(|admission| (step, admission.can_be_met())));
    }
    assert_eq!(reports, [(0, None), (2, Some(true))]);
}

/// The rate falls by half for one second in three. Over MPTCP the forecast is as before.
#[test]
fn the_forecast_is_more_cautious_where_the_rate_varies_and_no_path_waits_for_another() {
    let varying: Vec<f64> = (0..30).map(|interval| if interval < 10 { 0.5e6 } else { 1e6 }).collect();
    let [constant, varying] = [history(&[1e6], 300), history(&varying, 300)];
    let forecast = |deadline: &Deadline, history| {
        let source = Source { place: 0, cost: 1.0, rank: 0, history, on: true, prior: 0.0 };
        deadline.rate(&[source], &source, 4.0)
    };
    let (alone, ordered) = (Deadline::without_ordering(Params::default(), true), Deadline::new(Params::default()));
    assert_eq!(forecast(&alone, &constant), forecast(&ordered, &constant));
    assert!(forecast(&alone, &varying) < 0.65 * forecast(&ordered, &varying));
}

#[test]
fn a_path_is_switched_off_with_the_reason_that_its_object_cannot_be_in_time() {
    let fast = history(&[1e6], 100);
    let mut deadline = Deadline::without_ordering(Params::default(), true);
    let supply = [0, 1].map(|rank| PathSupply {
        unit_cost: None,
        rat: Rat::Lte,
        input: input(rank, PathState::Active),
        history: Some(&fast),
        latest: &LATEST,
    });
    let mut reason = |now_s: u64, size_bytes| {
        deadline.on_demand(Instant::from_millis(now_s * 1000), &demand(size_bytes, 0, 10_000), &supply)
    };
    // Three times the rates of both are 41.6 MB.
    assert_eq!(reason(3, 41_000_000).map(|reason| reason.rule), Some("deadline.short"));
    let hopeless = reason(3, 43_000_000);
    assert_eq!(hopeless.as_ref().map(|reason| reason.rule), Some("deadline.hopeless"));
    let text = hopeless.unwrap().text();
    assert!(text.starts_with("43.00 MB are due within 6.93 s and cannot be there in time even at 3 times"), "{text}");
}

/// 12 MB in 20 s over a path of 1 MB/s that broke down for 10 s: the forecast is too low, the rate observed is not. In the last
/// two seconds before the deadline only the forecast counts.
#[test]
fn the_expensive_path_waits_while_the_cheaper_ones_carry_plenty_at_the_rates_observed() {
    let broken: Vec<f64> = (0..400).map(|place| if (150..250).contains(&place) { 0.1e6 } else { 1e6 }).collect();
    let [cheap, expensive] = [history(&broken, 400), history(&[0.2e6], 100)];
    let carries = |deadline: &mut Deadline, size_bytes, due_ms| {
        let inputs = [input(0, PathState::Active), input(1, PathState::Backup)];
        let supply = [0, 1].map(|place| PathSupply {
            unit_cost: None,
            rat: Rat::Lte,
            input: inputs[place],
            history: Some([&cheap, &expensive][place]),
            latest: &LATEST,
        });
        deadline.on_demand(Instant::ZERO, &demand(size_bytes, 0, due_ms), &supply);
        deadline.allocate(&inputs).states()[1] == PathState::Active
    };
    let alone = || Deadline::without_ordering(Params::default(), true);
    assert!(carries(&mut Deadline::new(Params::default()), 12_000_000, 20_000), "over MPTCP what is feared counts");
    assert!(!carries(&mut alone(), 12_000_000, 20_000));
    assert!(carries(&mut alone(), 14_000_000, 20_000), "1.2 times it is more than the mean of 0.775 MB/s carries");
    assert!(carries(&mut alone(), 1_100_000, 1_500));
}

/// Of a rate that rises steadily the mean is too low. Over MPTCP the forecast is as before.
#[test]
fn the_next_second_is_forecast_by_what_predicted_it_best_where_no_path_waits_for_another() {
    let rising = history(&triangle(400), 400);
    let next = triangle(410)[400..].iter().sum::<f64>() / 10.0;
    let source = Source { place: 0, cost: 1.0, rank: 0, history: &rising, on: true, prior: 0.0 };
    let part = |deadline: &Deadline| deadline.rate(&[source], &source, 1.0) / next;
    let (alone, ordered) = (Deadline::without_ordering(Params::default(), true), Deadline::new(Params::default()));
    assert!((0.9..1.01).contains(&part(&alone)) && part(&ordered) < 0.8, "{} {}", part(&alone), part(&ordered));
}

/// The rate falls by half for one second in three, as above.
#[test]
fn caution_is_for_objects_that_have_more_than_a_second() {
    let varying: Vec<f64> = (0..30).map(|interval| if interval < 10 { 0.5e6 } else { 1e6 }).collect();
    let varying = history(&varying, 300);
    let source = Source { place: 0, cost: 1.0, rank: 0, history: &varying, on: true, prior: 0.0 };
    let supply = [PathSupply {
        unit_cost: Some(1.0),
        rat: Rat::Lte,
        input: input(0, PathState::Active),
        history: Some(&varying),
        latest: &LATEST,
    }];
    let mut deadline = Deadline::without_ordering(Params::default(), true);
    let mut rate_for = |deadline_ms| {
        deadline.on_demand(Instant::ZERO, &demand(1_000_000, 0, deadline_ms), &supply);
        deadline.rate(&[source], &source, 1.0)
    };
    let (brief, long) = (rate_for(1000), rate_for(20_000));
    assert!(long < 0.7 * brief, "{long} {brief}");
    // What a window lost is charged once, and twice to frames of a camera.
    let part = |rate: f64| rate / varying.predicted_rate(1.0).unwrap();
    let (once, frames, expected) = (part(brief), part(rate_for(300)), varying.predicted_ratio(2.0, 0.95).1);
    assert!(expected < 0.9 && (once - expected).abs() < 0.03, "{once} {expected}");
    assert!((1.0 - frames - 2.0 * (1.0 - expected)).abs() < 0.06, "{frames} {expected}");
}
