//! `threshold`'s states, with an order of the good paths by a learned tree (Liao et al. 2020, *Cross-layer Path
//! Selection in Multi-path Transport Protocol for Mobile Devices*, figure 5).
//!
//! At the end of each window the tree is asked for each pair of good paths which of the two is to be
//! first. Where it cannot say, its [fallback](Fallback) applies: the user's order, or none. An order stands for a least
//! time. A tree whose order brings less than the fallback is [withdrawn](comparison). What the trials show is [kept](trial), to
//! fit a tree to it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::one_of_radio::OneOfRadio;
use super::{Allocator, Mode, PathInput, PathSupply, one_of_radio};
use crate::assess::Belief;
use crate::path::PathId;
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use crate::wanted::{Order, Wanted};
use comparison::{By, Comparison, Verdict, Window};
use features::{DELIVERY, Meter, RTT, Values, WINDOW};
use tree::{Answer, Fallback, Tree};
use trial::{Pair, Recorder, Trial};
use undecided::Undecided;

pub mod comparison;
pub mod features;
pub mod tree;
pub mod trial;
mod undecided;

/// Which pairs of paths a tree was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// A path to a roadside unit or access point as `a`, and a cellular one as `b`.
    WifiAndCellular,
    /// Any two; each may be `a`.
    Any,
}

/// Parameters of [`Learned`].
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// The pairs of the tree.
    pub pairs: Pairs,
    /// How long an order stands at least.
    pub hold: Duration,
    /// Least share of the training windows in a leaf that agree (0.5 to 1); else the tree's fallback applies.
    pub confidence: f64,
    /// Greatest share of the windows in which the order that is not in force applies, to compare what both bring;
    /// 0: never, and the tree is never withdrawn.
    pub trials: f64,
    /// Whether paths are also swapped in trials where the tree agrees with the user, so that a tree can be fitted to what
    /// the trials show.
    pub swaps: bool,
    /// Those of `threshold`.
    pub rule: one_of_radio::Params,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct Learned {
    params: Params,
    tree: Option<Arc<Tree>>,
    rule: OneOfRadio,
    meters: Vec<Meter>,
    /// End of the present window.
    window_end: Instant,
    /// By the tree, or its fallback.
    choice: Choice,
    /// When the choice changed.
    since: Option<Instant>,
    comparison: Comparison,
    recorder: Recorder,
}

/// How the paths are used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    order: Order,
    /// Whether the first path of the order carries alone, the others in reserve.
    is_alone: bool,
}

impl From<Order> for Choice {
    fn from(order: Order) -> Choice {
        Choice { order, is_alone: false }
    }
}

/// An order, with the values by which its first two paths were compared.
struct Decided {
    order: Vec<PathId>,
    values: [Values; 2],
    answer: Answer,
    is_alone: bool,
}

/// A good path with its values.
type Candidate = (PathId, Values);

impl Learned {
    /// An allocator without paths; without a tree only the rule applies.
    pub fn new(params: Params, tree: Option<Arc<Tree>>) -> Learned {
        let (rule, meters, choice) = (OneOfRadio::new(params.rule), Vec::new(), choice_without(tree.as_deref()));
        let (comparison, recorder) = (Comparison::new(params.trials), Recorder::default());
        Learned { params, tree, rule, meters, window_end: Instant::ZERO, choice, since: None, comparison, recorder }
    }

    /// The good paths; of a Wi-Fi and a cellular one, for which a tree is, the former first.
    fn candidates(&self, paths: &[PathSupply], values: &[Values]) -> Result<Vec<Candidate>, Undecided> {
        let supplies = paths.iter().zip(values).enumerate();
        let good = supplies.filter(|(_, (path, _))| path.input.belief == Belief::Good);
        let mut candidates: Vec<Candidate> = good.map(|(place, (_, values))| (PathId(place as u8), *values)).collect();
        let is_cellular = |candidate: &Candidate| paths[usize::from(candidate.0.0)].rat.is_cellular();
        if candidates.len() < 2 {
            return Err(Undecided::NoChoice);
        }
        if self.params.pairs == Pairs::WifiAndCellular {
            candidates.sort_by_key(is_cellular);
            if candidates.len() > 2 || is_cellular(&candidates[0]) || !is_cellular(&candidates[1]) {
                return Err(Undecided::OtherPaths);
            }
        }
        Ok(candidates)
    }

