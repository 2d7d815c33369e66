//! Link traces, in our CSV format and in mahimahi's format.

use std::sync::Arc;

use crosslane_core::link::{Direction, mahimahi};

use crate::error::ScenarioError;
use crate::input::numeric_csv::{self, Column, fault};

/// The behaviour of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Trace {
    /// Rows of our CSV; the last one applies until the end of the drive.
    Rows(Vec<TraceRow>),
    /// Mahimahi: delivery opportunities of 1500 bytes (ms, non-decreasing).
    Opportunities(Arc<Vec<u64>>),
}

/// Link parameters from a time on. `None`: no row has set the value so far, and
/// the scenario's constant applies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TraceRow {
    /// Start of validity, in s.
    pub t_s: f64,
    /// Rate, in Mbit/s.
    pub rate_mbit_s: Option<f64>,
    /// One-way delay, in ms; from the vehicle if `delay_down_ms` is given.
    pub delay_ms: Option<f64>,
    /// One-way delay to the vehicle, in ms.
    pub delay_down_ms: Option<f64>,
    /// Independent loss, 0 to 1; from the vehicle if `loss_down` is given.
    pub loss: Option<f64>,
    /// Independent loss to the vehicle, 0 to 1.
    pub loss_down: Option<f64>,
    /// Signal, in dBm.
    pub rssi_dbm: Option<f64>,
}

impl TraceRow {
    /// One-way delay in a direction, in ms.
    pub fn delay_to(&self, direction: Direction) -> Option<f64> {
        self.delay_down_ms.filter(|_| direction == Direction::Down).or(self.delay_ms)
    }

    /// Independent loss in a direction, 0 to 1.
    pub fn loss_to(&self, direction: Direction) -> Option<f64> {
        self.loss_down.filter(|_| direction == Direction::Down).or(self.loss)
    }
}

/// Maximum number of rows: 20 hours at 10 Hz, 70 minutes with a row per 4 ms.
const MAX_ROWS: usize = 1_000_000;

const COLUMNS: [Column; 7] = [
    Column { name: "t_s", range: [0.0, 1e6], required: true },
    Column { name: "rate_mbit_s", range: [0.0, 1e5], required: false },
    Column { name: "delay_ms", range: [0.0, 6e4], required: false },
    Column { name: "delay_down_ms", range: [0.0, 6e4], required: false },
    Column { name: "loss", range: [0.0, 1.0], required: false },
    Column { name: "loss_down", range: [0.0, 1.0], required: false },
    Column { name: "rssi_dbm", range: [-150.0, 0.0], required: false },
];

impl Trace {
    /// Reads a trace. The file name determines the format: `*.up`, `*.down` and
    /// `*.pps` are mahimahi's, all others are CSV.
    pub fn parse(text: &str, file: &str) -> Result<Trace, ScenarioError> {
        let mahimahi = [".up", ".down", ".pps"];
        if mahimahi.iter().any(|ending| file.ends_with(ending)) {
            return parse_opportunities(text, file);
        }
        let mut rows: Vec<TraceRow> = Vec::new();
        let mut first_line = 0;
        numeric_csv::each(text, file, &COLUMNS, MAX_ROWS, |row| {
            let [t_s, rate_mbit_s, delay_ms, delay_down_ms, loss, loss_down, rssi_dbm] = row.cells;
            let t_s = t_s.unwrap_or(0.0);
            if rows.last().is_some_and(|last| t_s <= last.t_s) {
                let what = "the time does not increase";
                return Err(fault(file, row.line, what, "sort the rows by `t_s`, each time once"));
            }
            if rows.is_empty() {
                first_line = row.line;
            }
            let before = rows.last().copied().unwrap_or_default();
            rows.push(TraceRow {
                t_s,
                rate_mbit_s: rate_mbit_s.or(before.rate_mbit_s),
                delay_ms: delay_ms.or(before.delay_ms),
                delay_down_ms: delay_down_ms.or(before.delay_down_ms),
                loss: loss.or(before.loss),
                loss_down: loss_down.or(before.loss_down),
                rssi_dbm: rssi_dbm.or(before.rssi_dbm),
            });
            Ok(())
        })?;
        if rows.first().is_some_and(|first| first.t_s != 0.0) {
            return Err(fault(file, first_line, "the first row is not at 0 s", "start `t_s` at 0"));
        }
        Ok(Trace::Rows(rows))
    }

    /// The row valid at `t_s`; an empty one for mahimahi's traces.
    pub fn at(&self, t_s: f64) -> TraceRow {
        let Trace::Rows(rows) = self else { return TraceRow::default() };
        rows[..rows.partition_point(|row| row.t_s <= t_s)].last().copied().unwrap_or_default()
    }

