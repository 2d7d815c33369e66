//! What the agent saw and did, one JSON object a line (`docs/formats.md`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crosslane_core::agent::Output;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;
use serde_json::{Value, json};

use super::config::Config;
use crate::clock::Clock;
use crate::control::tunnel::{Status, path_name};
use crate::netlink::CommandError;
use crate::run_folder::events;
use crate::tunnel::endpoint::{Change, Counts};

mod file;
mod limit;

use file::Sink;
use limit::Limit;

/// Outputs noted before they are written, at most.
const NOTED: usize = 256;
/// The event that says how many lines of a rule were left out.
const LEFT_OUT: &str = "suppressed";

/// Writes the events. Whatever happens, it writes less than a megabyte a minute
/// and says what it leaves out.
pub struct Journal {
    clock: Clock,
    names: Vec<String>,
    to: Sink,
    name: String,
    noted: Vec<Noted>,
    limit: Limit,
    faults: u64,
    broken: bool,
}

/// What the agent said, when, and why the kernel refused it.
struct Noted {
    at: Instant,
    output: Output,
    error: Option<String>,
}

impl Journal {
    /// Writes into the file that the configuration names, or to standard output.
    pub fn open(config: &Config, clock: Clock) -> Journal {
        let (to, name) = match &config.log.events {
            Some(file) => {
                let name = file.display().to_string();
                let max_bytes = u64::from(*config.log.events_max_mb.get_ref()) * 1_000_000;
                (Sink::file(file, max_bytes), name)
            }
            None => (Sink::standard(), "standard output".into()),
        };
        let names = config.paths.iter().map(|path| path.get_ref().name.clone()).collect();
        let limit = Limit::new(clock.now());
        let mut journal = Journal { clock, names, to, name, noted: Vec::new(), limit, faults: 0, broken: false };
        let start = json!({ "monotonic_ns": clock.origin_ns(), "version": env!("CARGO_PKG_VERSION") });
        journal.tell("start", start);
        journal
    }

    /// Notes what the agent said, and how a command went. [`Journal::settle`] writes it, when
    /// no command waits; so does the next line of another kind.
    pub fn output(&mut self, output: Output, error: Option<&CommandError>) {
        let at = self.clock.now();
        self.noted.push(Noted { at, output, error: error.map(ToString::to_string) });
        if self.noted.len() >= NOTED {
            self.settle();
        }
    }

    /// Writes what was noted.
    pub fn settle(&mut self) {
        for Noted { at, output, error } in std::mem::take(&mut self.noted) {
            let error = error.as_ref().map(|error| error as &dyn std::fmt::Display);
            let line = events::said(at, &output, error, &self.names);
            self.write_limited(&line);
        }
    }

    /// Writes how a path of the tunnel fares.
    pub fn tunnel(&mut self, change: &Change) {
        let path = path_name(&self.names, change.path);
        let liveness = change.liveness.name();
        self.tell(
            "tunnel",
            json!({ "peer": change.peer, "path": path, "liveness": liveness, "reason": change.reason }),
        );
    }

    /// Writes that the tunnel uses its paths otherwise from now on.
    pub fn tunnel_mode(&mut self, mode: Mode, was: Mode) {
        self.tell("tunnel_mode", json!({ "mode": mode, "was": was }));
    }

    /// Notes what did not work.
    pub fn fault(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        self.tell("fault", json!({ "reason": cause.to_string() }));
    }

    /// Notes what came in and could not be used: a rule of its own, so that a
    /// flood of it hides no fault.
    pub fn rejected(&mut self, cause: &dyn std::fmt::Display) {
        self.faults += 1;
        self.tell("fault", json!({ "reason": cause.to_string(), "rule": "rejected" }));
    }

    /// Writes what the user should know.
    pub fn note(&mut self, reason: &str) {
        self.tell("note", json!({ "reason": reason }));
    }

    /// To be called now and then: says what was left out.
    pub fn tick(&mut self) {
        self.tell_left_out(false);
    }

    fn tell_left_out(&mut self, at_end: bool) {
        for (rule, lines) in self.limit.take_left_out(self.clock.now(), at_end) {
            self.tell(LEFT_OUT, json!({ "rule": rule, "lines": lines }));
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
            "rejected": count(&counts.rejected),
            "misrouted": count(&counts.misrouted),
            "too_big": count(&counts.too_big),
            "send_errors": count(&counts.send_errors),
        });
        self.tell("tunnel_counts", fields);
    }

    /// Writes the last lines; `unmanaged` connections had no room in the path manager.
    pub fn finish(&mut self, unmanaged: u64) {
        self.tell_left_out(true);
        let fields = json!({ "faults": self.faults, "resident_mb": resident_mb(), "unmanaged_connections": unmanaged });
        self.tell("end", fields);
    }

    fn tell(&mut self, event: &str, fields: Value) {
        self.settle();
        let line = events::line(self.clock.now(), "agent", event, fields);
        self.write_limited(&line);
    }

    fn write_limited(&mut self, line: &Value) {
        let now = self.clock.now();
        let (rule, text) = (rule(line), line.to_string());
        if self.limit.admit(now, &rule, text.len() + 1) && !self.write(&text) {
            self.limit.lost(now, &rule);
        }
    }

    /// A full disk costs the events, not the connections: it is told once until
    /// there is room again. False if the line is lost.
    fn write(&mut self, text: &str) -> bool {
        match self.to.write(self.clock.now(), text) {
            Some(Ok(())) => {
                if std::mem::take(&mut self.broken) {
                    eprintln!("crosslane: events are written to {} again", self.name);
                }
                true
            }
            Some(Err(cause)) => {
                if !std::mem::replace(&mut self.broken, true) {
                    let name = &self.name;
                    eprintln!("crosslane: while writing events to {name}: {cause}; the agent goes on without them");
                }
                false
            }
            None => false,
        }
    }
}

/// What a line is limited with: the event and its rule, command or kind.
fn rule(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().filter(|text| !text.is_empty());
    let event = text("event").unwrap_or_default();
    if event == LEFT_OUT {
        return event.to_owned();
    }
    match ["rule", "command", "kind", "liveness"].into_iter().find_map(text) {
        Some(detail) => format!("{event} {detail}"),
        None => event.to_owned(),
    }
}

/// Resident memory of this process, in MB (10^6 bytes).
fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}
