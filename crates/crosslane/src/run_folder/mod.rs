//! The folder of one run, as described in `docs/formats.md`: the records and
//! metrics of both engines.

use std::collections::BTreeMap;
use std::path::Path;

use crosslane_core::path::{PathId, PathState};
use crosslane_sim::bounds::least_cost;
use crosslane_sim::record::metrics::{Context, Objects, PacketSums, metrics, throughput};
use crosslane_sim::record::rows::{
    AlarmRow, DecisionRow, LinkRow, MessageRow, PacketRow, RunRecords, SampleRow, TcpInfoRow,
};
use crosslane_sim::scenario::Scenario;
use serde_json::Value;

pub mod events;
pub mod tables;

use crate::error::Result;

use tables::{Events, RecordError, write_table};

/// The records of a run, each in order of time.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Packets on every link.
    pub packets: Vec<PacketRow>,
    /// Signal samples.
    pub samples: Vec<SampleRow>,
    /// Messages of the traffic.
    pub messages: Vec<MessageRow>,
    /// Ground truth of the links.
    pub links: Vec<LinkRow>,
    /// State of the subflows.
    pub tcp_info: Vec<TcpInfoRow>,
    /// [Lines](lines) of `events.jsonl`, in any order.
    pub events: Vec<Value>,
}

/// Writes the records into `folder`; `names` are those of the paths.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, names: &[String], records: Records) -> std::result::Result<(), RecordError> {
    let file = |name: &str| folder.join(name);
    let Records { packets, samples, messages, links, tcp_info, mut events } = records;
    write_table(&file("throughput.arrow"), names, throughput(&packets))?;
    write_table(&file("packets.arrow"), names, packets)?;
    write_table(&file("samples.arrow"), names, samples)?;
    write_table(&file("links.arrow"), names, links)?;
    write_table(&file("tcp_info.arrow"), names, tcp_info)?;
    write_table(&file("messages.arrow"), names, messages)?;
    let time = |event: &Value| event["t_s"].as_f64().unwrap_or(0.0);
    events.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let mut lines = Events::create(&file("events.jsonl"))?;
    for event in events {
        lines.write(&event)?;
    }
    lines.finish()
}

/// The traffic of a run.
#[derive(Clone, Copy, Debug)]
pub struct Carried<'a> {
    /// Its messages or objects.
    pub messages: &'a [MessageRow],
    /// Messages that were due but never written.
    pub skipped: u64,
    /// Number of duplicate datagrams; `None` for other traffic.
    pub duplicates: Option<u64>,
    /// Its packets.
    pub sums: &'a PacketSums,
}

/// The metrics of a run, from the agent's events (lines of `events.jsonl`) and
/// the traffic.
///
/// # Errors
/// The world that the optimum needs cannot be created again.
pub fn measure(
    scenario: &Scenario,
    seed: u64,
    names: &[String],
    agent_events: &[Value],
    carried: &Carried,
) -> Result<BTreeMap<String, f64>> {
    let Carried { messages, skipped, duplicates, sums } = *carried;
    let (decisions, alarms) = (decisions(agent_events, names), alarms(agent_events, names));
    let records = RunRecords { messages, decisions: &decisions, alarms: &alarms, duplicates };
    let starts_ns: Vec<u64> = messages.iter().map(|object| object.sent_ns).collect();
    let optimum = least_cost::of_run(scenario, seed, &starts_ns)?;
    let objects = Objects::of(scenario, messages, optimum);
    let mut found = metrics(&records, sums, &Context { objects, ..Context::of(scenario, names) });
    found.insert("messages.skipped".into(), skipped as f64);
    Ok(found)
}

/// Time and path of an event of the agent.
fn place(event: &Value, names: &[String]) -> Option<(u64, PathId)> {
    let path = names.iter().position(|name| event["path"] == name.as_str())?;
    Some(((event["t_s"].as_f64()? * 1e9) as u64, PathId(path as u8)))
}

fn decisions(agent_events: &[Value], names: &[String]) -> Vec<DecisionRow> {
    let state = |event: &Value| {
        [PathState::Closed, PathState::Backup, PathState::Active]
            .into_iter()
            .find(|state| event["state"] == state.name())
    };
    let decisions = agent_events.iter().filter(|event| event["event"] == "decision");
    let row = |event: &Value| {
        let (t_ns, path) = place(event, names)?;
        Some(DecisionRow { t_ns, path, state: state(event)? })
    };
    decisions.filter_map(row).collect()
}

/// Each alarm once: a later report whether it was a false positive belongs to
/// the last alarm of its path.
fn alarms(agent_events: &[Value], names: &[String]) -> Vec<AlarmRow> {
    let mut rows: Vec<AlarmRow> = Vec::new();
    for event in agent_events.iter().filter(|event| event["event"] == "alarm") {
        let Some((t_ns, path)) = place(event, names) else { continue };
        let was_false = event["false_positive"].as_bool();
        match rows.iter_mut().rfind(|row| row.path == path && row.was_false.is_none()) {
            Some(row) if was_false.is_some() => row.was_false = was_false,
            _ => rows.push(AlarmRow { t_ns, path, was_false }),
        }
    }
    rows
}
