//! One run: namespaces, emulated links, agent, traffic, and what is recorded.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crosslane_core::link::Direction;
use crosslane_sim::records::MessageRow;
use crosslane_sim::scenario::{Congestion, Scenario, Strategy, TrafficKind};
use crosslane_sim::simulation::Side;
use socket2::Socket;

use super::Plan;
use super::agent_process::{AgentProcess, DEMANDS};
use super::baseline::{prepare_server, prepare_vehicle};
use super::hold;
use super::monitor::{Heard, Monitor};
use super::objects;
use super::stage::{PRIORITY, Stage};
use super::tally::{self, Raw};
use crate::clock::Clock;
use crate::demands::client::Agent;
use crate::error::{Error, Result};
use crate::netlink;
use crate::scenario_file;
use crate::summary::Outcome;
use crate::testbed::realtime::become_realtime;
use crate::testbed::traffic::{self, BULK_BYTES, Seen};
use crate::testbed::{Namespace, PathPlan, SERVER, Testbed, contain, end_with, prepare_privileges, vehicle_address};

/// Port of the traffic's server.
const PORT: u16 = 5001;
/// How long both ends may still deliver after the sender has stopped.
const GRACE_NS: u64 = 2_000_000_000;

/// Tries what every run needs: privileges, namespaces, and a kernel with MPTCP.
///
/// # Errors
/// What is missing on this machine.
pub fn probe() -> Result<()> {
    prepare_privileges()?;
    contain()?;
    Namespace::new()?.enter(netlink::probe)?.map_err(|cause| Error::told(cause.to_string(), 2))
}

