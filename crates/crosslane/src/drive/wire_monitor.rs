//! What each wire delivers over time: the kernel shapes a wire, so its packets are
//! counted and not recorded.

use std::sync::atomic::{AtomicBool, Ordering};

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::record::metrics::THROUGHPUT_BIN_NS;
use crosslane_sim::record::rows::ThroughputRow;

use crate::clock::Clock;
use crate::error::Result;
use crate::testbed::Testbed;

/// Reads the counters of the wires until `stop`; `names` are those of the paths.
pub fn monitor(testbed: &Testbed, names: &[String], clock: Clock, stop: &AtomicBool) -> Result<Vec<ThroughputRow>> {
    let mut rows = Vec::new();
    let mut before = vec![[0; 2]; testbed.wires.len()];
    let mut begin = Instant::ZERO;
    while !testbed.wires.is_empty() && !stop.load(Ordering::Relaxed) {
        let end = begin + Duration::from_nanos(THROUGHPUT_BIN_NS);
        std::thread::sleep(end.since(clock.now()));
        for (wire, before) in testbed.wires.iter().zip(&mut before) {
            let path = names.iter().position(|name| *name == wire.name).unwrap_or_default();
            let counts = wire.counts()?.map(|count| count.delivered_bytes);
            for (direction, (now, before)) in Direction::BOTH.into_iter().zip(counts.into_iter().zip(before)) {
                let ip_bytes = now.saturating_sub(std::mem::replace(before, now));
                let (t_ns, path) = (begin.as_nanos(), PathId(path as u8));
                let row = ThroughputRow { t_ns, path, direction, ip_bytes, payload_bytes: 0, reinjected_bytes: 0 };
                rows.extend((ip_bytes > 0).then_some(row));
            }
        }
        begin = end;
    }
    Ok(rows)
}
