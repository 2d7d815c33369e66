//! Fragmentation of IPv4 packets, as by a router.

use alloc::vec::Vec;

use super::checksum::Sum;
use super::ip::{Fragment, IpView, Layout};

/// An IPv4 header with all options.
const HEADER_MAX: usize = 60;

/// Fragments an IPv4 packet without DF into at most `mtu` bytes each (RFC
/// 791, section 3.2), passed to `each` in order; a packet that fits is
/// passed unchanged. False, and nothing passed, if it cannot be fragmented: DF,
/// IPv6, or an MTU without room for 8 bytes.
pub fn fragment(view: &IpView<impl AsRef<[u8]>>, mtu: u16, mut each: impl FnMut(IpView<&[u8]>)) -> bool {
    let (packet, mtu) = (view.packet(), usize::from(mtu));
    if packet.len() <= mtu {
        each(view.borrowed());
        return true;
    }
    let headers = view.layout.payload;
    if view.must_stay_whole() || mtu < headers + 8 {
        return false;
    }
    let before = u16::from_be_bytes([packet[6], packet[7]]);
    let (offset, more) = (usize::from(before & 0x1fff), before & 0x2000 != 0);
    let mut later = [0; HEADER_MAX];
    let later = later_header(&packet[..headers], &mut later);
    let mut fragment = Vec::with_capacity(mtu);
    let (mut rest, mut at) = (view.payload(), offset);
    // An offset has 13 bits: the packet is inconsistent.
    if offset * 8 + rest.len() > 0x1fff * 8 + 7 {
        return false;
    }
    while !rest.is_empty() {
        let header = if at == offset { &packet[..headers] } else { later };
        let max = (mtu - header.len()) / 8 * 8;
        let last = header.len() + rest.len() <= mtu;
        let (payload, after) = rest.split_at(if last { rest.len() } else { max });
        fragment.clear();
        fragment.extend_from_slice(header);
        fragment.extend_from_slice(payload);
        let total = fragment.len() as u16;
        let parts = (at as u16) | before & 0x8000 | if more || !last { 0x2000 } else { 0 };
        fragment[2..4].copy_from_slice(&total.to_be_bytes());
        fragment[6..8].copy_from_slice(&parts.to_be_bytes());
        fragment[10..12].fill(0);
        let checksum = Sum::default().with(&fragment[..header.len()]).checksum();
        fragment[10..12].copy_from_slice(&checksum.to_be_bytes());
        let kind = if at == 0 { Fragment::First } else { Fragment::Later };
        let layout = Layout { len: fragment.len(), payload: header.len(), fragment: kind, ..view.layout };
        each(IpView::of(&fragment, layout));
        at += payload.len() / 8;
        rest = after;
    }
    true
}

/// The header of all fragments but the first: with the options whose highest
/// bit requests copying (RFC 791, section 3.1).
fn later_header<'a>(header: &[u8], later: &'a mut [u8; HEADER_MAX]) -> &'a [u8] {
    later[..20].copy_from_slice(&header[..20]);
    let (mut len, mut rest) = (20, &header[20..]);
    while let [kind, after @ ..] = rest {
        let size = match (kind, after.first()) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(&size)) if size >= 2 && usize::from(size) <= rest.len() => usize::from(size),
            _ => break,
        };
        let (option, after) = rest.split_at(size);
        if kind & 0x80 != 0 {
            later[len..len + size].copy_from_slice(option);
            len += size;
        }
        rest = after;
    }
    // The rest of the last word is "end of options".
    let len = usize::next_multiple_of(len, 4);
    later[0] = 0x40 | (len / 4) as u8;
    &later[..len]
}
