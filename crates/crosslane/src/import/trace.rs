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

impl Cut {
    /// The first ms and the one after the last of a recording that ends at `end_ms`; without an end, none is after it.
    pub(super) fn window_ms(&self, end_ms: i64) -> Result<[i64; 2], Fault> {
        let end_s = seconds(end_ms);
        let (from_s, to_s) = (self.from_s.unwrap_or(0.0), self.to_s.unwrap_or(end_s));
        // Also false for NaN.
        let inside = 0.0 <= from_s && from_s < to_s && to_s <= end_s;
        if !inside && *self != Cut::default() {
            let cause = format!("it covers 0 to {end_s} s, not {from_s} to {to_s} s");
            return Err(Fault::new(cause, "choose a beginning and a later end within it"));
        }
        let ms = |s: f64| (s * 1000.0).round() as i64;
        Ok([ms(from_s), self.to_s.map_or(i64::MAX, ms)])
    }
}

/// State of a link from a time on; `None`: unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Point {
    pub t_ms: i64,
    pub rate_mbit_s: Option<f64>,
    pub delay_ms: Option<f64>,
    pub delay_down_ms: Option<f64>,
    pub loss: Option<f64>,
    pub loss_down: Option<f64>,
    pub rssi_dbm: Option<f64>,
}

/// A time in which nothing was measured, and the state before it (or the first one) applies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gap {
    pub from_ms: i64,
    pub to_ms: i64,
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
    /// Times of the recording without a measurement.
    pub gaps: Vec<Gap>,
}

/// Longest gap of a trace, in ms.
const MAX_GAP_MS: i64 = 60_000;

/// Largest `t_s` of a trace, in s.
pub const MAX_S: f64 = 1e6;

/// Columns of a trace without and with delays.
const RATE_COLUMNS: &str = "t_s,rate_mbit_s,delay_ms,loss,rssi_dbm";
const DELAY_COLUMNS: &str = "t_s,delay_ms,delay_down_ms,loss,loss_down,rssi_dbm";

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
        Trace { subject, notes, points, from_ms: 0, end_ms, gaps: Vec::new() }
    }

    /// The same with the times without a measurement; the recording ends at `end_ms`.
    pub fn with_gaps(self, gaps: Vec<Gap>, end_ms: i64) -> Trace {
        Trace { gaps, end_ms, ..self }
    }

    /// The part within `cut`; the state at its beginning applies from 0 on.
    pub fn cut(mut self, cut: &Cut) -> Result<Trace, Fault> {
        if *cut == Cut::default() {
            return Ok(self);
        }
        let [from_ms, to_ms] = cut.window_ms(self.end_ms)?;
        let first_after = self.points.partition_point(|point| point.t_ms <= from_ms);
        let held = self.points[..first_after].iter().fold(Point::default(), |held, point| Point {
            t_ms: from_ms,
            rate_mbit_s: point.rate_mbit_s.or(held.rate_mbit_s),
            delay_ms: point.delay_ms.or(held.delay_ms),
            delay_down_ms: point.delay_down_ms.or(held.delay_down_ms),
            loss: point.loss.or(held.loss),
            loss_down: point.loss_down.or(held.loss_down),
            rssi_dbm: point.rssi_dbm.or(held.rssi_dbm),
        });
        let rest = self.points[first_after..].iter().take_while(|point| point.t_ms < to_ms);
        self.points =
            std::iter::once(&held).chain(rest).map(|point| Point { t_ms: point.t_ms - from_ms, ..*point }).collect();
        (self.from_ms, self.end_ms) = (from_ms, to_ms.min(self.end_ms));
        self.gaps.retain(|gap| gap.is_in([from_ms, to_ms]));
        Ok(self)
    }

    /// Whether a scenario can read it: `t_s` of a trace is at most [`MAX_S`].
    pub fn check_length(&self) -> Result<(), Fault> {
        let last_s = self.points.last().map_or(0.0, |last| seconds(last.t_ms));
        if last_s <= MAX_S {
            return Ok(());
        }
        let cause = format!("its last sample is {last_s} s after its beginning, but a trace lasts at most {MAX_S} s");
        Err(Fault::new(cause, "correct the time of the lines at fault, or cut it with --to-s"))
    }

    /// The trace in the format of `docs/reference/scenario.md`, comments first.
    pub fn to_csv(&self, file_name: &str) -> String {
        let file_name: String = file_name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let (from_s, end_s) = (seconds(self.from_ms), seconds(self.end_ms));
        let gaps_ms = self.points.windows(2).map(|pair| pair[1].t_ms - pair[0].t_ms);
        let longest_s = seconds(gaps_ms.max().unwrap_or(0));
        let notes: String = self.notes.iter().map(|note| format!("# {note}\n")).collect();
        let cell = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
        let has_delay = self.points.iter().any(|point| point.delay_ms.is_some());
        let columns = if has_delay { DELAY_COLUMNS } else { RATE_COLUMNS };
        let row = |point: &Point| {
            let Point { rate_mbit_s, delay_ms, delay_down_ms, loss, loss_down, rssi_dbm, .. } = *point;
            let cells = if has_delay {
                [delay_ms, delay_down_ms, loss, loss_down, rssi_dbm].map(cell).join(",")
            } else {
                [rate_mbit_s, delay_ms, loss, rssi_dbm].map(cell).join(",")
            };
            format!("{},{cells}\n", seconds(point.t_ms))
        };
        let gaps: String = self.gaps.iter().map(Gap::note).collect();
        format!(
            "# Trace of {} in {file_name}, {from_s} s to {end_s} s\n{notes}{gaps}\
             # Longest time between samples: {longest_s} s; each sample applies until the next.\n\
             {columns}\n{}",
            self.subject,
            self.points.iter().map(row).collect::<String>()
        )
    }
}

/// Whether every gap is short enough for the state before it to apply.
pub(super) fn check_gaps<'a>(mut gaps: impl Iterator<Item = &'a Gap>) -> Result<(), Fault> {
    let Some(gap) = gaps.find(|gap| gap.to_ms - gap.from_ms > MAX_GAP_MS) else {
        return Ok(());
    };
    let (from_s, to_s) = (seconds(gap.from_ms), seconds(gap.to_ms));
    let cause = format!("nothing was measured from {from_s} s to {to_s} s, longer than {} s", MAX_GAP_MS / 1000);
    Err(Fault::new(cause, "import the part before or after it with --to-s or --from-s (of a scenario: @SECONDS)"))
}

impl Gap {
    /// Whether a part of it is within these times.
    pub fn is_in(&self, [from_ms, to_ms]: [i64; 2]) -> bool {
        self.to_ms > from_ms && self.from_ms < to_ms
    }

    fn note(&self) -> String {
        let (from_s, to_s) = (seconds(self.from_ms), seconds(self.to_ms));
        format!("# Not measured: {from_s} s to {to_s} s of the recording; the state before (or the first) applies.\n")
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
