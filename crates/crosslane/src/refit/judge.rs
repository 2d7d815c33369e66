//! Whether a tree that was fitted again is to take the place of the running one: by the newest rows, which neither has
//! seen.

use std::fmt;

use crosslane_core::allocate::learned::puts_first;
use crosslane_core::allocate::learned::tree::Tree;
use crosslane_core::strategy::Refitting;
use serde_json::{Value, json};

use super::fit;
use super::samples::{Labelled, features, samples};
use crate::trials::Row;

/// Rows with a label that are needed to fit a tree, and to compare it.
const LEAST_TO_FIT: usize = 200;
const LEAST_TO_COMPARE: usize = 50;
/// Part of the rows, the newest, that is held out; of the others so much prunes the tree that the rest has grown.
const PART: f64 = 0.2;
/// By how much more of the held-out rows the tree must be right.
const MARGIN: f64 = 0.02;
/// How probable it may be that a tree which is no better does so well: a sign test on the rows on which the two differ.
const SIGNIFICANCE: f64 = 0.05;

/// What came of it.
#[derive(Debug)]
pub enum Verdict {
    /// There are too few rows with a label.
    TooFew {
        /// How many there are.
        labelled: usize,
    },
    /// The running tree has seen the newest rows.
    Seen {
        /// How many of those that would be held out it has not seen.
        unseen: usize,
    },
    /// One path was better in all rows.
    OneClass,
    /// A tree was fitted, and compared.
    Compared(Compared),
}

/// A tree beside the running one.
#[derive(Debug)]
pub struct Compared {
    /// Its file.
    pub file: Value,
    /// Rows that it was fitted to, and that were held out.
    pub rows: [usize; 2],
    /// Number of its nodes.
    pub nodes: usize,
    /// Part of the held-out rows in which it is right, and in which the running one is.
    pub accuracy: [f64; 2],
    /// How probable it is that a tree which is no better does so well.
    pub chance: f64,
}

impl Compared {
    /// Whether it is to run.
    pub fn is_better(&self) -> bool {
        let [new, running] = self.accuracy;
        new >= running + MARGIN && self.chance <= SIGNIFICANCE
    }
}

/// Fits a tree to all but the newest rows, and compares it with the running one, whose file says that it has seen the rows
/// up to the number `seen`.
///
/// # Errors
/// The tree cannot be made, which is a fault of this program.
pub fn judge(refitting: &Refitting, running: &Tree, seen: u64, rows: &[Row]) -> Result<Verdict, String> {
    let labelled: Vec<Labelled> = rows.iter().filter_map(Labelled::of).collect();
    let newest = labelled.last().map_or(0, |row| row.number);
    // Numbers that begin again are those of another store, of which it has seen nothing.
    let seen = if seen > newest { 0 } else { seen };
    let (known, held_out) = labelled.split_at(labelled.len() - (labelled.len() as f64 * PART) as usize);
    if known.len() < LEAST_TO_FIT || held_out.len() < LEAST_TO_COMPARE {
        return Ok(Verdict::TooFew { labelled: labelled.len() });
    }
    let unseen: Vec<Labelled> = held_out.iter().filter(|row| row.number > seen).copied().collect();
    if unseen.len() < LEAST_TO_COMPARE {
        return Ok(Verdict::Seen { unseen: unseen.len() });
    }
    if known.iter().all(|row| row.a_first == known[0].a_first) {
        return Ok(Verdict::OneClass);
    }
    let features = features(refitting.pairs, known);
    let (first, later) = known.split_at(known.len() - (known.len() as f64 * PART) as usize);
    let [first, later] = [first, later].map(|rows| samples(refitting.pairs, &features, rows));
    let nodes = fit::fit(&first, &later)?.nodes(&features);
    let mut file = json!({
        "format": "crosslane-tree", "version": 1, "strategy": refitting.strategy, "trained": null, "nodes": nodes
    });
    let tree: Tree = serde_json::from_value(file.clone()).map_err(|fault| fault.to_string())?;
    let (new, old) = (choices(refitting, &tree, &unseen), choices(refitting, running, &unseen));
    let right =
        |choices: &[bool]| choices.iter().zip(&unseen).filter(|(a_first, row)| **a_first == row.a_first).count();
    let differing = new.iter().zip(&old).filter(|(new, old)| new != old).count();
    let (better, accuracy) = (right(&new) as f64 - right(&old) as f64, |right| right as f64 / unseen.len() as f64);
    let for_new = (differing as f64 + better) / 2.0;
    let accuracy = [accuracy(right(&new)), accuracy(right(&old))];
    file["trained"] = json!({
        "by": "crosslane refit", "rows": known.len(), "held_out": unseen.len(), "accuracy": rounded(accuracy[0]),
        "accuracy_of_the_former": rounded(accuracy[1]), "seen": newest
    });
    let chance = chance(for_new as usize, differing);
    Ok(Verdict::Compared(Compared { file, rows: [known.len(), unseen.len()], nodes: nodes.len(), accuracy, chance }))
}

/// Which path is first in each row by a tree, or else by the user's order, as the agent would have it.
fn choices(Refitting { pairs, confidence, .. }: &Refitting, tree: &Tree, rows: &[Labelled]) -> Vec<bool> {
    let choice = |row: &Labelled| {
        let [a, b] = &row.values;
        puts_first(tree, *pairs, *confidence, [a, b]).unwrap_or(row.is_a_preferred)
    };
    rows.iter().map(choice).collect()
}

/// How probable so many or more heads are in so many throws of a coin.
fn chance(heads: usize, throws: usize) -> f64 {
    let (mut ln_choose, mut sum) = (0.0, 0.0);
    let ln_all = throws as f64 * 2_f64.ln();
    for count in 0..=throws {
        if count >= heads {
            sum += (ln_choose - ln_all).exp();
        }
        ln_choose += ((throws - count) as f64 / (count + 1) as f64).ln();
    }
    sum.min(1.0)
}

fn rounded(part: f64) -> f64 {
    (part * 1e4).round() / 1e4
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = ((LEAST_TO_FIT as f64 / (1.0 - PART)) as usize).max((LEAST_TO_COMPARE as f64 / PART) as usize);
        match self {
            Verdict::TooFew { labelled } => {
                write!(f, "in {labelled} rows either order was better, and {least} are needed to fit a tree")
            }
            Verdict::Seen { unseen } => write!(
                f,
                "the running tree has seen all but {unseen} of the newest rows, and {LEAST_TO_COMPARE} are needed to \
                 compare another one with it"
            ),
            Verdict::OneClass => f.write_str("the same path was better in every row, so nothing can be learned"),
            Verdict::Compared(compared) => {
                let Compared { rows: [rows, held_out], accuracy: [new, running], chance, .. } = compared;
                let percent = |part: &f64| format!("{:.1} %", part * 100.0);
                write!(
                    f,
                    "fitted to {rows} rows, it is right in {} of {held_out} newer ones, the running tree in {}",
                    percent(new),
                    percent(running)
                )?;
                if *new < running + MARGIN {
                    write!(f, ", and {:.0} points more are needed", MARGIN * 100.0)
                } else if *chance > SIGNIFICANCE {
                    let [chance, needed] = [chance, &SIGNIFICANCE].map(percent);
                    write!(f, ", which is by chance with a probability of {chance}, and at most {needed} is needed")
                } else {
                    Ok(())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