/// Carries out the run that `drive` has planned and says on standard output
/// how it goes: `at SECONDS`, then `outcome JSON`.
///
/// # Errors
/// What is missing on this machine, or what went wrong.
pub fn run_one(plan: &str) -> Result<ExitCode> {
    let plan: Plan = serde_json::from_str(plan).map_err(|cause| Error::failure("reading the plan of a run", cause))?;
    prepare_privileges()?;
    end_with(plan.parent)?;
    contain()?;
    if plan.keep {
        hold::prepare()?;
    }
    let scenario = scenario_file::read(&plan.scenario, plan.data.as_deref())?;
    let Some(strategy) = scenario.strategy(&plan.entry.strategy) else {
        return Err(Error::usage(
            "planning a run",
            format!("there is no strategy {:?}", plan.entry.strategy),
            "name another",
        ));
    };
    std::fs::create_dir_all(&plan.folder)
        .map_err(|cause| Error::failure(format!("making {}", plan.folder.display()), cause))?;
    let run = Run::new(plan, scenario, strategy)?;
    let outcome = run.carry_out()?;
    let json = serde_json::to_string(&outcome).map_err(|cause| Error::failure("telling the outcome", cause))?;
    println!("outcome {json}");
    Ok(ExitCode::SUCCESS)
}

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
        let first = match strategy.base.as_str() {
            "single" => scenario.single_path(&strategy),
            _ => scenario.first_path(),
        };
        let first = usize::from(first.0);
        let metric = |place: usize| if place == first { 1 } else { 2 + place as u32 };
        let paths =
            names.iter().enumerate().map(|(place, name)| PathPlan { name: name.clone(), metric: metric(place) });
        let testbed = Testbed::new(&paths.collect::<Vec<_>>())?;
        let addresses = (0..names.len()).map(|place| vehicle_address(place).into()).collect();
        Ok(Run { plan, scenario, strategy, names, addresses, testbed })
    }

    fn carry_out(mut self) -> Result<Outcome> {
        if self.uses_mptcp() {
            self.testbed.vehicle.enter(netlink::probe)?.map_err(|cause| Error::told(cause.to_string(), 2))?;
        }
        let prepare = || prepare_vehicle(&self.scenario, &self.strategy, &self.addresses);
        self.testbed.vehicle.enter(prepare)??;
        self.testbed.server.enter(prepare_server)??;
        let start = || AgentProcess::start(&self.scenario, &self.strategy, &self.plan.folder);
        let mut agent = self.has_agent().then(|| self.testbed.vehicle.enter(start)?).transpose()?;
        let stage = Stage::new(&self.scenario, self.plan.entry.seed, &mut self.testbed)?;
        let clock = stage.clock();
        let raw = self.play(clock, stage, || agent.as_mut().is_none_or(AgentProcess::is_running))?;
        let said = agent.map(|agent| agent.finish(clock.origin_ns())).transpose()?;
        let resident_mb = said.iter().flatten().find_map(|event| event["resident_mb"].as_f64());
        tally::sum_up(&self.scenario, &self.names, &self.plan, Raw { agent: said, resident_mb, ..raw })
    }

    /// Lets the world, the traffic and the monitors run for the scenario's time.
    fn play(&self, clock: Clock, mut stage: Stage, goes_on: impl FnMut() -> bool) -> Result<Raw> {
        let stop = AtomicBool::new(false);
        let plan = self.traffic_plan();
        let listener = self.testbed.server.enter(|| traffic::listen(PORT, &plan))?.map_err(told)?;
        std::thread::scope(|scope| {
            let vehicle = scope.spawn(|| self.monitor(Side::Vehicle, clock, &stop));
            let server = scope.spawn(|| self.monitor(Side::Server, clock, &stop));
            let far = scope.spawn(|| self.far_end(&listener, &plan, clock, &stop));
            let near = scope.spawn(|| self.near_end(&plan, clock, &stop));
            let played = stage.play(self.scenario.duration_s, goes_on);
            stop.store(true, Ordering::Relaxed);
            let (near, far) = (joined(near)?, joined(far)?);
            let (mut kernel, server) = (joined(vehicle)?, joined(server)?);
            kernel.events.extend(server.events);
            let (messages, skipped) = carried(&plan, near, far);
            if self.plan.keep {
                hold::until_told(&self.testbed)?;
            }
            let staged = played.and_then(|()| stage.finish(&self.testbed))?;
            Ok(Raw { kernel, messages, skipped, staged, agent: None, resident_mb: None })
        })
    }

    fn monitor(&self, side: Side, clock: Clock, stop: &AtomicBool) -> Result<Heard> {
        let namespace = match side {
            Side::Vehicle => &self.testbed.vehicle,
            Side::Server => &self.testbed.server,
        };
        namespace.enter(|| Ok(Monitor::new(side, clock, &self.names, &self.addresses)?.listen(stop)))?
    }

    fn far_end(&self, listener: &Socket, plan: &traffic::Plan, clock: Clock, stop: &AtomicBool) -> Result<End> {
        let now = || clock.now().as_nanos();
        let serve = || {
            become_realtime(PRIORITY);
            let TrafficKind::Deadline(_) = self.scenario.traffic.kind else {
                return Ok(End::Traffic(traffic::serve(listener, plan, &now, stop).map_err(told)?));
            };
            let socket = traffic::accept(listener, plan, &now, stop).map_err(told)?;
            Ok(End::Received(objects::receive(&socket, clock, stop)?))
        };
        self.testbed.server.enter(serve)?
    }

    fn near_end(&self, plan: &traffic::Plan, clock: Clock, stop: &AtomicBool) -> Result<End> {
        let server = SocketAddr::from((SERVER, PORT));
        let local = match self.strategy.base.as_str() {
            "single" => Some(self.addresses[usize::from(self.scenario.single_path(&self.strategy).0)]),
            _ => None,
        };
        let now = || clock.now().as_nanos();
        let wanted = &self.scenario.traffic;
        let drive = || {
            become_realtime(PRIORITY);
            let TrafficKind::Deadline(rules) = wanted.kind else {
                return Ok(End::Traffic(traffic::drive(server, local, plan, &now, stop).map_err(told)?));
            };
            let first = self.scenario.first_object(self.plan.entry.seed).unwrap_or_default();
            std::thread::sleep(first.since(clock.now()));
            let socket = traffic::dial(server, local, plan, &now, stop).map_err(told)?;
            let agent = self.has_agent().then(|| Agent::connect(DEMANDS)).transpose();
            let agent = agent.map_err(|cause| Error::failure("reaching the agent", cause))?;
            let seed = self.plan.entry.seed;
            Ok(End::Sent(objects::send(&socket, agent, (wanted, rules, seed), clock, stop)?))
        };
        self.testbed.vehicle.enter(drive)?
    }

    fn has_agent(&self) -> bool {
        !matches!(self.strategy.base.as_str(), "single" | "kernel" | "kernel-tuned")
    }

    fn uses_mptcp(&self) -> bool {
        self.strategy.base != "single"
    }

    fn traffic_plan(&self) -> traffic::Plan {
        let wanted = &self.scenario.traffic;
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let size_bytes = match wanted.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => size_bytes,
            // Uploads are the simulator's; `Scenario::check_engine` tells so. Objects have sizes of their own.
            TrafficKind::Bulk | TrafficKind::Uploads { .. } | TrafficKind::Deadline(_) => BULK_BYTES,
        };
        let congestion = match self.scenario.congestion {
            Congestion::Cubic => "cubic",
            Congestion::Reno => "reno",
            Congestion::Bbr => "bbr",
            Congestion::Lia => "lia",
            Congestion::Olia => "olia",
        };
        traffic::Plan {
            direction: if wanted.down { Direction::Down } else { Direction::Up },
            size_bytes,
            period_ns: wanted.kind.period_ns(),
            start_ns: nanos(wanted.start_s),
            stop_ns: nanos(wanted.stop_s),
            deadline_ns: nanos(wanted.stop_s) + GRACE_NS,
            mptcp: self.uses_mptcp(),
            congestion: congestion.into(),
            send_buffer_bytes: wanted.send_buffer_bytes as usize,
        }
    }
}

/// What one end of the traffic saw.
enum End {
    Traffic(Seen),
    Sent(Vec<MessageRow>),
    /// When each object was complete.
    Received(Vec<Option<u64>>),
}

/// The record of the traffic and what was skipped, from what the two ends saw.
fn carried(plan: &traffic::Plan, near: End, far: End) -> (Vec<MessageRow>, u64) {
    match (near, far) {
        (End::Traffic(near), End::Traffic(far)) => {
            let (sender, receiver) = match plan.direction {
                Direction::Up => (near, far),
                Direction::Down => (far, near),
            };
            (traffic::messages(plan, &sender, &receiver), sender.skipped)
        }
        (End::Sent(mut rows), End::Received(received_ns)) => {
            for (row, received_ns) in rows.iter_mut().zip(received_ns) {
                row.received_ns = received_ns;
            }
            (rows, 0)
        }
        _ => (Vec::new(), 0),
    }
}

fn told(cause: traffic::TrafficError) -> Error {
    Error::told(cause.to_string(), 1)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::failure("driving", "a thread of the run panicked")))
}
