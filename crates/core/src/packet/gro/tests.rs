use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use proptest::prelude::*;

use super::super::checksum::changed;
use super::super::packets_for_tests::{Tcp, assert_valid, frame, set_ip, sum_ip, udp};
use super::*;
use crate::packet::gso::{HEADER_BYTES, split};

/// The writes for these packets in one batch.
fn frames(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new(true);
    for packet in packets {
        assert!(coalescer.push(&view(packet)));
    }
    flushed(&mut coalescer)
}

fn view(packet: &[u8]) -> IpView<&[u8]> {
    IpView::parse(packet).unwrap()
}

fn flushed(coalescer: &mut Coalescer) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    coalescer
        .flush(|parts| {
            frames.push(frame(parts));
            Ok::<(), Infallible>(())
        })
        .unwrap();
    assert!(coalescer.is_empty());
    frames
}

fn packets(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for frame in frames {
        split(&mut frame.clone(), |packet| packets.push(packet.to_vec())).unwrap();
    }
    packets
}

/// Consecutive segments of one flow.
fn segments(first: &Tcp, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut next = first.clone();
    let mut packets = Vec::new();
    for &size in sizes {
        packets.push(next.packet(&vec![next.sequence as u8; size]));
        next.sequence = next.sequence.wrapping_add(size as u32);
        next.id = next.id.wrapping_add(1);
    }
    packets
}

#[test]
fn segments_of_a_flow_become_one_frame_and_are_segmented_unchanged() {
    for v6 in [false, true] {
        let first = Tcp { v6, sequence: u32::MAX - 3000, ..Tcp::default() };
        let sent = segments(&first, &[1348, 1348, 1348, 500]);
        let frames = frames(&sent);
        assert_eq!(frames.len(), 1);
        let header = Header::parse(&frames[0]).unwrap();
        assert_eq!((header.gso_type, header.segment), (if v6 { GSO_TCP6 } else { GSO_TCP4 }, 1348));
        assert_eq!(packets(&frames), sent);
        assert_whole(&frames[0]);
    }
}

/// A receiver that does not segment the GSO packet, but only completes its checksum,
/// gets a correct one.
fn assert_whole(frame: &[u8]) {
    let header = Header { gso_type: 0, segment: 0, ..Header::parse(frame).unwrap() };
    let whole = packets(&[[&header.emit()[..], &frame[HEADER_BYTES..]].concat()]);
    assert_eq!(whole.len(), 1);
    assert_valid(&whole[0]);
}

#[test]
fn datagrams_of_a_flow_become_one_frame_if_the_device_segments_them() {
    for v6 in [false, true] {
        let sent: Vec<_> = [800, 800, 800, 20, 800]
            .iter()
            .enumerate()
            .map(|(number, &size)| {
                let mut packet = udp(v6, 53, &vec![number as u8; size]);
                set_ip(&mut packet, 0, number as u16, false);
                packet
            })
            .collect();
        let frames = frames(&sent);
        // The short one ends the first.
        assert_eq!(frames.len(), 2);
        assert_whole(&frames[0]);
        assert_eq!(packets(&frames), sent);
        let mut without = Coalescer::new(false);
        assert!(sent.iter().all(|packet| without.push(&view(packet))));
        assert_eq!(flushed(&mut without).len(), sent.len());
    }
}

#[test]
fn a_frame_is_limited_by_the_ip_length_and_to_64_datagrams() {
    let sent = segments(&Tcp::default(), &[1348; 60]);
    let out = frames(&sent);
    assert_eq!(out.len(), 2);
    assert_eq!(out[0].len(), HEADER_BYTES + 52 + 48 * 1348);
    assert_eq!(packets(&out), sent);
    let datagrams = vec![udp(true, 53, &[1; 100]); 65];
    assert_eq!(frames(&datagrams).len(), 2);
}

