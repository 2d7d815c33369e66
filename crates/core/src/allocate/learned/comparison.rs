//! Whether the tree's order brings more than its fallback: a switchback experiment.
//!
//! A vehicle sees only what the order in force brings. So now and then the other one applies in a
//! trial of a second or two, and what the paths deliver in it is compared with the windows before and
//! after. A trial that is better than these is repeated at once; when a series of them is
//! significantly better, the other order is in force.
//!
//! Where the tree agrees with the user there is nothing to compare. If a tree is to be fitted again, the two
//! paths are swapped in a trial there, since that tree must know what the other order brings there, too.

use alloc::vec::Vec;
use core::ops::{Add, Mul};

/// Windows that count of a trial, and of each side of it. Before them what is in flight must arrive, which
/// was sent in the former order.
const COUNTED: usize = 4;
/// Maximum number of windows for that.
const MAX_SETTLING: usize = 16;
/// Windows from the last trial of a series to the next series, two minutes.
const PAUSE: u32 = 480;
/// The same of a new tree, ten seconds.
const PAUSE_OF_NEW: u32 = 40;
/// Windows until the first trial, five seconds: a connection that begins carries more from window to window.
const START: u32 = 20;
/// Windows from one swap to the next, 75 s.
const PAUSE_OF_SWAPS: u32 = 300;
/// Windows in trials that swaps leave to the comparison with the user's order.
const RESERVE: f64 = 60.0;
/// Windows that may be spent in trials at once.
const MAX_CREDIT: f64 = 120.0;
/// Series of a new tree, unless one shows that it is better.
const NEW_SERIES: u8 = 2;
/// Trials in such a series, whatever they show.
const FIRST: usize = 3;
/// Maximum number of trials in a series.
const MAX_SERIES: usize = 8;
/// By how much the other order must deliver more to be better: as (b − a) / (a + b), thus 3 %.
const MARGIN: f64 = 0.015;
/// A series ends before it has [`FIRST`] trials if these deliver less by a fifth.
const HOPELESS: f64 = -0.1;
/// A tree is new no longer if the trials of a series deliver less than half.
const PROVED: f64 = -1.0 / 3.0;
/// A trial ends once it delivers less than this part of what the windows before it did.
const FAR_LESS: f64 = 1.0 / 3.0;
/// Greatest ratio that is reported.
const MAX_RATIO: f64 = 100.0;
/// Quantiles of Student's t distribution for series of 3 to 8 trials.
type Quantiles = [f64; MAX_SERIES + 1 - FIRST];
/// Those of the first ones, 95 % on one side: a new tree has proved nothing.
const T_NEW: Quantiles = [2.920, 2.353, 2.132, 2.015, 1.943, 1.895];
/// Those of later ones, 99.9 %, since they are many.
const T_LATER: Quantiles = [22.327, 10.215, 7.173, 5.893, 5.208, 4.785];

/// What orders the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The tree.
    Tree,
    /// The fallback of the tree: the user's order, or none.
    Fallback,
    /// The two paths swapped, in a trial.
    Swap,
}

impl By {
    fn other(self) -> By {
        match self {
            By::Tree => By::Fallback,
            By::Fallback | By::Swap => By::Tree,
        }
    }
}

/// Why another order is in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Number of trials.
    pub trials: usize,
    /// How much more it delivered in them: its delivery as a multiple of that of the former.
    pub ratio: f64,
}

/// What the paths did in a window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// What they delivered together, in Mbit/s.
    pub delivered_mbit_s: f32,
    /// The longest RTT, in windows.
    pub rtt_windows: f32,
    /// The mean RTT of what was delivered, in ms.
    pub delay_ms: f32,
}

/// What the paths did outside a trial and in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// What they delivered, in Mbit/s: outside and in it.
    pub goodput_mbit_s: [f32; 2],
    /// The mean RTT of that, in ms.
    pub delay_ms: [f32; 2],
}

/// Delivered in some windows: the sum in Mbit/s, and weighted by the RTT in ms.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    mbit_s: f64,
    weighted_ms: f64,
}

impl From<&Window> for Delivered {
    fn from(window: &Window) -> Delivered {
        let mbit_s = f64::from(window.delivered_mbit_s);
        Delivered { mbit_s, weighted_ms: mbit_s * f64::from(window.delay_ms) }
    }
}

impl Add for Delivered {
    type Output = Delivered;

    fn add(self, other: Delivered) -> Delivered {
        Delivered { mbit_s: self.mbit_s + other.mbit_s, weighted_ms: self.weighted_ms + other.weighted_ms }
    }
}

