//! What counts for a packet when its path is chosen.

use super::recv_path::LATE_REPORT_BYTES;

/// What counts for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The throughput of its flow, which is bulk.
    Throughput,
    /// That one like it arrives soon: a pure acknowledgement, which the next one replaces.
    Acknowledgement,
    /// That it arrives soon: a retransmission for a bulk flow, which is held up until then.
    Arrival,
    /// That the slowest hundredth of such packets arrives soon: any other.
    Delay,
}

impl Aim {
    /// The aim of a packet of this length that is sent for the first time.
    pub(super) fn of(is_bulk: bool, bytes: u32) -> Aim {
        match is_bulk {
            true => Aim::Throughput,
            false if bytes <= LATE_REPORT_BYTES => Aim::Acknowledgement,
            false => Aim::Delay,
        }
    }
}
