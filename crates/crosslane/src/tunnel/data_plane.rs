//! The tunnel at work: a thread that sends, one that receives.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crosslane_core::path::{PathId, PathState, Sample};
use crosslane_core::tunnel::Mode;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::config::TunnelConfig;
use super::device::Device;
use super::endpoint::egress::Sent;
use super::endpoint::{Change, Counts, End, EndpointStatus, PeerPlan, Plan, lock};
use super::gro::Coalescer;
use super::path_errors::Faults;
use super::socket::PathSocket;
use super::threads::Threads;
use crate::clock::{self, Clock};
use crate::error::{Error, Result};

mod receives;
mod sends;

use receives::Receives;
use sends::Sends;

/// The sending thread is awake, and may have looked already.
const AWAKE: u64 = u64::MAX;
/// Changes of health that wait to be told.
const MOST_CHANGES: usize = 1024;

/// A running tunnel; it ends when this is dropped. See [`finish`](Self::finish).
pub struct Carrier {
    shared: Arc<Shared>,
    threads: Threads,
    /// Changes of health.
    pub changes: mpsc::Receiver<Change>,
    /// What the kernel says of a path that nothing can be sent over: once for each
    /// address that the path has.
    pub faults: mpsc::Receiver<Error>,
}

struct Shared {
    end: End,
    device: Device,
    sockets: Mutex<Vec<Option<Arc<PathSocket>>>>,
    standard: bool,
    clock: Clock,
    stop: AtomicBool,
    /// When the sending thread wakes up of itself, in ns.
    wakes_ns: AtomicU64,
    sender: EventFd,
    receiver: EventFd,
    faults: Faults,
}

impl Carrier {
    /// Makes the interface and starts to carry, in the network namespace of this
    /// thread. `ranks` are the paths' places in the user's preference.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub fn start(config: &TunnelConfig, ranks: Vec<u8>, clock: Clock) -> Result<Carrier> {
        let plan = plan(config, ranks)?;
        let listen =
            config.listen.as_ref().map(|listen| bind(*listen.get_ref(), None, config.rfc8086_only)).transpose()?;
        let device = Device::open(&config.device())?;
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the tunnel", cause);
        let (tell_fault, faults) = mpsc::sync_channel(MOST_CHANGES);
        let shared = Arc::new(Shared {
            end: End::new(plan, clock::unix_ns()),
            device,
            sockets: Mutex::new(vec![listen]),
            standard: config.rfc8086_only,
            clock,
            stop: AtomicBool::new(false),
            wakes_ns: AtomicU64::new(AWAKE),
            sender: event().map_err(|cause| starting(&cause))?,
            receiver: event().map_err(|cause| starting(&cause))?,
            faults: Faults::new(tell_fault),
        });
        let (tell, changes) = mpsc::sync_channel(MOST_CHANGES);
        let mut carrier = Carrier { shared, threads: Threads::default(), changes, faults };
        let sends = Sends::new(carrier.shared.clone(), tell);
        let receives = Receives::new(carrier.shared.clone());
        let (threads, now) = (&mut carrier.threads, clock.now());
        threads.start("tunnel-send", now, |pulse| sends.run(&pulse)).map_err(|cause| starting(&cause))?;
        threads.start("tunnel-receive", now, |pulse| receives.run(&pulse)).map_err(|cause| starting(&cause))?;
        carrier.shared.device.keep(true).map_err(|cause| starting(&cause))?;
        Ok(carrier)
    }

    /// Ends it, and takes the interface away. An agent that is killed, or ends by a
    /// fault, leaves the interface with its routes to the one that is started next.
    pub fn finish(self) {
        // Of another program's making, if it is refused.
        let _ = self.shared.device.keep(false);
    }

    /// Why nothing is carried any more: a thread has died.
    pub fn fault(&mut self) -> Option<Error> {
        self.threads.fault()
    }

    /// Whether both threads run and neither hangs.
    pub fn is_alive(&self) -> bool {
        self.threads.are_alive(self.shared.clock.now())
    }

    /// A path of a vehicle has this address from now on, or none.
    ///
    /// # Errors
    /// The address is not ours.
    pub fn set_path(&self, path: PathId, address: Option<IpAddr>, interface: &str) -> Result<()> {
        let place = usize::from(path.0);
        let bound = |address| bind(SocketAddr::new(address, 0), Some(interface), self.shared.standard);
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
        self.shared.end.set_path(self.shared.clock.now(), path, is_there.then_some(place));
        self.wake();
        Ok(())
    }

    /// What is wanted of each path.
    pub fn want(&self, states: &[PathState]) {
        self.shared.end.want(self.shared.clock.now(), states);
        self.wake();
    }

    /// What was seen of each path.
    pub fn samples(&self) -> Vec<Sample> {
        self.shared.end.samples()
    }

    /// For how long the gateway has answered nothing: see [`End::unanswered`].
    pub fn unanswered(&self) -> Option<Duration> {
        self.shared.end.unanswered(self.shared.clock.now())
    }

    /// What is known of the end.
    pub fn view(&self) -> EndpointStatus {
        self.shared.end.view(self.shared.clock.now())
    }

    /// What did not go through.
    pub fn counts(&self) -> &Counts {
        &self.shared.end.counts
    }

    /// Uses the paths so from now on; how they were used before.
    ///
    /// # Errors
    /// As [`End::use_mode`].
    pub fn use_mode(&self, mode: Mode) -> Result<Mode> {
        let was = self.shared.end.use_mode(self.shared.clock.now(), mode)?;
        self.wake();
        Ok(was)
    }

    fn wake(&self) {
        // A full counter wakes too.
        let _ = self.shared.sender.write(1);
        let _ = self.shared.receiver.write(1);
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.wake();
        self.threads.join();
    }
}

