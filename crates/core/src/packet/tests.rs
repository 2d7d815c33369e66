use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::checksum::Sum;
use super::ecn::{Verdict, decapsulate};
use super::fragment::fragment;
use super::icmp_too_big::too_big;
use super::ip::{Fragment, ICMP, ICMPV6, IpView, SYN, UDP};
use super::mss_clamp::clamp_mss;
use super::packets_for_tests::{Tcp, assert_valid, set_ip, sum_ip, udp};

const ACK: u8 = 16;
const OURS_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
const OURS_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd, 0, 0, 0, 0, 0, 0, 9));

fn ours(v6: bool) -> IpAddr {
    if v6 { OURS_V6 } else { OURS_V4 }
}

/// A UDP packet with these extension headers (number and bytes) before UDP.
fn extended(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let plain = udp(true, 53, &[1; 50]);
    let mut packet = plain[..40].to_vec();
    packet[6] = extensions.first().map_or(UDP, |(number, _)| *number);
    for (at, (_, bytes)) in extensions.iter().enumerate() {
        packet.push(extensions.get(at + 1).map_or(UDP, |(number, _)| *number));
        packet.extend_from_slice(&bytes[1..]);
    }
    packet.extend_from_slice(&plain[40..]);
    let length = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

fn view(packet: &[u8]) -> IpView<&[u8]> {
    IpView::parse(packet).unwrap()
}

fn flow_slot(packet: &[u8]) -> u8 {
    view(packet).flow_slot()
}

#[test]
fn extension_headers_are_parsed_up_to_the_protocol() {
    let plain = udp(true, 53, &[1; 50]);
    let packet = extended(&[(0, &[0; 8]), (43, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), (60, &[0; 8])]);
    let inner = view(&packet);
    assert_eq!((inner.protocol(), inner.payload(), inner.fragment()), (UDP, &plain[40..], Fragment::Whole));
    assert_eq!(flow_slot(&packet), flow_slot(&plain));
    let first = extended(&[(44, &[0, 0, 0, 1, 0, 0, 0, 7])]);
    assert_eq!(view(&first).fragment(), Fragment::First);
    let later = extended(&[(44, &[0, 0, 0, 0x18, 0, 0, 0, 7])]);
    assert_eq!(view(&later).fragment(), Fragment::Later);
    assert_eq!(flow_slot(&first), flow_slot(&later));
    // Atomic fragments (RFC 6946) are whole.
    assert_eq!(view(&extended(&[(44, &[0; 8])])).fragment(), Fragment::Whole);
    assert_eq!(IpView::parse(extended(&[(0, &[0, 200, 0, 0, 0, 0, 0, 0])])), None);
}

#[test]
fn tcp_data_and_syn_and_quic_are_bulk_unless_marked() {
    let bulk = |packet: &[u8]| view(packet).is_bulk();
    for v6 in [false, true] {
        let tcp = |flags: u8, tos: u8, payload: &[u8]| bulk(&Tcp { v6, flags, tos, ..Tcp::default() }.packet(payload));
        assert!(tcp(SYN, 0, &[]) && tcp(ACK, 0, &[1]) && tcp(ACK, 2, &[1; 1000]), "ECN is no DSCP mark");
        assert!(!tcp(ACK, 0, &[]), "a pure acknowledgement");
        assert!(!tcp(ACK, 0x48, &[1; 100]) && !tcp(SYN, 0xb8, &[]), "AF21 and EF");
        assert!(bulk(&udp(v6, 443, &[1; 1200])) && !bulk(&udp(v6, 443, &[1; 40])));
        assert!(!bulk(&udp(v6, 5004, &[1; 1200])), "a stream has its own rate");
    }
    assert!(!bulk(&extended(&[(44, &[0, 0, 0, 1, 0, 0, 0, 7])])));
}

#[test]
fn a_pure_acknowledgement_has_no_data_and_no_flag_that_must_arrive_in_order() {
    let [fin, rst, psh, ece] = [1, 4, 8, 64];
    let is =
        |v6: bool, flags: u8, payload: &[u8]| view(&Tcp { v6, flags, ..Tcp::default() }.packet(payload)).is_pure_ack();
    for v6 in [false, true] {
        assert!([ACK, ACK | psh, ACK | ece].iter().all(|flags| is(v6, *flags, &[])));
        assert!(![ACK | fin, ACK | SYN, ACK | rst, SYN, 0].iter().any(|flags| is(v6, *flags, &[])));
        assert!(!is(v6, ACK, &[1]) && !view(&udp(v6, 443, &[])).is_pure_ack());
    }
}

#[test]
fn a_flow_has_one_slot_and_flows_are_spread() {
    let slot = |port: u16, payload: &[u8]| flow_slot(&Tcp { port, ..Tcp::default() }.packet(payload));
    assert_eq!(slot(443, &[1; 10]), slot(443, &[2; 1000]));
    // Fixed: both endpoints and every release agree.
    assert_eq!((slot(443, &[]), flow_slot(&udp(true, 53, &[]))), (GOLDEN[0], GOLDEN[1]));
    for v6 in [false, true] {
        let slots: BTreeSet<u8> = (0..256).map(|port| flow_slot(&udp(v6, port, &[]))).collect();
        // Of 256 balls in 256 bins, 162 bins are hit on average.
        assert!(slots.len() > 130, "{}", slots.len());
    }
}

#[test]
fn parts_of_a_datagram_share_a_slot() {
    let mut packet = udp(false, 53, &[3; 3000]);
    set_ip(&mut packet, 0, 1, false);
    let mut slots = BTreeSet::new();
    assert!(fragment(&view(&packet), 1000, |part| {
        slots.insert(part.flow_slot());
    }));
    assert_eq!(slots.len(), 1);
}

#[test]
fn the_mss_of_a_syn_is_clamped_to_the_mtu() {
    for v6 in [false, true] {
        for options in [vec![2, 4, 0x05, 0xb4], vec![1, 2, 4, 0x05, 0xb4, 1, 1, 1], vec![4, 2, 1, 2, 4, 0x05, 0xb4, 0]]
        {
            let syn = Tcp { v6, flags: 0x02, options, ..Tcp::default() };
            let mut packet = syn.packet(&[]);
            let max = if v6 { 1320 - 60 } else { 1320 - 40_u16 };
            let mut view = IpView::parse(&mut packet[..]).unwrap();
            assert!(clamp_mss(&mut view, 1320));
            assert!(!clamp_mss(&mut view, 1320), "a second call changes nothing");
            assert_valid(&packet);
            let bytes = max.to_be_bytes();
            assert!(packet.windows(4).any(|window| window == [2, 4, bytes[0], bytes[1]]));
            let data = Tcp { flags: 0x10, ..syn.clone() }.packet(&[]);
            assert!(!clamp_mss(&mut IpView::parse(data).unwrap(), 1320));
        }
        let without = Tcp { v6, flags: 0x02, options: vec![4, 2, 0, 0], ..Tcp::default() };
        assert!(!clamp_mss(&mut IpView::parse(without.packet(&[])).unwrap(), 1320));
    }
}

#[test]
fn a_packet_too_big_is_answered_with_the_mtu_and_its_beginning() {
    for v6 in [false, true] {
        let packet = Tcp { v6, ..Tcp::default() }.packet(&[7; 1440]);
        let answer = too_big(&view(&packet), 1300, ours(v6)).unwrap();
        assert_valid(&answer);
        let inner = view(&answer);
        assert_eq!((inner.source(), inner.destination()), (ours(v6), view(&packet).source()));
        let icmp = inner.payload();
        assert_eq!(icmp[..2], if v6 { [2, 0] } else { [3, 4] });
        assert_eq!(u16::from_be_bytes([icmp[6], icmp[7]]), 1300);
        assert_eq!(answer.len(), if v6 { 1280 } else { 576 });
        assert!(packet.starts_with(&icmp[8..]));
        assert_eq!(too_big(&view(&packet), packet.len() as u16, ours(v6)), None);
        assert_eq!(too_big(&view(&packet), 1300, ours(!v6)), None);
    }
    let v6 = Tcp { v6: true, ..Tcp::default() }.packet(&[7; 1400]);
    let answer = too_big(&view(&v6), 1000, OURS_V6).unwrap();
    assert_eq!(answer[46..48], 1280_u16.to_be_bytes());
}

#[test]
fn packets_that_may_be_fragmented_or_must_not_be_answered_are_not() {
    let packet = Tcp::default().packet(&[7; 1440]);
    let is_silent = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = packet.clone();
        change(&mut packet);
        sum_ip(&mut packet);
        too_big(&view(&packet), 1300, OURS_V4).is_none()
    };
    assert!(!is_silent(&|_| ()));
    assert!(is_silent(&|packet| packet[6] = 0), "without DF");
    assert!(is_silent(&|packet| packet[7] = 1), "a later fragment");
    assert!(is_silent(&|packet| packet[12] = 224), "from a group");
    assert!(is_silent(&|packet| packet[12] = 0), "from no host");
    assert!(is_silent(&|packet| packet[16] = 224), "to a group");
    assert!(is_silent(&|packet| packet[16..20].fill(255)), "to all");
    let icmp = |kind: u8| {
        move |packet: &mut Vec<u8>| {
            packet[9] = ICMP;
            packet[20] = kind;
        }
    };
    for error in [3, 4, 5, 11, 12, 200] {
        assert!(is_silent(&icmp(error)), "about ICMP {error}");
    }
    assert!(!is_silent(&icmp(8)), "about a ping");
    let mut v6 = Tcp { v6: true, ..Tcp::default() }.packet(&[7; 1440]);
    v6[6] = ICMPV6;
    for (kind, answered) in [(1, false), (2, false), (137, false), (128, true)] {
        v6[40] = kind;
        assert_eq!(too_big(&view(&v6), 1300, OURS_V6).is_some(), answered, "about ICMPv6 {kind}");
    }
}

