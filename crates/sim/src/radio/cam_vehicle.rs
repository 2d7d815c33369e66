//! The containers of a vehicle's CAM (EN 302 637-2 v1.4.1 clause 7.2, annex B; values:
//! TS 102 894-2 v1.3.1). A value out of its range is sent as the nearest one in it.

use c_its_parser::standards::cam_1_4_1::cam_pdu_descriptions::{
    BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, HighFrequencyContainer,
    LowFrequencyContainer,
};
use c_its_parser::standards::cdd_1_3_1_1::its_container::{
    AccelerationConfidence, Curvature, CurvatureCalculationMode, CurvatureConfidence, CurvatureValue, ExteriorLights,
    Heading, HeadingConfidence, HeadingValue, LongitudinalAcceleration, LongitudinalAccelerationValue, PathHistory,
    Speed, SpeedConfidence, SpeedValue, VehicleLength, VehicleLengthConfidenceIndication, VehicleLengthValue,
    VehicleWidth, YawRate, YawRateConfidence, YawRateValue,
};
pub use c_its_parser::standards::cdd_1_3_1_1::its_container::{DriveDirection, VehicleRole};

/// What a vehicle's CAM says of the vehicle; none: unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vehicle {
    /// Heading, in degrees clockwise from north, in steps of 0.1.
    pub heading_deg: Option<f64>,
    /// Speed, in m/s (0 to 163.82), in steps of 0.01.
    pub speed_m_s: Option<f64>,
    /// Drive direction.
    pub drive_direction: DriveDirection,
    /// Length, in m (0.1 to 102.2), in steps of 0.1.
    pub length_m: Option<f64>,
    /// Width, in m (0.1 to 6.1), in steps of 0.1.
    pub width_m: Option<f64>,
    /// Longitudinal acceleration, in m/s² (−16 to 16), in steps of 0.1.
    pub acceleration_m_s2: Option<f64>,
    /// Curvature, in 1/m (−0.1023 to 0.1022; positive: to the left), in steps of 0.0001.
    pub curvature_per_m: Option<f64>,
    /// Yaw rate, in °/s (−327.66 to 327.66; positive: to the left), in steps of 0.01.
    pub yaw_rate_deg_s: Option<f64>,
    /// Low-frequency container, if the CAM has one.
    pub low_frequency: Option<LowFrequency>,
}

/// The low-frequency container. It is sent with an empty path history; a received one
/// is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowFrequency {
    /// Role.
    pub role: VehicleRole,
    /// Exterior lights that are on; bit 0 of the standard (low beam) is the highest bit.
    pub exterior_lights: u8,
}

/// Steps per unit, range and value for "unavailable" of a data element.
struct Element {
    per_unit: f64,
    range: [i32; 2],
    unavailable: i32,
}

const HEADING: Element = Element { per_unit: 10.0, range: [0, 3600], unavailable: 3601 };
const SPEED: Element = Element { per_unit: 100.0, range: [0, 16_382], unavailable: 16_383 };
const LENGTH: Element = Element { per_unit: 10.0, range: [1, 1022], unavailable: 1023 };
const WIDTH: Element = Element { per_unit: 10.0, range: [1, 61], unavailable: 62 };
const ACCELERATION: Element = Element { per_unit: 10.0, range: [-160, 160], unavailable: 161 };
const CURVATURE: Element = Element { per_unit: 10_000.0, range: [-1023, 1022], unavailable: 1023 };
const YAW_RATE: Element = Element { per_unit: 100.0, range: [-32_766, 32_766], unavailable: 32_767 };

impl Element {
    fn encode(&self, value: Option<f64>) -> i32 {
        let [least, most] = self.range;
        value.map_or(self.unavailable, |value| (libm::round(value * self.per_unit) as i32).clamp(least, most))
    }

    fn decode(&self, value: i32) -> Option<f64> {
        (value != self.unavailable).then(|| f64::from(value) / self.per_unit)
    }
}

impl Vehicle {
    /// A vehicle that drives forward at this heading (degrees clockwise from north) and
    /// speed (m/s), of which nothing else is known.
    pub fn forward(heading_deg: Option<f64>, speed_m_s: Option<f64>) -> Vehicle {
        Vehicle {
            heading_deg,
            speed_m_s,
            drive_direction: DriveDirection::forward,
            length_m: None,
            width_m: None,
            acceleration_m_s2: None,
            curvature_per_m: None,
            yaw_rate_deg_s: None,
            low_frequency: None,
        }
    }

