//! The tunnel at work: a thread that sends, one that receives.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crosslane_core::allocate::PathState;
use crosslane_core::path::{PathId, Sample};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use super::coalesce::Coalescer;
use super::config::TunnelConfig;
use super::device::Device;
use super::end::{Change, Counts, End, EndView, Intake, PeerPlan, Plan, Way, lock};
use super::faults::Faults;
use super::offload::{FRAME_BYTES, split};
use super::outbox::{Outbox, Sent};
use super::socket::{PathSocket, ReceiveBuffers, is_too_big};
use crate::clock::{self, Clock};
use crate::error::{Error, Result};

/// Frames taken from the device before what they brought is sent.
const FRAMES_A_TURN: usize = 8;
/// Batches taken from a socket before the others have their turn.
const BATCHES_A_TURN: usize = 4;
/// Longest sleep: nothing is due later than that.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);
/// The sending thread is awake, and may have looked already.
const AWAKE: u64 = u64::MAX;
/// Changes of health that wait to be told.
const MOST_CHANGES: usize = 1024;

/// A running tunnel; it ends when this is dropped.
pub struct Carrier {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
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
        let listen = config.listen.as_ref().map(|listen| PathSocket::bind(*listen.get_ref(), None)).transpose()?;
        let device = Device::open(&config.device())?;
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the tunnel", cause);
        let (tell_fault, faults) = mpsc::sync_channel(MOST_CHANGES);
        let shared = Arc::new(Shared {
            end: End::new(plan, clock::unix_ns()),
            device,
            sockets: Mutex::new(vec![listen.map(Arc::new)]),
            clock,
            stop: AtomicBool::new(false),
            wakes_ns: AtomicU64::new(AWAKE),
            sender: event().map_err(|cause| starting(&cause))?,
            receiver: event().map_err(|cause| starting(&cause))?,
            faults: Faults::new(tell_fault),
        });
        let (tell, changes) = mpsc::sync_channel(MOST_CHANGES);
        let mut carrier = Carrier { shared, threads: Vec::new(), changes, faults };
        let sends = Sends::new(carrier.shared.clone(), tell);
        let receives = Receives::new(carrier.shared.clone());
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let threads =
            [named("tunnel-send").spawn(move || sends.run()), named("tunnel-receive").spawn(move || receives.run())];
        for thread in threads {
            carrier.threads.push(thread.map_err(|cause| starting(&cause))?);
        }
        Ok(carrier)
    }

    /// A path of a vehicle has this address from now on, or none.
    ///
    /// # Errors
    /// The address is not ours.
    pub fn set_path(&self, path: PathId, address: Option<IpAddr>, interface: &str) -> Result<()> {
        let place = usize::from(path.0);
        let bound = |address| PathSocket::bind(SocketAddr::new(address, 0), Some(interface)).map(Arc::new);
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
    pub fn view(&self) -> EndView {
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
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
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
        leads: at.is_some(),
        mode: config.mode,
        ranks,
        overhead_bytes: config.overhead_bytes(),
        mtu: config.inner_mtu(),
        addresses: config.address.iter().map(|prefix| prefix.get_ref().address).collect(),
        standard: config.standard,
    })
}

impl Shared {
    fn send(&self, sent: Sent<'_>) {
        let socket = lock(&self.sockets).get(sent.way.via).cloned().flatten();
        let Some(socket) = socket else { return };
        let all = sent.bytes.len().div_ceil(sent.segment.max(1));
        let unsent = match socket.send((sent.way.from, sent.way.to), sent.tos, sent.segment, sent.bytes) {
            Ok(count) => all - count,
            Err(cause) => {
                if is_too_big(&cause)
                    && let Some(mtu) = socket.path_mtu(sent.way.to)
                {
                    self.end.learn_path_mtu(mtu);
                }
                self.faults.note(sent.way.via, &socket, sent.way.to, &cause);
                all
            }
        };
        self.end.counts.unsent.fetch_add(unsent as u64, Relaxed);
    }
}

/// The thread that sends.
struct Sends {
    shared: Arc<Shared>,
    outbox: Outbox,
    frame: Vec<u8>,
    /// When each peer's engine is due.
    due: Vec<Option<Instant>>,
    coalescer: Coalescer,
    tell: mpsc::SyncSender<Change>,
    upkeep: Instant,
}

