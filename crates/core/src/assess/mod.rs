//! Samples in, belief out: the state of each path, with a reason.
//!
//! An assessor observes one path. It knows no other path, no demand and no allocator.

use core::net::SocketAddr;

use crate::path::Sample;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

pub mod answers;
pub mod arrivals;
mod averages;
mod forecast;
pub mod hapanchak;
pub(crate) mod motion;
pub mod quality;
pub mod rates;
pub mod reach;
pub mod silence;
pub mod stalls;
pub mod threshold;
pub mod throttled;
pub mod throughput;

/// Default interval at which the subflows are sampled, of the program and of the simulator.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// How long the peer may delay an acknowledgement while it has only one segment to
/// acknowledge (RFC 9293 §3.8.6.3; Linux: TCP_DELACK_MIN).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Payload of a full MPTCP segment, in bytes.
const SEGMENT_BYTES: u32 = 1424;
/// A subflow or connection not observed for this long is gone.
const EXPIRY: Duration = Duration::from_secs(5);
/// Interval of the check for those that are gone.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// The assessed state of a path. The order is by severity: if two assessors observe a
/// path, the greater belief applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belief {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// It carries its data.
    Good,
    /// It still carries data, but is about to fail.
    Fading,
    /// It carries no data.
    Lost,
    /// It carries no data, and data sent over it is not acknowledged.
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

/// An alarm of sudden loss, and later whether it was a false positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Its cause.
    pub kind: AlarmKind,
    /// `None` when raised; later whether it was a false positive.
    pub false_positive: Option<bool>,
}

/// Cause of an [`Alarm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The roadside unit's messages stopped.
    CamSilence,
    /// Sent data is not acknowledged.
    Unacknowledged,
    /// Regular downlink messages stopped.
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

/// A stalled subflow of a path that carries other subflows' data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalledSubflow {
    /// Its connection.
    pub token: u32,
    /// The peer's address and port.
    pub peer: SocketAddr,
}

/// What an assessor reports beside its belief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An alarm was raised or settled.
    Alarm(Alarm),
    /// A subflow is stalled while its path is not.
    Stalled(StalledSubflow),
}

/// Assesses one path.
pub trait Assessor {
    /// Processes a sample of its path.
    fn observe(&mut self, now: Instant, sample: &Sample);

    /// Advances the time; call before [`belief`](Assessor::belief).
    fn advance(&mut self, now: Instant);

    /// The belief, and its reason.
    fn belief(&self) -> (Belief, &Reason);

    /// The next finding since the last call.
    fn poll(&mut self) -> Option<Finding> {
        None
    }

    /// The throughput history of the path, if it is measured.
    fn history(&self) -> Option<&throughput::History> {
        None
    }

    /// When [`advance`](Assessor::advance) may change the belief.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// When new transport statistics would change the belief, unless something is acknowledged until then.
    fn query_at(&self) -> Option<Instant> {
        None
    }
}

/// True once in each [`EXPIRY_CHECK`]; `checked` is the time of the last check.
fn check_is_due(checked: &mut Instant, now: Instant) -> bool {
    let is_due = now.since(*checked) >= EXPIRY_CHECK;
    if is_due {
        *checked = now;
    }
    is_due
}
