//! Why a packet did not arrive.

use core::fmt;

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue was full.
    Queue,
    /// Random loss, after the bottleneck.
    Loss,
    /// 802.11p: every try failed.
    Retries,
    /// The link was off.
    Down,
    /// The receiving device did not accept it (the emulator's TUN).
    Device,
    /// It had waited too long ([`CoDel`](super::CoDel)).
    Codel,
    /// The volume was used up, and the rate then ([`PolicerParams`](super::policer::PolicerParams)).
    Policer,
    /// A [`Middlebox`](super::Middlebox) dropped it.
    Middlebox,
}

impl DropReason {
    /// Every reason, in the order of `as usize`.
    pub const ALL: [DropReason; 8] = [
        DropReason::Queue,
        DropReason::Loss,
        DropReason::Retries,
        DropReason::Down,
        DropReason::Device,
        DropReason::Codel,
        DropReason::Policer,
        DropReason::Middlebox,
    ];

    /// The name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::Queue => "queue",
            DropReason::Loss => "loss",
            DropReason::Retries => "retries",
            DropReason::Down => "down",
            DropReason::Device => "device",
            DropReason::Codel => "codel",
            DropReason::Policer => "policer",
            DropReason::Middlebox => "middlebox",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
