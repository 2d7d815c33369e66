//! The two endpoints of a drive's traffic: a connection, datagrams or objects
//! with deadlines, with or without a tunnel.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::MessageRow;
use crosslane_sim::scenario::{Congestion, Protocol, Scenario, TrafficKind};
use socket2::Socket;

use super::agents::DEMANDS;
use super::world::PRIORITY;
use crate::clock::Clock;
use crate::control::demand::client::Agent;
use crate::error::{Error, Result};
use crate::testbed::realtime::become_realtime;
use connection::{self as traffic, BULK_BYTES, ConnectionRecord, datagrams};

mod connection;
mod objects;

/// Port of the traffic's server.
const PORT: u16 = 5001;
/// Port without a listener (RFC 863): a refused connection proves that packets
/// pass in both directions.
const DISCARD: u16 = 9;
/// Time for delivery after the sender has stopped.
const GRACE_NS: u64 = 2_000_000_000;
/// Longest time until a tunnel carries packets.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one attempt to reach the server through the tunnel.
const ATTEMPT: Duration = Duration::from_millis(100);

/// Configuration of the traffic's endpoints for a strategy.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// Address of the server.
    pub server: IpAddr,
    /// Source address of the vehicle; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    /// True for MPTCP, if the traffic uses TCP.
    pub mptcp: bool,
    /// True if deadlines are reported to an agent.
    pub demands: bool,
    /// True if the traffic waits for a tunnel.
    pub tunnel: bool,
}

/// The traffic of a run.
pub struct TrafficEndpoints<'a> {
    scenario: &'a Scenario,
    seed: u64,
    config: EndpointConfig,
    plan: traffic::Plan,
}

/// Listening socket of the server.
pub enum Listener {
    /// Of a connection.
    Connection(Socket),
    /// Of datagrams.
    Datagrams(UdpSocket),
}

/// What one endpoint of the traffic recorded.
pub enum EndpointRecord {
    /// An endpoint of a connection.
    Connection(ConnectionRecord),
    /// An endpoint of datagrams.
    Datagrams(datagrams::EndpointRecord),
    /// The sender of objects: one row for each.
    Sent(Vec<MessageRow>),
    /// The receiver of objects: when each was complete.
    Received(Vec<Option<u64>>),
}

/// What was carried, from the records of both endpoints.
#[derive(Default)]
pub struct Delivered {
    /// The record.
    pub messages: Vec<MessageRow>,
    /// Messages that were due but never written.
    pub skipped: u64,
    /// Number of duplicate datagrams; `None` for other traffic.
    pub duplicates: Option<u64>,
}