/// A socket of the tunnel. A standard peer answers no probes, so routers are believed.
fn bind(address: SocketAddr, interface: Option<&str>, standard: bool) -> Result<Arc<PathSocket>> {
    let socket = PathSocket::bind(address, interface)?;
    if standard {
        let starting = |cause| Error::failure(format!("preparing the UDP socket at {address}"), cause);
        socket.believe_routers().map_err(starting)?;
    }
    Ok(Arc::new(socket))
}

fn plan(config: &TunnelConfig, ranks: Vec<u8>) -> Result<Plan> {
    let at = config.gateway_address()?;
    let gateway = PeerPlan { name: "gateway".into(), prefixes: Vec::new(), at };
    let vehicles = config.vehicles.iter().map(|vehicle| {
        let vehicle = vehicle.get_ref();
        let prefixes = vehicle.address.iter().map(|prefix| *prefix.get_ref()).collect();
        PeerPlan { name: vehicle.name.clone(), prefixes, at: None }
    });
    let peers = if at.is_some() { vec![gateway] } else { vehicles.collect() };
    Ok(Plan {
        peers,
        keys: config.keys()?,
        is_initiator: at.is_some(),
        mode: config.mode,
        ranks,
        overhead_bytes: config.overhead_bytes(),
        mtu: config.inner_mtu(),
        addresses: config.address.iter().map(|prefix| prefix.get_ref().address).collect(),
        standard: config.rfc8086_only,
    })
}

impl Shared {
    fn send(&self, sent: Sent<'_>) {
        let socket = lock(&self.sockets).get(sent.way.via).cloned().flatten();
        let Some(socket) = socket else { return };
        let all = sent.bytes.len().div_ceil(sent.segment.max(1));
        let (from, to) = (sent.way.from, sent.way.to);
        let done = match sent.may_be_cut {
            true => socket.send_in_fragments((from, to), sent.tos, sent.segment, sent.bytes),
            false => socket.send((from, to), sent.tos, sent.segment, sent.bytes),
        };
        let send_errors = match done {
            Ok(count) => all - count,
            Err(cause) => {
                self.faults.note(sent.way.via, &socket, sent.way.to, &cause);
                all
            }
        };
        self.end.counts.send_errors.fetch_add(send_errors as u64, Relaxed);
    }
}

fn deliver(coalescer: &mut Coalescer, device: &Device, packet: &[u8]) {
    if !coalescer.push(packet) {
        flush(coalescer, device);
        let _ = coalescer.push(packet);
    }
}

/// What the kernel does not take, as while the interface is down, is lost.
fn flush(coalescer: &mut Coalescer, device: &Device) {
    let _ = coalescer.flush(|parts| device.send(parts));
}
