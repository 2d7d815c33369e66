//! How the vehicle moves, seen from the roadside unit of a path, and through the cells of its modem.
//!
//! The position of the unit is that in its last CAM, that of the vehicle comes from its
//! satellite receiver: until the next fix it moves on at its speed and heading.

use crate::path::{Position, VehicleState};
use crate::time::{Duration, Instant};

/// A fix older than this says nothing: receivers report at least once a second.
const STALE_FIX: Duration = Duration::from_secs(3);
/// A vehicle that comes closer more slowly does not approach, in m/s.
const MIN_CLOSING_M_S: f64 = 2.0;

/// A handover that was announced lasts at most this time: 92 % begin within 250 ms of the report, and
/// end within 100 ms more (A. Hassan et al., SIGCOMM 2022).
const HANDOVER: Duration = Duration::from_millis(350);
/// For so long after a handover what waited during it, or was acknowledged then, arrives.
const SETTLING: Duration = Duration::from_millis(100);

/// The last handover that the modem of a path announced: when, and until when it lasts at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handover(Option<[Instant; 2]>);

impl Handover {
    /// Processes a report of the modem. One that repeats an announcement does not prolong the handover.
    pub(crate) fn on_report(&mut self, at: Instant, is_announced: bool) {
        match (&mut self.0, is_announced) {
            (Some([_, until]), true) if at < *until => {}
            (last, true) => *last = Some([at, at + HANDOVER]),
            (Some([_, until]), false) => *until = (*until).min(at + SETTLING),
            (None, false) => {}
        }
    }

    /// Whether packets wait, or soon will.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        self.0.is_some_and(|[_, until]| now < until)
    }

    /// When it was announced.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.0.map(|[since, _]| since)
    }

    /// Until when it lasts at most.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.0.map(|[_, until]| until)
    }
}

/// The last fix of the vehicle, and the position of the unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Motion {
    fix: Option<Fix>,
    unit: Option<Position>,
}

/// Position, and metres a second to the north and the east.
#[derive(Clone, Copy, Debug)]
struct Fix {
    at: Instant,
    position: Position,
    velocity: [f64; 2],
}

impl Motion {
    /// Processes what the satellite receiver reports; without position, heading and speed it tells nothing.
    pub(super) fn on_fix(&mut self, now: Instant, state: &VehicleState) {
        let motion = state.heading_deg.zip(state.speed_m_s);
        self.fix = state.position.zip(motion).map(|(position, (heading_deg, speed_m_s))| {
            let (sin, cos) = libm::sincos(heading_deg.to_radians());
            Fix { at: now, position, velocity: [speed_m_s * cos, speed_m_s * sin] }
        });
    }

    /// Processes the position that a message of the unit states.
    pub(super) fn on_message(&mut self, sender: Option<Position>) {
        self.unit = sender;
    }

    /// Distance to the unit in m, and how fast it falls in m/s; `None`: it does not, or is not known.
    pub(super) fn approach(&self, now: Instant) -> Option<(f64, f64)> {
        let fix = self.fix.filter(|fix| now.since(fix.at) < STALE_FIX)?;
        let [north_m, east_m] = fix.position.metres_to(self.unit?);
        let elapsed_s = now.since(fix.at).as_secs_f64();
        let [to_north, to_east] = fix.velocity;
        let (north_m, east_m) = (north_m - to_north * elapsed_s, east_m - to_east * elapsed_s);
        let distance_m = libm::hypot(north_m, east_m);
        let closing_m_s = (north_m * to_north + east_m * to_east) / distance_m.max(1.0);
        (closing_m_s >= MIN_CLOSING_M_S).then_some((distance_m, closing_m_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::METRES_PER_DEGREE;

    /// A vehicle at 20 m/s with this heading, and a unit so far to the north and the east of it.
    fn motion(heading_deg: Option<f64>, [north_m, east_m]: [f64; 2]) -> Motion {
        let position = Position { latitude_deg: 60.0, longitude_deg: 10.0 };
        let mut motion = Motion::default();
        motion.on_fix(Instant::ZERO, &VehicleState { position: Some(position), heading_deg, speed_m_s: Some(20.0) });
        motion.on_message(Some(Position {
            latitude_deg: 60.0 + north_m / METRES_PER_DEGREE,
            longitude_deg: 10.0 + east_m / METRES_PER_DEGREE * 2.0,
        }));
        motion
    }

    fn approach(motion: &Motion, at_ms: u64) -> Option<[i64; 2]> {
        let found = motion.approach(Instant::from_millis(at_ms));
        found.map(|(distance_m, closing_m_s)| [distance_m, closing_m_s].map(|value| libm::round(value) as i64))
    }

    #[test]
    fn a_vehicle_moves_on_from_its_last_fix_for_three_seconds() {
        let east = motion(Some(90.0), [0.0, 300.0]);
        assert_eq!(approach(&east, 0), Some([300, 20]));
        assert_eq!(approach(&east, 2500), Some([250, 20]));
        assert_eq!(approach(&east, 3000), None, "an old fix");
    }

    #[test]
    fn only_a_vehicle_that_comes_closer_approaches() {
        for (heading_deg, expected) in [
            (Some(0.0), Some([500, 16])),
            (Some(36.87), Some([500, 20])),
            (Some(150.0), None),
            (Some(180.0), None),
            (None, None),
        ] {
            assert_eq!(approach(&motion(heading_deg, [400.0, 300.0]), 0), expected, "{heading_deg:?}");
        }
        assert_eq!(approach(&motion(Some(90.0), [0.0, 0.0]), 0), None, "at the unit");
        assert_eq!(approach(&motion(Some(90.0), [0.0, 10.0]), 1000), None, "past it");
    }

    #[test]
    fn reports_that_are_repeated_do_not_prolong_a_handover() {
        let (mut handover, at) = (Handover::default(), Instant::from_millis);
        handover.on_report(at(0), false);
        assert_eq!(handover.until(), None, "none was announced");
        for ms in [0, 100, 300] {
            handover.on_report(at(ms), true);
        }
        assert_eq!([handover.lasts(at(349)), handover.lasts(at(350))], [true, false]);
        handover.on_report(at(400), true);
        handover.on_report(at(450), false);
        handover.on_report(at(500), false);
        assert_eq!([handover.lasts(at(549)), handover.lasts(at(550))], [true, false]);
        assert_eq!(handover.since(), Some(at(400)));
    }

    #[test]
    fn without_a_fix_or_a_position_in_the_message_nothing_is_known() {
        let mut known = motion(Some(90.0), [0.0, 300.0]);
        known.on_message(None);
        assert_eq!(approach(&known, 0), None);
        let mut known = motion(Some(90.0), [0.0, 300.0]);
        known.on_fix(Instant::ZERO, &VehicleState::default());
        assert_eq!(approach(&known, 0), None);
    }
}
