//! The links of a run, and the packets in flight on them.

use crosslane_core::echo;
use crosslane_core::link::{Direction, DirectionParams, DropReason, Exit, Hop, Link, PacketId};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};

use super::packet::{Packet, UDP_HEADER_BYTES};
use super::tunnel::TunnelPacket;
use crate::record::metrics::{PacketSums, Recovery};
use crate::record::rows::{LinkRow, PacketRow};
use crate::scenario::{IpVersion, RadioTunnel, Scenario};
use crate::world::World;

#[derive(Clone, Debug)]
pub(super) enum LinkPacket {
    /// A packet of the traffic without a tunnel.
    Direct(Packet),
    /// A datagram of the tunnel.
    Tunnelled(TunnelPacket),
    /// A probe of the roadside unit of this path, or its answer, with this UDP payload, in
    /// bytes.
    Probe(PathId, u16),
    /// An echo request over this path with this number, or its answer.
    Echo(PathId, u16),
}

/// A packet on a link.
#[derive(Clone, Debug)]
struct InFlight {
    content: LinkPacket,
    row: PacketRow,
    /// Index of the row, if rows are kept.
    place: usize,
}

#[derive(Default)]
pub(super) struct Wires {
    pub(super) links: Vec<Link>,
    /// The link of each path, and the index of its station.
    places: Vec<(usize, usize)>,
    /// Bytes of the tunnel around each packet of each path.
    overheads: Vec<u16>,
    ip_version: IpVersion,
    due: Vec<Option<Instant>>,
    /// Packets by slot; the slot of a packet that has left is reused.
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    rows: Vec<PacketRow>,
    keep: bool,
    pub(super) sums: PacketSums,
    /// IP bytes of echo requests and their answers.
    pub(super) echo_bytes: u64,
    events: u64,
}

impl Wires {
    /// The links with the world's initial parameters, and its first ground truth of
    /// them.
    pub(super) fn new(scenario: &Scenario, seed: u64, world: &mut World, keep: bool) -> (Wires, Vec<LinkRow>) {
        let (links, truths) = world.links(scenario, seed);
        let entries = scenario.links().into_iter().enumerate();
        let places: Vec<_> =
            entries.flat_map(|(link, entry)| (0..entry.paths.len()).map(move |at| (link, at))).collect();
        let overhead = |name| scenario.tunnel_of(name).map_or(0, RadioTunnel::overhead_bytes);
        let overheads = scenario.paths().iter().map(|path| overhead(path.name)).collect();
        let first_truths = truths.iter().map(LinkRow::from).collect();
        let sums = PacketSums::new(places.len(), Recovery::of(scenario));
        let due = vec![None; links.len()];
        (
            Wires { due, links, places, overheads, ip_version: scenario.ip_version, keep, sums, ..Wires::default() },
            first_truths,
        )
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }

    pub(super) fn set(&mut self, now: Instant, path: PathId, direction: Direction, params: DirectionParams) {
        let (place, station) = self.places[usize::from(path.0)];
        self.set_hop(now, place, Hop { station, direction }, params);
    }

    pub(super) fn set_hop(&mut self, now: Instant, place: usize, hop: Hop, params: DirectionParams) {
        self.links[place].set(now, hop, params);
        self.due[place] = self.links[place].next_wakeup();
    }

    /// Index of the link of a path.
    pub(super) fn link_of(&self, path: PathId) -> usize {
        self.places[usize::from(path.0)].0
    }

    pub(super) fn occupy(&mut self, now: Instant, path: PathId, air_time: Duration) {
        let place = self.link_of(path);
        self.links[place].occupy(now, air_time);
        self.due[place] = self.links[place].next_wakeup();
    }