#[test]
fn a_packet_with_different_headers_begins_a_new_frame() {
    let first = Tcp::default();
    let next = Tcp { sequence: first.sequence + 1000, ..first.clone() };
    let others = [
        Tcp { tos: 3, ..next.clone() },
        Tcp { sequence: next.sequence + 1, ..next.clone() },
        Tcp { options: vec![1, 1, 8, 10, 1, 2, 3, 5, 5, 6, 7, 8], ..next.clone() },
        Tcp { options: Vec::new(), ..next.clone() },
        Tcp { flags: 0x50, ..next.clone() },
        Tcp { flags: 0x11, ..next.clone() },
        Tcp { port: 80, ..next.clone() },
        Tcp { v6: true, ..next.clone() },
        Tcp { dont_fragment: false, ..next.clone() },
    ];
    for other in others {
        let sent = [first.packet(&[1; 1000]), other.packet(&[2; 1000])];
        let out = frames(&sent);
        assert_eq!(out.len(), 2, "{other:?}");
        assert_eq!(packets(&out), sent);
    }
    assert_eq!(frames(&[first.packet(&[1; 1000]), next.packet(&[2; 1000])]).len(), 1);
    let mut wider = next.packet(&[2; 1000]);
    let checksum = u16::from_be_bytes([wider[36], wider[37]]);
    let window = u16::from_be_bytes([wider[34], wider[35]]);
    wider[34..36].copy_from_slice(&(window + 1).to_be_bytes());
    wider[36..38].copy_from_slice(&changed(checksum, window, window + 1).to_be_bytes());
    assert_valid(&wider);
    assert_eq!(frames(&[first.packet(&[1; 1000]), wider]).len(), 2);
    // Longer than the first, after PSH, and without data.
    assert_eq!(frames(&[first.packet(&[1; 1000]), next.packet(&[2; 1001])]).len(), 2);
    let pushed = Tcp { flags: 0x18, ..first.clone() };
    assert_eq!(frames(&[pushed.packet(&[1; 1000]), next.packet(&[2; 1000])]).len(), 2);
    assert_eq!(frames(&[first.packet(&[1; 1000]), next.packet(&[])]).len(), 2);
}

#[test]
fn push_ends_a_frame_and_stays_on_its_last_segment() {
    let mut sent = segments(&Tcp::default(), &[1000, 1000]);
    sent.push(Tcp { sequence: 3000, flags: 0x18, id: 9, ..Tcp::default() }.packet(&[9; 1000]));
    sent.push(Tcp { sequence: 4000, id: 10, ..Tcp::default() }.packet(&[9; 1000]));
    let out = frames(&sent);
    assert_eq!(out.len(), 2);
    assert_eq!(packets(&out), sent);
}

#[test]
fn a_packet_with_a_wrong_checksum_is_written_separately_and_unchanged() {
    for damaged in [40, 60, 1000] {
        let mut sent = segments(&Tcp::default(), &[1000, 1000, 1000]);
        sent[1][damaged] ^= 0x10;
        let out = frames(&sent);
        assert_eq!(out.len(), 3);
        assert_eq!(out[1], [&[0; HEADER_BYTES][..], &sent[1]].concat());
    }
    let mut header = segments(&Tcp::default(), &[1000, 1000]);
    header[1][10] ^= 1;
    assert_eq!(frames(&header).len(), 2);
}

#[test]
fn interleaved_flows_each_have_a_frame_in_their_order() {
    let flow = |port| segments(&Tcp { port, ..Tcp::default() }, &[1000; 5]);
    let flows: Vec<_> = (1..=8).map(flow).collect();
    let sent: Vec<_> = (0..5).flat_map(|number| flows.iter().map(move |flow| flow[number].clone())).collect();
    let out = frames(&sent);
    assert_eq!(out.len(), 8);
    assert_eq!(packets(&out), flows.concat());
    // A ninth flow closes the oldest, and nothing is lost.
    let ninth: Vec<_> = (1..=9).map(flow).collect();
    let sent: Vec<_> = (0..5).flat_map(|number| ninth.iter().map(move |flow| flow[number].clone())).collect();
    assert_eq!(packets(&frames(&sent)).len(), 45);
}

