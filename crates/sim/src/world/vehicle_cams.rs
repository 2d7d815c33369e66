//! The vehicle's own CAMs on one radio, and the RSUs that receive them.

use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, Position, VehicleState};
use crosslane_core::rng::Rng;
use crosslane_core::roadside::cam_generation::{CHECK_INTERVAL, CamDue, CamGeneration, Input};
use crosslane_core::time::{Duration, Instant};

use crate::radio::cam::{self, Cam, CamError};
use crate::radio::cam_vehicle::{LowFrequency, Vehicle, VehicleRole};
use crate::radio::fading;

/// A transmitted CAM of the vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct VehicleCam {
    /// Transmission time.
    pub at: Instant,
    /// First path of the radio.
    pub path: PathId,
    /// Station id of the vehicle.
    pub station: u32,
    /// Position, heading and speed of the vehicle.
    pub state: VehicleState,
    /// True if it has a low-frequency container.
    pub low_frequency: bool,
    /// Time for which it occupied the channel.
    pub air_time: Duration,
    /// The RSUs that received it: path and RSSI there, in dBm.
    pub received: Vec<(PathId, f64)>,
}

impl VehicleCam {
    /// Size of the frame, in bytes.
    pub(super) fn bytes(due: CamDue) -> u32 {
        if due.low_frequency { cam::VEHICLE_LOW_FREQUENCY_BYTES } else { cam::VEHICLE_BYTES }
    }

    /// The frame, starting with the GeoNetworking header.
    ///
    /// # Errors
    /// The position of the vehicle is not known or has no valid latitude and longitude.
    pub fn frame(&self) -> Result<Vec<u8>, CamError> {
        let VehicleState { position, heading_deg, speed_m_s } = self.state;
        let low_frequency = LowFrequency { role: VehicleRole::default, exterior_lights: 0 };
        let vehicle = Vehicle {
            low_frequency: self.low_frequency.then_some(low_frequency),
            ..Vehicle::forward(heading_deg, speed_m_s)
        };
        cam::encode(&Cam {
            protocol_version: 2,
            station_id: self.station,
            station_type: cam::PASSENGER_CAR,
            generation_delta_time: (self.at.as_nanos() / 1_000_000 % 65_536) as u16,
            latitude_deg: position.map(|position| position.latitude_deg),
            longitude_deg: position.map(|position| position.longitude_deg),
            vehicle: Some(vehicle),
        })
    }
}

/// The vehicle as the sender of CAMs on one radio.
#[derive(Debug)]
pub(super) struct VehicleSender {
    generation: CamGeneration,
    pub(super) station: u32,
    /// Random numbers of the reception at each RSU.
    receivers: Vec<Rng>,
}

impl VehicleSender {
    /// The checks begin at a random phase, so vehicles are not synchronized.
    pub(super) fn new<'a>(seed: u64, radio: &str, units: impl Iterator<Item = &'a str>, station: u32) -> VehicleSender {
        let phase = CHECK_INTERVAL.mul_f64(Rng::new(seed, &format!("vehicle cam phase {radio}")).uniform());
        VehicleSender {
            generation: CamGeneration::new(Instant::ZERO + phase),
            station,
            receivers: units.map(|unit| Rng::new(seed, &format!("vehicle cam {unit}"))).collect(),
        }
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        self.generation.next_wakeup()
    }

    /// Checks whether a CAM is due.
    pub(super) fn check(&mut self, now: Instant, state: VehicleState) -> Option<CamDue> {
        self.generation.handle(now, Input::State(state));
        self.generation.poll(now)
    }

    /// RSSI of a frame at an RSU, in dBm; none if it is lost there. `m` is Nakagami's, and
    /// `loss` the probability of loss at an RSSI.
    pub(super) fn receive(&mut self, unit: usize, mean_dbm: f64, m: f64, loss: impl Fn(f64) -> f64) -> Option<f64> {
        let rng = self.receivers.get_mut(unit)?;
        let rssi_dbm = mean_dbm + fading::gain_db(rng, m);
        (rng.uniform() >= loss(rssi_dbm)).then_some(rssi_dbm)
    }
}

/// The state that a CAM reports, of a position on the map in m.
pub(super) fn vehicle_state(position_m: [f64; 2], heading_deg: Option<f64>, speed_m_s: f64) -> VehicleState {
    let [latitude_deg, longitude_deg] = cam::to_degrees(position_m);
    VehicleState { position: Some(Position { latitude_deg, longitude_deg }), heading_deg, speed_m_s: Some(speed_m_s) }
}
