//! Transfer of objects with deadlines.
//!
//! [`multipath`] is the transfer over a TCP connection for each path. The rest is the one over a single
//! MPTCP connection, by which traffic of kind `deadline` compares the strategies of MPTCP. There a
//! [sender](sender::Sender) selects what to write next: chunks of the object due earliest, within the
//! limit of unacknowledged bytes. A [receiver](receiver::Receiver) splits the stream into objects. Both
//! know only lengths; the driver has the bytes, reads files and computes digests. [`frame`] is the wire
//! format.

use serde::{Deserialize, Serialize};

use crate::demand;
use crate::time::Instant;

pub mod frame;
pub mod multipath;
pub mod receiver;
pub mod sender;

/// Maximum number of objects that are begun and neither ended nor abandoned.
pub const MAX_BEGUN: usize = 1024;

/// Handling of an object past its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// Unwritten data is not sent.
    #[default]
    GiveUp,
    /// The object is sent to its end.
    Continue,
}

/// Why an object is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// Its deadline is past, or it was to be dropped rather than sent late.
    Late,
    /// It changed while it was sent.
    Changed,
    /// It cannot be read any more.
    Unreadable,
    /// The receiver rejected it.
    Refused,
}

impl Abandoned {
    /// The reason in words, as in "given up: …".
    pub fn words(self) -> &'static str {
        match self {
            Abandoned::Late => "its deadline is past",
            Abandoned::Changed => "it changed while it was sent",
            Abandoned::Unreadable => "it cannot be read any more",
            Abandoned::Refused => "the receiver rejected it",
        }
    }
}

/// What a demand has of an object: its number, size, acknowledged bytes, start and deadline; one without a deadline is
/// in none.
fn demanded(
    number: u32,
    [size_bytes, acked_bytes]: [u64; 2],
    start: Instant,
    deadline: Option<Instant>,
) -> Option<demand::Object> {
    Some(demand::Object { number: number.into(), size_bytes, acked_bytes, start, deadline: deadline? })
}

/// The deadline in an order of objects: those without one come last.
fn due(deadline: Option<Instant>) -> Instant {
    deadline.unwrap_or(Instant::from_nanos(u64::MAX))
}