impl Sends {
    fn new(shared: Arc<Shared>, tell: mpsc::SyncSender<Change>) -> Sends {
        let due = vec![Some(Instant::ZERO); shared.end.peers()];
        let coalescer = Coalescer::new(shared.device.offload().udp);
        Sends {
            shared,
            outbox: Outbox::default(),
            frame: vec![0; FRAME_BYTES],
            due,
            coalescer,
            tell,
            upkeep: Instant::ZERO,
        }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Relaxed) {
            let woken = self.sleep();
            let now = self.shared.clock.now();
            if woken {
                // The receiving thread does not say for whom.
                self.due.fill(Some(now));
            }
            self.take_frames(now);
            if now >= self.upkeep {
                let Sends { shared, .. } = &self;
                shared.end.upkeep(now, clock::unix_ns(), |sent| shared.send(sent));
                self.upkeep = shared.end.upkeep_due(now);
            }
            for peer in 0..self.due.len() {
                if self.due[peer].is_some_and(|due| due <= now) {
                    self.depart(now, peer);
                }
            }
        }
    }

    /// Sleeps until something is due or there is a packet; whether it was woken.
    fn sleep(&mut self) -> bool {
        let now = self.shared.clock.now();
        let due = self.due.iter().flatten().copied().min().unwrap_or(now + LONGEST_SLEEP).min(self.upkeep);
        let due = due.min(now + LONGEST_SLEEP);
        self.shared.wakes_ns.store(due.as_nanos(), Relaxed);
        let mut sources = [
            PollFd::new(self.shared.device.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.sender.as_fd(), PollFlags::POLLIN),
        ];
        let woken = ppoll(&mut sources, Some(TimeSpec::from_duration(due.since(now))), None);
        self.shared.wakes_ns.store(AWAKE, Relaxed);
        if woken.is_ok_and(|count| count > 0) && sources[1].any().unwrap_or(false) {
            let _ = self.shared.sender.read();
            return true;
        }
        false
    }

    fn take_frames(&mut self, now: Instant) {
        let Sends { shared, frame, due, .. } = self;
        for _ in 0..FRAMES_A_TURN {
            let Ok(length) = shared.device.receive(frame) else { return };
            // The kernel makes no frame that cannot be cut.
            let _ = split(&mut frame[..length], |packet| {
                let answer = |told: &[u8]| drop(shared.device.send_packet(told));
                if let Some(peer) = shared.end.take_in(now, packet, answer) {
                    due[peer] = Some(now);
                }
            });
        }
    }

    fn depart(&mut self, now: Instant, peer: usize) {
        let Sends { shared, outbox, coalescer, due, tell, .. } = self;
        due[peer] = shared.end.depart(now, peer, outbox, |sent| shared.send(sent));
        for change in shared.end.changes(peer, outbox) {
            // Nobody listens: then nobody needs to know.
            let _ = tell.try_send(change);
        }
        shared.end.deliveries(peer, |packet| deliver(coalescer, &shared.device, packet));
        flush(coalescer, &shared.device);
    }
}

/// The thread that receives.
struct Receives {
    shared: Arc<Shared>,
    intake: Intake,
    buffers: ReceiveBuffers,
    coalescer: Coalescer,
}

impl Receives {
    fn new(shared: Arc<Shared>) -> Receives {
        let coalescer = Coalescer::new(shared.device.offload().udp);
        Receives { shared, intake: Intake::default(), buffers: ReceiveBuffers::default(), coalescer }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Relaxed) {
            let sockets: Vec<(usize, Arc<PathSocket>)> = {
                let sockets = lock(&self.shared.sockets);
                sockets.iter().enumerate().filter_map(|(place, socket)| Some((place, socket.clone()?))).collect()
            };
            let ready = self.wait(&sockets);
            for (place, socket) in ready {
                self.take(place, &socket);
            }
        }
    }

    fn wait(&self, sockets: &[(usize, Arc<PathSocket>)]) -> Vec<(usize, Arc<PathSocket>)> {
        let mut sources: Vec<PollFd<'_>> = Vec::with_capacity(sockets.len() + 1);
        sources.push(PollFd::new(self.shared.receiver.as_fd(), PollFlags::POLLIN));
        sources.extend(sockets.iter().map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        if poll(&mut sources, PollTimeout::from(500u16)).is_err() {
            return Vec::new();
        }
        if sources[0].any().unwrap_or(false) {
            let _ = self.shared.receiver.read();
        }
        let ready = sources[1..].iter().zip(sockets).filter(|(source, _)| source.any().unwrap_or(false));
        ready.map(|(_, (place, socket))| (*place, socket.clone())).collect()
    }

    fn take(&mut self, via: usize, socket: &PathSocket) {
        let Receives { shared, intake, buffers, coalescer } = self;
        for _ in 0..BATCHES_A_TURN {
            match socket.receive(buffers) {
                Ok(_) => {}
                // There is no more, or a host says that nobody listens there.
                Err(_) => return,
            }
            let now = shared.clock.now();
            for datagram in buffers.datagrams() {
                let way = Way { via, to: datagram.from, from: datagram.at };
                if let Some(reply) = shared.end.take_out(intake, now, way, datagram.tos, datagram.bytes) {
                    shared.send(Sent { way, tos: 0, segment: reply.len(), bytes: &reply });
                }
            }
            let wakeup = shared.end.settle(intake, now, |packet| deliver(coalescer, &shared.device, packet));
            flush(coalescer, &shared.device);
            let asleep_until = shared.wakes_ns.load(Relaxed);
            if wakeup.is_some_and(|at| at.as_nanos() < asleep_until) {
                let _ = shared.sender.write(1);
            }
        }
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
