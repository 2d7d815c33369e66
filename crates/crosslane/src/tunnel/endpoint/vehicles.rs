//! The vehicles of a gateway, which come and go while it runs.

use super::Endpoint;
use super::types::PeerPlan;
use crate::error::{Error, Result};
use crate::tunnel::security::PublicKey;

/// Names of the vehicles that have come and gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VehicleChanges {
    /// Those that are new, or have another key or other addresses.
    pub added: Vec<String>,
    /// Those that have gone, or had another key or other addresses.
    pub removed: Vec<String>,
}

impl Endpoint {
    /// Sets the vehicles of an encrypted gateway. What is as before keeps its sessions and its packets. `unix_ns` is the
    /// time since 1970.
    ///
    /// # Errors
    /// More vehicles have come and gone than it has places for, or it has no keys: nothing has changed.
    pub fn set_vehicles(&self, unix_ns: u64, vehicles: Vec<(PeerPlan, PublicKey)>) -> Result<VehicleChanges> {
        let attempt = "changing the vehicles of the tunnel";
        let Some(keys) = &self.keys else {
            return Err(Error::usage(attempt, "it is not encrypted", "restart the agent"));
        };
        let mut security = keys.security();
        let is_present = |(plan, key): &(PeerPlan, PublicKey)| {
            self.peers.iter().any(|(place, peer)| peer.plan == *plan && security.key_of(place) == Some(key))
        };
        let (_, new): (Vec<_>, Vec<_>) = vehicles.iter().cloned().partition(is_present);
        if new.len() > self.peers.free() {
            let cause = format!("{} are new, and there is room for {}", new.len(), self.peers.free());
            return Err(Error::failure(attempt, cause).with_remedy("restart the agent"));
        }
        let stays = |place: usize, plan: &PeerPlan| {
            vehicles.iter().any(|(wanted, key)| wanted == plan && security.key_of(place) == Some(key))
        };
        let gone: Vec<_> = self.peers.iter().filter(|(place, peer)| !stays(*place, &peer.plan)).collect();
        let mut changes = VehicleChanges::default();
        for (place, peer) in gone {
            peer.leave();
            security.remove(place);
            self.queued.set(place, 0);
            changes.removed.push(peer.plan.name.clone());
        }
        for (plan, key) in new {
            changes.added.push(plan.name.clone());
            security.add(key);
            self.add_peer(plan, unix_ns);
        }
        Ok(changes)
    }
}
