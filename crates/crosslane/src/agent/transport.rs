//! Samples of the subflows' status: frequent where bytes move, rare where none do.
//!
//! One read of the kernel's TCP segment counters shows whether anything moved at
//! all. While they do not change, the last samples still hold and no socket is
//! queried; neither while only packets over loopback move, as those of the agent's page. A subflow with bytes in flight, or whose bytes moved recently, is
//! queried at every poll; the others when segments moved that may be theirs, as
//! often as that is cheap. The cheaper query is used: one per socket, or a list of
//! all sockets; the cost of both is measured in use. With many active subflows the
//! polls of all of them are less frequent, and interface counters are read between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crosslane_core::assess::answers::CROWD;
use crosslane_core::mptcp::MeasuredSubflow;
use crosslane_core::path::{PathId, Sample, SampleKind, Transport};
use crosslane_core::time::Instant;

use super::Driver;
use super::commands::Mptcp;
use super::counters::InterfaceCounters;
use crate::clock::processor_time;
use crate::netlink::diag::{Diag, SocketInfo};

/// A subflow whose bytes have not moved for this time is idle.
const IDLE: Duration = Duration::from_secs(1);
/// Poll periods while no segment moves in the whole network namespace, and after
/// `QUIET_AFTER` without one.
const IDLE_PERIOD: Duration = Duration::from_millis(40);
const QUIET_PERIOD: Duration = Duration::from_millis(100);
const QUIET_AFTER: Duration = Duration::from_secs(3);
/// Period in which each idle subflow's last sample is repeated, and each path's
/// without other samples.
const REPEAT_SUBFLOW: Duration = Duration::from_secs(1);
const REPEAT_PATH: Duration = Duration::from_millis(100);
/// Polls of active subflows, and those of idle ones, may each take a fiftieth of a
/// core, a hundredth where the interfaces' counters are read as well; but the
/// period of the former never exceeds `MAX_PERIOD`.
const SHARE: u32 = 50;
const SHARE_OF_MANY: u32 = 100;
const MAX_PERIOD: Duration = Duration::from_millis(150);
/// With many active subflows, the interfaces' counters are read in this period between
/// two polls; twice as often while packets are sent and none received.
const COUNT_PERIOD: Duration = Duration::from_millis(4);

/// A subflow, by its local and remote address.
type Addresses = (SocketAddr, SocketAddr);

fn addresses(subflow: &MeasuredSubflow) -> Addresses {
    (subflow.local, subflow.remote)
}

/// Decides which subflows are queried, and when.
#[derive(Default)]
pub(super) struct SubflowPoller {
    period: Duration,
    /// When to poll next.
    pub(super) next: Instant,
    counters: Option<File>,
    /// Segments, and packets beyond loopback, when both had changed last.
    segments: Option<[u64; 2]>,
    packets: Option<u64>,
    moved: Instant,
    known: BTreeMap<Addresses, SubflowEntry>,
    /// When each path's last sample was passed on, and its subflow.
    reported: BTreeMap<PathId, (Instant, Addresses)>,
    /// When the samples of all idle subflows are repeated, though nothing moves.
    repeat_at: Instant,
    /// Number of active subflows.
    busy: usize,
    /// When the active subflows are polled next.
    busy_next: Instant,
    idle_next: Instant,
    /// When the interfaces' counters are read next.
    count_at: Instant,
    /// Segments moved since the last poll of idle subflows.
    stale: bool,
    costs: Costs,
}

#[derive(Clone, Copy)]
struct SubflowEntry {
    path: PathId,
    transport: Transport,
    moved: Instant,
    reported: Instant,
}

/// Processor time of the queries.
#[derive(Default)]
struct Costs {
    query: Duration,
    list: Duration,
    /// IPv6 sockets, among them IPv4-mapped ones, are listed separately.
    list_ipv6: bool,
}

impl SubflowPoller {
    pub(super) fn new(period: Duration) -> SubflowPoller {
        SubflowPoller {
            period,
            // Of the network namespace of this thread.
            counters: File::open("/proc/thread-self/net/snmp").ok(),
            stale: true,
            costs: Costs { query: Duration::from_micros(20), list: Duration::from_micros(400), list_ipv6: false },
            ..SubflowPoller::default()
        }
    }

    /// The period of polls from now on.
    pub(super) fn set_period(&mut self, period_ms: u32) {
        self.period = Duration::from_millis(u64::from(period_ms));
    }

    /// The last statistics of a subflow, by its local and remote address.
    pub(super) fn transport(&self, local: SocketAddr, remote: SocketAddr) -> Option<&Transport> {
        self.known.get(&(local, remote)).map(|known| &known.transport)
    }

    /// When to read the interfaces' counters; `None` with few active subflows.
    pub(super) fn count_at(&self) -> Option<Instant> {
        (self.busy >= CROWD).then_some(self.count_at)
    }

    /// Advances the next poll to within one period.
    pub(super) fn poll_soon(&mut self, now: Instant) {
        self.next = self.next.min(now + self.period);
    }

