use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::packets_for_tests::{Tcp, assert_valid, udp_frame};
use super::*;

fn packets(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    split(&mut frame.to_vec(), |packet| packets.push(packet.to_vec())).unwrap();
    packets
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_gso_packet_becomes_segments_with_correct_sequence_numbers_flags_and_checksums() {
    for v6 in [false, true] {
        let headers = if v6 { 72 } else { 52 };
        let payload = bytes(4000);
        let tcp_template =
            Tcp { v6, sequence: u32::MAX - 1500, flags: 0x99, id: u16::MAX, tos: 0x2a, ..Tcp::default() };
        let packets = packets(&tcp_template.frame(&payload, 1401));
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [1401, 1401, 1198].map(|len| len + headers));
        let joined: Vec<u8> = packets.iter().flat_map(|packet| packet[headers..].to_vec()).collect();
        assert_eq!(joined, payload);
        for (number, packet) in packets.iter().enumerate() {
            assert_valid(packet);
            let tcp = &packet[headers - 32..];
            let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
            assert_eq!(sequence, (u32::MAX - 1500).wrapping_add(number as u32 * 1401));
            // CWR with the first, PSH and FIN with the last.
            assert_eq!(tcp[13], [0x90, 0x10, 0x19][number]);
            if !v6 {
                assert_eq!(u16::from_be_bytes([packet[4], packet[5]]), [u16::MAX, 0, 1][number]);
            }
        }
    }
}

#[test]
fn a_udp_gso_packet_becomes_datagrams() {
    for v6 in [false, true] {
        let packets = packets(&udp_frame(v6, &bytes(2500), 1200));
        assert_eq!(packets.len(), 3);
        packets.iter().for_each(|packet| assert_valid(packet));
    }
}

#[test]
fn a_packet_without_segmentation_gets_its_checksum_completed() {
    let finished = Tcp::default().packet(&bytes(999));
    let mut frame = [&[0; HEADER_BYTES][..], &finished].concat();
    assert_eq!(packets(&frame), core::slice::from_ref(&finished));
    let header = Header { flags: 1, checksum_start: 20, checksum_offset: 16, ..Header::default() };
    frame[..HEADER_BYTES].copy_from_slice(&header.emit());
    let pseudo = Sum::default().with_pseudo_header(&finished[12..20], TCP, finished.len() - 20).folded();
    frame[HEADER_BYTES + 36..HEADER_BYTES + 38].copy_from_slice(&pseudo.to_be_bytes());
    assert_eq!(packets(&frame), [finished]);
}

#[test]
fn changes_of_one_packet_do_not_affect_the_others() {
    let frame = Tcp::default().frame(&bytes(5000), 40);
    let expected = packets(&frame);
    let mut received = Vec::new();
    let each = |packet: &mut [u8]| {
        received.push(packet.to_vec());
        packet.fill(0xee);
    };
    split(&mut frame.clone(), each).unwrap();
    assert_eq!(received, expected);
}

#[test]
fn an_inconsistent_frame_is_rejected() {
    let good = Tcp::default().frame(&bytes(3000), 1400);
    let with = |change: &dyn Fn(&mut Header)| {
        let mut header = Header::parse(&good).unwrap();
        change(&mut header);
        let mut frame = [&header.emit()[..], &good[HEADER_BYTES..]].concat();
        split(&mut frame, |_| panic!("passed on"))
    };
    assert_eq!(split(&mut [0; 9], |_| ()), Err(Malformed::Short));
    assert_eq!(with(&|header| header.segment = 0), Err(Malformed::Contradiction));
    assert_eq!(with(&|header| header.flags = 0), Err(Malformed::Contradiction));
    assert_eq!(with(&|header| header.gso_type = 4), Err(Malformed::Contradiction));
    assert_eq!(with(&|header| header.gso_type = 3), Err(Malformed::Kind(3)));
    assert_eq!(with(&|header| header.checksum_start = 60_000), Err(Malformed::Short));
    assert_eq!(with(&|header| header.checksum_offset = 6), Err(Malformed::Contradiction));
}

proptest! {
    #[test]
    fn no_frame_causes_a_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = split(&mut frame, |_| ());
    }

    /// With a header and first bytes that pass the first checks.
    #[test]
    fn no_likely_frame_causes_a_panic(
        kind in prop::sample::select(vec![0_u8, 1, 4, 5, 0x81]),
        version in prop::sample::select(vec![0x45_u8, 0x4f, 0x60]),
        segment in 0_u16..2000, start in 0_u16..300, offset in prop::sample::select(vec![6_u16, 16]),
        mut packet in proptest::collection::vec(any::<u8>(), 1..3000),
    ) {
        packet[0] = version;
        let header = Header {
            flags: 1, gso_type: kind, headers: 0, segment, checksum_start: start, checksum_offset: offset,
        };
        let mut frame = [&header.emit()[..], &packet].concat();
        let _ = split(&mut frame, |_| ());
    }

    #[test]
    fn every_segment_is_valid(
        v6: bool, payload in proptest::collection::vec(any::<u8>(), 1..5000), segment in 1_u16..2000, sequence: u32,
    ) {
        let tcp_template = Tcp { v6, sequence, ..Tcp::default() };
        for packet in packets(&tcp_template.frame(&payload, segment)) {
            assert_valid(&packet);
        }
    }
}
