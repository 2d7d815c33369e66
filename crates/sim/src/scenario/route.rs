//! The route of a vehicle: straight legs from waypoint to waypoint.

use serde::Deserialize;

use super::ScenarioError;
use super::parse::Lines;
use super::schema::{number, optional_period};

/// Most waypoints of a route; for more there are mobility files.
pub const MAX_WAYPOINTS: usize = 1000;
/// Greatest speed, in km/h.
const MAX_SPEED_KMH: f64 = 500.0;

/// Straight legs, each driven at constant speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Where it begins, bends and ends, in m (2 to [`MAX_WAYPOINTS`]).
    pub waypoints_m: Vec<[f64; 2]>,
    /// Speed on each leg, in km/h (above 0, at most 500): one fewer than waypoints.
    pub speeds_kmh: Vec<f64>,
    /// How long the vehicle stands at each waypoint between, in s (0 to 3600).
    pub pause_s: f64,
}

/// The table as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteKeys {
    from_m: Option<[f64; 2]>,
    to_m: Option<[f64; 2]>,
    waypoints_m: Option<Vec<[f64; 2]>>,
    #[serde(default, deserialize_with = "optional_period::<_, 500>")]
    speed_kmh: Option<f64>,
    speeds_kmh: Option<Vec<f64>>,
    #[serde(default, deserialize_with = "number::<_, 0, 3600>")]
    pause_s: f64,
}

const KEY: &str = "vehicle.route";

impl Route {
    /// Key of a waypoint's position in the file, for errors, and what to call it.
    pub(super) fn place(&self, lines: &Lines, waypoint: usize) -> (String, String) {
        let key = format!("{KEY}.waypoints_m.{waypoint}");
        match waypoint {
            _ if lines.has(&key) => (key, format!("waypoint {}", waypoint + 1)),
            0 => (format!("{KEY}.from_m"), "the route's begin".into()),
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
                return Err(lines.error(KEY, what, "give both ends, or waypoints instead"));
            }
        };
        if !(2..=MAX_WAYPOINTS).contains(&waypoints_m.len()) {
            let what = format!("{} waypoints are not 2 to {MAX_WAYPOINTS}", waypoints_m.len());
            let remedy = "give as many, or a mobility file";
            return Err(lines.error(&format!("{KEY}.waypoints_m"), what, remedy));
        }
        let legs = waypoints_m.len() - 1;
        let speeds_kmh = match (self.speed_kmh, self.speeds_kmh) {
            (Some(speed_kmh), None) => vec![speed_kmh; legs],
            (None, Some(speeds_kmh)) => speeds_kmh,
            _ => {
                let what = "the route has not exactly one of `speed_kmh` and `speeds_kmh`";
                return Err(lines.error(KEY, what, "give one of them"));
            }
        };
        let key = format!("{KEY}.speeds_kmh");
        if speeds_kmh.len() != legs {
            let what = format!("`speeds_kmh` has {} speeds for {legs} legs", speeds_kmh.len());
            return Err(lines.error(&key, what, "give one speed for each leg"));
        }
        if let Some(speed) = speeds_kmh.iter().find(|speed| !(**speed > 0.0 && **speed <= MAX_SPEED_KMH)) {
            let what = format!("`speeds_kmh`: {speed} is not above 0 and up to {MAX_SPEED_KMH}");
            return Err(lines.error(&key, what, "choose a number that is"));
        }
        Ok(Route { waypoints_m, speeds_kmh, pause_s: self.pause_s })
    }
}
