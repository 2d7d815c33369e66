//! Bytes captured from Linux 6.18 (x86-64), and arbitrary bytes.

use super::*;
use crate::netlink::message::request_bytes;
use proptest::prelude::*;

const CREATED: &str = "54000000 1c000000 00000000 00000000 01010000 08000100 84b72c62 06000200 02000000 \
    08000500 0a010001 08000700 0a020001 06000900 c1f90000 06000a00 c2d90000 05000300 00000000 05000400 00000000";
const CREATED_SERVER: &str = "64000000 1c000000 00000000 00000000 01010000 08000100 7e4ac764 05001200 01000000 \
    06000d00 02000000 06000200 02000000 08000500 0a020001 08000700 0a010001 06000900 c2d90000 06000a00 c1f90000 \
    05000300 00000000 05000400 00000000";
const ESTABLISHED_MAPPED: &str = "6c000000 1c000000 00000000 00000000 02010000 08000100 67f0dd7d 06000200 0a000000 \
    14000600 00000000 00000000 0000ffff 0a010001 14000800 00000000 00000000 0000ffff 0a020001 06000900 eaa90000 \
    06000a00 ddf90000 05000300 00000000 05000400 00000000";
const CLOSED: &str = "1c000000 1c000000 00000000 00000000 03010000 08000100 37039e30";
const ANNOUNCED: &str = "34000000 1c000000 00000000 00000000 06010000 08000100 63b9d628 05000400 05000000 \
    06000a00 94c90000 08000700 0a010002";
const REMOVED: &str = "24000000 1c000000 00000000 00000000 07010000 08000100 63b9d628 05000400 05000000";
const SUB_ESTABLISHED: &str = "5c000000 1c000000 00000000 00000000 0a010000 08000100 84b72c62 06000200 02000000 \
    08000500 0a010002 08000700 0a020001 06000900 c2a50000 06000a00 c2d90000 05000300 07000000 05000400 00000000 \
    05000b00 00000000";
const SUB_CLOSED_MAPPED: &str = "74000000 1c000000 00000000 00000000 0b010000 08000100 67f0dd7d 06000200 0a000000 \
    14000600 00000000 00000000 0000ffff 0a010001 14000800 00000000 00000000 0000ffff 0a020001 06000900 eaa90000 \
    06000a00 ddf90000 05000300 00000000 05000400 00000000 05000b00 00000000";
const SUB_PRIORITY: &str = "5c000000 1c000000 00000000 00000000 0d010000 08000100 7e4ac764 06000200 02000000 \
    08000500 0a020001 08000700 0a010002 06000900 c2d90000 06000a00 c2a50000 05000300 00000000 05000400 07000000 \
    05000b00 01000000";
const LISTENER_CREATED: &str = "2c000000 1c000000 00000000 00000000 0f010000 06000200 02000000 06000900 c2d90000 \
    08000500 00000000";
const LISTENER_CLOSED: &str = "2c000000 1c000000 00000000 00000000 10010000 06000200 02000000 06000900 e6810000 \
    08000500 00000000";
