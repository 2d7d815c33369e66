//! Packets for the kernel, coalesced into GSO packets: one write for up to
//! 64 KiB of a flow.
//!
//! It coalesces what the kernel's own GRO would: TCP data without
//! any flag but ACK and PSH, or UDP datagrams of one length, with equal
//! headers and consecutive sequence numbers. All other packets are written unchanged.
//! The order within a flow is kept; packets without a known flow (fragments,
//! IP options, extension headers) keep their place among all packets.

use alloc::vec::Vec;
use core::ops::Range;

use super::checksum::Sum;
use super::gso::{GSO_TCP4, GSO_TCP6, GSO_UDP, Header, NEEDS_CHECKSUM, PSH};
use super::ip::{Fragment, IpView, TCP, UDP};

/// Maximum number of GSO packets that can grow at one time.
pub const FLOWS_MAX: usize = 8;
/// Bytes held until a flush is required; more than a batch of receptions.
pub const HELD_BYTES_MAX: usize = 2 << 20;
/// Writes held until a flush is required.
pub const HELD_FRAMES_MAX: usize = 4096;
/// Maximum number of segments of one UDP GSO packet (the kernel's former UDP_MAX_SEGMENTS).
const UDP_SEGMENTS_MAX: u16 = 64;
/// Maximum number of chunks of one write, besides the header.
const CHUNKS_MAX: usize = 60;
/// Maximum number of parts of one write.
pub const PARTS_MAX: usize = CHUNKS_MAX + 1;
const ACK: u8 = 0x10;

/// Coalesces the packets of a batch. It keeps its memory from batch to batch.
#[derive(Debug)]
pub struct Coalescer {
    /// Whether UDP may be coalesced: the device has USO.
    udp: bool,
    /// All bytes of the batch.
    bytes: Vec<u8>,
    /// The writes, in order. Only the first `used` belong to this batch.
    items: Vec<Item>,
    used: usize,
    /// Items that can grow, the oldest first.
    open: Vec<(Key, usize)>,
}

/// One write.
#[derive(Debug, Default)]
struct Item {
    /// Position of its packet in the batch: the first with its headers, then payloads.
    chunks: Vec<Range<usize>>,
    len: usize,
    headers: usize,
    segments: u16,
    /// Payload of each segment but the last, bytes.
    segment: usize,
    /// TCP: the next sequence number; UDP: unused.
    next: u32,
    /// IPv4: identification of the newest packet.
    id: u16,
    psh: bool,
}

/// A flow: addresses, ports, protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    addresses: [u64; 4],
    ports: u32,
    protocol: u8,
    version: u8,
}

/// A packet with a plain TCP or UDP header.
struct Segment {
    key: Key,
    /// Offset of the TCP or UDP header.
    transport: usize,
    /// Bytes of all headers.
    headers: usize,
    sequence: u32,
    flags: u8,
}

impl Coalescer {
    /// Coalesces TCP, and UDP if `udp`: the device has USO.
    pub fn new(udp: bool) -> Coalescer {
        Coalescer { udp, bytes: Vec::new(), items: Vec::new(), used: 0, open: Vec::with_capacity(FLOWS_MAX) }
    }

    /// Adds a packet. False if too much is held: then the packet was not
    /// added, and [`Coalescer::flush`] must be called first.
    #[must_use]
    pub fn push(&mut self, view: &IpView<impl AsRef<[u8]>>) -> bool {
        let packet = view.packet();
        if self.bytes.len() + packet.len() > HELD_BYTES_MAX || self.used == HELD_FRAMES_MAX {
            return false;
        }
        let Some(segment) = Segment::of(view) else {
            self.open.clear();
            self.add(packet, 0);
            return true;
        };
        let place = self.open.iter().position(|(key, _)| *key == segment.key);
        if !segment.can_be_coalesced(packet, self.udp) {
            if let Some(place) = place {
                self.open.remove(place);
            }
            self.add(packet, segment.headers);
            return true;
        }
        if let Some(place) = place {
            let item = self.open[place].1;
            if self.append(item, &segment, packet) {
                if self.items[item].is_complete(packet.len() - segment.headers) {
                    self.open.remove(place);
                }
                return true;
            }
            self.open.remove(place);
        }
        self.begin(&segment, packet);
        true
    }

