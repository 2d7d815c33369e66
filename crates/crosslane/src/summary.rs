//! The run folder's summary: runs, metrics, and the scenario's expectations.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crosslane_sim::scenario::{Bound, Expectation, Scenario};
use crosslane_sim::traffic::Protocol;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::output::{self, table};

/// Outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// False if the emulator was too late.
    pub valid: bool,
    /// Why the run is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Metrics by name (`docs/reference/metrics.md`).
    pub metrics: BTreeMap<String, f64>,
}

/// One run in the summary.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Name of the strategy.
    pub strategy: String,
    /// Seed.
    pub seed: u64,
    /// Folder of its records, relative to the summary; `None` without records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Number of attempts.
    pub attempts: u32,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// `summary.json`.
#[derive(Debug, Serialize)]
pub struct Summary {
    schema: u32,
    scenario: String,
    title: String,
    engine: &'static str,
    /// Runs are missing: an interrupt, or a run failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    duration_s: f64,
    seeds: Vec<u64>,
    strategies: Vec<String>,
    /// The complete runs.
    pub runs: Vec<Run>,
    expect: Vec<Verdict>,
    #[serde(skip)]
    columns: Vec<Column>,
}

/// Result of an expectation.
#[derive(Debug, Serialize)]
struct Verdict {
    text: String,
    ok: Option<bool>,
    value: Option<f64>,
    limit: Option<f64>,
}

/// A column of the table.
#[derive(Debug)]
struct Column {
    metric: String,
    heading: String,
    /// Factor for the metric: 100 for a share in %.
    times: f64,
}

/// Columns of the table for a scenario, with copies and cost if a run has them. `summary.json` contains all metrics.
fn columns(scenario: &Scenario, runs: &[Run]) -> Vec<Column> {
    let is_measured = |metric: &str| runs.iter().any(|run| run.outcome.metrics.contains_key(metric));
    let of_cost = [("copied_bytes", "copies MB", 1e-6), ("cost", "cost", 1.0)];
    let mut columns = columns_of_traffic(scenario);
    columns.extend(of_cost.into_iter().filter(|(metric, ..)| is_measured(metric)).map(column));
    columns
}

fn column((metric, heading, times): (&str, &str, f64)) -> Column {
    Column { metric: metric.into(), heading: heading.into(), times }
}

fn columns_of_traffic(scenario: &Scenario) -> Vec<Column> {
    if scenario.traffic.kind.deadlines().is_none() {
        let shown = [
            ("delivery_delay_ms.p50", "delay p50 ms", 1.0),
            ("delivery_delay_ms.max", "delay max ms", 1.0),
            ("gap_ms.max", "gap max ms", 1.0),
            ("goodput_mbit_s", "goodput Mbit/s", 1.0),
            ("recovery_ms", "recovery ms", 1.0),
            ("handover.count", "handovers", 1.0),
        ];
        let mut columns: Vec<Column> = shown.map(column).into();
        if scenario.traffic.kind.period_ns() > 0 {
            let late = format!("late (> {} ms) %", scenario.service.late_after_ms());
            columns.insert(3, column(("late_share", &late, 100.0)));
        }
        if scenario.traffic.protocol == Protocol::Udp {
            let of_datagrams = [("lost_share", "lost %", 100.0), ("reordered_share", "reordered %", 100.0)];
            columns.extend(of_datagrams.map(column));
        }
        return columns;
    }
    let costs = scenario.unit_costs().into_iter().zip(scenario.paths());
    let costliest = costs.max_by(|(a, _), (b, _)| a.total_cmp(b)).map_or("", |(_, path)| path.name);
    let (share, optimum) = (format!("path.{costliest}.share"), format!("path.{costliest}.share_optimum"));
    let (share_heading, optimum_heading) = (format!("{costliest} %"), format!("optimal {costliest} %"));
    let shown = [
        ("deadline.missed_share", "missed %", 100.0),
        ("object.completion_s.p50", "completion p50 s", 1.0),
        ("object.completion_s.max", "completion max s", 1.0),
        (share.as_str(), share_heading.as_str(), 100.0),
        (optimum.as_str(), optimum_heading.as_str(), 100.0),
        ("overhead_share", "overhead %", 100.0),
    ];
    shown.map(column).into()
}

