//! Interoperability: pycrate and tshark decode our CAMs, and our packet record agrees with
//! tshark.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::program::can_drive;
use crate::program::on_board_unit;
use crosslane::agent::own_cams::message;
use crosslane::clock::Clock;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::observe::Fix;
use crosslane::testbed::emulator::{EmulatedLink, Emulator, PacketRecord, packet_channel};
use crosslane::testbed::packet::FlowTracker;
use crosslane::testbed::{PathPlan, SERVER, Testbed, prepare_privileges, vehicle_address};
use crosslane_core::link::{Bottleneck, DirectionParams, Link, Loss, QueueLimit};
use crosslane_core::path::VehicleState;
use crosslane_core::path::{PathId, Position};
use crosslane_sim::radio::cam::{self, Cam, PASSENGER_CAR, ROADSIDE_UNIT};
use crosslane_sim::radio::cam_vehicle::{DriveDirection, LowFrequency, Vehicle, VehicleRole};
use crosslane_sim::record::rows::PacketRow;
use socket2::{Domain, Protocol, Socket, Type};

/// Link types of libpcap.
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;

const ACK: u8 = 16;

/// Bytes of GeoNetworking and BTP-B headers before the CAM.
const HEADER_BYTES: usize = 44;

/// Decodes a CAM in hexadecimal, prints the values of `CAM_FIELDS` and of a vehicle those of
/// `VEHICLE_FIELDS`, and prints the CAM encoded again.
const PYCRATE: &str = "
import sys
from pycrate_asn1dir.ITS_CAM_2 import CAM_PDU_Descriptions
cam = CAM_PDU_Descriptions.CAM
cam.from_uper(bytes.fromhex(sys.argv[1]))
header, body = (cam.get_val()[part] for part in ('header', 'cam'))
basic = body['camParameters']['basicContainer']
at = basic['referencePosition']
print(header['protocolVersion'], header['messageID'], header['stationID'], body['generationDeltaTime'],
      basic['stationType'], at['latitude'], at['longitude'])
kind, high = body['camParameters']['highFrequencyContainer']
if kind == 'basicVehicleContainerHighFrequency':
    turns = {name: number for number, name in enumerate(('forward', 'backward', 'unavailable'))}
    print(high['heading']['headingValue'], high['speed']['speedValue'], turns[high['driveDirection']],
          high['vehicleLength']['vehicleLengthValue'], high['vehicleWidth'],
          high['longitudinalAcceleration']['longitudinalAccelerationValue'], high['curvature']['curvatureValue'],
          high['yawRate']['yawRateValue'])
if 'lowFrequencyContainer' in body['camParameters']:
    low = body['camParameters']['lowFrequencyContainer'][1]
    assert low['vehicleRole'] == 'taxi' and low['exteriorLights'] == (0b10000110, 8) and not low['pathHistory'], low
print(cam.to_uper().hex())
";

/// Names of the compared values in tshark.
const CAM_FIELDS: &str = "its.protocolVersion its.messageID its.stationID cam.generationDeltaTime cam.stationType \
                          its.latitude its.longitude";

/// Names of a vehicle's values in tshark.
const VEHICLE_FIELDS: &str = "its.headingValue its.speedValue cam.driveDirection its.vehicleLengthValue \
                              cam.vehicleWidth its.longitudinalAccelerationValue its.curvatureValue its.yawRateValue";

/// Fields that the packet record has too. In mappings and data acknowledgements
/// tshark numbers the first byte 1. Its `mptcp.dsn` uses the previous mapping for
/// the first packet of a new one, so the mapping itself is compared.
const PACKET_FIELDS: &str = "tcp.stream tcp.seq tcp.ack tcp.len mptcp.dss.dsn tcp.options.mptcp.subflowseqno mptcp.ack";

fn roadside_unit() -> Cam {
    let [latitude, longitude] = cam::to_degrees([120.0, -4.0]);
    Cam {
        protocol_version: 2,
        station_id: 4_000_000_123,
        station_type: ROADSIDE_UNIT,
        generation_delta_time: 54_321,
        latitude_deg: Some(latitude),
        longitude_deg: Some(longitude),
        vehicle: None,
    }
}

/// Vehicles with everything known, and with nothing known that may be unknown.
fn vehicles() -> [Cam; 2] {
    let known = Vehicle {
        heading_deg: Some(271.3),
        speed_m_s: Some(13.89),
        drive_direction: DriveDirection::backward,
        length_m: Some(4.2),
        width_m: Some(1.8),
        acceleration_m_s2: Some(-1.5),
        curvature_per_m: Some(0.0125),
        yaw_rate_deg_s: Some(-3.21),
        low_frequency: Some(LowFrequency { role: VehicleRole::taxi, exterior_lights: 0b1000_0110 }),
    };
    let car = |vehicle| Cam { station_type: PASSENGER_CAR, vehicle: Some(vehicle), ..roadside_unit() };
    [car(known), car(Vehicle::forward(None, None))]
}

