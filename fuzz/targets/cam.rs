//! Messages of roadside units: as UPER, in a radio's frame and as JSON of an on-board unit. Reports of gpsd.

use std::collections::BTreeMap;

use crosslane::observe::vanetza::{self, Senders};
use crosslane::observe::{gpsd, radiotap};
use crosslane_core::path::{PathId, SampleKind};
use crosslane_sim::radio::cam;

/// Reads one message in each format.
pub fn run(bytes: &[u8]) {
    let senders = Senders {
        stations: BTreeMap::from([(1001, PathId(0))]),
        paths: BTreeMap::from([("lte".into(), PathId(1))]),
        has_units: false,
    };
    match vanetza::read(bytes, &senders) {
        Ok(sample) => {
            let SampleKind::Signal(signal) = sample.kind else { panic!("{sample:?}") };
            assert!((-120.0..=0.0).contains(&signal.rssi_dbm) && sample.path.0 <= 1);
        }
        Err(cause) => assert!(!cause.to_string().is_empty()),
    }
    if let Ok(Some(fix)) = gpsd::read(bytes) {
        let place = fix.state.position;
        assert!(place.is_none_or(|at| at.latitude_deg.abs() <= 90.0 && at.longitude_deg.abs() <= 180.0), "{fix:?}");
        assert!(fix.state.heading_deg.is_none_or(|heading| (0.0..=360.0).contains(&heading)), "{fix:?}");
    }
    if let Some(received) = radiotap::read(bytes) {
        assert!((-120.0..=0.0).contains(&received.rssi_dbm), "{received:?}");
    }
    match cam::decode(bytes) {
        Ok(read) => {
            // A message that can be encoded again has the same content.
            if let Ok(encoded) = cam::encode(&read)
                && let Ok(same) = cam::decode(&encoded)
            {
                assert_eq!(
                    (same.station_id, same.generation_delta_time),
                    (read.station_id, read.generation_delta_time)
                );
            }
        }
        Err(cause) => assert!(!cause.to_string().is_empty()),
    }
}
