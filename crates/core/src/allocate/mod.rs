//! Beliefs in, wanted state of each path out.
//!
//! An allocator receives all paths and the user's demand, but no samples. An actuator
//! that knows no strategy applies the wanted states.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::assess::Belief;
use crate::assess::throughput::History;
use crate::demand::{Admission, Object};
use crate::path::{Carried, Echo, OnFade, PathState, PerPath, RadioLink, Rat, SampleKind, Signal, Transport};
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use crate::wanted::Wanted;
use learned::tree::Tree;
use learned::trial::Trial;

pub mod adaptive;
pub mod by_belief;
pub mod deadline;
mod fullness;
pub mod learned;
mod least_delay;
pub mod mp_dpa;
pub mod one_of_radio;
mod tiers;

/// How the paths are used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", try_from = "String")]
pub enum Mode {
    /// Data over every good path at once.
    #[default]
    Aggregate,
    /// Data over the most preferred good path, the others held in reserve.
    Backup,
    /// The same, and while that path is full, over the next one too.
    CostFirst,
    /// Data over the good path of the least delay, the others held in reserve.
    Interactive,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [Mode::Aggregate, Mode::Backup, Mode::CostFirst, Mode::Interactive];

    /// The name in configurations and records.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Aggregate => "aggregate",
            Mode::Backup => "backup",
            Mode::CostFirst => "cost-first",
            Mode::Interactive => "interactive",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    /// The mode of this name; `handover` is an older word for `backup`.
    ///
    /// # Errors
    /// There is none; the message names those that exist.
    fn from_str(name: &str) -> Result<Mode, String> {
        match name {
            "handover" => Ok(Mode::Backup),
            "redundant" => {
                Err("`redundant` is a mode of the tunnel, MPTCP sends each byte over one path; set the tunnel's `mode`"
                    .into())
            }
            _ => Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
                format!("unknown variant `{name}`, expected one of `{}`", Mode::ALL.map(Mode::name).join("`, `"))
            }),
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(name: String) -> Result<Mode, String> {
        name.parse()
    }
}

/// What an allocator knows of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathInput {
    /// The belief about it.
    pub belief: Belief,
    /// Its wanted state until now.
    pub was: PathState,
    /// Rank in the user's preference, 0 first.
    pub rank: u8,
    /// Number of the radio that it shares with others, if any.
    pub radio: Option<u8>,
}

/// What a path can contribute to a demand.
#[derive(Clone, Copy, Debug)]
pub struct PathSupply<'a> {
    /// What every allocator knows of it.
    pub input: PathInput,
    /// Its radio access technology.
    pub rat: Rat,
    /// Price of a byte over it, in any unit; `None` of every path if the user gave none.
    pub unit_cost: Option<f64>,
    /// Its measured throughput, if it is measured.
    pub history: Option<&'a History>,
    /// Its latest measurements.
    pub latest: &'a Latest,
}

/// The latest measurements of a path, each with its time; `None` until there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latest {
    /// The received signal.
    pub signal: Option<(Instant, Signal)>,
    /// The radio link's rates and failures.
    pub radio: Option<(Instant, RadioLink)>,
    /// The transport statistics of a subflow over it.
    pub transport: Option<(Instant, Transport)>,
    /// What all its subflows carried in a second.
    pub carried: Option<(Instant, Carried)>,
    /// Whether its roadside unit answers.
    pub answers: Option<(Instant, bool)>,
    /// Whether its modem has announced a handover that is not over.
    pub handover: Option<(Instant, bool)>,
    /// When an echo request over it was last answered, and its RTT.
    pub echo: Option<(Instant, Duration)>,
}

