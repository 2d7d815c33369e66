//! Invariants of the segments on the links.

use std::collections::BTreeMap;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::transport::segment::{ACK, MptcpOptions, SYN, Segment};
use crosslane_sim::transport::{Endpoint, SubflowInfo};

/// Maximum payload of a segment: 1500 bytes less the headers of plain TCP.
const MSS: u16 = 1448;
/// Maximum number of events per millisecond: segments of 52 bytes at 50 Mbit/s on
/// three links, and their effects.
const MAX_STEPS_PER_MS: u32 = 2000;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Sequence numbers sent up to here.
    sent: u64,
    /// Sequence number up to which data had been queued when it last became a
    /// backup next to an active subflow.
    demoted_at: Option<u64>,
    /// The peer has acknowledged data of it.
    acknowledged: bool,
}

pub struct Watch {
    /// By direction and port.
    flows: BTreeMap<(Direction, u16), Flow>,
    /// By direction of the data: right edge of the window known to its sender.
    edges: [u64; 2],
    /// Data sent to the server, and received by it.
    sent: Ranges,
    received_data: Ranges,
    /// Data sequence number up to which the server has acknowledged data.
    data_acknowledged: u64,
    /// Data sequence number by port and sequence number of a segment.
    maps: BTreeMap<(u16, u64), u64>,
    delivered: u64,
    ms: u64,
    steps: u32,
    /// Checks that a backup carries no new data next to an active subflow; valid
    /// only if no subflow can become stale.
    pub backups: bool,
}

impl Watch {
    pub fn new() -> Watch {
        Watch {
            flows: BTreeMap::new(),
            edges: [0; 2],
            sent: Ranges::default(),
            received_data: Ranges::default(),
            data_acknowledged: 0,
            maps: BTreeMap::new(),
            delivered: 0,
            ms: 0,
            steps: 0,
            backups: false,
        }
    }

    pub fn count_step(&mut self, now: Instant) {
        let ms = now.as_nanos() / 1_000_000;
        self.steps = if ms == self.ms { self.steps + 1 } else { 0 };
        self.ms = ms;
        assert!(self.steps < MAX_STEPS_PER_MS, "an endless loop at {now:?}");
    }

    pub fn is_first(&self, dsn: u64) -> bool {
        !self.sent.contains(dsn)
    }

    /// Notes a received segment: its window, its acknowledgement and its data.
    pub fn note_arrival(&mut self, segment: &Segment, direction: Direction) {
        let data = other(direction);
        let plain = segment.options == MptcpOptions::default();
        let below = segment.data_ack.unwrap_or(if plain { segment.ack.saturating_sub(1) } else { 0 });
        if data == Direction::Up {
            self.data_acknowledged = self.data_acknowledged.max(below);
        }
        let edge = &mut self.edges[data as usize];
        *edge = (*edge).max(below + segment.window);
        if segment.flags & (ACK | SYN) == ACK {
            let sent = self.flows.entry((data, segment.port)).or_default();
            // A FIN takes one sequence number.
            assert!(segment.ack <= sent.sent.max(1) + 1, "an acknowledgement of what was never sent: {segment:?}");
            sent.acknowledged |= segment.ack > 1;
        }
        if direction == Direction::Up && segment.payload > 0 {
            let dsn = dsn_of(segment);
            self.received_data.add(dsn, dsn + u64::from(segment.payload));
        }
    }

    /// Checks that the application receives no byte twice and no byte after a hole.
    pub fn check_delivered(&mut self, delivered: u64) {
        assert!(delivered >= self.delivered, "bytes were taken back");
        let whole = self.received_data.0.get(&0).copied().unwrap_or(0);
        assert!(delivered <= whole, "bytes {whole} to {delivered} never arrived");
        self.delivered = delivered;
    }