impl Mul<f64> for Delivered {
    type Output = Delivered;

    fn mul(self, factor: f64) -> Delivered {
        Delivered { mbit_s: self.mbit_s * factor, weighted_ms: self.weighted_ms * factor }
    }
}

impl Delivered {
    fn delay_ms(self) -> f32 {
        if self.mbit_s > 0.0 { (self.weighted_ms / self.mbit_s) as f32 } else { f32::NAN }
    }
}

/// A part of a trial: its windows until now, and how many of them count.
#[derive(Clone, Copy, Debug)]
struct Part {
    windows: usize,
    counted: usize,
    /// Whether the trial is over, and what follows is compared with it.
    is_after: bool,
    /// Whether the two paths are swapped in it.
    is_swap: bool,
}

/// The experiment.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Greatest share of the windows in trials.
    share: f64,
    in_force: By,
    /// Windows that may be spent in trials.
    credit: f64,
    /// Windows since the last trial began.
    since_trial: u32,
    /// Windows since the last swap began.
    since_swap: u32,
    trial: Option<Part>,
    /// What was delivered in the latest windows of the order in force.
    latest: Vec<Delivered>,
    before: Delivered,
    /// The same of the trial, scaled to [`COUNTED`] windows if it ended early.
    during: Delivered,
    /// Of the last trial, until it is taken.
    outcome: Option<Outcome>,
    /// By how much the other order delivered more in each trial of the series, as (b − a) / (a + b).
    series: Vec<f64>,
    /// Series for which the tree is new.
    new_series: u8,
}

impl Comparison {
    /// Of a new tree, with this share of the windows in trials; 0: none.
    pub fn new(share: f64) -> Comparison {
        let credit = if share > 0.0 { MAX_CREDIT } else { 0.0 };
        Comparison {
            share,
            in_force: By::Tree,
            credit,
            since_trial: PAUSE_OF_NEW - START,
            since_swap: PAUSE_OF_SWAPS,
            trial: None,
            latest: Vec::new(),
            before: Delivered::default(),
            during: Delivered::default(),
            outcome: None,
            series: Vec::new(),
            new_series: NEW_SERIES,
        }
    }

    /// What orders the paths in the present window.
    pub fn applies(&self) -> By {
        match self.trial {
            Some(Part { is_after: false, is_swap: true, .. }) => By::Swap,
            Some(Part { is_after: false, .. }) => self.in_force.other(),
            _ => self.in_force,
        }
    }

    /// Whether the present window is one of a trial.
    pub fn is_trial(&self) -> bool {
        self.trial.is_some_and(|part| !part.is_after)
    }

    /// What the trial that ended with the last window showed.
    pub fn take_outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Whether a trial, or what follows it, is compared.
    pub fn is_comparing(&self) -> bool {
        self.trial.is_some()
    }

    /// What orders the paths outside trials.
    pub fn in_force(&self) -> By {
        self.in_force
    }

    /// Ends the present trial without a result.
    pub fn interrupt(&mut self) {
        self.trial = None;
        self.latest.clear();
    }

    /// Ends a window; `None`: what the paths did in it is unknown. `differs`: whether the tree's order is another one
    /// than its fallback. `may_swap`: whether the two paths may be swapped otherwise. Returns a verdict if another order is
    /// in force from now on.
    pub fn end_window(&mut self, window: Option<Window>, differs: bool, may_swap: bool) -> Option<Verdict> {
        self.credit = (self.credit + self.share - f64::from(u8::from(self.is_trial()))).min(MAX_CREDIT);
        self.since_trial = self.since_trial.saturating_add(1);
        self.since_swap = self.since_swap.saturating_add(1);
        let Some(window) = window else {
            self.interrupt();
            return None;
        };
        self.count(&window);
        if self.trial.is_some() {
            return None;
        }
        if !differs {
            if may_swap && self.since_swap >= PAUSE_OF_SWAPS && self.credit >= RESERVE {
                self.begin(true);
            }
            return None;
        }
        let verdict = self.verdict();
        if verdict.is_none() {
            self.begin_trial();
        }
        verdict
    }

