//! DSCP and ECN of the outer header: encapsulation and decapsulation.

use super::checksum::changed;
use super::ip::Inner;

const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// What happens to a packet after decapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is forwarded.
    Forward,
    /// It is dropped, so that its sender detects the congestion.
    Drop,
}

/// DSCP and ECN of the outer packet: those of the inner one (RFC 2983, uniform
/// model; RFC 6040, section 4.1, normal mode); 0 for what is no IP packet.
pub fn outer_tos(packet: &[u8]) -> u8 {
    Inner::parse(packet).map_or(0, |inner| inner.tos())
}

/// Applies the congestion mark of the outer packet: figure 4 of RFC 6040. `outer`
/// is its DSCP and ECN; its DSCP is ignored (RFC 2983, pipe model).
pub fn decapsulate(packet: &mut [u8], outer: u8) -> Verdict {
    let Some(inner) = Inner::parse(packet).map(|inner| inner.tos() & CE) else { return Verdict::Drop };
    let result = match (inner, outer & CE) {
        (NOT_ECT, CE) => return Verdict::Drop,
        (ECT_0 | ECT_1, CE) => CE,
        (ECT_0, ECT_1) => ECT_1,
        (inner, _) => inner,
    };
    if result != inner {
        set_ecn(packet, result);
    }
    Verdict::Forward
}

/// Sets the ECN field of a packet that has been parsed.
fn set_ecn(packet: &mut [u8], ecn: u8) {
    if packet[0] >> 4 == 6 {
        packet[1] = packet[1] & !(CE << 4) | ecn << 4;
        return;
    }
    let field = |packet: &[u8]| u16::from_be_bytes([packet[0], packet[1]]);
    let before = field(packet);
    packet[1] = packet[1] & !CE | ecn;
    let checksum = changed(u16::from_be_bytes([packet[10], packet[11]]), before, field(packet));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}