    /// The next packet that arrives by `now`, and its direction.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(LinkPacket, Direction)> {
        for place in 0..self.links.len() {
            if self.due[place].is_none_or(|at| at > now) {
                continue;
            }
            while let Some(exit) = self.links[place].poll(now) {
                let direction = exit.hop.direction;
                if let Some(content) = self.leave(exit) {
                    return Some((content, direction));
                }
            }
            self.due[place] = self.links[place].next_wakeup();
        }
        None
    }

    pub(super) fn send(&mut self, now: Instant, path: PathId, direction: Direction, content: LinkPacket) {
        let Some(&(place, station)) = self.places.get(usize::from(path.0)) else { return };
        let longer = self.ip_version.longer_by_bytes();
        let row = packet_row(now, path, direction, &content, [longer, self.overheads[usize::from(path.0)]]);
        let in_flight = InFlight { content, row, place: self.rows.len() };
        if self.keep {
            self.rows.push(row);
        }
        if matches!(in_flight.content, LinkPacket::Echo(..)) {
            self.echo_bytes += u64::from(row.ip_bytes);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[slot] = Some(in_flight);
        self.events += 1;
        let packet = PacketId(slot as u64);
        let hop = Hop { station, direction };
        if let Err(reason) = self.links[place].send(now, hop, packet, row.ip_bytes.into()) {
            let exit = Exit { packet, hop, at: now, tries: 0, dropped: Some(reason) };
            self.leave(exit);
        }
        self.due[place] = self.links[place].next_wakeup();
    }

    /// Rows of the packets, their totals, and the number of events; packets still
    /// in flight count as neither delivered nor dropped.
    pub(super) fn finish(mut self) -> (Vec<PacketRow>, PacketSums, u64) {
        for in_flight in self.in_flight.iter().flatten() {
            self.sums.note(&in_flight.row);
        }
        (self.rows, self.sums, self.events)
    }

    fn leave(&mut self, exit: Exit) -> Option<LinkPacket> {
        let slot = exit.packet.0 as usize;
        let in_flight = self.in_flight.get_mut(slot)?;
        let InFlight { row, place, .. } = in_flight.as_mut()?;
        self.free.push(slot);
        self.events += 1;
        row.delivered_ns = exit.dropped.is_none().then(|| exit.at.as_nanos());
        row.drop = exit.dropped;
        row.tries = if exit.dropped == Some(DropReason::Queue) { 0 } else { exit.tries };
        self.sums.note(row);
        if self.keep {
            self.rows[*place] = *row;
        }
        in_flight.take().filter(|_| exit.dropped.is_none()).map(|in_flight| in_flight.content)
    }
}

impl LinkPacket {
    /// Length with an IP header that is `longer` than that of IPv4, in bytes.
    fn ip_bytes(&self, longer: u16) -> u16 {
        match self {
            LinkPacket::Direct(packet) => packet.ip_bytes() + longer,
            LinkPacket::Tunnelled(datagram) => datagram.ip_bytes,
            LinkPacket::Probe(_, bytes) => UDP_HEADER_BYTES + longer + bytes,
            LinkPacket::Echo(..) => echo::IP_BYTES + longer,
        }
    }
}

/// The row of a packet whose IP header is `longer` than that of IPv4, with `overhead` bytes around it.
fn packet_row(
    now: Instant,
    path: PathId,
    direction: Direction,
    content: &LinkPacket,
    [longer, overhead]: [u16; 2],
) -> PacketRow {
    let ip_bytes = content.ip_bytes(longer);
    // The link cannot see the packets inside the tunnel.
    let segment = match content {
        LinkPacket::Direct(Packet::Segment(segment, _)) => Some(segment),
        _ => None,
    };
    let payload_bytes = match content {
        LinkPacket::Probe(..) | LinkPacket::Echo(..) => 0,
        _ => segment.map_or(ip_bytes.saturating_sub(UDP_HEADER_BYTES + longer), |segment| segment.payload),
    };
    PacketRow {
        t_ns: now.as_nanos(),
        delivered_ns: None,
        path,
        direction,
        ip_bytes: ip_bytes + overhead,
        payload_bytes,
        subflow: segment.map(|segment| segment.subflow),
        // As on the wire: 32 bits.
        tcp_seq: segment.map_or(0, |segment| segment.seq as u32),
        tcp_ack: segment.map_or(0, |segment| segment.ack as u32),
        tcp_flags: segment.map_or(0, |segment| segment.flags),
        dsn: segment.and_then(|segment| segment.dsn),
        data_ack: segment.and_then(|segment| segment.data_ack),
        mptcp: segment.map(|segment| segment.options).unwrap_or_default(),
        drop: None,
        tries: 0,
    }
}
