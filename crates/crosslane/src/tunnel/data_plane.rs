//! The running tunnel: a sending and a receiving thread.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crosslane_core::packet::gro::Coalescer;
use crosslane_core::packet::ip::IpView;
use crosslane_core::path::{PathId, PathState, Sample};
use crosslane_core::tunnel::{Keepalive, Mode};
use crosslane_core::wanted::Order;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::config::{MAX_VEHICLES, TunnelConfig};
use super::device::Device;
use super::endpoint::egress::Transmit;
use super::endpoint::{Change, Counts, Endpoint, EndpointStatus, PeerPlan, Plan, VehicleChanges, lock};
use super::path_errors::Faults;
use super::socket::PathSocket;
use super::threads::Threads;
use crate::clock::{self, Clock};
use crate::error::{Error, Result};

mod receives;
mod sends;

use receives::ReceiveThread;
use sends::SendThread;

/// The sending thread is awake, and may have checked for work already.
const AWAKE: u64 = u64::MAX;
/// Maximum number of vehicles that a gateway ever has, with those that leave: twice as many as it may have at once.
const MAX_VEHICLES_EVER: usize = 2 * MAX_VEHICLES;
/// Maximum number of unread changes of liveness.
const MAX_CHANGES: usize = 1024;

/// A running tunnel; it stops when this is dropped. See [`finish`](Self::finish).
pub struct DataPlane {
    shared: Arc<Shared>,
    threads: Threads,
    /// Changes of liveness.
    pub changes: mpsc::Receiver<Change>,
    /// Errors of the kernel for paths that cannot send: once for each
    /// address that the path gets.
    pub faults: mpsc::Receiver<Error>,
}

struct Shared {
    endpoint: Endpoint,
    device: Device,
    sockets: Mutex<Vec<Option<Arc<PathSocket>>>>,
    rfc8086_only: bool,
    clock: Clock,
    stop: AtomicBool,
    /// Another program has removed the interface.
    is_removed: AtomicBool,
    /// When the sending thread wakes up without a signal, in ns.
    wakes_ns: AtomicU64,
    sender: EventFd,
    receiver: EventFd,
    faults: Faults,
}

impl DataPlane {
    /// Creates the interface and starts the threads, in the network namespace of this
    /// thread. `ranks` are the paths' places in the user's preference.
    ///
    /// # Errors
    /// One error message with the remedy.
    pub fn start(config: &TunnelConfig, ranks: Vec<u8>, keepalives: Vec<Keepalive>, clock: Clock) -> Result<DataPlane> {
        let plan = plan(config, ranks, keepalives)?;
        let listen =
            config.listen.as_ref().map(|listen| bind(*listen.get_ref(), None, config.rfc8086_only)).transpose()?;
        let device = Device::open(&config.device())?;
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the tunnel", cause);
        let (fault_sender, faults) = mpsc::sync_channel(MAX_CHANGES);
        let shared = Arc::new(Shared {
            endpoint: Endpoint::new(plan, clock::unix_ns()),
            device,
            sockets: Mutex::new(vec![listen]),
            rfc8086_only: config.rfc8086_only,
            clock,
            stop: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            wakes_ns: AtomicU64::new(AWAKE),
            sender: event().map_err(|cause| starting(&cause))?,
            receiver: event().map_err(|cause| starting(&cause))?,
            faults: Faults::new(fault_sender),
        });
        let (change_sender, changes) = mpsc::sync_channel(MAX_CHANGES);
        let mut data_plane = DataPlane { shared, threads: Threads::default(), changes, faults };
        let sends = SendThread::new(data_plane.shared.clone(), change_sender);
        let receives = ReceiveThread::new(data_plane.shared.clone());
        let (threads, now) = (&mut data_plane.threads, clock.now());
        threads.start("tunnel-send", now, |pulse| sends.run(&pulse)).map_err(|cause| starting(&cause))?;
        threads.start("tunnel-receive", now, |pulse| receives.run(&pulse)).map_err(|cause| starting(&cause))?;
        data_plane.shared.device.keep(true).map_err(|cause| starting(&cause))?;
        Ok(data_plane)
    }

    /// Stops and removes the interface. An agent that is killed, or exits after a
    /// fault, leaves the interface with its routes to the next agent.
    pub fn finish(self) {
        // An error means that another program created it.
        let _ = self.shared.device.keep(false);
    }

    /// The failure of a thread that has ended, which stops the tunnel.
    pub fn fault(&mut self) -> Option<Error> {
        self.threads.fault()
    }

    /// Whether another program has removed the interface: nothing is carried any more.
    pub fn is_removed(&self) -> bool {
        self.shared.is_removed.load(Relaxed)
    }

    /// Whether both threads run and neither hangs.
    pub fn is_alive(&self) -> bool {
        self.threads.are_alive(self.shared.clock.now())
    }

    /// Sets the present address of a vehicle's path, or none.
    ///
    /// # Errors
    /// The address is not local.
    pub fn set_path(&self, path: PathId, address: Option<IpAddr>, interface: &str) -> Result<()> {
        let place = usize::from(path.0);
        let bound = |address| bind(SocketAddr::new(address, 0), Some(interface), self.shared.rfc8086_only);
        let socket = address.map(bound).transpose()?;
        let is_there = socket.is_some();
        {
            let mut sockets = lock(&self.shared.sockets);
            if sockets.len() <= place {
                sockets.resize(place + 1, None);
            }
            sockets[place] = socket;
        }
        self.shared.faults.forget(place);
        self.shared.endpoint.set_path(self.shared.clock.now(), path, is_there.then_some(place));
        self.wake();
        Ok(())
    }

