//! `crosslane catalog`: lists the strategies and metrics.

use crosslane_sim::scenario::base::CATALOG;
use crosslane_sim::scenario::metric::METRICS;
use serde_json::json;

use crate::error::Result;
use crate::output;

/// Prints the catalogue, as Markdown tables or as JSON.
///
/// # Errors
/// It cannot be printed.
pub fn run(json: bool) -> Result<()> {
    let text = if json {
        format!("{:#}\n", json!({ "strategies": CATALOG, "metrics": METRICS }))
    } else {
        format!("{}\n{}", strategies(), metrics())
    };
    output::print("printing the catalogue", text)
}

fn strategies() -> String {
    let row = |name: &str, kind, engines, what: &str| format!("| {name} | {kind} | {engines} | {what} |\n");
    let rows = CATALOG
        .iter()
        .map(|entry| row(&format!("`{}`", entry.name), word(&entry.kind), word(&entry.engines), entry.what));
    let head = [row("strategy", "kind".into(), "commands".into(), "what"), "|---|---|---|---|\n".into()];
    head.into_iter().chain(rows).collect()
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
