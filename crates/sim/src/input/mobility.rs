//! Positions of one or many vehicles over time.

use std::collections::BTreeMap;

use crate::error::ScenarioError;
use crate::input::numeric_csv::{self, Column, fault};

/// Position and speed of the vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Position, in m.
    pub position_m: [f64; 2],
    /// Speed, in m/s.
    pub speed_m_s: f64,
}

/// Positions over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// The points, in order of time.
    pub points: Vec<TrackPoint>,
}

/// A point of a track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackPoint {
    /// Time, in s since the vehicle began to move.
    pub t_s: f64,
    /// Position, in m.
    pub position_m: [f64; 2],
}

/// Maximum number of vehicles in a mobility file: each has its links and its
/// transport.
pub const MAX_VEHICLES: usize = 10_000;
/// Maximum number of rows: 2,000 vehicles, 30 minutes, one row per second.
const MAX_ROWS: usize = 4_000_000;

const COLUMNS: [Column; 4] = [
    Column { name: "t_s", range: [0.0, 1e6], required: true },
    Column { name: "vehicle", range: [0.0, 4e9], required: false },
    Column { name: "x_m", range: [-1e7, 1e7], required: true },
    Column { name: "y_m", range: [-1e7, 1e7], required: true },
];

impl Track {
    /// Reads a mobility file, `t_s,x_m,y_m` or `t_s,vehicle,x_m,y_m`: the track
    /// of each vehicle by its number, which is 0 without a column `vehicle`.
    pub fn parse(text: &str, file: &str) -> Result<BTreeMap<u32, Track>, ScenarioError> {
        let mut tracks: BTreeMap<u32, Track> = BTreeMap::new();
        let mut before: Option<Option<f64>> = None;
        numeric_csv::each(text, file, &COLUMNS, MAX_ROWS, |row| {
            let fail = |what: String, remedy| Err(fault(file, row.line, what, remedy));
            let cell = |place: usize| row.cells[place].unwrap_or(0.0);
            let (vehicle, number) = (row.cells[1], cell(1));
            if number != libm::floor(number) {
                return fail(format!("`vehicle` is {number}"), "number the vehicles with whole numbers from 0");
            }
            let track = tracks.entry(number as u32).or_default();
            let point = TrackPoint { t_s: cell(0), position_m: [cell(2), cell(3)] };
            match track.points.last() {
                Some(_) if before != Some(vehicle) => {
                    let what = format!("the rows of vehicle {number} are not contiguous");
                    return fail(what, "sort the rows by `vehicle`, then by `t_s`");
                }
                Some(last) if point.t_s <= last.t_s => {
                    return fail("the time does not increase".into(), "sort the rows by `t_s`, each time once");
                }
                _ => track.points.push(point),
            }
            if before.is_some_and(|before| before.is_some() != vehicle.is_some()) {
                return fail("`vehicle` is blank in some rows".into(), "give every row a number");
            }
            before = Some(vehicle);
            if tracks.len() > MAX_VEHICLES {
                return fail(format!("more than {MAX_VEHICLES} vehicles"), "split the file");
            }
            Ok(())
        })?;
        Ok(tracks)
    }

    /// State of the vehicle `t_s` after it began to move: interpolated linearly
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

    /// Heading of the vehicle `t_s` after it began to move, in degrees clockwise from
    /// north (y): at rest as it last moved, before that as it will move; none if it never
    /// moves.
    pub fn heading_deg(&self, t_s: f64) -> Option<f64> {
        let heading_deg = |pair: &[TrackPoint]| {
            let ([x0, y0], [x1, y1]) = (pair[0].position_m, pair[1].position_m);
            let degrees = libm::atan2(x1 - x0, y1 - y0).to_degrees();
            (x0 != x1 || y0 != y1).then(|| degrees.rem_euclid(360.0))
        };
        let begun = self.points.partition_point(|point| point.t_s <= t_s);
        let segments = self.points.windows(2);
        let last = segments.clone().take(begun).rev().find_map(heading_deg);
        last.or_else(|| segments.skip(begun).find_map(heading_deg))
    }
}

/// Distance between two positions, in m.
pub fn distance_m([x0, y0]: [f64; 2], [x1, y1]: [f64; 2]) -> f64 {
    libm::hypot(x1 - x0, y1 - y0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_is_kept_at_rest() {
        let points =
            [(0.0, [0.0, 0.0]), (10.0, [0.0, 0.0]), (20.0, [5.0, 5.0]), (30.0, [5.0, 5.0]), (40.0, [-1.0, 5.0])];
        let points = points.map(|(t_s, position_m)| TrackPoint { t_s, position_m }).to_vec();
        let track = Track { points };
        let headings = [-1.0, 5.0, 15.0, 25.0, 35.0, 99.0].map(|t_s| track.heading_deg(t_s).map(libm::round));
        assert_eq!(headings, [45.0, 45.0, 45.0, 45.0, 270.0, 270.0].map(Some));
        let still = Track { points: vec![TrackPoint { t_s: 0.0, position_m: [1.0, 1.0] }; 2] };
        assert_eq!((still.heading_deg(1.0), Track::default().heading_deg(1.0)), (None, None));
    }

    #[test]
    fn a_mobility_file_needs_every_cell() {
        let good = Track::parse("t_s,y_m,x_m\n0,1,2\n10,1,12\n", "m.csv");
        assert_eq!(good.map(|tracks| tracks[&0].at(5.0).position_m), Ok([7.0, 1.0]));
        let bad = Track::parse("t_s,x_m,y_m\n0,1,2\n1,,2\n", "m.csv");
        assert!(bad.is_err_and(|error| error.line == Some(3) && error.what.contains("blank")));
    }
    #[test]
    fn a_file_of_many_vehicles_gives_each_its_track() {
        let text = "t_s,vehicle,x_m,y_m\n5,7,0,0\n6,7,10,0\n0,2,1,1\n9,2,1,4\n";
        let tracks = Track::parse(text, "m.csv").unwrap_or_default();
        assert_eq!(tracks.keys().copied().collect::<Vec<u32>>(), [2, 7]);
        assert_eq!(tracks[&7].at(5.5).position_m, [5.0, 0.0]);
        assert_eq!(tracks[&2].points.len(), 2);
    }

    #[test]
    fn an_error_in_a_file_of_many_vehicles_is_reported_with_its_line() {
        let table = [
            ("0,1,0,0\n0,2,0,0\n1,1,0,0", 4, "the rows of vehicle 1 are not contiguous"),
            ("0,1,0,0\n0,1,0,0", 3, "the time does not increase"),
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
