//! Paths whose next bytes would arrive too late.

use alloc::vec::Vec;

use super::{BURST_BYTES, Deadline, Source};
use crate::demand::Object;
use crate::time::Instant;

/// Bytes given at once to a path with a connection: a piece of `transfer::multipath`.
const PIECE_BYTES: f64 = 16_384.0;

impl Deadline {
    /// A path gets no more data while its next bytes would arrive after the earliest
    /// deadline, and sooner over another active path; unordered, if that one is in time.
    pub(super) fn pause_late_paths(&self, now: Instant, demand: &[Object], sources: &[Source], carry: &mut [bool]) {
        let Some(first) = demand.first() else { return };
        let left_s = first.deadline.as_secs_f64() - now.as_secs_f64();
        let arrival_s = |(source, carries): (&Source, &bool)| {
            let rate = source.history.mean_rate(0.0).filter(|_| *carries)?;
            let (queued, rtt_s) = (source.history.queued_bytes() as f64, source.history.min_rtt().as_secs_f64());
            let after_s = |bytes: f64| (queued + bytes) / rate.max(1.0);
            let at_s = match self.is_unordered {
                // What is queued is known as of the last acknowledgement, which left half an RTT ago.
                true => after_s(PIECE_BYTES).max(rtt_s) - rtt_s / 2.0,
                false => after_s(BURST_BYTES) + rtt_s / 2.0,
            };
            Some((queued > 0.0, at_s))
        };
        let arrivals: Vec<Option<(bool, f64)>> = sources.iter().zip(carry.iter()).map(arrival_s).collect();
        let soonest_s = arrivals.iter().flatten().map(|(_, at_s)| *at_s).fold(f64::INFINITY, f64::min);
        let is_late = self.is_unordered && soonest_s > left_s;
        for (carries, arrival) in carry.iter_mut().zip(arrivals).filter(|_| !is_late) {
            *carries &= !arrival.is_some_and(|(queues, at_s)| queues && at_s > left_s.max(soonest_s));
        }
    }
}
