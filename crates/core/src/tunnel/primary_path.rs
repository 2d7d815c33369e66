//! The primary path: the path on which bulk flows begin, if one is clearly faster than the one on which they would
//! begin otherwise, the lowest-delay path.
//!
//! A flow's congestion control takes the RTT of its first packets for the RTT of the path. If these use a
//! low-delay path, a faster path with a higher delay appears congested as soon as it is used: BBR keeps
//! only as much in flight as the low-delay path needs, and CUBIC leaves slow start (HyStart). And if these
//! use a slower path too, whatever its delay, its queue or its losses end the flow's slow start. So while the
//! primary path is in slow start and has room, no other path carries bulk flows, and later none that loses
//! packets. Otherwise other paths carry what exceeds its window; packets that arrive early wait in the reorder
//! buffer.

use super::Mode;
use super::paths::Paths;
use crate::path::PathId;

/// Minimum ratio of a path's rate to those of its rivals to become primary. To stay primary it need only not be
/// slower.
const PRIMARY_RATE_RATIO: f64 = 1.25;

/// A path with its relative one-way delay, in µs, and its estimated rate, in bytes/s.
#[derive(Clone, Copy)]
struct RatedPath {
    path: PathId,
    delay_us: i64,
    rate: Option<f64>,
}

/// The primary path after `current`; `None` if no path is clearly the fastest, or in another mode than aggregate.
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
    let lowest = rated().min_by_key(|path| path.delay_us)?.path;
    let known = rated().filter_map(|path| Some((path.rate?, path.path)));
    let (rate, fastest) = known.max_by(|left, right| left.0.total_cmp(&right.0))?;
    // The lowest-delay path has all others for rivals, any other has that one.
    let is_rival = |rival: &RatedPath| rival.path != fastest && (lowest == fastest || rival.path == lowest);
    let is_primary = current == Some(fastest);
    let ratio = if is_primary { 1.0 } else { PRIMARY_RATE_RATIO };
    let is_slower = |rival: RatedPath| rival.rate.map_or(is_primary, |rival_rate| rate > rival_rate * ratio);
    rated().filter(is_rival).map(is_slower).reduce(|all, one| all && one).filter(|all| *all).map(|_| fastest)
}

/// Whether the rates of the paths are to be estimated by packet trains.
pub(super) fn wants_trains<P>(mode: Mode, paths: &Paths<P>) -> bool {
    mode == Mode::Aggregate && paths.senders().filter(|sender| sender.is_used()).count() > 1
}
