//! A CAM as vanetza-nap takes it: JSON with the names of the standard's data elements and
//! physical units, without the ITS PDU header, which the on-board unit adds. A value that is
//! not available is the standard's number for that, unscaled.
//!
//! Names and units: the examples of vanetza-nap (`examples/in_cam.json`, September 2025) and
//! EN 302 637-2 v1.4.1 annex A.

use serde_json::{Value, json};

use crate::clock;
use crate::observe::Fix;

/// Topic of CAMs that the on-board unit shall send.
pub const TOPIC: &str = "vanetza/in/cam";

/// 2004-01-01T00:00:00 UTC, the origin of ITS timestamps, in ms since 1970.
const ITS_EPOCH_UNIX_MS: u64 = 1_072_915_200_000;
/// Leap seconds since 2004, which ITS timestamps count; none since 2017.
const LEAP_SECONDS_MS: u64 = 5_000;

/// Values for "unavailable" (TS 102 894-2).
mod unavailable {
    pub const HEADING: f64 = 3601.0;
    pub const SPEED: f64 = 16_383.0;
    pub const CONFIDENCE: u16 = 127;
}
/// Largest speed that is not "unavailable", in m/s.
const MAX_SPEED_M_S: f64 = 163.82;

/// A CAM with the high-frequency container, and the low-frequency one if asked for; `None`
/// without a position.
pub fn cam(fix: &Fix, station_type: u8, low_frequency: bool) -> Option<Value> {
    let position = fix.state.position?;
    let unix_ms = fix.unix_ms.unwrap_or_else(|| clock::unix_ns() / 1_000_000);
    let mut parameters = json!({
        "basicContainer": {
            "stationType": station_type,
            "referencePosition": {
                "latitude": position.latitude_deg,
                "longitude": position.longitude_deg,
                "positionConfidenceEllipse": {
                    "semiMajorAxisLength": 4095, "semiMinorAxisLength": 4095, "semiMajorAxisOrientation": 3601
                },
                "altitude": { "altitudeValue": 800_001, "altitudeConfidence": 15 },
            },
        },
        "highFrequencyContainer": { "basicVehicleContainerHighFrequency": high_frequency_container(fix) },
    });
    if low_frequency {
        parameters["lowFrequencyContainer"] = json!({ "basicVehicleContainerLowFrequency": low_frequency_container() });
    }
    Some(json!({ "generationDeltaTime": generation_delta_time(unix_ms), "camParameters": parameters }))
}

/// A receiver of satellites does not know whether the vehicle drives backward: the drive
/// direction is unavailable.
fn high_frequency_container(fix: &Fix) -> Value {
    let heading = fix.state.heading_deg.map_or(unavailable::HEADING, |degrees| degrees.rem_euclid(360.0));
    let speed = fix.state.speed_m_s.map_or(unavailable::SPEED, |speed| speed.clamp(0.0, MAX_SPEED_M_S));
    json!({
        "heading": { "headingValue": heading, "headingConfidence": unavailable::CONFIDENCE },
        "speed": { "speedValue": speed, "speedConfidence": unavailable::CONFIDENCE },
        "driveDirection": 2,
        "vehicleLength": { "vehicleLengthValue": 1023, "vehicleLengthConfidenceIndication": 4 },
        "vehicleWidth": 62,
        "longitudinalAcceleration": { "value": 161, "confidence": 102 },
        "curvature": { "curvatureValue": 1023, "curvatureConfidence": 7 },
        "curvatureCalculationMode": 2,
        "yawRate": { "yawRateValue": 32_767, "yawRateConfidence": 8 },
    })
}

fn low_frequency_container() -> Value {
    json!({
        "vehicleRole": 0,
        "exteriorLights": {
            "lowBeamHeadlightsOn": false, "highBeamHeadlightsOn": false, "leftTurnSignalOn": false,
            "rightTurnSignalOn": false, "daytimeRunningLightsOn": false, "reverseLightOn": false,
            "fogLightOn": false, "parkingLightsOn": false
        },
        "pathHistory": [],
    })
}

/// The ITS timestamp (ms since 2004 in TAI, TS 102 894-2) modulo 65,536.
fn generation_delta_time(unix_ms: u64) -> u64 {
    (unix_ms + LEAP_SECONDS_MS).saturating_sub(ITS_EPOCH_UNIX_MS) % 65_536
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_core::path::Position;
    use crosslane_core::path::VehicleState;

    fn fix() -> Fix {
        let position = Some(Position { latitude_deg: 40.6405, longitude_deg: -8.65375 });
        let state = VehicleState { position, heading_deg: Some(93.25), speed_m_s: Some(13.89) };
        Fix { state, unix_ms: Some(1_777_890_030_250) }
    }

    #[test]
    fn a_cam_states_position_heading_and_speed_in_physical_units() {
        let cam = cam(&fix(), 6, false).expect("a position");
        let parameters = &cam["camParameters"];
        let basic = &parameters["basicContainer"];
        assert_eq!((&basic["stationType"], &basic["referencePosition"]["latitude"]), (&json!(6), &json!(40.6405)));
        assert_eq!(basic["referencePosition"]["longitude"], json!(-8.65375));
        let high = &parameters["highFrequencyContainer"]["basicVehicleContainerHighFrequency"];
        assert_eq!((&high["heading"]["headingValue"], &high["speed"]["speedValue"]), (&json!(93.25), &json!(13.89)));
        assert_eq!(parameters.get("lowFrequencyContainer"), None);
        assert_eq!(cam.get("header"), None, "the on-board unit adds it");
    }

    #[test]
    fn the_low_frequency_container_is_added_when_due() {
        let cam = cam(&fix(), 5, true).expect("a position");
        let low = &cam["camParameters"]["lowFrequencyContainer"]["basicVehicleContainerLowFrequency"];
        assert_eq!((&low["vehicleRole"], &low["pathHistory"]), (&json!(0), &json!([])));
    }

    #[test]
    fn what_is_not_known_is_the_standards_number_for_unavailable() {
        let state = VehicleState { heading_deg: None, speed_m_s: None, ..fix().state };
        let cam = cam(&Fix { state, ..fix() }, 5, false).expect("a position");
        let high = &cam["camParameters"]["highFrequencyContainer"]["basicVehicleContainerHighFrequency"];
        assert_eq!((&high["heading"]["headingValue"], &high["speed"]["speedValue"]), (&json!(3601.0), &json!(16383.0)));
        let unknown = Fix { state: VehicleState::default(), ..fix() };
        assert_eq!(super::cam(&unknown, 5, false), None);
    }

    #[test]
    fn the_generation_time_counts_the_leap_seconds_since_2004() {
        // TS 102 894-2, DE_TimestampIts: 2007-01-01T00:00:00 UTC is 94,694,401,000 ms, one leap second later.
        // Since 2017 it is four more.
        assert_eq!(generation_delta_time(1_167_609_600_000), (94_694_401_000 + 4_000) % 65_536);
        assert_eq!(generation_delta_time(0), 0);
    }
}
