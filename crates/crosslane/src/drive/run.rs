//! One run: namespaces, emulated links, agents, traffic and records.

use crosslane_sim::record::rows::ThroughputRow;
use crosslane_sim::scenario::{Base, Scenario, Strategy, Wire};
use crosslane_sim::traffic::Protocol;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crosslane_core::time::Instant;
use crosslane_sim::simulation::Side;
use nix::sys::resource::UsageWho;

use super::agent_process::cpu_time;
use super::agents::Agents;
use super::kernel_path_manager::{prepare_server, prepare_vehicle};
use super::monitor::{MonitorRecord, monitor};
use super::onboard_unit::OnBoardUnit;
use super::results::{self, Raw};
use super::traffic::{Delivered, EndpointConfig, TrafficEndpoints};
use super::world::EmulatedWorld;
use super::{Plan, interface_outages, keep, peer_tunnels, tunnel, unit_endpoints, wire_monitor};
use crate::agent::unit_tunnel::FIRST_METRIC;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::output;
use crate::run_folder::{self, agent_file::Reader};
use crate::summary::Outcome;
use crate::testbed::wire::{Shape, WirePlan};
use crate::testbed::{
    MAX_PATHS, Namespace, PathPlan, RadioPlan, Testbed, TestbedPlan, contain, end_with, prepare_privileges,
};
use crate::{netlink, scenario_file};

/// Checks what every run needs (privileges, namespaces, a kernel with MPTCP)
/// and what strategies with these bases need in addition.
///
/// # Errors
/// What is missing on this machine.
pub fn probe(bases: &[String]) -> Result<()> {
    prepare_privileges()?;
    contain()?;
    Namespace::new()?.enter(netlink::probe)?.map_err(|cause| Error::message(cause.to_string(), 2))?;
    bases.iter().try_for_each(|base| peer_tunnels::probe(base))
}

/// Executes the run that `drive` has planned and reports on standard output:
/// `at SECONDS` as progress, then `cpu SECONDS` and `outcome JSON`.
///
/// # Errors
/// What is missing on this machine, or the cause of the failure.
pub fn run_one(plan: &str) -> Result<ExitCode> {
    let plan: Plan = serde_json::from_str(plan).map_err(|cause| Error::failure("reading the plan of a run", cause))?;
    prepare_privileges()?;
    end_with(plan.parent)?;
    contain()?;
    if plan.keep {
        keep::prepare()?;
    }
    let mut scenario = scenario_file::parse(&scenario_file::text(&plan.copy)?, &plan.scenario, plan.data.as_deref())?;
    scenario_file::name_trees_absolutely(&mut scenario, &plan.scenario, plan.data.as_deref())?;
    let Some(strategy) = scenario.strategy(&plan.entry.strategy) else {
        let cause = format!("there is no strategy {:?}", plan.entry.strategy);
        return Err(Error::usage("planning a run", cause, "name another"));
    };
    run_folder::make(&plan.folder)?;
    let run = Run::new(plan, scenario, strategy)?;
    let json = serde_json::to_string(&run.execute()?).map_err(|cause| Error::failure("writing the outcome", cause))?;
    output::print("reporting the outcome", format!("cpu {}\noutcome {json}\n", cpu_s()))?;
    Ok(ExitCode::SUCCESS)
}

/// CPU time of this run and of the processes that it has started, in s.
fn cpu_s() -> f64 {
    (cpu_time(UsageWho::RUSAGE_SELF) + cpu_time(UsageWho::RUSAGE_CHILDREN)).as_secs_f64()
}

/// Metric above those of the tunnels to roadside units.
const AFTER_TUNNELS: u32 = FIRST_METRIC + MAX_PATHS as u32;

struct Run {
    plan: Plan,
    scenario: Scenario,
    strategy: Strategy,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    testbed: Testbed,
}

impl Run {
    fn new(plan: Plan, scenario: Scenario, strategy: Strategy) -> Result<Run> {
        let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
        let one_path = strategy.keeps_to_one_path();
        let first = if one_path { scenario.single_path(&strategy) } else { scenario.first_path() };
        let is_over_radio = |name: &String| scenario.tunnel_of(name).is_some();
        // The first subflow takes a tunnel to a unit before any path without one.
        let others = if is_over_radio(&names[usize::from(first.0)]) { AFTER_TUNNELS } else { 2 };
        let metric = |place: usize| if place == usize::from(first.0) { 1 } else { others + place as u32 };
        let plan_of = |(place, name): (usize, &String)| PathPlan { name: name.clone(), metric: metric(place) };
        let paths: Vec<PathPlan> = names.iter().enumerate().map(plan_of).collect();
        let is_unit = |name: &&String| matches!(scenario.radio_of(name), Some((_, Some(_))));
        let (over_radio, units) = names.iter().filter(is_unit).cloned().partition(is_over_radio);
        let interface = scenario.tunnelled_radio().map(|(radio, _)| radio.name.clone());
        let radio = interface.map(|interface| RadioPlan { interface, units: over_radio });
        let slotted = scenario.slotted_paths().into_iter().filter(|_| Agents::has_any(&strategy));
        let (down, mtu) = (slotted.map(String::from).collect(), scenario.tunnel.mtu);
        let plan_of_testbed = TestbedPlan { wires: wires(&scenario), units, radio, down, mtu, ip: scenario.ip_version };
        let testbed = Testbed::with(&paths, &plan_of_testbed)?;
        let addresses = (0..names.len()).map(|place| scenario.ip_version.vehicle(place)).collect();
        Ok(Run { plan, scenario, strategy, names, addresses, testbed })
    }

