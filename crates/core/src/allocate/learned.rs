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
use super::{Allocator, PathInput, PathSupply, one_of_radio};
use crate::assess::Belief;
use crate::path::PathId;
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use crate::wanted::{Order, Wanted};
use comparison::{By, Comparison, Verdict, Window};
use features::{DELIVERY, Feature, Meter, RTT, Values, WINDOW};
use tree::{Answer, Fallback, Tree};
use trial::{Pair, Recorder, Trial};

pub mod comparison;
pub mod features;
pub mod tree;
pub mod trial;

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
    /// The order by the tree, or its fallback.
    order: Order,
    /// When the order changed.
    since: Option<Instant>,
    comparison: Comparison,
    recorder: Recorder,
}

/// Why the tree does not say which path is to be first.
enum Undecided {
    /// Fewer than two paths are good: there is nothing to decide.
    NoChoice,
    /// The paths are not those that the tree is for.
    OtherPaths,
    Unknown(Feature, [PathId; 2]),
    Unsure(f64),
}

/// An order, with the values by which its first two paths were compared.
struct Decided {
    order: Vec<PathId>,
    values: [Values; 2],
    answer: Answer,
}

/// A good path with its values.
type Candidate = (PathId, Values);

impl Learned {
    /// An allocator without paths; without a tree only the rule applies.
    pub fn new(params: Params, tree: Option<Arc<Tree>>) -> Learned {
        let (rule, meters, order) = (OneOfRadio::new(params.rule), Vec::new(), order_without(tree.as_deref()));
        let (comparison, recorder) = (Comparison::new(params.trials), Recorder::default());
        Learned { params, tree, rule, meters, window_end: Instant::ZERO, order, since: None, comparison, recorder }
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
        let order = places.iter().map(|place| candidates[*place].0).collect();
        Ok(Decided { order, values: [candidates[a].1, candidates[b].1], answer })
    }

    /// The two paths if these are all that are good and have an order: only then one order is the other one reversed.
    fn pair(&self, candidates: &[Candidate], paths: &[PathSupply]) -> Option<Pair> {
        let &[(a, of_a), (b, of_b)] = candidates else { return None };
        if self.order == Order::Free {
            return None;
        }
        let is_a_preferred = paths[usize::from(a.0)].input.rank < paths[usize::from(b.0)].input.rank;
        let first = self.order.paths().iter().find(|path| [a, b].contains(path));
        let is_a_first = first.map_or(is_a_preferred, |first| *first == a);
        Some(Pair { paths: [a, b], values: [of_a, of_b], is_a_first, is_a_preferred })
    }

    /// Compares what the orders bring, and says what is to order the paths: the order, empty for the user's, with its
    /// reason, and whether it holds whatever the least time of an order is.
    fn choose(
        &mut self,
        tree: &Tree,
        answer: Result<Decided, Undecided>,
        paths: &[PathSupply],
        values: &[Values],
        pair: Option<Pair>,
    ) -> (Order, Reason, bool) {
        let fallback = tree.fallback();
        let is_other = |order: &[PathId]| fallback == Fallback::NoOrder || !is_users(order, paths);
        let differs = answer.as_ref().is_ok_and(|decided| is_other(&decided.order));
        let is_visible = self.comparison.in_force() == By::Fallback || matches!(self.order, Order::Paths(_));
        let applied = self.comparison.applies();
        let (in_trial, window) = (self.comparison.is_trial(), window(paths, values));
        self.recorder.end_window(pair, in_trial);
        let is_steady = window.is_some_and(|window| self.recorder.is_steady(&window));
        let may_swap = self.params.swaps && is_steady;
        let verdict = self.comparison.end_window(window, differs && is_visible, may_swap && !differs);
        self.recorder.follow(&mut self.comparison, in_trial, is_steady);
        let applies = self.comparison.applies();
        let (order, reason) = match (applies, answer) {
            // An order that was swapped stays so.
            (By::Swap, _) if in_trial => (self.order.clone(), Reason::default()),
            (By::Swap, _) => (pair.map_or(Order::Preference, |pair| Order::Paths(pair.swapped())), reason_of_swap()),
            (By::Fallback, _) => (fallback.order(), self.reason_of_fallback(fallback, verdict)),
            (By::Tree, Err(undecided)) => (fallback.order(), undecided.reason(fallback)),
            (By::Tree, Ok(decided)) => {
                let mut reason = self.reason(tree, &decided);
                if let Some(Verdict { trials, ratio }) = verdict {
                    let text = format!(
                        "the tree is used again, since in {trials} trials its order delivered {ratio:.2} times as much \
                         as {}; {}",
                        name(fallback),
                        reason.text()
                    );
                    reason = Reason::plain("learned.restored", text).with(reason.inputs.iter().copied());
                } else if self.comparison.is_trial() {
                    let text = format!("in a trial, to compare: {}", reason.text());
                    reason = Reason::plain("learned.trial", text).with(reason.inputs.iter().copied());
                }
                (Order::Paths(decided.order), reason)
            }
        };
        (order, reason, applies != applied || verdict.is_some())
    }

