//! An authenticated vehicle with false reports.

use super::*;
use crate::tunnel::wire::control_message::{Body, PathReport};

/// Two paths with a delay difference of 60 ms, so that trains are sent on both.
const PATHS: [(f64, f64, f64); 2] = [(20.0, 5.0, 0.0), (20.0, 65.0, 0.0)];

fn reports(message: &mut Message) -> impl Iterator<Item = &mut PathReport> {
    match &mut message.body {
        Body::Report { paths, .. } => paths.iter_mut(),
        _ => [].iter_mut(),
    }
}

/// The gateway sends to a vehicle with these false reports for two seconds.
fn run_with(tamper: fn(&mut Message)) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &PATHS);
    testbed.tamper = tamper;
    testbed.endpoints[1].probe_mtu_up_to(1500);
    for ms in 0..2000 {
        for flow in [1, 2] {
            testbed.bulk = flow == 1;
            testbed.offer_at(1, flow);
        }
        testbed.run_until(Instant::from_millis(ms));
    }
    for path in [PathId(0), PathId(1)] {
        let passes = testbed.endpoints[1].passes_bytes(path);
        assert!(passes.is_some_and(|bytes| (576..=1500).contains(&bytes)), "{path:?} passes {passes:?} bytes");
    }
    testbed
}

#[test]
fn false_reports_stop_no_flow() {
    run_with(|message| reports(message).for_each(|report| report.bytes = 0));
    run_with(|message| reports(message).for_each(|report| report.arrival_us = 0));
    run_with(|message| reports(message).for_each(|report| report.bytes = report.bytes.wrapping_mul(1 << 24)));
    run_with(|message| reports(message).for_each(|report| report.arrival_us = report.arrival_us.wrapping_mul(1 << 24)));
    run_with(|message| reports(message).for_each(|report| report.missing = vec![(report.highest.wrapping_sub(7), 8)]));
}
