//! The two endpoints of a drive's traffic, with or without a tunnel.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::agent::Output;
use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::addresses::unspecified;
use crosslane_sim::record::rows::{MessageRow, Reads};
use crosslane_sim::scenario::{Congestion, PathEntry, Scenario};
use crosslane_sim::traffic::Protocol;
use socket2::Socket;

use super::world::PRIORITY;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::testbed::realtime::become_realtime;
use crate::transfer::multipath::sending::Path;

mod connection;
mod datagrams;
mod driver;
mod frame;
mod objects;
mod transfer;

use connection::Connection;
use datagrams::Datagrams;
pub use driver::EndpointRecord;
use driver::{Driver, Plan, Run};
use objects::Objects;
use transfer::Transfer;

const PORT: u16 = 5001;
/// Port without a listener (RFC 863): a refused connection proves that packets
/// pass in both directions.
const DISCARD: u16 = 9;
/// Time for delivery after the sender has stopped.
const GRACE: Duration = Duration::from_secs(2);
/// Longest time until a tunnel carries packets.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the first attempt to reach the server through the tunnel; after each one without an answer it doubles, as
/// the RTT may be longer.
const ATTEMPT: Duration = Duration::from_millis(100);

/// Configuration of the traffic's endpoints for a strategy.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    pub server: IpAddr,
    /// Source address of the vehicle; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    /// True for MPTCP, if the traffic uses TCP.
    pub mptcp: bool,
    /// True if deadlines are reported to an agent.
    pub demands: bool,
    /// True if the traffic waits for a tunnel.
    pub tunnel: bool,
    /// True for a connection for each path.
    pub each_path: bool,
}

pub struct TrafficEndpoints<'a> {
    scenario: &'a Scenario,
    config: EndpointConfig,
    plan: Plan,
    driver: Box<dyn Driver>,
}

/// What was carried, from the records of both endpoints.
#[derive(Default)]
pub struct Delivered {
    pub messages: Vec<MessageRow>,
    /// Messages that were due but never written.
    pub skipped: u64,
    /// Number of duplicate datagrams; `None` for other traffic.
    pub duplicates: Option<u64>,
    /// Reads of the byte stream.
    pub reads: Reads,
    /// What the sender decided and predicted itself.
    pub outputs: Vec<(Instant, Output)>,
}

/// The driver of a kind of traffic. A kind that needs another one is named here.
fn driver(scenario: &Scenario, EndpointConfig { demands, each_path, .. }: EndpointConfig) -> Box<dyn Driver> {
    let traffic = &scenario.traffic;
    match (traffic.kind.deadlines(), traffic.protocol) {
        (Some(rules), _) if each_path => Box::new(Transfer { rules, paths: preferred_paths(scenario) }),
        (Some(rules), _) => Box::new(Objects { rules, demands }),
        (None, Protocol::Udp) => Box::new(Datagrams),
        (None, Protocol::Tcp) => Box::new(Connection),
    }
}

/// The paths with their interfaces and prices, the preferred one first.
fn preferred_paths(scenario: &Scenario) -> Vec<(PathId, Path)> {
    let (mut paths, ranks, unit_costs) = (scenario.paths(), scenario.ranks(), scenario.unit_costs());
    paths.sort_by_key(|path| ranks[usize::from(path.id.0)]);
    let path = |path: PathEntry<'_>| {
        let unit_cost = unit_costs[usize::from(path.id.0)];
        (path.id, Path { interface: Some(path.name.into()), unit_cost })
    };
    paths.into_iter().map(path).collect()
}

impl<'a> TrafficEndpoints<'a> {
    pub fn new(scenario: &'a Scenario, seed: u64, config: EndpointConfig) -> TrafficEndpoints<'a> {
        let (plan, driver) = (plan(scenario, seed, config.mptcp), driver(scenario, config));
        TrafficEndpoints { scenario, config, plan, driver }
    }

    /// Opens the server's socket, from a thread in its namespace.
    pub fn listen(&self) -> Result<Socket> {
        self.driver.listen(&self.plan, SocketAddr::new(unspecified(self.config.server), PORT))
    }

    /// Runs the server, from a thread in its namespace.
    pub fn serve(&self, listener: Socket, clock: Clock, stop: &AtomicBool) -> Result<EndpointRecord> {
        become_realtime(PRIORITY);
        self.driver.serve(Run { plan: &self.plan, clock, stop }, listener)
    }

    /// Runs the vehicle's client, from a thread in its namespace.
    pub fn drive(&self, clock: Clock, stop: &AtomicBool) -> Result<EndpointRecord> {
        become_realtime(PRIORITY);
        if self.config.tunnel {
            self.await_tunnel(clock, stop)?;
            std::thread::sleep(self.scenario.tunnel_stands().since(clock.now()));
        }
        let server = SocketAddr::new(self.config.server, PORT);
        self.driver.drive(Run { plan: &self.plan, clock, stop }, server, self.config.local)
    }

    /// Joins the records of both endpoints.
    pub fn delivered(&self, vehicle: EndpointRecord, server: EndpointRecord) -> Delivered {
        let (sender, receiver) = match self.plan.direction {
            Direction::Up => (vehicle, server),
            Direction::Down => (server, vehicle),
        };
        let duplicates = (self.scenario.traffic.protocol == Protocol::Udp).then_some(receiver.duplicates);
        let messages = messages(sender.sent, &receiver.received_ns);
        let (skipped, reads, outputs) = (sender.skipped, receiver.reads, sender.outputs);
        Delivered { messages, skipped, duplicates, reads, outputs }
    }

    /// Returns once the tunnel carries packets in both directions: the server's
    /// kernel refuses a connection to a port without a listener.
    fn await_tunnel(&self, clock: Clock, stop: &AtomicBool) -> Result<()> {
        let closed = SocketAddr::new(self.config.server, DISCARD);
        let deadline = Instant::ZERO + TUNNEL_TIMEOUT;
        let mut attempt = ATTEMPT;
        while clock.now() < deadline {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match TcpStream::connect_timeout(&closed, attempt) {
                Ok(_) => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::TimedOut => attempt *= 2,
                // Without a route the call returns at once.
                Err(_) => std::thread::sleep(ATTEMPT / 10),
            }
        }
        let cause = format!("it carried no packet within {} s", TUNNEL_TIMEOUT.as_secs());
        Err(Error::failure("waiting for the tunnel", cause).with_remedy("see the logs in the folder of the run"))
    }
}

/// The messages with the times at which they were received; those that are
/// answered have them already.
fn messages(mut sent: Vec<MessageRow>, received_ns: &[Option<u64>]) -> Vec<MessageRow> {
    for (row, received_ns) in sent.iter_mut().zip(received_ns) {
        row.received_ns = *received_ns;
    }
    sent
}

fn plan(scenario: &Scenario, seed: u64, mptcp: bool) -> Plan {
    let traffic = &scenario.traffic;
    let congestion = match scenario.congestion {
        Congestion::Cubic => "cubic",
        Congestion::Reno => "reno",
        Congestion::Bbr => "bbr",
        Congestion::Lia => "lia",
        Congestion::Olia => "olia",
    };
    Plan {
        kind: traffic.kind.clone(),
        span: traffic.span(),
        seed,
        direction: if traffic.down { Direction::Down } else { Direction::Up },
        deadline: traffic.span().stop + GRACE,
        mptcp,
        congestion: congestion.into(),
        send_buffer_bytes: traffic.send_buffer_bytes as usize,
    }
}

#[cfg(test)]
mod tests;