    /// Writes everything held, in as few frames as possible, and is empty then.
    /// `write` gets the parts of each frame, to be written one after the other.
    ///
    /// # Errors
    /// The first error of `write`; the other frames are written nevertheless.
    pub fn flush<E>(&mut self, mut write: impl FnMut(&[&[u8]]) -> Result<(), E>) -> Result<(), E> {
        let mut outcome = Ok(());
        for item in &self.items[..self.used] {
            let header = item.finish(&mut self.bytes).emit();
            let mut parts: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
            parts[0] = &header;
            for (part, chunk) in parts[1..].iter_mut().zip(&item.chunks) {
                *part = &self.bytes[chunk.clone()];
            }
            outcome = outcome.and(write(&parts[..=item.chunks.len()]));
        }
        self.bytes.clear();
        self.open.clear();
        self.used = 0;
        outcome
    }

    /// True if there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds an item of one packet; returns its index.
    fn add(&mut self, packet: &[u8], headers: usize) -> usize {
        if self.used == self.items.len() {
            self.items.push(Item::default());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        let item = &mut self.items[self.used];
        item.chunks.clear();
        item.chunks.push(start..self.bytes.len());
        item.len = packet.len();
        item.headers = headers;
        item.segments = 1;
        self.used += 1;
        self.used - 1
    }

    fn begin(&mut self, segment: &Segment, packet: &[u8]) {
        let place = self.add(packet, segment.headers);
        let payload = packet.len() - segment.headers;
        let item = &mut self.items[place];
        item.segment = payload;
        item.note_newest(segment, packet);
        if item.psh {
            return;
        }
        if self.open.len() == FLOWS_MAX {
            self.open.remove(0);
        }
        self.open.push((segment.key, place));
    }

    /// Appends the packet's payload to an item, if it continues the item.
    fn append(&mut self, item: usize, segment: &Segment, packet: &[u8]) -> bool {
        let item = &mut self.items[item];
        let start = item.chunks.first().map_or(0, |chunk| chunk.start);
        let before = &self.bytes[start..start + item.headers];
        let payload = &packet[segment.headers..];
        let follows = payload.len() <= item.segment
            && item.len + payload.len() <= usize::from(u16::MAX)
            && item.headers == segment.headers
            && segment.continues(item, before, packet);
        let end = self.bytes.len();
        let adjacent = item.chunks.last().is_some_and(|chunk| chunk.end == end);
        if !follows || (!adjacent && item.chunks.len() == CHUNKS_MAX) {
            return false;
        }
        self.bytes.extend_from_slice(payload);
        match item.chunks.last_mut() {
            Some(chunk) if adjacent => chunk.end = self.bytes.len(),
            _ => item.chunks.push(end..self.bytes.len()),
        }
        item.len += payload.len();
        item.segments += 1;
        item.note_newest(segment, packet);
        true
    }
}

impl Item {
    fn note_newest(&mut self, segment: &Segment, packet: &[u8]) {
        self.next = segment.sequence.wrapping_add((packet.len() - segment.headers) as u32);
        self.id = u16::from_be_bytes([packet[4], packet[5]]);
        self.psh = segment.flags & PSH != 0;
    }

    /// True after a short segment, PSH, or the maximum number of segments.
    fn is_complete(&self, newest: usize) -> bool {
        self.psh || newest < self.segment || self.segments == u16::MAX
    }

