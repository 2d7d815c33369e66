//! Reads the events that an agent of a drive wrote as a separate process.

use std::io::{self, BufRead};

use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::{AgentRows, AlarmRow, DecisionRow};
use serde::Deserialize;
use serde_json::Value;

use super::events::RunEvent;

/// The events of an agent.
#[derive(Debug, Default)]
pub struct AgentFile {
    /// All, with times since the start of the run.
    pub events: Vec<(Instant, RunEvent)>,
    /// Its decisions and alarms.
    pub rows: AgentRows,
    /// Resident memory when it ended, in MB.
    pub resident_mb: Option<f64>,
    /// Bytes of the copies that it sent through a tunnel; none without one.
    pub copied_bytes: Option<u64>,
}

/// How to read an agent's file.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Name of the agent in the records.
    pub source: &'static str,
    /// Names of the paths.
    pub names: &'a [String],
    /// Start of the run on the monotonic clock.
    pub origin_ns: u64,
    /// End of the run: later events do not belong to it.
    pub end: Instant,
}

/// A line, as far as it is evaluated.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start {
        monotonic_ns: u64,
    },
    Decision {
        path: String,
        state: PathState,
    },
    Alarm {
        path: String,
        false_positive: Option<bool>,
    },
    TunnelPath {
        copied_bytes: u64,
    },
    End {
        resident_mb: Option<f64>,
    },
    #[serde(other)]
    Other,
}

impl Reader<'_> {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is no event.
    pub fn read(&self, file: impl BufRead) -> io::Result<AgentFile> {
        let mut found = AgentFile::default();
        let mut offset_s = 0.0;
        for text in file.lines() {
            let mut value: Value = serde_json::from_str(&text?)?;
            let line = Line::deserialize(&value)?;
            if let Line::Start { monotonic_ns } = line {
                offset_s = (monotonic_ns as f64 - self.origin_ns as f64) / 1e9;
            }
            let t_s = value["t_s"].as_f64().unwrap_or(0.0) + offset_s;
            match line {
                Line::End { resident_mb } => found.resident_mb = resident_mb,
                Line::TunnelPath { copied_bytes } => *found.copied_bytes.get_or_insert_default() += copied_bytes,
                _ => {}
            }
            if t_s <= self.end.as_secs_f64() {
                (value["t_s"], value["source"]) = (t_s.into(), self.source.into());
                let at = Instant::from_secs_f64(t_s.max(0.0));
                self.note(&mut found.rows, at, &line);
                found.events.push((at, RunEvent::Line(value)));
            }
        }
        Ok(found)
    }

    fn note(&self, rows: &mut AgentRows, at: Instant, line: &Line) {
        let id = |path: &String| self.names.iter().position(|name| name == path).map(|place| PathId(place as u8));
        let t_ns = at.as_nanos();
        match line {
            Line::Decision { path, state } => {
                rows.decisions.extend(id(path).map(|path| DecisionRow { t_ns, path, state: *state }));
            }
            Line::Alarm { path, false_positive } => {
                let row = id(path).map(|path| AlarmRow { t_ns, path, was_false: *false_positive });
                row.into_iter().for_each(|row| rows.note_alarm(row));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crosslane_core::agent::Output;
    use crosslane_core::reason::Reason;
    use serde_json::json;

    use super::super::events;
    use super::*;

    #[test]
    fn an_agents_file_gives_the_rows_of_its_outputs() {
        let names = ["its-g5".to_string(), "lte".to_string()];
        let decision = |path, state| {
            let reason = Reason::plain("rule", "text");
            Output::Decision { path: PathId(path), state, was: PathState::Closed, reason }
        };
        let outputs = [(2, decision(1, PathState::Active)), (5, decision(0, PathState::Backup))];
        let outputs = outputs.map(|(second, output)| (Instant::from_millis(second * 1000), output));
        let start = events::line(Instant::ZERO, "agent", "start", json!({ "monotonic_ns": 3_000_000_000_u64 }));
        let lines = outputs.iter().map(|(at, output)| events::agent_event(*at, output, None, &names));
        let end = events::line(Instant::from_millis(9000), "agent", "end", json!({ "resident_mb": 4.5 }));
        let tunnel = [300, 20].map(|copied_bytes| {
            events::line(Instant::from_millis(9000), "agent", "tunnel_path", json!({ "copied_bytes": copied_bytes }))
        });
        let text: String =
            [start].into_iter().chain(lines).chain(tunnel).chain([end]).map(|line| format!("{line}\n")).collect();

        let reader =
            Reader { source: "agent", names: &names, origin_ns: 4_000_000_000, end: Instant::from_millis(3500) };
        let found = reader.read(text.as_bytes()).unwrap();
        let expected = DecisionRow { t_ns: 1_000_000_000, path: PathId(1), state: PathState::Active };
        assert_eq!(found.rows, AgentRows { decisions: vec![expected], alarms: Vec::new() });
        assert_eq!((found.events.len(), found.resident_mb, found.copied_bytes), (2, Some(4.5), Some(320)));
    }
}
