//! Limits the number of concurrent senders, in total and per address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::multipath::MAX_PATHS;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::transfer::folder::MAX_OPEN;

/// Maximum number of concurrent senders; further ones are rejected.
const MAX_SENDERS: usize = 32;
/// Maximum number of senders from one address (IPv6: from one /64 network).
const MAX_PER_ADDRESS: usize = 8;
/// Maximum number of rejections in progress; further connections are closed.
const MAX_REJECTING: usize = 16;
/// Descriptors for other purposes: standard ones, listener, folder, and
/// connections that are being rejected.
const OTHER_DESCRIPTORS: usize = 32 + MAX_REJECTING;
/// Descriptors of one sender: its connections, its files, and a state that is being written.
const DESCRIPTORS_PER_SENDER: usize = MAX_PATHS + MAX_OPEN + 1;
/// Interval of reports on senders that are not served.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Limits the reports on one subject.
pub struct Reports {
    /// How many are admitted in an interval.
    max: u32,
    admitted: u32,
    /// When the next interval begins.
    next: Instant,
    suppressed: u64,
}

impl Reports {
    pub fn new(max: u32) -> Reports {
        Reports { max, admitted: 0, next: Instant::ZERO, suppressed: 0 }
    }

    /// The sentence to report, with the number of those suppressed before it; `None`: it is suppressed too.
    pub fn admit(&mut self, now: Instant, sentence: String) -> Option<String> {
        if now >= self.next {
            (self.admitted, self.next) = (0, now + REPORT_INTERVAL);
        }
        if self.admitted == self.max {
            self.suppressed += 1;
            return None;
        }
        self.admitted += 1;
        match std::mem::take(&mut self.suppressed) {
            0 => Some(sentence),
            suppressed => Some(format!("{sentence} ({suppressed} similar messages before it were suppressed)")),
        }
    }
}

pub struct Places {
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    senders: usize,
    by_address: BTreeMap<IpAddr, usize>,
    rejecting: usize,
}

/// A sender's place, freed on drop.
pub struct Place<'a> {
    places: &'a Places,
    address: IpAddr,
}

/// A rejection in progress, until this is dropped.
pub struct Rejected<'a>(&'a Places);

impl Places {
    /// As many places as the descriptor limit of this process allows, which is
    /// raised as far as permitted.
    pub fn new() -> Places {
        Places::of(within(raised_descriptor_limit()))
    }

    fn of(limit: usize) -> Places {
        Places { limit, taken: Mutex::default() }
    }

    /// A place for a sender from this address.
    ///
    /// # Errors
    /// All places are taken: the message for the sender.
    pub fn take(&self, address: IpAddr) -> Result<Place<'_>, String> {
        let address = network(address);
        let mut taken = self.lock();
        let later = "try again in a minute";
        if taken.senders >= self.limit {
            return Err(format!("it serves {} senders already; {later}", self.limit));
        }
        let of_address = taken.by_address.entry(address).or_default();
        if *of_address >= MAX_PER_ADDRESS {
            return Err(format!("it serves {MAX_PER_ADDRESS} senders of this address already; {later}"));
        }
        *of_address += 1;
        taken.senders += 1;
        Ok(Place { places: self, address })
    }

    /// Begins the rejection of a sender: `None` if too many are in progress.
    pub fn reject(&self) -> Option<Rejected<'_>> {
        let mut taken = self.lock();
        let has_room = taken.rejecting < MAX_REJECTING;
        taken.rejecting += usize::from(has_room);
        has_room.then(|| Rejected(self))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.senders -= 1;
        let of_address = taken.by_address.entry(self.address).or_default();
        *of_address -= 1;
        if *of_address == 0 {
            taken.by_address.remove(&self.address);
        }
    }
}

impl Drop for Rejected<'_> {
    fn drop(&mut self) {
        self.0.lock().rejecting -= 1;
    }
}

/// The address or network that is limited as one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Number of senders that these descriptors are sufficient for.
fn within(descriptors: usize) -> usize {
    (descriptors.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_PER_SENDER).clamp(1, MAX_SENDERS)
}

fn raised_descriptor_limit() -> usize {
    let needed = (OTHER_DESCRIPTORS + MAX_SENDERS * DESCRIPTORS_PER_SENDER) as u64;
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
    fn one_address_leaves_places_for_others_and_frees_its_own() {
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
        assert_eq!([0, 256, 1024, 1 << 20].map(within), [1, 2, 13, 32]);
    }

    #[test]
    fn a_flood_has_few_reports_and_rejections() {
        let mut reports = Reports::new(2);
        let at = |step: u64| Instant::ZERO + Duration::from_millis(20 * step);
        let reported: Vec<String> =
            (0..1000).filter_map(|step| reports.admit(at(step), format!("sentence {step}"))).collect();
        assert_eq!(
            reported,
            [
                "sentence 0",
                "sentence 1",
                "sentence 500 (498 similar messages before it were suppressed)",
                "sentence 501"
            ]
        );
        let places = Places::of(1);
        let rejected: Vec<_> = (0..20).map(|_| places.reject()).collect();
        assert_eq!(rejected.iter().flatten().count(), MAX_REJECTING);
    }
}
