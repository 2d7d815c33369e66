//! What the ends of a run send: TCP segments or datagrams.

use crosslane_core::time::Instant;

use crate::transport::segment::{SYN, Segment};

/// IPv4 and UDP headers, in bytes.
pub(super) const UDP_HEADER_BYTES: u16 = 28;

/// An IP packet of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    /// Of the connection, and when its end sent it.
    Segment(Segment, Instant),
    /// Of traffic by UDP.
    Datagram(Datagram),
}

/// A message by UDP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// From 0.
    pub number: u64,
    /// UDP payload, in bytes.
    pub payload: u16,
}

impl Packet {
    /// Of a flow that takes what it can get; bare acknowledgements are not.
    pub(super) fn is_bulk(&self) -> bool {
        matches!(self, Packet::Segment(segment, _) if segment.payload > 0 || segment.flags & SYN != 0)
    }

    /// Length with IP header, in bytes.
    pub(super) fn ip_bytes(&self) -> u16 {
        match self {
            Packet::Segment(segment, _) => segment.ip_bytes(),
            Packet::Datagram(datagram) => datagram.payload + UDP_HEADER_BYTES,
        }
    }
}