    fn execute(mut self) -> Result<Outcome> {
        if self.strategy.base != Base::Single {
            self.testbed.vehicle.enter(netlink::probe)?.map_err(|cause| Error::message(cause.to_string(), 2))?;
        }
        let prepare = || prepare_vehicle(&self.scenario, &self.strategy, &self.addresses);
        self.testbed.vehicle.enter(prepare)??;
        self.testbed.server.enter(prepare_server)??;
        if unit_endpoints::are_used(&self.scenario, &self.strategy) {
            unit_endpoints::prepare(&self.scenario, &self.testbed)?;
        }
        // It listens before an agent connects to it.
        let unit = self.testbed.vehicle.enter(OnBoardUnit::new)?;
        let unit = unit.map_err(|cause| Error::failure("opening the on-board unit's sockets", cause))?;
        let mut agents = Agents::start(&self.scenario, &self.strategy, &self.plan.folder, &self.testbed)?;
        let mut world = EmulatedWorld::new(&self.scenario, self.plan.entry.seed, &mut self.testbed, unit)?;
        let clock = world.clock;
        let result = self.run_for_duration(clock, &mut world, || agents.are_running());
        // An agent that exited early is the cause of any other failure.
        let end = Instant::from_secs_f64(self.scenario.duration_s);
        let reader = Reader { source: "agent", names: &self.names, origin_ns: clock.origin_ns(), end };
        // They end before the links do: a tunnel counts no path that is gone.
        let agents = agents.finish(reader)?;
        let (kernel, delivered, wire_throughput) = result?;
        let world = world.finish(&self.testbed)?;
        let raw = Raw { kernel, delivered, world, wire_throughput, agents };
        results::summarize((&self.scenario, &self.strategy), &self.names, &self.plan, raw)
    }

    /// Runs the world, the traffic and the monitors for the scenario's duration.
    fn run_for_duration(
        &self,
        clock: Clock,
        world: &mut EmulatedWorld,
        should_continue: impl FnMut() -> bool,
    ) -> Result<(MonitorRecord, Delivered, Vec<ThroughputRow>)> {
        let stop = AtomicBool::new(false);
        let traffic = TrafficEndpoints::new(&self.scenario, self.plan.entry.seed, self.endpoint_config());
        let listener = self.testbed.server.enter(|| traffic.listen())??;
        let cams = unit_endpoints::are_used(&self.scenario, &self.strategy).then(|| world.receptions());
        std::thread::scope(|scope| {
            let vehicle = scope.spawn(|| self.monitor(Side::Vehicle, clock, &stop));
            let server = scope.spawn(|| self.monitor(Side::Server, clock, &stop));
            let serve = || traffic.serve(listener, clock, &stop);
            let serving = scope.spawn(|| self.testbed.server.enter(serve)?);
            let driving = scope.spawn(|| self.testbed.vehicle.enter(|| traffic.drive(clock, &stop))?);
            let outages = scope.spawn(|| interface_outages::apply(&self.scenario, &self.testbed, clock, &stop));
            let follow = |cams| unit_endpoints::apply(&self.scenario, &self.testbed, clock, &cams, &stop);
            let units = cams.map(|cams| scope.spawn(move || self.testbed.vehicle.enter(|| follow(cams))?));
            let wires = scope.spawn(|| wire_monitor::monitor(&self.testbed, &self.names, clock, &stop));
            let result = world.run(self.scenario.duration_s, should_continue);
            stop.store(true, Ordering::Relaxed);
            let (vehicle_traffic, server_traffic) = (joined(driving)?, joined(serving)?);
            joined(outages)?;
            let wire_throughput = joined(wires)?;
            let (mut kernel, server) = (joined(vehicle)?, joined(server)?);
            kernel.events.extend(server.events);
            kernel.events.extend(units.map(joined).transpose()?.unwrap_or_default());
            let delivered = traffic.delivered(vehicle_traffic, server_traffic);
            if self.plan.keep {
                keep::wait_for_signal(&self.testbed)?;
            }
            result.map(|()| (kernel, delivered, wire_throughput))
        })
    }

    fn monitor(&self, side: Side, clock: Clock, stop: &AtomicBool) -> Result<MonitorRecord> {
        let namespace = match side {
            Side::Vehicle => &self.testbed.vehicle,
            Side::Server => &self.testbed.server,
        };
        namespace.enter(|| monitor(side, clock, &self.addresses, stop))?
    }

    fn endpoint_config(&self) -> EndpointConfig {
        let single = self.strategy.base == Base::Single;
        let each_path = self.strategy.base == Base::Deadline;
        let tunnel = self.strategy.is_tunnel() || self.strategy.base.is_peer_tunnel();
        EndpointConfig {
            server: if tunnel { tunnel::SERVER.into() } else { self.scenario.ip_version.server() },
            local: single.then(|| self.addresses[usize::from(self.scenario.single_path(&self.strategy).0)]),
            mptcp: !single && !tunnel && !each_path && self.scenario.traffic.protocol == Protocol::Tcp,
            demands: !tunnel && Agents::has_any(&self.strategy),
            tunnel,
            each_path,
        }
    }
}

fn wires(scenario: &Scenario) -> BTreeMap<String, WirePlan> {
    let shape = |wire: &Wire| {
        let shape = |mbit_s: f64| Shape { bit_s: mbit_s * 1e6, queue_ms: wire.queue_ms };
        WirePlan { shape: wire.rate_mbit_s.map(shape) }
    };
    scenario.access.iter().filter_map(|link| Some((link.name.clone(), shape(link.wire.as_ref()?)))).collect()
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::failure("driving", "a thread of the run panicked")))
}