    /// Changes the headers to those of a GSO packet, if it is one; returns the header
    /// for the device.
    fn finish(&self, bytes: &mut [u8]) -> Header {
        let start = self.chunks.first().map_or(0, |chunk| chunk.start);
        if self.segments < 2 {
            return Header::default();
        }
        let headers = &mut bytes[start..start + self.headers];
        let total = self.len as u16;
        let (transport, protocol, pseudo, gso_tcp) = if headers[0] >> 4 == 4 {
            headers[2..4].copy_from_slice(&total.to_be_bytes());
            headers[10..12].fill(0);
            let checksum = Sum::default().with(&headers[..20]).checksum();
            headers[10..12].copy_from_slice(&checksum.to_be_bytes());
            let pseudo = Sum::default().with_pseudo_header(&headers[12..20], headers[9], self.len - 20);
            (20, headers[9], pseudo, GSO_TCP4)
        } else {
            headers[4..6].copy_from_slice(&(total - 40).to_be_bytes());
            let pseudo = Sum::default().with_pseudo_header(&headers[8..40], headers[6], self.len - 40);
            (40, headers[6], pseudo, GSO_TCP6)
        };
        let field = if protocol == TCP { 16 } else { 6 };
        if protocol == TCP {
            headers[transport + 13] |= if self.psh { PSH } else { 0 };
        } else {
            let length = total - transport as u16;
            headers[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        }
        let place = transport + field;
        headers[place..place + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        Header {
            flags: NEEDS_CHECKSUM,
            gso_type: if protocol == TCP { gso_tcp } else { GSO_UDP },
            headers: self.headers as u16,
            segment: self.segment as u16,
            checksum_start: transport as u16,
            checksum_offset: field as u16,
        }
    }
}

impl Segment {
    /// `None` unless it is a whole datagram with an IP header without options, followed
    /// by TCP or UDP.
    fn of(view: &IpView<impl AsRef<[u8]>>) -> Option<Segment> {
        let (packet, transport, protocol) = (view.packet(), view.layout.payload, view.protocol());
        let version = packet[0] >> 4;
        // IPv4 has a reserved bit besides those of fragments.
        let is_plain = if version == 4 { transport == 20 && packet[6] & 0x80 == 0 } else { transport == 40 };
        (is_plain && view.fragment() == Fragment::Whole).then_some(())?;
        let mut addresses = [0; 4];
        for (word, bytes) in addresses.iter_mut().zip(view.addresses().as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let header = view.payload();
        let length = match protocol {
            TCP => {
                let header: &[u8; 20] = header.first_chunk()?;
                usize::from(header[12] >> 4) * 4
            }
            UDP => 8,
            _ => return None,
        };
        let min = if protocol == TCP { 20 } else { 8 };
        (length >= min && length <= header.len()).then_some(())?;
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let ports = number(0);
        let (sequence, flags) = if protocol == TCP { (number(4), header[13]) } else { (0, 0) };
        let key = Key { addresses, ports, protocol, version };
        Some(Segment { key, transport, headers: transport + length, sequence, flags })
    }

    fn protocol(&self) -> u8 {
        self.key.protocol
    }

    /// It has data, no flags but ACK and PSH, and correct checksums.
    fn can_be_coalesced(&self, packet: &[u8], udp: bool) -> bool {
        let is_data = match self.protocol() {
            TCP => self.flags & !PSH == ACK,
            _ => {
                let header = &packet[self.transport..];
                let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
                udp && length == header.len() && header[6..8] != [0, 0]
            }
        };
        is_data && packet.len() > self.headers && self.checksums_are_correct(packet)
    }

    fn checksums_are_correct(&self, packet: &[u8]) -> bool {
        let v4 = self.key.version == 4;
        let addresses = if v4 { &packet[12..20] } else { &packet[8..40] };
        let covered = &packet[self.transport..];
        let sum = Sum::default().with_pseudo_header(addresses, self.protocol(), covered.len()).with(covered);
        sum.checksum() == 0 && (!v4 || Sum::default().with(&packet[..20]).checksum() == 0)
    }

    /// The packet follows an item whose headers are `before`.
    fn continues(&self, item: &Item, before: &[u8], packet: &[u8]) -> bool {
        let same = |range: Range<usize>| before[range.clone()] == packet[range];
        let ip = if self.key.version == 4 {
            // Without DF the identification increments, as it will when segmented again.
            let id = u16::from_be_bytes([packet[4], packet[5]]);
            same(1..2) && same(6..9) && (packet[6] & 0x40 != 0 || id == item.id.wrapping_add(1))
        } else {
            same(0..4) && same(7..8)
        };
        let at = self.transport;
        let transport = match self.protocol() {
            // Acknowledgement and length; window; urgent pointer and options.
            TCP => {
                self.sequence == item.next
                    && same(at + 8..at + 13)
                    && same(at + 14..at + 16)
                    && same(at + 18..self.headers)
            }
            _ => item.segments < UDP_SEGMENTS_MAX,
        };
        ip && transport
    }
}

#[cfg(test)]
mod tests;
