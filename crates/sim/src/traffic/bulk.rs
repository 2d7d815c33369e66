//! As much data as the connection accepts.

use super::{Paced, Source, Span, TrafficKind};

/// Size of a message of bulk traffic, in bytes: smaller writes end each MPTCP
/// mapping with a small packet.
pub const BULK_BYTES: u32 = 65_536;

/// Bulk traffic.
#[derive(Clone, Copy, Debug)]
pub struct Bulk;

impl TrafficKind for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }

    fn source(&self, span: Span, _seed: u64) -> Box<dyn Source> {
        Box::new(Paced::new(BULK_BYTES, 0, span, false))
    }
}
