//! Trains of packets, by which it shows how fast a path is.

use super::*;
use crate::tunnel::send_path::TRAIN_PACKETS;
use crate::tunnel::wire::control_message::{Body, Message};

const NEAR_AND_FAR: [(f64, f64, f64); 2] = [(5.0, 5.0, 0.0), (100.0, 55.0, 0.0)];

/// Packets of trains that left the first end over each of two paths.
fn trains(bed: &Bed) -> [u32; 2] {
    let mut counts = [0; 2];
    for (output, _) in &bed.in_flight {
        if let Output::Tell { path, message: Message { body: Body::PacketTrain, is_initiator: true, .. }, .. } = output
        {
            counts[usize::from(path.0)] += 1;
        }
    }
    counts
}

#[test]
fn one_train_goes_over_each_of_paths_that_differ_in_delay() {
    let mut bed = Bed::new(Mode::Aggregate, &NEAR_AND_FAR);
    bed.run_until(Instant::from_millis(3000));
    bed.stream(1, 80.0, 6000);
    assert_eq!(trains(&bed), [TRAIN_PACKETS; 2]);
}

#[test]
fn no_train_goes_where_no_path_is_farther_or_the_mode_is_another() {
    let alike = [(5.0, 5.0, 0.0), (100.0, 15.0, 0.0)];
    let modes = [Mode::Standby, Mode::CheapestFirst, Mode::PerFlow, Mode::Redundant];
    let others = modes.map(|mode| (mode, NEAR_AND_FAR));
    for (mode, links) in [(Mode::Aggregate, alike)].into_iter().chain(others) {
        let mut bed = Bed::new(mode, &links);
        bed.stream(1, 2.0, 3000);
        assert_eq!(trains(&bed), [0, 0], "{mode:?}");
    }
}

#[test]
fn a_train_tells_the_rate_within_a_tenth() {
    let mut bed = Bed::new(Mode::Aggregate, &NEAR_AND_FAR);
    bed.run_until(Instant::from_millis(1000));
    for (path, (rate, ..)) in NEAR_AND_FAR.into_iter().enumerate() {
        let speed = bed.out(path as u8).speed_bytes_s().map_or(0.0, |bytes_s| bytes_s * 8.0 / 1e6);
        assert!((speed / rate - 1.0).abs() < 0.1, "{speed} of {rate} Mbit/s");
    }
}

/// It is 20 ms long on the slow path.
#[test]
fn the_queue_of_a_train_does_not_end_the_search_for_the_rate() {
    let mut bed = Bed::new(Mode::Aggregate, &NEAR_AND_FAR);
    bed.run_until(Instant::from_millis(1000));
    assert_eq!([0, 1].map(|path| bed.out(path).rate_bytes_s()), [None, None]);
}
