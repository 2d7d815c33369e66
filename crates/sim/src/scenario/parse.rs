//! From the text of a scenario file to a [`Scenario`].

use std::collections::BTreeMap;

use crosslane_core::link::QueueLimit;
use crosslane_core::path::Rat;
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::schema::{number, optional_number, optional_period, period, spans, whole};
use super::{
    AccessLink, Bound, Congestion, Crossing, CrossingDirection, Data, Expectation, Limit, Map,
    Motion, Queue, Radio, RoadsideUnit, Route, Scenario, ScenarioError, Service, Strategy, Traffic,
    TrafficKind, Vehicle,
};

impl Scenario {
    /// Reads a scenario; `file_name` stands in errors. Everything is checked
    /// but the files that it names, its [strategies'
    /// parameters](Scenario::check_strategies) and its
    /// [crossings](crate::check::prove).
    pub fn parse(text: &str, file_name: &str) -> Result<Scenario, ScenarioError> {
        let lines = Lines::new(text, file_name)?;
        let keys: Keys = toml::from_str(text).map_err(|error| lines.explain(text, &error))?;
        let scenario = keys.build(lines)?;
        scenario.validate()?;
        Ok(scenario)
    }
}

/// Where each key of the file stands.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    file: String,
    lines: BTreeMap<String, usize>,
}

impl Lines {
    fn new(text: &str, file_name: &str) -> Result<Lines, ScenarioError> {
        let mut lines = Lines {
            file: file_name.into(),
            lines: BTreeMap::new(),
        };
        let document = DeTable::parse(text).map_err(|error| lines.explain(text, &error))?;
        lines.walk(text, "", document.get_ref());
        Ok(lines)
    }