    /// Checks the segments that an endpoint sends for one event.
    pub fn check_sent(
        &mut self,
        endpoint: &Endpoint,
        direction: Direction,
        segments: &[Segment],
        received: Option<Direction>,
    ) {
        let infos: Vec<SubflowInfo> = endpoint.subflows().collect();
        self.note_backups(&infos, direction, segments);
        for info in &infos {
            let data = segments.iter().filter(|segment| segment.port == info.port && segment.payload > 0).count();
            // Only a loss probe or the first segment after a timeout may exceed the
            // window; a timer sends these one at a time.
            let timer = received.is_none() && data == 1;
            let held = info.in_flight <= info.transport.cwnd || data == 0 || timer;
            assert!(held, "{} in flight in a window of {}: {info:?}", info.in_flight, info.transport.cwnd);
        }
        for segment in segments.iter().filter(|segment| segment.payload > 0) {
            assert!(segment.payload <= MSS, "a payload of {}", segment.payload);
            let last = dsn_of(segment) + u64::from(segment.payload);
            let edge = self.edges[direction as usize];
            assert!(last <= edge, "data up to {last} beyond the window that ends at {edge}");
        }
    }

    fn note_backups(&mut self, infos: &[SubflowInfo], direction: Direction, segments: &[Segment]) {
        for info in infos {
            let others = infos.iter().filter(|other| other.port != info.port && !other.transport.backup);
            let acknowledged =
                |other: &SubflowInfo| self.flows.get(&(direction, other.port)).is_some_and(|f| f.acknowledged);
            let silent = info.transport.backup && others.clone().any(acknowledged);
            // A backup re-injects the oldest data while the subflow that holds it makes
            // no progress, also the part that has not left that subflow's queue.
            let oldest = |segment: &Segment| {
                segment.port == info.port && segment.payload > 0 && dsn_of(segment) == self.data_acknowledged
            };
            let held = others.clone().any(|other| other.transport.unacked > 0 || other.transport.notsent_bytes > 0);
            let reinjects = held && segments.iter().any(oldest);
            let queued = 1 + info.bytes_queued();
            let flow = self.flows.entry((direction, info.port)).or_default();
            let since = flow.demoted_at.filter(|_| !reinjects);
            flow.demoted_at = if silent { since.or(Some(queued)) } else { None };
        }
    }

    pub fn note_sent(&mut self, segment: &Segment, direction: Direction) {
        let flow = self.flows.entry((direction, segment.port)).or_default();
        let endpoint = segment.seq + u64::from(segment.payload);
        flow.sent = flow.sent.max(endpoint);
        if direction == Direction::Down || segment.payload == 0 {
            return;
        }
        let dsn = dsn_of(segment);
        if self.backups && !self.sent.contains(dsn) {
            let late = flow.demoted_at.is_some_and(|queued| endpoint > queued);
            assert!(!late, "new data over a backup next to an active subflow: {segment:?}");
        }
        let known = *self.maps.entry((segment.port, segment.seq)).or_insert(dsn);
        assert_eq!(known, dsn, "a mapping has changed");
        self.sent.add(dsn, dsn + u64::from(segment.payload));
    }
}

/// Half-open ranges from key to value; adjacent ranges are merged.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn contains(&self, byte: u64) -> bool {
        self.0.range(..=byte).next_back().is_some_and(|(_, endpoint)| *endpoint > byte)
    }

    fn add(&mut self, mut from: u64, mut to: u64) {
        while let Some((&first, &last)) = self.0.range(..=to).next_back().filter(|(_, last)| **last >= from) {
            self.0.remove(&first);
            (from, to) = (from.min(first), to.max(last));
        }
        self.0.insert(from, to);
    }
}

fn dsn_of(segment: &Segment) -> u64 {
    segment.dsn.unwrap_or(segment.seq.saturating_sub(1))
}

fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

trait QueuedBytes {
    fn bytes_queued(&self) -> u64;
}

impl QueuedBytes for SubflowInfo {
    /// Bytes that the connection has passed to the subflow.
    fn bytes_queued(&self) -> u64 {
        self.bytes_sent + u64::from(self.transport.notsent_bytes)
    }
}
