//! What must hold on the wire whatever happens.

use std::collections::BTreeMap;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::transport::segment::{ACK, MptcpOptions, SYN, Segment};
use crosslane_sim::transport::{Endpoint, SubflowInfo};

/// Greatest payload of a segment: 1500 bytes less the headers of plain TCP.
const MSS: u16 = 1448;
/// Things that may happen in a millisecond: some segments of 52 bytes at 50
/// Mbit/s on three links, and what they cause.
const MAX_STEPS_PER_MS: u32 = 2000;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Sequence numbers below it were sent.
    sent: u64,
    /// When it last became a backup beside an active subflow: sequence numbers
    /// below it were already handed to it.
    demoted_at: Option<u64>,
    /// The peer has answered data of it.
    proven: bool,
}

pub struct Watch {
    /// By direction and port.
    flows: BTreeMap<(Direction, u16), Flow>,
    /// By direction of the data: where the window ends that its sender knows.
    edges: [u64; 2],
    /// Data sent to the server, and arrived there.
    sent: Ranges,
    there: Ranges,
    /// Mapping of each byte: data sequence number at a segment's sequence number.
    maps: BTreeMap<(u16, u64), u64>,
    delivered: u64,
    ms: u64,
    steps: u32,
    /// Checks that a backup carries nothing new beside an active subflow: only
    /// where no subflow can become stale.
    pub backups: bool,
}

impl Watch {
    pub fn new() -> Watch {
        Watch {
            flows: BTreeMap::new(),
            edges: [0; 2],
            sent: Ranges::default(),
            there: Ranges::default(),
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
        assert!(self.steps < MAX_STEPS_PER_MS, "something turns in circles at {now:?}");
    }

    pub fn is_first(&self, dsn: u64) -> bool {
        !self.sent.contains(dsn)
    }

    /// A segment arrives: what it tells its receiver, and what data it brings.
    pub fn note_arrival(&mut self, segment: &Segment, direction: Direction) {
        let data = other(direction);
        let plain = segment.options == MptcpOptions::default();
        let below = segment.data_ack.unwrap_or(if plain { segment.ack.saturating_sub(1) } else { 0 });
        let edge = &mut self.edges[data as usize];
        *edge = (*edge).max(below + segment.window);
        if segment.flags & (ACK | SYN) == ACK {
            let sent = self.flows.entry((data, segment.port)).or_default();
            // A FIN takes a number of its own.
            assert!(segment.ack <= sent.sent.max(1) + 1, "an acknowledgement of what was never sent: {segment:?}");
            sent.proven |= segment.ack > 1;
        }
        if direction == Direction::Up && segment.payload > 0 {
            let dsn = dsn_of(segment);
            self.there.add(dsn, dsn + u64::from(segment.payload));
        }
    }

    /// The application has nothing twice, nothing with a gap before it.
    pub fn check_delivered(&mut self, delivered: u64) {
        assert!(delivered >= self.delivered, "bytes were taken back");
        let whole = self.there.0.get(&0).copied().unwrap_or(0);
        assert!(delivered <= whole, "bytes {whole} to {delivered} never arrived");
        self.delivered = delivered;
    }

    /// One thing has happened, and these segments are to leave for it.
    pub fn check_sent(&mut self, end: &Endpoint, direction: Direction, segments: &[Segment], heard: Option<Direction>) {
        let infos: Vec<SubflowInfo> = end.subflows().collect();
        self.note_backups(&infos, direction);
        for info in &infos {
            let data = segments.iter().filter(|segment| segment.port == info.port && segment.payload > 0).count();
            // Only a probe or the first segment after a timeout may exceed the
            // window, and those a timer sends, one at a time.
            let timer = heard.is_none() && data == 1;
            let held = info.in_flight <= info.window || data == 0 || timer;
            assert!(held, "{} in flight in a window of {}: {info:?}", info.in_flight, info.window);
        }
        for segment in segments.iter().filter(|segment| segment.payload > 0) {
            assert!(segment.payload <= MSS, "a payload of {}", segment.payload);
            let last = dsn_of(segment) + u64::from(segment.payload);
            let edge = self.edges[direction as usize];
            assert!(last <= edge, "data up to {last} beyond the window that ends at {edge}");
        }
    }

    fn note_backups(&mut self, infos: &[SubflowInfo], direction: Direction) {
        for info in infos {
            let others = infos.iter().filter(|other| other.port != info.port && !other.backup);
            let proven = |other: &SubflowInfo| self.flows.get(&(direction, other.port)).is_some_and(|f| f.proven);
            let silent = info.backup && others.clone().any(proven);
            let handed = 1 + info.bytes_handed();
            let flow = self.flows.entry((direction, info.port)).or_default();
            flow.demoted_at = if silent { flow.demoted_at.or(Some(handed)) } else { None };
        }
    }

    pub fn note_sent(&mut self, segment: &Segment, direction: Direction) {
        let flow = self.flows.entry((direction, segment.port)).or_default();
        let end = segment.seq + u64::from(segment.payload);
        flow.sent = flow.sent.max(end);
        if direction == Direction::Down || segment.payload == 0 {
            return;
        }
        let dsn = dsn_of(segment);
        if self.backups && !self.sent.contains(dsn) {
            let late = flow.demoted_at.is_some_and(|handed| end > handed);
            assert!(!late, "new data over a backup beside an active subflow: {segment:?}");
        }
        let known = *self.maps.entry((segment.port, segment.seq)).or_insert(dsn);
        assert_eq!(known, dsn, "a mapping has changed");
        self.sent.add(dsn, dsn + u64::from(segment.payload));
    }
}

/// Bytes from each key to its value; neighbours are joined.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn contains(&self, byte: u64) -> bool {
        self.0.range(..=byte).next_back().is_some_and(|(_, end)| *end > byte)
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

trait Handed {
    fn bytes_handed(&self) -> u64;
}

impl Handed for SubflowInfo {
    /// Bytes that the connection has handed to the subflow.
    fn bytes_handed(&self) -> u64 {
        self.bytes_sent + u64::from(self.notsent_bytes)
    }
}
