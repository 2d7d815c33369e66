//! The folder of one run, as described in `docs/reference/records.md`: the records and
//! metrics of both engines.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use crosslane_core::time::Instant;
use crosslane_sim::addresses::vehicle_address;
use crosslane_sim::bounds::least_cost;
use crosslane_sim::record::metrics::{Context, Objects, PacketSums, metrics};
use crosslane_sim::record::rows::{
    LinkRow, MessageRow, PacketRow, RunRecords, SampleRow, TcpInfoRow, ThroughputRow, WindowRow,
};
use crosslane_sim::scenario::{Scenario, Strategy};

pub mod agent_file;
pub mod events;
pub mod tables;

use crate::error::{Error, Result};

use events::RunEvent;
use tables::{write_events, write_table};

/// The records of a run, each in order of time.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Packets on every link.
    pub packets: Vec<PacketRow>,
    /// What each path delivered, in intervals.
    pub throughput: Vec<ThroughputRow>,
    /// Signal samples.
    pub samples: Vec<SampleRow>,
    /// Messages of the traffic.
    pub messages: Vec<MessageRow>,
    /// Ground truth of the links.
    pub links: Vec<LinkRow>,
    /// State of the subflows.
    pub tcp_info: Vec<TcpInfoRow>,
    /// What a strategy may see of each path, window by window; simulated runs only.
    pub windows: Vec<WindowRow>,
    /// Events, in any order.
    pub events: Vec<(Instant, RunEvent)>,
}

/// Makes the folder of a run, without what an earlier run left in it: each engine and strategy has other files.
///
/// # Errors
/// Names the folder and the cause.
pub fn make(folder: &Path) -> Result<()> {
    let emptied = match fs::remove_dir_all(folder) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => fs::create_dir_all(folder),
    };
    emptied.map_err(|cause| {
        let attempt = format!("making {} without the records of an earlier run", folder.display());
        Error::failure(attempt, cause).with_remedy("remove it, or name another folder with --out")
    })
}

/// Writes the records into `folder`; `names` are those of the paths.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, names: &[String], mut records: Records) -> Result<()> {
    let file = |name: &str| folder.join(name);
    write_table(&file("throughput.arrow"), names, &records.throughput, tables::throughput)?;
    write_table(&file("packets.arrow"), names, &records.packets, tables::packets)?;
    write_table(&file("samples.arrow"), names, &records.samples, tables::samples)?;
    write_table(&file("links.arrow"), names, &records.links, tables::links)?;
    write_table(&file("tcp_info.arrow"), names, &records.tcp_info, tables::tcp_info)?;
    write_table(&file("messages.arrow"), names, &records.messages, tables::messages)?;
    if !records.windows.is_empty() {
        write_table(&file("windows.arrow"), names, &records.windows, tables::windows)?;
    }
    records.events.sort_by_key(|(at, _)| *at);
    let addresses: Vec<IpAddr> = (0..names.len()).map(|place| vehicle_address(place).into()).collect();
    let lines = records.events.into_iter().map(|(at, event)| event.line(at, names, &addresses));
    write_events(&file("events.jsonl"), lines)
}

/// The metrics of a run, from its records, its packets, and the number of messages that were due but never written.
///
/// # Errors
/// The world that the optimum needs cannot be created again.
pub fn measure(
    scenario: &Scenario,
    (strategy, seed): (&Strategy, u64),
    names: &[String],
    records: &RunRecords,
    sums: &PacketSums,
    skipped: u64,
) -> Result<BTreeMap<String, f64>> {
    let starts_ns: Vec<u64> = records.messages.iter().map(|object| object.sent_ns).collect();
    let optimum = least_cost::of_run(scenario, strategy, seed, &starts_ns)?;
    let objects = Objects::of(scenario, records.messages, optimum);
    let mut found = metrics(records, sums, &Context { objects, ..Context::of(scenario, names) });
    found.insert("messages.skipped".into(), skipped as f64);
    Ok(found)
}
