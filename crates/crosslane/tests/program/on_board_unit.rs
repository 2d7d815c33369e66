//! An on-board unit as vanetza-nap is one: an MQTT broker, and the CAM that it encodes from what it
//! takes at `vanetza/in/cam`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crosslane::testbed::Namespace;
use crosslane_sim::radio::cam::Cam;
use crosslane_sim::radio::cam_vehicle::{DriveDirection, LowFrequency, Vehicle, VehicleRole};
use serde_json::Value;

/// A published message: topic and text.
pub type Published = (String, String);

/// A broker for one client at a time, with as much of MQTT 3.1.1 as a publisher with QoS 0 needs.
/// It ends with the test.
pub struct Broker {
    pub messages: Receiver<Published>,
}

impl Broker {
    pub fn start(namespace: &Namespace, address: &str) -> Broker {
        let address: SocketAddr = address.parse().unwrap();
        let listener = namespace.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let (sender, messages) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that hangs up ends its connection only.
                drop(serve(&mut stream.unwrap(), &sender));
            }
        });
        Broker { messages }
    }
}

fn serve(stream: &mut TcpStream, messages: &Sender<Published>) -> std::io::Result<()> {
    loop {
        let (kind, body) = packet(stream)?;
        match kind >> 4 {
            1 => {
                assert_eq!(&body[..7], b"\0\x04MQTT\x04", "MQTT 3.1.1, section 3.1.2");
                stream.write_all(&[0x20, 2, 0, 0])?;
            }
            3 => {
                assert_eq!(kind, 0x30, "QoS 0, not retained");
                let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                // The test may have ended.
                drop(messages.send((text(&body[2..2 + length]), text(&body[2 + length..]))));
            }
            12 => stream.write_all(&[0xd0, 0])?,
            14 => return Ok(()),
            other => panic!("packet type {other}"),
        }
    }
}

/// First byte and body of a packet (MQTT 3.1.1, section 2.2).
fn packet(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    let (kind, mut length) = (byte[0], 0);
    for shift in [0, 7, 14, 21] {
        stream.read_exact(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((kind, body))
}

/// The CAM that station 7 transmits for a message at `vanetza/in/cam`: every mandatory field must be
/// there, in the units of vanetza-nap; the numbers for "unavailable" are not scaled.
pub fn encoded(message: &Value) -> Cam {
    let parameters = &message["camParameters"];
    let (basic, high) = (&parameters["basicContainer"], &parameters["highFrequencyContainer"]);
    let (place, high) = (&basic["referencePosition"], &high["basicVehicleContainerHighFrequency"]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {message}"));
    let known = |value: &Value, unavailable: f64| Some(number(value)).filter(|number| *number != unavailable);
    for confidence in [
        &place["positionConfidenceEllipse"]["semiMajorAxisLength"],
        &place["positionConfidenceEllipse"]["semiMinorAxisLength"],
        &place["positionConfidenceEllipse"]["semiMajorAxisOrientation"],
        &place["altitude"]["altitudeValue"],
        &place["altitude"]["altitudeConfidence"],
        &high["heading"]["headingConfidence"],
        &high["speed"]["speedConfidence"],
        &high["vehicleLength"]["vehicleLengthConfidenceIndication"],
        &high["longitudinalAcceleration"]["confidence"],
        &high["curvature"]["curvatureConfidence"],
        &high["curvatureCalculationMode"],
        &high["yawRate"]["yawRateConfidence"],
    ] {
        number(confidence);
    }
    let low = &parameters["lowFrequencyContainer"]["basicVehicleContainerLowFrequency"];
    let low_frequency = (!low.is_null()).then(|| {
        assert_eq!((number(&low["vehicleRole"]), low["pathHistory"].as_array().map(Vec::len)), (0.0, Some(0)));
        let lights = low["exteriorLights"].as_object().unwrap();
        assert!(lights.len() == 8 && lights.values().all(|on| on == false), "{lights:?}");
        LowFrequency { role: VehicleRole::default, exterior_lights: 0 }
    });
    let vehicle = Vehicle {
        heading_deg: known(&high["heading"]["headingValue"], 3601.0),
        speed_m_s: known(&high["speed"]["speedValue"], 16_383.0),
        drive_direction: match number(&high["driveDirection"]) {
            0.0 => DriveDirection::forward,
            1.0 => DriveDirection::backward,
            _ => DriveDirection::unavailable,
        },
        length_m: known(&high["vehicleLength"]["vehicleLengthValue"], 1023.0),
        width_m: known(&high["vehicleWidth"], 62.0),
        acceleration_m_s2: known(&high["longitudinalAcceleration"]["value"], 161.0),
        curvature_per_m: known(&high["curvature"]["curvatureValue"], 1023.0),
        yaw_rate_deg_s: known(&high["yawRate"]["yawRateValue"], 32_767.0),
        low_frequency,
    };
    Cam {
        protocol_version: 2,
        station_id: 7,
        station_type: number(&basic["stationType"]) as u8,
        generation_delta_time: u16::try_from(message["generationDeltaTime"].as_u64().unwrap()).unwrap(),
        latitude_deg: Some(number(&place["latitude"])),
        longitude_deg: Some(number(&place["longitude"])),
        vehicle: Some(vehicle),
    }
}
