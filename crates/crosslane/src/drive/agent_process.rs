//! The agent of a drive: a process of its own in the vehicle's namespace, with
//! a configuration like a real vehicle's.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crosslane_sim::scenario::{Mode, Scenario, Strategy, TrafficKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use toml::{Table, Value as Toml};

use crate::agent::ready;
use crate::error::{Error, Result};
use crate::observe::vanetza::PORT;

/// How long an agent may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the agent of a drive takes demands: abstract names belong to a network
/// namespace, so each run has its own.
pub const DEMANDS: &str = "@crosslane-demands";

/// A running agent.
pub struct AgentProcess {
    child: Child,
    events: PathBuf,
    log: PathBuf,
}

impl AgentProcess {
    /// Writes the configuration into `folder` and starts the agent in this
    /// thread's network namespace; returns when it is ready.
    ///
    /// # Errors
    /// The agent's own sentence if it ends, else what went wrong.
    pub fn start(scenario: &Scenario, strategy: &Strategy, folder: &Path) -> Result<AgentProcess> {
        let failure = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        let (config, events, log) = (folder.join("agent.toml"), folder.join("agent.jsonl"), folder.join("agent.log"));
        let text = toml::to_string(&configuration(scenario, strategy, &events)).map_err(|cause| failure(&cause))?;
        std::fs::write(&config, text).map_err(|cause| failure(&cause))?;
        let name = format!("crosslane-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).map_err(|cause| failure(&cause))?;
        let news = UnixDatagram::bind_addr(&address).map_err(|cause| failure(&cause))?;
        news.set_read_timeout(Some(Duration::from_millis(50))).map_err(|cause| failure(&cause))?;
        let stderr = File::create(&log).map_err(|cause| failure(&cause))?;
        let child = Command::new(std::env::current_exe().map_err(|cause| failure(&cause))?)
            .arg("agent")
            .arg("--config")
            .arg(&config)
            .env(ready::VARIABLE, format!("@{name}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|cause| failure(&cause))?;
        let mut agent = AgentProcess { child, events, log };
        agent.await_ready(&news)?;
        Ok(agent)
    }

    fn await_ready(&mut self, news: &UnixDatagram) -> Result<()> {
        let mut buffer = [0; 64];
        for _ in 0..PATIENCE.as_millis() / 50 {
            if news.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == ready::READY) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().ok().flatten() {
                return Err(Error::failure("starting the agent", self.last_words(status)));
            }
        }
        Err(Error::failure("starting the agent", format!("it was not ready within {} s", PATIENCE.as_secs())))
    }

    /// The agent's own sentence, else how it ended.
    fn last_words(&self, status: ExitStatus) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        match said.trim().trim_start_matches("crosslane: ") {
            "" => status.to_string(),
            sentence => sentence.to_string(),
        }
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Ends the agent and returns its events, with `t_s` counted from the
    /// moment `origin_ns` of the monotonic clock.
    ///
    /// # Errors
    /// If it had ended before, its own sentence.
    pub fn finish(mut self, origin_ns: u64) -> Result<Vec<Value>> {
        if let Some(status) = self.child.try_wait().ok().flatten() {
            return Err(Error::failure("driving", format!("the agent ended early: {}", self.last_words(status))));
        }
        let failure = |cause: &dyn std::fmt::Display| Error::failure("ending the agent", cause);
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).map_err(|cause| failure(&cause))?;
        self.child.wait().map_err(|cause| failure(&cause))?;
        let file = File::open(&self.events).map_err(|cause| failure(&cause))?;
        let mut events = Vec::new();
        let mut offset_s = 0.0;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|cause| failure(&cause))?;
            let mut event: Value = serde_json::from_str(&line).map_err(|cause| failure(&cause))?;
            if let Some(start_ns) = event["monotonic_ns"].as_u64() {
                offset_s = (start_ns as f64 - origin_ns as f64) / 1e9;
            }
            event["t_s"] = (event["t_s"].as_f64().unwrap_or(0.0) + offset_s).into();
            events.push(event);
        }
        drop(std::fs::remove_file(&self.events));
        Ok(events)
    }
}

fn configuration(scenario: &Scenario, strategy: &Strategy, events: &Path) -> Table {
    let path = |entry: crosslane_sim::scenario::PathEntry<'_>| {
        let of_path = scenario.units.iter().filter(|unit| unit.radio == entry.name);
        let stations: Vec<Toml> = of_path.map(|unit| Toml::Integer(unit.station_id.into())).collect();
        let rat = Toml::try_from(entry.rat).unwrap_or(Toml::String(String::new()));
        let mut path = Table::from_iter([("name".to_string(), entry.name.into()), ("rat".to_string(), rat)]);
        if !stations.is_empty() {
            path.insert("stations".into(), Toml::Array(stations));
        }
        Toml::Table(path)
    };
    let mode = match scenario.service.mode {
        Mode::Aggregate => "aggregate",
        Mode::Backup => "backup",
    };
    let prefer = scenario.service.prefer.iter().map(|name| Toml::from(name.as_str())).collect();
    let mut of_strategy = strategy.parameters.clone();
    of_strategy.insert("name".into(), strategy.base.as_str().into());
    let section = |entries: Vec<(&str, Toml)>| {
        Toml::Table(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    };
    let mut service = vec![("mode", mode.into()), ("prefer", Toml::Array(prefer))];
    if matches!(scenario.traffic.kind, TrafficKind::Deadline(_)) {
        let costs = scenario.service.cost_per_gb.iter().map(|(name, cost)| (name.clone(), (*cost).into()));
        service.extend([("demands", DEMANDS.into()), ("cost_per_gb", Toml::Table(costs.collect()))]);
    }
    Table::from_iter([
        ("path".to_string(), Toml::Array(scenario.paths().into_iter().map(path).collect())),
        ("service".to_string(), section(service)),
        ("strategy".to_string(), Toml::Table(of_strategy)),
        ("observe".to_string(), section(vec![("vanetza", format!("127.0.0.1:{PORT}").into())])),
        ("log".to_string(), section(vec![("events", events.display().to_string().into())])),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::config, scenario_file};

    #[test]
    fn an_agent_of_a_drive_with_deadlines_reads_socket_prices_and_strategy() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/deadline/symmetric-10s-cubic.toml"));
        let scenario = scenario_file::read(file, None).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("agent.toml");
        for name in ["deadline", "mp-dpa-08"] {
            let table = configuration(&scenario, &scenario.strategy(name).unwrap(), Path::new("agent.jsonl"));
            std::fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
            let config = config::read(&file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.service.demands.as_ref().map(|name| name.get_ref().as_str()), Some(DEMANDS));
            assert_eq!(config.unit_costs(), scenario.unit_costs());
        }
    }
}
