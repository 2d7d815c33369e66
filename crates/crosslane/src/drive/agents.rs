//! The agents of a drive: none, the vehicle's, or the vehicle's and the
//! gateway's, which are the two endpoints of a tunnel; or a third-party tunnel.

use crosslane_core::tunnel::Encryption;
use crosslane_sim::scenario::base::{self, Base, Kind};
use std::path::Path;
use std::time::Duration;

use crosslane_sim::scenario::{Mode, PathEntry, Scenario, Strategy, TunnelParams};
use toml::{Table, Value as Toml};

use super::agent_process::AgentProcess;
use super::peer_tunnels::PeerTunnels;
use super::tunnel::{self, Keys};
use crate::error::{Error, Result};
use crate::observe::vanetza::PORT;
use crate::run_folder::agent_file::{AgentFile, Reader};
use crate::testbed::Testbed;

/// Demand socket of a drive's agent. Abstract names belong to a network
/// namespace, so each run has its own.
pub const DEMANDS: &str = "@crosslane-demands";

pub struct Agents {
    vehicle: Option<AgentProcess>,
    gateway: Option<AgentProcess>,
    third_party: Option<PeerTunnels>,
    /// Kept until the agents that use them have ended.
    _keys: Option<Keys>,
}

/// What the agents reported and used.
#[derive(Default)]
pub struct Finished {
    pub vehicle: AgentFile,
    pub gateway: AgentFile,
    /// CPU time of both endpoints of a tunnel.
    pub tunnel_cpu_time: Option<Duration>,
}

impl Agents {
    pub fn has_any(strategy: &Strategy) -> bool {
        strategy.base.entry().kind != Kind::Baseline
    }

    /// Starts the agents that the strategy needs and returns when all are ready;
    /// their files are written into `folder`.
    pub fn start(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<Agents> {
        if strategy.is_tunnel() {
            return Agents::start_tunnel(scenario, strategy, folder, testbed);
        }
        let start = || AgentProcess::start("agent", configuration(scenario, strategy), folder);
        let vehicle = Agents::has_any(strategy).then(|| testbed.vehicle.enter(start)?).transpose()?;
        let start = || PeerTunnels::start(scenario, strategy, folder, testbed);
        let third_party = strategy.base.is_peer_tunnel().then(start).transpose()?;
        Ok(Agents { vehicle, gateway: None, third_party, _keys: None })
    }

    fn start_tunnel(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<Agents> {
        let params: TunnelParams = base::read(&strategy.parameters)
            .map_err(|cause| Error::usage("planning the tunnel", cause, "see docs/reference/strategies.md"))?;
        let is_encrypted = params.encryption == Encryption::Noise;
        let keys = is_encrypted.then(|| Keys::make(folder)).transpose()?;
        let tunnel_config = tunnel::gateway_config(scenario, keys.as_ref());
        let gateway_config = Table::from_iter([("tunnel".to_string(), tunnel_config.into())]);
        let start = || AgentProcess::start("gateway", gateway_config, folder);
        let gateway = testbed.server.enter(start)??;
        let steer =
            Strategy { name: strategy.name.clone(), base: Base::Agent(params.steer.0), parameters: Table::new() };
        let mut vehicle_config = configuration(scenario, &steer);
        vehicle_config.insert("tunnel".into(), tunnel::vehicle_config(scenario, &params, keys.as_ref()).into());
        let start = || AgentProcess::start("agent", vehicle_config, folder);
        let vehicle = testbed.vehicle.enter(start)??;
        Ok(Agents { vehicle: Some(vehicle), gateway: Some(gateway), third_party: None, _keys: keys })
    }

    pub fn are_running(&mut self) -> bool {
        self.vehicle.iter_mut().chain(&mut self.gateway).all(AgentProcess::is_running)
            && self.third_party.iter_mut().all(PeerTunnels::are_running)
    }

    /// Ends them and reads their events.
    pub fn finish(self, reader: Reader) -> Result<Finished> {
        let Some(vehicle) = self.vehicle else {
            let tunnel_cpu_time = self.third_party.map(PeerTunnels::finish).transpose()?.flatten();
            return Ok(Finished { tunnel_cpu_time, ..Finished::default() });
        };
        let (vehicle, cpu_time) = vehicle.finish(reader)?;
        let Some(gateway) = self.gateway else { return Ok(Finished { vehicle, ..Finished::default() }) };
        let (gateway, gateway_cpu_time) = gateway.finish(Reader { source: "gateway", ..reader })?;
        Ok(Finished { vehicle, gateway, tunnel_cpu_time: Some(cpu_time + gateway_cpu_time) })
    }
}

fn configuration(scenario: &Scenario, strategy: &Strategy) -> Table {
    let path = |entry: PathEntry<'_>| {
        let stations: Vec<Toml> =
            scenario.units_on(entry.name).map(|unit| Toml::Integer(unit.station_id.into())).collect();
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
    let mut strategy_config = strategy.parameters.clone();
    strategy_config.insert("name".into(), strategy.base.name().into());
    let section = |entries: Vec<(&str, Toml)>| {
        Toml::Table(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    };
    let mut service = vec![("mode", mode.into()), ("prefer", Toml::Array(prefer))];
    if scenario.traffic.kind.deadlines().is_some() {
        let costs = scenario.service.cost_per_gb.iter().map(|(name, cost)| (name.clone(), (*cost).into()));
        service.extend([("demands", DEMANDS.into()), ("cost_per_gb", Toml::Table(costs.collect()))]);
    }
    Table::from_iter([
        ("path".to_string(), Toml::Array(scenario.paths().into_iter().map(path).collect())),
        ("service".to_string(), section(service)),
        ("strategy".to_string(), Toml::Table(strategy_config)),
        ("observe".to_string(), section(vec![("vanetza", format!("127.0.0.1:{PORT}").into())])),
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
            let table = configuration(&scenario, &scenario.strategy(name).unwrap());
            std::fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
            let config = config::read(&file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.service.demands.as_ref().map(|name| name.get_ref().as_str()), Some(DEMANDS));
            assert_eq!(config.unit_costs(), scenario.unit_costs());
        }
    }
}
