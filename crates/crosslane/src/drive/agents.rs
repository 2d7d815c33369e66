//! The agents of a drive: none, the vehicle's, or the vehicle's and the
//! gateway's, which are the two endpoints of a tunnel; or a third-party tunnel.

use crosslane_core::tunnel::Encryption;
use crosslane_sim::scenario::base::{self, Kind};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crosslane_sim::scenario::{Base, PathEntry, RoadsideUnit, Scenario, Strategy, TunnelParams};
use toml::{Table, Value as Toml};

use super::agent_process::AgentProcess;
use super::onboard_unit::GPSD_PORT;
use super::peer_tunnels::PeerTunnels;
use super::roadside_tunnels::RoadsideTunnels;
use super::tunnel::{self, CLIENT, GATEWAY, Keys};
use crate::agent::config::UNITS;
use crate::error::{Error, Result};
use crate::observe::vanetza::PORT;
use crate::run_folder::agent_file::{AgentFile, Reader};
use crate::testbed::{Testbed, vehicle_address};

/// Demand socket of a drive's agent. Abstract names belong to a network
/// namespace, so each run has its own.
pub const DEMANDS: &str = "@crosslane-demands";

pub struct Agents {
    vehicle: Option<AgentProcess>,
    gateway: Option<AgentProcess>,
    third_party: Option<PeerTunnels>,
    units: Option<RoadsideTunnels>,
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
        !matches!(strategy.base.entry().kind, Kind::Baseline | Kind::Transfer)
    }

    /// Starts the agents that the strategy needs and returns when all are ready;
    /// their files are written into `folder`.
    pub fn start(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<Agents> {
        if strategy.is_tunnel() {
            return Agents::start_tunnel(scenario, strategy, folder, testbed);
        }
        let mut units = RoadsideTunnels::start(scenario, folder, testbed)?;
        let config = configuration(scenario, strategy, units.as_ref());
        let start = || AgentProcess::start("agent", config, folder);
        let vehicle = Agents::has_any(strategy).then(|| testbed.vehicle.enter(start)?).transpose()?;
        if let (Some(units), None) = (&mut units, &vehicle) {
            units.open_all(scenario, testbed)?;
        }
        let start = || PeerTunnels::start(scenario, strategy, folder, testbed);
        let third_party = strategy.base.is_peer_tunnel().then(start).transpose()?;
        Ok(Agents { vehicle, gateway: None, third_party, units, _keys: None })
    }

    fn start_tunnel(scenario: &Scenario, strategy: &Strategy, folder: &Path, testbed: &Testbed) -> Result<Agents> {
        let params: TunnelParams = base::read(&strategy.parameters)
            .map_err(|cause| Error::usage("planning the tunnel", cause, "see docs/reference/strategies.md"))?;
        let is_encrypted = params.encryption == Encryption::Noise;
        let keys = is_encrypted.then(|| Keys::make(folder, &[CLIENT, GATEWAY])).transpose()?;
        let tunnel_config = tunnel::gateway_config(scenario, &params, keys.as_ref());
        let gateway_config = Table::from_iter([("tunnel".to_string(), tunnel_config.into())]);
        let start = || AgentProcess::start("gateway", gateway_config, folder);
        let gateway = testbed.server.enter(start)??;
        let mut vehicle_config = configuration(scenario, &strategy.steering(params.steer.0), None);
        vehicle_config.insert("tunnel".into(), tunnel::vehicle_config(scenario, &params, keys.as_ref()).into());
        let start = || AgentProcess::start("agent", vehicle_config, folder);
        let vehicle = testbed.vehicle.enter(start)??;
        Ok(Agents { vehicle: Some(vehicle), gateway: Some(gateway), third_party: None, units: None, _keys: keys })
    }

    pub fn are_running(&mut self) -> bool {
        self.vehicle.iter_mut().chain(&mut self.gateway).all(AgentProcess::is_running)
            && self.third_party.iter_mut().all(PeerTunnels::are_running)
            && self.units.iter_mut().all(RoadsideTunnels::are_running)
    }

    /// Ends them and reads their events.
    pub fn finish(self, reader: Reader) -> Result<Finished> {
        self.units.map_or(Ok(()), |units| units.finish(reader))?;
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

/// The configuration of the vehicle's agent; `units` are those that it reaches through tunnels.
fn configuration(scenario: &Scenario, strategy: &Strategy, units: Option<&RoadsideTunnels>) -> Table {
    let links = scenario.links();
    let path = |entry: PathEntry<'_>| {
        let stations: Vec<Toml> =
            scenario.units_on(entry.name).map(|unit| Toml::Integer(unit.station_id.into())).collect();
        let rat = Toml::try_from(entry.rat).unwrap_or(Toml::String(String::new()));
        let mut path = Table::from_iter([("name".to_string(), entry.name.into()), ("rat".to_string(), rat)]);
        if !stations.is_empty() {
            path.insert("stations".into(), Toml::Array(stations));
        }
        if let Some(radio) = links.iter().position(|link| link.is_shared_by(usize::from(entry.id.0))) {
            path.insert("radio".into(), Toml::Integer(radio as i64));
        }
        Toml::Table(path)
    };
    let changing = changing_paths(scenario);
    let standing = scenario.paths().into_iter().filter(|path| !changing.contains(path.name));
    let prefer = preference(scenario).into_iter().map(Toml::from).collect();
    let mut strategy_config = strategy.parameters.clone();
    strategy_config.insert("name".into(), strategy.base.name().into());
    let section = |entries: Vec<(&str, Toml)>| {
        Toml::Table(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    };
    let mut service = vec![("mode", scenario.service.mode.name().into()), ("prefer", Toml::Array(prefer))];
    // The scenario names the path on which the connection begins.
    if scenario.traffic.over.is_some() {
        service.push(("default_route", false.into()));
    }
    let costs = scenario.service.cost_per_gb.iter().map(|(name, cost)| (name.clone(), (*cost).into()));
    service.push(("cost_per_gb", Toml::Table(costs.collect())));
    if scenario.traffic.kind.deadlines().is_some() {
        service.push(("demands", DEMANDS.into()));
    }
    let local = |port: u16| Toml::String(format!("127.0.0.1:{port}"));
    let mut table = Table::from_iter([
        ("path".to_string(), Toml::Array(standing.map(path).collect())),
        ("service".to_string(), section(service)),
        ("strategy".to_string(), Toml::Table(strategy_config)),
        ("observe".to_string(), section(vec![("vanetza", local(PORT)), ("gpsd", local(GPSD_PORT))])),
    ]);
    table.extend(echo(scenario, strategy, &changing).map(|echo| ("echo".to_string(), echo.into())));
    let section = units.map(RoadsideTunnels::section).or_else(|| roadside(scenario));
    table.extend(section.map(|section| ("roadside".to_string(), section.into())));
    table
}

/// The echo requests to the server, if the scenario has any and the strategy uses them.
fn echo(scenario: &Scenario, strategy: &Strategy, changing: &BTreeSet<&str>) -> Option<Table> {
    let echo = scenario.echo.as_ref().filter(|_| matches!(strategy.base, Base::Agent(entry) if entry.uses_echoes()))?;
    let mut table = Table::try_from(echo).ok()?;
    if let Some(Toml::Table(paths)) = table.get_mut("paths") {
        paths.retain(|name, _| !changing.contains(name));
    }
    table.insert("address".into(), scenario.ip_version.server().to_string().into());
    Some(table)
}

/// Names of the paths that the agent adds and removes: to units in slots, or behind tunnels.
fn changing_paths(scenario: &Scenario) -> BTreeSet<&str> {
    let paths = scenario.paths().into_iter().map(|path| path.name);
    let tunnelled = paths.filter(|name| scenario.tunnel_of(name).is_some());
    scenario.slotted_paths().into_iter().chain(tunnelled).collect()
}

/// The user's preference: such an agent does not know the units by their names, and what
/// precedes the first of them precedes all.
fn preference(scenario: &Scenario) -> Vec<String> {
    let (changing, ranks) = (changing_paths(scenario), scenario.ranks());
    if changing.is_empty() {
        return scenario.service.prefer.clone();
    }
    let mut paths = scenario.paths();
    paths.sort_by_key(|path| ranks[usize::from(path.id.0)]);
    let name = |path: PathEntry<'_>| if changing.contains(path.name) { UNITS } else { path.name }.to_owned();
    let mut names: Vec<String> = Vec::new();
    for name in paths.into_iter().map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The section `[roadside]`, of a radio with slots and without tunnels. The testbed has an interface
/// for each unit.
fn roadside(scenario: &Scenario) -> Option<Table> {
    let (radio, slots) =
        scenario.radios.iter().find_map(|radio| Some((radio, radio.slots.filter(|_| radio.tunnel.is_none())?)))?;
    let unit = |unit: &RoadsideUnit| {
        let place = usize::from(scenario.path_id(&unit.name)?.0);
        Some(Toml::Table(Table::from_iter([
            ("station".to_string(), Toml::Integer(unit.station_id.into())),
            ("name".to_string(), unit.name.as_str().into()),
            ("inner".to_string(), format!("{}/24", vehicle_address(place)).into()),
        ])))
    };
    Some(Table::from_iter([
        ("tunnel".to_string(), "none".into()),
        ("slots".to_string(), Toml::Integer(slots.into())),
        ("unit".to_string(), Toml::Array(scenario.units_of(radio).filter_map(unit).collect())),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::config, scenario_file};

    #[test]
    fn an_agent_of_a_drive_with_slots_gets_its_units_and_their_place_in_the_preference() {
        let text = |prefer: &str| {
            let mut text = format!(
                "name = \"road\"\nduration_s = 5\n\
                 [vehicle]\nroute = {{ from_m = [0, 0], to_m = [9, 0], speed_kmh = 9 }}\n\
                 [service]\nprefer = {prefer}\n[traffic]\nkind = \"bulk\"\n\
                 [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\npaths = \"units\"\nslots = 4\nrate_mbit_s = 6\n\
                 path_loss = \"cheng\"\n\
                 [[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = 10\ndelay_ms = 20\n"
            );
            for unit in 0..40 {
                let (x, radio) = (unit * 10, "radio = \"its-g5\"");
                text += &format!("[[roadside_unit]]\nname = \"rsu{unit}\"\n{radio}\nposition_m = [{x}, 10]\n");
            }
            text
        };
        let (folder, ranks) = (tempfile::TempDir::new().unwrap(), [("[]", 0, 1), ("[\"lte\", \"rsu7\"]", 1, 0)]);
        for (prefer, unit, lte) in ranks {
            let scenario = Scenario::parse(&text(prefer), "road.toml").unwrap();
            let table = configuration(&scenario, &scenario.strategy("threshold").unwrap(), None);
            let file = folder.path().join("agent.toml");
            std::fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
            let config = config::read(&file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((config.unit_rank(), config.ranks()), (unit, vec![lte]), "{prefer}");
            let units = &config.roadside.as_ref().unwrap().get_ref().units;
            let last = units.last().unwrap().get_ref();
            assert_eq!((units.len(), last.station, &last.name[..]), (40, 1039, "rsu39"));
            assert_eq!(last.net().unwrap().addr(), vehicle_address(39));
        }
    }

    #[test]
    fn an_agent_of_a_drive_with_deadlines_reads_socket_prices_and_strategy() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/deadline/symmetric-10s-cubic.toml"));
        let scenario = scenario_file::read(file, None).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("agent.toml");
        for name in ["deadline-mptcp", "mp-dpa-08"] {
            let table = configuration(&scenario, &scenario.strategy(name).unwrap(), None);
            std::fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
            let config = config::read(&file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.service.demands.as_ref().map(|name| name.get_ref().as_str()), Some(DEMANDS));
            assert_eq!(Some(config.prices()), scenario.prices());
        }
    }
}