    /// Mean rate, in Mbit/s; 0 if the trace has none.
    pub fn mean_mbit_s(&self) -> f64 {
        match self {
            Trace::Opportunities(times_ms) => {
                let millis = times_ms.last().map_or(1, |&last| last.max(1));
                times_ms.len() as f64 * 1500.0 * 8.0 / 1000.0 / millis as f64
            }
            Trace::Rows(rows) => {
                let rate = |row: &TraceRow| row.rate_mbit_s.unwrap_or(0.0);
                let spans = rows.windows(2).map(|pair| (pair[1].t_s - pair[0].t_s, rate(&pair[0])));
                let (s, mbit) =
                    spans.fold((0.0, 0.0), |(s, mbit), (span_s, mbit_s)| (s + span_s, mbit + span_s * mbit_s));
                if s > 0.0 { mbit / s } else { rows.first().map_or(0.0, rate) }
            }
        }
    }
}

fn parse_opportunities(text: &str, file: &str) -> Result<Trace, ScenarioError> {
    let times_ms = mahimahi::parse(file, text).map_err(|error| {
        let cause = error.cause.to_string();
        let (what, remedy) = cause.split_once("; ").unwrap_or((&cause, "correct the line or leave it out"));
        fault(file, error.line, what, remedy)
    })?;
    Ok(Trace::Opportunities(Arc::new(times_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, file: &str) -> String {
        Trace::parse(text, file).map_or_else(|error| error.to_string(), |_| "no error".into())
    }

    #[test]
    fn a_blank_cell_leaves_the_value_unchanged() -> Result<(), ScenarioError> {
        let text = "# recorded\nt_s,rssi_dbm,rate_mbit_s\n0,-60,\n1,,5.5\n2.5,-70,\n";
        let trace = Trace::parse(text, "a.csv")?;
        assert_eq!(trace.at(0.9).rate_mbit_s, None);
        assert_eq!(trace.at(1.0).rssi_dbm, Some(-60.0));
        assert_eq!(trace.at(100.0).rate_mbit_s, Some(5.5));
        assert_eq!(trace.at(100.0).rssi_dbm, Some(-70.0));
        assert_eq!(trace.at(100.0).delay_ms, None);
        Ok(())
    }

    #[test]
    fn the_direction_to_the_vehicle_may_have_its_own_delay_and_loss() -> Result<(), ScenarioError> {
        let trace = Trace::parse("t_s,delay_ms,delay_down_ms,loss,loss_down\n0,50000,20,1,0\n1,30,,,\n", "a.csv")?;
        let row = trace.at(1.5);
        assert_eq!((row.delay_ms, row.delay_down_ms), (Some(30.0), Some(20.0)));
        assert_eq!((row.loss, row.loss_down), (Some(1.0), Some(0.0)));
        let error = error("t_s,delay_ms\n0,60001", "a.csv");
        assert!(error.contains("`delay_ms` is 60001, outside 0 to 60000"), "{error}");
        Ok(())
    }

    #[test]
    fn a_broken_trace_is_rejected_with_its_line_and_a_remedy() {
        let table = [
            ("", "a.csv, line 1: the file is empty"),
            ("t_s,speed\n0,1", "line 1: unknown column `speed`; the columns are t_s,"),
            ("t_s,loss,loss\n0,1,1", "line 1: column `loss` is repeated"),
            ("loss\n0", "line 1: column `t_s` is missing"),
            ("t_s,loss\n", "line 1: there is no row"),
            ("t_s,loss\n0,0\n# c\n0,0", "line 4: the time does not increase; sort"),
            ("t_s,loss\n0,1.5", "line 2: `loss` is 1.5, outside 0 to 1"),
            ("t_s,rate_mbit_s\n0,-1", "line 2: `rate_mbit_s` is -1, outside"),
            ("t_s,rate_mbit_s\n0,NaN", "line 2: `rate_mbit_s` is NaN, outside"),
            ("t_s,loss\n0,abc", "line 2: `abc` is not a number for `loss`"),
            ("t_s,loss\n,1", "line 2: `t_s` is blank"),
            ("t_s,loss\n0", "line 2: 1 cells under 2 columns"),
            ("t_s,loss\n0,0,0", "line 2: 3 cells under 2 columns"),
            ("t_s,loss\n5,0", "line 2: the first row is not at 0 s"),
        ];
        for (text, expected) in table {
            let error = error(text, "a.csv");
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn mahimahi_traces_are_read_as_they_are() -> Result<(), ScenarioError> {
        let trace = Trace::parse("0\n0\n5\n10\n", "x.up")?;
        assert_eq!(trace, Trace::Opportunities(Arc::new(vec![0, 0, 5, 10])));
        assert_eq!(trace.mean_mbit_s(), 4.8);
        let rows = Trace::parse("t_s,rate_mbit_s\n0,10\n3,2\n4,7\n", "x.csv")?;
        assert_eq!(rows.mean_mbit_s(), 8.0);
        assert!(error("1\n-2", "x.pps").contains("line 2: \"-2\" is not a whole number"));
        assert!(error("3\n2", "x.down").contains("line 2: 2 ms after 3 ms; times must not fall"));
        assert!(error("0\n0", "x.down").contains("line 2: the trace ends at 0 ms; "));
        Ok(())
    }
}
