//! The primary path: the path on which bulk flows begin.
//!
//! A flow's congestion control takes the RTT of its first packets for the RTT of the path. If these use a
//! low-delay path, a faster path with a higher delay appears congested as soon as it is used: BBR keeps
//! only as much in flight as the low-delay path needs, and CUBIC leaves slow start (HyStart). So if a path
//! is clearly faster than the lowest-delay path, bulk flows use it from their first packet on, and
//! lower-delay paths carry what exceeds its window; these packets arrive early and wait in the reorder
//! buffer. In the opposite case no primary path is needed: a flow that begins on a fast low-delay path is
//! not harmed by a slow path with a higher delay.

use super::scheduler::NEGLIGIBLE_DELAY_US;
use super::{Mode, Tunnel};
use crate::path::PathId;

/// Minimum ratio of a path's rate to that of the lowest-delay path to become primary. To stay primary it
/// need only not be slower.
const PRIMARY_RATE_RATIO: f64 = 1.25;

/// A path with its relative one-way delay, in µs, and its estimated rate, in bytes/s.
#[derive(Clone, Copy)]
struct RatedPath {
    path: PathId,
    delay_us: i64,
    rate: Option<f64>,
}

impl<P: Clone> Tunnel<P> {
    /// The primary path, if it is not the lowest-delay path.
    pub(super) fn primary_path(&self) -> Option<PathId> {
        if self.mode != Mode::Aggregate {
            return None;
        }
        let reference = self.reference_delay();
        let rated = || {
            self.paths.iter().enumerate().filter_map(|(index, path)| {
                let sender = &path.as_ref()?.sender;
                let delay_us = sender.one_way_delay().filter(|_| sender.is_used())?.minus_us(reference);
                Some(RatedPath { path: PathId(index as u8), delay_us, rate: sender.estimated_bytes_s() })
            })
        };
        let lowest = rated().min_by_key(|path| path.delay_us)?;
        let higher = rated().filter(|path| path.delay_us > lowest.delay_us + NEGLIGIBLE_DELAY_US);
        let (rate, fastest) =
            higher.filter_map(|path| Some((path.rate?, path.path))).max_by(|left, right| left.0.total_cmp(&right.0))?;
        let is_primary = self.primary == Some(fastest);
        let ratio = if is_primary { 1.0 } else { PRIMARY_RATE_RATIO };
        lowest.rate.map_or(is_primary, |lowest_rate| rate > lowest_rate * ratio).then_some(fastest)
    }

    /// Whether the rates of the paths are to be estimated by packet trains.
    pub(super) fn wants_trains(&self) -> bool {
        self.mode == Mode::Aggregate && self.delay_difference().as_micros() as i64 > NEGLIGIBLE_DELAY_US
    }
}
