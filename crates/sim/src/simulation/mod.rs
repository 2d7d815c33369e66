//! One run in simulated time (a stand-in until the transport model is there).

use std::net::SocketAddr;

use crosslane_core::agent::Output;
use crosslane_core::allocate::PathState;
use crosslane_core::assess::{Belief, Reason};
use crosslane_core::link::Direction;
use crosslane_core::mptcp::{AddressId, Command, Event, Subflow, Token};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};

use crate::addresses::{SERVER, vehicle_address};
use crate::metrics::{PacketSums, Recovery};
use crate::records::{LinkRow, MessageRow, MptcpOptions, PacketRow, SampleRow, SampleSource, TcpInfoRow};
use crate::scenario::{Scenario, ScenarioError, Strategy, TrafficKind};
use crate::world::{World, WorldEvent};

/// What a run keeps.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Every packet; else sums only.
    pub packets: bool,
    /// The state of each subflow, over time.
    pub tcp_info: bool,
    /// The truth about each link, over time.
    pub links: bool,
    /// Every message.
    pub messages: bool,
}

impl Detail {
    /// Everything.
    pub const ALL: Detail = Detail { packets: true, tcp_info: true, links: true, messages: true };
}

/// An end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The vehicle.
    Vehicle,
    /// The server.
    Server,
}

/// What a run left.
#[derive(Debug)]
pub struct Recording {
    /// Packets, in order of entry.
    pub packets: Vec<PacketRow>,
    /// Signal samples.
    pub samples: Vec<SampleRow>,
    /// Messages.
    pub messages: Vec<MessageRow>,
    /// Links.
    pub links: Vec<LinkRow>,
    /// Subflows.
    pub tcp_info: Vec<TcpInfoRow>,
    /// Messages that were due and never written.
    pub skipped: u64,
    /// What the agent said.
    pub said: Vec<(Instant, Output)>,
    /// What each kernel told.
    pub heard: Vec<(Instant, Side, Event)>,
    /// Sums over the packets.
    pub sums: PacketSums,
    /// Events processed.
    pub events: u64,
}

/// A run.
pub struct Simulation {
    world: World,
    detail: Detail,
    period: Duration,
    next: Instant,
    stop: Instant,
    recording: Recording,
}

impl Simulation {
    /// A run that has not begun.
    ///
    /// # Errors
    /// A scenario or strategy that the simulator cannot run.
    pub fn new(
        scenario: &Scenario,
        strategy: &Strategy,
        seed: u64,
        detail: Detail,
    ) -> Result<Simulation, ScenarioError> {
        let period = match scenario.traffic.kind {
            TrafficKind::Messages { every_ms, .. } => Duration::from_nanos((every_ms * 1e6) as u64),
            TrafficKind::Bulk | TrafficKind::Uploads { .. } => Duration::from_millis(10),
        };
        let mut recording = Recording {
            packets: Vec::new(),
            samples: Vec::new(),
            messages: Vec::new(),
            links: Vec::new(),
            tcp_info: Vec::new(),
            skipped: 0,
            said: Vec::new(),
            heard: Vec::new(),
            sums: PacketSums::new(scenario.paths().len(), Recovery::of(scenario)),
            events: 0,
        };
        let (token, remote) = (Token(7), SocketAddr::from((SERVER, 5001)));
        let subflow = |place: usize| Subflow {
            local: SocketAddr::from((vehicle_address(place), 40_000)),
            remote,
            local_id: AddressId(place as u8),
            remote_id: AddressId(0),
            backup: false,
        };
        if !["single", "kernel", "kernel-tuned"].contains(&strategy.base.as_str()) {
            let (path, reason) = (PathId(0), Reason::default());
            let command = Command::DestroySubflow { token, local: subflow(0).local, remote };
            recording.said = vec![
                (Instant::ZERO, Output::Belief { path, belief: Belief::Good, reason: reason.clone() }),
                (Instant::ZERO, Output::Decision { path, state: PathState::Active, was: PathState::Closed, reason }),
                (Instant::from_millis(2000), Output::Command { path, command }),
            ];
        }
        recording.heard = vec![
            (Instant::from_millis(1010), Side::Vehicle, Event::SubflowEstablished { token, subflow: subflow(1) }),
            (
                Instant::from_millis(1000),
                Side::Vehicle,
                Event::Established { token, subflow: subflow(0), server_side: false },
            ),
        ];
        let (next, stop) =
            (Instant::from_secs_f64(scenario.traffic.start_s), Instant::from_secs_f64(scenario.traffic.stop_s));
        Ok(Simulation { world: World::new(scenario, seed)?, detail, period, next, stop, recording })
    }

    /// Lets the run go on until this moment.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(event) = self.world.poll(until) {
            self.recording.events += 1;
            let (at, path, kind, rssi_dbm, station) = match event {
                WorldEvent::Truth(truth) => {
                    if self.detail.links {
                        self.recording.links.push(LinkRow::from(&truth));
                    }
                    continue;
                }
                WorldEvent::CamSent(cam) => {
                    let Some(rssi_dbm) = cam.received else { continue };
                    (cam.at, cam.path, SampleSource::Cam, rssi_dbm, Some(cam.station))
                }
                WorldEvent::Signal { at, path, rssi_dbm } => (at, path, SampleSource::Radio, rssi_dbm, None),
                WorldEvent::LinkParams { .. } => continue,
            };
            let row = SampleRow { t_ns: at.as_nanos(), path, kind, rssi_dbm: rssi_dbm as f32, station };
            self.recording.sums.note_sample(&row);
            self.recording.samples.push(row);
        }
        while self.next < self.stop && self.next <= until {
            self.message();
            self.next = self.next + self.period;
        }
    }

    /// Ends the run.
    pub fn finish(self) -> Recording {
        self.recording
    }

    fn message(&mut self) {
        let number = self.recording.messages.len() as u64;
        let sent_ns = self.next.as_nanos();
        let received_ns = Some(sent_ns + 26_000_000);
        let packet = PacketRow {
            t_ns: sent_ns,
            delivered_ns: received_ns,
            path: PathId((number % 2) as u8),
            direction: Direction::Up,
            ip_bytes: 552,
            payload_bytes: 500,
            subflow: Some(0),
            tcp_seq: 1,
            tcp_ack: 1,
            tcp_flags: 16,
            dsn: Some(number * 500),
            data_ack: None,
            mptcp: MptcpOptions::DSS,
            drop: None,
            tries: 0,
        };
        self.recording.sums.note(&packet);
        if self.detail.packets {
            self.recording.packets.push(packet);
        }
        self.recording.messages.push(MessageRow { number, sent_ns, received_ns, size_bytes: 500 });
        if self.detail.tcp_info {
            self.recording.tcp_info.push(TcpInfoRow {
                t_ns: sent_ns,
                path: packet.path,
                subflow: Some(0),
                local: "10.1.0.2:40000".into(),
                remote: "10.255.0.1:5001".into(),
                token: 7,
                backup: false,
                rtt_us: 52_000,
                rttvar_us: 100,
                cwnd: 10,
                unacked: 0,
                lost: 0,
                total_retrans: 0,
                bytes_acked: 0,
                bytes_received: 0,
                notsent_bytes: 0,
                delivery_rate_bit_s: 0,
            });
        }
    }
}