    fn walk(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let path = format!("{prefix}{}", key.get_ref());
            self.lines
                .insert(path.clone(), line_at(text, key.span().start));
            match value.get_ref() {
                DeValue::Table(inner) => self.walk(text, &format!("{path}."), inner),
                DeValue::Array(items) => {
                    for (place, item) in items.iter().enumerate() {
                        let path = format!("{path}.{place}");
                        self.lines
                            .insert(path.clone(), line_at(text, item.span().start));
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.walk(text, &format!("{path}."), inner);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Line of a key, as `radio.0.name`, or else of what contains it.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(&line) = self.lines.get(key) {
                return Some(line);
            }
            key = key.rsplit_once('.')?.0;
        }
    }

    /// A fault at a key.
    pub(super) fn error(
        &self,
        key: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError {
            file: self.file.clone(),
            line: self.line(key),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// A fault that the TOML reader found, in our words.
    fn explain(&self, text: &str, error: &toml::de::Error) -> ScenarioError {
        let (what, remedy) = in_our_words(error.message());
        ScenarioError {
            file: self.file.clone(),
            line: error.span().map(|span| line_at(text, span.start)),
            what,
            remedy,
        }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// What is wrong and what to do, from a message of serde or of the TOML reader.
fn in_our_words(message: &str) -> (String, String) {
    let message = message.trim().replace('\n', ", ");
    if let Some((what, remedy)) = message.split_once("; ") {
        return (what.into(), remedy.into());
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.split_once(", expected"), quoted.split_first()) {
        (_, Some((key, []))) if message.starts_with("missing field") => (
            format!("`{key}` is missing"),
            "add it (docs/formats.md lists the keys)".into(),
        ),
        (Some((what, _)), Some((word, known))) if what.starts_with("unknown") => {
            let what = what
                .replace("unknown field", "unknown key")
                .replace("unknown variant", "unknown word");
            (what, did_you_mean(word, known.iter().copied()))
        }
        (Some((what, expected)), _) => {
            let expected = expected
                .replace(" u32", " a whole number, 0 or more")
                .replace(" u8", " a whole number, 0 to 255")
                .replace(" f64", " a number");
            (what.into(), format!("give{expected}"))
        }
        _ => (message, "write it as TOML (https://toml.io)".into()),
    }
}

/// A remedy that names the nearest of the known words, or all of them.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let nearest = known.iter().min_by_key(|other| distance(word, other));
    match nearest {
        Some(other) if distance(word, other) <= 1 + word.chars().count() / 3 => {
            format!("did you mean `{other}`?")
        }
        Some(_) => format!("choose from `{}`", known.join("`, `")),
        None => "leave it out: there is none to choose".into(),
    }
}

/// Edits (insert, delete, replace) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, cell) in b.chars().zip(row.iter_mut().skip(1)) {
            let cost = diagonal + usize::from(from != to);
            diagonal = *cell;
            *cell = cost.min(*cell + 1).min(left + 1);
            left = *cell;
        }
        row[0] = i + 1;
    }
    row.last().copied().unwrap_or(0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(deserialize_with = "period::<_, 7200>")]
    duration_s: f64,
    #[serde(default)]
    congestion: Congestion,
    #[serde(default = "yes")]
    parallel: bool,
    map: Option<Map>,
    vehicle: VehicleKeys,
    #[serde(default)]
    radio: Vec<Radio>,
    #[serde(default)]
    roadside_unit: Vec<RoadsideUnit>,
    #[serde(default)]
    cellular: Vec<CellularKeys>,
    #[serde(default)]
    wifi: Vec<WifiKeys>,
    #[serde(default)]
    service: Service,
    traffic: TrafficKeys,
    #[serde(default)]
    strategy: Vec<StrategyKeys>,
    #[serde(default)]
    expect: Vec<ExpectKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VehicleKeys {
    route: Option<Route>,
    mobility: Option<String>,
    #[serde(default, deserialize_with = "number::<_, 0, 7200>")]
    start_s: f64,
    #[serde(default = "one_and_a_half", deserialize_with = "period::<_, 100>")]
    antenna_m: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellularKeys {
    name: String,
    rat: Rat,
    #[serde(default, deserialize_with = "optional_number::<_, 0, 100_000>")]
    rate_mbit_s: Option<f64>,
    #[serde(default, deserialize_with = "optional_number::<_, 0, 100_000>")]
    down_mbit_s: Option<f64>,
    #[serde(deserialize_with = "number::<_, 0, 10_000>")]
    delay_ms: f64,
    #[serde(default, deserialize_with = "number::<_, 0, 1>")]
    loss: f64,
    #[serde(default, deserialize_with = "optional_period::<_, 60_000>")]
    queue_ms: Option<f64>,
    queue_bytes: Option<u32>,
    queue_packets: Option<u32>,
    #[serde(default = "whole::<-85>", deserialize_with = "number::<_, -150, 0>")]
    rssi_dbm: f64,
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, 0, 20>")]
    rssi_sigma_db: f64,
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, 10, 10_000>")]
    sample_period_ms: f64,
    trace: Option<String>,
    trace_down: Option<String>,
    #[serde(default, deserialize_with = "spans")]
    silent_s: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WifiKeys {
    name: String,
    trace: String,
    #[serde(deserialize_with = "number::<_, 0, 10_000>")]
    delay_ms: f64,
    #[serde(default, deserialize_with = "number::<_, 0, 1>")]
    loss: f64,
    #[serde(default, deserialize_with = "optional_period::<_, 60_000>")]
    queue_ms: Option<f64>,
    queue_bytes: Option<u32>,
    queue_packets: Option<u32>,
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, 10, 10_000>")]
    sample_period_ms: f64,
    #[serde(default, deserialize_with = "spans")]
    silent_s: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficKeys {
    kind: KindKey,
    size_bytes: Option<u32>,
    #[serde(default, deserialize_with = "optional_period::<_, 60_000>")]
    every_ms: Option<f64>,
    #[serde(default)]
    direction: DirectionKey,
    #[serde(default)]
    send_buffer_bytes: u32,
    #[serde(default = "whole::<1>", deserialize_with = "number::<_, 0, 7200>")]
    start_s: f64,
    #[serde(default, deserialize_with = "optional_period::<_, 7200>")]
    stop_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindKey {
    Messages,
    Bulk,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum DirectionKey {
    #[default]
    Up,
    Down,
}

#[derive(Deserialize)]
struct StrategyKeys {
    name: String,
    base: String,
    #[serde(flatten)]
    parameters: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectKeys {
    crossing: Option<String>,
    #[serde(default, deserialize_with = "optional_number::<_, -150, 0>")]
    threshold_dbm: Option<f64>,
    direction: Option<CrossingDirection>,
    between_s: Option<[f64; 2]>,
    strategy: Option<String>,
    metric: Option<String>,
    at_most: Option<f64>,
    at_least: Option<f64>,
    at_most_of: Option<OfKeys>,
    at_least_of: Option<OfKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKeys {
    strategy: String,
    times: f64,
}

fn yes() -> bool {
    true
}

fn one_and_a_half() -> f64 {
    1.5
}

impl Keys {
    fn build(self, lines: Lines) -> Result<Scenario, ScenarioError> {
        let cellular = self.cellular.into_iter().zip(0..);
        let wifi = self.wifi.into_iter().zip(0..);
        let access = cellular
            .map(|(keys, place)| keys.build(&lines, format!("cellular.{place}")))
            .chain(wifi.map(|(keys, place)| keys.build(&lines, format!("wifi.{place}"))))
            .collect::<Result<_, _>>()?;
        let mut units = self.roadside_unit;
        for (unit, place) in units.iter_mut().zip(0..) {
            if unit.station_id == 0 {
                unit.station_id = 1000 + place;
            }
        }
        let strategies = self.strategy.into_iter().map(|keys| Strategy {
            name: keys.name,
            base: keys.base,
            parameters: keys.parameters,
        });
        let expectations = self.expect.into_iter().zip(0..);
        Ok(Scenario {
            name: self.name,
            title: self.title,
            duration_s: self.duration_s,
            congestion: self.congestion,
            parallel: self.parallel,
            map: self.map,
            vehicle: self.vehicle.build(&lines)?,
            radios: self.radio,
            units,
            access,
            service: self.service,
            traffic: self.traffic.build(&lines, self.duration_s)?,
            strategies: strategies.collect(),
            expectations: expectations
                .map(|(keys, place)| keys.build(&lines, &format!("expect.{place}")))
                .collect::<Result<_, _>>()?,
            data: Data::default(),
            lines,
        })
    }
}

impl VehicleKeys {
    fn build(self, lines: &Lines) -> Result<Vehicle, ScenarioError> {
        let motion = match (self.route, self.mobility) {
            (Some(route), None) => Motion::Route(route),
            (None, Some(file)) => Motion::Mobility(file),
            (None, None) => {
                let what = "the vehicle has neither `route` nor `mobility`";
                return Err(lines.error("vehicle", what, "give one of them"));
            }
            (Some(_), Some(_)) => {
                let what = "the vehicle has both `route` and `mobility`";
                return Err(lines.error("vehicle.mobility", what, "keep one of them"));
            }
        };
        Ok(Vehicle {
            motion,
            start_s: self.start_s,
            antenna_m: self.antenna_m,
        })
    }
}

impl CellularKeys {
    fn build(self, lines: &Lines, key: String) -> Result<AccessLink, ScenarioError> {
        if self.rate_mbit_s.is_none() && self.trace.is_none() {
            let what = format!("`{}` has neither `rate_mbit_s` nor `trace`", self.name);
            return Err(lines.error(&key, what, "give its rate or a trace of it"));
        }
        if let Some(_) = self.trace_down.as_ref().filter(|_| self.trace.is_none()) {
            let what = format!("`{}` has `trace_down` without `trace`", self.name);
            return Err(lines.error(&key, what, "give the trace of the way up too"));
        }
        let up_mbit_s = self.rate_mbit_s.unwrap_or(0.0);
        Ok(AccessLink {
            rat: self.rat,
            up_mbit_s,
            down_mbit_s: self.down_mbit_s.unwrap_or(up_mbit_s),
            delay_ms: self.delay_ms,
            loss: self.loss,
            queue: queue(
                lines,
                &key,
                (self.queue_ms, self.queue_bytes, self.queue_packets),
            )?,
            rssi_dbm: self.rssi_dbm,
            rssi_sigma_db: self.rssi_sigma_db,
            sample_period_ms: self.sample_period_ms,
            trace: self.trace,
            trace_down: self.trace_down,
            silent_s: self.silent_s,
            name: self.name,
            key,
        })
    }
}

impl WifiKeys {
    fn build(self, lines: &Lines, key: String) -> Result<AccessLink, ScenarioError> {
        Ok(AccessLink {
            rat: Rat::Wifi,
            up_mbit_s: 0.0,
            down_mbit_s: 0.0,
            delay_ms: self.delay_ms,
            loss: self.loss,
            queue: queue(
                lines,
                &key,
                (self.queue_ms, self.queue_bytes, self.queue_packets),
            )?,
            rssi_dbm: -85.0,
            rssi_sigma_db: 0.0,
            sample_period_ms: self.sample_period_ms,
            trace: Some(self.trace),
            trace_down: None,
            silent_s: self.silent_s,
            name: self.name,
            key,
        })
    }
}

fn queue(
    lines: &Lines,
    key: &str,
    keys: (Option<f64>, Option<u32>, Option<u32>),
) -> Result<Queue, ScenarioError> {
    match keys {
        (None, None, None) => Ok(Queue::Millis(200.0)),
        (Some(millis), None, None) => Ok(Queue::Millis(millis)),
        (None, Some(bytes), None) if bytes >= 1500 => Ok(Queue::Limit(QueueLimit::Bytes(bytes))),
        (None, None, Some(packets)) if packets > 0 => {
            Ok(Queue::Limit(QueueLimit::Packets(packets)))
        }
        (None, _, _) => {
            let what = "a queue must hold one packet at least, and has one size";
            let remedy = "keep one of `queue_bytes` (from 1500) and `queue_packets` (from 1)";
            Err(lines.error(key, what, remedy))
        }
        _ => {
            let what = "the queue has more than one size";
            let remedy = "keep one of `queue_ms`, `queue_bytes` and `queue_packets`";
            Err(lines.error(key, what, remedy))
        }
    }
}

impl TrafficKeys {
    fn build(self, lines: &Lines, duration_s: f64) -> Result<Traffic, ScenarioError> {
        let kind = match (self.kind, self.size_bytes, self.every_ms) {
            (KindKey::Messages, Some(size_bytes), Some(every_ms)) => TrafficKind::Messages {
                size_bytes,
                every_ms,
            },
            (KindKey::Bulk, None, None) => TrafficKind::Bulk,
            (KindKey::Messages, _, _) => {
                let what = "messages need `size_bytes` and `every_ms`";
                return Err(lines.error("traffic.kind", what, "give both"));
            }
            (KindKey::Bulk, _, _) => {
                let what = "bulk traffic has no `size_bytes` and no `every_ms`";
                return Err(lines.error("traffic.kind", what, "leave them out"));
            }
        };
        Ok(Traffic {
            kind,
            down: self.direction == DirectionKey::Down,
            send_buffer_bytes: self.send_buffer_bytes,
            start_s: self.start_s,
            stop_s: self.stop_s.unwrap_or(duration_s - 1.0),
        })
    }
}

impl ExpectKeys {
    fn build(self, lines: &Lines, key: &str) -> Result<Expectation, ScenarioError> {
        let crossing = (
            self.crossing,
            self.threshold_dbm,
            self.direction,
            self.between_s,
        );
        let limit = (
            self.at_most,
            self.at_least,
            self.at_most_of,
            self.at_least_of,
        );
        match (crossing, (self.strategy, self.metric), limit) {
            (
                (Some(path), Some(threshold_dbm), Some(direction), Some(between_s)),
                (None, None),
                (None, None, None, None),
            ) => Ok(Expectation::Crossing(Crossing {
                path,
                threshold_dbm,
                direction,
                between_s,
            })),
            ((None, None, None, None), (Some(strategy), Some(metric)), limit) => {
                let (at_most, limit) = match limit {
                    (Some(number), None, None, None) => (true, Limit::Number(number)),
                    (None, Some(number), None, None) => (false, Limit::Number(number)),
                    (None, None, Some(of), None) => (true, of.build()),
                    (None, None, None, Some(of)) => (false, of.build()),
                    _ => {
                        let what = format!("`{metric}` is not held against exactly one limit");
                        let remedy =
                            "give one of `at_most`, `at_least`, `at_most_of`, `at_least_of`";
                        return Err(lines.error(key, what, remedy));
                    }
                };
                Ok(Expectation::Bound(Bound {
                    strategy,
                    metric,
                    at_most,
                    limit,
                }))
            }
            _ => {
                let what = "an expectation is neither a crossing nor a metric";
                let remedy = "give `crossing`, `threshold_dbm`, `direction` and `between_s`, \
                              or `strategy`, `metric` and a limit";
                Err(lines.error(key, what, remedy))
            }
        }
    }
}

impl OfKeys {
    fn build(self) -> Limit {
        Limit::Of {
            strategy: self.strategy,
            times: self.times,
        }
    }
}
