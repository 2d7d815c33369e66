//! Converts the first bytes of captured packets to rows of the packet record.
//!
//! A packet's data sequence number is mapping start + (sequence − initial
//! sequence − mapping offset); all sequence numbers are stored relative to the
//! first of their kind, so that records of two runs can be compared. The initial
//! data sequence number is a hash of the sender's key (RFC 8684 §3.1), which the
//! handshake contains.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_sim::record::rows::PacketRow;
use sha2::{Digest, Sha256};

pub mod segment;

use segment::{Mapping, Number, Segment};

/// Captured bytes of a packet: IPv6 and TCP headers with all options.
pub const HEAD_BYTES: usize = 128;
/// Maximum number of subflows tracked in a run; packets of further ones have no
/// subflow number.
pub const SUBFLOWS_MAX: usize = 4096;
/// Mappings stored per subflow and direction. Retransmissions repeat theirs, so
/// only the newest are needed.
const MAPPINGS_MAX: usize = 16;

/// Tracks the connections of a run through its packets, which must be passed in
/// the order of their time.
#[derive(Debug, Default)]
pub struct FlowTracker {
    subflows: Vec<Subflow>,
    by_addresses: BTreeMap<(SocketAddr, SocketAddr), u16>,
    connections: Vec<Connection>,
}

/// One MPTCP connection: reference numbers of each side (vehicle 0, server 1).
#[derive(Debug, Default)]
struct Connection {
    first_dsn: [Option<u64>; 2],
    token: [Option<u32>; 2],
    highest: [u64; 2],
}

#[derive(Debug)]
struct Subflow {
    connection: Option<usize>,
    initial: [Option<u32>; 2],
    mappings: [VecDeque<Mapping>; 2],
}

impl FlowTracker {
    /// The row of a packet that enters a link at `t_ns`, from its first
    /// [`HEAD_BYTES`]. The caller fills in `delivered_ns`, `drop` and `tries`,
    /// which only the link knows.
    pub fn row(&mut self, t_ns: u64, path: PathId, direction: Direction, head: &[u8]) -> PacketRow {
        let mut row = PacketRow {
            t_ns,
            delivered_ns: None,
            path,
            direction,
            ip_bytes: segment::ip_bytes(head),
            payload_bytes: segment::datagram_bytes(head).unwrap_or(0),
            subflow: None,
            tcp_seq: 0,
            tcp_ack: 0,
            tcp_flags: 0,
            dsn: None,
            data_ack: None,
            mptcp: Default::default(),
            drop: None,
            tries: 0,
        };
        if let Some(segment) = Segment::parse(head) {
            row.payload_bytes = segment.payload_bytes;
            row.tcp_flags = segment.flags;
            row.mptcp = segment.mptcp;
            if let Some(number) = self.subflow_of(direction, &segment) {
                self.track(number, direction, &segment, &mut row);
            }
        }
        row
    }

    /// The subflow's number; a SYN that is not a retransmission begins a new one.
    fn subflow_of(&mut self, direction: Direction, segment: &Segment) -> Option<u16> {
        let addresses = match direction {
            Direction::Up => (segment.source, segment.destination),
            Direction::Down => (segment.destination, segment.source),
        };
        let side = direction as usize;
        let known = self.by_addresses.get(&addresses).copied();
        let continues = |number: u16| {
            let initial = self.subflows[usize::from(number)].initial[side];
            !segment.is_syn() || initial.is_none_or(|initial| initial == segment.seq)
        };
        if let Some(number) = known.filter(|&number| continues(number)) {
            return Some(number);
        }
        if self.subflows.len() >= SUBFLOWS_MAX {
            return None;
        }
        let number = self.subflows.len() as u16;
        let connection = self.connection_of(direction, segment);
        self.subflows.push(Subflow { connection, initial: [None, None], mappings: [VecDeque::new(), VecDeque::new()] });
        self.by_addresses.insert(addresses, number);
        Some(number)
    }