    /// The repeated sample of each path if nothing moved; `None` if the subflows
    /// must be queried.
    fn samples_if_quiet(&mut self, now: Instant, interfaces: &mut InterfaceCounters) -> Option<Vec<Sample>> {
        if self.segments_moved(interfaces) {
            (self.moved, self.stale) = (now, true);
        }
        if self.stale || self.busy > 0 || now >= self.repeat_at {
            return None;
        }
        let period = if now.since(self.moved) < QUIET_AFTER { IDLE_PERIOD } else { QUIET_PERIOD };
        self.next = now + self.period.max(period);
        let mut samples = Vec::new();
        let due = |(reported, _): &&mut (Instant, Addresses)| now.since(*reported) >= REPEAT_PATH;
        for (reported, addresses) in self.reported.values_mut().filter(due) {
            if let Some(known) = self.known.get(addresses) {
                *reported = now;
                samples.push(Sample { path: known.path, kind: SampleKind::Transport(known.transport) });
            }
        }
        Some(samples)
    }

    /// The samples of the subflows now.
    fn poll(&mut self, now: Instant, wanted: &[MeasuredSubflow], diag: &mut Diag) -> Vec<Sample> {
        self.repeat_at = now + REPEAT_SUBFLOW;
        let busy = |known: &SubflowEntry| known.transport.unacked > 0 || now.since(known.moved) < IDLE;
        let (mut queried, mut rest) = (Vec::new(), Vec::new());
        for subflow in wanted {
            let idle = self.known.get(&addresses(subflow)).is_some_and(|known| !busy(known));
            if idle { rest.push(*subflow) } else { queried.push(*subflow) }
        }
        self.busy = queried.len();
        if self.stale && !rest.is_empty() && now >= self.idle_next {
            let cost = self.costs.of(rest.len());
            self.idle_next = now + (cost * self.share()).clamp(self.period, REPEAT_SUBFLOW);
            self.stale = false;
            queried.append(&mut rest);
        }
        let mut samples = Vec::new();
        if !queried.is_empty() {
            self.query(now, &queried, diag, &mut samples);
        }
        self.repeat(now, &rest, &mut samples);
        if self.known.len() > wanted.len() {
            let current: BTreeSet<Addresses> = wanted.iter().map(addresses).collect();
            self.known.retain(|addresses, _| current.contains(addresses));
        }
        samples
    }

    /// Sets the time of the next poll by the processor time of this one, including the
    /// processing of its samples.
    fn schedule_next(&mut self, now: Instant, cost: Duration) {
        let active = self.busy > 0 || now.since(self.moved) < IDLE;
        let period = if active { self.period } else { self.period.max(IDLE_PERIOD) };
        self.busy_next = now + period.max((cost * self.share()).min(MAX_PERIOD));
        self.next = self.busy_next;
    }

    fn share(&self) -> u32 {
        if self.busy >= CROWD { SHARE_OF_MANY } else { SHARE }
    }

    fn query(&mut self, now: Instant, queried: &[MeasuredSubflow], diag: &mut Diag, samples: &mut Vec<Sample>) {
        let began = processor_time();
        if self.costs.query * queried.len() as u32 <= self.costs.list_all() {
            for subflow in queried {
                let found = diag.socket(subflow.local, subflow.remote).ok().flatten();
                samples.extend(self.take(now, subflow, found));
            }
            let elapsed = processor_time().saturating_sub(began) / queried.len() as u32;
            self.costs.query = (self.costs.query * 7 + elapsed) / 8;
            return;
        }
        let mut list = |ipv4| {
            let sockets = diag.list(ipv4).unwrap_or_default();
            sockets.into_iter().map(|socket| ((socket.local, socket.remote), socket))
        };
        let mut found: BTreeMap<Addresses, SocketInfo> = list(true).collect();
        let elapsed = processor_time().saturating_sub(began);
        self.costs.list = (self.costs.list * 7 + elapsed) / 8;
        self.costs.list_ipv6 = queried.iter().any(|subflow| !found.contains_key(&addresses(subflow)));
        if self.costs.list_ipv6 {
            found.extend(list(false));
        }
        for subflow in queried {
            let socket = found.get(&addresses(subflow)).copied();
            samples.extend(self.take(now, subflow, socket));
        }
    }