    fn decide(&self, tree: &Tree, paths: &[PathSupply], candidates: &[Candidate]) -> Result<Decided, Undecided> {
        let scores = match self.params.pairs {
            Pairs::WifiAndCellular => {
                let first = ask(tree, &candidates[0], &candidates[1])?.a_first;
                [first, 1.0 - first].into()
            }
            Pairs::Any => scores(tree, candidates)?,
        };
        let rank = |place: usize| paths[usize::from(candidates[place].0.0)].input.rank;
        let mut places: Vec<usize> = (0..candidates.len()).collect();
        places.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(rank(*a).cmp(&rank(*b))));
        let [first, second] = [places[0], places[1]];
        let lead = match self.params.pairs {
            Pairs::WifiAndCellular => scores[first],
            Pairs::Any => agreement(tree, &candidates[first], &candidates[second])?,
        };
        if lead < self.params.confidence {
            return Err(Undecided::Unsure(lead));
        }
        // The tree of a Wi-Fi and a cellular path has them as `a` and `b`, whichever is first.
        let [a, b] = if self.params.pairs == Pairs::Any { [first, second] } else { [0, 1] };
        let answer = ask(tree, &candidates[a], &candidates[b])?;
        let says_so_swapped = || ask(tree, &candidates[b], &candidates[a]).map(|swapped| swapped.is_alone);
        let is_alone = answer.is_alone && (self.params.pairs == Pairs::WifiAndCellular || says_so_swapped()?);
        let order = places.iter().map(|place| candidates[*place].0).collect();
        Ok(Decided { order, values: [candidates[a].1, candidates[b].1], answer, is_alone })
    }

    /// The two paths if these are all that are good, have an order and both carry: only then one order is the other one
    /// reversed.
    fn pair(&self, candidates: &[Candidate], paths: &[PathSupply]) -> Option<Pair> {
        let &[(a, of_a), (b, of_b)] = candidates else { return None };
        if self.choice.order == Order::Free || self.choice.is_alone {
            return None;
        }
        let is_a_preferred = paths[usize::from(a.0)].input.rank < paths[usize::from(b.0)].input.rank;
        let first = self.choice.order.paths().iter().find(|path| [a, b].contains(path));
        let is_a_first = first.map_or(is_a_preferred, |first| *first == a);
        Some(Pair { paths: [a, b], values: [of_a, of_b], is_a_first, is_a_preferred })
    }

    /// Compares what the tree and its fallback bring, and says how the paths are to be used, why, and whether that
    /// holds whatever the least time of an order is.
    fn choose(
        &mut self,
        tree: &Tree,
        answer: Result<Decided, Undecided>,
        paths: &[PathSupply],
        values: &[Values],
        pair: Option<Pair>,
    ) -> (Choice, Reason, bool) {
        let fallback = tree.fallback();
        let is_other = |by: &Decided| by.is_alone || fallback == Fallback::NoOrder || !is_users(&by.order, paths);
        let differs = answer.as_ref().is_ok_and(is_other);
        let is_visible = self.comparison.in_force() == By::Fallback || matches!(self.choice.order, Order::Paths(_));
        let applied = self.comparison.applies();
        let (in_trial, window) = (self.comparison.is_trial(), window(paths, values));
        self.recorder.end_window(pair, in_trial);
        let is_steady = window.is_some_and(|window| self.recorder.is_steady(&window));
        let may_swap = self.params.swaps && is_steady;
        let verdict = self.comparison.end_window(window, differs && is_visible, may_swap && !differs);
        self.recorder.follow(&mut self.comparison, in_trial, is_steady);
        let applies = self.comparison.applies();
        let (choice, reason) = match (applies, answer) {
            // An order that was swapped stays so.
            (By::Swap, _) if in_trial => (self.choice.clone(), Reason::default()),
            (By::Swap, _) => {
                (pair.map_or(Order::Preference, |pair| Order::Paths(pair.swapped())).into(), reason_of_swap())
            }
            (By::Fallback, _) => (fallback.order().into(), self.reason_of_fallback(fallback, verdict)),
            (By::Tree, Err(undecided)) => (fallback.order().into(), undecided.reason(fallback)),
            (By::Tree, Ok(decided)) => {
                let mut reason = self.reason(tree, &decided);
                if let Some(Verdict { trials, ratio }) = verdict {
                    let text = format!(
                        "the tree is used again, since in {trials} trials its order delivered at least {ratio:.2} times as \
                         much as {}; {}",
                        name(fallback),
                        reason.text()
                    );
                    reason = Reason::plain("learned.restored", text).with(reason.inputs.iter().copied());
                } else if self.comparison.is_trial() {
                    let text = format!("in a trial, to compare: {}", reason.text());
                    reason = Reason::plain("learned.trial", text).with(reason.inputs.iter().copied());
                }
                (Choice { order: Order::Paths(decided.order), is_alone: decided.is_alone }, reason)
            }
        };
        (choice, reason, applies != applied || verdict.is_some())
    }

    /// Why the fallback applies, in a trial or since the tree is withdrawn.
    fn reason_of_fallback(&self, fallback: Fallback, verdict: Option<Verdict>) -> Reason {
        let name = name(fallback);
        match verdict {
            Some(Verdict { trials, ratio }) => {
                let text = format!(
                    "the tree is withdrawn, since in {trials} trials {name} delivered at least {ratio:.2} times as \
                     much as the tree's"
                );
                Reason::plain("learned.withdrawn", text).with([("trials", trials as f64), ("ratio", ratio)])
            }
            None if self.comparison.is_trial() => {
                Reason::plain("learned.trial", format!("{name} applies in a trial, to compare what it brings"))
            }
            None => Reason::plain("learned.withdrawn", "the tree remains withdrawn"),
        }
    }

    fn reason(&self, tree: &Tree, decided: &Decided) -> Reason {
        let Decided { order, values: [a, b], answer, is_alone } = decided;
        let step = |step: tree::Step| {
            let sign = if step.is_yes { "≤" } else { ">" };
            format!("{} {:.4} {sign} {:.4}", step.feature.name(), step.feature.value(a, b), step.at_most)
        };
        let steps: Vec<String> = tree.way(answer).map(step).collect();
        let way = if steps.is_empty() { "it asks nothing".into() } else { steps.join(", ") };
        let text = match order.first().filter(|_| *is_alone) {
            Some(first) => format!("the tree lets path {} carry alone: {way}", first.0),
            None => {
                let names: Vec<String> = order.iter().map(|path| path.0.to_string()).collect();
                format!("the tree puts the paths in the order {}: {way}", names.join(", "))
            }
        };
        Reason::plain("learned.tree", text).with([("a_first", answer.a_first)])
    }
}

