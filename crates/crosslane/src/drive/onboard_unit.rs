//! The emulated on-board unit: sends received CAMs, and what other radios report,
//! to a UDP port in the vehicle, as vanetza-nap does (`observe/vanetza.rs` reads
//! it), and the position of the vehicle over TCP, as gpsd does (`observe/gpsd.rs`).

use std::io::{Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use crosslane_core::path::{Position, VehicleState};
use crosslane_sim::radio::access_link::Quality;
use crosslane_sim::radio::cam;
use serde_json::{Value, json};

use crate::observe::vanetza::PORT;

/// The port of gpsd.
pub const GPSD_PORT: u16 = 2947;
/// Maximum number of programs that read the position; further ones take the place of the first.
const MAX_READERS: usize = 8;
/// Id of the vehicle's own station.
const VEHICLE_STATION: u32 = 1;
/// Values of an unknown heading and speed in the JSON of vanetza-nap: those of TS 102 894-2, not scaled.
const HEADING_UNAVAILABLE: f64 = 3601.0;
const SPEED_UNAVAILABLE: f64 = 16_383.0;

/// The on-board unit. Its sockets belong to the namespace of the thread that
/// created it.
pub struct OnBoardUnit {
    socket: UdpSocket,
    gpsd: TcpListener,
    readers: Vec<TcpStream>,
}

impl OnBoardUnit {
    /// An on-board unit that sends to port 5051 of this namespace, and serves gpsd's port.
    pub fn new() -> Result<OnBoardUnit> {
        let gpsd = TcpListener::bind((Ipv4Addr::LOCALHOST, GPSD_PORT))?;
        gpsd.set_nonblocking(true)?;
        Ok(OnBoardUnit { socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, gpsd, readers: Vec::new() })
    }

    /// Sends a fix to the programs that are connected; one that does not read is left.
    pub fn fix(&mut self, state: &VehicleState) {
        while let Ok((reader, _)) = self.gpsd.accept() {
            if reader.set_nonblocking(true).is_ok() {
                self.readers.push(reader);
            }
            if self.readers.len() > MAX_READERS {
                self.readers.remove(0);
            }
        }
        let line = format!("{}\n", tpv(state));
        self.readers.retain_mut(|reader| reader.write_all(line.as_bytes()).is_ok());
    }

    /// Sends what the modem of a path reports of a handover.
    pub fn handover(&self, unix_s: f64, path: &str, is_announced: bool) {
        self.send(&json!({ "type": "handover", "timestamp": unix_s, "path": path, "announced": is_announced }));
    }

    /// Decodes a received frame, sends its CAM, and returns the position in it, if any; `None` if it is malformed.
    pub fn receive(&self, unix_s: f64, frame: &[u8], rssi_dbm: f64) -> Option<Option<Position>> {
        let cam = cam::decode(frame).ok()?;
        self.send(&message(unix_s, &cam, frame.len(), rssi_dbm));
        let position = cam.latitude_deg.zip(cam.longitude_deg);
        Some(position.map(|(latitude_deg, longitude_deg)| Position { latitude_deg, longitude_deg }))
    }

    /// Sends the signal that another radio reports, and its PHY rate.
    pub fn report(&self, unix_s: f64, path: &str, rssi_dbm: f64, quality: Quality) {
        self.send(&json!({
            "type": "radio", "timestamp": unix_s, "path": path, "rssi": rssi_dbm, "rsrq": quality.rsrq_db,
            "sinr": quality.sinr_db
        }));
        if let Some(mbit_s) = quality.phy_mbit_s {
            self.send(&json!({
                "type": "phy", "timestamp": unix_s, "path": path, "tx_mbit_s": mbit_s, "rx_mbit_s": mbit_s
            }));
        }
    }

    /// A missing listener is no fault: some strategies have no agent.
    fn send(&self, message: &Value) {
        drop(self.socket.send_to(message.to_string().as_bytes(), (Ipv4Addr::LOCALHOST, PORT)));
    }
}

/// A TPV report of gpsd.
fn tpv(state: &VehicleState) -> Value {
    let mode = if state.position.is_some() { 2 } else { 1 };
    json!({
        "class": "TPV", "mode": mode, "lat": state.position.map(|position| position.latitude_deg),
        "lon": state.position.map(|position| position.longitude_deg), "track": state.heading_deg,
        "speed": state.speed_m_s
    })
}

fn message(unix_s: f64, cam: &cam::Cam, packet_size: usize, rssi_dbm: f64) -> Value {
    let high_frequency = match cam.vehicle {
        Some(vehicle) => json!({ "basicVehicleContainerHighFrequency": {
            "heading": { "headingValue": vehicle.heading_deg.unwrap_or(HEADING_UNAVAILABLE) },
            "speed": { "speedValue": vehicle.speed_m_s.unwrap_or(SPEED_UNAVAILABLE) },
        } }),
        None => json!({ "rsuContainerHighFrequency": {} }),
    };
    json!({
        "timestamp": unix_s,
        "newInfo": true,
        "rssi": rssi_dbm,
        "stationID": cam.station_id,
        "stationAddr": station_address(cam.station_id),
        "receiverID": VEHICLE_STATION,
        "receiverType": cam::PASSENGER_CAR,
        "packet_size": packet_size,
        "fields": {
            "header": { "protocolVersion": cam.protocol_version, "messageId": 2, "stationId": cam.station_id },
            "cam": {
                "generationDeltaTime": cam.generation_delta_time,
                "camParameters": {
                    "basicContainer": {
                        "stationType": cam.station_type,
                        "referencePosition": { "latitude": cam.latitude_deg, "longitude": cam.longitude_deg },
                    },
                    "highFrequencyContainer": high_frequency,
                },
            },
        },
        "test": { "json_timestamp": unix_s },
    })
}

/// A locally administered MAC address derived from the station id.
fn station_address(station: u32) -> String {
    let [a, b, c, d] = station.to_be_bytes();
    format!("6e:06:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::vanetza::{Senders, read};
    use crosslane_core::path::{PathId, SampleKind, Signal};
    use crosslane_sim::radio::cam_vehicle::Vehicle;

    #[test]
    fn a_vehicle_is_reported_as_by_vanetza_nap() {
        let mut car = cam::Cam {
            protocol_version: 2,
            station_id: 7,
            station_type: cam::PASSENGER_CAR,
            generation_delta_time: 5,
            latitude_deg: Some(41.0),
            longitude_deg: Some(-8.0),
            vehicle: Some(Vehicle::forward(Some(90.5), None)),
        };
        let high = |cam: &cam::Cam| {
            let message = message(0.0, cam, 85, -70.0);
            message["fields"]["cam"]["camParameters"]["highFrequencyContainer"].clone()
        };
        let values = &high(&car)["basicVehicleContainerHighFrequency"];
        assert_eq!(values["heading"]["headingValue"], 90.5);
        assert_eq!(values["speed"]["speedValue"], 16_383.0, "not known");
        car.vehicle = None;
        assert_eq!(high(&car), json!({ "rsuContainerHighFrequency": {} }));
    }

    #[test]
    fn the_agent_reads_the_position_that_it_sends() {
        let position = Some(Position { latitude_deg: 41.0, longitude_deg: -8.0 });
        let state = VehicleState { position, heading_deg: Some(93.25), speed_m_s: Some(13.5) };
        let fix = crate::observe::gpsd::read(tpv(&state).to_string().as_bytes());
        assert_eq!(fix.expect("readable").expect("a fix").state, state);
    }

    #[test]
    fn the_agent_reads_what_the_on_board_unit_sends() {
        let cam = cam::Cam {
            protocol_version: 2,
            station_id: 1001,
            station_type: cam::ROADSIDE_UNIT,
            generation_delta_time: 5,
            latitude_deg: Some(41.0),
            longitude_deg: Some(-8.0),
            vehicle: None,
        };
        let frame = cam::encode(&cam).expect("encodable");
        let decoded = cam::decode(&frame).expect("decodable");
        let text = message(0.0, &decoded, frame.len(), -71.5).to_string();
        let senders = Senders { stations: [(1001, PathId(0))].into(), ..Senders::default() };
        let sample = read(text.as_bytes(), &senders).expect("readable");
        let sender = Some(Position { latitude_deg: 41.0, longitude_deg: -8.0 });
        let signal = Signal { rssi_dbm: -71.5, station: Some(1001), sender, ..Signal::default() };
        assert_eq!(sample.kind, SampleKind::Signal(signal));
    }
}
