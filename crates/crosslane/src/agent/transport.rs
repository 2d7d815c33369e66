//! How subflows fare: asked often where bytes move, seldom where none do.
//!
//! One read of the kernel's counters of TCP segments tells whether anything moved
//! at all. While they stand still, what was seen last still holds, and nobody is
//! asked. Where bytes are under way or moved a moment ago a subflow is asked after
//! at every look; the others when segments moved that might have been theirs, as
//! often as that costs little. What is cheaper serves: a question for each, or a
//! list of all sockets; both are timed as they are used. Where many carry, looks at
//! all of them are farther apart, and the interfaces' counters are read between.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crosslane_core::assess::answers::CROWD;
use crosslane_core::mptcp::{Subflow, Token};
use crosslane_core::path::{PathId, Sample, SampleKind, Transport};
use crosslane_core::time::Instant;

use super::Driver;
use super::commands::Mptcp;
use crate::clock::processor_time;
use crate::netlink::diag::{Diag, SocketInfo};

/// A subflow on which nothing moved for so long is idle.
const IDLE: Duration = Duration::from_secs(1);
/// Periods of looks while no segment moves in all the namespace, and when none has
/// for long.
const IDLE_PERIOD: Duration = Duration::from_millis(40);
const SLEEPY_PERIOD: Duration = Duration::from_millis(100);
const SLEEPY: Duration = Duration::from_secs(3);
/// How often each idle subflow is told of, and each path of which there is no other news.
const TELL_SUBFLOW: Duration = Duration::from_secs(1);
const TELL_PATH: Duration = Duration::from_millis(100);
/// Looks at the subflows that carry, and those at the rest, may each take a
/// fiftieth of a core, a hundredth where the interfaces' counters are read as well;
/// but the former are never farther apart than this.
const SHARE: u32 = 50;
const SHARE_OF_MANY: u32 = 100;
const LONGEST_PERIOD: Duration = Duration::from_millis(150);
/// Between two looks, where many carry, the interfaces' counters are read this often;
/// twice as often while something goes and nothing comes.
const COUNT_PERIOD: Duration = Duration::from_millis(4);

/// A subflow, by its two ends.
type Addresses = (SocketAddr, SocketAddr);

/// Decides who is asked after, and when.
pub(super) struct Lookout {
    period: Duration,
    next: Instant,
    counters: Option<File>,
    segments: Option<[u64; 2]>,
    moved: Instant,
    known: BTreeMap<Addresses, SubflowEntry>,
    /// When each path was last told of, and a subflow of it.
    told: BTreeMap<PathId, (Instant, Addresses)>,
    /// When all idle subflows are told of again, though nothing moves.
    repeat_at: Instant,
    /// Subflows that carry.
    busy: usize,
    /// When they are asked after.
    busy_next: Instant,
    idle_next: Instant,
    /// When the interfaces' counters are read.
    count_at: Instant,
    /// Segments moved since the idle ones were last asked after.
    stale: bool,
    costs: Costs,
}

#[derive(Clone, Copy)]
struct SubflowEntry {
    path: PathId,
    transport: Transport,
    moved: Instant,
    told: Instant,
}

/// What asking takes of the processor.
struct Costs {
    question: Duration,
    list: Duration,
    /// IPv6 sockets, IPv4 through them among these, are listed apart.
    list_ipv6: bool,
}

/// A subflow to be asked after.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    token: Token,
    path: PathId,
    ends: Addresses,
    accepted: bool,
}

impl Lookout {
    pub(super) fn new(period: Duration) -> Lookout {
        Lookout {
            period,
            next: Instant::ZERO,
            // Of the network namespace of this thread.
            counters: File::open("/proc/thread-self/net/snmp").ok(),
            segments: None,
            moved: Instant::ZERO,
            known: BTreeMap::new(),
            told: BTreeMap::new(),
            repeat_at: Instant::ZERO,
            busy: 0,
            busy_next: Instant::ZERO,
            count_at: Instant::ZERO,
            idle_next: Instant::ZERO,
            stale: true,
            costs: Costs { question: Duration::from_micros(20), list: Duration::from_micros(400), list_ipv6: false },
        }
    }

    /// When to look next.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// When to read the interfaces' counters; `None` where few carry.
    pub(super) fn count_at(&self) -> Option<Instant> {
        (self.busy >= CROWD).then_some(self.count_at)
    }

    /// Looks within a period.
    pub(super) fn stir(&mut self, now: Instant) {
        self.next = self.next.min(now + self.period);
    }