/// Of [`vehicles`], in the order of [`VEHICLE_FIELDS`]; TS 102 894-2 has the values for "unavailable".
const VEHICLE_VALUES: [[i64; 8]; 2] =
    [[2713, 1389, 1, 42, 18, -15, 125, -321], [3601, 16_383, 0, 1023, 62, 161, 1023, 32_767]];

/// The CAM that an on-board unit encodes from an agent's message, and its values in the order of [`VEHICLE_FIELDS`].
fn from_agent() -> (Cam, Vec<i64>) {
    let position = Some(Position { latitude_deg: 40.640_5, longitude_deg: -8.653_75 });
    let state = VehicleState { position, heading_deg: Some(93.2), speed_m_s: Some(13.89) };
    let message = message::cam(&Fix { state, unix_ms: Some(1_777_890_030_250) }, 6, false).unwrap();
    (on_board_unit::encoded(&message), vec![932, 1389, 2, 1023, 62, 161, 1023, 32_767])
}

/// In the order of [`CAM_FIELDS`].
fn values(cam: &Cam) -> Vec<i64> {
    let tenth_microdegrees = |degrees: Option<f64>| (degrees.unwrap() * 1e7).round() as i64;
    let (latitude, longitude) = (tenth_microdegrees(cam.latitude_deg), tenth_microdegrees(cam.longitude_deg));
    let (station, time) = (cam.station_id.into(), cam.generation_delta_time.into());
    vec![cam.protocol_version.into(), 2, station, time, cam.station_type.into(), latitude, longitude]
}

fn numbers(text: &str) -> Vec<i64> {
    text.split_whitespace().map(|word| word.parse().unwrap_or_else(|_| panic!("{word} in {text}"))).collect()
}

