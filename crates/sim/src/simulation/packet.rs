//! Packets of a run's endpoints: TCP segments or UDP datagrams.

use crosslane_core::time::Instant;

use crate::transport::segment::{ACK, SYN, Segment};

/// IPv4 and UDP headers, in bytes.
pub(super) const UDP_HEADER_BYTES: u16 = 28;

/// An IP packet of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// A segment of the connection, and its transmission time.
    Segment(Segment, Instant),
    /// A datagram of UDP traffic.
    Datagram(Datagram),
}

/// A UDP message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// Sequence number, from 0.
    pub number: u64,
    /// UDP payload, in bytes.
    pub payload: u16,
}

impl Packet {
    /// True for packets of a throughput-oriented flow, except pure
    /// acknowledgements.
    pub(super) fn is_bulk(&self) -> bool {
        matches!(self, Packet::Segment(segment, _) if segment.payload > 0 || segment.flags & SYN != 0)
    }

    /// True for a segment of TCP that only acknowledges.
    pub(super) fn is_pure_ack(&self) -> bool {
        matches!(self, Packet::Segment(segment, _) if segment.payload == 0 && segment.flags == ACK)
    }

    /// Length including the IP header, in bytes.
    pub(super) fn ip_bytes(&self) -> u16 {
        match self {
            Packet::Segment(segment, _) => segment.ip_bytes(),
            Packet::Datagram(datagram) => datagram.payload + UDP_HEADER_BYTES,
        }
    }
}
