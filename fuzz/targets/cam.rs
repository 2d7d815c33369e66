//! Messages of roadside units: as UPER and as JSON of an on-board unit.

use std::collections::BTreeMap;

use crosslane::observe::vanetza::{self, Senders};
use crosslane_core::path::{PathId, SampleKind};
use crosslane_sim::radio::cam;

/// Reads one message in both formats.
pub fn run(bytes: &[u8]) {
    let senders =
        Senders { stations: BTreeMap::from([(1001, PathId(0))]), paths: BTreeMap::from([("lte".into(), PathId(1))]) };
    match vanetza::read(bytes, &senders) {
        Ok(sample) => {
            let SampleKind::Signal(signal) = sample.kind else { panic!("{sample:?}") };
            assert!((-120.0..=0.0).contains(&signal.rssi_dbm) && sample.path.0 <= 1);
        }
        Err(cause) => assert!(!cause.to_string().is_empty()),
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
