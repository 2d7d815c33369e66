//! What a run takes of the air of the unit that serves it, and what others
//! leave: how a [`Fleet`](crate::fleet::Fleet) joins its vehicles.

use crosslane_core::link::{Bottleneck, Channel, Direction, DirectionParams};
use crosslane_core::path::PathId;
use crosslane_core::time::Duration;

use super::Simulation;

/// What is kept of one radio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// What the other vehicles leave, of what the world leaves.
    share: f64,
    /// Air time taken when last asked.
    asked: Duration,
    /// Of that, and since: by the units' CAMs, which are nobody's share.
    cams: Duration,
}

impl Default for Account {
    fn default() -> Account {
        Account { share: 1.0, asked: Duration::ZERO, cams: Duration::ZERO }
    }
}

impl Simulation {
    /// For a radio: the unit that serves the vehicle, by its place among the
    /// radio's; the air time taken since this was last asked; and whether
    /// packets wait for the air. None while no unit serves.
    pub fn air_used(&mut self, path: PathId) -> Option<(usize, Duration, bool)> {
        let place = usize::from(path.0);
        let link = self.wires.links.get(place)?;
        let account = self.air.get_mut(place)?;
        let (used, asked) = (link.air_used().saturating_sub(account.cams), account.asked);
        account.asked = used;
        let backlog = Direction::BOTH.into_iter().any(|way| link.waiting(way).0 > 0);
        self.world.serving(path).map(|unit| (unit, used.saturating_sub(asked), backlog))
    }

    /// For a radio: the part of the air (0 to 1) that the other vehicles leave
    /// from now on.
    pub fn set_air_share(&mut self, path: PathId, share: f64) {
        let place = usize::from(path.0);
        let (Some(account), Some(link)) = (self.air.get_mut(place), self.wires.links.get(place)) else { return };
        let share = share.max(Channel::LEAST_SHARE);
        let before = std::mem::replace(&mut account.share, share);
        let params = Direction::BOTH.map(|way| link.params(way).clone());
        for (way, mut params) in Direction::BOTH.into_iter().zip(params) {
            scale(&mut params, share / before);
            self.wires.set(self.now, path, way, params);
        }
    }

    pub(super) fn occupy(&mut self, path: PathId, air_time: Duration) {
        if let Some(account) = self.air.get_mut(usize::from(path.0)) {
            account.cams += air_time;
        }
        self.wires.occupy(self.now, path, air_time);
    }

    pub(super) fn set_link(&mut self, path: PathId, way: Direction, mut params: DirectionParams) {
        scale(&mut params, self.air.get(usize::from(path.0)).map_or(1.0, |account| account.share));
        self.wires.set(self.now, path, way, params);
    }
}

fn scale(params: &mut DirectionParams, factor: f64) {
    if let Bottleneck::Ieee80211p(air) = &mut params.bottleneck {
        air.share *= factor;
    }
}
