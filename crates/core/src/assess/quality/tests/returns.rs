//! When a path that was left is entered again.

use alloc::vec::Vec;

use super::*;
use crate::path::{METRES_PER_DEGREE, Position, VehicleState};

impl Drive {
    /// A path over 802.11p that was left because a message stalled at −86 dBm.
    fn left(late_ms: u64) -> Drive {
        let mut drive = Drive::new(Rat::Ieee80211p, late_ms);
        for place in 0..60_u16 {
            drive.signal(-70.0 - f32::from(place.min(32)) / 2.0);
            drive.messages(100, 20);
        }
        drive.stall();
        drive
    }

    /// The oldest byte becomes too old.
    fn stall(&mut self) {
        self.sent += 1;
        (0..8).for_each(|_| self.step(1));
        assert_eq!(self.is(), (Belief::Stalled, "quality.age"));
        self.transport.delivered = self.sent;
        self.step(0);
    }

    /// Three seconds with signals of a unit that rise to this one, at 20 m/s with this heading: the unit is 400 m to the
    /// north.
    fn approach(&mut self, rssi_dbm: f32, heading_deg: f64) {
        let position = |latitude_deg| Some(Position { latitude_deg, longitude_deg: 8.0 });
        let (heading_deg, speed_m_s) = (Some(heading_deg), Some(20.0));
        let sender = position(40.0 + 400.0 / METRES_PER_DEGREE);
        for place in 0..30_u16 {
            self.now = self.now + Duration::from_millis(100);
            if place % 10 == 0 {
                self.observe(SampleKind::Vehicle(VehicleState { position: position(40.0), heading_deg, speed_m_s }));
            }
            let rssi_dbm = rssi_dbm - 2.0 + f32::from(place) * 2.0 / 29.0;
            self.observe(SampleKind::Signal(Signal { rssi_dbm, sender, ..Signal::default() }));
        }
    }
}

#[test]
fn towards_a_roadside_unit_returns_that_did_not_last_do_not_count() {
    for (heading_deg, late_ms, rssi_dbm, is) in [
        (0.0, 100, -88.3, (Belief::Good, "forecast.position")),
        (0.0, 100, -90.0, (Belief::Stalled, "quality.age")),
        (0.0, 30, -88.3, (Belief::Stalled, "quality.age")),
        (180.0, 100, -88.3, (Belief::Stalled, "quality.age")),
        (180.0, 100, -84.0, (Belief::Good, "quality.return")),
    ] {
        let mut drive = Drive::left(late_ms.max(60));
        drive.quality.late_ms = late_ms as f64;
        drive.quality.short_returns = MAX_SHORT;
        drive.step(0);
        drive.approach(rssi_dbm, heading_deg);
        assert_eq!(drive.is(), is, "{rssi_dbm} dBm, {heading_deg} degrees, {late_ms} ms");
    }
}

#[test]
fn the_reason_of_a_return_by_position_has_its_figures() {
    let mut drive = Drive::left(100);
    drive.quality.short_returns = MAX_SHORT;
    drive.approach(-88.3, 0.0);
    let (_, reason) = drive.quality.belief();
    let names: Vec<&str> = reason.inputs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["rssi_dbm", "level_dbm", "distance_m", "closing_m_s"]);
    assert!((380.0..=400.1).contains(&reason.inputs[2].1), "{reason:?}");
    assert!((reason.inputs[3].1 - 20.0).abs() < 0.1, "{reason:?}");
}

#[test]
fn a_position_that_delivery_contradicts_says_nothing_until_a_return_lasts() {
    let mut drive = Drive::left(100);
    drive.quality.short_returns = MAX_SHORT;
    for vain in 0..MAX_VAIN {
        drive.approach(-88.3, 0.0);
        assert_eq!(drive.is(), (Belief::Good, "forecast.position"), "after {vain}");
        drive.stall();
    }
    for _ in 0..20 {
        drive.approach(-88.3, 0.0);
    }
    assert_eq!(drive.is().0, Belief::Stalled, "it is ahead all the time, and nothing is delivered");
    drive.approach(-70.0, 0.0);
    assert_eq!(drive.is(), (Belief::Good, "quality.return"));
    for _ in 0..40 {
        drive.signal(-70.0);
        drive.messages(100, 20);
    }
    drive.stall();
    drive.quality.short_returns = MAX_SHORT;
    drive.approach(-86.0, 0.0);
    assert_eq!(drive.is(), (Belief::Good, "forecast.position"));
}

/// The greatest signal, in steps of 0.5 dB, at which the path is not entered again.
fn highest_refused(short_returns: u32, late_ms: u64) -> f32 {
    let is_refused = |rssi_dbm: f32| {
        let mut drive = Drive::left(late_ms.max(60));
        drive.quality.late_ms = late_ms as f64;
        drive.quality.short_returns = short_returns;
        drive.step(0);
        for _ in 0..40 {
            drive.now = drive.now + Duration::from_millis(100);
            drive.signal(rssi_dbm);
        }
        drive.is().0 != Belief::Good
    };
    (140..200).map(|half_db| -0.5 * half_db as f32).find(|dbm| is_refused(*dbm)).unwrap_or(0.0)
}

#[test]
fn a_path_that_delivered_is_entered_below_its_level_and_each_short_return_asks_for_more() {
    let level = -86.0;
    assert!((highest_refused(0, 100) - (level - 4.5)).abs() < 0.6, "{}", highest_refused(0, 100));
    assert!((highest_refused(4, 100) - (level - 2.5)).abs() < 0.6, "{}", highest_refused(4, 100));
    assert!(highest_refused(0, 30) > -83.0, "a late message cannot be saved: {}", highest_refused(0, 30));
}

#[test]
fn a_path_over_which_nothing_was_delivered_is_entered_at_the_sensitivity_of_its_radio() {
    for (rssi_dbm, is) in [(-83.0, (Belief::Fading, "quality.signal")), (-81.5, (Belief::Good, "quality.return"))] {
        let mut drive = Drive::new(Rat::Ieee80211p, 100);
        for _ in 0..20 {
            drive.now = drive.now + Duration::from_millis(100);
            drive.signal(rssi_dbm);
        }
        assert_eq!(drive.is(), is, "{rssi_dbm} dBm");
    }
}
