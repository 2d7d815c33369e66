//! Results of each vehicle, and of the fleet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crosslane_core::agent::Output;
use crosslane_core::time::{Duration, Instant};

use crate::record::histogram::Histogram;
use crate::simulation::Recording;

/// Results of one vehicle.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its number in the mobility file.
    pub vehicle: u32,
    /// Interval in which it was present: `[from, to]`.
    pub here: [Instant; 2],
    /// Payload that each path delivered, in bytes, in both directions.
    pub path_bytes: Vec<u64>,
    /// Messages written.
    pub messages: u64,
    /// Messages that had not arrived when the vehicle departed.
    pub lost: u64,
    /// Bytes of the messages that arrived.
    pub delivered_bytes: u64,
    /// Delays of those messages, from the start of the write to the last byte
    /// read.
    pub delays: Histogram,
    /// Times at which the wanted state of any path changed to or from active.
    pub handovers: u64,
    /// Events of the vehicle's simulation.
    pub events: u64,
}

impl Outcome {
    pub(super) fn of(vehicle: u32, here: [Instant; 2], recording: Recording) -> Outcome {
        let mut changes: Vec<Instant> = Vec::new();
        for (at, output) in &recording.agent_outputs {
            if matches!(output, Output::Decision { .. }) && changes.last() != Some(at) && *at > here[0] + SETTLED {
                changes.push(*at);
            }
        }
        let results = recording.results;
        Outcome {
            vehicle,
            here,
            path_bytes: recording.sums.delivered_payload_bytes,
            messages: results.written,
            lost: results.written - results.delays.count(),
            delivered_bytes: results.delivered_bytes,
            delays: results.delays,
            handovers: changes.len() as u64,
            events: recording.events,
        }
    }
}

/// Decisions of an agent before this are not handovers.
const SETTLED: Duration = Duration::from_secs(1);

/// A figure of one vehicle; none if it is not defined.
type OfVehicle = fn(&Outcome) -> Option<f64>;

/// Metrics by name: sums, and for delay and goodput the median and other
/// quantiles over the vehicles. `paths` are the names of the paths.
pub fn metrics(outcomes: &[Outcome], paths: &[String]) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    found.insert("vehicles".into(), outcomes.len() as f64);
    found.insert("messages.sent".into(), sum(|outcome| outcome.messages));
    found.insert("messages.lost".into(), sum(|outcome| outcome.lost));
    found.insert("delivered_bytes".into(), sum(|outcome| outcome.delivered_bytes));
    found.insert("handover.count".into(), sum(|outcome| outcome.handovers));
    let all: u64 = outcomes.iter().flat_map(|outcome| &outcome.path_bytes).sum();
    for (place, name) in paths.iter().enumerate() {
        let bytes: u64 = outcomes.iter().filter_map(|outcome| outcome.path_bytes.get(place)).sum();
        found.insert(format!("path.{name}.bytes"), bytes as f64);
        if all > 0 {
            found.insert(format!("path.{name}.share"), bytes as f64 / all as f64);
        }
    }
    let of_each: [(&str, OfVehicle); 4] = [
        ("delivery_delay_ms.p50", |outcome| outcome.delays.quantile(0.5).map(millis)),
        ("delivery_delay_ms.p99", |outcome| outcome.delays.quantile(0.99).map(millis)),
        ("delivery_delay_ms.max", |outcome| (outcome.delays.count() > 0).then(|| millis(outcome.delays.longest()))),
        ("goodput_mbit_s", Outcome::goodput_mbit_s),
    ];
    for (name, of) in of_each {
        let mut values: Vec<f64> = outcomes.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        for (ending, share) in [(".vehicles_p10", 0.1), ("", 0.5), (".vehicles_p90", 0.9)] {
            let place = libm::ceil(share * values.len() as f64).max(1.0) as usize - 1;
            found.extend(values.get(place).map(|value| (format!("{name}{ending}"), *value)));
        }
    }
    found
}

/// The text of `vehicles.csv`: a row per vehicle.
pub fn table(outcomes: &[Outcome], paths: &[String]) -> String {
    let bytes: String = paths.iter().map(|name| format!(",{name}_bytes")).collect();
    let mut text = format!(
        "vehicle,from_s,to_s{bytes},messages,lost,delivered_bytes,\
         delay_p50_ms,delay_p99_ms,delay_max_ms,handovers\n"
    );
    for outcome in outcomes {
        let [from_s, to_s] = outcome.here.map(Instant::as_secs_f64);
        let bytes: String = outcome.path_bytes.iter().map(|bytes| format!(",{bytes}")).collect();
        let delay = |share: f64| outcome.delays.quantile(share).map_or(String::new(), |d| format!("{:.3}", millis(d)));
        let _ = writeln!(
            text,
            "{},{from_s:.3},{to_s:.3}{bytes},{},{},{},{},{},{},{}",
            outcome.vehicle,
            outcome.messages,
            outcome.lost,
            outcome.delivered_bytes,
            delay(0.5),
            delay(0.99),
            delay(1.0),
            outcome.handovers,
        );
    }
    text
}

impl Outcome {
    /// Bytes of delivered messages per time present.
    fn goodput_mbit_s(&self) -> Option<f64> {
        let here_s = self.here[1].since(self.here[0]).as_secs_f64();
        (here_s > 0.0).then(|| self.delivered_bytes as f64 * 8e-6 / here_s)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