const ALL: [&str; 11] = [
    CREATED,
    CREATED_SERVER,
    ESTABLISHED_MAPPED,
    CLOSED,
    ANNOUNCED,
    REMOVED,
    SUB_ESTABLISHED,
    SUB_CLOSED_MAPPED,
    SUB_PRIORITY,
    LISTENER_CREATED,
    LISTENER_CLOSED,
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn event(hex: &str) -> Event {
    decode(&bytes(hex)).unwrap().unwrap()
}

fn subflow(local: &str, remote: &str, local_id: u8, remote_id: u8, backup: bool) -> Subflow {
    Subflow {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        local_id: AddressId(local_id),
        remote_id: AddressId(remote_id),
        backup,
    }
}

#[test]
fn captured_events_of_connections_are_read() {
    let first = subflow("10.1.0.1:49657", "10.2.0.1:49881", 0, 0, false);
    let token = Token(0x622c_b784);
    assert_eq!(event(CREATED), Event::Created { token, subflow: first, server_side: false });
    let (token, subflow) = (Token(0x64c7_4a7e), Subflow { local: first.remote, remote: first.local, ..first });
    assert_eq!(event(CREATED_SERVER), Event::Created { token, subflow, server_side: true });
    assert_eq!(event(CLOSED), Event::Closed { token: Token(0x309e_0337) });
}

#[test]
fn captured_events_of_subflows_are_read() {
    let token = Token(0x622c_b784);
    let joined = subflow("10.1.0.2:49829", "10.2.0.1:49881", 7, 0, false);
    assert_eq!(event(SUB_ESTABLISHED), Event::SubflowEstablished { token, subflow: joined });
    let token = Token(0x64c7_4a7e);
    let observed = subflow("10.2.0.1:49881", "10.1.0.2:49829", 0, 7, true);
    assert_eq!(event(SUB_PRIORITY), Event::SubflowPriority { token, subflow: observed });
}

#[test]
fn captured_events_of_addresses_and_listeners_are_read() {
    let (token, remote_id) = (Token(0x28d6_b963), AddressId(5));
    let remote = "10.1.0.2:38089".parse().unwrap();
    assert_eq!(event(ANNOUNCED), Event::Announced { token, remote_id, remote });
    assert_eq!(event(REMOVED), Event::Removed { token, remote_id });
    assert_eq!(event(LISTENER_CREATED), Event::ListenerCreated { local: "0.0.0.0:49881".parse().unwrap() });
    assert_eq!(event(LISTENER_CLOSED), Event::ListenerClosed { local: "0.0.0.0:59009".parse().unwrap() });
}

#[test]
fn addresses_mapped_into_ipv6_are_read_as_ipv4() {
    let token = Token(0x7ddd_f067);
    let subflow = subflow("10.1.0.1:60073", "10.2.0.1:56825", 0, 0, false);
    assert_eq!(event(ESTABLISHED_MAPPED), Event::Established { token, subflow, server_side: false });
    assert_eq!(event(SUB_CLOSED_MAPPED), Event::SubflowClosed { token, subflow, error: 0 });
}

#[test]
fn the_error_of_a_closed_subflow_and_ipv6_are_read() {
    let mut raw = bytes(SUB_CLOSED_MAPPED);
    // ::ffff:10.1.0.1 becomes 2001:…, and MPTCP_ATTR_ERROR (12) replaces MPTCP_ATTR_BACKUP (11).
    raw[40..44].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    let at = raw.len() - 6;
    raw[at] = 12;
    raw[at + 2] = 111;
    let Some(Event::SubflowClosed { subflow, error: 111, .. }) = decode(&raw).unwrap() else {
        panic!("{:?}", decode(&raw));
    };
    assert_eq!(subflow.local.to_string(), "[2001:db8::ffff:a01:1]:60073");
}

#[test]
fn unknown_events_and_attributes_are_ignored() {
    let mut raw = bytes(CREATED);
    raw[16] = 99;
    assert_eq!(decode(&raw), Ok(None));
    let mut raw = bytes(CREATED);
    raw.extend([6, 0, 77, 0, 1, 2, 0, 0]);
    raw[0] += 8;
    assert_eq!(decode(&raw), Ok(Some(event(CREATED))));
    let acknowledgement = bytes("14000000 02000000 01000000 01000000 00000000");
    assert_eq!(decode(&acknowledgement), Ok(None));
}

#[test]
fn a_malformed_attribute_is_named_with_its_length() {
    let mut raw = bytes(CLOSED);
    (raw[0], raw[20]) = (26, 6);
    let error = decode(&raw[..26]).unwrap_err();
    assert_eq!(error.to_string(), "while reading MPTCP_EVENT_CLOSED: attribute MPTCP_ATTR_TOKEN has 2 bytes");
    let mut raw = bytes(CLOSED);
    raw[22] = 77;
    let error = decode(&raw).unwrap_err();
    assert_eq!(error.to_string(), "while reading MPTCP_EVENT_CLOSED: attribute MPTCP_ATTR_TOKEN is missing");
    let mut raw = bytes(CLOSED);
    raw[20] = 99;
    assert!(matches!(decode(&raw), Err(DecodeError::Frame { message: "MPTCP_EVENT_CLOSED", length: 8, .. })));
}

#[test]
fn every_truncated_event_is_an_error() {
    for hex in ALL {
        let raw = bytes(hex);
        for length in 0..raw.len() {
            assert!(decode(&raw[..length]).is_err(), "{length} of {hex}");
        }
    }
}

fn encoded(command: &Command) -> String {
    let hex: Vec<_> =
        request_bytes(request(command).message(0x1c), NLM_F_ACK, 9).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chunks(4).map(|word| word.concat()).collect::<Vec<_>>().join(" ")
}

/// Header of a request with acknowledgement to family 0x1c, sequence number 9,
/// then the generic one (command, version 1) and the token 0x622cb784.
fn header(length: &str, command: &str) -> String {
    format!("{length}000000 1c000500 09000000 00000000 {command}010000 08000400 84b72c62")
}

const TOKEN: Token = Token(0x622c_b784);

#[test]
fn commands_are_encoded_as_the_kernel_documents_them() {
    let (local, remote) = ("10.1.0.2:443".parse().unwrap(), "10.2.0.1:8080".parse().unwrap());
    let theirs = "1c000680 06000100 02000000 08000300 0a020001 06000500 901f0000";
    let ours = "06000100 02000000 08000300 0a010002";
    let create = Command::CreateSubflow {
        token: TOKEN,
        local_id: AddressId(7),
        local: "10.1.0.2".parse().unwrap(),
        if_index: 3,
        remote,
        backup: true,
    };
    let nest = format!("2c000180 {ours} 05000200 07000000 08000600 06000000 08000700 03000000");
    assert_eq!(encoded(&create), format!("{} {nest} {theirs}", header("64", "0a")));
    let destroy = Command::DestroySubflow { token: TOKEN, local, remote, lost: false };
    let nest = format!("1c000180 {ours} 06000500 bb010000");
    assert_eq!(encoded(&destroy), format!("{} {nest} {theirs}", header("54", "0b")));
    let clear = Command::SetBackup { token: TOKEN, local, remote, backup: false };
    let nest = format!("24000180 {ours} 06000500 bb010000 08000600 00000000");
    assert_eq!(encoded(&clear), format!("{} {nest} {theirs}", header("5c", "07")));
}

#[test]
fn announcements_are_encoded_as_the_kernel_documents_them() {
    let local = "[2001:db8::1]:0".parse().unwrap();
    let announce = Command::Announce { token: TOKEN, local_id: AddressId(5), local };
    let address = "06000100 0a000000 14000400 20010db8 00000000 00000000 00000001 05000200 05000000";
    let nest = format!("30000180 {address} 08000600 01000000");
    assert_eq!(encoded(&announce), format!("{} {nest}", header("4c", "08")));
    let withdraw = Command::Withdraw { token: TOKEN, local_id: AddressId(5) };
    assert_eq!(encoded(&withdraw), format!("{} 05000500 05000000", header("24", "09")));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = decode(&raw);
    }

    #[test]
    fn any_attributes_are_read_without_panic(command in 0u8..20, rest in prop::collection::vec(any::<u8>(), 0..128)) {
        let mut raw = vec![0; 20];
        raw[0] = 20 + rest.len() as u8;
        raw[4] = 0x1c;
        raw[16] = command;
        raw.extend(rest);
        let _ = decode(&raw);
    }

    #[test]
    fn a_captured_event_with_any_byte_changed_is_read_without_panic(
        which in 0..ALL.len(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut raw = bytes(ALL[which]);
        let place = place.index(raw.len());
        raw[place] = byte;
        let _ = decode(&raw);
    }
}
