//! The decoder of CAMs takes any bytes, and what it reads it can write again.

use crosslane_sim::radio::cam::{self, Cam};
use crosslane_sim::radio::cam_vehicle::{LowFrequency, Vehicle, VehicleRole};
use proptest::prelude::*;

/// The frame of a roadside unit, or of a vehicle.
fn frame(of_vehicle: bool, low_frequency: bool) -> Vec<u8> {
    let vehicle = Vehicle {
        low_frequency: low_frequency.then_some(LowFrequency { role: VehicleRole::default, exterior_lights: 0 }),
        ..Vehicle::forward(Some(93.2), Some(13.89))
    };
    let message = Cam {
        protocol_version: 2,
        station_id: 1001,
        station_type: if of_vehicle { cam::PASSENGER_CAR } else { cam::ROADSIDE_UNIT },
        generation_delta_time: 5,
        latitude_deg: Some(41.0),
        longitude_deg: Some(-8.0),
        vehicle: of_vehicle.then_some(vehicle),
    };
    cam::encode(&message).unwrap_or_default()
}

/// Whether the bytes are a CAM. One that is, and that can be written, reads the same again.
fn is_read(bytes: &[u8]) -> Result<bool, TestCaseError> {
    let Ok(read) = cam::decode(bytes) else { return Ok(false) };
    if let Ok(written) = cam::encode(&read) {
        prop_assert_eq!(cam::decode(&written).ok(), Some(read));
    }
    Ok(true)
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        is_read(&bytes)?;
    }

    #[test]
    fn a_frame_with_changed_bytes_or_cut_short_is_read_or_refused(
        of_vehicle: bool,
        low_frequency: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut bytes = frame(of_vehicle, low_frequency);
        prop_assert!(is_read(&bytes)?);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len()));
        }
        is_read(&bytes)?;
    }
}