    /// Sets the wanted state of each path.
    pub fn set_wanted(&self, states: &[PathState], order: &Order) {
        self.shared.endpoint.set_wanted(self.shared.clock.now(), states, order);
        self.wake();
    }

    /// Sets a gateway's vehicles to those of the configuration.
    ///
    /// # Errors
    /// A key cannot be read, or as [`Endpoint::set_vehicles`]: nothing has changed.
    pub fn set_vehicles(&self, config: &TunnelConfig) -> Result<VehicleChanges> {
        let keys = config.keys()?.map(|(_, peers)| peers).unwrap_or_default();
        let changes = self.shared.endpoint.set_vehicles(clock::unix_ns(), vehicles(config).zip(keys).collect())?;
        self.wake();
        Ok(changes)
    }

    /// A sample of each path.
    pub fn samples(&self) -> Vec<Sample> {
        self.shared.endpoint.samples()
    }

    /// Time since the first packet that the gateway has not answered: see [`Endpoint::unanswered`].
    pub fn unanswered(&self) -> Option<Duration> {
        self.shared.endpoint.unanswered(self.shared.clock.now())
    }

    /// Status of the endpoint.
    pub fn status(&self) -> EndpointStatus {
        self.shared.endpoint.status(self.shared.clock.now())
    }

    /// Counts of packets that were not carried.
    pub fn counts(&self) -> &Counts {
        &self.shared.endpoint.counts
    }

    /// Sets the mode; returns the previous one.
    ///
    /// # Errors
    /// As [`Endpoint::use_mode`].
    pub fn use_mode(&self, mode: Mode) -> Result<Mode> {
        let previous = self.shared.endpoint.use_mode(self.shared.clock.now(), mode)?;
        self.wake();
        Ok(previous)
    }

    fn wake(&self) {
        // A full counter also wakes the threads.
        let _ = self.shared.sender.write(1);
        let _ = self.shared.receiver.write(1);
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.wake();
        self.threads.join();
    }
}

/// A socket of the tunnel. An RFC 8086 peer answers no probes, so ICMP is trusted for the path MTU.
fn bind(address: SocketAddr, interface: Option<&str>, rfc8086_only: bool) -> Result<Arc<PathSocket>> {
    let socket = PathSocket::bind(address, interface)?;
    if rfc8086_only {
        let starting = |cause| Error::failure(format!("preparing the UDP socket at {address}"), cause);
        socket.trust_icmp_mtu().map_err(starting)?;
    }
    Ok(Arc::new(socket))
}

fn vehicles(config: &TunnelConfig) -> impl Iterator<Item = PeerPlan> {
    config.vehicles.iter().map(|vehicle| {
        let vehicle = vehicle.get_ref();
        let prefixes = vehicle.address.iter().map(|prefix| prefix.get_ref().0).collect();
        PeerPlan { name: vehicle.name.clone(), prefixes, at: None }
    })
}

fn plan(config: &TunnelConfig, ranks: Vec<u8>, keepalives: Vec<Keepalive>) -> Result<Plan> {
    let at = config.gateway_address()?;
    let gateway = PeerPlan { name: "gateway".into(), prefixes: Vec::new(), at };
    let peers = if at.is_some() { vec![gateway] } else { vehicles(config).collect() };
    Ok(Plan {
        peers,
        keys: config.keys()?,
        is_initiator: at.is_some(),
        mode: config.mode,
        ranks,
        copies: config.copies(),
        keepalives,
        overhead: config.overhead(),
        mtu: config.inner_mtu(),
        max_peers: if config.has_changing_vehicles() { MAX_VEHICLES_EVER } else { 1 },
        addresses: config.address.iter().map(|prefix| prefix.get_ref().0.addr()).collect(),
        rfc8086_only: config.rfc8086_only,
    })
}

impl Shared {
    fn send(&self, transmit: Transmit<'_>) {
        let socket = lock(&self.sockets).get(transmit.address.via).cloned().flatten();
        let Some(socket) = socket else { return };
        let all = transmit.bytes.len().div_ceil(transmit.segment.max(1));
        let (from, to) = (transmit.address.from, transmit.address.to);
        let done = match transmit.may_fragment {
            true => socket.send_in_fragments((from, to), transmit.tos, transmit.segment, transmit.bytes),
            false => socket.send((from, to), transmit.tos, transmit.segment, transmit.bytes),
        };
        let send_errors = match done {
            Ok(count) => all - count,
            Err(cause) => {
                self.faults.note(transmit.address.via, &socket, transmit.address.to, &cause);
                all
            }
        };
        self.endpoint.counts.send_errors.fetch_add(send_errors as u64, Relaxed);
    }
}

fn deliver(coalescer: &mut Coalescer, device: &Device, packet: &IpView<&[u8]>) {
    if !coalescer.push(packet) {
        flush(coalescer, device);
        let _ = coalescer.push(packet);
    }
}

/// Packets that the kernel rejects, as while the interface is down, are lost.
fn flush(coalescer: &mut Coalescer, device: &Device) {
    let _ = coalescer.flush(|parts| device.send(parts));
}
