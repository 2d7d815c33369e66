//! Rejects fixes that contradict those before: a receiver may be wrong, or be deceived.

use std::time::Duration;

use crosslane_core::path::Position;
use crosslane_core::time::Instant;

use super::super::Fix;

/// Faster than any vehicle on roads and rails, in m/s.
const MAX_SPEED_M_S: f64 = 200.0;
/// Distance that errors of two positions explain, in m: the first fixes of a receiver, and houses that reflect.
const MARGIN_M: f64 = 500.0;
/// Time by which a report may be older than the one before: of two receivers, in ms.
const MAX_STEP_BACK_MS: u64 = 1000;
/// Rejected fixes that agree with each other for this time are right, and those before were not.
const CONFIRMATION: Duration = Duration::from_secs(10);

/// What was accepted last, and what was rejected since.
#[derive(Debug, Default)]
pub struct Plausibility {
    accepted: Option<Known>,
    /// The first and the last of rejected fixes that agree with each other.
    rejected: Option<(Known, Known)>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    at: Instant,
    position: Position,
    unix_ms: Option<u64>,
}

impl Plausibility {
    /// Accepts a fix.
    ///
    /// # Errors
    /// Why it is rejected.
    pub fn admit(&mut self, now: Instant, fix: &Fix) -> Result<(), String> {
        let Some(position) = fix.state.position else { return Ok(()) };
        let known = Known { at: now, position, unix_ms: fix.unix_ms };
        let Some(cause) = self.accepted.and_then(|before| before.contradiction(known)) else {
            (self.accepted, self.rejected) = (Some(known), None);
            return Ok(());
        };
        let agrees = |(_, last): &(Known, Known)| last.contradiction(known).is_none();
        let first = self.rejected.filter(agrees).map_or(known, |(first, _)| first);
        if now.since(first.at) >= CONFIRMATION {
            (self.accepted, self.rejected) = (Some(known), None);
            return Ok(());
        }
        self.rejected = Some((first, known));
        Err(cause)
    }
}

impl Known {
    fn contradiction(self, later: Known) -> Option<String> {
        if let (Some(before_ms), Some(now_ms)) = (self.unix_ms, later.unix_ms)
            && now_ms + MAX_STEP_BACK_MS < before_ms
        {
            return Some(format!("its time runs backwards by {:.1} s", (before_ms - now_ms) as f64 / 1e3));
        }
        let (distance_m, elapsed_s) = (self.position.distance_m(later.position), later.at.since(self.at).as_secs_f64());
        let is_far = distance_m > MARGIN_M + MAX_SPEED_M_S * elapsed_s;
        is_far.then(|| format!("the position jumps by {:.1} km within {elapsed_s:.1} s", distance_m / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use crosslane_core::path::VehicleState;

    use super::*;

    const START_MS: u64 = 1_777_890_030_250;

    /// A fix 100 ms after the one before, this far to the north.
    fn fix(number: u64, north_km: f64) -> (Instant, Fix) {
        let position = Some(Position { latitude_deg: 40.0 + north_km / 111.195, longitude_deg: -8.65 });
        let state = VehicleState { position, ..VehicleState::default() };
        (Instant::ZERO + Duration::from_millis(100 * number), Fix { state, unix_ms: Some(START_MS + 100 * number) })
    }

    #[test]
    fn a_fast_vehicle_is_plausible_and_so_is_one_that_leaves_a_tunnel_or_a_ferry() {
        let mut plausibility = Plausibility::default();
        for (number, north_km) in [(0, 0.0), (1, 0.01), (2, 0.02), (3, 0.5), (2000, 35.0), (36_000, 700.0)] {
            let (now, fix) = fix(number, north_km);
            assert_eq!(plausibility.admit(now, &fix), Ok(()), "{number}");
        }
    }

    #[test]
    fn a_position_that_jumps_is_rejected_until_it_is_confirmed() {
        let mut plausibility = Plausibility::default();
        let mut admit = |number, north_km| {
            let (now, fix) = fix(number, north_km);
            plausibility.admit(now, &fix)
        };
        assert_eq!(admit(0, 0.0), Ok(()));
        assert_eq!(admit(1, 100.0), Err("the position jumps by 100.0 km within 0.1 s".into()));
        assert_eq!(admit(2, 0.0), Ok(()), "the former place again");
        for number in 3..103 {
            assert!(admit(number, 100.0).is_err(), "{number}");
        }
        assert_eq!((admit(103, 100.0), admit(104, 100.0)), (Ok(()), Ok(())), "for 10 s");
        for number in 105..400 {
            let north_km = if number % 2 == 0 { 300.0 } else { 500.0 };
            assert!(admit(number, north_km).is_err(), "positions that contradict each other confirm nothing");
        }
    }

    #[test]
    fn time_that_runs_backwards_is_rejected_and_two_receivers_are_not() {
        let mut plausibility = Plausibility::default();
        let mut admit = |number: u64, unix_ms: Option<u64>| {
            let (now, fix) = fix(number, 0.0);
            plausibility.admit(now, &Fix { unix_ms, ..fix })
        };
        assert_eq!(admit(0, Some(START_MS)), Ok(()));
        assert_eq!(admit(1, Some(START_MS - 900)), Ok(()), "the other receiver");
        assert_eq!(admit(2, Some(START_MS)), Ok(()));
        assert_eq!(admit(3, Some(START_MS - 86_400_000)), Err("its time runs backwards by 86400.0 s".into()));
        assert_eq!(admit(4, None), Ok(()), "without a time");
        assert_eq!(admit(5, Some(START_MS + 60_000)), Ok(()));
    }

    #[test]
    fn a_report_without_a_position_contradicts_nothing() {
        let mut plausibility = Plausibility::default();
        let none = Fix { state: VehicleState::default(), unix_ms: None };
        let (now, fix) = fix(0, 0.0);
        assert_eq!((plausibility.admit(now, &fix), plausibility.admit(now, &none)), (Ok(()), Ok(())));
    }
}
