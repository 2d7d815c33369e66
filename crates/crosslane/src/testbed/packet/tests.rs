use std::net::Ipv4Addr;

use crosslane_sim::transport::segment::MptcpOptions;
use proptest::prelude::*;

use super::*;

const VEHICLE_KEY: u64 = 0x0102_0304_0506_0708;
const SERVER_KEY: u64 = 0x1112_1314_1516_1718;
const VEHICLE_ISN: u32 = 0xffff_fff0;
const SERVER_ISN: u32 = 5000;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// A packet between the vehicle's `port` and the server.
fn packet(direction: Direction, port: u16, seq: u32, ack: u32, flags: u8, option: &[u8], payload: u16) -> Vec<u8> {
    let mut options = option.to_vec();
    options.resize(option.len().next_multiple_of(4), 1);
    let total = 40 + options.len() as u16 + payload;
    let addresses = [(Ipv4Addr::new(10, 0, 0, 2), port), (Ipv4Addr::new(10, 9, 0, 1), 5000)];
    let (from, to) = if direction == Direction::Up { (0, 1) } else { (1, 0) };
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(addresses[from].0.octets());
    bytes.extend(addresses[to].0.octets());
    bytes.extend(addresses[from].1.to_be_bytes());
    bytes.extend(addresses[to].1.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes.resize(bytes.len() + usize::from(payload).min(20), 0xaa);
    bytes
}

fn option(subtype: u8, low: u8, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    [&[30, 4 + body.len() as u8, subtype << 4 | 1, low], body.as_slice()].concat()
}

/// A tracker after the handshake of one connection on port 1000.
fn connected() -> FlowTracker {
    let mut tracker = FlowTracker::default();
    let mut track = |direction, seq, ack, flags, option: &[u8]| {
        tracker.row(0, PathId(0), direction, &packet(direction, 1000, seq, ack, flags, option, 0))
    };
    let (vehicle, server) = (VEHICLE_KEY.to_be_bytes(), SERVER_KEY.to_be_bytes());
    track(Direction::Up, VEHICLE_ISN, 0, SYN, &option(0, 1, &[]));
    track(Direction::Down, SERVER_ISN, VEHICLE_ISN + 1, SYN | ACK, &option(0, 1, &[&server]));
    let third = track(Direction::Up, VEHICLE_ISN + 1, SERVER_ISN + 1, ACK, &option(0, 1, &[&vehicle, &server]));
    assert_eq!((third.subflow, third.tcp_seq, third.tcp_ack), (Some(0), 1, 1));
    assert_eq!(third.mptcp, MptcpOptions::CAPABLE);
    tracker
}

fn dss(dsn: u64, subflow_seq: u32, bytes: u16) -> Vec<u8> {
    option(2, 4 | 8, &[&dsn.to_be_bytes(), &subflow_seq.to_be_bytes(), &bytes.to_be_bytes(), &[0, 0]])
}

fn up(tracker: &mut FlowTracker, port: u16, seq: u32, option: &[u8], payload: u16) -> PacketRow {
    let bytes = packet(Direction::Up, port, seq, SERVER_ISN + 1, ACK, option, payload);
    tracker.row(1, PathId(0), Direction::Up, &bytes)
}

#[test]
fn a_key_gives_the_token_and_first_sequence_number_of_the_rfc() {
    // SHA-256 of the bytes 01 to 08, computed with coreutils' sha256sum.
    assert_eq!(token_and_first_dsn(VEHICLE_KEY), (0x6684_0dda, 0xf5a1_01d3_d29d_6f72 + 1));
}

#[test]
fn a_mapping_applies_to_all_segments_it_covers() {
    let mut tracker = connected();
    let (_, first) = token_and_first_dsn(VEHICLE_KEY);
    let isn = VEHICLE_ISN;
    let mapping = dss(first.wrapping_add(7000), 1, 3000);
    assert_eq!(up(&mut tracker, 1000, isn.wrapping_add(1), &mapping, 1400).dsn, Some(7000));
    let second = up(&mut tracker, 1000, isn.wrapping_add(1401), &[], 1400);
    assert_eq!((second.dsn, second.tcp_seq, second.payload_bytes), (Some(8400), 1401, 1400));
    assert_eq!(up(&mut tracker, 1000, isn.wrapping_add(3001), &[], 1400).dsn, None);
}

#[test]
fn four_byte_numbers_are_expanded_to_the_closest_value() {
    let mut tracker = connected();
    let (_, first) = token_and_first_dsn(VEHICLE_KEY);
    let far = first.wrapping_add(3 << 31);
    up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(1), &dss(first.wrapping_add(1 << 30), 1, 100), 100);
    up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(101), &dss(first.wrapping_add(3 << 30), 101, 100), 100);
    up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(201), &dss(far, 201, 100), 100);
    let narrow = option(2, 4, &[&(far as u32 + 50).to_be_bytes(), &301_u32.to_be_bytes(), &[0, 100], &[0, 0]]);
    let row = up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(301), &narrow, 100);
    assert_eq!(row.dsn, Some((3 << 31) + 50));
}