    /// What is to be told where nothing moved: a word of each path. `None` if it has
    /// to be looked closer.
    fn glance(&mut self, now: Instant) -> Option<Vec<Sample>> {
        if self.segments_moved() {
            (self.moved, self.stale) = (now, true);
        }
        if self.stale || self.busy > 0 || now >= self.repeat_at {
            return None;
        }
        let period = if now.since(self.moved) < SLEEPY { IDLE_PERIOD } else { SLEEPY_PERIOD };
        self.next = now + self.period.max(period);
        let mut samples = Vec::new();
        for (told, ends) in self.told.values_mut().filter(|(told, _)| now.since(*told) >= TELL_PATH) {
            if let Some(known) = self.known.get(ends) {
                *told = now;
                samples.push(Sample { path: known.path, kind: SampleKind::Transport(known.transport) });
            }
        }
        Some(samples)
    }

    /// True, and again at the right time, if it is too soon to look.
    fn waits(&mut self, now: Instant) -> bool {
        self.next = self.next.max(self.busy_next);
        now < self.busy_next
    }

    /// What is to be told of the subflows now.
    fn look(&mut self, now: Instant, wanted: &[Wanted], diag: &mut Diag) -> Vec<Sample> {
        self.repeat_at = now + TELL_SUBFLOW;
        let busy = |known: &SubflowEntry| known.transport.unacked > 0 || now.since(known.moved) < IDLE;
        let (mut ask, mut rest) = (Vec::new(), Vec::new());
        for subflow in wanted {
            let idle = self.known.get(&subflow.ends).is_some_and(|known| !busy(known));
            if idle { rest.push(*subflow) } else { ask.push(*subflow) }
        }
        self.busy = ask.len();
        if self.stale && !rest.is_empty() && now >= self.idle_next {
            let cost = self.costs.of(rest.len());
            self.idle_next = now + (cost * self.share()).clamp(self.period, TELL_SUBFLOW);
            self.stale = false;
            ask.append(&mut rest);
        }
        let mut samples = Vec::new();
        if !ask.is_empty() {
            self.ask(now, &ask, diag, &mut samples);
        }
        self.repeat(now, &rest, &mut samples);
        if self.known.len() > wanted.len() {
            let current: std::collections::BTreeSet<Addresses> = wanted.iter().map(|subflow| subflow.ends).collect();
            self.known.retain(|ends, _| current.contains(ends));
        }
        samples
    }

    /// Sets the time of the next look by what this one took of the processor, with all
    /// that came of it.
    fn rest(&mut self, now: Instant, cost: Duration) {
        let active = self.busy > 0 || now.since(self.moved) < IDLE;
        let period = if active { self.period } else { self.period.max(IDLE_PERIOD) };
        self.busy_next = now + period.max((cost * self.share()).min(LONGEST_PERIOD));
        self.next = self.busy_next;
    }

    fn share(&self) -> u32 {
        if self.busy >= CROWD { SHARE_OF_MANY } else { SHARE }
    }

    fn ask(&mut self, now: Instant, ask: &[Wanted], diag: &mut Diag, samples: &mut Vec<Sample>) {
        let began = processor_time();
        if self.costs.question * ask.len() as u32 <= self.costs.list_all() {
            for subflow in ask {
                let found = diag.socket(subflow.ends.0, subflow.ends.1);
                if let Some(known) = self.take(now, subflow, found.ok().flatten()) {
                    samples.push(known);
                }
            }
            let took = processor_time().saturating_sub(began) / ask.len() as u32;
            self.costs.question = (self.costs.question * 7 + took) / 8;
            return;
        }
        let mut found = BTreeMap::new();
        let collect = |found: &mut BTreeMap<Addresses, SocketInfo>, sockets: Vec<SocketInfo>| {
            found.extend(sockets.into_iter().map(|socket| ((socket.local, socket.remote), socket)));
        };
        collect(&mut found, diag.list(true).unwrap_or_default());
        let took = processor_time().saturating_sub(began);
        self.costs.list = (self.costs.list * 7 + took) / 8;
        self.costs.list_ipv6 = ask.iter().any(|subflow| !found.contains_key(&subflow.ends));
        if self.costs.list_ipv6 {
            collect(&mut found, diag.list(false).unwrap_or_default());
        }
        for subflow in ask {
            let socket = found.get(&subflow.ends).copied();
            samples.extend(self.take(now, subflow, socket));
        }
    }