    /// Heading in 0.1° and speed in 0.01 m/s for the GeoNetworking header, which has no
    /// value for "unavailable": 0 (EN 302 636-4-1 clause 9.5.2).
    pub(super) fn header_values(&self) -> (u16, i16) {
        (self.heading().unwrap_or(0), SPEED.encode(Some(self.speed_m_s.unwrap_or(0.0))) as i16)
    }

    /// Heading in 0.1° (0 to 3599).
    fn heading(&self) -> Option<u16> {
        self.heading_deg.map(|deg| libm::round(deg * 10.0).rem_euclid(3600.0) as u16)
    }

    pub(super) fn high_frequency_container(&self) -> HighFrequencyContainer {
        let mode = match self.curvature_per_m {
            Some(_) => CurvatureCalculationMode::yawRateUsed,
            None => CurvatureCalculationMode::unavailable,
        };
        let acceleration = LongitudinalAccelerationValue(ACCELERATION.encode(self.acceleration_m_s2) as i16);
        HighFrequencyContainer::basicVehicleContainerHighFrequency(BasicVehicleContainerHighFrequency::new(
            Heading::new(HeadingValue(self.heading().unwrap_or(HEADING.unavailable as u16)), HeadingConfidence(127)),
            Speed::new(SpeedValue(SPEED.encode(self.speed_m_s) as u16), SpeedConfidence(127)),
            self.drive_direction,
            VehicleLength::new(
                VehicleLengthValue(LENGTH.encode(self.length_m) as u16),
                VehicleLengthConfidenceIndication::unavailable,
            ),
            VehicleWidth(WIDTH.encode(self.width_m) as u8),
            LongitudinalAcceleration::new(acceleration, AccelerationConfidence(102)),
            Curvature::new(
                CurvatureValue(CURVATURE.encode(self.curvature_per_m) as i16),
                CurvatureConfidence::unavailable,
            ),
            mode,
            YawRate::new(YawRateValue(YAW_RATE.encode(self.yaw_rate_deg_s) as i16), YawRateConfidence::unavailable),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
        ))
    }

    pub(super) fn low_frequency_container(&self) -> Option<LowFrequencyContainer> {
        let LowFrequency { role, exterior_lights } = self.low_frequency?;
        let mut lights = ExteriorLights::default();
        for light in 0..8 {
            lights.0.set(light, exterior_lights & 0x80 >> light != 0);
        }
        let container = BasicVehicleContainerLowFrequency::new(role, lights, PathHistory(Vec::new()));
        Some(LowFrequencyContainer::basicVehicleContainerLowFrequency(container))
    }

    /// The vehicle of decoded containers; none if the sender is not a vehicle.
    pub(super) fn decode(high: &HighFrequencyContainer, low: Option<&LowFrequencyContainer>) -> Option<Vehicle> {
        let HighFrequencyContainer::basicVehicleContainerHighFrequency(high) = high else { return None };
        let low_frequency = low.and_then(|low| match low {
            LowFrequencyContainer::basicVehicleContainerLowFrequency(low) => {
                let lit = |light: usize| u8::from(low.exterior_lights.0[light]) << (7 - light);
                Some(LowFrequency { role: low.vehicle_role, exterior_lights: (0..8).map(lit).sum() })
            }
            _ => None,
        });
        let acceleration = &high.longitudinal_acceleration.longitudinal_acceleration_value;
        Some(Vehicle {
            heading_deg: HEADING.decode(high.heading.heading_value.0.into()),
            speed_m_s: SPEED.decode(high.speed.speed_value.0.into()),
            drive_direction: high.drive_direction,
            length_m: LENGTH.decode(high.vehicle_length.vehicle_length_value.0.into()),
            width_m: WIDTH.decode(high.vehicle_width.0.into()),
            acceleration_m_s2: ACCELERATION.decode(acceleration.0.into()),
            curvature_per_m: CURVATURE.decode(high.curvature.curvature_value.0.into()),
            yaw_rate_deg_s: YAW_RATE.decode(high.yaw_rate.yaw_rate_value.0.into()),
            low_frequency,
        })
    }
}
