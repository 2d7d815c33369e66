//! What the agent saw and did, one JSON object a line (`docs/formats.md`).

use std::fs::File;
use std::io::{self, BufWriter, Write};

use crosslane_core::agent::Output;
use crosslane_core::assess::Reason;
use crosslane_core::mptcp::Command;
use crosslane_core::path::PathId;
use serde_json::{Map, Value, json};

use super::config::Config;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::CommandError;

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
        journal.write("start", start);
        Ok(journal)
    }

    /// Writes a belief, a decision or an alarm.
    pub fn output(&mut self, output: &Output) {
        match output {
            Output::Belief { path, belief, reason } => {
                let fields = json!({ "path": self.path(*path), "belief": belief.name() });
                self.write("belief", with_reason(fields, reason));
            }
            Output::Decision { path, state, was, reason } => {
                let fields = json!({ "path": self.path(*path), "state": state.name(), "was": was.name() });
                self.write("decision", with_reason(fields, reason));
            }
            Output::Alarm { path, alarm } => {
                let fields = json!({ "path": self.path(*path), "kind": alarm.kind.name(), "false": alarm.wrong });
                self.write("alarm", fields);
            }
            Output::Command { path, command } => self.command(*path, command, None),
        }
    }

    /// Writes a command and how it went.
    pub fn command(&mut self, path: PathId, command: &Command, error: Option<&CommandError>) {
        let (name, token, backup) = match command {
            Command::CreateSubflow { token, backup, .. } => ("create", token, Some(*backup)),
            Command::DestroySubflow { token, .. } => ("destroy", token, None),
            Command::SetBackup { token, backup, .. } => ("set_backup", token, Some(*backup)),
            Command::Announce { token, .. } => ("announce", token, None),
            Command::Withdraw { token, .. } => ("withdraw", token, None),
        };
        let error = error.map(ToString::to_string);
        let fields =
            json!({ "command": name, "token": token.0, "path": self.path(path), "backup": backup, "error": error });
        self.write("command", fields);
    }

    /// Notes what came in and could not be used.
    pub fn fault(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        if self.faults <= FAULTS_TOLD {
            let last = self.faults == FAULTS_TOLD;
            self.write("fault", json!({ "because": cause.to_string(), "last_told": last }));
        }
    }

    /// Writes the last lines.
    pub fn finish(&mut self) {
        self.write("end", json!({ "faults": self.faults, "resident_mb": resident_mb() }));
    }

    fn path(&self, path: PathId) -> &str {
        self.names.get(usize::from(path.0)).map_or("?", String::as_str)
    }

    /// A full disk costs the events, not the connections: it is told once.
    fn write(&mut self, event: &str, fields: Value) {
        let mut line = Map::new();
        line.insert("t_s".into(), json!(self.clock.now().as_secs_f64()));
        line.insert("source".into(), json!("agent"));
        line.insert("event".into(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let text = Value::Object(line).to_string() + "\n";
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

fn with_reason(mut fields: Value, reason: &Reason) -> Value {
    let inputs: Map<String, Value> =
        reason.inputs.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    fields["rule"] = json!(reason.rule);
    fields["because"] = json!(reason.because);
    fields["inputs"] = Value::Object(inputs);
    fields
}
