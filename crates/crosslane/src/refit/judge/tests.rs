use crosslane_core::allocate::learned::Pairs;
use crosslane_core::allocate::learned::features::{DELIVERY, RTT};
use crosslane_core::allocate::learned::trial::Trial;

use super::*;
use crate::trials::tests::TRIAL;

const REFITTING: Refitting = Refitting {
    strategy: "learned",
    tree_file: String::new(),
    store_file: String::new(),
    pairs: Pairs::Any,
    confidence: 0.6,
};

fn tree(nodes: &str) -> Tree {
    let text = format!(r#"{{"format": "crosslane-tree", "version": 1, "strategy": "learned", "nodes": [{nodes}]}}"#);
    serde_json::from_str(&text).expect("a tree")
}

/// A tree that is never sure, so that the user's order applies.
fn unsure() -> Tree {
    tree(r#"{"a_first": 0.5}"#)
}

/// Numbered rows in which the path with the shorter RTT delivers twice as much, but in one of so many the other one.
fn rows(count: u64, wrong: u64) -> Vec<Row> {
    let row = |number: u64| {
        let draw = |salt: u64| {
            let mixed = (1000 * number + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as f32
        };
        let mut values = TRIAL.values;
        (values[0][RTT], values[1][RTT]) = (10.0 + draw(1) % 90.0, 10.5 + draw(2) % 90.0);
        let is_a_better = (values[0][RTT] < values[1][RTT]) ^ number.is_multiple_of(wrong);
        let goodput_mbit_s = if is_a_better { [10.0, 5.0] } else { [5.0, 10.0] };
        Row { number, trial: Trial { values, goodput_mbit_s, is_a_preferred: number.is_multiple_of(2), ..TRIAL } }
    };
    (1..=count).map(row).collect()
}

fn judged(running: &Tree, seen: u64, rows: &[Row]) -> Verdict {
    judge(&REFITTING, running, seen, rows).expect("no fault")
}

fn compared(running: &Tree, seen: u64, rows: &[Row]) -> Compared {
    match judged(running, seen, rows) {
        Verdict::Compared(compared) => compared,
        other => panic!("{other}"),
    }
}

#[test]
fn a_tree_that_learns_what_the_running_one_does_not_know_is_better() {
    let rows = rows(400, 10);
    let found = compared(&unsure(), 0, &rows);
    assert!(found.is_better() && found.accuracy[0] > 0.85 && found.accuracy[1] < 0.65, "{found:?}");
    assert_eq!((found.rows, found.file["trained"]["seen"].as_u64()), ([320, 80], Some(400)));
    assert!(found.file.to_string().len() < 20_000);
    let fitted: Tree = serde_json::from_value(found.file.clone()).unwrap();
    assert!(
        fitted.origin().contains("by crosslane refit") && fitted.origin().contains("rows 320"),
        "{}",
        fitted.origin()
    );
    assert!(fitted.questions().any(|(feature, at_most)| feature.name() == "a-b.rtt_ms" && at_most.abs() < 0.2));
    let again = compared(&fitted, 0, &rows);
    assert!(!again.is_better(), "it does not beat itself");
    let says = Verdict::Compared(again).to_string();
    assert!(
        says.starts_with("fitted to 320 rows, it is right in ") && says.ends_with("2 points more are needed"),
        "{says}"
    );
}

#[test]
fn rows_that_the_running_tree_has_seen_do_not_compare() {
    let rows = rows(400, 10);
    assert!(matches!(judged(&unsure(), 371, &rows), Verdict::Seen { unseen: 29 }));
    assert_eq!(compared(&unsure(), 350, &rows).rows, [320, 50]);
    assert_eq!(compared(&unsure(), 401, &rows).rows, [320, 80], "numbers of another store");
}

#[test]
fn too_few_rows_and_one_class_are_a_sentence() {
    let many = rows(400, 10);
    assert!(
        judged(&unsure(), 0, &many[..249]).to_string().starts_with("in 249 rows either order was better, and 250 ")
    );
    assert_eq!(compared(&unsure(), 0, &many[..250]).rows, [200, 50]);
    let same = |row: &Row| Row { trial: Trial { goodput_mbit_s: [2.0, 1.0], ..row.trial }, ..*row };
    let same: Vec<Row> = many.iter().map(same).collect();
    assert!(judged(&unsure(), 0, &same).to_string().contains("nothing can be learned"));
    let tied = |row: &Row| Row { trial: Trial { goodput_mbit_s: [1.0; 2], delay_ms: [9.0; 2], ..row.trial }, ..*row };
    let tied: Vec<Row> = many.iter().map(tied).collect();
    assert!(matches!(judged(&unsure(), 0, &tied), Verdict::TooFew { labelled: 0 }));
}

#[test]
fn labels_without_any_relation_to_the_features_promote_seldom() {
    let promoted = (0..40_u64).filter(|seed| {
        let mut rows = rows(500, 10);
        let mut state = seed + 1;
        for row in &mut rows {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            row.trial.goodput_mbit_s = if state >> 63 == 0 { [10.0, 5.0] } else { [5.0, 10.0] };
        }
        compared(&unsure(), 0, &rows).is_better()
    });
    let promoted = promoted.count();
    assert!(promoted <= 4, "{promoted} of 40");
}

#[test]
fn a_tunnel_without_window_and_loss_is_not_asked_for_them() {
    let mut rows = rows(400, 10);
    for row in &mut rows {
        row.trial.values.iter_mut().for_each(|values| (values[6], values[7]) = (f32::NAN, f32::NAN));
    }
    rows[3].trial.values[0][DELIVERY] = f32::NAN;
    let found = compared(&unsure(), 0, &rows);
    assert!(found.is_better() && !found.file.to_string().contains("cwnd"), "{found:?}");
}

#[test]
fn the_sign_test_is_that_of_the_binomial_distribution() {
    for (heads, throws, expected) in
        [(0, 0, 1.0), (9, 10, 11.0 / 1024.0), (5, 10, 638.0 / 1024.0), (10, 10, 1.0 / 1024.0)]
    {
        assert!((chance(heads, throws) - expected).abs() < 1e-12, "{heads} of {throws}");
    }
    assert!((chance(2_600, 5_000) - 0.002_4).abs() < 2e-4, "{}", chance(2_600, 5_000));
}
