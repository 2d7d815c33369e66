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
    /// For a radio, by its place in the scenario: the strongest RSU, by its index among
    /// the radio's; the airtime used since the last call; and whether packets wait for
    /// the channel. None while no RSU is in reach.
    pub fn airtime_used(&mut self, radio: usize) -> Option<(usize, Duration, bool)> {
        let link = self.wires.links.get(radio)?;
        let account = self.airtime.get_mut(radio)?;
        let (used, queried) = (link.air_used().saturating_sub(account.cams), account.queried);
        account.queried = used;
        let backlog = link.hops().any(|hop| link.waiting(hop).0 > 0);
        self.world.serving(radio).map(|unit| (unit, used.saturating_sub(queried), backlog))
    }

    /// Sets, for a radio by its place in the scenario, the share of the airtime (0 to 1)
    /// that the other vehicles leave.
    pub fn set_airtime_share(&mut self, radio: usize, share: f64) {
        let (Some(account), Some(link)) = (self.airtime.get_mut(radio), self.wires.links.get(radio)) else { return };
        let share = share.max(Channel::LEAST_SHARE);
        let factor = share / std::mem::replace(&mut account.share, share);
        let hops: Vec<_> = link.hops().map(|hop| (hop, link.params(hop).clone())).collect();
        for (hop, mut params) in hops {
            scale(&mut params, factor);
            self.wires.set_hop(self.now, radio, hop, params);
        }
    }

    pub(super) fn occupy(&mut self, path: PathId, air_time: Duration) {
        if let Some(account) = self.airtime.get_mut(self.wires.link_of(path)) {
            account.cams += air_time;
        }
        self.wires.occupy(self.now, path, air_time);
    }

    pub(super) fn set_link(&mut self, path: PathId, direction: Direction, mut params: DirectionParams) {
        scale(&mut params, self.airtime.get(self.wires.link_of(path)).map_or(1.0, |account| account.share));
        self.wires.set(self.now, path, direction, params);
    }
}

fn scale(params: &mut DirectionParams, factor: f64) {
    if let Bottleneck::Ieee80211p(channel) = &mut params.bottleneck {
        channel.share *= factor;
    }
}
