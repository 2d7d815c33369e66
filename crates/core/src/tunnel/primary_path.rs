//! The main path: the one that elastic flows begin on.
//!
//! A flow's congestion control takes the round trip of its first packets for the
//! path's. If those go over a near path, a faster one that is farther seems
//! congested as soon as it is used: BBR keeps as little under way as the near one
//! needs, CUBIC leaves its slow start (HyStart). So where a path is clearly faster
//! than the nearest, flows that take what they can get are sent over it from
//! their first packet on, and nearer paths carry what it has no room for: that
//! arrives early, and waits for its turn. The other way round there is nothing
//! to do: a flow that begins near does not mind it if the far path has little.

use super::scheduler::NEGLIGIBLE_DELAY_US;
use super::{Mode, Tunnel};
use crate::path::PathId;

/// So many times as fast as the nearest path is worth a path's delay; once it is the
/// main one it need not be slower.
const PRIMARY_RATE_RATIO: f64 = 1.25;

/// What speaks for a path.
#[derive(Clone, Copy)]
struct RatedPath {
    path: PathId,
    delay_us: i64,
    rate: Option<f64>,
}

impl<P: Clone> Tunnel<P> {
    /// Which path is the main one, if the nearest is not.
    pub(super) fn primary_path(&self) -> Option<PathId> {
        if self.mode != Mode::Aggregate {
            return None;
        }
        let reference = self.reference_delay();
        let rated = || {
            self.paths.iter().enumerate().filter_map(|(place, path)| {
                let out = &path.as_ref()?.out;
                let delay_us = out.one_way_delay().filter(|_| out.is_used())?.minus_us(reference);
                Some(RatedPath { path: PathId(place as u8), delay_us, rate: out.estimated_bytes_s() })
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

    /// Whether it is to be found out how fast the paths are.
    pub(super) fn wants_trains(&self) -> bool {
        self.mode == Mode::Aggregate && self.delay_difference().as_micros() as i64 > NEGLIGIBLE_DELAY_US
    }
}