#[test]
fn a_data_ack_is_relative_to_the_peers_first_byte() {
    let mut tracker = connected();
    let (_, first) = token_and_first_dsn(SERVER_KEY);
    let ack = option(2, 1 | 2, &[&first.wrapping_add(500).to_be_bytes()]);
    assert_eq!(up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(1), &ack, 0).data_ack, Some(500));
}

#[test]
fn a_join_belongs_to_its_connection_and_a_reused_port_is_a_new_subflow() {
    let mut tracker = connected();
    let (token, _) = token_and_first_dsn(SERVER_KEY);
    let (_, first) = token_and_first_dsn(VEHICLE_KEY);
    let join = option(1, 2, &[&token.to_be_bytes(), &[9; 4]]);
    let syn = |isn: u32| packet(Direction::Up, 2000, isn, 0, SYN, &join, 0);
    assert_eq!(tracker.row(2, PathId(1), Direction::Up, &syn(70)).subflow, Some(1));
    assert_eq!(tracker.row(3, PathId(1), Direction::Up, &syn(70)).subflow, Some(1), "retransmitted SYN");
    let data = up(&mut tracker, 2000, 71, &dss(first.wrapping_add(42), 1, 100), 100);
    assert_eq!((data.subflow, data.dsn), (Some(1), Some(42)));
    assert_eq!(tracker.row(4, PathId(1), Direction::Up, &syn(90)).subflow, Some(2));
}

#[test]
fn data_in_the_handshake_has_sequence_number_zero() {
    let mut tracker = connected();
    let keys = [VEHICLE_KEY.to_be_bytes(), SERVER_KEY.to_be_bytes()];
    let capable = option(0, 1, &[&keys[0], &keys[1], &300_u16.to_be_bytes()]);
    assert_eq!(up(&mut tracker, 1000, VEHICLE_ISN.wrapping_add(1), &capable, 300).dsn, Some(0));
}

#[test]
fn plain_tcp_has_a_subflow_and_no_data_sequence_number() {
    let mut tracker = FlowTracker::default();
    let syn = packet(Direction::Up, 1000, 50, 0, SYN, &[], 0);
    assert_eq!(tracker.row(0, PathId(0), Direction::Up, &syn).subflow, Some(0));
    let row = up(&mut tracker, 1000, 51, &[], 100);
    assert_eq!((row.subflow, row.tcp_seq, row.dsn), (Some(0), 1, None));
    assert_eq!((row.ip_bytes, row.payload_bytes), (140, 100));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160), up: bool) {
        let direction = if up { Direction::Up } else { Direction::Down };
        connected().row(0, PathId(0), direction, &bytes);
    }

    #[test]
    fn no_option_makes_it_panic(
        option in proptest::collection::vec(any::<u8>(), 0..40),
        subtype in 0_u8..10,
        flags: u8,
        payload in 0_u16..1400,
    ) {
        let mut option = option;
        let length = option.len() as u8;
        for (place, byte) in [30, length, subtype << 4].into_iter().enumerate() {
            if let Some(at) = option.get_mut(place) {
                *at = byte;
            }
        }
        let mut tracker = connected();
        for direction in [Direction::Up, Direction::Down] {
            let bytes = packet(direction, 1000, VEHICLE_ISN, u32::MAX, flags, &option, payload);
            tracker.row(0, PathId(0), direction, &bytes);
            tracker.row(0, PathId(0), direction, &bytes[..bytes.len() / 2]);
        }
    }
}

#[test]
fn the_payload_of_a_datagram_is_counted_and_belongs_to_no_subflow() {
    let mut bytes = packet(Direction::Up, 4000, 0, 0, 0, &[], 100);
    bytes[9] = 17;
    let row = FlowTracker::default().row(0, PathId(0), Direction::Up, &bytes);
    assert_eq!((row.ip_bytes, row.payload_bytes, row.subflow), (140, 112, None));
    bytes[9] = 50;
    let row = FlowTracker::default().row(0, PathId(0), Direction::Up, &bytes);
    assert_eq!((row.ip_bytes, row.payload_bytes), (140, 0), "neither TCP nor UDP");
}