#[test]
fn pycrate_decodes_our_cams() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let knows = |python: &PathBuf| {
        let imported = Command::new(python).args(["-c", "import pycrate_asn1dir"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    let Some(python) = [root.join(".venv/bin/python"), "python3".into()].into_iter().find(knows) else {
        skip("no Python with pycrate (pip install pycrate)");
        return;
    };
    let vehicles = vehicles().into_iter().zip(VEHICLE_VALUES.map(Vec::from));
    for (cam, more) in vehicles.chain([(roadside_unit(), Vec::new()), from_agent()]) {
        let frame = cam::encode(&cam).unwrap();
        let hex: String = frame[HEADER_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect();
        let output = Command::new(&python).args(["-c", PYCRATE, &hex]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (decoded, encoded) = text.trim().rsplit_once('\n').unwrap();
        assert_eq!(numbers(decoded), [values(&cam), more].concat());
        assert_eq!(encoded, hex, "pycrate's encoding of the same CAM");
    }
}

#[test]
fn tshark_decodes_our_cams_in_geonetworking() {
    if !has_tshark() {
        return;
    }
    let vehicles = vehicles().into_iter().zip(VEHICLE_VALUES.map(Vec::from));
    for (cam, more) in vehicles.chain([(roadside_unit(), Vec::new()), from_agent()]) {
        let frame = cam::encode(&cam).unwrap();
        let ethernet = [&[0xff; 6], &[2, 0, 0, 0, 0, 1], &[0x89, 0x47][..], &frame].concat();
        let names = format!("{CAM_FIELDS} {VEHICLE_FIELDS} _ws.malformed");
        let fields = tshark(ETHERNET, &[(0, ethernet.len(), &ethernet)], &names);
        assert_eq!(numbers(&fields[0].join(" ")), [values(&cam), more].concat());
    }
}

#[test]
fn tshark_and_the_packet_record_agree_on_sequence_numbers() {
    if !has_tshark() || !can_drive() {
        return;
    }
    let records = recorded_packets();
    let mut tracker = FlowTracker::default();
    let rows: Vec<PacketRow> = records
        .iter()
        .map(|record| tracker.row(record.entered.as_nanos(), PathId(record.link), record.direction, record.head()))
        .collect();
    let packets: Vec<_> =
        records.iter().map(|record| (record.entered.as_nanos(), usize::from(record.ip_bytes), record.head())).collect();
    let dissected = tshark(RAW_IP, &packets, PACKET_FIELDS);
    assert_eq!(dissected.len(), rows.len());
    let (mut mapped, mut acked, mut repeated) = (0, 0, 0);
    for (number, (row, fields)) in rows.iter().zip(&dissected).enumerate() {
        let field = |place: usize| fields[place].split(',').next().unwrap().parse::<u64>().ok();
        let context = format!("packet {}: {row:?}, tshark {fields:?}", number + 1);
        assert_eq!(row.subflow.map(u64::from), field(0), "{context}");
        assert_eq!((Some(row.tcp_seq.into()), Some(row.payload_bytes.into())), (field(1), field(3)), "{context}");
        if row.tcp_flags & ACK != 0 {
            assert_eq!(Some(row.tcp_ack.into()), field(2), "{context}");
        }
        if let (Some(seq), Some(dsn), Some(mapped_from)) = (field(1), field(4), field(5))
            && row.payload_bytes > 0
        {
            assert_eq!(row.dsn, Some(dsn - 1 + seq - mapped_from), "{context}");
            mapped += 1;
        }
        if let Some(ack) = field(6) {
            assert_eq!(row.data_ack, Some(ack - 1), "{context}");
            acked += 1;
        }
        let earlier = |other: &PacketRow| other.dsn == row.dsn && other.direction == row.direction;
        repeated += u32::from(row.dsn.is_some() && rows[..number].iter().any(earlier));
    }
    assert_eq!(rows.iter().filter_map(|row| row.subflow).max(), Some(1), "two subflows");
    assert!(
        mapped > 400 && acked > 400 && repeated > 3,
        "{mapped} mapped, {acked} acknowledged, {repeated} retransmitted"
    );
}

/// Packets of an MPTCP connection over two lossy links that carries 400 kB up, then 400 kB down.
fn recorded_packets() -> Vec<PacketRecord> {
    prepare_privileges().unwrap();
    let plan = |(metric, name): (usize, &str)| PathPlan { name: name.to_owned(), metric: metric as u32 };
    let mut testbed = Testbed::new(&["near", "far"].into_iter().enumerate().map(plan).collect::<Vec<_>>()).unwrap();
    let limits = Limits { subflows: 8, add_addr_accepted: 8 };
    for namespace in [&testbed.vehicle, &testbed.server] {
        let prepare = || {
            select_path_manager(PathManager::Kernel).unwrap();
            EndpointSocket::open().unwrap().set_limits(limits).unwrap();
        };
        namespace.enter(prepare).unwrap();
    }
    let endpoint = || EndpointSocket::open().unwrap().add(&Endpoint::subflow(vehicle_address(1).into())).unwrap();
    testbed.vehicle.enter(endpoint).unwrap();
    let params = DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s: 8e6 },
        delay: Duration::from_millis(5),
        loss: Loss::Independent(0.02),
        queue: QueueLimit::Packets(50),
        codel: None,
    };
    let links = testbed.take_devices().into_iter().map(|devices| {
        let link = Link::new(3, &devices.name, params.clone(), params.clone());
        EmulatedLink { devices: vec![devices], link }
    });
    let (sink, source) = packet_channel();
    let emulator = Emulator::start(Clock::start(), links.collect(), Some(sink)).unwrap();
    transfer(&testbed);
    drop(emulator.stop(&testbed).unwrap());
    let mut records = Vec::new();
    while source.receive(|record| records.push(*record)).is_some() {}
    records.sort_by_key(|record| record.entered);
    records
}

fn transfer(testbed: &Testbed) {
    let mptcp = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    let listen = || {
        let socket = mptcp();
        socket.bind(&std::net::SocketAddr::from((SERVER, 5001)).into()).unwrap();
        socket.listen(1).unwrap();
        socket
    };
    let listener = testbed.server.enter(listen).unwrap();
    let connect = || {
        let socket = mptcp();
        socket.connect(&std::net::SocketAddr::from((SERVER, 5001)).into()).unwrap();
        socket
    };
    let client = testbed.vehicle.enter(connect).unwrap();
    let server = listener.accept().unwrap().0;
    let block = vec![7; 400_000];
    for (mut from, mut to) in [(&client, &server), (&server, &client)] {
        thread::scope(|scope| {
            scope.spawn(|| from.write_all(&block).unwrap());
            to.read_exact(&mut vec![0; block.len()]).unwrap();
        });
    }
}

fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    found || skip("tshark is not installed (apt-get install tshark)")
}

/// Prints why a test is not run; third-party programs are not required in CI.
fn skip(why: &str) -> bool {
    drop(writeln!(std::io::stderr(), "interop NOT RUN: {why}"));
    false
}

/// Values of the `fields` that tshark decodes from each packet (time in ns, length, captured bytes).
fn tshark(link_type: u32, packets: &[(u64, usize, &[u8])], fields: &str) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("packets.pcap");
    fs::write(&file, pcap(link_type, packets)).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-T", "fields", "-o", "mptcp.analyze_mappings:TRUE"]);
    command.args(fields.split_whitespace().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(String::from).collect()).collect()
}

/// A capture file: https://www.ietf.org/archive/id/draft-gharris-opsawg-pcap-01.html
fn pcap(link_type: u32, packets: &[(u64, usize, &[u8])]) -> Vec<u8> {
    // This magic number means timestamps in nanoseconds.
    let head = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, link_type];
    let mut file: Vec<u8> = head.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    for (t_ns, length, captured) in packets {
        let (s, ns) = ((t_ns / 1_000_000_000) as u32, (t_ns % 1_000_000_000) as u32);
        file.extend([s, ns, captured.len() as u32, *length as u32].iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(captured);
    }
    file
}
