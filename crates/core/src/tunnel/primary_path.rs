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

use super::scheduler::NO_MATTER_US;
use super::{Mode, Tunnel};
use crate::path::PathId;

/// So many times as fast as the nearest path is worth a path's delay; once it is the
/// main one it need not be slower.
const FASTER: f64 = 1.25;

/// What speaks for a path.
#[derive(Clone, Copy)]
struct Claim {
    path: PathId,
    delay_us: i64,
    speed: Option<f64>,
}

impl<P: Clone> Tunnel<P> {
    /// Which path is the main one, if the nearest is not.
    pub(super) fn main_path(&self) -> Option<PathId> {
        if self.mode != Mode::Aggregate {
            return None;
        }
        let clock = self.clock();
        let claims = || {
            self.paths.iter().enumerate().filter_map(|(place, path)| {
                let out = &path.as_ref()?.out;
                let delay_us = out.one_way().filter(|_| out.is_used())?.beyond_us(clock);
                Some(Claim { path: PathId(place as u8), delay_us, speed: out.speed_bytes_s() })
            })
        };
        let nearest = claims().min_by_key(|claim| claim.delay_us)?;
        let far = claims().filter(|claim| claim.delay_us > nearest.delay_us + NO_MATTER_US);
        let (speed, fastest) =
            far.filter_map(|claim| Some((claim.speed?, claim.path))).max_by(|one, other| one.0.total_cmp(&other.0))?;
        let is_it = self.main == Some(fastest);
        let times = if is_it { 1.0 } else { FASTER };
        nearest.speed.map_or(is_it, |near| speed > near * times).then_some(fastest)
    }

    /// Whether it is to be found out how fast the paths are.
    pub(super) fn wants_trains(&self) -> bool {
        self.mode == Mode::Aggregate && self.delay_difference().as_micros() as i64 > NO_MATTER_US
    }
}
