//! Packet trains, which estimate a path's rate.

use super::*;
use crate::link::jitter::JitterParams;
use crate::tunnel::send_path::TRAIN_PACKETS;
use crate::tunnel::wire::control_message::{Body, Message};

const LOW_AND_HIGH_DELAY: [(f64, f64, f64); 2] = [(5.0, 5.0, 0.0), (100.0, 55.0, 0.0)];

/// Packets of trains that the first endpoint sent on each of two paths.
fn trains(testbed: &Testbed) -> [u32; 2] {
    let mut counts = [0; 2];
    for (output, _) in &testbed.in_flight {
        if let Output::Message { path, message: Message { body: Body::PacketTrain, is_initiator: true, .. }, .. } =
            output
        {
            counts[usize::from(path.0)] += 1;
        }
    }
    counts
}

#[test]
fn one_train_is_sent_on_each_of_several_paths() {
    let mut testbed = Testbed::new(Mode::Aggregate, &LOW_AND_HIGH_DELAY);
    testbed.run_until(Instant::from_millis(3000));
    testbed.stream(1, 80.0, 6000);
    assert_eq!(trains(&testbed), [TRAIN_PACKETS; 2]);
}

#[test]
fn no_train_is_sent_on_a_single_path_or_in_another_mode() {
    let modes = [Mode::Standby, Mode::CheapestFirst, Mode::PerFlow, Mode::Redundant];
    let others = modes.map(|mode| (mode, &LOW_AND_HIGH_DELAY[..]));
    for (mode, links) in [(Mode::Aggregate, &LOW_AND_HIGH_DELAY[..1])].into_iter().chain(others) {
        let mut testbed = Testbed::new(mode, links);
        testbed.stream(1, 2.0, 3000);
        assert_eq!(trains(&testbed), [0, 0], "{mode:?}");
    }
}

#[test]
fn a_train_estimates_the_rate_within_a_tenth() {
    let mut testbed = Testbed::new(Mode::Aggregate, &LOW_AND_HIGH_DELAY);
    testbed.run_until(Instant::from_millis(1000));
    for (path, (rate, ..)) in LOW_AND_HIGH_DELAY.into_iter().enumerate() {
        let speed = testbed.sender(path as u8).estimated_bytes_s().map_or(0.0, |bytes_s| bytes_s * 8.0 / 1e6);
        assert!((speed / rate - 1.0).abs() < 0.1, "{speed} of {rate} Mbit/s");
    }
}

/// The train takes 20 ms on the slow path.
#[test]
fn the_queue_of_a_train_does_not_end_slow_start() {
    let mut testbed = Testbed::new(Mode::Aggregate, &LOW_AND_HIGH_DELAY);
    testbed.run_until(Instant::from_millis(1000));
    assert_eq!([0, 1].map(|path| testbed.sender(path).rate.bytes_s()), [None, None]);
}

/// Its packets overtake each other before the peer knows that the path reorders.
#[test]
fn what_a_train_loses_says_nothing_about_the_path() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(36.8, 3.0, 0.0), (2.0, 79.0, 0.0)]);
    testbed.links[0].set_jitter(3, "jitter", JitterParams { share: 1.0, most: Duration::from_millis(16) });
    testbed.run_until(Instant::from_millis(1000));
    let counts = &testbed.sender(0).counts;
    assert!(counts.lost > 0 && counts.recent_loss < 0.02, "{} lost, {}", counts.lost, counts.recent_loss);
}