    fn take(&mut self, now: Instant, subflow: &Wanted, found: Option<SocketInfo>) -> Option<Sample> {
        // Of a socket in TIME_WAIT the kernel remembers no figures; zeros would pass for its path's.
        let Some(socket) = found.filter(|socket| !socket.tcp.rtt.is_zero()) else {
            self.known.remove(&subflow.ends);
            return None;
        };
        let transport = Transport {
            token: subflow.token.0,
            peer: subflow.ends.1,
            accepted: subflow.accepted,
            backup: socket.mptcp.is_some_and(|mptcp| mptcp.backup_local() || mptcp.backup_remote()),
            rtt: socket.tcp.rtt,
            rttvar: socket.tcp.rttvar,
            unacked: socket.tcp.unacked,
            delivered: socket.tcp.delivered,
            bytes_acked: socket.tcp.bytes_acked,
            notsent_bytes: socket.tcp.notsent_bytes,
            bytes_received: socket.tcp.bytes_received,
        };
        let moved = match self.known.get(&subflow.ends) {
            Some(known) if known.transport == transport => known.moved,
            _ => now,
        };
        self.known.insert(subflow.ends, SubflowEntry { path: subflow.path, transport, moved, told: now });
        self.told.insert(subflow.path, (now, subflow.ends));
        Some(Sample { path: subflow.path, kind: SampleKind::Transport(transport) })
    }

    /// Tells again what still holds of those that nobody was asked after.
    fn repeat(&mut self, now: Instant, rest: &[Wanted], samples: &mut Vec<Sample>) {
        for subflow in rest {
            let Some(known) = self.known.get_mut(&subflow.ends) else { continue };
            let of_path = self.told.get(&known.path).is_none_or(|(told, _)| now.since(*told) >= TELL_PATH);
            if of_path || now.since(known.told) >= TELL_SUBFLOW {
                known.told = now;
                self.told.insert(known.path, (now, subflow.ends));
                samples.push(Sample { path: known.path, kind: SampleKind::Transport(known.transport) });
            }
        }
    }

    /// True if TCP segments came or went since the last time, or nobody knows.
    fn segments_moved(&mut self) -> bool {
        let mut text = [0; 2048];
        let read = self.counters.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let segments = std::str::from_utf8(&text[..read]).ok().and_then(segments);
        let moved = segments.is_none() || segments != self.segments;
        self.segments = segments;
        moved
    }
}

impl Costs {
    fn list_all(&self) -> Duration {
        self.list * if self.list_ipv6 { 2 } else { 1 }
    }

    fn of(&self, subflows: usize) -> Duration {
        (self.question * subflows as u32).min(self.list_all())
    }
}

/// Segments in and out of the table `Tcp` (Linux `net/ipv4/proc.c`).
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
        let (samples, waits) = self.counters.watch();
        self.lookout.count_at = self.clock.now() + if waits { COUNT_PERIOD / 2 } else { COUNT_PERIOD };
        samples.into_iter().for_each(|sample| self.handle(sample.into()));
    }

    pub(super) fn observe_transport(&mut self) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.faults().iter().for_each(|fault| self.journal.fault(fault));
            let (samples, changes) = (tunnel.samples(), tunnel.changes());
            changes.iter().for_each(|change| self.journal.tunnel(change));
            samples.into_iter().for_each(|sample| self.handle(sample.into()));
        }
        self.observe_subflows();
        if self.tunnel.is_some() {
            self.lookout.stir(self.clock.now());
        }
    }

    fn observe_subflows(&mut self) {
        let now = self.clock.now();
        if let Some(samples) = self.lookout.glance(now) {
            samples.into_iter().for_each(|sample| self.handle(sample.into()));
            return;
        }
        if self.lookout.waits(now) {
            return;
        }
        let began = processor_time();
        let manager = self.engine.manager();
        let wanted = |(token, path, subflow): (Token, PathId, &Subflow)| {
            let ends = (subflow.local, subflow.remote);
            Wanted { token, path, ends, accepted: manager.is_accepted(token) }
        };
        let wanted: Vec<Wanted> = manager.subflows().map(wanted).collect();
        let samples = match &mut self.mptcp {
            Some(Mptcp { diag, .. }) => self.lookout.look(now, &wanted, diag),
            None => Vec::new(),
        };
        samples.into_iter().for_each(|sample| self.handle(sample.into()));
        self.lookout.rest(now, processor_time().saturating_sub(began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_segments_are_found_by_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs\nTcp: 1 20 30 4\nUdp: A\nUdp: 1\n";
        assert_eq!(segments(text), Some([20, 30]));
        assert_eq!(segments("Tcp: InSegs\nTcp: 1"), None);
        assert_eq!(segments(""), None);
    }

    #[test]
    fn this_kernel_tells_them() {
        assert!(segments(&std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()).is_some());
    }
}
