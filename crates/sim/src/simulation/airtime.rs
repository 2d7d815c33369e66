//! Airtime that a run uses at its serving RSU, and the share that other
//! vehicles leave. A [`Fleet`](crate::fleet::Fleet) couples its vehicles by this.

use crosslane_core::link::{Bottleneck, Channel, Direction, DirectionParams};
use crosslane_core::path::PathId;
use crosslane_core::time::Duration;

use super::Simulation;

/// Airtime account of one radio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// Share that the other vehicles leave of the world's share.
    share: f64,
    /// Airtime used up to the last query.
    queried: Duration,
    /// Airtime of the RSUs' CAMs so far, which belongs to no vehicle.
    cams: Duration,
}

impl Default for Account {
    fn default() -> Account {
        Account { share: 1.0, queried: Duration::ZERO, cams: Duration::ZERO }
    }
}

impl Simulation {
    /// For a radio: the serving RSU, by its index among the radio's; the airtime
    /// used since the last call; and whether packets wait for the channel. None
    /// while no RSU serves the vehicle.
    pub fn airtime_used(&mut self, path: PathId) -> Option<(usize, Duration, bool)> {
        let place = usize::from(path.0);
        let link = self.wires.links.get(place)?;
        let account = self.airtime.get_mut(place)?;
        let (used, queried) = (link.air_used().saturating_sub(account.cams), account.queried);
        account.queried = used;
        let backlog = Direction::BOTH.into_iter().any(|direction| link.waiting(direction).0 > 0);
        self.world.serving(path).map(|unit| (unit, used.saturating_sub(queried), backlog))
    }

    /// Sets, for a radio, the share of the airtime (0 to 1) that the other
    /// vehicles leave.
    pub fn set_airtime_share(&mut self, path: PathId, share: f64) {
        let place = usize::from(path.0);
        let (Some(account), Some(link)) = (self.airtime.get_mut(place), self.wires.links.get(place)) else { return };
        let share = share.max(Channel::LEAST_SHARE);
        let factor = share / std::mem::replace(&mut account.share, share);
        for (direction, mut params) in Direction::BOTH.map(|direction| (direction, link.params(direction).clone())) {
            scale(&mut params, factor);
            self.wires.set(self.now, path, direction, params);
        }
    }

    pub(super) fn occupy(&mut self, path: PathId, air_time: Duration) {
        if let Some(account) = self.airtime.get_mut(usize::from(path.0)) {
            account.cams += air_time;
        }
        self.wires.occupy(self.now, path, air_time);
    }

    pub(super) fn set_link(&mut self, path: PathId, direction: Direction, mut params: DirectionParams) {
        scale(&mut params, self.airtime.get(usize::from(path.0)).map_or(1.0, |account| account.share));
        self.wires.set(self.now, path, direction, params);
    }
}

fn scale(params: &mut DirectionParams, factor: f64) {
    if let Bottleneck::Ieee80211p(channel) = &mut params.bottleneck {
        channel.share *= factor;
    }
}
