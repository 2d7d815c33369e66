//! What the sending side measures, as a sample for an assessor.

use super::SendPath;
use crate::path::{PathId, Sample, SampleKind, Transport};

impl<P> SendPath<P> {
    /// The measurements as a sample of connection `token`; `None` before any feedback.
    pub(in super::super) fn sample(&self, path: PathId, token: u32) -> Option<Sample> {
        self.rtt.min?;
        let transport = Transport {
            token,
            rtt: self.rtt.smoothed(),
            rttvar: self.rtt.variation,
            delivered: self.counts.delivered as u32,
            bytes_acked: self.counts.acknowledged_bytes,
            cwnd: 0,
            min_rtt: self.rtt.min,
            delivery_bit_s: self.rate.bytes_s().map(|rate| (rate * 8.0) as u64),
            ..Transport::IDLE
        };
        Some(Sample { path, kind: SampleKind::Transport(transport) })
    }
}