impl Summary {
    /// Summary of a scenario's runs; `engine` is `kernel` or `simulator`.
    pub fn new(scenario: &Scenario, engine: &'static str, runs: Vec<Run>) -> Summary {
        let bounds = scenario.expectations.iter().filter_map(|expectation| match expectation {
            Expectation::Bound(bound) => Some(bound),
            Expectation::Crossing(_) => None,
        });
        Summary {
            schema: 1,
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            engine,
            interrupted: false,
            duration_s: scenario.duration_s,
            seeds: distinct_in_order(runs.iter().map(|run| run.seed)),
            strategies: distinct_in_order(runs.iter().map(|run| run.strategy.clone())),
            expect: bounds.map(|bound| evaluate(bound, &runs)).collect(),
            columns: columns(scenario, &runs),
            runs,
        }
    }

    /// True unless an expectation failed. Expectations that the runs cannot decide
    /// (a strategy was not run) do not count.
    pub fn all_expectations_met(&self) -> bool {
        self.expect.iter().all(|verdict| verdict.ok != Some(false))
    }

    /// The summary as JSON.
    ///
    /// # Errors
    /// Never in practice: all parts can be serialized.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|cause| Error::failure("writing the summary", cause))
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// The file and the cause.
    pub fn write(&self, folder: &Path) -> Result<()> {
        output::write(&folder.join("summary.json"), self.to_json()? + "\n")
    }

    /// Table of medians by strategy with their range over the seeds, and the
    /// verdicts.
    pub fn table(&self) -> String {
        let mut rows = vec![vec!["strategy".to_string(), "runs".to_string()]];
        rows[0].extend(self.columns.iter().map(|column| column.heading.clone()));
        for strategy in &self.strategies {
            let of = self.runs.iter().filter(|run| run.strategy == *strategy);
            let valid = of.clone().filter(|run| run.outcome.valid).count();
            let mut row = vec![strategy.clone(), format!("{valid}/{}", of.count())];
            // Without valid runs, the figures of the invalid runs are marked with `*`.
            let mark = if valid == 0 { "*" } else { "" };
            let shown = |column: &Column| {
                let values = values(&self.runs, strategy, &column.metric, valid > 0);
                median_and_range(&values.into_iter().map(|value| value * column.times).collect::<Vec<_>>())
            };
            row.extend(self.columns.iter().map(|column| shown(column) + mark));
            rows.push(row);
        }
        let mut text = format!("{}\n", table(&rows, 1..usize::MAX));
        for run in self.runs.iter().filter(|run| !run.outcome.valid) {
            let reason = run.outcome.reason.as_deref().unwrap_or("it is not valid");
            let Run { strategy, seed, attempts, .. } = run;
            let _ = writeln!(text, "* {strategy} seed {seed}, {attempts} attempts: {reason}; the machine is too busy");
        }
        for verdict in &self.expect {
            let word = match verdict.ok {
                Some(true) => "ok     ",
                Some(false) => "NOT OK ",
                None => "not run",
            };
            let value = verdict.value.map_or(String::new(), |value| format!(" — is {}", figure(value)));
            let _ = writeln!(text, "{word} {}{value}", verdict.text);
        }
        text
    }
}

