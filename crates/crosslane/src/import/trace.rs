//! Cuts a trace to a window and writes it as CSV.

use super::fault::Fault;

/// The part of a recording that becomes the trace, in seconds from its
/// beginning; the default is the whole recording.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cut {
    /// Beginning; `None`: the recording's.
    pub from_s: Option<f64>,
    /// End (exclusive); `None`: the recording's.
    pub to_s: Option<f64>,
}

/// State of a link from a time on; `None`: unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub t_ms: i64,
    pub rate_mbit_s: Option<f64>,
    pub rssi_dbm: Option<f64>,
}

/// A trace and its comments.
#[derive(Debug)]
pub(super) struct Trace {
    /// The link, as in "the uplink of AT&T".
    pub subject: String,
    /// Source, licence and meaning of the numbers; one comment line each.
    pub notes: Vec<String>,
    /// Never empty, in ascending order, the first at 0.
    pub points: Vec<Point>,
    /// The part of the recording that it covers.
    pub from_ms: i64,
    pub end_ms: i64,
}

/// Largest `t_s` of a trace, in s.
pub const MAX_S: f64 = 1e6;

impl Trace {
    /// `points` must ascend and not be empty; the first applies from `zero_ms` on.
    pub fn new(subject: String, notes: Vec<String>, zero_ms: i64, mut points: Vec<Point>) -> Trace {
        for point in &mut points {
            point.t_ms -= zero_ms;
        }
        let end_ms = points.last().map_or(0, |point| point.t_ms);
        if let Some(first) = points.first_mut() {
            first.t_ms = 0;
        }
        Trace { subject, notes, points, from_ms: 0, end_ms }
    }

    /// The part within `cut`; the state at its beginning applies from 0 on.
    pub fn cut(mut self, cut: &Cut) -> Result<Trace, Fault> {
        let end_s = seconds(self.end_ms);
        let (from_s, to_s) = (cut.from_s.unwrap_or(0.0), cut.to_s.unwrap_or(end_s));
        let all = cut.from_s.is_none() && cut.to_s.is_none();
        // Also false for NaN.
        let inside = 0.0 <= from_s && from_s < to_s && to_s <= end_s;
        if all {
            return Ok(self);
        }
        if !inside {
            return Err(Fault::CutOutside { from_s, to_s, end_s });
        }
        let (from_ms, to_ms) = ((from_s * 1000.0).round() as i64, (to_s * 1000.0).round() as i64);
        let first_after = self.points.partition_point(|point| point.t_ms <= from_ms);
        let mut held = Point { t_ms: from_ms, rate_mbit_s: None, rssi_dbm: None };
        for point in &self.points[..first_after] {
            held.rate_mbit_s = point.rate_mbit_s.or(held.rate_mbit_s);
            held.rssi_dbm = point.rssi_dbm.or(held.rssi_dbm);
        }
        let rest = self.points[first_after..].iter().take_while(|point| cut.to_s.is_none() || point.t_ms < to_ms);
        self.points =
            std::iter::once(&held).chain(rest).map(|point| Point { t_ms: point.t_ms - from_ms, ..*point }).collect();
        (self.from_ms, self.end_ms) = (from_ms, to_ms);
        Ok(self)
    }

    /// Whether a scenario can read it: `t_s` of a trace is at most [`MAX_S`].
    pub fn check_length(&self) -> Result<(), Fault> {
        let last_s = self.points.last().map_or(0.0, |last| seconds(last.t_ms));
        if last_s > MAX_S { Err(Fault::TooLong { last_s }) } else { Ok(()) }
    }

    /// The trace in the format of `docs/reference/scenario.md`, comments first.
    pub fn to_csv(&self, file_name: &str) -> String {
        let file_name: String = file_name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let mut csv = format!(
            "# Trace of {} in {file_name}, {} s to {} s\n",
            self.subject,
            seconds(self.from_ms),
            seconds(self.end_ms)
        );
        for note in &self.notes {
            csv.push_str(&format!("# {note}\n"));
        }
        csv.push_str(&format!(
            "# Longest time between samples: {} s; each sample applies until the next.\n",
            seconds(self.longest_gap_ms())
        ));
        csv.push_str("t_s,rate_mbit_s,delay_ms,loss,rssi_dbm\n");
        for point in &self.points {
            let cell = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
            let (rate, rssi) = (cell(point.rate_mbit_s), cell(point.rssi_dbm));
            csv.push_str(&format!("{},{rate},,,{rssi}\n", seconds(point.t_ms)));
        }
        csv
    }

    fn longest_gap_ms(&self) -> i64 {
        self.points.windows(2).map(|pair| pair[1].t_ms - pair[0].t_ms).max().unwrap_or(0)
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
