//! How many connections may wait for their authentication: each costs a place and public-key work.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crosslane_core::time::Instant;

/// Maximum number of connections that are not authenticated.
pub const MAX_PENDING: usize = 256;
/// Of them from one address.
pub const MAX_PENDING_EACH: u32 = 16;
/// Handshakes from one address: a burst of these, ...
pub const BURST_EACH: u32 = 32;
/// ... and then one in this time.
pub const INTERVAL_EACH: Duration = Duration::from_millis(100);
/// Maximum number of addresses that are counted separately.
const MAX_ADDRESSES: usize = 4096;

/// Places for connections that are not authenticated.
#[derive(Clone, Default)]
pub struct Admission(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    pending: usize,
    addresses: BTreeMap<IpAddr, Address>,
}

#[derive(Default)]
struct Address {
    pending: u32,
    /// When its burst is full again.
    full_at: Instant,
}

/// A place; free again when this is dropped.
pub struct Place {
    admission: Admission,
    address: IpAddr,
}

impl Admission {
    /// A place for a connection from this address, if there is one.
    pub fn take(&self, now: Instant, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.pending >= MAX_PENDING {
            return None;
        }
        if table.addresses.len() >= MAX_ADDRESSES && !table.addresses.contains_key(&address) {
            table.addresses.retain(|_, of| of.pending > 0 || of.full_at > now);
            if table.addresses.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        let of = table.addresses.entry(address).or_default();
        let full_at = of.full_at.max(now) + INTERVAL_EACH;
        if of.pending >= MAX_PENDING_EACH || full_at.since(now) > INTERVAL_EACH * BURST_EACH {
            return None;
        }
        (of.full_at, of.pending) = (full_at, of.pending + 1);
        table.pending += 1;
        Some(Place { admission: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.admission.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.pending -= 1;
        if let Some(of) = table.addresses.get_mut(&self.address) {
            of.pending -= 1;
        }
    }
}

/// What one host can have of addresses: all of an IPv6 /64 (RFC 4291, section 2.5.1).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    #[test]
    fn one_address_cannot_take_the_places_of_the_others() {
        let admission = Admission::default();
        let taken: Vec<Place> = (0..1000).filter_map(|_| admission.take(Instant::ZERO, address(1))).collect();
        assert_eq!(taken.len(), MAX_PENDING_EACH as usize);
        assert!(admission.take(Instant::ZERO, address(2)).is_some());
        let others: Vec<Place> =
            (2..1000).filter_map(|number| admission.take(Instant::ZERO, address(number))).collect();
        assert_eq!(taken.len() + others.len(), MAX_PENDING);
    }

    #[test]
    fn an_address_gets_a_burst_of_handshakes_and_then_the_mean_rate() {
        let admission = Admission::default();
        let taken = |from_ms: u64, to_ms: u64| {
            (from_ms..to_ms).filter(|ms| admission.take(Instant::from_millis(*ms), address(1)).is_some()).count()
        };
        assert_eq!(taken(0, 100), BURST_EACH as usize);
        assert_eq!(taken(100, 1100), 10);
    }

    #[test]
    fn a_flood_from_many_addresses_fills_no_table() {
        let admission = Admission::default();
        for number in 0..20_000 {
            admission.take(Instant::from_millis(u64::from(number)), address(number));
        }
        assert!(admission.0.lock().unwrap().addresses.len() <= MAX_ADDRESSES);
        assert_eq!(admission.0.lock().unwrap().pending, 0);
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let admission = Admission::default();
        let address = |number: u16| IpAddr::V6([0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into());
        let taken: Vec<Place> = (0..1000).filter_map(|number| admission.take(Instant::ZERO, address(number))).collect();
        assert_eq!(taken.len(), MAX_PENDING_EACH as usize);
    }
}
