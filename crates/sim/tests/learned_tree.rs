//! The agent's tree gives the answers of scikit-learn: `lab/tests/golden/tree.json` has a tree, the number of
//! answers and their digest; `lab/tests/test_learn.py` makes the same rows.

use crosslane_core::allocate::learned::features::{COUNT, QUANTITIES, Values};
use crosslane_core::allocate::learned::tree::Tree;
use serde_json::Value;

const GOLDEN: &str = include_str!("../../../lab/tests/golden/tree.json");
const ROWS: usize = 20_000;
/// Rows with the feature of a question at its threshold and just above it, for each question.
const NEAR: usize = 40;
const RANGES: [[f64; 2]; COUNT] = [
    [-110.0, -40.0],
    [-10.0, 40.0],
    [-20.0, -5.0],
    [1.0, 100.0],
    [1.0, 100.0],
    [5.0, 200.0],
    [2.0, 200.0],
    [0.0, 0.1],
    [0.0, 60.0],
];

/// Values of both paths.
fn rows() -> Vec<[Values; 2]> {
    let mut state = 1_u32;
    let mut number = |[low, high]: [f64; 2]| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (low + f64::from(state >> 8) / f64::from(1 << 24) * (high - low)) as f32
    };
    (0..ROWS).map(|_| [RANGES.map(&mut number), RANGES.map(&mut number)]).collect()
}

/// FNV-1a of 64 bits over the values as doubles.
fn digest(values: &[f64]) -> String {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[test]
fn every_answer_is_that_of_scikit_learn_on_20000_rows_and_on_both_sides_of_thresholds() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let tree: Tree = serde_json::from_str(GOLDEN).unwrap();
    let rows = rows();
    let ask = |[a, b]: &[Values; 2]| tree.ask(a, b).unwrap().a_first;
    let mut answers: Vec<f64> = rows.iter().map(ask).collect();
    for (feature, at_most) in tree.questions() {
        let name = feature.name();
        let (of, quantity) = name.split_once('.').unwrap();
        let side = match of {
            "a" => 0,
            "b" => 1,
            _ => continue,
        };
        let place = QUANTITIES.iter().position(|known| known.name == quantity).unwrap();
        let nearest = at_most as f32;
        let below = if f64::from(nearest) > at_most { nearest.next_down() } else { nearest };
        for row in &rows[..NEAR / 2] {
            for value in [below, below.next_up()] {
                let mut changed = *row;
                changed[side][place] = value;
                answers.push(ask(&changed));
            }
        }
    }
    assert_eq!(answers.len() as u64, golden["trained"]["answers"].as_u64().unwrap());
    assert_eq!(digest(&answers), golden["trained"]["digest"].as_str().unwrap());
}
