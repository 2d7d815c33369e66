//! Creates the parts of a run from a scenario and a strategy.

use std::fmt::Display;

use crosslane_core::actuator::{Actuator, PacketScheduler};
use crosslane_core::agent::Agent;
use crosslane_core::mptcp::manager::{DEFAULT_OVERLAP, Manager};
use crosslane_core::parameters::Field;
use crosslane_core::path::{PathId, PathSpec};
use crosslane_core::rng::Rng;
use crosslane_core::time::Duration;

use super::agent_driver::AgentDriver;
use super::packet::UDP_HEADER_BYTES;
use super::path_control::{Controller, PathControl};
use super::slots::Slots;
use super::tunnel::TunnelEndpoints;
use crate::addresses::vehicle_address;
use crate::bounds::oracle::Foresight;
use crate::scenario::{Base, Mode, Scenario, ScenarioError, Strategy, TunnelParams, base};
use crate::transport::segment::MTU_BYTES;
use crate::transport::{KernelPathManager, Protocol, Settings, Ticks};
use crate::world::World;

/// `net.mptcp.stale_loss_cnt`: the default, and the tuned value.
const STALE_LOSS_COUNT: u32 = 4;
const TUNED_STALE_LOSS_COUNT: u32 = 1;

/// Settings of both kernels.
pub(super) fn settings(scenario: &Scenario, strategy: &Strategy, seed: u64, side: &str, mtu_bytes: u16) -> Settings {
    let is_plain = matches!(strategy.base, Base::Single | Base::Deadline | Base::Tunnel);
    Settings {
        protocol: if is_plain { Protocol::Tcp } else { Protocol::Mptcp },
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
    let manager = Manager::new(Standing::of(scenario).specs, DEFAULT_OVERLAP);
    let mut controller = controller(scenario, strategy, seed, vec![Box::new(manager), scheduler(scenario)])?;
    if let (Controller::Agent(driver), Base::Agent(entry)) = (&mut controller, &strategy.base)
        && entry.uses_echoes()
    {
        let (Standing { paths, specs, .. }, periods) = (Standing::of(scenario), scenario.echo_periods());
        let periods: Vec<Option<Duration>> = paths.iter().map(|path| periods[usize::from(path.0)]).collect();
        driver.agent.set_echoes(&specs, &periods);
    }
    // A connection over one path needs no slot.
    let slots = if strategy.keeps_to_one_path() { Slots::default() } else { Slots::new(scenario) };
    Ok(PathControl::new(controller, slots))
}

/// What controls the paths; if it is an agent, it controls these actuators.
fn controller(
    scenario: &Scenario,
    strategy: &Strategy,
    seed: u64,
    actuators: Vec<Box<dyn Actuator>>,
) -> Result<Controller, ScenarioError> {
    let Standing { paths, specs, ranks } = Standing::of(scenario);
    let all = || self::specs(scenario).into_iter().zip(scenario.ranks()).collect();
    match strategy.base {
        Base::Single | Base::Deadline => Ok(Controller::None),
        Base::Kernel | Base::KernelTuned => {
            let preferred = scenario.preferred_path();
            let is_backup = |path: PathId| scenario.service.mode != Mode::Aggregate && path != preferred;
            let backups = scenario.paths().into_iter().map(|path| is_backup(path.id)).collect();
            Ok(Controller::Kernel(KernelPathManager::new(paths, backups)))
        }
        Base::Oracle => {
            let params = parameters(scenario, strategy)?;
            let foresight = Foresight::new(World::new(scenario, seed)?, scenario, params);
            let agent = foresight.agent(&specs, &ranks, scenario.service.mode, actuators);
            Ok(Controller::Agent(AgentDriver::new(agent, all(), paths)))
        }
        Base::Tunnel => {
            let TunnelParams { steer, .. } = parameters(scenario, strategy)?;
            controller(scenario, &strategy.steering(steer.0), seed, vec![scheduler(scenario)])
        }
        Base::Vxlan | Base::WireguardGo => {
            Err(rejected(scenario, strategy, &"the simulator does not have this strategy"))
        }
        Base::Agent(entry) => {
            let strategy = scenario.agent_strategy(entry, strategy)?;
            let mut agent = Agent::new(&specs, &ranks, scenario.service.mode, strategy, actuators);
            agent.set_unit_costs(scenario.prices().unwrap_or_default());
            Ok(Controller::Agent(AgentDriver::new(agent, all(), paths)))
        }
    }
}

fn scheduler(scenario: &Scenario) -> Box<dyn Actuator> {
    Box::new(PacketScheduler::new(Standing::of(scenario).paths.len()))
}

/// The tunnel's endpoints, if there is one, and the MTU of the traffic, in bytes.
///
/// # Errors
/// Invalid parameters, or datagrams that do not fit.
pub(super) fn tunnel(
    scenario: &Scenario,
    strategy: &Strategy,
) -> Result<(Option<TunnelEndpoints>, u16), ScenarioError> {
    let (endpoints, mtu_bytes) = match scenario.tunnelled_radio() {
        _ if strategy.is_tunnel() => {
            let endpoints = TunnelEndpoints::new(scenario, &parameters(scenario, strategy)?);
            let mtu_bytes = endpoints.mtu_bytes(scenario);
            (Some(endpoints), mtu_bytes)
        }
        Some((_, tunnel)) => (None, (scenario.tunnel.mtu as u16).saturating_sub(tunnel.overhead_bytes())),
        None => return Ok((None, MTU_BYTES - scenario.ip_version.longer_by_bytes())),
    };
    let max = mtu_bytes.saturating_sub(UDP_HEADER_BYTES);
    let is_udp = scenario.traffic.protocol == crate::traffic::Protocol::Udp;
    if is_udp && scenario.traffic.kind.message_bytes().is_some_and(|bytes| bytes > max.into()) {
        let fault = format!("the simulator does not fragment datagrams, and more than {max} bytes do not fit");
        return Err(rejected(scenario, strategy, &fault));
    }
    Ok((endpoints, mtu_bytes))
}

fn parameters<P: Field>(scenario: &Scenario, strategy: &Strategy) -> Result<P, ScenarioError> {
    base::read(&strategy.parameters).map_err(|fault| rejected(scenario, strategy, &fault))
}

/// The paths that stand from the start.
struct Standing {
    paths: Vec<PathId>,
    specs: Vec<PathSpec>,
    ranks: Vec<u8>,
}

impl Standing {
    fn of(scenario: &Scenario) -> Standing {
        let links = scenario.links().into_iter().filter(|link| link.slots.is_none());
        let places: Vec<usize> = links.flat_map(|link| link.paths).collect();
        let (specs, ranks) = (specs(scenario), scenario.ranks());
        Standing {
            paths: places.iter().map(|place| PathId(*place as u8)).collect(),
            specs: places.iter().map(|place| specs[*place].clone()).collect(),
            ranks: places.iter().map(|place| ranks[*place]).collect(),
        }
    }
}

fn specs(scenario: &Scenario) -> Vec<PathSpec> {
    let links = scenario.links();
    let spec = |path: crate::scenario::PathEntry<'_>| PathSpec {
        name: path.name.into(),
        rat: path.rat,
        local: Some(vehicle_address(usize::from(path.id.0)).into()),
        if_index: u32::from(path.id.0) + 1,
        radio: (0..).zip(&links).find_map(|(radio, link)| link.is_shared_by(usize::from(path.id.0)).then_some(radio)),
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
