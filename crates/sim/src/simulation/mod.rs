//! One run in simulated time: the world of a drive, its links, the model of
//! both kernels, the traffic, and the same agent as on a vehicle.
//!
//! ```text
//! world ──parameters──▶ links ──segments──▶ two endpoints ◀── traffic
//!   └──samples──▶ agent ──commands──▶ vehicle's endpoint
//!                   ◀──events, tcp_info──┘
//! ```
//!
//! With a tunnel, its two endpoints are between the TCP endpoints and the links,
//! and the vehicle's one receives the agent's path states.
//!
//! There is no queue of events: each part reports when it is next due; the run
//! advances to the earliest time, runs every due part in a fixed order, and
//! repeats. So the same scenario and seed give the same run.

use std::collections::BTreeSet;

use crosslane_core::actuator::{Command, Steering};
use crosslane_core::agent::Output;
use crosslane_core::assess::SAMPLE_INTERVAL;
use crosslane_core::link::Direction;
use crosslane_core::mptcp::Event;
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::tunnel::Liveness;

use crate::record::messages::Results;
use crate::record::metrics::PacketSums;
use crate::record::rows::{LinkRow, MessageRow, PacketRow, SampleRow, TcpInfoRow, WindowRow};
use crate::scenario::{Base, Engine, Scenario, ScenarioError, Strategy};
use crate::traffic::Protocol;
use crate::transport::Endpoint;
use crate::world::{World, WorldEvent, WorldSample};

mod agent_driver;
mod airtime;
mod detail;
mod forwarding;
mod links;
mod packet;
mod path_control;
mod recording;
mod setup;
mod slots;
mod traffic;
mod transfer;
mod tunnel;

pub use detail::Detail;
use links::{LinkPacket, Wires};
use path_control::{Applied, PathControl};
pub use slots::SlotChange;
use traffic::Traffic;
use transfer::Transfer;

/// Time at which the vehicle connects.
const CONNECT: Instant = Instant::from_millis(10);

/// After this time without an answer an application connects again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// An endpoint of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The vehicle.
    Vehicle,
    /// The server.
    Server,
}

/// Records of a run.
#[derive(Debug, Default)]
pub struct Recording {
    /// Packets, in order of entry.
    pub packets: Vec<PacketRow>,
    /// Signal samples.
    pub samples: Vec<SampleRow>,
    /// Messages.
    pub messages: Vec<MessageRow>,
    /// Results over all messages, kept or not.
    pub results: Results,
    /// Links.
    pub links: Vec<LinkRow>,
    /// Subflows.
    pub tcp_info: Vec<TcpInfoRow>,
    /// Windows.
    pub windows: Vec<WindowRow>,
    /// Messages that were due but not written.
    pub skipped: u64,
    /// Outputs of the agent.
    pub agent_outputs: Vec<(Instant, Output)>,
    /// Roadside units that took or left a slot.
    pub slot_changes: Vec<(Instant, SlotChange)>,
    /// Liveness changes at the tunnel's endpoints, with reasons.
    pub liveness: Vec<(Instant, Side, PathId, Liveness, String)>,
    /// Number of duplicate datagrams; none if the traffic has no datagrams.
    pub duplicates: Option<u64>,
    /// IP bytes of echo requests and their answers; none if the scenario has no `[echo]`.
    pub echo_bytes: Option<u64>,
    /// Bytes of copies that the tunnel's endpoints sent; none without a tunnel.
    pub copied_bytes: Option<u64>,
    /// Path-manager events of each kernel.
    pub kernel_events: Vec<(Instant, Side, Event)>,
    /// Totals over the packets.
    pub sums: PacketSums,
    /// Number of events processed: packets that entered or left a link, steps and
    /// agent outputs.
    pub events: u64,
}

/// A run.
pub struct Simulation {
    now: Instant,
    world: World,
    wires: Wires,
    vehicle: Endpoint,
    server: Endpoint,
    tunnel: Option<tunnel::TunnelEndpoints>,
    /// The traffic and its connections in place of `traffic`, `vehicle` and `server`.
    transfer: Option<Transfer>,
    path_control: PathControl,
    traffic: Traffic,
    detail: Detail,
    /// Path of the first subflow, unless an agent chooses it.
    first: PathId,
    is_first_chosen: bool,
    /// Paths over which no connection could be opened.
    tried: BTreeSet<PathId>,
    airtime: Vec<airtime::Account>,
    connect_at: Option<Instant>,
    observe_at: Instant,
    record_at: Instant,
    windows: recording::Windows,
    recording: Recording,
}

