//! `crosslane catalog`: lists the strategies and metrics.

use crosslane_core::parameters::Value;
use crosslane_sim::record::metrics::METRICS;
use crosslane_sim::scenario::Base;
use crosslane_sim::scenario::base::{Entry, catalog};
use serde_json::json;

use crate::error::Result;
use crate::output;

/// Prints the catalogue, as Markdown tables or as JSON.
///
/// # Errors
/// It cannot be printed.
pub fn run(json: bool) -> Result<()> {
    let strategies: Vec<Entry> = catalog().map(Base::entry).collect();
    let text = if json {
        format!("{:#}\n", json!({ "strategies": strategies, "metrics": METRICS }))
    } else {
        let parameters = strategies.iter().filter(|entry| !entry.parameters.is_empty()).map(parameters);
        let tables = [strategy_table(&strategies)].into_iter().chain(parameters).chain([metrics()]);
        tables.collect::<Vec<_>>().join("\n")
    };
    output::print("printing the catalogue", text)
}

fn strategy_table(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        format!("| `{}` | {} | {} | {} |\n", entry.name, word(&entry.kind), word(&entry.engines), entry.what)
    });
    "| strategy | kind | commands | what |\n|---|---|---|---|\n".to_string() + &rows.collect::<String>()
}

fn parameters(entry: &Entry) -> String {
    let head =
        format!("| parameter of `{}` | unit | values | default | meaning |\n|---|---|---|---|---|\n", entry.name);
    let rows = entry.parameters.iter().map(|parameter| {
        let values = parameter.range.map(|[low, high]| format!("{low} to {high}"));
        let values = values.unwrap_or_else(|| parameter.choices.join(", "));
        let default = parameter.default.as_ref().map_or("unset".into(), value);
        format!("| `{}` | {} | {values} | {default} | {} |\n", parameter.name, parameter.unit, parameter.meaning)
    });
    head + &rows.collect::<String>()
}

fn value(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => format!("`{text}`"),
        other => serde_json::to_string(other).unwrap_or_default(),
    }
}

fn metrics() -> String {
    let head = "| metric | unit | better | commands | meaning |\n|---|---|---|---|---|\n".to_string();
    let rows = METRICS.iter().map(|metric| {
        let (better, engines) = (word(&metric.better), word(&metric.engines));
        format!("| `{}` | {} | {better} | {engines} | {} |\n", metric.name, metric.unit, metric.meaning)
    });
    head + &rows.collect::<String>()
}

/// The JSON name of a value.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(String::from)).unwrap_or_default()
}
