//! Samples of the subflows' status: frequent where bytes move, rare where none do.
//!
//! One read of the kernel's TCP segment counters shows whether anything moved at
//! all. While they do not change, or only packets over loopback move, as those of
//! the agent's page, the last samples still hold and no socket is queried. A subflow
//! with bytes in flight, or whose bytes moved recently, is queried at every poll; the
//! others when segments moved that may be theirs, as often as that is cheap. The cheaper query is used: one per socket, or a list of
//! all sockets; the cost of both is measured in use. With many active subflows the
//! polls of all of them are less frequent, and interface counters are read between.
//! A poll takes several turns of the loop ([`poll`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crosslane_core::agent::Agent;
use crosslane_core::assess::answers::CROWD;
use crosslane_core::mptcp::{MeasuredSubflow, Token};
use crosslane_core::path::{PathId, Sample, SampleKind, Transport};
use crosslane_core::time::Instant;

use super::Driver;
use super::counters::InterfaceCounters;
use crate::clock::processor_time;
use crate::kernel_counters;
use poll::Poll;

mod poll;

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

/// A subflow: its connection, and its local and remote address.
type Key = (Token, SocketAddr, SocketAddr);

fn key(subflow: &MeasuredSubflow) -> Key {
    (subflow.token, subflow.local, subflow.remote)
}

/// Decides which subflows are queried, and when.
#[derive(Default)]
pub(super) struct SubflowPoller {
    period: Duration,
    /// When to poll next, unless the engine wants it earlier.
    pub(super) next: Instant,
    /// When the last poll began, and when its processor time allows the next.
    polled: Instant,
    allowed: Instant,
    counters: Option<File>,
    /// Segments, and packets beyond loopback, when both had changed last.
    segments: Option<[u64; 2]>,
    packets: Option<u64>,
    moved: Instant,
    known: BTreeMap<Key, SubflowEntry>,
    /// When each path's last sample was passed on, and its subflow.
    reported: BTreeMap<PathId, (Instant, Key)>,
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
    /// The poll in progress.
    poll: Option<Poll>,
    /// Number of the last poll.
    number: u32,
}

#[derive(Clone, Copy)]
struct SubflowEntry {
    path: PathId,
    transport: Transport,
    moved: Instant,
    reported: Instant,
    /// The last poll that found it.
    found: u32,
}

impl SubflowEntry {
    fn is_idle(&self, now: Instant) -> bool {
        self.transport.unacked == 0 && now.since(self.moved) >= IDLE
    }

    fn is_to_be_repeated(&self, now: Instant) -> bool {
        now.since(self.reported) >= REPEAT_SUBFLOW
    }

    fn sample(&self) -> Sample {
        Sample { path: self.path, kind: SampleKind::Transport(self.transport) }
    }
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

    /// The last statistics of a subflow.
    pub(super) fn transport(&self, token: Token, local: SocketAddr, remote: SocketAddr) -> Option<&Transport> {
        self.known.get(&(token, local, remote)).map(|known| &known.transport)
    }

    /// When to read the interfaces' counters; `None` with few active subflows.
    pub(super) fn count_at(&self) -> Option<Instant> {
        (self.busy >= CROWD).then_some(self.count_at)
    }

    /// When to poll next, as the engine wants it now.
    pub(super) fn due(&self, engine: &Agent) -> Instant {
        self.wanted(engine).map_or(self.next, |at| at.min(self.next))
    }

    fn wanted(&self, engine: &Agent) -> Option<Instant> {
        engine.query_at(self.polled).map(|at| at.max(self.allowed))
    }

    /// Advances the next poll to within one period.
    pub(super) fn poll_soon(&mut self, now: Instant) {
        self.next = self.next.min(now + self.period);
    }

    /// The repeated sample of each path if nothing moved; `None` if the subflows
    /// must be queried.
    fn samples_if_quiet(&mut self, now: Instant, interfaces: &mut InterfaceCounters) -> Option<Vec<Sample>> {
        // While subflows carry data, they are queried whatever the tables say.
        if self.busy > 0 || self.segments_moved(interfaces) {
            (self.moved, self.stale) = (now, true);
        }
        if self.stale || now >= self.repeat_at {
            return None;
        }
        let period = if now.since(self.moved) < QUIET_AFTER { IDLE_PERIOD } else { QUIET_PERIOD };
        self.next = now + self.period.max(period);
        Some(self.repeat_paths(now))
    }

    /// The repeated sample of each path that had none lately.
    fn repeat_paths(&mut self, now: Instant) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (path, (reported, key)) in &mut self.reported {
            if now.since(*reported) < REPEAT_PATH {
                continue;
            }
            let known = self.known.get_key_value(key);
            if let Some((of, known)) = known.or_else(|| self.known.iter().find(|(_, known)| known.path == *path)) {
                (*reported, *key) = (now, *of);
                samples.push(known.sample());
            }
        }
        samples
    }

    /// Sets the time of the next poll by the processor time of this one, including the
    /// processing of its samples.
    fn schedule_next(&mut self, began: Instant, cost: Duration) {
        let active = self.busy > 0 || began.since(self.moved) < IDLE;
        let period = if active { self.period } else { self.period.max(IDLE_PERIOD) };
        let pause = (cost * self.share()).min(MAX_PERIOD);
        (self.allowed, self.busy_next) = (began + pause, began + period.max(pause));
        self.next = self.busy_next;
    }

    fn share(&self) -> u32 {
        if self.busy >= CROWD { SHARE_OF_MANY } else { SHARE }
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
        let packets = interfaces.packets_beyond_loopback();
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
    let value = kernel_counters::table(snmp, "Tcp")?;
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
        self.begin_poll();
        if self.tunnel.is_some() {
            self.poller.poll_soon(self.clock.now());
        }
        self.pass_demand();
    }

    fn begin_poll(&mut self) {
        let now = self.clock.now();
        let is_wanted = self.poller.wanted(&self.engine).is_some_and(|at| at <= now);
        self.poller.polled = now;
        if let Some(samples) = self.poller.samples_if_quiet(now, &mut self.counters) {
            samples.into_iter().for_each(|sample| self.handle(sample.into()));
            return;
        }
        self.poller.next = self.poller.next.max(self.poller.busy_next);
        if now < self.poller.busy_next && !is_wanted {
            return;
        }
        if self.mptcp.is_none() {
            return self.poller.schedule_next(now, Duration::ZERO);
        }
        let cost_since = processor_time();
        self.poller.begin(now);
        self.continue_poll(cost_since);
    }

    /// The next part of the poll in progress; its cost counts from a processor time.
    pub(super) fn continue_poll(&mut self, cost_since: Duration) {
        let Some(mptcp) = &mut self.mptcp else { return };
        let samples = self.poller.next_part(self.clock.now(), &self.engine, &mut mptcp.diag);
        samples.into_iter().for_each(|sample| self.handle(sample.into()));
        self.poller.finish_part(processor_time().saturating_sub(cost_since));
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
