//! Whose datagrams are accepted: those from addresses that the configuration
//! names, and from this machine those of root, of the agent's own user and of
//! users that the configuration names.
//!
//! UDP carries no credentials. On the loopback interface the kernel reports which
//! users' sockets are bound to the port that a datagram came from; all of them
//! must be trusted. A sender must therefore keep its socket open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane_core::time::Instant;

/// How long a port's owners are cached: it may get another owner.
const CACHE_TIME: Duration = Duration::from_secs(1);
/// Maximum number of ports cached.
const MAX_PORTS: usize = 64;
/// Maximum number of queries to the kernel per second about ports that were not
/// trusted before, so that datagrams from ever new ports cost little.
const MAX_QUERIES_PER_S: u32 = 50;

/// Why a datagram is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RejectReason {
    /// Another machine.
    #[error("a datagram from {0}, which observe.vanetza_from does not name")]
    Address(IpAddr),
    /// A user of this machine.
    #[error("a datagram of user {0}, which observe.vanetza_users does not name")]
    User(u32),
    /// The sender has closed its socket.
    #[error("a datagram from port {0}, which has no socket any more")]
    Gone(u16),
    /// Too many ports at once.
    #[error("a datagram from port {0}, one of too many new ones")]
    Many(u16),
    /// The kernel does not report the user.
    #[error("a datagram whose user cannot be determined: {0}")]
    Unknown(String),
}

/// Decides which datagrams are accepted.
pub struct Admission {
    addresses: BTreeSet<IpAddr>,
    users: BTreeSet<u32>,
    /// Trusted ports, and when they were checked.
    ports: BTreeMap<u16, Instant>,
    second: Instant,
    queries: u32,
}

impl Admission {
    /// Accepts these addresses and users.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>, users: impl IntoIterator<Item = u32>) -> Admission {
        let (addresses, users) = (addresses.into_iter().collect(), users.into_iter().collect());
        Admission { addresses, users, ports: BTreeMap::new(), second: Instant::ZERO, queries: 0 }
    }

    /// Checks that a datagram is accepted; `owners` queries the kernel for the users
    /// whose sockets are bound to a port.
    ///
    /// # Errors
    /// Why it is rejected.
    pub fn admit(
        &mut self,
        now: Instant,
        from: SocketAddr,
        owners: impl FnOnce(u16) -> Result<Vec<u32>, String>,
    ) -> Result<(), RejectReason> {
        let (address, port) = (from.ip().to_canonical(), from.port());
        if self.addresses.contains(&address) {
            return Ok(());
        }
        if !address.is_loopback() {
            return Err(RejectReason::Address(address));
        }
        let known = self.ports.get(&port).copied();
        if known.is_some_and(|since| now.since(since) < CACHE_TIME) {
            return Ok(());
        }
        if known.is_none() && !self.may_query(now) {
            return Err(RejectReason::Many(port));
        }
        let owners = owners(port).map_err(RejectReason::Unknown)?;
        let verdict = match owners.iter().find(|user| !self.users.contains(user)) {
            Some(user) => Err(RejectReason::User(*user)),
            None if owners.is_empty() => Err(RejectReason::Gone(port)),
            None => Ok(()),
        };
        self.remember(now, port, verdict.is_ok());
        verdict
    }

    fn may_query(&mut self, now: Instant) -> bool {
        if now.since(self.second) >= Duration::from_secs(1) {
            (self.second, self.queries) = (now, 0);
        }
        self.queries += 1;
        self.queries <= MAX_QUERIES_PER_S
    }

    /// Only trusted ports are cached, so no other port can displace them.
    fn remember(&mut self, now: Instant, port: u16, trusted: bool) {
        if !trusted {
            self.ports.remove(&port);
            return;
        }
        if self.ports.len() >= MAX_PORTS && !self.ports.contains_key(&port) {
            self.ports.retain(|_, since| now.since(*since) < CACHE_TIME);
        }
        if self.ports.len() < MAX_PORTS || self.ports.contains_key(&port) {
            self.ports.insert(port, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn only_configured_addresses_and_users_are_accepted() {
        let mut admission = Admission::new(["192.0.2.7".parse().unwrap()], [0, 1000]);
        let mut admit =
            |from: &str, owners: &[u32]| admission.admit(Instant::ZERO, from.parse().unwrap(), |_| Ok(owners.to_vec()));
        assert_eq!(admit("192.0.2.7:9", &[]), Ok(()));
        assert_eq!(admit("192.0.2.8:9", &[0]), Err(RejectReason::Address("192.0.2.8".parse().unwrap())));
        assert_eq!(admit("[::ffff:192.0.2.7]:9", &[]), Ok(()), "IPv4 at a dual-stack socket");
        assert_eq!(admit("127.0.0.1:1", &[1000]), Ok(()));
        assert_eq!(admit("127.0.0.1:2", &[65534]), Err(RejectReason::User(65534)));
        assert_eq!(admit("127.0.0.1:3", &[0, 65534]), Err(RejectReason::User(65534)), "the port is shared");
        assert_eq!(admit("[::1]:4", &[]), Err(RejectReason::Gone(4)));
    }

    #[test]
    fn a_port_that_has_another_owner_later_is_rejected() {
        let mut admission = Admission::new([], [0]);
        assert_eq!(admission.admit(Instant::ZERO, local(1), |_| Ok(vec![0])), Ok(()));
        let soon = Instant::ZERO + Duration::from_millis(500);
        assert_eq!(admission.admit(soon, local(1), |_| panic!("it is cached")), Ok(()));
        let later = Instant::ZERO + Duration::from_secs(2);
        assert_eq!(admission.admit(later, local(1), |_| Ok(vec![65534])), Err(RejectReason::User(65534)));
    }

    #[test]
    fn ever_new_ports_cost_few_queries_and_displace_no_trusted_sender() {
        let mut admission = Admission::new([], [0]);
        admission.admit(Instant::ZERO, local(1), |_| Ok(vec![0])).unwrap();
        let (mut queries, later) = (0, Instant::ZERO + Duration::from_secs(2));
        for port in 2..60_000 {
            let rejected = admission.admit(later, local(port), |_| {
                queries += 1;
                Ok(vec![65534])
            });
            assert!(rejected.is_err());
        }
        assert!(queries <= MAX_QUERIES_PER_S, "{queries}");
        assert_eq!(admission.admit(later, local(1), |_| Ok(vec![0])), Ok(()));
    }
}