/// Reassembles fragments.
fn reassembled(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let inner = view(part);
        let field = u16::from_be_bytes([part[6], part[7]]);
        assert_eq!(usize::from(field & 0x1fff) * 8, payload.len());
        assert_eq!(field & 0x2000 != 0, at + 1 < parts.len());
        payload.extend_from_slice(inner.payload());
    }
    payload
}

#[test]
fn fragments_have_exactly_the_options_that_must_be_copied() {
    let mut packet = udp(false, 53, &[5; 2000]);
    set_ip(&mut packet, 0, 77, false);
    // Router alert (copied) and a timestamp (not copied).
    let options = [0x94, 4, 0, 0, 68, 4, 5, 0];
    packet.splice(20..20, options);
    packet[0] = 0x47;
    let total = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    sum_ip(&mut packet);
    let mut parts = Vec::new();
    assert!(fragment(&view(&packet), 700, |part| parts.push(part.packet().to_vec())));
    assert!(parts.len() > 2 && parts.iter().all(|part| part.len() <= 700));
    assert_eq!(reassembled(&parts), packet[28..]);
    assert_eq!(parts[0][..28].len(), 28);
    assert_eq!((parts[0][0], parts[1][0], &parts[1][20..24]), (0x47, 0x46, &options[..4]));
    for part in &parts {
        assert_eq!(Sum::default().with(&part[..usize::from(part[0] & 15) * 4]).checksum(), 0);
    }
    // Fragmented once more, for a smaller MTU.
    let mut refragmented = Vec::new();
    for part in &parts {
        assert!(fragment(&view(part), 300, |part| refragmented.push(part.packet().to_vec())));
    }
    assert_eq!(reassembled(&refragmented), packet[28..]);
}