#[test]
fn a_packet_without_a_flow_keeps_its_place_among_all() {
    let mut fragment = udp(false, 53, &[0; 100]);
    fragment[6] = 0x20;
    sum_ip(&mut fragment);
    let parts = segments(&Tcp::default(), &[1000, 1000]);
    let sent = [parts[0].clone(), fragment, parts[1].clone()];
    let out = frames(&sent);
    assert_eq!(out.len(), 3);
    assert_eq!(packets(&out), sent);
}

#[test]
fn packets_beyond_the_limit_are_rejected_until_a_flush() {
    let mut coalescer = Coalescer::new(true);
    let mut packet = vec![0; 60_000];
    packet[0] = 0x46;
    packet[2..4].copy_from_slice(&60_000_u16.to_be_bytes());
    let taken = (0..100).take_while(|_| coalescer.push(&view(&packet))).count();
    assert_eq!(taken, HELD_BYTES_MAX / packet.len());
    assert_eq!(flushed(&mut coalescer).len(), taken);
    assert!(coalescer.push(&view(&packet)));
    let short = &udp(false, 53, &[]);
    let taken = (0..5000).take_while(|_| coalescer.push(&view(short))).count();
    assert_eq!(taken, HELD_FRAMES_MAX - 1);
}

proptest! {
    #[test]
    fn no_packets_panic(
        mut sent in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 40..100)), 0..9),
    ) {
        for (v6, packet) in &mut sent {
            let (version, field, length) = if *v6 { (0x60, 4, packet.len() - 40) } else { (0x40, 2, packet.len()) };
            packet[0] = packet[0] & 0xf | version;
            packet[field..field + 2].copy_from_slice(&(length as u16).to_be_bytes());
        }
        let mut sent: Vec<_> = sent.into_iter().map(|(_, packet)| packet).collect();
        sent.retain(|packet| IpView::parse(packet).is_some());
        assert_eq!(frames(&sent).len(), sent.len());
    }

    #[test]
    fn no_likely_packets_cause_a_panic(
        at in 0_usize..80, value: u8, cut in 0_usize..80, v6: bool, of_udp: bool,
    ) {
        let mut packet = if of_udp { udp(v6, 53, &[1; 30]) } else { Tcp { v6, ..Tcp::default() }.packet(&[1; 30]) };
        if let Some(byte) = packet.get_mut(at) {
            *byte = value;
        }
        packet.truncate(packet.len() - cut.min(packet.len()));
        let Some(len) = IpView::parse(&packet).map(|view| view.packet().len()) else { return Ok(()) };
        packet.truncate(len);
        // If the kernel segmented it, the identification would increment.
        let got = packets(&frames(&[packet.clone(), packet.clone()]));
        prop_assert_eq!((got.len(), &got[0]), (2, &packet));
    }

    #[test]
    fn segmentation_reverses_coalescing_in_each_flow(
        v6: bool, df: bool, turns in proptest::collection::vec((0_u16..11, 0_usize..3, 0_u8..12), 1..120),
    ) {
        let mut flows: Vec<Tcp> =
            (0..11).map(|port| Tcp { v6, port, dont_fragment: df, ..Tcp::default() }).collect();
        let mut sent = Vec::new();
        for (flow, size, event) in turns {
            let next = &mut flows[usize::from(flow)];
            let size = [700, 1000, 1000][size];
            next.flags = match event { 0 => 0x18, 1 => 0x11, _ => 0x10 };
            sent.push(if flow == 10 { udp(v6, 10, &vec![event; size]) } else { next.packet(&vec![event; size]) });
            if flow == 10 && !v6 {
                let last = sent.len() - 1;
                set_ip(&mut sent[last], 0, next.id, df);
            }
            next.sequence = next.sequence.wrapping_add(size as u32);
            next.id = next.id.wrapping_add(1);
        }
        let got = packets(&frames(&sent));
        let transport = if v6 { 40 } else { 20 };
        let of = |packets: &[Vec<u8>], port: u16| -> Vec<Vec<u8>> {
            packets.iter().filter(|p| p[transport + 2..transport + 4] == port.to_be_bytes()).cloned().collect()
        };
        got.iter().for_each(|packet| assert_valid(packet));
        for port in 0..11 {
            prop_assert_eq!(of(&got, port), of(&sent, port));
        }
    }
}