/// What applies without a decision of the tree.
fn choice_without(tree: Option<&Tree>) -> Choice {
    tree.map_or(Order::Preference, |tree| tree.fallback().order()).into()
}

fn name(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::UsersOrder => "the user's order",
        Fallback::NoOrder => "the packet scheduler's own choice",
    }
}

fn reason_of_swap() -> Reason {
    Reason::plain("learned.trial", "the two paths are swapped in a trial, to learn what their other order brings")
}

/// Whether this order is that of the user's preference.
fn is_users(order: &[PathId], paths: &[PathSupply]) -> bool {
    order.is_sorted_by_key(|path| paths[usize::from(path.0)].input.rank)
}

/// What the good paths do together in a window; unknown if that of one is.
fn window(paths: &[PathSupply], values: &[Values]) -> Option<Window> {
    let good = || paths.iter().zip(values).filter(|(path, _)| path.input.belief == Belief::Good);
    let delivered_mbit_s: f32 = good().map(|(_, values)| values[DELIVERY]).sum();
    let rtt_ms = good().map(|(_, values)| values[RTT]).fold(0.0, f32::max);
    let is_known = !delivered_mbit_s.is_nan() && good().all(|(_, values)| !values[RTT].is_nan());
    let weighted: f32 = good().map(|(_, values)| values[DELIVERY] * values[RTT]).sum();
    let delay_ms = if delivered_mbit_s > 0.0 { weighted / delivered_mbit_s } else { rtt_ms };
    is_known.then_some(Window { delivered_mbit_s, rtt_windows: rtt_ms / WINDOW.as_millis() as f32, delay_ms })
}

