use alloc::vec;

use proptest::prelude::*;

use super::*;

fn addresses() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn prefixes() -> impl Strategy<Value = (Ipv4Addr, u8)> {
    (addresses(), 0..=32_u8)
}

fn roles() -> impl Strategy<Value = Role> {
    let unit = (prefixes(), addresses()).prop_map(|(prefix, address)| Role::Unit { prefix, address });
    prop_oneof![Just(Role::Vehicle), unit]
}

fn reports() -> impl Strategy<Value = Report> {
    let position = (-90.0..=90.0, -180.0..=180.0)
        .prop_map(|(latitude_deg, longitude_deg)| Position { latitude_deg, longitude_deg });
    let rssi = prop::option::of(-200.0_f32..100.0);
    let vehicle = (any::<u32>(), rssi, prop::option::of(position), any::<[bool; 2]>()).prop_map(
        |(station, rssi_dbm, position, [has_tunnel, carries])| Report::Vehicle {
            station,
            rssi_dbm,
            position,
            has_tunnel,
            carries,
        },
    );
    prop_oneof![
        roles().prop_map(|role| Report::Hello { version: VERSION, role }),
        vehicle,
        any::<u32>().prop_map(|station| Report::Left { station }),
        Just(Report::Keepalive),
    ]
}

fn announcements() -> impl Strategy<Value = Announcement> {
    let vehicle =
        (any::<[u32; 2]>(), addresses()).prop_map(|([station, host], home)| VehicleEntry { station, host, home });
    let unit = (any::<u32>(), "[a-zä]{1,7}", addresses(), any::<u16>(), any::<Option<[u8; 32]>>(), prefixes());
    let unit = unit.prop_map(|(station, name, address, port, key, inner)| UnitEntry {
        station,
        name,
        address,
        port,
        key,
        inner,
    });
    prop_oneof![
        "\\PC{0,100}".prop_map(|reason| Announcement::Refused { reason }),
        prop::collection::vec(vehicle, 0..20).prop_map(Announcement::Vehicles),
        prop::collection::vec(unit, 0..20).prop_map(Announcement::Units),
        any::<(u32, bool)>().prop_map(|(station, serves)| Announcement::Serving { station, serves }),
        Just(Announcement::Keepalive),
    ]
}

fn bytes_of(report: &Report) -> Vec<u8> {
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_report_is_read_as_it_was_written(report in reports(), more in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = bytes_of(&report);
        prop_assert!(bytes.len() <= MAX_REPORT_BYTES);
        prop_assert_eq!(Report::decode(&bytes), Ok(report));
        prop_assert_eq!(Report::decode(&bytes[..cut.index(bytes.len())]), Err(Fault::Length));
        bytes.push(more);
        prop_assert!(Report::decode(&bytes).is_err());
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written(message in announcements(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        prop_assert_eq!(Announcement::decode(&bytes), Ok(message));
        prop_assert_eq!(Announcement::decode(&bytes[..cut.index(bytes.len())]), Err(Fault::Length));
        bytes.push(0);
        prop_assert_eq!(Announcement::decode(&bytes), Err(Fault::Length));
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Report::decode(&bytes), Announcement::decode(&bytes));
    }
}

#[test]
fn the_version_of_another_sender_is_recognised_whatever_follows() {
    assert_eq!(Report::decode(&[1, VERSION + 1, 77, 77, 77]), Err(Fault::Version(VERSION + 1)));
}

#[test]
fn absurd_figures_are_rejected() {
    for rssi in [f32::NAN, f32::INFINITY] {
        let report =
            Report::Vehicle { station: 1, rssi_dbm: Some(rssi), position: None, has_tunnel: true, carries: true };
        assert_eq!(Report::decode(&bytes_of(&report)), Err(Fault::Range));
    }
    for latitude_deg in [f64::NAN, 90.1] {
        let position = Some(Position { latitude_deg, longitude_deg: 0.0 });
        let report = Report::Vehicle { station: 1, rssi_dbm: None, position, has_tunnel: false, carries: false };
        assert_eq!(Report::decode(&bytes_of(&report)), Err(Fault::Range));
    }
}

#[test]
fn the_largest_messages_have_the_stated_lengths() {
    let vehicle = VehicleEntry { station: 1, host: 2, home: Ipv4Addr::LOCALHOST };
    let mut bytes = Vec::new();
    Announcement::Vehicles(vec![vehicle; MAX_VEHICLES + 1]).encode(&mut bytes);
    assert_eq!(bytes.len(), 120_003);
    assert_eq!(Announcement::decode(&bytes), Ok(Announcement::Vehicles(vec![vehicle; MAX_VEHICLES])));
    bytes.clear();
    Announcement::Refused { reason: "ä".repeat(MAX_REASON_BYTES) }.encode(&mut bytes);
    assert_eq!(bytes.len(), 3 + MAX_REASON_BYTES);
    assert!(Announcement::decode(&bytes).is_ok());
}
