//! What is done to a packet inside the tunnel. The first bytes say how.

use std::net::{IpAddr, Ipv6Addr};

use crosslane::tunnel::ip::{Inner, clamp_mss, decapsulate, fragment, too_big};

/// Plays one input.
pub fn run(bytes: &[u8]) {
    let Some((&[tos, high, low], packet)) = bytes.split_first_chunk::<3>() else { return };
    let mtu = u16::from_be_bytes([high, low]).max(508);
    let mut packet = packet.to_vec();
    let flow_slot = |packet: &[u8]| Inner::parse(packet).map(|inner| inner.flow_slot());
    let before = flow_slot(&packet);
    clamp_mss(&mut packet, mtu);
    assert_eq!(flow_slot(&packet), before, "a flow stays a flow");
    let mut parts = 0;
    let was_cut = fragment(&packet, mtu, |part| {
        parts += 1;
        assert!(part.len() <= usize::from(mtu), "{} bytes and an MTU of {mtu}", part.len());
        assert!(Inner::parse(part).is_some(), "a part is a packet");
    });
    assert!(was_cut || parts == 0);
    for address in [IpAddr::from([10, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
        if let Some(told) = too_big(&packet, mtu, address) {
            assert!(Inner::parse(&told).is_some_and(|told| told.source() == address));
        }
    }
    let _ = decapsulate(&mut packet, tos);
}
