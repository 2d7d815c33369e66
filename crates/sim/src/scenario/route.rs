//! The route of a vehicle: straight legs from waypoint to waypoint.

use serde::Deserialize;

use super::ScenarioError;
use super::schema::{number, period};
use super::source_map::Lines;
use crate::input::mobility::{Track, TrackPoint, distance_m};

/// Maximum number of waypoints of a route; a mobility file may have more.
pub const MAX_WAYPOINTS: usize = 1000;
/// Maximum speed, in km/h.
const MAX_SPEED_KMH: f64 = 500.0;

/// Straight legs, each driven at constant speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Start, corners and end, in m (2 to [`MAX_WAYPOINTS`]).
    pub waypoints_m: Vec<[f64; 2]>,
    /// Speed on each leg, in km/h (above 0, at most 500).
    pub speeds_kmh: Vec<f64>,
    /// Pause at each intermediate waypoint, in s (0 to 3600).
    pub pause_s: f64,
}

/// The table in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteKeys {
    from_m: Option<[f64; 2]>,
    to_m: Option<[f64; 2]>,
    waypoints_m: Option<Vec<[f64; 2]>>,
    #[serde(default, deserialize_with = "period::<_, _, 500>")]
    speed_kmh: Option<f64>,
    speeds_kmh: Option<Vec<f64>>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 3600>")]
    pause_s: f64,
}

const KEY: &str = "vehicle.route";

impl Route {
    /// The track along the route.
    pub fn track(&self) -> Track {
        let mut points: Vec<TrackPoint> = Vec::new();
        let legs = self.waypoints_m.windows(2).zip(&self.speeds_kmh);
        for (leg, speed_kmh) in legs {
            let begin_s = points.last().map_or(0.0, |point| point.t_s + self.pause_s);
            if points.is_empty() || self.pause_s > 0.0 {
                points.push(TrackPoint { t_s: begin_s, position_m: leg[0] });
            }
            let length_m = distance_m(leg[0], leg[1]);
            points.push(TrackPoint { t_s: begin_s + length_m / (speed_kmh / 3.6), position_m: leg[1] });
        }
        Track { points }
    }

    /// Key of a waypoint's position in the file, and its name in errors.
    pub(super) fn place(&self, lines: &Lines, waypoint: usize) -> (String, String) {
        let key = format!("{KEY}.waypoints_m.{waypoint}");
        match waypoint {
            _ if lines.has(&key) => (key, format!("waypoint {}", waypoint + 1)),
            0 => (format!("{KEY}.from_m"), "the route's start".into()),
            _ => (format!("{KEY}.to_m"), "the route's end".into()),
        }
    }
}

impl RouteKeys {
    pub(super) fn build(self, lines: &Lines) -> Result<Route, ScenarioError> {
        let waypoints_m = match (self.from_m, self.to_m, self.waypoints_m) {
            (Some(from_m), Some(to_m), None) => vec![from_m, to_m],
            (None, None, Some(waypoints_m)) => waypoints_m,
            _ => {
                let what = "the route is not given by either both `from_m` and `to_m` or `waypoints_m`";
                return Err(lines.error(KEY, what, "give both positions, or waypoints instead"));
            }
        };
        let what = format!("{} waypoints are not 2 to {MAX_WAYPOINTS}", waypoints_m.len());
        let remedy = "change their number, or use a mobility file";
        let ok = (2..=MAX_WAYPOINTS).contains(&waypoints_m.len());
        lines.require(ok, &format!("{KEY}.waypoints_m"), what, remedy)?;
        let legs = waypoints_m.len() - 1;
        let speeds_kmh = match (self.speed_kmh, self.speeds_kmh) {
            (Some(speed_kmh), None) => vec![speed_kmh; legs],
            (None, Some(speeds_kmh)) => speeds_kmh,
            _ => {
                let what = "the route does not have exactly one of `speed_kmh` and `speeds_kmh`";
                return Err(lines.error(KEY, what, "give one of them"));
            }
        };
        let key = format!("{KEY}.speeds_kmh");
        let what = format!("`speeds_kmh` has {} speeds for {legs} legs", speeds_kmh.len());
        lines.require(speeds_kmh.len() == legs, &key, what, "give one speed for each leg")?;
        for &speed in &speeds_kmh {
            let what = format!("`speeds_kmh`: {speed} is not above 0 and up to {MAX_SPEED_KMH}");
            lines.require(speed > 0.0 && speed <= MAX_SPEED_KMH, &key, what, "choose a number in this range")?;
        }
        Ok(Route { waypoints_m, speeds_kmh, pause_s: self.pause_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(waypoints_m: &[[f64; 2]], speeds_kmh: &[f64], pause_s: f64) -> Route {
        Route { waypoints_m: waypoints_m.to_vec(), speeds_kmh: speeds_kmh.to_vec(), pause_s }
    }

    #[test]
    fn a_route_is_driven_at_its_speed_and_ends_at_its_end() {
        let track = route(&[[0.0, 0.0], [30.0, 40.0]], &[36.0], 9.0).track();
        assert_eq!(track.at(2.5).position_m, [15.0, 20.0]);
        assert_eq!(track.at(2.5).speed_m_s, 10.0);
        for (t_s, position_m) in [(-1.0, [0.0, 0.0]), (6.0, [30.0, 40.0])] {
            let state = track.at(t_s);
            assert_eq!((state.position_m, state.speed_m_s), (position_m, 0.0));
        }
    }

    #[test]
    fn a_route_bends_at_its_waypoints_where_speed_changes_and_the_vehicle_pauses() {
        let corner = [[0.0, 0.0], [100.0, 0.0], [100.0, 40.0]];
        let at = |pause_s: f64, t_s: f64| {
            let state = route(&corner, &[36.0, 72.0], pause_s).track().at(t_s);
            (state.position_m, state.speed_m_s)
        };
        assert_eq!(at(0.0, 5.0), ([50.0, 0.0], 10.0));
        assert_eq!(at(0.0, 11.0), ([100.0, 20.0], 20.0));
        assert_eq!(at(0.0, 12.5), ([100.0, 40.0], 0.0));
        assert_eq!(at(3.0, 12.0), ([100.0, 0.0], 0.0));
        assert_eq!(at(3.0, 14.0), ([100.0, 20.0], 20.0));
    }

    #[test]
    fn a_route_of_no_length_is_a_vehicle_at_rest() {
        let track = route(&[[3.0, 4.0], [3.0, 4.0]], &[50.0], 0.0).track();
        for t_s in [0.0, 1.0] {
            assert_eq!(track.at(t_s).position_m, [3.0, 4.0]);
        }
    }
}
