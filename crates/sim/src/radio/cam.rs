//! Cooperative awareness messages as real frames: GeoNetworking single-hop
//! broadcast, BTP-B port 2001, CAM in UPER (ETSI EN 302 636-4-1, EN 302 636-5-1,
//! EN 302 637-2 v1.4.1).

use c_its_parser::standards::cam_1_4_1::cam_pdu_descriptions::{
    BasicContainer, CAM, CamParameters, CoopAwareness, GenerationDeltaTime, HighFrequencyContainer,
    RSUContainerHighFrequency,
};
use c_its_parser::standards::cdd_1_3_1_1::its_container::{
    Altitude, AltitudeConfidence, AltitudeValue, HeadingValue, ItsPduHeader, Latitude, Longitude, PosConfidenceEllipse,
    ReferencePosition, SemiAxisLength, StationID, StationType,
};
use c_its_parser::transport::{BasicTransportBHeader, TransportHeader};
use c_its_parser::{EncodingRules, ItsMessage};
use geonetworking::{Packet, en302636_4_1 as gn};

use super::cam_vehicle::Vehicle;

/// Station type of a passenger car.
pub const PASSENGER_CAR: u8 = 5;
/// Station type of a roadside unit.
pub const ROADSIDE_UNIT: u8 = 15;

/// Size of an RSU's frame, in bytes; independent of its values.
pub const UNIT_BYTES: u32 = 70;

/// Size of a vehicle's frame, in bytes: headers and a CAM with the mandatory
/// fields of its high-frequency container, no signature.
pub const VEHICLE_BYTES: u32 = 85;

/// The same with a low-frequency container, without path history.
pub const VEHICLE_LOW_FREQUENCY_BYTES: u32 = 87;

/// Contents of a CAM, in physical units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cam {
    /// Protocol version of the header (2).
    pub protocol_version: u8,
    /// Station id of the sender.
    pub station_id: u32,
    /// Station type: [`ROADSIDE_UNIT`] or a type of vehicle.
    pub station_type: u8,
    /// Generation time: ms since 2004 in TAI, modulo 65,536.
    pub generation_delta_time: u16,
    /// Latitude, in degrees north (WGS 84); none if unavailable.
    pub latitude_deg: Option<f64>,
    /// Longitude, in degrees east (WGS 84); none if unavailable.
    pub longitude_deg: Option<f64>,
    /// State of the vehicle; none for RSUs.
    pub vehicle: Option<Vehicle>,
}

/// An error of encoding or decoding a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("while {attempt}: {cause}; {remedy}")]
pub struct CamError {
    attempt: &'static str,
    cause: String,
    remedy: &'static str,
}

/// Encodes the frame of an RSU or a vehicle, starting with the GeoNetworking header. The
/// position must be known.
pub fn encode(cam: &Cam) -> Result<Vec<u8>, CamError> {
    let fail =
        |cause: String| CamError { attempt: "encoding a CAM", cause, remedy: "give a valid station and position" };
    let (Some(latitude), Some(longitude)) = (cam.latitude_deg, cam.longitude_deg) else {
        return Err(fail("the position is not known".into()));
    };
    let (latitude, longitude) = (tenth_microdegrees(latitude), tenth_microdegrees(longitude));
    let packet = shb(cam, latitude, longitude).map_err(|error| fail(format!("{error:?}")))?;
    let message = ItsMessage::Cam {
        geonetworking: Some(packet),
        transport: Some(Box::new(TransportHeader::BtpB(BasicTransportBHeader {
            destination_port: 2001,
            destination_port_info: 0,
        }))),
        etsi: Box::new(body(cam, latitude, longitude)),
    };
    message.encode(EncodingRules::UPER).map_err(fail)
}

/// Decodes a frame that starts with the GeoNetworking header.
pub fn decode(frame: &[u8]) -> Result<Cam, CamError> {
    let fail = |cause: String| CamError {
        attempt: "decoding a frame",
        cause,
        remedy: "send a CAM over BTP-B and GeoNetworking",
    };
    let payload =
        payload(frame).ok_or_else(|| fail("it is not an unsecured single-hop broadcast to BTP port 2001".into()))?;
    let CAM { header, cam } = CAM::decode_from_uper(payload).map_err(fail)?;
    let basic = &cam.cam_parameters.basic_container;
    let position = &basic.reference_position;
    let parameters = &cam.cam_parameters;
    let low_frequency = parameters.low_frequency_container.as_ref();
    Ok(Cam {
        protocol_version: header.protocol_version,
        station_id: header.station_id.0,
        station_type: basic.station_type.0,
        generation_delta_time: cam.generation_delta_time.0,
        latitude_deg: known(position.latitude.0, 900_000_001, 1e7),
        longitude_deg: known(position.longitude.0, 1_800_000_001, 1e7),
        vehicle: Vehicle::decode(&parameters.high_frequency_container, low_frequency),
    })
}

