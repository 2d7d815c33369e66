//! Pings over one operator's network become a trace: delay, loss and signal.
//!
//! `crosslane import pings` reads everyone's own recordings, a line per ping or signal report
//! (`docs/guide/real-data.md`); the data set [`imc23`](super::imc23) becomes the same [`Sample`]s.
//!
//! What a packet between two pings gets, so that a link replays the recording in order:
//! - Its delay changes linearly from one ping to the next. In a stall the RTT falls by the time
//!   between the pings, so everything sent in the stall arrives together, at its end.
//! - Where the RTT rises by more than half the time between two pings, a stall began between them:
//!   from the middle on, packets arrive with the later ping.
//! - A lost ping takes everything that the vehicle sends until the next ping.
//! - Without a ping for more than [`MAX_SPACING_MS`] the last state applies.
//!
//! Half of the RTT, at most half of its median, is the delay from the network to the vehicle; the rest, and
//! the loss, apply to what the vehicle sends. A ping and its answer thus meet the recorded RTT and loss once,
//! though the answer is sent later.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::Fault;
use super::table::{Column, FLAG, Quantity, RSSI, Row, Table};
use super::trace::{self, Cut, Gap, Point, Trace};

/// Largest RTT of a trace, in ms: a delay of a trace is at most 60 s.
const MAX_RTT_MS: f64 = 60_000.0;
/// The range of an RTT in a recording, before [`MAX_RTT_MS`] is checked.
const RTT: Quantity = Quantity { meaning: "an RTT in ms", min: 0.0, max: 1e9 };
/// Longest time between two pings across which the delay changes linearly.
const MAX_SPACING_MS: i64 = 1000;
/// Time between rows of a changing delay: the period of link updates.
const STEP_MS: i64 = 10;
/// Maximum number of rows: a scenario reads no more of a trace.
const MAX_ROWS: usize = 1_000_000;
/// Maximum number of operators in an error message.
const MAX_NAMED: usize = 16;

const NOTES: [&str; 3] = [
    "Delay: half of the RTT of pings (at most half of its median) to the vehicle, the rest to the network.",
    "Loss: a ping without an answer takes everything that the vehicle sends until the next. No rate was recorded.",
    "In a stall everything arrives together, at its end; between pings the delay changes linearly.",
];

/// A ping, a signal report, or both at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// When the ping was sent or the signal reported, in ms.
    pub t_ms: i64,
    pub ping: Option<Ping>,
    pub rssi_dbm: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ping {
    Answered { rtt_ms: f64 },
    Lost,
}

impl Ping {
    fn rtt_ms(self) -> Option<f64> {
        match self {
            Ping::Answered { rtt_ms } => Some(rtt_ms),
            Ping::Lost => None,
        }
    }
}

/// The columns of one operator's pings.
pub(super) struct Columns {
    pub rtt: Column,
    pub lost: Column,
    pub rssi: Column,
}

impl Columns {
    /// The row's sample at `t_ms`, if it has one.
    pub fn sample(&self, row: &Row, t_ms: i64) -> Result<Option<Sample>, Fault> {
        let is_set = |column| !row.text(column).is_empty();
        let is_lost = is_set(&self.lost) && row.number(&self.lost, &FLAG)? != 0.0;
        let ping = match (is_set(&self.rtt), is_lost) {
            (true, true) => {
                let cause = format!("the ping has an RTT in `{}` and is lost in `{}`", self.rtt.name, self.lost.name);
                return Err(Fault::new(cause, "keep one of them").at(row.line));
            }
            (true, false) => Some(Ping::Answered { rtt_ms: self.rtt_ms(row)? }),
            (false, true) => Some(Ping::Lost),
            (false, false) => None,
        };
        let rssi_dbm = is_set(&self.rssi).then(|| row.number(&self.rssi, &RSSI)).transpose()?;
        Ok((ping.is_some() || rssi_dbm.is_some()).then_some(Sample { t_ms, ping, rssi_dbm }))
    }

    fn rtt_ms(&self, row: &Row) -> Result<f64, Fault> {
        let rtt_ms = row.number(&self.rtt, &RTT)?;
        if rtt_ms <= MAX_RTT_MS {
            return Ok(rtt_ms);
        }
        let cause = format!("an RTT of {} s, but a trace has at most {} s", rtt_ms / 1000.0, MAX_RTT_MS / 1000.0);
        let remedy =
            format!("count the ping as lost: leave `{}` empty and set `{}` to 1", self.rtt.name, self.lost.name);
        Err(Fault::new(cause, remedy).at(row.line))
    }
}