    /// Counts a window for the trial or the order in force.
    fn count(&mut self, window: &Window) {
        let Some(part) = &mut self.trial else { return self.keep(window) };
        part.windows += 1;
        part.counted += usize::from(part.counted > 0 || part.windows > settling(window));
        let is_swap = part.is_swap;
        match *part {
            Part { counted: 0, .. } => self.latest.clear(),
            Part { is_after: true, counted, .. } => {
                self.keep(window);
                if counted == COUNTED {
                    self.trial = None;
                    self.end_trial(is_swap);
                }
            }
            Part { counted, .. } => {
                self.during = self.during + window.into();
                let during = self.during * (COUNTED as f64 / counted as f64);
                if counted == COUNTED || during.mbit_s < self.before.mbit_s * FAR_LESS {
                    self.during = during;
                    self.trial = Some(Part { windows: 0, counted: 0, is_after: true, is_swap });
                }
            }
        }
    }

    fn keep(&mut self, window: &Window) {
        self.latest.truncate(COUNTED - 1);
        self.latest.insert(0, window.into());
    }

    /// Sum of the latest windows of the order in force, if there are enough.
    fn latest(&self) -> Option<Delivered> {
        (self.latest.len() == COUNTED).then(|| self.latest.iter().copied().fold(Delivered::default(), Add::add))
    }

    fn is_new(&self) -> bool {
        self.new_series > 0
    }

    fn begin_trial(&mut self) {
        let pause = match self.series.is_empty() {
            false => 0,
            true if self.is_new() => PAUSE_OF_NEW,
            true => PAUSE,
        };
        if self.since_trial < pause || self.credit < (MAX_SETTLING + COUNTED) as f64 {
            return;
        }
        self.begin(false);
    }

    fn begin(&mut self, is_swap: bool) {
        let Some(before) = self.latest().filter(|before| before.mbit_s > 0.0) else { return };
        let trial = Part { windows: 0, counted: 0, is_after: false, is_swap };
        (self.trial, self.before, self.during) = (Some(trial), before, Delivered::default());
        *(if is_swap { &mut self.since_swap } else { &mut self.since_trial }) = 0;
    }

    fn end_trial(&mut self, is_swap: bool) {
        let after = self.latest().unwrap_or(self.before);
        let around = self.before + after;
        let [usual, during] = [around.mbit_s / 2.0, self.during.mbit_s];
        if during + usual <= 0.0 {
            return;
        }
        self.outcome = Some(Outcome {
            goodput_mbit_s: [usual, during].map(|sum| (sum / COUNTED as f64) as f32),
            delay_ms: [around.delay_ms(), self.during.delay_ms()],
        });
        if is_swap {
            return;
        }
        self.series.push(advantage(during, [self.before.mbit_s, after.mbit_s]));
        let (count, is_better) = (self.series.len(), mean(&self.series) > MARGIN);
        let is_open = self.is_new() && count < FIRST && mean(&self.series) > HOPELESS;
        let goes_on = is_better || is_open;
        if goes_on && (count < MAX_SERIES || self.significant().is_some()) {
            return;
        }
        let has_proved = mean(&self.series) < PROVED || self.significant().is_some();
        self.new_series = if has_proved { 0 } else { self.new_series.saturating_sub(1) };
        self.series.clear();
    }

    /// By how much the other order is better in the series, or worse (negative), if it is.
    fn significant(&self) -> Option<f64> {
        let quantiles = if self.is_new() { T_NEW } else { T_LATER };
        let t = quantiles.get(self.series.len().checked_sub(FIRST)?)?;
        let (count, mean) = (self.series.len() as f64, mean(&self.series));
        let variance = self.series.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0);
        (mean.abs() > MARGIN && mean * mean * count > t * t * variance).then_some(mean)
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let mean = self.significant().filter(|mean| *mean > 0.0)?;
        let verdict = Verdict { trials: self.series.len(), ratio: ((1.0 + mean) / (1.0 - mean)).min(MAX_RATIO) };
        let (in_force, credit, new_series) = (self.in_force.other(), 0.0, 0);
        *self = Comparison { in_force, credit, new_series, since_trial: 0, ..Comparison::new(self.share) };
        Some(verdict)
    }
}

/// Windows after a change of the order until what they deliver shows it.
pub(super) fn settled(window: &Window) -> usize {
    settling(window) + COUNTED
}

/// Windows until what is in flight has arrived: a smoothed RTT lags behind a queue that grows.
fn settling(window: &Window) -> usize {
    ((2.0 * window.rtt_windows) as usize + 1).min(MAX_SETTLING)
}

/// By how much a trial delivered more than the windows before and after it, as (b − a) / (a + b); 0 if it lies
/// between these, as while what the paths carry rises or falls.
fn advantage(during: f64, around: [f64; 2]) -> f64 {
    let [least, most] = [around[0].min(around[1]), around[0].max(around[1])];
    let usual = during.clamp(least, most);
    if during == usual { 0.0 } else { (during - usual) / (during + usual) }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests;
