//! How many senders are served at once: all together, and from one address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crosslane_core::time::Instant;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::transfer::folder::MAX_OPEN;

/// Senders at once; further ones are turned away.
const MAX_SENDERS: usize = 32;
/// Of them, senders from one address (of IPv6: from one network of 64 bits).
const MAX_OF_ADDRESS: usize = 8;
/// Senders that are being turned away at once; further ones are hung up on.
const MAX_TURNED_AWAY: usize = 16;
/// Descriptors beside those of senders: standard ones, listener, folder, and
/// connections that are turned away.
const OTHER_DESCRIPTORS: usize = 32 + MAX_TURNED_AWAY;
/// Descriptors of one sender: its connection and its files.
const DESCRIPTORS_OF_ONE: usize = 1 + MAX_OPEN;
/// How often the user is told of senders that are turned away.
const TOLD_EACH: Duration = Duration::from_secs(10);

/// The places of senders.
pub struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    senders: usize,
    by_address: BTreeMap<IpAddr, usize>,
    turned_away: usize,
    quiet_until: Instant,
}

/// A sender's place until this is dropped.
pub struct Place<'a> {
    places: &'a Places,
    address: IpAddr,
}

/// A sender is being turned away until this is dropped.
pub struct Rejected<'a>(&'a Places);

impl Places {
    /// As many places as this process may have descriptors for, of which it
    /// takes what it is allowed.
    pub fn new() -> Places {
        Places::of(within(raised_descriptor_limit()))
    }

    fn of(most: usize) -> Places {
        Places { most, taken: Mutex::default() }
    }

    /// A place for a sender from this address.
    ///
    /// # Errors
    /// There is none now: what the sender is told.
    pub fn take(&self, address: IpAddr) -> Result<Place<'_>, String> {
        let address = network(address);
        let mut taken = self.lock();
        let later = "try again in a minute";
        if taken.senders >= self.most {
            return Err(format!("it serves {} senders already; {later}", self.most));
        }
        let of_address = taken.by_address.entry(address).or_default();
        if *of_address >= MAX_OF_ADDRESS {
            return Err(format!("it serves {MAX_OF_ADDRESS} senders of this address already; {later}"));
        }
        *of_address += 1;
        taken.senders += 1;
        Ok(Place { places: self, address })
    }

    /// A sender is to be turned away: room to tell it so, unless too many are
    /// being told; and whether it is time to tell the user.
    pub fn turn_away(&self, now: Instant) -> (Option<Rejected<'_>>, bool) {
        let mut taken = self.lock();
        let is_time = now >= taken.quiet_until;
        if is_time {
            taken.quiet_until = now + TOLD_EACH;
        }
        let has_room = taken.turned_away < MAX_TURNED_AWAY;
        taken.turned_away += usize::from(has_room);
        (has_room.then(|| Rejected(self)), is_time)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.senders -= 1;
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for Rejected<'_> {
    fn drop(&mut self) {
        self.0.lock().turned_away -= 1;
    }
}

/// What counts as one address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Senders for whom so many descriptors are enough.
fn within(descriptors: usize) -> usize {
    (descriptors.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_OF_ONE).clamp(1, MAX_SENDERS)
}

fn raised_descriptor_limit() -> usize {
    let needed = (OTHER_DESCRIPTORS + MAX_SENDERS * DESCRIPTORS_OF_ONE) as u64;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let raised = needed.min(hard).max(soft);
    let limit = setrlimit(Resource::RLIMIT_NOFILE, raised, hard).map_or(soft, |()| raised);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_leaves_places_for_others_and_gives_its_own_back() {
        let places = Places::of(12);
        let mut of_one: Vec<Place<'_>> = (0..8).map(|_| places.take(address("192.0.2.1")).unwrap()).collect();
        assert!(places.take(address("::ffff:192.0.2.1")).is_err_and(|why| why.contains("8 senders of this address")));
        let _others: Vec<Place<'_>> =
            (2..6).map(|host| places.take(address(&format!("192.0.2.{host}"))).unwrap()).collect();
        assert!(
            places.take(address("192.0.2.9")).is_err_and(|why| why.contains("serves 12 senders already; try again"))
        );
        of_one.pop();
        assert!(places.take(address("192.0.2.9")).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let places = Places::of(32);
        let _all: Vec<Place<'_>> =
            (0..8).map(|host| places.take(address(&format!("2001:db8::{host}"))).unwrap()).collect();
        assert!(places.take(address("2001:db8::ffff")).is_err());
        assert!(places.take(address("2001:db8:0:1::1")).is_ok());
    }

    #[test]
    fn few_descriptors_serve_few_senders() {
        assert_eq!([0, 256, 1024, 1 << 20].map(within), [1, 3, 15, 32]);
    }

    #[test]
    fn the_user_is_told_of_a_flood_now_and_then() {
        let places = Places::of(1);
        let mut told = 0;
        for step in 0..1000 {
            let (seat, is_time) = places.turn_away(Instant::ZERO + Duration::from_millis(20 * step));
            assert!(seat.is_some());
            told += u32::from(is_time);
        }
        assert_eq!(told, 2);
        let seats: Vec<_> = (0..20).map(|_| places.turn_away(Instant::ZERO).0).collect();
        assert_eq!(seats.iter().flatten().count(), MAX_TURNED_AWAY);
    }
}