fn distinct_in_order<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// Values of a metric in the valid or the invalid runs of a strategy, in ascending order.
fn values(runs: &[Run], strategy: &str, metric: &str, valid: bool) -> Vec<f64> {
    let of = runs.iter().filter(|run| run.strategy == strategy && run.outcome.valid == valid);
    let mut values: Vec<f64> = of.filter_map(|run| run.outcome.metrics.get(metric).copied()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Median of sorted values.
fn median(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

fn evaluate(bound: &Bound, runs: &[Run]) -> Verdict {
    let value = median(&values(runs, &bound.strategy, &bound.metric, true));
    let limit = match &bound.of_strategy {
        None => Some(bound.limit),
        Some(strategy) => median(&values(runs, strategy, &bound.metric, true)).map(|other| other * bound.limit),
    };
    let ok = value.zip(limit).map(|(value, limit)| if bound.at_most { value <= limit } else { value >= limit });
    Verdict { text: bound_text(bound), ok, value, limit }
}

fn bound_text(bound: &Bound) -> String {
    let relation = if bound.at_most { "at most" } else { "at least" };
    let of = bound.of_strategy.as_ref().map_or(String::new(), |strategy| format!(" × that of {strategy}"));
    format!("{} of {}: {relation} {}{of}", bound.metric, bound.strategy, figure(bound.limit))
}

fn median_and_range(values: &[f64]) -> String {
    match (median(values), values) {
        (None, _) => "–".into(),
        (Some(middle), [first, .., last]) => format!("{} ({}–{})", figure(middle), figure(*first), figure(*last)),
        (Some(middle), _) => figure(middle),
    }
}

fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middling if middling >= 10.0 => without_trailing_zeros(format!("{value:.1}")),
        middling if middling >= 1.0 => without_trailing_zeros(format!("{value:.2}")),
        small if small > 0.0 && small < 0.1 => {
            without_trailing_zeros(format!("{value:.*}", (1.0 - small.log10().floor()) as usize))
        }
        _ => without_trailing_zeros(format!("{value:.3}")),
    }
}

fn without_trailing_zeros(figure: String) -> String {
    if figure.contains('.') { figure.trim_end_matches('0').trim_end_matches('.').to_string() } else { figure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(strategy: &str, seed: u64, valid: bool, delay_ms: f64) -> Run {
        let metrics = BTreeMap::from([("delivery_delay_ms.max".to_string(), delay_ms)]);
        let outcome = Outcome { valid, reason: None, metrics };
        Run { strategy: strategy.into(), seed, folder: None, attempts: 1, outcome }
    }

    fn bound(limit: f64, of_strategy: Option<String>) -> Bound {
        let (strategy, metric) = ("threshold".to_string(), "delivery_delay_ms.max".to_string());
        Bound { strategy, metric, at_most: true, limit, of_strategy }
    }

    #[test]
    fn the_table_has_late_messages_copies_and_cost_where_they_are_measured() {
        let text = "name = \"x\"\nduration_s = 10\n[vehicle]\nroute = { from_m = [0, 0], to_m = [10, 0], speed_kmh = 30 }\n\
            [[cellular]]\nname = \"a\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 20\n\
            [traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20\n[service]\nlate_ms = 60\n";
        let scenario = Scenario::parse(text, "x.toml").unwrap();
        let table = |metrics: &[(&str, f64)]| {
            let mut run = run("threshold", 1, true, 20.0);
            run.outcome.metrics.extend(metrics.iter().map(|(name, value)| ((*name).to_string(), *value)));
            Summary::new(&scenario, "simulator", vec![run]).table()
        };
        let costly = table(&[("late_share", 0.25), ("copied_bytes", 3.5e6), ("cost", 0.00912)]);
        for part in ["late (> 60 ms) %", "25", "copies MB", "3.5", "cost", "0.0091"] {
            assert!(costly.contains(part), "{part}: {costly}");
        }
        let plain = table(&[]);
        assert!(plain.contains("late (> 60 ms) %") && !plain.contains("copies") && !plain.contains("cost"), "{plain}");
    }

    #[test]
    fn figures_have_three_digits_and_no_zeros_after_them() {
        let figures = [1234.5, 17.0, 17.04, 3.0, 3.456, 0.0, 0.25, 0.00912].map(figure);
        assert_eq!(figures, ["1234", "17", "17", "3", "3.46", "0", "0.25", "0.0091"]);
    }

    #[test]
    fn medians_exclude_invalid_runs() {
        let runs =
            [run("threshold", 1, true, 20.0), run("threshold", 2, false, 5000.0), run("threshold", 3, true, 40.0)];
        assert_eq!(evaluate(&bound(30.0, None), &runs).value, Some(30.0));
    }

    #[test]
    fn a_bound_relative_to_another_strategy_uses_its_median() {
        let runs = [run("threshold", 1, true, 20.0), run("kernel", 1, true, 90.0)];
        let of = |times| bound(times, Some("kernel".into()));
        assert_eq!(evaluate(&of(0.5), &runs).ok, Some(true));
        assert_eq!(evaluate(&of(0.2), &runs).ok, Some(false));
        assert_eq!(evaluate(&of(0.2), &runs[..1]).ok, None, "the other strategy was not run");
    }
}
