use crosslane_sim::radio::cam::{Cam, ROADSIDE_UNIT};
use proptest::prelude::*;

use super::*;

/// A radiotap header, as mac80211 writes it: flags, rate, channel, signal; and a second word for an antenna.
fn header(flags: u8, dbm: i8) -> Vec<u8> {
    let first: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | present::ANOTHER_WORD;
    let second: u32 = 1 << 5 | 1 << 11;
    let fields = [flags, 12, 0x0c, 0x17, 0x40, 0x01, dbm as u8, (dbm - 3) as u8, 0];
    let length = 12 + fields.len() as u16;
    [&[0, 0], &length.to_le_bytes()[..], &first.to_le_bytes(), &second.to_le_bytes(), &fields].concat()
}

fn packet() -> Vec<u8> {
    let cam = Cam {
        protocol_version: 2,
        station_id: 1001,
        station_type: ROADSIDE_UNIT,
        generation_delta_time: 5,
        latitude_deg: Some(40.64),
        longitude_deg: Some(-8.655),
        vehicle: None,
    };
    cam::encode(&cam).unwrap()
}

/// A data frame with QoS.
fn mpdu(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x88, 0, 0, 0];
    frame.extend([0xff; 6]);
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend([0xff; 6]);
    frame.extend([0x10, 0, 3, 0]);
    frame.extend([0xaa, 0xaa, 3, 0, 0, 0, 0x89, 0x47]);
    frame.extend(packet);
    frame
}

fn frame(flags: u8, dbm: i8) -> Vec<u8> {
    [header(flags, dbm), mpdu(&packet())].concat()
}

/// The packet as the data of a signed message, with what is left of a header, a signer and a signature.
fn signed(packet: &[u8]) -> Vec<u8> {
    let (basic, data) = packet.split_at(4);
    let length = data.len() as u8;
    let basic = [basic[0] & 0xf0 | 2, basic[1], basic[2], basic[3]];
    [&basic, &[3, 0x81, 0, 0x40, 3, 0x80, length][..], data, &[0x40, 1, 36, 0x80, 7, 7, 7]].concat()
}

#[test]
fn a_cam_has_the_signal_of_its_frame() {
    let received = read(&frame(0, -77)).unwrap();
    assert_eq!((received.rssi_dbm, received.station), (-77.0, 1001));
    let position = received.position.unwrap();
    assert!((position.latitude_deg - 40.64).abs() < 1e-6 && (position.longitude_deg + 8.655).abs() < 1e-6);
}

#[test]
fn fields_are_aligned_and_the_checksum_is_no_part_of_the_packet() {
    let mut with_time = frame(HAS_FCS, -60);
    // The time begins at a multiple of eight.
    with_time[4] |= 1;
    with_time[2] += 12;
    with_time.splice(12..12, [9; 12]);
    with_time.extend([1, 2, 3, 4]);
    assert_eq!(read(&with_time).unwrap().rssi_dbm, -60.0);
}

#[test]
fn frames_without_qos_and_with_padding_are_read() {
    let mut without_qos = mpdu(&packet());
    without_qos[0] = 8;
    without_qos.drain(24..26);
    assert_eq!(read(&[header(0, -60), without_qos].concat()).unwrap().station, 1001);
    let mut padded = mpdu(&packet());
    padded.splice(26..26, [0, 0]);
    assert_eq!(read(&[header(HAS_PADDING, -60), padded].concat()).unwrap().station, 1001);
}

#[test]
fn a_signed_cam_is_read_without_its_signature() {
    let frame = [header(0, -60), mpdu(&signed(&packet()))].concat();
    assert_eq!(read(&frame).unwrap().station, 1001);
}

#[test]
fn what_is_damaged_or_without_a_signal_or_another_message_is_no_sample() {
    let mut without_signal = frame(0, -60);
    without_signal[4] &= !(1 << 5);
    let mut beacon = frame(0, -60);
    beacon[21] = 0x80;
    let mut other_type = frame(0, -60);
    let at = other_type.len() - packet().len() - 1;
    other_type[at] = 0x48;
    for (frame, why) in [
        (frame(IS_DAMAGED, -60), "a wrong checksum"),
        (frame(0, 5), "a signal of 5 dBm"),
        (without_signal, "no signal"),
        (beacon, "a beacon"),
        (other_type, "another EtherType"),
        (header(0, -60), "nothing behind the header"),
    ] {
        assert_eq!(read(&frame), None, "{why}");
    }
}

#[test]
fn no_frame_that_is_cut_short_is_a_sample() {
    let whole = frame(0, -60);
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), None, "{length} bytes");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((0_usize..250, any::<u8>()), 0..8),
        is_signed in any::<bool>(),
    ) {
        let _ = read(&bytes);
        let packet = if is_signed { signed(&packet()) } else { packet() };
        let mut frame = [header(HAS_FCS, -60), mpdu(&packet), vec![0; 4]].concat();
        for (place, value) in changes {
            let length = frame.len();
            frame[place % length] = value;
        }
        let _ = read(&frame);
    }
}
