//! What the sending side measures, as a sample for an assessor.

use super::SendPath;
use crate::path::{PathId, Sample, SampleKind, Transport};

impl<P> SendPath<P> {
    /// The measurements as a sample of connection `token`; `None` before any feedback.
    pub(in super::super) fn sample(&self, path: PathId, token: u32) -> Option<Sample> {
        self.rtt.min?;
        let transport = Transport {
            token,
            peer: Transport::NO_PEER,
            accepted: false,
            backup: false,
            rtt: self.rtt.smoothed(),
            rttvar: self.rtt.variation,
            unacked: 0,
            sacked: 0,
            delivered: self.counts.delivered as u32,
            bytes_acked: self.counts.acknowledged_bytes,
            notsent_bytes: 0,
            bytes_received: 0,
            segments_received: 0,
            out_of_order: 0,
            receive_rtt: None,
            lost: 0,
            retransmitted: 0,
            cwnd: 0,
            min_rtt: self.rtt.min,
            delivery_bit_s: self.rate.bytes_s().map(|rate| (rate * 8.0) as u64),
        };
        Some(Sample { path, kind: SampleKind::Transport(transport) })
    }
}
