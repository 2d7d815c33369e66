//! When a vehicle sends a CAM (ETSI EN 302 637-2 v1.4.1, clause 6.1.3).
//!
//! The engine checks the vehicle's state every [`CHECK_INTERVAL`]. A CAM is due if the
//! DCC interval has elapsed since the last one and
//!
//! 1. the state has changed: heading, position or speed by more than a threshold; or
//! 2. T_GenCam has elapsed.
//!
//! Condition 1 sets T_GenCam to the time elapsed since the last CAM. After
//! [`N_GEN_CAM`] consecutive CAMs by condition 2 it is [`T_GEN_CAM_MAX`] again.

use crate::engine::Engine;
use crate::path::VehicleState;
use crate::time::{Duration, Instant};

/// T_GenCamMin: the shortest interval between two CAMs.
pub const T_GEN_CAM_MIN: Duration = Duration::from_millis(100);
/// T_GenCamMax: the longest interval between two CAMs.
pub const T_GEN_CAM_MAX: Duration = Duration::from_millis(1000);
/// T_CheckCamGen: the period of the checks; at most [`T_GEN_CAM_MIN`].
pub const CHECK_INTERVAL: Duration = T_GEN_CAM_MIN;
/// N_GenCam: default and maximum.
pub const N_GEN_CAM: u8 = 3;
/// The shortest interval between two CAMs with a low-frequency container.
pub const LOW_FREQUENCY_INTERVAL: Duration = Duration::from_millis(500);

/// Condition 1: thresholds of the changes since the last CAM.
const HEADING_CHANGE_DEG: f64 = 4.0;
const POSITION_CHANGE_M: f64 = 4.0;
const SPEED_CHANGE_M_S: f64 = 0.5;

/// An input of [`CamGeneration`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// The vehicle's state now. A value that is not known triggers no CAM, and without a position none is due: it is
    /// mandatory in the message and its header.
    State(VehicleState),
    /// T_GenCam_Dcc, as decentralized congestion control sets it; limited to
    /// [`T_GEN_CAM_MIN`] … [`T_GEN_CAM_MAX`]. The default is the minimum.
    DccInterval(Duration),
}

/// A CAM is due, with the state of the last input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CamDue {
    /// True if the CAM has a low-frequency container.
    pub low_frequency: bool,
}

/// The generation rules of a vehicle's CAM, an engine.
#[derive(Clone, Debug)]
pub struct CamGeneration {
    state: VehicleState,
    next_check: Instant,
    /// Time and state of the last CAM.
    last: Option<(Instant, VehicleState)>,
    last_low_frequency: Option<Instant>,
    t_gen_cam: Duration,
    dcc_interval: Duration,
    /// Consecutive CAMs by condition 2.
    by_time: u8,
}

impl CamGeneration {
    /// Rules whose first check is at `start`.
    pub fn new(start: Instant) -> CamGeneration {
        CamGeneration {
            state: VehicleState::default(),
            next_check: start,
            last: None,
            last_low_frequency: None,
            t_gen_cam: T_GEN_CAM_MAX,
            dcc_interval: T_GEN_CAM_MIN,
            by_time: 0,
        }
    }

    /// Checks the conditions, and applies their effect on T_GenCam.
    fn is_due(&mut self, now: Instant) -> bool {
        let Some((at, sent)) = self.last else { return true };
        let elapsed = now.since(at);
        if elapsed < self.dcc_interval {
            return false;
        }
        if self.state.has_changed_since(&sent) {
            self.t_gen_cam = elapsed.min(T_GEN_CAM_MAX);
            self.by_time = 0;
            return true;
        }
        if elapsed < self.t_gen_cam {
            return false;
        }
        self.by_time = (self.by_time + 1).min(N_GEN_CAM);
        if self.by_time == N_GEN_CAM {
            self.t_gen_cam = T_GEN_CAM_MAX;
        }
        true
    }
}

impl Engine for CamGeneration {
    type Input = Input;
    type Output = CamDue;