/// The trace of one operator in a recording of one's own, or in a part of it.
pub(super) fn trace(text: &str, operator: &str, cut: &Cut) -> Result<Trace, Fault> {
    let table = Table::open(text)?;
    let (time, name) = (table.column(&["t_s"])?, table.column(&["operator"])?);
    let columns =
        Columns { rtt: table.column(&["rtt_ms"])?, lost: table.column(&["lost"])?, rssi: table.column(&["rssi_dbm"])? };
    let (mut samples, mut others) = (Vec::new(), BTreeSet::new());
    let (mut zero_ms, mut end_ms) = (i64::MAX, i64::MIN);
    for row in table.rows() {
        let row = row?;
        let t_ms = row.time_ms(&time)?;
        (zero_ms, end_ms) = (zero_ms.min(t_ms), end_ms.max(t_ms));
        let of = row.text(&name);
        if of == operator {
            add(&mut samples, columns.sample(&row, t_ms)?).map_err(|fault| fault.at(row.line))?;
        } else if others.len() < MAX_NAMED && !others.contains(of) {
            others.insert(of.to_owned());
        }
    }
    if samples.is_empty() && !others.is_empty() {
        let known = others.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Fault::new(format!("it has no operator `{operator}`"), format!("choose one of {known}")));
    }
    replay(operator, Vec::new(), [zero_ms, end_ms], &samples, cut)
}

/// Adds a sample, which must be later than those before it.
pub(super) fn add(samples: &mut Vec<Sample>, sample: Option<Sample>) -> Result<(), Fault> {
    match (samples.last(), sample) {
        (Some(last), Some(sample)) if sample.t_ms <= last.t_ms => Err(Fault::time_backwards(last.t_ms, sample.t_ms)),
        _ => {
            samples.extend(sample);
            Ok(())
        }
    }
}

/// The trace of `operator` from its samples, in ascending order; `source`: comment lines about the
/// recording, which lasts from `zero_ms` to `end_ms`. Outside of `cut` it has no more than the state at its beginning.
pub(super) fn replay(
    operator: &str,
    mut source: Vec<String>,
    [zero_ms, end_ms]: [i64; 2],
    samples: &[Sample],
    cut: &Cut,
) -> Result<Trace, Fault> {
    let pings: Vec<(i64, Ping)> = samples.iter().filter_map(|sample| Some((sample.t_ms, sample.ping?))).collect();
    let Some(median_ms) = median(pings.iter().filter_map(|(_, ping)| ping.rtt_ms()).collect()) else {
        return Err(Fault::no_samples(&format!("an answered ping of {operator}")));
    };
    let window_ms = cut.window_ms(end_ms - zero_ms)?;
    let gaps = gaps([zero_ms, end_ms], samples);
    // Before the rows are made, of which a long gap would have too many.
    trace::check_gaps(gaps.iter().filter(|gap| gap.is_in(window_ms)))?;
    let mut points = Points { window_ms: window_ms.map(|ms| ms.saturating_add(zero_ms)), by_time: BTreeMap::new() };
    points.set_delays(zero_ms, &pings, median_ms)?;
    points.set(zero_ms, |first| (first.loss, first.loss_down) = (Some(0.0), Some(0.0)));
    let mut is_lossy = false;
    for sample in samples {
        let lost = sample.ping.map(|ping| ping == Ping::Lost).filter(|lost| *lost != is_lossy);
        if let Some(lost) = lost {
            points.set(sample.t_ms, |point| point.loss = Some(f64::from(u8::from(lost))));
            is_lossy = lost;
        }
        if sample.rssi_dbm.is_some() {
            points.set(sample.t_ms, |point| point.rssi_dbm = sample.rssi_dbm);
        }
    }
    source.extend(NOTES.map(String::from));
    let subject = format!("pings over {operator}");
    let points = points.by_time.into_values().collect();
    Ok(Trace::new(subject, source, zero_ms, points).with_gaps(gaps, end_ms - zero_ms))
}

/// The points of a part of the recording.
struct Points {
    window_ms: [i64; 2],
    by_time: BTreeMap<i64, Point>,
}

impl Points {
    /// Changes the point at a time, or, of an earlier time, that at the beginning.
    fn set(&mut self, t_ms: i64, change: impl FnOnce(&mut Point)) {
        let [from_ms, to_ms] = self.window_ms;
        if t_ms < to_ms {
            let t_ms = t_ms.max(from_ms);
            change(self.by_time.entry(t_ms).or_insert(Point { t_ms, ..Point::default() }));
        }
    }