#[test]
fn a_packet_that_must_stay_whole_is_not_fragmented() {
    let never = |_: IpView<&[u8]>| panic!("fragmented");
    assert!(!fragment(&view(&Tcp::default().packet(&[0; 1000])), 500, never));
    assert!(!fragment(&view(&udp(true, 1, &[0; 1000])), 500, never));
    let mut packet = udp(false, 1, &[0; 1000]);
    set_ip(&mut packet, 0, 1, false);
    assert!(!fragment(&view(&packet), 27, never));
    let mut count = 0;
    assert!(fragment(&view(&packet), 28, |_| count += 1));
    assert_eq!(count, 1008 / 8);
}

#[test]
fn outer_ecn_is_decapsulated_as_in_figure_4_of_rfc_6040() {
    const NOT: u8 = 0;
    const ONE: u8 = 1;
    const ZERO: u8 = 2;
    // Rows: the inner packet; columns: outer Not-ECT, ECT(0), ECT(1), CE.
    let figure = [
        (NOT, [Some(NOT), Some(NOT), Some(NOT), None]),
        (ZERO, [Some(ZERO), Some(ZERO), Some(ONE), Some(3)]),
        (ONE, [Some(ONE), Some(ONE), Some(ONE), Some(3)]),
        (3, [Some(3), Some(3), Some(3), Some(3)]),
    ];
    for v6 in [false, true] {
        for (inner, results) in figure {
            for (outer, result) in [NOT, ZERO, ONE, 3].into_iter().zip(results) {
                let dscp = 46 << 2;
                let mut packet = Tcp { v6, tos: dscp | inner, ..Tcp::default() }.packet(&[1; 9]);
                let verdict = decapsulate(&mut IpView::parse(&mut packet[..]).unwrap(), 0x1c | outer);
                let expected = if result.is_some() { Verdict::Forward } else { Verdict::Drop };
                assert_eq!(verdict, expected, "{inner} in {outer}");
                assert_eq!(view(&packet).tos(), dscp | result.unwrap_or(inner), "{inner} in {outer}");
                assert_valid(&packet);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), mtu: u16, outer: u8) {
    call_all(&mut bytes, mtu, outer);
    }

    #[test]
    fn no_likely_bytes_cause_a_panic(
        v6: bool, of_udp: bool, changes in proptest::collection::vec((0_usize..90, any::<u8>()), 0..6),
        cut in 0_usize..100, mtu in 0_u16..1500, outer: u8,
    ) {
        let mut packet = if of_udp { udp(v6, 1, &[1; 900]) } else { Tcp { v6, flags: 2, ..Tcp::default() }.packet(&[1; 900]) };
        for (at, value) in changes {
            packet[at] = value;
        }
        packet.truncate(packet.len() - cut);
        call_all(&mut packet, mtu, outer);
    }

    #[test]
    fn reassembly_inverts_fragmenting(payload in proptest::collection::vec(any::<u8>(), 0..4000), mtu in 28_u16..1500) {
        let mut packet = udp(false, 53, &payload);
        set_ip(&mut packet, 0, 5, false);
        let mut parts = Vec::new();
        let is_fragmented = fragment(&view(&packet), mtu, |part| {
            assert_eq!(part, view(part.packet()), "the view of a fragment is that of its bytes");
            parts.push(part.packet().to_vec());
        });
        prop_assert!(is_fragmented);
        prop_assert!(parts.iter().all(|part| part.len() <= usize::from(mtu)));
        prop_assert_eq!(reassembled(&parts), &packet[20..]);
    }
}

fn call_all(bytes: &mut [u8], mtu: u16, outer: u8) {
    let Some(mut view) = IpView::parse(bytes) else { return };
    let _ = (view.flow_slot(), view.tos(), view.is_bulk());
    let _ = (view.source(), view.destination(), view.payload().len(), view.must_stay_whole());
    for ours in [OURS_V4, OURS_V6] {
        let _ = too_big(&view, mtu, ours);
    }
    let _ = fragment(&view, mtu, |_| ());
    let _ = clamp_mss(&mut view, mtu);
    let _ = decapsulate(&mut view, outer);
    assert_eq!(Some(view.layout), IpView::parse(view.packet()).map(|again| again.layout), "it is still right");
}

/// Slots of the two packets that fix the hash.
const GOLDEN: [u8; 2] = [140, 148];
