//! The two ends of a drive's traffic: connections, datagrams or objects with
//! deadlines, through a tunnel or not.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::MessageRow;
use crosslane_sim::scenario::{Congestion, Protocol, Scenario, TrafficKind};
use socket2::Socket;

use super::agents::DEMANDS;
use super::objects;
use super::world::PRIORITY;
use crate::clock::Clock;
use crate::control::demand::client::Agent;
use crate::error::{Error, Result};
use crate::testbed::realtime::become_realtime;
use crate::testbed::traffic::{self, BULK_BYTES, Seen, datagrams};

/// Port of the traffic's server.
const PORT: u16 = 5001;
/// Port on which nobody listens (RFC 863): who is refused there has got through.
const DISCARD: u16 = 9;
/// How long both ends may still deliver after the sender has stopped.
const GRACE_NS: u64 = 2_000_000_000;
/// How long a tunnel may take to carry something.
const TUNNEL_PATIENCE: Duration = Duration::from_secs(5);
/// One attempt to reach the far end through the tunnel.
const ATTEMPT: Duration = Duration::from_millis(100);

/// How the ends of a strategy find each other.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Where the server is.
    pub server: IpAddr,
    /// Where the vehicle sends from, if the kernel shall not choose.
    pub local: Option<IpAddr>,
    /// True for MPTCP, where the traffic is TCP at all.
    pub mptcp: bool,
    /// True if an agent is to be told of deadlines.
    pub demands: bool,
    /// True if a tunnel has to come up first.
    pub tunnel: bool,
}

/// The traffic of a run.
pub struct TrafficEndpoints<'a> {
    scenario: &'a Scenario,
    seed: u64,
    way: Way,
    plan: traffic::Plan,
}

/// Where the server awaits the traffic.
pub enum Listener {
    /// A connection.
    Connection(Socket),
    /// Datagrams.
    Datagrams(UdpSocket),
}

/// What one end of the traffic saw.
pub enum End {
    /// An end of a connection.
    Connection(Seen),
    /// An end of datagrams.
    Datagrams(datagrams::End),
    /// The sender of objects.
    Sent(Vec<MessageRow>),
    /// When each object was complete.
    Received(Vec<Option<u64>>),
}

/// What was carried, from what both ends saw.
#[derive(Default)]
pub struct Delivered {
    /// The record.
    pub messages: Vec<MessageRow>,
    /// Messages that were due and never written.
    pub skipped: u64,
    /// How many datagrams came once more; none where there were none.
    pub duplicates: Option<u64>,
}