    fn take(&mut self, now: Instant, subflow: &MeasuredSubflow, found: Option<SocketInfo>) -> Option<Sample> {
        // The kernel keeps no statistics of a socket in TIME_WAIT; zeros would count as the path's.
        let Some(socket) = found.filter(|socket| !socket.tcp.rtt.is_zero()) else {
            self.known.remove(&addresses(subflow));
            return None;
        };
        let transport = Transport {
            token: subflow.token.0,
            peer: subflow.remote,
            accepted: subflow.accepted,
            backup: socket.mptcp.is_some_and(|mptcp| mptcp.backup_local() || mptcp.backup_remote()),
            rtt: socket.tcp.rtt,
            rttvar: socket.tcp.rttvar,
            unacked: socket.tcp.unacked,
            sacked: socket.tcp.sacked,
            delivered: socket.tcp.delivered,
            bytes_acked: socket.tcp.bytes_acked,
            notsent_bytes: socket.tcp.notsent_bytes,
            bytes_received: socket.tcp.bytes_received,
            lost: socket.tcp.lost,
            retransmitted: socket.tcp.total_retrans,
            cwnd: socket.tcp.cwnd,
            min_rtt: Some(socket.tcp.min_rtt),
            delivery_bit_s: Some(socket.tcp.delivery_rate_bit_s),
        };
        let moved = match self.known.get(&addresses(subflow)) {
            Some(known) if known.transport == transport => known.moved,
            _ => now,
        };
        self.known.insert(addresses(subflow), SubflowEntry { path: subflow.path, transport, moved, reported: now });
        self.reported.insert(subflow.path, (now, addresses(subflow)));
        Some(Sample { path: subflow.path, kind: SampleKind::Transport(transport) })
    }

    /// Repeats the last samples of the subflows that were not queried.
    fn repeat(&mut self, now: Instant, rest: &[MeasuredSubflow], samples: &mut Vec<Sample>) {
        for subflow in rest {
            let Some(known) = self.known.get_mut(&addresses(subflow)) else { continue };
            let of_path =
                self.reported.get(&known.path).is_none_or(|(reported, _)| now.since(*reported) >= REPEAT_PATH);
            if of_path || now.since(known.reported) >= REPEAT_SUBFLOW {
                known.reported = now;
                self.reported.insert(known.path, (now, addresses(subflow)));
                samples.push(Sample { path: known.path, kind: SampleKind::Transport(known.transport) });
            }
        }
    }

    /// True if TCP segments, and packets beyond loopback, were sent or received since the last time, or the counters
    /// are unreadable. The kernel counts a segment and its packet at different times: a change of one waits for the other.
    fn segments_moved(&mut self, interfaces: &mut InterfaceCounters) -> bool {
        let mut text = [0; 2048];
        let read = self.counters.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let segments = std::str::from_utf8(&text[..read]).ok().and_then(segments);
        if segments.is_some() && segments == self.segments {
            return false;
        }
        // While subflows carry data, nothing is saved by a second table.
        let packets = if self.busy > 0 { None } else { interfaces.packets_beyond_loopback() };
        let moved = segments.is_none() || packets.is_none() || packets != self.packets;
        if moved {
            (self.segments, self.packets) = (segments, packets);
        }
        moved
    }
}

impl Costs {
    fn list_all(&self) -> Duration {
        self.list * if self.list_ipv6 { 2 } else { 1 }
    }

    fn of(&self, subflows: usize) -> Duration {
        (self.query * subflows as u32).min(self.list_all())
    }
}

/// Segments received and sent, from the table `Tcp` (Linux `net/ipv4/proc.c`).
fn segments(snmp: &str) -> Option<[u64; 2]> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let place = names.split(' ').position(|other| other == name)?;
        values.split(' ').nth(place)?.parse().ok()
    };
    Some([value("InSegs")?, value("OutSegs")?])
}

impl Driver {
    pub(super) fn observe_counters(&mut self) {
        let (samples, is_waiting) = self.counters.sample();
        self.poller.count_at = self.clock.now() + if is_waiting { COUNT_PERIOD / 2 } else { COUNT_PERIOD };
        samples.into_iter().for_each(|sample| self.handle(sample.into()));
    }

    pub(super) fn observe_transport(&mut self) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.faults().iter().for_each(|fault| self.journal.fault(fault));
            let samples = tunnel.samples();
            tunnel.data_plane.changes.try_iter().for_each(|change| self.journal.tunnel(&change));
            samples.into_iter().for_each(|sample| self.handle(sample.into()));
        }
        self.observe_subflows();
        if self.tunnel.is_some() {
            self.poller.poll_soon(self.clock.now());
        }
    }

    fn observe_subflows(&mut self) {
        let now = self.clock.now();
        if let Some(samples) = self.poller.samples_if_quiet(now, &mut self.counters) {
            samples.into_iter().for_each(|sample| self.handle(sample.into()));
            return;
        }
        self.poller.next = self.poller.next.max(self.poller.busy_next);
        if now < self.poller.busy_next {
            return;
        }
        let began = processor_time();
        let wanted: Vec<MeasuredSubflow> = self.engine.subflows().collect();
        let samples = match &mut self.mptcp {
            Some(Mptcp { diag, .. }) => self.poller.poll(now, &wanted, diag),
            None => Vec::new(),
        };
        samples.into_iter().for_each(|sample| self.handle(sample.into()));
        self.poller.schedule_next(now, processor_time().saturating_sub(began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_counters_are_found_by_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs\nTcp: 1 20 30 4\nUdp: A\nUdp: 1\n";
        assert_eq!(segments(text), Some([20, 30]));
        assert_eq!(segments("Tcp: InSegs\nTcp: 1"), None);
        assert_eq!(segments(""), None);
    }

    #[test]
    fn this_kernel_has_segment_counters() {
        assert!(segments(&std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()).is_some());
    }
}
