//! Congestion marks of the outer header, on decapsulation.

use super::checksum::changed;
use super::ip::IpView;

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

/// Applies the congestion mark of the outer packet: figure 4 of RFC 6040. `outer`
/// is its DSCP and ECN; its DSCP is ignored (RFC 2983, pipe model).
pub fn decapsulate<B: AsRef<[u8]> + AsMut<[u8]>>(packet: &mut IpView<B>, outer: u8) -> Verdict {
    let inner = packet.tos() & CE;
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

fn set_ecn<B: AsRef<[u8]> + AsMut<[u8]>>(packet: &mut IpView<B>, ecn: u8) {
    let is_v6 = packet.is_v6();
    let packet = packet.packet_mut();
    if is_v6 {
        packet[1] = packet[1] & !(CE << 4) | ecn << 4;
        return;
    }
    let field = |packet: &[u8]| u16::from_be_bytes([packet[0], packet[1]]);
    let before = field(packet);
    packet[1] = packet[1] & !CE | ecn;
    let checksum = changed(u16::from_be_bytes([packet[10], packet[11]]), before, field(packet));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}