impl<'a> TrafficEndpoints<'a> {
    /// The traffic of a scenario.
    pub fn new(scenario: &'a Scenario, seed: u64, way: Way) -> TrafficEndpoints<'a> {
        TrafficEndpoints { scenario, seed, way, plan: plan(scenario, way.mptcp) }
    }

    /// Opens the server's door, from a thread in its namespace.
    ///
    /// # Errors
    /// What the system refused.
    pub fn listen(&self) -> Result<Listener> {
        match self.scenario.traffic.protocol {
            Protocol::Tcp => traffic::listen(PORT, &self.plan).map(Listener::Connection).map_err(told),
            Protocol::Udp => datagrams::listen(PORT, &self.plan).map(Listener::Datagrams).map_err(told),
        }
    }

    /// Plays the server's part, from a thread in its namespace.
    ///
    /// # Errors
    /// Why the traffic failed.
    pub fn far(&self, door: &Listener, clock: Clock, stop: &AtomicBool) -> Result<End> {
        become_realtime(PRIORITY);
        let now = || clock.now().as_nanos();
        match (door, self.scenario.traffic.kind) {
            (Listener::Datagrams(socket), _) => {
                datagrams::serve(socket, &self.plan, &now, stop).map(End::Datagrams).map_err(told)
            }
            (Listener::Connection(listener), TrafficKind::Deadline(_)) => {
                let socket = traffic::accept(listener, &self.plan, &now, stop).map_err(told)?;
                Ok(End::Received(objects::receive(&socket, clock, stop)?))
            }
            (Listener::Connection(listener), _) => {
                traffic::serve(listener, &self.plan, &now, stop).map(End::Connection).map_err(told)
            }
        }
    }

    /// Plays the vehicle's part, from a thread in its namespace.
    ///
    /// # Errors
    /// Why the traffic failed.
    pub fn near(&self, clock: Clock, stop: &AtomicBool) -> Result<End> {
        become_realtime(PRIORITY);
        if self.way.tunnel {
            self.await_tunnel(clock, stop)?;
            std::thread::sleep(self.scenario.tunnel_stands().since(clock.now()));
        }
        let now = || clock.now().as_nanos();
        let (server, local, plan) = (SocketAddr::new(self.way.server, PORT), self.way.local, &self.plan);
        let wanted = &self.scenario.traffic;
        if wanted.protocol == Protocol::Udp {
            return datagrams::drive(server, local, plan, &now, stop).map(End::Datagrams).map_err(told);
        }
        let TrafficKind::Deadline(rules) = wanted.kind else {
            return traffic::drive(server, local, plan, &now, stop).map(End::Connection).map_err(told);
        };
        let first = self.scenario.first_object(self.seed).unwrap_or_default();
        std::thread::sleep(first.since(clock.now()));
        let socket = traffic::dial(server, local, plan, &now, stop).map_err(told)?;
        let agent = self.way.demands.then(|| Agent::connect(DEMANDS)).transpose();
        let agent = agent.map_err(|cause| Error::failure("reaching the agent", cause))?;
        Ok(End::Sent(objects::send(&socket, agent, (wanted, rules, self.seed), clock, stop)?))
    }

    /// The record of the traffic.
    pub fn delivered(&self, near: End, far: End) -> Delivered {
        let (sender, receiver) = match self.plan.direction {
            Direction::Up => (near, far),
            Direction::Down => (far, near),
        };
        match (sender, receiver) {
            (End::Connection(sender), End::Connection(receiver)) => Delivered {
                // Of answers, who asked knows both times.
                messages: traffic::messages(&self.plan, &sender, if self.plan.answered { &sender } else { &receiver }),
                skipped: sender.skipped,
                duplicates: None,
            },
            (End::Datagrams(datagrams::End::Sent(sent)), End::Datagrams(datagrams::End::Received(received))) => {
                Delivered {
                    messages: datagrams::messages(&self.plan, &sent, &received),
                    skipped: sent.skipped,
                    duplicates: Some(received.duplicates),
                }
            }
            (End::Sent(mut rows), End::Received(received_ns)) => {
                for (row, received_ns) in rows.iter_mut().zip(received_ns) {
                    row.received_ns = received_ns;
                }
                Delivered { messages: rows, ..Delivered::default() }
            }
            _ => Delivered::default(),
        }
    }

    /// Returns once the tunnel carries packets both ways: the far end's kernel
    /// refuses a connection to a port that nobody has.
    fn await_tunnel(&self, clock: Clock, stop: &AtomicBool) -> Result<()> {
        let closed = SocketAddr::new(self.way.server, DISCARD);
        let give_up = Instant::ZERO + TUNNEL_PATIENCE;
        while clock.now() < give_up {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match TcpStream::connect_timeout(&closed, ATTEMPT) {
                Ok(_) => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(()),
                // Without a route there is no waiting inside.
                Err(_) => std::thread::sleep(ATTEMPT / 10),
            }
        }
        let cause = format!("nothing came through it within {} s", TUNNEL_PATIENCE.as_secs());
        Err(Error::failure("waiting for the tunnel", cause).with_remedy("see the logs in the folder of the run"))
    }
}

fn plan(scenario: &Scenario, mptcp: bool) -> traffic::Plan {
    let wanted = &scenario.traffic;
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let congestion = match scenario.congestion {
        Congestion::Cubic => "cubic",
        Congestion::Reno => "reno",
        Congestion::Bbr => "bbr",
        Congestion::Lia => "lia",
        Congestion::Olia => "olia",
    };
    traffic::Plan {
        answered: wanted.answered,
        direction: if wanted.down { Direction::Down } else { Direction::Up },
        size_bytes: match wanted.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => size_bytes,
            // Uploads are the simulator's; `Scenario::check_engine` tells so. Objects have sizes of their own.
            TrafficKind::Bulk | TrafficKind::Uploads { .. } | TrafficKind::Deadline(_) => BULK_BYTES,
        },
        period_ns: wanted.kind.period_ns(),
        start_ns: nanos(wanted.start_s),
        stop_ns: nanos(wanted.stop_s),
        deadline_ns: nanos(wanted.stop_s) + GRACE_NS,
        mptcp,
        congestion: congestion.into(),
        send_buffer_bytes: wanted.send_buffer_bytes as usize,
    }
}

fn told(cause: traffic::TrafficError) -> Error {
    Error::message(cause.to_string(), 1)
}
