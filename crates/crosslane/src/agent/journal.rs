//! What the agent observed and did, one JSON object a line (`docs/reference/records.md`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crosslane_core::agent::Output;
use crosslane_core::path::PathId;
use crosslane_core::reason::Reason;
use crosslane_core::roadside::messages::VehicleEntry;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;
use serde_json::{Value, json};

use super::config::{Config, Log};
use crate::clock::Clock;
use crate::control::status::{Status, path_name};
use crate::memory::resident_mb;
use crate::netlink::CommandError;
use crate::output;
use crate::run_folder::events;
use crate::tunnel::endpoint::{Change, Counts};
use crate::version;

pub(super) mod file;
mod limit;

use file::Sink;
use limit::Limit;

/// Maximum number of outputs buffered before they are written.
const MAX_BUFFERED: usize = 256;
/// The event that reports how many lines of a rule were suppressed.
const SUPPRESSED: &str = "suppressed";

/// Writes the events: always less than a megabyte a minute. It reports what it
/// suppresses.
pub struct Journal {
    /// The program that writes.
    source: &'static str,
    clock: Clock,
    names: Vec<String>,
    /// Names of the classes of connections after the default one.
    classes: Vec<String>,
    to: Sink,
    name: String,
    /// Outputs of the agent, with their time and the kernel's error if it refused one.
    buffered: Vec<(Instant, Output, Option<String>)>,
    limit: Limit,
    faults: u64,
    broken: bool,
}

impl Journal {
    /// Writes into the file that the configuration names, or to standard output.
    pub fn open(config: &Config, clock: Clock) -> Journal {
        let names = config.paths.iter().map(|path| path.get_ref().name.clone()).collect();
        let classes = config.managed_classes().map(|(name, _)| name.to_owned()).collect();
        Journal { classes, ..Journal::new("agent", &config.log, names, clock) }
    }

    /// The journal of a controller.
    pub fn of_controller(log: &Log, clock: Clock) -> Journal {
        Journal::new("controller", log, Vec::new(), clock)
    }

    fn new(source: &'static str, log: &Log, names: Vec<String>, clock: Clock) -> Journal {
        let (to, name) = match &log.events {
            Some(file) => {
                let name = file.display().to_string();
                let max_bytes = u64::from(*log.events_max_mb.get_ref()) * 1_000_000;
                (Sink::file(file, max_bytes), name)
            }
            None => (Sink::default(), "standard output".into()),
        };
        let (limit, buffered) = (Limit::new(clock.now()), Vec::new());
        let (classes, faults, broken) = (Vec::new(), 0, false);
        let mut journal = Journal { source, clock, names, classes, to, name, buffered, limit, faults, broken };
        let start = json!({ "monotonic_ns": clock.origin_ns(), "version": version::version() });
        journal.write_event("start", start);
        journal
    }