/// Whether a tree puts `a` first, as the allocator asks it of these two paths; `None`: it is not sure, or asks for what is
/// unknown, and its fallback applies.
pub fn puts_first(tree: &Tree, pairs: Pairs, confidence: f64, [a, b]: [&Values; 2]) -> Option<bool> {
    let share = |a, b| tree.ask(a, b).ok().map(|answer| answer.a_first);
    let a_first = match pairs {
        Pairs::WifiAndCellular => share(a, b)?,
        Pairs::Any => (share(a, b)? + 1.0 - share(b, a)?) / 2.0,
    };
    (a_first != 0.5 && a_first.max(1.0 - a_first) >= confidence).then_some(a_first > 0.5)
}

/// Which of two paths is to be first.
fn ask(tree: &Tree, a: &Candidate, b: &Candidate) -> Result<Answer, Undecided> {
    tree.ask(&a.1, &b.1).map_err(|feature| Undecided::Unknown(feature, [a.0, b.0]))
}

/// How sure the tree is that `a` is to be first, whichever of the two it is asked for.
fn agreement(tree: &Tree, a: &Candidate, b: &Candidate) -> Result<f64, Undecided> {
    Ok((ask(tree, a, b)?.a_first + 1.0 - ask(tree, b, a)?.a_first) / 2.0)
}

/// For each path how sure the tree is that it is to be before each other one, summed.
fn scores(tree: &Tree, candidates: &[Candidate]) -> Result<Vec<f64>, Undecided> {
    let others = |path: &Candidate| {
        let id = path.0;
        candidates.iter().filter(move |other| other.0 != id)
    };
    candidates.iter().map(|path| others(path).map(|other| agreement(tree, path, other)).sum()).collect()
}

impl Allocator for Learned {
    /// The rule's states for the user's preference or, if there is one, the order of the tree; where its first path is
    /// to carry alone, those of mode `backup`.
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        self.rule.set_mode(if self.choice.is_alone { Mode::Backup } else { self.params.rule.mode });
        let order = self.choice.order.paths();
        let rank = |place: usize| order.iter().position(|path| usize::from(path.0) == place);
        let last = |rank: u8| rank.saturating_add(order.len() as u8);
        let ranked = paths.iter().enumerate().map(|(place, path)| PathInput {
            rank: rank(place).map_or_else(|| last(path.rank), |rank| rank as u8),
            ..*path
        });
        let ranked: Vec<PathInput> = ranked.collect();
        self.rule.allocate(&ranked).with_order(self.choice.order.clone())
    }

    fn review(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        let of_rule = self.rule.review(now, paths);
        let Some(tree) = self.tree.clone().filter(|_| now >= self.window_end) else { return of_rule };
        self.window_end = window_end(now);
        self.meters.resize_with(paths.len(), Meter::default);
        let meters = self.meters.iter_mut().zip(paths);
        let values: Vec<Values> = meters.map(|(meter, path)| meter.end_window(now, path.latest)).collect();
        let candidates = self.candidates(paths, &values);
        if matches!(candidates, Err(Undecided::NoChoice)) {
            self.comparison.interrupt();
            self.recorder = Recorder::default();
            return of_rule;
        }
        let pair = candidates.as_ref().ok().and_then(|candidates| self.pair(candidates, paths));
        let answer = candidates.and_then(|candidates| self.decide(&tree, paths, &candidates));
        let (choice, reason, is_at_once) = self.choose(&tree, answer, paths, &values, pair);
        let is_held = self.since.is_some_and(|since| now < since + self.params.hold);
        if choice == self.choice || (is_held && !is_at_once) {
            return of_rule;
        }
        (self.choice, self.since) = (choice, Some(now));
        Some(reason)
    }

    fn set_tree(&mut self, tree: Option<Arc<Tree>>) {
        if !matches!((&tree, &self.choice.order), (Some(_), Order::Paths(_))) {
            self.choice = choice_without(tree.as_deref());
        }
        (self.tree, self.since, self.comparison) = (tree, None, Comparison::new(self.params.trials));
        self.recorder = Recorder::default();
    }

    fn poll_trial(&mut self) -> Option<Trial> {
        self.recorder.take()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let window = self.tree.as_ref().map(|_| self.window_end);
        self.rule.next_wakeup().into_iter().chain(window).min()
    }
}

/// End of the window that contains `now`; windows begin at multiples of their duration.
pub fn window_end(now: Instant) -> Instant {
    let windows = now.as_nanos() / WINDOW.as_nanos() as u64 + 1;
    Instant::from_nanos(windows * WINDOW.as_nanos() as u64)
}