impl Simulation {
    /// A run before its start.
    ///
    /// # Errors
    /// The simulator does not support the scenario or the strategy.
    pub fn new(
        scenario: &Scenario,
        strategy: &Strategy,
        seed: u64,
        detail: Detail,
    ) -> Result<Simulation, ScenarioError> {
        scenario.check_engine(Engine::Simulator)?;
        let mut world = World::new(scenario, seed)?;
        let (tunnel, mtu_bytes) = setup::tunnel(scenario, strategy)?;
        let settings = |side| setup::settings(scenario, strategy, seed, side, mtu_bytes);
        let (wires, mut links) = Wires::new(scenario, seed, &mut world, detail.packets);
        if !detail.links {
            links.clear();
            world.set_truth_period(None);
        }
        let both = || [settings("vehicle"), settings("server")];
        let has_transfer = strategy.base == Base::Deadline;
        let transfer = has_transfer.then(|| Transfer::new(scenario, seed, both(), detail.messages)).flatten();
        let connect = if strategy.is_tunnel() { scenario.tunnel_stands() } else { CONNECT };
        Ok(Simulation {
            now: Instant::ZERO,
            world,
            wires,
            vehicle: Endpoint::client(settings("vehicle")),
            server: Endpoint::server(settings("server")),
            tunnel,
            transfer,
            path_control: setup::path_control(scenario, strategy, seed)?,
            traffic: Traffic::new(scenario, seed, detail.messages),
            detail,
            first: if strategy.base == Base::Single { scenario.single_path(strategy) } else { scenario.first_path() },
            is_first_chosen: scenario.traffic.over.is_none() && !strategy.is_tunnel(),
            tried: BTreeSet::new(),
            airtime: vec![airtime::Account::default(); scenario.radios.len()],
            connect_at: (scenario.traffic.protocol == Protocol::Tcp && strategy.base != Base::Deadline)
                .then(|| scenario.first_object(seed).unwrap_or(connect)),
            observe_at: Instant::ZERO,
            record_at: Instant::ZERO,
            windows: recording::Windows::default(),
            recording: Recording { links, echo_bytes: scenario.echo.as_ref().map(|_| 0), ..Recording::default() },
        })
    }

    /// Advances the run until this time.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(at) = self.next_wakeup().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Ends the run.
    pub fn finish(self) -> Recording {
        let mut recording = self.recording;
        recording.echo_bytes = recording.echo_bytes.map(|_| self.wires.echo_bytes);
        recording.copied_bytes = self.tunnel.as_ref().map(tunnel::TunnelEndpoints::copied_bytes);
        let (packets, sums, events) = self.wires.finish();
        (recording.packets, recording.sums) = (packets, sums);
        recording.events += events;
        (recording.messages, recording.results, recording.skipped, recording.duplicates) = match self.transfer {
            Some(transfer) => transfer.finish(),
            None => self.traffic.finish(),
        };
        recording
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let times = [
            self.world.next_wakeup(),
            self.wires.next_wakeup(),
            self.vehicle.next_wakeup(),
            self.server.next_wakeup(),
            self.tunnel.as_ref().and_then(tunnel::TunnelEndpoints::next_wakeup),
            self.transfer.as_ref().and_then(Transfer::next_wakeup),
            self.path_control.next_wakeup(),
            self.traffic.next_wakeup(),
            self.connect_at.filter(|at| self.first_path(self.now.max(*at)).is_some()),
            (self.path_control.queries_subflows() || self.tunnel.is_some())
                .then(|| self.path_control.query_at(self.observe_at)),
            self.records_subflows().then_some(self.record_at),
            self.records_windows().then(|| self.windows.end()),
        ];
        times.into_iter().flatten().min()
    }

    fn step(&mut self) {
        let now = self.now;
        self.recording.events += 1;
        self.receive_from_links();
        for endpoint in [&mut self.vehicle, &mut self.server] {
            if endpoint.next_wakeup().is_some_and(|at| at <= now) {
                endpoint.on_time(now);
            }
        }
        self.connect();
        let queries = self.path_control.query_at(self.observe_at) <= now;
        if queries {
            self.observe_at = now + SAMPLE_INTERVAL;
            if self.path_control.queries_subflows() {
                self.path_control.observe_transport(now, &self.vehicle);
            }
            if let Some(tunnel) = &self.tunnel {
                self.path_control.observe_tunnel(now, tunnel.samples());
            }
        }
        self.advance_traffic(queries);
        self.apply_commands();
        self.record();
        self.transmit();
        // A packet that is sent when a link changes still uses the old parameters.
        while let Some(event) = self.world.poll(now) {
            self.on_world_event(event);
        }
        self.apply_commands();
        self.transmit();
    }