    /// Buffers an output of the agent and the result of a command. [`Journal::flush`] writes it
    /// when no command waits; so does the next line of another kind.
    pub fn output(&mut self, output: Output, error: Option<&CommandError>) {
        self.buffered.push((self.clock.now(), output, error.map(ToString::to_string)));
        if self.buffered.len() >= MAX_BUFFERED {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        for (at, output, error) in std::mem::take(&mut self.buffered) {
            let error = error.as_ref().map(|error| error as &dyn std::fmt::Display);
            let mut line = events::agent_event(at, &output, error, &self.names);
            if let Output::ClassDecision { class, .. } = &output {
                line["class"] = json!(self.classes.get(usize::from(class.0) - 1));
            }
            self.write_limited(&line);
        }
    }

    /// Names a path that was added; what was buffered belongs to the former one.
    pub fn name_path(&mut self, path: PathId, name: &str) {
        self.flush();
        let place = usize::from(path.0);
        self.names.resize(self.names.len().max(place + 1), String::new());
        self.names[place] = name.into();
    }

    /// Writes that a roadside unit took or gave up a slot, and why.
    pub fn roadside(&mut self, opened: bool, unit: (&str, u32), slot: u8, reason: &Reason) {
        self.write_event("roadside", events::slot_fields(opened, unit, slot, reason));
    }

    /// Writes over which path packets from the home address leave.
    pub fn home(&mut self, path: Option<PathId>, reason: &str) {
        let name = path.map(|path| path_name(&self.names, path));
        self.write_event("home", json!({ "path": name, "reason": reason }));
    }

    /// Writes whether a vehicle's home address has a route into its tunnel.
    pub fn home_route(&mut self, vehicle: VehicleEntry, stands: bool) {
        let action = if stands { "set" } else { "removed" };
        let fields = json!({ "station": vehicle.station, "home": vehicle.home.to_string(), "action": action });
        self.write_event("home_route", fields);
    }

    /// Writes whether the controller leads a vehicle's home address to this unit.
    pub fn serving(&mut self, station: u32, serves: bool) {
        self.write_event("serving", json!({ "station": station, "serves": serves }));
    }

    /// Writes a change of a tunnel path's liveness.
    pub fn tunnel(&mut self, change: &Change) {
        let path = path_name(&self.names, change.path);
        let liveness = change.liveness.name();
        let fields = json!({ "peer": change.peer, "path": path, "liveness": liveness, "reason": change.reason });
        self.write_event("tunnel", fields);
    }

    pub fn tunnel_mode(&mut self, mode: Mode, previous: Mode) {
        self.write_event("tunnel_mode", json!({ "mode": mode, "was": previous }));
    }

    pub fn fault(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        self.write_event("fault", json!({ "reason": cause.to_string() }));
    }

    /// Writes an input that was rejected: a separate rule, so that a flood of them
    /// hides no fault.
    pub fn rejected(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        self.write_event("fault", json!({ "reason": cause.to_string(), "rule": "rejected" }));
    }

    pub fn note(&mut self, reason: &str) {
        self.write_event("note", json!({ "reason": reason }));
    }

    /// Reports suppressed lines; must be called periodically.
    pub fn report_suppressed(&mut self, at_end: bool) {
        for (rule, lines) in self.limit.take_suppressed(self.clock.now(), at_end) {
            if !self.write_event(SUPPRESSED, json!({ "rule": rule, "lines": lines })) {
                self.limit.lost(self.clock.now(), &rule, lines);
            }
        }
    }

    /// Writes the totals of the tunnel's paths, and the counts of packets that were not carried.
    pub fn tunnel_totals(&mut self, status: &Status, counts: &Counts) {
        for peer in &status.peers {
            for path in &peer.paths {
                let mut fields = json!(path);
                fields["peer"] = json!(peer.name);
                self.write_event("tunnel_path", fields);
            }
        }
        let count = |count: &AtomicU64| count.load(Relaxed);
        let fields = json!({
            "rejected": count(&counts.rejected),
            "misrouted": count(&counts.misrouted),
            "too_big": count(&counts.too_big),
            "send_errors": count(&counts.send_errors),
        });
        self.write_event("tunnel_counts", fields);
    }

    /// Writes the last lines; `unmanaged` connections exceeded the path manager's table.
    pub fn finish(&mut self, unmanaged: u64) {
        self.report_suppressed(true);
        let fields = json!({ "faults": self.faults, "resident_mb": resident_mb(), "unmanaged_connections": unmanaged });
        self.write_event("end", fields);
    }

    /// Writes the last lines of a controller.
    pub fn finish_controller(&mut self) {
        self.report_suppressed(true);
        self.write_event("end", json!({ "faults": self.faults, "resident_mb": resident_mb() }));
    }

    /// Writes an event; `fields` must be an object. False if it is lost.
    pub fn write_event(&mut self, event: &str, fields: Value) -> bool {
        self.flush();
        let line = events::line(self.clock.now(), self.source, event, fields);
        self.write_limited(&line)
    }

    fn write_limited(&mut self, line: &Value) -> bool {
        let now = self.clock.now();
        let (rule, text) = (rule(line), line.to_string());
        if !self.limit.admit(now, &rule, text.len() + 1) {
            return false;
        }
        let written = self.write(&text);
        if !written {
            self.limit.lost(now, &rule, 1);
        }
        written
    }

    /// A full disk, or a pipe that is not read, costs the events, not the connections: the failure is reported
    /// once until writing works again. False if the line is lost.
    fn write(&mut self, text: &str) -> bool {
        match self.to.write(self.clock.now(), text) {
            Some(Ok(())) => {
                if std::mem::take(&mut self.broken) {
                    output::message(format_args!("events are written to {} again", self.name));
                }
                true
            }
            Some(Err(cause)) => {
                if !std::mem::replace(&mut self.broken, true) {
                    let (name, source) = (&self.name, self.source);
                    output::message(format_args!(
                        "while writing events to {name}: {cause}; the {source} continues without them"
                    ));
                }
                false
            }
            None => false,
        }
    }
}

/// The key by which a line is limited: the event and its rule, command or kind.
fn rule(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().filter(|text| !text.is_empty());
    let event = text("event").unwrap_or_default();
    if event == SUPPRESSED {
        return event.to_owned();
    }
    match ["rule", "command", "kind", "liveness"].into_iter().find_map(text) {
        Some(detail) => format!("{event} {detail}"),
        None => event.to_owned(),
    }
}
