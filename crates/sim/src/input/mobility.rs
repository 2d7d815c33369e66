//! Where the vehicle is, or each of many.

use std::collections::BTreeMap;

use crate::input::numeric_csv::{self, Column, Row, fault};
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

/// Most vehicles in a mobility file: each has its links and its transport.
pub const MAX_VEHICLES: usize = 10_000;
/// Most rows of a mobility file: 2,000 vehicles, 30 minutes, a row a second.
const MAX_ROWS: usize = 4_000_000;

const COLUMNS: [Column; 4] = [
    Column { name: "t_s", range: [0.0, 1e6], required: true },
    Column { name: "vehicle", range: [0.0, 4e9], required: false },
    Column { name: "x_m", range: [-1e7, 1e7], required: true },
    Column { name: "y_m", range: [-1e7, 1e7], required: true },
];

impl Track {
    /// Reads a mobility file, `t_s,x_m,y_m` or `t_s,vehicle,x_m,y_m`: the way
    /// of each vehicle by its number, which is 0 where the file names none.
    pub fn parse(text: &str, file: &str) -> Result<BTreeMap<u32, Track>, ScenarioError> {
        let mut tracks: BTreeMap<u32, Track> = BTreeMap::new();
        let mut before: Option<Option<u32>> = None;
        numeric_csv::each(text, file, &COLUMNS, MAX_ROWS, |row| {
            let vehicle = number(&row).map_err(|(what, remedy)| fault(file, row.line, what, remedy))?;
            let same = before == Some(vehicle);
            let blank = before.is_some_and(|before| before.is_some() != vehicle.is_some());
            before = Some(vehicle);
            let track = tracks.entry(vehicle.unwrap_or(0)).or_insert(Track { points: Vec::new() });
            add(track, &row, same && !blank).map_err(|(what, remedy)| fault(file, row.line, what, remedy))?;
            match tracks.len() {
                _ if blank => Err(fault(file, row.line, "`vehicle` is blank in some rows", "number every row")),
                0..=MAX_VEHICLES => Ok(()),
                _ => {
                    let what = format!("more than {MAX_VEHICLES} vehicles");
                    Err(fault(file, row.line, what, "split the file"))
                }
            }
        })?;
        Ok(tracks)
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

/// The vehicle's number in a row; none if the cell is blank or not there.
fn number(row: &Row<4>) -> Result<Option<u32>, (String, &'static str)> {
    let Some(number) = row.cells[1] else { return Ok(None) };
    if number != libm::floor(number) {
        return Err((format!("`vehicle` is {number}"), "number the vehicles with whole numbers from 0"));
    }
    Ok(Some(number as u32))
}

/// Takes a row into its vehicle's way; `same` if the row before was of the same
/// vehicle.
fn add(track: &mut Track, row: &Row<4>, same: bool) -> Result<(), (String, &'static str)> {
    let cell = |place: usize| row.cells[place].unwrap_or(0.0);
    let point = TrackPoint { t_s: cell(0), position_m: [cell(2), cell(3)] };
    let Some(last) = track.points.last() else {
        track.points.push(point);
        return Ok(());
    };
    if !same {
        let what = format!("vehicle {} comes a second time", cell(1));
        return Err((what, "sort the rows by `vehicle`, then by `t_s`"));
    }
    if point.t_s <= last.t_s {
        return Err(("the time does not rise".into(), "sort the rows by `t_s`, each once"));
    }
    track.points.push(point);
    Ok(())
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
        assert_eq!(good.map(|tracks| tracks[&0].at(5.0).position_m), Ok([7.0, 1.0]));
        let bad = Track::parse("t_s,x_m,y_m\n0,1,2\n1,,2\n", "m.csv");
        assert!(bad.is_err_and(|error| error.line == Some(3) && error.what.contains("blank")));
    }
    #[test]
    fn a_file_of_many_vehicles_gives_each_its_way() {
        let text = "t_s,vehicle,x_m,y_m\n5,7,0,0\n6,7,10,0\n0,2,1,1\n9,2,1,4\n";
        let ways = Track::parse(text, "m.csv").unwrap_or_default();
        assert_eq!(ways.keys().copied().collect::<Vec<u32>>(), [2, 7]);
        assert_eq!(ways[&7].at(5.5).position_m, [5.0, 0.0]);
        assert_eq!(ways[&2].points().len(), 2);
    }

    #[test]
    fn a_fault_in_a_file_of_many_vehicles_is_told_with_its_line() {
        let table = [
            ("0,1,0,0\n0,2,0,0\n1,1,0,0", 4, "vehicle 1 comes a second time"),
            ("0,1,0,0\n0,1,0,0", 3, "the time does not rise"),
            ("0,1.5,0,0", 2, "`vehicle` is 1.5"),
            ("0,-1,0,0", 2, "`vehicle` is -1, outside"),
            ("0,1,0,0\n1,,0,0", 3, "`vehicle` is blank"),
            ("0,car,0,0", 2, "`car` is not a number for `vehicle`"),
        ];
        for (rows, line, what) in table {
            let text = format!("t_s,vehicle,x_m,y_m\n{rows}\n");
            let fault = Track::parse(&text, "m.csv").err();
            assert!(fault.is_some_and(|f| f.line == Some(line) && f.what.contains(what)), "{rows}");
        }
    }
}
