//! Received CAMs, as on-board units pass them to other programs: the JSON of
//! vanetza-nap in UDP datagrams (port 5051).
//!
//! `{"fields": {"header": {"stationID": …}, "cam": {…}}, "rssi": …, "stationID": …, …}`.
//! Other radios send to the same port: `{"type": "radio", "path": NAME, "rssi": …}`, with
//! `rsrq` and `sinr` in dB if they are known, and `{"type": "phy", "path": NAME, "tx_mbit_s": …,
//! "rx_mbit_s": …}`. Of a modem that reports the measurements which precede a handover:
//! `{"type": "handover", "path": NAME, "announced": true}`, and `false` when it is over.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::Pin;

use crosslane_core::path::{PathId, Position, RadioLink, Sample, SampleKind, Signal};
use serde::Deserialize;
use std::collections::BTreeMap;
use tokio::net::UdpSocket;

use super::admission::Admission;
use super::{Observation, Observed, Observer};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::udp::UdpOwners;

/// Name of this source in reports.
pub const NAME: &str = "vanetza";

/// The port to which vanetza-nap sends.
pub const PORT: u16 = 5051;

/// Largest datagram read, in bytes: four times a CAM with all its containers.
pub const MAX_DATAGRAM: usize = 8192;

/// Signals that count, in dBm.
pub const USABLE_DBM: RangeInclusive<f64> = -120.0..=0.0;

/// The socket that receives CAMs.
pub struct Vanetza {
    socket: UdpSocket,
    admission: Admission,
    owners: Option<UdpOwners>,
    senders: Senders,
    clock: Clock,
    buffer: Vec<u8>,
}

impl Vanetza {
    /// Listens on this address; must be called within a runtime.
    ///
    /// # Errors
    /// The port is taken, or the address is not local.
    pub fn open(address: SocketAddr, admission: Admission, senders: Senders, clock: Clock) -> Result<Vanetza> {
        let bind = || {
            let socket = std::net::UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        let socket = bind().map_err(|cause| {
            let attempt = format!("listening for CAMs on {address}");
            Error::failure(attempt, cause).with_remedy("set observe.vanetza to a free local address and port")
        })?;
        let (owners, buffer) = (UdpOwners::open().ok(), vec![0; MAX_DATAGRAM]);
        Ok(Vanetza { socket, admission, owners, senders, clock, buffer })
    }

    fn observe(&mut self, length: usize, from: SocketAddr) -> Observation {
        let owners = &mut self.owners;
        let find_owner = |port| match owners {
            Some(owners) => owners.of(port).map_err(|cause| cause.to_string()),
            None => Err("the kernel has no sock_diag; name the address in observe.vanetza_from".into()),
        };
        let admitted = self.admission.admit(self.clock.now(), from, find_owner);
        admitted.map_err(|rejected| Box::new(rejected) as _)?;
        match read(&self.buffer[..length], &self.senders) {
            Err(Rejected::UnknownStation(signal)) if self.senders.has_units => Ok(Observed::Station(signal)),
            sample => sample.map(Into::into).map_err(|rejected| Box::new(rejected) as _),
        }
    }
}

impl Observer for Vanetza {
    fn name(&self) -> &'static str {
        NAME
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Observation> + '_>> {
        Box::pin(async {
            loop {
                if let Ok((length, from)) = self.socket.recv_from(&mut self.buffer).await {
                    return self.observe(length, from);
                }
            }
        })
    }
}

/// Maps the sender of a message to a path.
#[derive(Clone, Debug, Default)]
pub struct Senders {
    /// Path of each known roadside unit, by its station id.
    pub stations: BTreeMap<u32, PathId>,
    /// Path by name, for other radios.
    pub paths: BTreeMap<String, PathId>,
    /// Whether CAMs of stations that no path names are passed on too: of units, and to a unit of vehicles.
    pub has_units: bool,
}

/// Why a datagram yields no sample.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// It is no JSON, or not of this form.
    #[error("not a message of vanetza-nap: {0}")]
    Form(#[from] serde_json::Error),
    /// The message has no RSSI between −120 and 0 dBm.
    #[error("no usable RSSI")]
    Rssi,
    /// The sender is a vehicle, or an RSU that the configuration does not name.
    #[error("from station {}, which no path names", .0.station.unwrap_or_default())]
    UnknownStation(Signal),
    /// It does not say whether a handover is announced or over.
    #[error("a handover without `announced`")]
    Handover,
    /// It has no PHY rate of 0 Mbit/s or more.
    #[error("no usable PHY rate")]
    PhyRate,
    /// A path of that name is not configured.
    #[error("about path {0:?}, which is not configured")]
    UnknownPath(String),
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: Option<String>,
    path: Option<String>,
    announced: Option<bool>,
    rssi: Option<f64>,
    rsrq: Option<f32>,
    sinr: Option<f32>,
    tx_mbit_s: Option<f64>,
    rx_mbit_s: Option<f64>,
    #[serde(rename = "stationID")]
    station_id: Option<u32>,
    fields: Option<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    header: Option<Header>,
    #[serde(default, deserialize_with = "position")]
    cam: Option<Position>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "stationID", alias = "stationId")]
    station_id: Option<u32>,
}

