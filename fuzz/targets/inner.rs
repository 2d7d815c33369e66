//! Processing of inner packets of the tunnel. The first bytes are parameters.

use std::net::{IpAddr, Ipv6Addr};

use crosslane_core::packet::ecn::decapsulate;
use crosslane_core::packet::fragment::fragment;
use crosslane_core::packet::icmp_too_big::too_big;
use crosslane_core::packet::ip::IpView;
use crosslane_core::packet::mss_clamp::clamp_mss;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((&[tos, high, low], packet)) = bytes.split_first_chunk::<3>() else { return };
    let mtu = u16::from_be_bytes([high, low]).max(508);
    let mut packet = packet.to_vec();
    let Some(mut packet) = IpView::parse(&mut packet[..]) else { return };
    let before = packet.flow_slot();
    clamp_mss(&mut packet, mtu);
    assert_eq!(packet.flow_slot(), before, "the flow is unchanged");
    let mut parts = 0;
    let is_fragmented = fragment(&packet, mtu, |part| {
        parts += 1;
        let bytes = part.packet();
        assert!(bytes.len() <= usize::from(mtu), "{} bytes and an MTU of {mtu}", bytes.len());
        assert_eq!(IpView::parse(bytes), Some(part), "a fragment is a packet");
    });
    assert!(is_fragmented || parts == 0);
    for address in [IpAddr::from([10, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()] {
        if let Some(error) = too_big(&packet, mtu, address) {
            assert!(IpView::parse(error).is_some_and(|error| error.source() == address));
        }
    }
    let _ = decapsulate(&mut packet, tos);
}