    /// Without any path the application waits. A handshake with a unit in a slot is repeated over
    /// another path if it takes too long: its slot may be another's by then.
    fn connect(&mut self) {
        let now = self.now;
        if self.connect_at.is_none_or(|at| at > now) {
            return;
        }
        let Some(first) = self.first_path(now) else { return };
        self.connect_at = None;
        if self.vehicle.is_connected() {
            return;
        }
        self.vehicle.connect(now, first);
        if !self.tried.insert(first) {
            self.tried.clear();
        }
        self.connect_at = self.path_control.is_slotted(first).then(|| now + CONNECT_TIMEOUT);
    }

    /// The path over which the application connects now.
    fn first_path(&self, now: Instant) -> Option<PathId> {
        let chosen = self.path_control.first_path().filter(|_| self.is_first_chosen);
        self.path_control.standing(now, chosen.unwrap_or(self.first), &self.tried)
    }

    fn advance_traffic(&mut self, queries: bool) {
        if let Some(transfer) = &mut self.transfer {
            transfer.advance(self.now);
            let outputs = std::iter::from_fn(|| transfer.poll_output()).map(|output| (self.now, output));
            return self.recording.agent_outputs.extend(outputs);
        }
        self.traffic.advance(self.now, queries, (&mut self.vehicle, &mut self.server), &mut self.path_control);
    }

    fn on_world_event(&mut self, event: WorldEvent) {
        let sample = event.sample();
        match event {
            WorldEvent::LinkParams { path, direction, params } => self.set_link(path, direction, params),
            WorldEvent::CamSent(cam) => self.occupy(cam.path, cam.air_time),
            WorldEvent::VehicleCam(cam) => {
                self.occupy(cam.path, cam.air_time);
                if self.detail.packets {
                    self.recording.samples.extend(SampleRow::receptions(&cam, self.now.as_nanos()));
                }
            }
            WorldEvent::Truth(truth) => {
                if self.detail.links {
                    self.recording.links.push(LinkRow::from(&truth));
                }
            }
            WorldEvent::Signal { .. } | WorldEvent::Vehicle(_) | WorldEvent::Handover { .. } => {}
        }
        sample.into_iter().for_each(|sample| self.on_sample(sample));
    }

    fn on_sample(&mut self, sample: WorldSample) {
        let row = SampleRow { t_ns: self.now.as_nanos(), sample };
        self.wires.sums.note_sample(&row);
        if self.detail.packets {
            self.recording.samples.push(row);
        }
        sample.inputs().for_each(|input| self.path_control.observe(self.now, input));
    }

    /// Passes events to the path managers and applies their commands.
    fn apply_commands(&mut self) {
        let now = self.now;
        loop {
            let mut idle = true;
            while let Some(event) = self.vehicle.poll_event() {
                self.path_control.on_event(now, &event, &mut self.vehicle);
                self.recording.kernel_events.push((now, Side::Vehicle, event));
                idle = false;
            }
            while let Some(event) = self.server.poll_event() {
                self.recording.kernel_events.push((now, Side::Server, event));
            }
            while let Some(applied) = self.path_control.apply_next(now, &mut self.vehicle) {
                match applied {
                    Applied::Agent(Output::Command(Command::Steer(steering))) => self.steer(&steering),
                    Applied::Agent(Output::Echo(path, number)) => {
                        self.wires.send(now, path, Direction::Up, LinkPacket::Echo(path, number));
                    }
                    Applied::Agent(output) => {
                        self.recording.agent_outputs.push((now, output));
                        self.recording.events += 1;
                    }
                    Applied::Slot(change) => self.recording.slot_changes.push((now, change)),
                    Applied::Probe(path, bytes) => {
                        self.wires.send(now, path, Direction::Up, LinkPacket::Probe(path, bytes));
                    }
                    Applied::Nothing => {}
                }
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// Sets the paths and their order of the packet schedulers at both ends.
    fn steer(&mut self, steering: &Steering) {
        match &mut self.tunnel {
            Some(tunnel) => tunnel.steer(self.now, steering),
            None => {
                self.vehicle.set_order(&steering.order);
                self.server.set_order(&steering.order);
            }
        }
    }
}
