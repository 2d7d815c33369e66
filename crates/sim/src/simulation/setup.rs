//! Creates the parts of a run from a scenario and a strategy.

use std::fmt::Display;

use crosslane_core::actuator::{Actuator, PacketScheduler};
use crosslane_core::agent::Agent;
use crosslane_core::mptcp::manager::Manager;
use crosslane_core::parameters::Field;
use crosslane_core::path::{PathId, PathSpec};
use crosslane_core::rng::Rng;
use crosslane_core::time::Duration;

use super::packet::UDP_HEADER_BYTES;
use super::path_control::PathControl;
use super::tunnel::TunnelEndpoints;
use crate::addresses::vehicle_address;
use crate::bounds::oracle::Foresight;
use crate::scenario::{Base, Mode, Scenario, ScenarioError, Strategy, TunnelParams, base};
use crate::transport::segment::MTU_BYTES;
use crate::transport::{KernelPathManager, Protocol, Settings, Ticks};
use crate::world::World;

/// Overlap of two subflows; the default on a vehicle.
const OVERLAP: Duration = Duration::from_millis(10);
/// `net.mptcp.stale_loss_cnt`: the default, and the tuned value.
const STALE_LOSS_COUNT: u32 = 4;
const TUNED_STALE_LOSS_COUNT: u32 = 1;

/// Settings of both kernels.
pub(super) fn settings(scenario: &Scenario, strategy: &Strategy, seed: u64, side: &str, mtu_bytes: u16) -> Settings {
    Settings {
        protocol: if strategy.base == Base::Single || strategy.is_tunnel() { Protocol::Tcp } else { Protocol::Mptcp },
        algorithm: scenario.congestion,
        scheduler: scenario.scheduler,
        send_buffer_bytes: scenario.traffic.send_buffer_bytes,
        stale_loss_count: if strategy.base == Base::KernelTuned { TUNED_STALE_LOSS_COUNT } else { STALE_LOSS_COUNT },
        ranks: scenario.ranks(),
        mtu_bytes,
        ticks: Ticks::new(Rng::new(seed, &format!("ticks {side}")).uniform()),
    }
}

/// The path control of a strategy.
///
/// # Errors
/// Invalid parameters, or a world that cannot be created.
pub(super) fn path_control(scenario: &Scenario, strategy: &Strategy, seed: u64) -> Result<PathControl, ScenarioError> {
    let manager = Manager::new(specs(scenario), OVERLAP);
    control_by(scenario, strategy, seed, vec![Box::new(manager), scheduler(scenario)])
}

/// The path control of a strategy; if it is an agent, it controls these actuators.
fn control_by(
    scenario: &Scenario,
    strategy: &Strategy,
    seed: u64,
    actuators: Vec<Box<dyn Actuator>>,
) -> Result<PathControl, ScenarioError> {
    match strategy.base {
        Base::Single => Ok(PathControl::None),
        Base::Kernel | Base::KernelTuned => {
            let preferred = scenario.preferred_path();
            let is_backup = |path: PathId| scenario.service.mode == Mode::Backup && path != preferred;
            let paths = scenario.paths().into_iter().map(|path| (path.id, is_backup(path.id)));
            Ok(PathControl::Kernel(KernelPathManager { endpoints: paths.collect() }))
        }
        Base::Oracle => {
            let params = parameters(scenario, strategy)?;
            let foresight = Foresight::new(World::new(scenario, seed)?, scenario, params);
            let agent = foresight.agent(&specs(scenario), &scenario.ranks(), scenario.service.mode, actuators);
            Ok(PathControl::with_agent(agent, scenario.paths().len()))
        }
        Base::Tunnel => {
            let TunnelParams { steer, .. } = parameters(scenario, strategy)?;
            let steering =
                Strategy { name: steer.0.name.into(), base: Base::Agent(steer.0), parameters: toml::Table::new() };
            control_by(scenario, &steering, seed, vec![scheduler(scenario)])
        }
        Base::Vxlan | Base::WireguardGo => {
            Err(rejected(scenario, strategy, &"the simulator does not have this strategy"))
        }
        Base::Agent(entry) => {
            let read = entry.read(base::values(&strategy.parameters));
            let strategy = read.map_err(|fault| rejected(scenario, strategy, &fault))?;
            let agent = Agent::new(&specs(scenario), &scenario.ranks(), scenario.service.mode, strategy, actuators);
            Ok(PathControl::with_agent(agent, scenario.paths().len()))
        }
    }
}

fn scheduler(scenario: &Scenario) -> Box<dyn Actuator> {
    Box::new(PacketScheduler::new(scenario.paths().len()))
}

/// The tunnel's endpoints, if there is one, and the MTU of the traffic, in bytes.
///
/// # Errors
/// Invalid parameters, or datagrams that do not fit.
pub(super) fn tunnel(
    scenario: &Scenario,
    strategy: &Strategy,
) -> Result<(Option<TunnelEndpoints>, u16), ScenarioError> {
    if !strategy.is_tunnel() {
        return Ok((None, MTU_BYTES));
    }
    let endpoints = TunnelEndpoints::new(scenario, &parameters(scenario, strategy)?);
    let mtu_bytes = endpoints.mtu_bytes(scenario);
    let max = mtu_bytes.saturating_sub(UDP_HEADER_BYTES);
    let is_udp = scenario.traffic.protocol == crate::traffic::Protocol::Udp;
    if is_udp && scenario.traffic.kind.message_bytes().is_some_and(|bytes| bytes > max.into()) {
        let fault = format!("the simulator does not fragment datagrams, and more than {max} bytes do not fit");
        return Err(rejected(scenario, strategy, &fault));
    }
    Ok((Some(endpoints), mtu_bytes))
}

fn parameters<P: Field>(scenario: &Scenario, strategy: &Strategy) -> Result<P, ScenarioError> {
    base::read(&strategy.parameters).map_err(|fault| rejected(scenario, strategy, &fault))
}

fn specs(scenario: &Scenario) -> Vec<PathSpec> {
    let spec = |path: crate::scenario::PathEntry<'_>| PathSpec {
        name: path.name.into(),
        rat: path.rat,
        local: Some(vehicle_address(usize::from(path.id.0)).into()),
        if_index: u32::from(path.id.0) + 1,
    };
    scenario.paths().into_iter().map(spec).collect()
}

fn rejected(scenario: &Scenario, strategy: &Strategy, cause: &dyn Display) -> ScenarioError {
    ScenarioError {
        file: scenario.name.clone(),
        line: None,
        what: format!("strategy `{}`: {cause}", strategy.name),
        remedy: "see docs/reference/strategies.md for its parameters".into(),
    }
}