/// Basic (4), common (8) and extended header (28), then BTP (4), in bytes.
const HEADER_BYTES: usize = 44;

/// The payload after the headers, if they are those of a CAM. The decoder of
/// `geonetworking` 0.4 panics on short frames and on negative speeds, so it is
/// not used for received frames.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let (headers, payload) = frame.split_at_checked(HEADER_BYTES)?;
    let length = usize::from(u16::from_be_bytes([headers[8], headers[9]]));
    let is_cam = headers[0] & 0x0f == 1 // next: common header
        && headers[4] >> 4 == 2 // next: BTP-B
        && headers[5] == 0x50 // single-hop broadcast
        && headers[40..42] == 2001_u16.to_be_bytes();
    (is_cam && length == payload.len() + 4).then_some(payload)
}

/// Origin of the map: Aveiro, degrees north and east.
const ORIGIN_DEG: [f64; 2] = [40.64, -8.655];
/// Metres per degree of latitude (IUGG mean radius).
const METRES_PER_DEGREE: f64 = 111_195.0;

/// Latitude and longitude, in degrees, of a map position, in m.
pub fn to_degrees([x_m, y_m]: [f64; 2]) -> [f64; 2] {
    let [latitude, longitude] = ORIGIN_DEG;
    let longitude_scale = libm::cos(latitude * core::f64::consts::PI / 180.0);
    [latitude + y_m / METRES_PER_DEGREE, longitude + x_m / (METRES_PER_DEGREE * longitude_scale)]
}

fn tenth_microdegrees(degrees: f64) -> i32 {
    libm::round(degrees * 1e7) as i32
}

fn known(value: i32, unavailable: i32, per_unit: f64) -> Option<f64> {
    (value != unavailable).then(|| f64::from(value) / per_unit)
}

fn body(cam: &Cam, latitude: i32, longitude: i32) -> CAM {
    let unknown = SemiAxisLength(4095);
    let ellipse = PosConfidenceEllipse::new(unknown.clone(), unknown, HeadingValue(3601));
    let altitude = Altitude::new(AltitudeValue(800_001), AltitudeConfidence::unavailable);
    let position = ReferencePosition::new(Latitude(latitude), Longitude(longitude), ellipse, altitude);
    let high_frequency = match &cam.vehicle {
        Some(vehicle) => vehicle.high_frequency_container(),
        None => HighFrequencyContainer::rsuContainerHighFrequency(RSUContainerHighFrequency::new(None)),
    };
    let parameters = CamParameters::new(
        BasicContainer::new(StationType(cam.station_type), position),
        high_frequency,
        cam.vehicle.and_then(|vehicle| vehicle.low_frequency_container()),
        None,
    );
    CAM::new(
        ItsPduHeader::new(cam.protocol_version, 2, StationID(cam.station_id)),
        CoopAwareness::new(GenerationDeltaTime(cam.generation_delta_time), parameters),
    )
}