/// Reads one datagram.
///
/// # Errors
/// [`Rejected`] has the reason; none of these is a failure of the agent, since
/// any process may send to the port.
pub fn read(datagram: &[u8], senders: &Senders) -> std::result::Result<Sample, Rejected> {
    let message: Message = serde_json::from_slice(datagram)?;
    let path_of = |name: Option<String>| {
        let name = name.unwrap_or_default();
        senders.paths.get(&name).copied().ok_or(Rejected::UnknownPath(name))
    };
    if message.kind.as_deref() == Some("handover") {
        let path = path_of(message.path)?;
        let is_announced = message.announced.ok_or(Rejected::Handover)?;
        return Ok(Sample { path, kind: SampleKind::Handover { is_announced } });
    }
    if message.kind.as_deref() == Some("phy") {
        let path = path_of(message.path)?;
        let bit_s = |mbit_s: Option<f64>| mbit_s.filter(|mbit_s| *mbit_s >= 0.0).map(|mbit_s| mbit_s * 1e6);
        let [tx_bit_s, rx_bit_s] = [message.tx_mbit_s, message.rx_mbit_s].map(bit_s);
        tx_bit_s.or(rx_bit_s).ok_or(Rejected::PhyRate)?;
        return Ok(Sample { path, kind: SampleKind::Radio(RadioLink { tx_bit_s, rx_bit_s, ..RadioLink::default() }) });
    }
    let rssi = message.rssi.filter(|rssi| USABLE_DBM.contains(rssi)).ok_or(Rejected::Rssi)?;
    let rssi_dbm = rssi as f32;
    if message.kind.as_deref() == Some("radio") {
        let path = path_of(message.path)?;
        let signal = Signal { rssi_dbm, rsrq_db: message.rsrq, sinr_db: message.sinr, ..Signal::default() };
        return Ok(Sample { path, kind: SampleKind::Signal(signal) });
    }
    let (in_header, sender) = message.fields.map_or((None, None), |fields| (fields.header, fields.cam));
    let station = message.station_id.or(in_header.and_then(|header| header.station_id)).unwrap_or(0);
    let signal = Signal { rssi_dbm, station: Some(station), sender, ..Signal::default() };
    let path = *senders.stations.get(&station).ok_or(Rejected::UnknownStation(signal))?;
    Ok(Sample { path, kind: SampleKind::Signal(signal) })
}