impl Latest {
    /// Keeps what a sample measures.
    pub fn observe(&mut self, now: Instant, sample: &SampleKind) {
        match *sample {
            SampleKind::Signal(signal) => self.signal = Some((now, signal)),
            SampleKind::Radio(radio) => self.radio = Some((now, radio)),
            SampleKind::Transport(transport) => self.transport = Some((now, transport)),
            SampleKind::Handover { is_announced } => self.handover = Some((now, is_announced)),
            SampleKind::Carried(carried) => self.carried = Some((now, carried)),
            SampleKind::UnitAnswers(answers) => self.answers = Some((now, answers)),
            SampleKind::Echo(Echo { rtt: Some(rtt), .. }) => self.echo = Some((now, rtt)),
            _ => {}
        }
    }
}

/// Decides on all paths; the result has one state for each input.
pub trait Allocator {
    /// The wanted states in the order of `paths`, for each class of connections, and the
    /// order in which the paths are preferred.
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted;

    /// Reviews what each path can contribute, after every sample and at
    /// [`next_wakeup`](Self::next_wakeup); returns a reason if the states or the order
    /// must be [allocated](Self::allocate) again though no belief changed.
    fn review(&mut self, _now: Instant, _paths: &[PathSupply]) -> Option<Reason> {
        None
    }

    /// When to [review](Self::review) if no sample arrives.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// Processes the demand and what each path can contribute; returns a reason if the
    /// states must be [allocated](Self::allocate) again.
    fn on_demand(&mut self, _now: Instant, _demand: &[Object], _paths: &[PathSupply]) -> Option<Reason> {
        None
    }

    /// The next prediction for a new object of the demand.
    fn poll_admission(&mut self) -> Option<Admission> {
        None
    }

    /// Replaces the tree that orders the paths, if it has one; none: the user's order applies.
    fn set_tree(&mut self, _tree: Option<Arc<Tree>>) {}

    /// What the last trial of another order showed.
    fn poll_trial(&mut self) -> Option<Trial> {
        None
    }

    /// Maximum number of bytes that a sender may have written and not acknowledged;
    /// `None`: only its send buffer limits it.
    fn backlog_bytes(&self) -> Option<u64> {
        None
    }
}

/// The good paths that are on are active, other good ones backup. If no path that is on
/// is good, the most preferred good one is active.
fn select_active(
    paths: &[PathInput],
    is_on: impl Fn(usize, &PathInput) -> bool,
    on_fade: OnFade,
) -> PerPath<PathState> {
    let good = |path: &PathInput| path.belief == Belief::Good;
    let Some(first) = paths.iter().filter(|path| good(path)).map(|path| path.rank).min() else {
        return last_resort(paths);
    };
    let any_on = paths.iter().enumerate().any(|(place, path)| good(path) && is_on(place, path));
    let state = |(place, path): (usize, &PathInput)| match path.belief {
        Belief::Good if is_on(place, path) || (!any_on && path.rank == first) => PathState::Active,
        Belief::Good => PathState::Backup,
        Belief::Fading if on_fade == OnFade::Close => PathState::Closed,
        _ => fallback_state(path),
    };
    paths.iter().enumerate().map(state).collect()
}

/// Fallback when no path is good: fading paths, else unknown ones, else all, since an
/// attempt costs nothing then.
fn last_resort(paths: &[PathInput]) -> PerPath<PathState> {
    let exists = |wanted: &Belief| paths.iter().any(|path| path.belief == *wanted);
    let best = [Belief::Fading, Belief::Unknown].into_iter().find(exists);
    let state = |path: &PathInput| match best {
        Some(best) if path.belief != best => fallback_state(path),
        _ => PathState::Active,
    };
    paths.iter().map(state).collect()
}

/// State of a path that is not to carry data: its subflow stays as a backup, unless
/// data may be stalled on it. Closing a subflow makes the kernel retransmit all data in
/// flight on the connection, so an idle one is left open.
fn fallback_state(path: &PathInput) -> PathState {
    match (path.belief, path.was) {
        (Belief::Stalled, _) | (Belief::Lost, PathState::Active) => PathState::Closed,
        (_, was) => was.min(PathState::Backup),
    }
}
