//! Bytes captured from Linux 6.18 (x86-64), and arbitrary bytes.

use super::*;
use proptest::prelude::*;

fn event(number: u8, attributes: &str) -> NamedEvent {
    let digits: Vec<char> = attributes.chars().filter(char::is_ascii_hexdigit).collect();
    let of = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    let attributes: Vec<u8> = digits.chunks(2).map(of).collect();
    let mut raw = vec![20 + attributes.len() as u8, 0, 0, 0, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number, 1, 0, 0];
    raw.extend(attributes);
    decode(&raw).unwrap().unwrap()
}

#[test]
fn every_attribute_has_its_name_and_ports_are_in_host_order() {
    let raw = "08000100 84b72c62 06000200 02000000 08000500 0a010002 08000700 0a020001 06000900 c2a50000 06000a00 \
               c2d90000 05000300 07000000 05000400 00000000 05000b00 01000000 05000c00 6f000000 08000f00 03000000 \
               08001000 01000000 08001100 02000000";
    assert_eq!(
        event(11, raw).to_string(),
        "type:11,event:sub_closed,token:1647097732,family:2,saddr4:10.1.0.2,daddr4:10.2.0.1,sport:49829,dport:49881,\
         loc_id:7,rem_id:0,backup:1,error:111,if_idx:3,reset_reason:1,reset_flags:2"
    );
}

#[test]
fn a_mapped_address_is_printed_as_it_is() {
    let event = event(2, "14000600 00000000 00000000 0000ffff 0a010001");
    assert_eq!(event.to_string(), "type:2,event:established,saddr6:::ffff:10.1.0.1,server_side:0");
}

#[test]
fn the_accepting_endpoint_is_reported_by_one_key_whatever_the_kernel_sends() {
    for raw in ["05001200 01000000", "06000d00 02000000", "05001200 01000000 06000d00 02000000"] {
        assert_eq!(event(1, raw).get("server_side"), Some(&Value::Number(1)), "{raw}");
    }
    assert_eq!(event(1, "").get("server_side"), Some(&Value::Number(0)));
    assert_eq!(event(1, "06000d00 01000000").get("deny_join_id0"), Some(&Value::Number(1)));
    assert_eq!(event(3, "").get("server_side"), None);
}

#[test]
fn an_unknown_event_and_an_unknown_attribute_are_printed_by_number() {
    let event = event(99, "07004d00 01abff00 06000100 01020000 09000500 01020304 05000000");
    assert_eq!(event.to_string(), "type:99,attribute_77:0x01abff,token:513,saddr4:0x0102030405");
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(json, r#"{"type":99,"event":null,"attribute_77":"0x01abff","token":513,"saddr4":"0x0102030405"}"#);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = decode(&raw);
    }

    #[test]
    fn any_attributes_are_read_without_panic(number in 0u8..20, rest in prop::collection::vec(any::<u8>(), 0..128)) {
        let mut raw = vec![0; 20];
        raw[0] = 20 + rest.len() as u8;
        raw[4] = 0x1c;
        raw[16] = number;
        raw.extend(&rest);
        if let Ok(Some(event)) = decode(&raw) {
            let _ = (event.to_string(), serde_json::to_string(&event).unwrap());
        }
        let _ = Answer::default().read(&rest);
    }
}
