//! Samples in, belief out: what we hold of each link, and why.
//!
//! An assessor watches one path. It knows no other path, no demand and no
//! allocator.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::path::Sample;
use crate::time::Instant;

pub mod answers;
pub mod arrivals;
pub mod hapanchak;
pub mod silence;
pub mod stalls;
pub mod threshold;
pub mod throughput;

/// What is believed of a path. The order is the order of concern: where two
/// assessors watch a path, the greater belief holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belief {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// It carries what it is given.
    Good,
    /// It still carries, but is about to break.
    Fading,
    /// It carries nothing.
    Lost,
    /// It carries nothing, and what was sent over it is not acknowledged.
    Stalled,
}

impl Belief {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            Belief::Unknown => "unknown",
            Belief::Good => "good",
            Belief::Fading => "fading",
            Belief::Lost => "lost",
            Belief::Stalled => "stalled",
        }
    }
}

/// Why a belief or a decision is what it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// The rule that spoke, as `threshold.leave`.
    pub rule: &'static str,
    /// The same in one sentence, with the figures.
    pub text: String,
    /// The figures by name, unit last.
    pub inputs: Vec<(&'static str, f64)>,
}

/// A suspicion of sudden loss, and later whether it was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// What raised it.
    pub kind: AlarmKind,
    /// `None` when raised; then whether it proved wrong.
    pub false_positive: Option<bool>,
}

/// What raised an [`Alarm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The roadside unit's messages stopped.
    CamSilence,
    /// What was sent is not acknowledged.
    Unacknowledged,
    /// What came down regularly broke off.
    Arrivals,
    /// The interface went down.
    LinkDown,
}

impl AlarmKind {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            AlarmKind::CamSilence => "cam-silence",
            AlarmKind::Unacknowledged => "unacknowledged",
            AlarmKind::Arrivals => "arrivals",
            AlarmKind::LinkDown => "link-down",
        }
    }
}

/// A subflow that waits in vain while its path carries what others send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its connection.
    pub token: u32,
    /// The peer's end of it.
    pub peer: SocketAddr,
}

/// Watches one path.
pub trait Assessor {
    /// Takes a sample of its path.
    fn observe(&mut self, now: Instant, sample: &Sample);

    /// Lets time pass; call before [`belief`](Assessor::belief).
    fn advance(&mut self, now: Instant);

    /// What it believes, and why.
    fn belief(&self) -> (Belief, &Reason);

    /// The next alarm raised or settled since the last call.
    fn poll_alarm(&mut self) -> Option<Alarm> {
        None
    }

    /// The next subflow found stuck, while its path is not, since the last call.
    fn poll_stuck(&mut self) -> Option<Stuck> {
        None
    }

    /// What it has seen the path carry, if it measures that.
    fn history(&self) -> Option<&throughput::History> {
        None
    }

    /// When [`advance`](Assessor::advance) may change the belief.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
}
