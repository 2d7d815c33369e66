//! What the agent saw and did, one JSON object a line (`docs/formats.md`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crosslane_core::agent::Output;
use crosslane_core::tunnel::Mode;
use serde_json::{Value, json};

use super::config::Config;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::CommandError;
use crate::run_folder::lines;
use crate::tunnel::end::{Change, Counts};
use crate::tunnel::steer::{Status, path_name};

/// Faults told one by one; more are only counted, so that a flood of forged
/// datagrams fills no disk.
const FAULTS_TOLD: u64 = 100;

/// Writes the events.
pub struct Journal {
    clock: Clock,
    names: Vec<String>,
    to: Box<dyn Write>,
    name: String,
    faults: u64,
    broken: bool,
}

impl Journal {
    /// Opens the file that the configuration names, or standard output.
    ///
    /// # Errors
    /// Names the file and the cause.
    pub fn open(config: &Config, clock: Clock) -> Result<Journal> {
        let (to, name): (Box<dyn Write>, String) = match &config.log.events {
            Some(file) => {
                let name = file.display().to_string();
                let opened = File::create(file).map_err(|cause| {
                    Error::usage(format!("opening {name}"), cause, "set log.events to a file that can be written")
                })?;
                (Box::new(BufWriter::new(opened)), name)
            }
            None => (Box::new(io::stdout()), "standard output".into()),
        };
        let names = config.paths.iter().map(|path| path.get_ref().name.clone()).collect();
        let mut journal = Journal { clock, names, to, name, faults: 0, broken: false };
        let start = json!({ "monotonic_ns": clock.origin_ns(), "version": env!("CARGO_PKG_VERSION") });
        journal.tell("start", start);
        Ok(journal)
    }

    /// Writes what the agent said, and how a command went.
    pub fn output(&mut self, output: &Output, error: Option<&CommandError>) {
        let error = error.map(|error| error as &dyn std::fmt::Display);
        let line = lines::said(self.clock.now(), output, error, &self.names);
        self.write(&line);
    }

    /// Writes how a path of the tunnel fares.
    pub fn tunnel(&mut self, change: &Change) {
        let path = path_name(&self.names, change.path);
        let health = change.health.name();
        self.tell("tunnel", json!({ "peer": change.peer, "path": path, "health": health, "because": change.because }));
    }

    /// Writes that the tunnel uses its paths otherwise from now on.
    pub fn tunnel_mode(&mut self, mode: Mode, was: Mode) {
        self.tell("tunnel_mode", json!({ "mode": mode, "was": was }));
    }

    /// Notes what came in and could not be used.
    pub fn fault(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        if self.faults <= FAULTS_TOLD {
            let last = self.faults == FAULTS_TOLD;
            self.tell("fault", json!({ "because": cause.to_string(), "last_told": last }));
        }
    }

    /// Writes what the tunnel carried, by path, and what did not go through.
    pub fn tunnel_sums(&mut self, status: &Status, counts: &Counts) {
        for peer in &status.peers {
            for path in &peer.paths {
                let mut fields = json!(path);
                fields["peer"] = json!(peer.name);
                self.tell("tunnel_path", fields);
            }
        }
        let count = |count: &AtomicU64| count.load(Relaxed);
        let fields = json!({
            "refused": count(&counts.refused),
            "astray": count(&counts.astray),
            "too_big": count(&counts.too_big),
            "unsent": count(&counts.unsent),
        });
        self.tell("tunnel_counts", fields);
    }

    /// Writes the last lines.
    pub fn finish(&mut self) {
        self.tell("end", json!({ "faults": self.faults, "resident_mb": resident_mb() }));
    }

    fn tell(&mut self, event: &str, fields: Value) {
        let line = lines::line(self.clock.now(), "agent", event, fields);
        self.write(&line);
    }

    /// A full disk costs the events, not the connections: it is told once.
    fn write(&mut self, line: &Value) {
        let text = line.to_string() + "\n";
        let written = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
        if let Err(cause) = written
            && !std::mem::replace(&mut self.broken, true)
        {
            eprintln!("crosslane: while writing events to {}: {cause}; the agent goes on without them", self.name);
        }
    }
}

/// Resident memory of this process, in MB (10^6 bytes).
fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}