    fn handle(&mut self, _now: Instant, input: Input) {
        match input {
            Input::State(state) => self.state = state,
            Input::DccInterval(interval) => self.dcc_interval = interval.clamp(T_GEN_CAM_MIN, T_GEN_CAM_MAX),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<CamDue> {
        if now < self.next_check {
            return None;
        }
        self.next_check = now + CHECK_INTERVAL;
        if self.state.position.is_none() || !self.is_due(now) {
            return None;
        }
        self.last = Some((now, self.state));
        let low_frequency = self.last_low_frequency.is_none_or(|at| now.since(at) >= LOW_FREQUENCY_INTERVAL);
        if low_frequency {
            self.last_low_frequency = Some(now);
        }
        Some(CamDue { low_frequency })
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Some(self.next_check)
    }
}

impl VehicleState {
    /// Condition 1.
    fn has_changed_since(&self, sent: &VehicleState) -> bool {
        let above = |pair: Option<(f64, f64)>, change: fn(f64, f64) -> f64, threshold| {
            pair.is_some_and(|(now, before)| libm::fabs(change(now, before)) > threshold)
        };
        let moved =
            self.position.zip(sent.position).is_some_and(|(now, before)| now.distance_m(before) > POSITION_CHANGE_M);
        moved
            || above(self.heading_deg.zip(sent.heading_deg), turn_deg, HEADING_CHANGE_DEG)
            || above(self.speed_m_s.zip(sent.speed_m_s), |now, before| now - before, SPEED_CHANGE_M_S)
    }
}

/// The shorter turn from one angle to another, in degrees (−180 to 180).
fn turn_deg(to: f64, from: f64) -> f64 {
    let turn = libm::fmod(to - from, 360.0);
    turn - 360.0 * libm::round(turn / 360.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{METRES_PER_DEGREE, Position};
    use alloc::vec::Vec;

    fn state(north_m: f64, heading_deg: f64, speed_m_s: f64) -> VehicleState {
        let position = Position { latitude_deg: 40.0 + north_m / METRES_PER_DEGREE, longitude_deg: -8.0 };
        VehicleState { position: Some(position), heading_deg: Some(heading_deg), speed_m_s: Some(speed_m_s) }
    }

    /// The CAMs of a drive, polled every 10 ms: time in ms, with low-frequency container.
    fn cams(rules: &mut CamGeneration, end_ms: u64, state: impl Fn(u64) -> VehicleState) -> Vec<(u64, bool)> {
        let mut cams = Vec::new();
        for ms in (0..=end_ms).step_by(10) {
            let now = Instant::from_millis(ms);
            rules.handle(now, Input::State(state(ms)));
            while let Some(cam) = rules.poll(now) {
                cams.push((ms, cam.low_frequency));
            }
        }
        cams
    }

    fn times(end_ms: u64, state: impl Fn(u64) -> VehicleState) -> Vec<u64> {
        cams(&mut CamGeneration::new(Instant::ZERO), end_ms, state).into_iter().map(|(ms, _)| ms).collect()
    }

    #[test]
    fn a_stopped_vehicle_sends_once_a_second() {
        assert_eq!(times(3500, |_| state(0.0, 90.0, 0.0)), [0, 1000, 2000, 3000]);
    }

    #[test]
    fn a_turn_of_more_than_four_degrees_triggers() {
        let turned = |to| times(900, move |ms| state(0.0, if ms < 250 { 90.0 } else { to }, 10.0));
        assert_eq!((turned(94.0), turned(86.0)), ([0].into(), [0].into()));
        assert_eq!((turned(94.1)[..2].to_vec(), turned(85.9)[..2].to_vec()), ([0, 300].into(), [0, 300].into()));
    }

    #[test]
    fn the_heading_wraps_around_at_north() {
        let turned = |from, to| times(900, move |ms| state(0.0, if ms < 250 { from } else { to }, 10.0));
        assert_eq!((turned(358.5, 1.5), turned(1.5, 358.5), turned(0.0, 360.0)), ([0].into(), [0].into(), [0].into()));
        assert_eq!((turned(358.0, 2.5)[1], turned(2.5, 358.0)[1]), (300, 300));
    }

    #[test]
    fn a_movement_of_more_than_four_metres_triggers() {
        let moved = |m| times(900, move |ms| state(if ms < 250 { 0.0 } else { m }, 0.0, 10.0));
        assert_eq!(moved(3.99), [0]);
        assert_eq!((moved(4.01)[1], moved(-4.01)[1]), (300, 300));
    }

    #[test]
    fn a_movement_is_measured_across_the_antimeridian_and_by_latitude() {
        let at = |latitude_deg, longitude_deg| Position { latitude_deg, longitude_deg };
        let east_m = at(60.0, -179.99999).distance_m(at(60.0, 179.99999));
        assert!((east_m - 2e-5 * METRES_PER_DEGREE / 2.0).abs() < 1e-3, "{east_m}");
    }

    #[test]
    fn a_change_of_speed_of_more_than_half_a_metre_a_second_triggers() {
        let changed = |to| times(900, move |ms| state(0.0, 0.0, if ms < 250 { 10.0 } else { to }));
        assert_eq!((changed(10.5), changed(9.5)), ([0].into(), [0].into()));
        assert_eq!((changed(10.51)[1], changed(9.49)[1]), (300, 300));
    }

    #[test]
    fn changes_add_up_since_the_last_cam_and_not_since_the_last_check() {
        // 4.2 m in 300 ms.
        assert_eq!(times(1000, |ms| state(ms as f64 * 0.014, 0.0, 14.0)), [0, 300, 600, 900]);
    }

    #[test]
    fn no_two_cams_are_closer_than_the_shortest_interval() {
        assert_eq!(times(350, |ms| state(ms as f64, 0.0, 0.0)), [0, 100, 200, 300]);
    }

    #[test]
    fn congestion_control_holds_back_a_cam_of_either_condition() {
        let mut rules = CamGeneration::new(Instant::ZERO);
        rules.handle(Instant::ZERO, Input::DccInterval(Duration::from_millis(400)));
        let moving = |ms: u64| state(if ms < 900 { ms as f64 } else { 900.0 }, 0.0, 0.0);
        let sent: Vec<u64> = cams(&mut rules, 1700, moving).into_iter().map(|(ms, _)| ms).collect();
        // The last one is by time: T_GenCam is 400 ms.
        assert_eq!(sent, [0, 400, 800, 1200, 1600]);
        rules.handle(Instant::ZERO, Input::DccInterval(Duration::from_secs(9)));
        assert_eq!(rules.dcc_interval, T_GEN_CAM_MAX);
        rules.handle(Instant::ZERO, Input::DccInterval(Duration::ZERO));
        assert_eq!(rules.dcc_interval, T_GEN_CAM_MIN);
    }

    #[test]
    fn the_interval_of_a_change_is_kept_for_three_cams_and_returns_to_a_second() {
        // One change of the speed, seen at 200 ms.
        let sent = times(3500, |ms| state(0.0, 0.0, if ms < 150 { 0.0 } else { 1.0 }));
        assert_eq!(sent, [0, 200, 400, 600, 800, 1800, 2800]);
    }

    #[test]
    fn a_change_between_begins_the_count_again() {
        let speed = |ms| {
            if ms < 150 {
                0.0
            } else if ms < 750 {
                1.0
            } else {
                2.0
            }
        };
        let sent = times(3000, |ms| state(0.0, 0.0, speed(ms)));
        // Changes at 200 and 800 ms, each followed by three more at 200 ms.
        assert_eq!(sent, [0, 200, 400, 600, 800, 1000, 1200, 1400, 2400]);
    }

    #[test]
    fn the_low_frequency_container_comes_first_and_then_after_half_a_second() {
        let fast = cams(&mut CamGeneration::new(Instant::ZERO), 1200, |ms| state(ms as f64, 0.0, 0.0));
        let with: Vec<u64> = fast.iter().filter(|(_, low_frequency)| *low_frequency).map(|(ms, _)| *ms).collect();
        assert_eq!((fast.len(), with), (13, [0, 500, 1000].into()));
        let slow = cams(&mut CamGeneration::new(Instant::ZERO), 1200, |ms| state(ms as f64 * 0.014, 0.0, 0.0));
        assert_eq!(slow, [(0, true), (300, false), (600, true), (900, false), (1200, true)]);
    }

    #[test]
    fn without_a_position_nothing_is_sent_until_there_is_one() {
        let at =
            |ms| VehicleState { position: state(0.0, 0.0, 0.0).position.filter(|_| ms >= 750), ..state(0.0, 0.0, 0.0) };
        assert_eq!(times(2000, at), [800, 1800]);
        let lost = |ms| VehicleState {
            position: state(0.0, 0.0, 0.0).position.filter(|_| !(500..1750).contains(&ms)),
            ..state(0.0, 0.0, 0.0)
        };
        assert_eq!(times(2500, lost), [0, 1800]);
    }

    #[test]
    fn unknown_heading_and_speed_trigger_nothing() {
        let at = |ms| {
            let known = state(0.0, 0.0, 0.0);
            if ms < 250 { VehicleState { heading_deg: None, speed_m_s: None, ..known } } else { state(0.0, 90.0, 9.0) }
        };
        assert_eq!(times(900, at), [0]);
    }
}