    /// The delays over time, from the answered pings.
    fn set_delays(&mut self, zero_ms: i64, pings: &[(i64, Ping)], median_ms: f64) -> Result<(), Fault> {
        let set = |points: &mut Points, t_ms: i64, rtt_ms: f64| {
            let down_ms = rtt_ms.min(median_ms) / 2.0;
            let hundredths = |ms: f64| Some((ms * 100.0).round() / 100.0);
            points.set(t_ms, |point| {
                (point.delay_ms, point.delay_down_ms) = (hundredths(rtt_ms - down_ms), hundredths(down_ms));
            });
        };
        let mut last: Option<Answered> = None;
        for &(t_ms, ping) in pings {
            let Some(rtt_ms) = ping.rtt_ms() else {
                let last = last.as_mut().filter(|last| last.lost_at_ms.is_none());
                last.into_iter().for_each(|last| last.lost_at_ms = Some(t_ms));
                continue;
            };
            match last {
                None => set(self, zero_ms, rtt_ms),
                Some(before) => {
                    let steps = before.steps((t_ms, rtt_ms), self.window_ms);
                    steps.for_each(|(step_ms, rtt_ms)| set(self, step_ms, rtt_ms));
                }
            }
            set(self, t_ms, rtt_ms);
            last = Some(Answered { t_ms, rtt_ms, lost_at_ms: None });
            if self.by_time.len() > MAX_ROWS {
                let cause = format!("its trace has more than {MAX_ROWS} rows");
                return Err(Fault::new(cause, "import a part of it with --from-s and --to-s"));
            }
        }
        Ok(())
    }
}

/// An answered ping, and the first ping after it that was lost.
struct Answered {
    t_ms: i64,
    rtt_ms: f64,
    lost_at_ms: Option<i64>,
}

impl Answered {
    /// Times and RTTs between this ping and the next answered one, from the last before `from_ms` to the last before
    /// `to_ms`.
    fn steps(&self, to: (i64, f64), [from_ms, to_ms]: [i64; 2]) -> impl Iterator<Item = (i64, f64)> + '_ {
        let is_gap = self.lost_at_ms.is_none() && to.0 - self.t_ms > MAX_SPACING_MS;
        let end_ms = if is_gap { self.t_ms } else { self.lost_at_ms.unwrap_or(to.0).min(to_ms) };
        let first = ((from_ms - self.t_ms) / STEP_MS).max(1);
        let steps = (first..).map(|step| self.t_ms + step * STEP_MS).take_while(move |t_ms| *t_ms < end_ms);
        let lost = self.lost_at_ms.map(|t_ms| (t_ms, self.rtt_ms.min(to.1)));
        steps.map(move |t_ms| (t_ms, self.before(to, t_ms))).chain(lost)
    }

    /// The RTT of a packet that is sent at `t_ms`, after this ping and before the one at `to`.
    fn before(&self, (to_ms, next_rtt_ms): (i64, f64), t_ms: i64) -> f64 {
        let (since_ms, left_ms) = ((t_ms - self.t_ms) as f64, (to_ms - t_ms) as f64);
        let spacing_ms = since_ms + left_ms;
        let rise_ms = next_rtt_ms - self.rtt_ms;
        if self.lost_at_ms.is_some() {
            // Packets wait for those before them, at most until the next ping's RTT is reached.
            (self.rtt_ms - since_ms).max(self.rtt_ms.min(next_rtt_ms))
        } else if rise_ms <= spacing_ms / 2.0 {
            self.rtt_ms + rise_ms * since_ms / spacing_ms
        } else if since_ms < spacing_ms / 2.0 {
            self.rtt_ms
        } else {
            next_rtt_ms + left_ms
        }
    }
}

/// The times without a ping, longer than [`MAX_SPACING_MS`], also before the first and after the last.
fn gaps([zero_ms, end_ms]: [i64; 2], samples: &[Sample]) -> Vec<Gap> {
    let pings = samples.iter().filter(|sample| sample.ping.is_some()).map(|sample| sample.t_ms);
    let times: Vec<i64> = std::iter::once(zero_ms).chain(pings).chain([end_ms]).map(|t_ms| t_ms - zero_ms).collect();
    let gap = |pair: &[i64]| (pair[1] - pair[0] > MAX_SPACING_MS).then_some(Gap { from_ms: pair[0], to_ms: pair[1] });
    times.windows(2).filter_map(gap).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