impl<'a> TrafficEndpoints<'a> {
    /// The traffic of a scenario.
    pub fn new(scenario: &'a Scenario, seed: u64, config: EndpointConfig) -> TrafficEndpoints<'a> {
        TrafficEndpoints { scenario, seed, config, plan: plan(scenario, config.mptcp) }
    }

    /// Opens the server's listening socket, from a thread in its namespace.
    ///
    /// # Errors
    /// System errors.
    pub fn listen(&self) -> Result<Listener> {
        match self.scenario.traffic.protocol {
            Protocol::Tcp => traffic::listen(PORT, &self.plan).map(Listener::Connection).map_err(message),
            Protocol::Udp => datagrams::listen(PORT, &self.plan).map(Listener::Datagrams).map_err(message),
        }
    }

    /// Runs the server, from a thread in its namespace.
    ///
    /// # Errors
    /// The cause of the failure.
    pub fn serve(&self, listener: &Listener, clock: Clock, stop: &AtomicBool) -> Result<EndpointRecord> {
        become_realtime(PRIORITY);
        let now = || clock.now().as_nanos();
        match (listener, self.scenario.traffic.kind) {
            (Listener::Datagrams(socket), _) => {
                datagrams::serve(socket, &self.plan, &now, stop).map(EndpointRecord::Datagrams).map_err(message)
            }
            (Listener::Connection(listener), TrafficKind::Deadline(_)) => {
                let socket = traffic::accept(listener, &self.plan, &now, stop).map_err(message)?;
                Ok(EndpointRecord::Received(objects::receive(&socket, clock, stop)?))
            }
            (Listener::Connection(listener), _) => {
                traffic::serve(listener, &self.plan, &now, stop).map(EndpointRecord::Connection).map_err(message)
            }
        }
    }

    /// Runs the vehicle's client, from a thread in its namespace.
    ///
    /// # Errors
    /// The cause of the failure.
    pub fn drive(&self, clock: Clock, stop: &AtomicBool) -> Result<EndpointRecord> {
        become_realtime(PRIORITY);
        if self.config.tunnel {
            self.await_tunnel(clock, stop)?;
            std::thread::sleep(self.scenario.tunnel_stands().since(clock.now()));
        }
        let now = || clock.now().as_nanos();
        let (server, local, plan) = (SocketAddr::new(self.config.server, PORT), self.config.local, &self.plan);
        let params = &self.scenario.traffic;
        if params.protocol == Protocol::Udp {
            return datagrams::drive(server, local, plan, &now, stop).map(EndpointRecord::Datagrams).map_err(message);
        }
        let TrafficKind::Deadline(rules) = params.kind else {
            return traffic::drive(server, local, plan, &now, stop).map(EndpointRecord::Connection).map_err(message);
        };
        let first = self.scenario.first_object(self.seed).unwrap_or_default();
        std::thread::sleep(first.since(clock.now()));
        let socket = traffic::dial(server, local, plan, &now, stop).map_err(message)?;
        let agent = self.config.demands.then(|| Agent::connect(DEMANDS)).transpose();
        let agent = agent.map_err(|cause| Error::failure("reaching the agent", cause))?;
        Ok(EndpointRecord::Sent(objects::send(&socket, agent, (params, rules, self.seed), clock, stop)?))
    }

    /// Joins the records of both endpoints.
    pub fn delivered(&self, vehicle: EndpointRecord, server: EndpointRecord) -> Delivered {
        let (sender, receiver) = match self.plan.direction {
            Direction::Up => (vehicle, server),
            Direction::Down => (server, vehicle),
        };
        match (sender, receiver) {
            (EndpointRecord::Connection(sender), EndpointRecord::Connection(receiver)) => Delivered {
                // With answers, the vehicle knows both times.
                messages: traffic::messages(&self.plan, &sender, if self.plan.answered { &sender } else { &receiver }),
                skipped: sender.skipped,
                duplicates: None,
            },
            (
                EndpointRecord::Datagrams(datagrams::EndpointRecord::Sent(sent)),
                EndpointRecord::Datagrams(datagrams::EndpointRecord::Received(received)),
            ) => Delivered {
                messages: datagrams::messages(&self.plan, &sent, &received),
                skipped: sent.skipped,
                duplicates: Some(received.duplicates),
            },
            (EndpointRecord::Sent(mut rows), EndpointRecord::Received(received_ns)) => {
                for (row, received_ns) in rows.iter_mut().zip(received_ns) {
                    row.received_ns = received_ns;
                }
                Delivered { messages: rows, ..Delivered::default() }
            }
            _ => Delivered::default(),
        }
    }

    /// Returns once the tunnel carries packets in both directions: the server's
    /// kernel refuses a connection to a port without a listener.
    fn await_tunnel(&self, clock: Clock, stop: &AtomicBool) -> Result<()> {
        let closed = SocketAddr::new(self.config.server, DISCARD);
        let deadline = Instant::ZERO + TUNNEL_TIMEOUT;
        while clock.now() < deadline {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match TcpStream::connect_timeout(&closed, ATTEMPT) {
                Ok(_) => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(()),
                // Without a route the call returns at once.
                Err(_) => std::thread::sleep(ATTEMPT / 10),
            }
        }
        let cause = format!("it carried no packet within {} s", TUNNEL_TIMEOUT.as_secs());
        Err(Error::failure("waiting for the tunnel", cause).with_remedy("see the logs in the folder of the run"))
    }
}

fn plan(scenario: &Scenario, mptcp: bool) -> traffic::Plan {
    let params = &scenario.traffic;
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let congestion = match scenario.congestion {
        Congestion::Cubic => "cubic",
        Congestion::Reno => "reno",
        Congestion::Bbr => "bbr",
        Congestion::Lia => "lia",
        Congestion::Olia => "olia",
    };
    traffic::Plan {
        answered: params.answered,
        direction: if params.down { Direction::Down } else { Direction::Up },
        size_bytes: match params.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => size_bytes,
            // Only the simulator has uploads (`Scenario::check_engine`). Objects have their own sizes.
            TrafficKind::Bulk | TrafficKind::Uploads { .. } | TrafficKind::Deadline(_) => BULK_BYTES,
        },
        period_ns: params.kind.period_ns(),
        start_ns: nanos(params.start_s),
        stop_ns: nanos(params.stop_s),
        deadline_ns: nanos(params.stop_s) + GRACE_NS,
        mptcp,
        congestion: congestion.into(),
        send_buffer_bytes: params.send_buffer_bytes as usize,
    }
}

fn message(cause: traffic::TrafficError) -> Error {
    Error::message(cause.to_string(), 1)
}