/// Headers of a single-hop broadcast, with integer coordinates:
/// `LongPositionVector::try_from_values` takes degrees as f32, with an error of
/// up to 0.4 m.
fn shb(cam: &Cam, latitude: i32, longitude: i32) -> Result<Packet<'static>, gn::Error> {
    let [a, b, c, d] = cam.station_id.to_be_bytes();
    let station_type = gn::StationType::try_from(cam.station_type).unwrap_or_default();
    let (heading, speed) = cam.vehicle.map_or((0, 0), |vehicle| vehicle.header_values());
    let source_position_vector = gn::LongPositionVector::try_new(
        // 02: a locally administered MAC address.
        gn::Address::new(false, station_type, [2, 0, a, b, c, d]),
        gn::Timestamp(cam.generation_delta_time.into()),
        latitude,
        longitude,
        false,
        speed,
        heading,
    )?;
    let lifetime = gn::Lifetime::from_milliseconds(1000);
    Ok(Packet::Unsecured {
        basic: gn::BasicHeader::try_new(1, gn::NextAfterBasic::CommonHeader, lifetime, 1)?,
        common: gn::CommonHeader::new(
            gn::NextAfterCommon::BTPB,
            gn::HeaderType::TopologicallyScopedBroadcast(gn::BroadcastType::SingleHop),
            gn::TrafficClass::try_new(false, false, 2)?,
            [false; 8],
            0,
            1,
        ),
        extended: Some(gn::ExtendedHeader::SHB(gn::SingleHopBroadcast {
            source_position_vector,
            media_dependent_data: [0; 4],
        })),
        payload: &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::cam_vehicle::{DriveDirection, LowFrequency, VehicleRole};

    fn unit() -> Cam {
        let [latitude, longitude] = to_degrees([120.0, -4.0]);
        Cam {
            protocol_version: 2,
            station_id: 1000,
            station_type: ROADSIDE_UNIT,
            generation_delta_time: 65_535,
            latitude_deg: Some(latitude),
            longitude_deg: Some(longitude),
            vehicle: None,
        }
    }

    /// A vehicle whose values are all known and in whole steps.
    fn car() -> Cam {
        let vehicle = Vehicle {
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
        Cam { station_id: 7, station_type: PASSENGER_CAR, vehicle: Some(vehicle), ..unit() }
    }

    #[test]
    fn a_cam_is_encoded_and_decoded_to_a_centimetre() -> Result<(), CamError> {
        let sent = unit();
        let frame = encode(&sent)?;
        assert_eq!(frame.len(), UNIT_BYTES as usize);
        let received = decode(&frame)?;
        assert_eq!(received.station_id, sent.station_id);
        assert_eq!(received.generation_delta_time, 65_535);
        assert_eq!((received.station_type, received.vehicle), (15, None));
        let error_deg = received.latitude_deg.zip(sent.latitude_deg).map(|(a, b)| (a - b).abs());
        assert!(error_deg.is_some_and(|degrees| degrees <= 0.51e-7));
        Ok(())
    }

    #[test]
    fn a_vehicles_cam_is_encoded_and_decoded_with_both_containers() -> Result<(), CamError> {
        let sent = car();
        let frame = encode(&sent)?;
        assert_eq!(frame.len(), VEHICLE_LOW_FREQUENCY_BYTES as usize);
        let received = decode(&frame)?;
        assert_eq!((received.station_id, received.station_type, received.vehicle), (7, 5, sent.vehicle));
        assert_eq!(i16::from_be_bytes([frame[32], frame[33]]), 1389, "speed in the GeoNetworking header");
        assert_eq!(u16::from_be_bytes([frame[34], frame[35]]), 2713, "heading in the GeoNetworking header");
        Ok(())
    }

    #[test]
    fn a_vehicles_cam_has_the_size_used_for_the_background() -> Result<(), CamError> {
        let unknown = Vehicle::forward(None, None);
        let frame = encode(&Cam { vehicle: Some(unknown), ..car() })?;
        assert_eq!(frame.len(), VEHICLE_BYTES as usize);
        assert_eq!(decode(&frame)?.vehicle, Some(unknown), "all unavailable");
        Ok(())
    }

    #[test]
    fn values_out_of_range_are_sent_as_the_nearest_in_range() -> Result<(), CamError> {
        let wild = |sign: f64| Vehicle {
            heading_deg: Some(sign * 359.96),
            speed_m_s: Some(sign * 1e9),
            length_m: Some(sign * 1e9),
            width_m: Some(sign * 1e9),
            acceleration_m_s2: Some(sign * 1e9),
            curvature_per_m: Some(sign * 1e9),
            yaw_rate_deg_s: Some(sign * f64::INFINITY),
            ..Vehicle::forward(None, None)
        };
        let range = |sign| decode(&encode(&Cam { vehicle: Some(wild(sign)), ..car() })?).map(|cam| cam.vehicle);
        let values = |vehicle: Vehicle| {
            let Vehicle { heading_deg, speed_m_s, length_m, width_m, .. } = vehicle;
            let Vehicle { acceleration_m_s2, curvature_per_m, yaw_rate_deg_s, .. } = vehicle;
            [heading_deg, speed_m_s, length_m, width_m, acceleration_m_s2, curvature_per_m, yaw_rate_deg_s]
        };
        let most = [0.0, 163.82, 102.2, 6.1, 16.0, 0.1022, 327.66].map(Some);
        let least = [0.0, 0.0, 0.1, 0.1, -16.0, -0.1023, -327.66].map(Some);
        assert_eq!((range(1.0)?.map(values), range(-1.0)?.map(values)), (Some(most), Some(least)));
        Ok(())
    }

    #[test]
    fn the_position_in_the_geonetworking_header_is_that_of_the_cam() -> Result<(), CamError> {
        let frame = encode(&unit())?;
        // Basic and common header, then address (8) and timestamp (4).
        let latitude = i32::from_be_bytes([frame[24], frame[25], frame[26], frame[27]]);
        let expected = to_degrees([120.0, -4.0])[0] * 1e7;
        assert!((f64::from(latitude) - expected).abs() <= 0.51);
        Ok(())
    }

    #[test]
    fn a_truncated_frame_is_an_error_and_a_flipped_bit_never_panics() -> Result<(), CamError> {
        for frame in [encode(&unit())?, encode(&car())?] {
            for length in 0..frame.len() {
                assert!(decode(&frame[..length]).is_err(), "{length} bytes");
            }
            for bit in 0..frame.len() * 8 {
                let mut broken = frame.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                if let Ok(read) = decode(&broken) {
                    drop(encode(&read));
                }
            }
        }
        Ok(())
    }
}
