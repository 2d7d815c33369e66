//! Segmentation of the kernel's GSO packets.
//!
//! With offload, one read of a TUN device returns a header (`struct
//! virtio_net_hdr`, VIRTIO 1.2, section 5.1.6) and up to 64 KiB of one flow
//! that the kernel leaves to a network card to segment. Segmentation is in
//! place: the header of each packet but the first overwrites the bytes
//! before its payload, which have been processed by then, so nothing is copied.

use super::checksum::Sum;
use super::ip::{TCP, UDP};

/// Bytes of the header in front of each packet.
pub const HEADER_BYTES: usize = 10;
/// Bytes of the longest frame: header, IPv6 header and its longest payload.
pub const FRAME_BYTES: usize = HEADER_BYTES + 40 + 65_535;

pub(super) const NEEDS_CHECKSUM: u8 = 1;
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCP4: u8 = 1;
pub(super) const GSO_TCP6: u8 = 4;
pub(super) const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

pub(super) const FIN: u8 = 0x01;
pub(super) const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Longest IP and TCP headers, with room for IPv6 extension headers.
const HEADERS_MAX: usize = 256;

/// `struct virtio_net_hdr`, in the byte order of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// 1: the checksum must be completed.
    pub flags: u8,
    /// 0: one packet; 1, 4, 5: segments of TCP over IPv4, over IPv6, of UDP.
    pub gso_type: u8,
    /// Bytes of all headers; the kernel's value is only a hint.
    pub headers: u16,
    /// Bytes of payload in each segment but the last.
    pub segment: u16,
    /// Start of the checksum's coverage: the TCP or UDP header.
    pub checksum_start: u16,
    /// Offset of the checksum from there.
    pub checksum_offset: u16,
}

impl Header {
    /// Reads the header; `None` if there are fewer bytes.
    pub fn parse(frame: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = frame.first_chunk()?;
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Header {
            flags: bytes[0],
            gso_type: bytes[1],
            headers: field(2),
            segment: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        })
    }

    /// The header's bytes.
    pub fn emit(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let fields = [self.headers, self.segment, self.checksum_start, self.checksum_offset];
        for (place, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }
}

/// Why a frame could not be segmented. It is dropped; the kernel creates none such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends within its headers.
    #[error("the frame ends within its headers")]
    Short,
    /// Its GSO type was not enabled.
    #[error("the frame has an unknown GSO type ({0})")]
    Kind(u8),
    /// Its header and its packet contradict each other.
    #[error("the frame's header and packet contradict each other")]
    Contradiction,
}

/// Passes the packets of one frame, as read from the device, to `each` in order,
/// each whole and with correct checksums. Changes of a packet by `each` do not
/// affect the others. The frame's contents are undefined afterwards.
///
/// # Errors
/// The frame is malformed; no packet was passed.
pub fn split(frame: &mut [u8], mut each: impl FnMut(&mut [u8])) -> Result<(), Malformed> {
    let header = Header::parse(frame).ok_or(Malformed::Short)?;
    let packet = &mut frame[HEADER_BYTES..];
    match header.gso_type & !GSO_ECN {
        GSO_NONE => {
            if header.flags & NEEDS_CHECKSUM != 0 {
                complete(packet, header)?;
            }
            each(packet);
            Ok(())
        }
        GSO_TCP4 | GSO_TCP6 | GSO_UDP => segment_frame(packet, header, each),
        other => Err(Malformed::Kind(other)),
    }
}

