//! MSS clamping for TCP through the tunnel.

use super::checksum::changed;
use super::ip::{Fragment, IpView, SYN, TCP};

/// Lowers the maximum segment size that a SYN offers (RFC 9293, section 3.7.1)
/// to what fits into `mtu` bytes of IP. True if it was changed.
pub fn clamp_mss<B: AsRef<[u8]> + AsMut<[u8]>>(packet: &mut IpView<B>, mtu: u16) -> bool {
    let headers = if packet.is_v6() { 60 } else { 40 };
    if packet.protocol() != TCP || packet.fragment() == Fragment::Later {
        return false;
    }
    let Some(option) = mss_option(packet.payload()) else { return false };
    let start = packet.layout.payload;
    let max = mtu.saturating_sub(headers);
    let tcp = &mut packet.packet_mut()[start..];
    let before = u16::from_be_bytes([tcp[option], tcp[option + 1]]);
    if before <= max {
        return false;
    }
    tcp[option..option + 2].copy_from_slice(&max.to_be_bytes());
    // At an odd offset its bytes are in the other halves of their words.
    let (before, after) = if option % 2 == 0 { (before, max) } else { (before.swap_bytes(), max.swap_bytes()) };
    let checksum = changed(u16::from_be_bytes([tcp[16], tcp[17]]), before, after);
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Offset of a SYN's MSS value in the TCP header.
fn mss_option(tcp: &[u8]) -> Option<usize> {
    let header: &[u8; 20] = tcp.first_chunk()?;
    let options = tcp.get(..usize::from(header[12] >> 4) * 4)?;
    if header[13] & SYN == 0 {
        return None;
    }
    let mut at = 20;
    loop {
        match *options.get(at..)? {
            [2, 4, _, _, ..] => return Some(at + 2),
            [0, ..] | [] => return None,
            [1, ..] => at += 1,
            // A length below 2 would never advance.
            [_, len, ..] if len >= 2 => at += usize::from(len),
            _ => return None,
        }
    }
}