    /// Why the fallback applies, in a trial or since the tree is withdrawn.
    fn reason_of_fallback(&self, fallback: Fallback, verdict: Option<Verdict>) -> Reason {
        let name = name(fallback);
        match verdict {
            Some(Verdict { trials, ratio }) => {
                let text = format!(
                    "the tree is withdrawn, since in {trials} trials {name} delivered {ratio:.2} times as \
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
        let Decided { order, values: [a, b], answer } = decided;
        let step = |step: tree::Step| {
            let sign = if step.is_yes { "≤" } else { ">" };
            format!("{} {:.4} {sign} {:.4}", step.feature.name(), step.feature.value(a, b), step.at_most)
        };
        let steps: Vec<String> = tree.way(answer).map(step).collect();
        let way = if steps.is_empty() { "it asks nothing".into() } else { steps.join(", ") };
        let names: Vec<String> = order.iter().map(|path| path.0.to_string()).collect();
        let text = format!("the tree puts the paths in the order {}: {way}", names.join(", "));
        Reason::plain("learned.tree", text).with([("a_first", answer.a_first)])
    }
}

/// The order that applies without a decision of the tree.
fn order_without(tree: Option<&Tree>) -> Order {
    tree.map_or(Order::Preference, |tree| tree.fallback().order())
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

impl Undecided {
    fn reason(&self, fallback: Fallback) -> Reason {
        let why = match self {
            Undecided::NoChoice => "fewer than two paths are good".into(),
            Undecided::OtherPaths => "the tree is for one Wi-Fi and one cellular path".into(),
            Undecided::Unknown(feature, [a, b]) => {
                format!(
                    "{} is unknown, stale or impossible, with a = path {} and b = path {}",
                    feature.name(),
                    a.0,
                    b.0
                )
            }
            Undecided::Unsure(lead) => format!("only {:.0} % of the training windows of its leaf agree", lead * 100.0),
        };
        let rule = match fallback {
            Fallback::UsersOrder => "the rule of `threshold`",
            Fallback::NoOrder => name(fallback),
        };
        Reason::plain("learned.rule", format!("{rule} applies, since {why}"))
    }
}

impl Allocator for Learned {
    /// The rule's states for the user's preference or, if there is one, the order of the tree.
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let order = self.order.paths();
        let rank = |place: usize| order.iter().position(|path| usize::from(path.0) == place);
        let last = |rank: u8| rank.saturating_add(order.len() as u8);
        let ranked = paths.iter().enumerate().map(|(place, path)| PathInput {
            rank: rank(place).map_or_else(|| last(path.rank), |rank| rank as u8),
            ..*path
        });
        let ranked: Vec<PathInput> = ranked.collect();
        self.rule.allocate(&ranked).with_order(self.order.clone())
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
        let (order, reason, is_at_once) = self.choose(&tree, answer, paths, &values, pair);
        let is_held = self.since.is_some_and(|since| now < since + self.params.hold);
        if order == self.order || (is_held && !is_at_once) {
            return of_rule;
        }
        (self.order, self.since) = (order, Some(now));
        Some(reason)
    }

    fn set_tree(&mut self, tree: Option<Arc<Tree>>) {
        if !matches!((&tree, &self.order), (Some(_), Order::Paths(_))) {
            self.order = order_without(tree.as_deref());
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
