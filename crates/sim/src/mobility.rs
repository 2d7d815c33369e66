//! Where the vehicle is.

use crate::columns::{self, Column};
use crate::scenario::{Motion, Route, Scenario, ScenarioError};

/// Where the vehicle is, and how fast it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Position, in m.
    pub position_m: [f64; 2],
    /// Speed, in m/s.
    pub speed_m_s: f64,
}

/// A way over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    points: Vec<TrackPoint>,
}

/// A point of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackPoint {
    /// When the vehicle is there, in s since it began to move.
    pub t_s: f64,
    /// Where, in m.
    pub position_m: [f64; 2],
}

const COLUMNS: [Column; 3] = [
    Column { name: "t_s", range: [0.0, 1e6], required: true },
    Column { name: "x_m", range: [-1e7, 1e7], required: true },
    Column { name: "y_m", range: [-1e7, 1e7], required: true },
];

impl Track {
    /// Reads a mobility file, `t_s,x_m,y_m`.
    pub fn parse(text: &str, file: &str) -> Result<Track, ScenarioError> {
        let rows = columns::read(text, file, &COLUMNS)?;
        let number = |cell: Option<f64>| cell.unwrap_or(0.0);
        let points = rows.iter().map(|row| TrackPoint {
            t_s: number(row.cells[0]),
            position_m: [number(row.cells[1]), number(row.cells[2])],
        });
        Ok(Track { points: points.collect() })
    }

    /// The way along a route.
    pub fn along(route: &Route) -> Track {
        let mut points: Vec<TrackPoint> = Vec::new();
        let legs = route.waypoints_m.windows(2).zip(&route.speeds_kmh);
        for (leg, speed_kmh) in legs {
            let begin_s = points.last().map_or(0.0, |point| point.t_s + route.pause_s);
            if points.is_empty() || route.pause_s > 0.0 {
                points.push(TrackPoint { t_s: begin_s, position_m: leg[0] });
            }
            let length_m = distance_m(leg[0], leg[1]);
            points.push(TrackPoint { t_s: begin_s + length_m / (speed_kmh / 3.6), position_m: leg[1] });
        }
        Track { points }
    }

    /// The vehicle's way in a scenario, [resolved](Scenario::resolve) if it
    /// names a file.
    pub fn of(scenario: &Scenario) -> Option<Track> {
        match &scenario.vehicle.motion {
            Motion::Route(route) => Some(Track::along(route)),
            Motion::Mobility(_) => scenario.data.mobility.clone(),
        }
    }

    /// The points, in order.
    pub fn points(&self) -> &[TrackPoint] {
        &self.points
    }

    /// Where the vehicle is `t_s` after it began to move: on the straight line
    /// between two points, at rest before the first and after the last.
    pub fn at(&self, t_s: f64) -> State {
        let after = self.points.partition_point(|point| point.t_s <= t_s);
        let at_rest = |position_m| State { position_m, speed_m_s: 0.0 };
        match (self.points.get(after.wrapping_sub(1)), self.points.get(after)) {
            (Some(from), Some(to)) => {
                let span_s = to.t_s - from.t_s;
                let share = (t_s - from.t_s) / span_s;
                let [x0, y0] = from.position_m;
                let [x1, y1] = to.position_m;
                State {
                    position_m: [x0 + share * (x1 - x0), y0 + share * (y1 - y0)],
                    speed_m_s: distance_m(from.position_m, to.position_m) / span_s,
                }
            }
            (Some(point), None) | (None, Some(point)) => at_rest(point.position_m),
            (None, None) => at_rest([0.0, 0.0]),
        }
    }
}

/// Distance of two positions, in m.
pub fn distance_m([x0, y0]: [f64; 2], [x1, y1]: [f64; 2]) -> f64 {
    libm::hypot(x1 - x0, y1 - y0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(waypoints_m: &[[f64; 2]], speeds_kmh: &[f64], pause_s: f64) -> Route {
        Route { waypoints_m: waypoints_m.to_vec(), speeds_kmh: speeds_kmh.to_vec(), pause_s }
    }

    #[test]
    fn a_route_is_driven_at_its_speed_and_ends_at_its_end() {
        let track = Track::along(&route(&[[0.0, 0.0], [30.0, 40.0]], &[36.0], 9.0));
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
            let state = Track::along(&route(&corner, &[36.0, 72.0], pause_s)).at(t_s);
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
        let track = Track::along(&route(&[[3.0, 4.0], [3.0, 4.0]], &[50.0], 0.0));
        for t_s in [0.0, 1.0] {
            assert_eq!(track.at(t_s).position_m, [3.0, 4.0]);
        }
    }

    #[test]
    fn a_mobility_file_needs_every_cell() {
        let good = Track::parse("t_s,y_m,x_m\n0,1,2\n10,1,12\n", "m.csv");
        assert_eq!(good.map(|track| track.at(5.0).position_m), Ok([7.0, 1.0]));
        let bad = Track::parse("t_s,x_m,y_m\n0,1,2\n1,,2\n", "m.csv");
        assert!(bad.is_err_and(|error| error.line == Some(3) && error.what.contains("blank")));
    }
}
