//! The primary path: the path on which bulk flows begin.
//!
//! A flow's congestion control takes the RTT of its first packets for the RTT of the path. If these use a
//! low-delay path, a faster path with a higher delay appears congested as soon as it is used: BBR keeps
//! only as much in flight as the low-delay path needs, and CUBIC leaves slow start (HyStart). So if a path
//! is clearly faster than the lowest-delay path and those hardly later, bulk flows use it from their first packet on, and
//! lower-delay paths carry what exceeds its window; these packets arrive early and wait in the reorder
//! buffer. In the opposite case no primary path is needed: a flow that begins on a fast low-delay path is
//! not harmed by a slow path with a higher delay.

use super::Mode;
use super::paths::{NEGLIGIBLE_DELAY_US, Paths};
use crate::path::PathId;

/// Minimum ratio of a path's rate to that of the fastest low-delay path to become primary. To stay primary it
/// need only not be slower.
const PRIMARY_RATE_RATIO: f64 = 1.25;

/// A path with its relative one-way delay, in µs, and its estimated rate, in bytes/s.
#[derive(Clone, Copy)]
struct RatedPath {
    path: PathId,
    delay_us: i64,
    rate: Option<f64>,
}

/// The primary path after `current`; `None` if it is the lowest-delay path, or in another mode than aggregate.
pub(super) fn primary_path<P>(mode: Mode, paths: &Paths<P>, current: Option<PathId>) -> Option<PathId> {
    if mode != Mode::Aggregate {
        return None;
    }
    let reference = paths.reference_delay();
    let rated = || {
        paths.iter().filter(|(_, path)| path.sender.is_used()).filter_map(|(id, path)| {
            let delay_us = path.sender.one_way_delay?.minus_us(reference);
            Some(RatedPath { path: id, delay_us, rate: path.sender.estimated_bytes_s() })
        })
    };
    let lowest = rated().min_by_key(|path| path.delay_us)?;
    let is_low = |path: &RatedPath| path.delay_us <= lowest.delay_us + NEGLIGIBLE_DELAY_US;
    let higher = rated().filter(|path| !is_low(path));
    let low_rate = rated().filter(is_low).filter_map(|path| path.rate).reduce(f64::max);
    let (rate, fastest) =
        higher.filter_map(|path| Some((path.rate?, path.path))).max_by(|left, right| left.0.total_cmp(&right.0))?;
    let is_primary = current == Some(fastest);
    let ratio = if is_primary { 1.0 } else { PRIMARY_RATE_RATIO };
    low_rate.map_or(is_primary, |low_rate| rate > low_rate * ratio).then_some(fastest)
}

/// Whether the rates of the paths are to be estimated by packet trains: there are several.
pub(super) fn wants_trains<P>(mode: Mode, paths: &Paths<P>) -> bool {
    mode == Mode::Aggregate && paths.senders().filter(|sender| sender.is_used()).count() > 1
}