    fn connection_of(&mut self, direction: Direction, segment: &Segment) -> Option<usize> {
        if let Some(token) = segment.join_token {
            let peer = 1 - direction as usize;
            return self.connections.iter().rposition(|c| c.token[peer] == Some(token));
        }
        segment.is_capable().then(|| {
            self.connections.push(Connection::default());
            self.connections.len() - 1
        })
    }

    fn track(&mut self, number: u16, direction: Direction, segment: &Segment, row: &mut PacketRow) {
        let (side, peer) = (direction as usize, 1 - direction as usize);
        let subflow = &mut self.subflows[usize::from(number)];
        if segment.is_syn() || subflow.initial[side].is_none() {
            subflow.initial[side] = Some(segment.seq);
        }
        let initial = |side: usize| subflow.initial[side].unwrap_or(0);
        row.subflow = Some(number);
        row.tcp_seq = segment.seq.wrapping_sub(initial(side));
        if segment.acks() {
            row.tcp_ack = segment.ack.wrapping_sub(initial(peer));
        }
        let Some(connection) = subflow.connection.and_then(|index| self.connections.get_mut(index)) else { return };
        connection.learn(side, segment);
        if let Some(mapping) = segment.mapping {
            subflow.store(side, mapping);
        }
        row.data_ack = segment.data_ack.and_then(|ack| connection.relative(peer, ack));
        if row.payload_bytes > 0 {
            row.dsn = subflow
                .mapped(side, row.tcp_seq)
                .and_then(|(dsn, beyond)| Some(connection.relative(side, dsn)?.wrapping_add(u64::from(beyond))));
            let end = row.dsn.map(|dsn| dsn.wrapping_add(u64::from(row.payload_bytes)));
            connection.highest[side] = end.unwrap_or(0).max(connection.highest[side]);
        }
    }
}

impl Connection {
    /// Reads keys from the handshake. In the third packet the vehicle repeats the
    /// server's.
    fn learn(&mut self, side: usize, segment: &Segment) {
        for (side, key) in [(side, segment.keys[0]), (1 - side, segment.keys[1])] {
            if let (Some(key), None) = (key, self.first_dsn[side]) {
                let (token, first_dsn) = token_and_first_dsn(key);
                self.token[side] = Some(token);
                self.first_dsn[side] = Some(first_dsn);
            }
        }
    }

    /// Relative to the first data byte of `side`; a 4-byte number is expanded to the
    /// value closest to the highest observed.
    fn relative(&self, side: usize, number: Number) -> Option<u64> {
        let first = self.first_dsn[side]?;
        Some(match number {
            Number::First => 0,
            Number::Wide(number) => number.wrapping_sub(first),
            Number::Narrow(number) => {
                let relative = number.wrapping_sub(first as u32);
                let ahead = relative.wrapping_sub(self.highest[side] as u32) as i32;
                self.highest[side].wrapping_add_signed(i64::from(ahead))
            }
        })
    }
}

impl Subflow {
    fn store(&mut self, side: usize, mapping: Mapping) {
        let mappings = &mut self.mappings[side];
        if mappings.back() == Some(&mapping) {
            return;
        }
        if mappings.len() == MAPPINGS_MAX {
            mappings.pop_front();
        }
        mappings.push_back(mapping);
    }

    /// The newest mapping that covers `seq`: its data sequence number, and the
    /// offset of `seq` in it.
    fn mapped(&self, side: usize, seq: u32) -> Option<(Number, u32)> {
        self.mappings[side].iter().rev().find_map(|mapping| {
            let beyond = seq.wrapping_sub(mapping.subflow_seq);
            (beyond < mapping.bytes).then_some((mapping.dsn, beyond))
        })
    }
}

/// RFC 8684 §3.1 and §3.2: the token is the first 32 bits of the key's SHA-256,
/// the initial data sequence number the last 64; the first data byte follows it.
fn token_and_first_dsn(key: u64) -> (u32, u64) {
    let hash: [u8; 32] = Sha256::digest(key.to_be_bytes()).into();
    let number = |from: usize, to: usize| hash[from..to].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    (number(0, 4) as u32, number(24, 32).wrapping_add(1))
}

#[cfg(test)]
mod tests;