/// The reference position of a CAM; `None` if it has none that is valid.
fn position<'de, D: serde::Deserializer<'de>>(cam: D) -> std::result::Result<Option<Position>, D::Error> {
    let cam = serde_json::Value::deserialize(cam)?;
    let place = &cam["camParameters"]["basicContainer"]["referencePosition"];
    let degrees = |key: &str, limit: f64| place[key].as_f64().filter(|degrees| degrees.abs() <= limit);
    let found = degrees("latitude", 90.0).zip(degrees("longitude", 180.0));
    Ok(found.map(|(latitude_deg, longitude_deg)| Position { latitude_deg, longitude_deg }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders() -> Senders {
        Senders {
            stations: BTreeMap::from([(1001, PathId(0))]),
            paths: BTreeMap::from([("lte".into(), PathId(1))]),
            has_units: false,
        }
    }

    /// As vanetza-nap publishes it, shortened.
    const CAM: &str = r#"{"timestamp": 1667923053.4, "newInfo": true, "rssi": -71, "test": {"json_timestamp": 1.0},
        "stationID": 1001, "stationAddr": "6e:06:e0:03:00:02", "receiverID": 2, "receiverType": 5, "packet_size": 70,
        "fields": {"header": {"protocolVersion": 2, "messageID": 2, "stationID": 1001},
        "cam": {"generationDeltaTime": 56291, "camParameters": {"basicContainer": {"stationType": 15}}}}}"#;

    #[test]
    fn a_cam_of_a_known_rsu_is_a_signal_sample_of_its_path() {
        let sample = read(CAM.as_bytes(), &senders()).expect("readable");
        let kind = SampleKind::Signal(Signal { rssi_dbm: -71.0, station: Some(1001), ..Signal::default() });
        assert_eq!(sample, Sample { path: PathId(0), kind });
    }

    /// A vehicle's CAM with both containers, as a roadside unit's vanetza-nap passes it on (version of
    /// September 2025).
    const VEHICLE_CAM: &str = r#"{"fields": {"header": {"protocolVersion": 2, "messageId": 2, "stationId": 175},
        "cam": {"generationDeltaTime": 13190, "camParameters": {
        "basicContainer": {"stationType": 5, "referencePosition": {"latitude": 40.6283493, "longitude": -8.6543903,
        "positionConfidenceEllipse": {"semiMajorAxisLength": 4095, "semiMinorAxisLength": 4095,
        "semiMajorAxisOrientation": 3601}, "altitude": {"altitudeValue": 800001.0, "altitudeConfidence": 15}}},
        "highFrequencyContainer": {"basicVehicleContainerHighFrequency": {
        "heading": {"headingValue": 153.0, "headingConfidence": 127.0},
        "speed": {"speedValue": 8.69, "speedConfidence": 127.0}, "driveDirection": 2, "vehicleWidth": 62.0}},
        "lowFrequencyContainer": {"basicVehicleContainerLowFrequency": {"vehicleRole": 0, "pathHistory": []}}}}},
        "timestamp": 1758550910.673478, "newInfo": true, "rssi": -74, "stationID": 175,
        "stationAddr": "6e:06:e0:01:00:af", "receiverID": 229, "receiverType": 15, "packet_size": 104,
        "test": {"channel_frequency": 5860, "channel_busy_time": 0.000509}}"#;

    #[test]
    fn a_vehicles_cam_states_its_station_signal_and_position_at_a_unit() {
        let sender = Some(Position { latitude_deg: 40.6283493, longitude_deg: -8.6543903 });
        let expected = Signal { rssi_dbm: -74.0, station: Some(175), sender, ..Signal::default() };
        let in_header_only = VEHICLE_CAM.replace("\"stationID\": 175,", "");
        // A passenger car, a bus, and versions with the station in the header only.
        for text in [VEHICLE_CAM, &VEHICLE_CAM.replace("\"stationType\": 5", "\"stationType\": 6"), &in_header_only] {
            match read(text.as_bytes(), &senders()) {
                Err(Rejected::UnknownStation(signal)) => assert_eq!(signal, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_message_of_another_radio_names_its_path() {
        let message = br#"{"type": "radio", "path": "lte", "rssi": -95.5, "rsrq": -11, "sinr": 7.5}"#;
        let sample = read(message, &senders()).expect("readable");
        let signal = Signal { rssi_dbm: -95.5, rsrq_db: Some(-11.0), sinr_db: Some(7.5), ..Signal::default() };
        assert_eq!(sample.kind, SampleKind::Signal(signal));
    }

    #[test]
    fn a_message_has_the_phy_rates_of_a_path() {
        let message = br#"{"type": "phy", "path": "lte", "tx_mbit_s": 54, "rx_mbit_s": -1}"#;
        let link = RadioLink { tx_bit_s: Some(54e6), ..RadioLink::default() };
        let expected = Sample { path: PathId(1), kind: SampleKind::Radio(link) };
        assert_eq!(read(message, &senders()).expect("readable"), expected);
    }

    #[test]
    fn a_modem_announces_a_handover_and_its_end() {
        for is_announced in [true, false] {
            let message = format!(r#"{{"type": "handover", "path": "lte", "announced": {is_announced}}}"#);
            let sample = read(message.as_bytes(), &senders()).expect("readable");
            assert_eq!(sample, Sample { path: PathId(1), kind: SampleKind::Handover { is_announced } });
        }
    }

    #[test]
    fn a_datagram_without_a_sample_is_rejected_with_its_reason() {
        let reason = |text: &str| read(text.as_bytes(), &senders()).expect_err("rejected").to_string();
        assert!(reason("hello").starts_with("not a message"));
        assert_eq!(reason(r#"{"stationID": 1001}"#), "no usable RSSI");
        assert_eq!(reason(r#"{"stationID": 1001, "rssi": 5}"#), "no usable RSSI");
        assert_eq!(reason(r#"{"stationID": 7, "rssi": -70}"#), "from station 7, which no path names");
        assert_eq!(reason(r#"{"type": "handover", "path": "lte"}"#), "a handover without `announced`");
        assert_eq!(reason(r#"{"type": "phy", "path": "lte"}"#), "no usable PHY rate");
        assert!(reason(r#"{"type": "radio", "path": "5g", "rssi": -70}"#).contains("5g"));
    }

    proptest::proptest! {
        #[test]
        fn no_datagram_makes_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&bytes, &senders());
        }
    }
}