/// Completes a checksum whose field contains the pseudo-header's sum.
fn complete(packet: &mut [u8], header: Header) -> Result<(), Malformed> {
    let start = usize::from(header.checksum_start);
    let covered = packet.get_mut(start..).ok_or(Malformed::Short)?;
    let at = usize::from(header.checksum_offset);
    let checksum = Sum::default().with(covered).checksum();
    let place = covered.get_mut(at..at + 2).ok_or(Malformed::Short)?;
    // RFC 768: a UDP checksum of zero would mean that there is none.
    let checksum = if checksum == 0 && at == 6 { 0xffff } else { checksum };
    place.copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The common header of all segments of a GSO packet.
struct Template {
    headers: [u8; HEADERS_MAX],
    len: usize,
    /// Offset of the TCP or UDP header.
    transport: usize,
    version: u8,
    protocol: u8,
    /// Sums over the fields that do not change.
    ip_sum: Sum,
    transport_sum: Sum,
    id: u16,
    sequence: u32,
    flags: u8,
}

fn segment_frame(packet: &mut [u8], header: Header, mut each: impl FnMut(&mut [u8])) -> Result<(), Malformed> {
    let segment = usize::from(header.segment);
    if segment == 0 || header.flags & NEEDS_CHECKSUM == 0 {
        return Err(Malformed::Contradiction);
    }
    let template = Template::new(packet, header)?;
    let first = template.len;
    // An IP length has 16 bits.
    if first + segment.min(packet.len() - first) > usize::from(u16::MAX) {
        return Err(Malformed::Contradiction);
    }
    let count = (packet.len() - first).div_ceil(segment).max(1);
    for number in 0..count {
        let payload = first + number * segment;
        let end = (payload + segment).min(packet.len());
        let segment = &mut packet[payload - first..end];
        template.write(segment, number, (number == 0, number + 1 == count), header.segment);
        each(segment);
    }
    Ok(())
}

impl Template {
    fn new(packet: &[u8], header: Header) -> Result<Template, Malformed> {
        let protocol = if header.gso_type & !GSO_ECN == GSO_UDP { UDP } else { TCP };
        let version = packet.first().ok_or(Malformed::Short)? >> 4;
        let transport = usize::from(header.checksum_start);
        let (shortest, checksum_offset) = if protocol == TCP { (20, 16) } else { (8, 6) };
        let consistent = match version {
            4 => transport >= 20 && header.gso_type & !GSO_ECN != GSO_TCP6,
            6 => transport >= 40 && header.gso_type & !GSO_ECN != GSO_TCP4,
            _ => false,
        };
        if !consistent || header.checksum_offset != checksum_offset {
            return Err(Malformed::Contradiction);
        }
        let data = if protocol == TCP { packet.get(transport + 12).ok_or(Malformed::Short)? >> 4 } else { 2 };
        let len = transport + usize::from(data) * 4;
        if len < transport + shortest || len > HEADERS_MAX {
            return Err(Malformed::Contradiction);
        }
        let mut headers = [0; HEADERS_MAX];
        headers[..len].copy_from_slice(packet.get(..len).ok_or(Malformed::Short)?);
        Ok(Template::of(headers, len, transport, version, protocol))
    }

    /// Clears the fields that change, and sums the rest.
    fn of(mut headers: [u8; HEADERS_MAX], len: usize, transport: usize, version: u8, protocol: u8) -> Template {
        let id = u16::from_be_bytes([headers[4], headers[5]]);
        let ip_sum = if version == 4 {
            headers[2..6].fill(0);
            headers[10..12].fill(0);
            Sum::default().with(&headers[..transport])
        } else {
            headers[4..6].fill(0);
            Sum::default()
        };
        let of_tcp = &mut headers[transport..len];
        let (mut sequence, mut flags) = (0, 0);
        if protocol == TCP {
            sequence = u32::from_be_bytes([of_tcp[4], of_tcp[5], of_tcp[6], of_tcp[7]]);
            flags = of_tcp[13];
            of_tcp[4..8].fill(0);
            of_tcp[13] = 0;
            of_tcp[16..18].fill(0);
        } else {
            of_tcp[4..8].fill(0);
        }
        let addresses = if version == 4 { &headers[12..20] } else { &headers[8..40] };
        let transport_sum = Sum::default().with_pseudo_header(addresses, protocol, 0).with(&headers[transport..len]);
        Template { headers, len, transport, version, protocol, ip_sum, transport_sum, id, sequence, flags }
    }

    /// Writes headers before the payload that is in `segment` already.
    fn write(&self, segment: &mut [u8], number: usize, (first, last): (bool, bool), size: u16) {
        let total = segment.len() as u16;
        let (ip, payload) = segment.split_at_mut(self.len);
        ip.copy_from_slice(&self.headers[..self.len]);
        let (ip, transport) = ip.split_at_mut(self.transport);
        if self.version == 4 {
            let id = self.id.wrapping_add(number as u16);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            let checksum = self.ip_sum.with_field(total).with_field(id).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[4..6].copy_from_slice(&(total - 40).to_be_bytes());
        }
        let length = (transport.len() + payload.len()) as u16;
        let sum = self.transport_sum.with_field(length).with(payload);
        if self.protocol == TCP {
            let sequence = self.sequence.wrapping_add(number as u32 * u32::from(size));
            // RFC 3168, section 6.1.2: only the first segment has CWR.
            let flags = self.flags & if first { 0xff } else { !CWR } & if last { 0xff } else { !(FIN | PSH) };
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            transport[13] = flags;
            let sum = sum.with_field((sequence >> 16) as u16).with_field(sequence as u16).with_field(u16::from(flags));
            transport[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        } else {
            transport[4..6].copy_from_slice(&length.to_be_bytes());
            let checksum = match sum.with_field(length).checksum() {
                0 => 0xffff,
                checksum => checksum,
            };
            transport[6..8].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
