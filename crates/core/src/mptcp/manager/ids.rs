//! The address ids of a connection's local addresses (RFC 8684 §3.4.1).
//!
//! The kernel stores each pair of address and id of a connection until the address is
//! withdrawn or its subflow destroyed, and refuses any other pair that contains either
//! ("did not match address and id"). The peer may keep subflows of an id even longer.
//! So an address keeps its id, and a new address gets one that this connection has not
//! used yet; only when all are used, ids without an address are used again.

use core::net::IpAddr;

use super::super::AddressId;
use crate::path::PathId;
use crate::small_map::SmallMap;
use crate::time::Instant;

/// The pairs, and the ids used so far.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pairs: SmallMap<IpAddr, (AddressId, PathId)>,
    /// Until when a subflow from an address may still appear.
    pub opening: SmallMap<IpAddr, Instant>,
    used: [u64; 4],
}

impl Ids {
    /// Records that the connection has `id` for `address`, of `path`.
    pub fn learn(&mut self, address: IpAddr, id: AddressId, path: PathId) {
        self.pairs.insert(address, (id, path));
        mark(&mut self.used, id);
    }

    /// The id for an address of a path: its existing one, or an unused one. 0 is
    /// reserved for the address of the first subflow (RFC 8684 §3.2). `None`: all are
    /// in use.
    pub fn take(&mut self, address: IpAddr, path: PathId) -> Option<AddressId> {
        if let Some(&(id, _)) = self.pairs.get(address) {
            return Some(id);
        }
        let id = self.unused(path).or_else(|| {
            self.used = [0; 4];
            self.pairs.values().for_each(|&(id, _)| mark(&mut self.used, id));
            self.unused(path)
        })?;
        self.learn(address, id, path);
        Some(id)
    }

    /// When no further subflow from an address can appear.
    pub fn settled_at(&self, address: IpAddr) -> Instant {
        self.opening.get(address).copied().unwrap_or_default()
    }

    /// The id of an address, if it has one.
    pub fn of(&self, address: IpAddr) -> Option<AddressId> {
        self.pairs.get(address).map(|&(id, _)| id)
    }

    /// Removes an address that the kernel removes too; its id is not reused soon.
    pub fn forget(&mut self, address: IpAddr) {
        self.pairs.remove(address);
        self.opening.remove(address);
    }

    /// The addresses and their ids.
    pub fn pairs(&self) -> impl Iterator<Item = (IpAddr, AddressId, PathId)> {
        self.pairs.iter().map(|(address, &(id, path))| (address, id, path))
    }

    fn unused(&self, path: PathId) -> Option<AddressId> {
        let first = path.0.saturating_add(1);
        let is_free = |id: &u8| self.used[usize::from(*id / 64)] >> (id % 64) & 1 == 0;
        (first..=u8::MAX).chain(1..first).find(is_free).map(AddressId)
    }
}

fn mark(used: &mut [u64; 4], id: AddressId) {
    used[usize::from(id.0 / 64)] |= 1 << (id.0 % 64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_shared_and_never_run_out() {
        let mut ids = Ids::default();
        let address = |number: u32| IpAddr::from(core::net::Ipv4Addr::from(0x0a00_0000 + number));
        ids.learn(address(0), AddressId(0), PathId(0));
        for number in 1..1000 {
            let id = ids.take(address(number), PathId(1)).expect("one is free");
            assert_ne!(id, AddressId(0));
            assert_eq!(ids.take(address(number), PathId(1)), Some(id), "an address keeps its id");
            assert_ne!(ids.of(address(number - 1)), Some(id));
            if number > 1 {
                ids.forget(address(number - 1));
            }
        }
    }
}
