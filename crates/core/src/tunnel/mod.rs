//! A tunnel that distributes IP traffic over several paths.
//!
//! Packets are queued per flow ([`fq_codel`]) until a path has room. Each path ([`send_path`]) estimates
//! its delivery rate from the peer's feedback ([`wire::control_message`]) and keeps its own queue short, so
//! the scheduler sends a packet on the path with the earliest expected arrival ([`scheduler`]). Lost
//! packets, and packets in flight on a path declared down, are retransmitted on another path. The receiver
//! records what arrives on each path ([`recv_path`]) and restores the order of each flow
//! ([`reorder_buffer`]).
//!
//! The engine knows only the length and flow of a packet; [`wire`] defines the wire format. Encryption and
//! authentication are the driver's task, with [`anti_replay`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::path::{PathId, PathState, Sample, SampleKind, Transport};
use crate::time::{Duration, Instant};

pub mod anti_replay;
pub mod wire;

mod api;
mod feedback;
mod fq_codel;
mod limits;
mod primary_path;
mod recv_path;
mod reorder_buffer;
mod scheduler;
mod send_path;

pub use api::{Encryption, Input, Mode, Output, PathStats, Setup};
use fq_codel::{Queue, Queued};
use recv_path::RecvPath;
use reorder_buffer::{ActivePaths, ReorderBuffer};
pub use send_path::Liveness;
use send_path::{PathMtu, Retransmittable, SendPath};
use wire::control_message::MAX_PATHS;
use wire::gre::NUMBERED_BYTES;
use wire::gre_key::GreKey;

/// Retransmission of a packet ends this long after its first transmission; the inner TCP has retransmitted
/// by then.
const RETRANSMIT_WITHIN: Duration = Duration::from_millis(250);
/// Feedback and retransmission take one RTT of the lowest-delay path in addition to the packet's own delay.
/// If that RTT is longer than this, nothing is retransmitted and the peer does not wait.
const MAX_RETRANSMIT_DELAY: Duration = Duration::from_millis(120);
/// Maximum number of packets queued for retransmission.
const MAX_RETRANSMIT_QUEUE: usize = 8192;
/// Maximum number of retransmissions of a packet. A packet lost each time reaches about this number within
/// [`RETRANSMIT_WITHIN`]; only a peer with false reports exceeds it.
const MAX_RETRANSMISSIONS: u8 = 8;
/// While more bytes than this are in flight over all paths, packets are not kept for retransmission: 250 ms
/// at 1 Gbit/s.
const MAX_KEPT_BYTES: u64 = 32 << 20;
/// Minimum time between two restarts of the peer. An earlier change of epoch is a delayed message or a
/// false report.
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(250);
/// The tunnel is idle after this time without a packet.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// The engine of one endpoint of a tunnel.
#[derive(Debug)]
pub struct Tunnel<P> {
    mode: Mode,
    is_initiator: bool,
    ranks: Vec<u8>,
    epoch: u32,
    overhead_bytes: u32,
    peer_epoch: Option<u32>,
    /// Time of the peer's last restart.
    peer_restarted_at: Option<Instant>,
    peer_retransmits: bool,
    /// Longest datagram on the wire, in bytes. `None`: no path MTU discovery.
    max_datagram_bytes: Option<u32>,
    paths: Vec<Option<Path<P>>>,
    /// Next path sequence number of each path that is not present.
    next_numbers: [u64; MAX_PATHS],
    queue: Queue<P>,
    /// The packet taken from the queue that waits for room on a path.
    next: Option<Queued<P>>,
    retransmits: VecDeque<Retransmittable<P>>,
    next_sequences: Vec<u32>,
    flow_paths: Vec<Option<PathId>>,
    /// The primary path of bulk flows, if it is not the lowest-delay path.
    primary: Option<PathId>,
    reorder: ReorderBuffer<P>,
    outputs: VecDeque<Output<P>>,
    wanted_states: Vec<PathState>,
    last_busy: Instant,
    report_turn: u8,
    last_second_report: Instant,
    /// The time up to which all paths have been advanced; `None` after an input.
    advanced: Option<Instant>,
    /// When to try again to send a packet that found no room.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Path<P> {
    sender: SendPath<P>,
    receiver: RecvPath,
    reported: Option<Liveness>,
}

impl<P: Clone> Tunnel<P> {
    /// A tunnel without paths.
    pub fn new(setup: Setup) -> Tunnel<P> {
        Tunnel {
            mode: setup.mode,
            is_initiator: setup.is_initiator,
            ranks: (0..MAX_PATHS).map(|index| setup.ranks.get(index).copied().unwrap_or(index as u8)).collect(),
            epoch: setup.epoch,
            overhead_bytes: setup.overhead_bytes,
            peer_epoch: None,
            peer_restarted_at: None,
            peer_retransmits: false,
            max_datagram_bytes: None,
            paths: (0..MAX_PATHS).map(|_| None).collect(),
            next_numbers: [0; MAX_PATHS],
            queue: Queue::new(),
            next: None,
            retransmits: VecDeque::new(),
            next_sequences: alloc::vec![0; 256],
            flow_paths: alloc::vec![None; 256],
            primary: None,
            reorder: ReorderBuffer::new(),
            outputs: VecDeque::new(),
            wanted_states: alloc::vec![PathState::Active; MAX_PATHS],
            last_busy: Instant::ZERO,
            report_turn: 0,
            last_second_report: Instant::ZERO,
            advanced: None,
            retry_at: None,
        }
    }

    /// The present mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Status of a path; `None` if it is not present.
    pub fn path(&self, path: PathId) -> Option<PathStats> {
        let sender = &self.at(path)?.sender;
        Some(PathStats {
            wanted_state: sender.wanted_state,
            liveness: sender.liveness,
            reason: sender.reason.clone(),
            rate_bit_s: sender.rate_bytes_s().map(|rate| rate * 8.0),
            rtt: sender.rtt.min(),
            loss: sender.loss(),
            sent_bytes: sender.sent_bytes,
            delivered: sender.delivered,
            lost: sender.lost,
        })
    }

    /// The tunnel's measurements of a path as a sample for an assessor; `token` identifies the tunnel among
    /// connections. The unacknowledged count is always 0, because the tunnel itself detects stalls of a
    /// path and reacts to them.
    pub fn sample(&self, path: PathId, token: u32) -> Option<Sample> {
        let sender = &self.at(path)?.sender;
        sender.rtt.min()?;
        let transport = Transport {
            token,
            peer: Transport::NO_PEER,
            accepted: false,
            backup: false,
            rtt: sender.rtt.smoothed(),
            rttvar: sender.rtt.variation(),
            unacked: 0,
            delivered: sender.delivered as u32,
            bytes_acked: sender.acknowledged_bytes,
            notsent_bytes: 0,
            bytes_received: 0,
            lost: 0,
            retransmitted: 0,
            cwnd: 0,
            min_rtt: sender.rtt.min(),
            delivery_bit_s: sender.rate_bytes_s().map(|rate| (rate * 8.0) as u64),
        };
        Some(Sample { path, kind: SampleKind::Transport(transport) })
    }

    /// Number of packets dropped after queueing for too long.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Number of packets delivered after later packets of their flow.
    pub fn late(&self) -> u64 {
        self.reorder.late()
    }

    /// The next packet to deliver. Like [`poll`](Engine::poll), for drivers that deliver and send in two
    /// threads.
    pub fn poll_delivery(&mut self) -> Option<P> {
        self.reorder.poll()
    }

    /// The next packet or message to send, or event: the other half of [`poll`](Engine::poll).
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Output<P>> {
        if self.advanced.is_none_or(|until| now > until) {
            self.advanced = Some(now);
            self.advance(now);
            // The result may itself be due at once, such as a path whose probe timed out long ago.
            if self.due().is_some_and(|at| at <= now) {
                self.advance(now);
            }
        }
        if self.outputs.is_empty() {
            self.retry_at = None;
            self.transmit(now);
        }
        self.outputs.pop_front()
    }

    /// When [`advance`](Self::advance) is due.
    fn due(&self) -> Option<Instant> {
        let paths = self.paths.iter().flatten().filter_map(|path| path.sender.next_wakeup());
        paths.chain(self.report_due()).chain(self.reorder.next_wakeup()).min()
    }

    fn at(&self, path: PathId) -> Option<&Path<P>> {
        self.paths.get(usize::from(path.0))?.as_ref()
    }

    fn at_mut(&mut self, path: PathId) -> Option<&mut Path<P>> {
        self.paths.get_mut(usize::from(path.0))?.as_mut()
    }

    fn paths_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path<P>)> {
        let paths = self.paths.iter_mut().enumerate();
        paths.filter_map(|(index, path)| Some((PathId(index as u8), path.as_mut()?)))
    }

    /// Adds a path unless it is present.
    fn add_path(&mut self, now: Instant, path: PathId) {
        if let Some(slot @ None) = self.paths.get_mut(usize::from(path.0)) {
            let wanted_state = self.wanted_states[usize::from(path.0)];
            let mut sender = SendPath::new(now, wanted_state, self.next_numbers[usize::from(path.0)]);
            sender.mtu = self.max_datagram_bytes.map(PathMtu::new);
            *slot = Some(Path { sender, receiver: RecvPath::default(), reported: None });
        }
    }

    fn remove_path(&mut self, now: Instant, path: PathId) {
        let Some(removed) = self.paths.get_mut(usize::from(path.0)).and_then(Option::take) else { return };
        let mut sender = removed.sender;
        self.next_numbers[usize::from(path.0)] = sender.next_number();
        self.retransmit(now, sender.take_in_flight());
    }

    fn on_packet(&mut self, now: Instant, key: GreKey, number: Option<u32>, bytes: u32, packet: P) {
        self.add_path(now, key.path);
        self.last_busy = now;
        let overhead = self.overhead_bytes + NUMBERED_BYTES;
        if let (Some(number), Some(path)) = (number, self.at_mut(key.path)) {
            path.receiver.take(now, number, bytes + overhead);
        }
        let active_paths = self.active_paths();
        self.reorder.take(now, key, packet, active_paths);
    }

    fn active_paths(&self) -> ActivePaths {
        let up_to = |worst: Liveness| {
            let used = |path: &Path<P>| path.sender.wanted_state == PathState::Active && path.sender.liveness <= worst;
            let bit = |(index, path): (usize, &Option<Path<P>>)| u16::from(path.as_ref().is_some_and(used)) << index;
            self.paths.iter().enumerate().map(bit).sum::<u16>()
        };
        // Our own unanswered probe gives no information about what the peer sends.
        let paths =
            Some(up_to(Liveness::Unknown)).filter(|paths| *paths != 0).unwrap_or_else(|| up_to(Liveness::Probing));
        ActivePaths { paths, retransmits: self.peer_retransmits }
    }

    /// Whether packets sent now are retransmitted on loss; in mode redundant they are not.
    fn retransmits(&self) -> bool {
        self.mode != Mode::Redundant && self.min_rtt() <= MAX_RETRANSMIT_DELAY
    }

    /// Whether packets sent now are kept until they are acknowledged.
    fn keeps_copies(&self) -> bool {
        let in_flight = self.paths.iter().flatten().map(|path| path.sender.bytes_in_flight()).sum::<u64>();
        self.retransmits() && in_flight < MAX_KEPT_BYTES
    }

    fn retransmit(&mut self, now: Instant, copies: VecDeque<Retransmittable<P>>) {
        for copy in copies {
            if copy.until > now && copy.tries > 0 && self.retransmits.len() < MAX_RETRANSMIT_QUEUE {
                self.retransmits.push_back(Retransmittable { tries: copy.tries - 1, ..copy });
            }
        }
    }

    /// Advances all paths to `now`, and sends the reports and events that are due.
    fn advance(&mut self, now: Instant) {
        let active_paths = self.active_paths();
        self.reorder.advance(now, active_paths);
        let usable = self.paths_mut().filter(|(_, path)| path.sender.liveness == Liveness::Up).count();
        let idle = now.since(self.last_busy) > IDLE_AFTER;
        let delay_difference = self.possible_delay_difference();
        let trains = self.wants_trains();
        let (mut to_retransmit, mut probes, mut train_paths, mut mtu_probes) =
            (VecDeque::new(), Vec::new(), Vec::new(), Vec::new());
        let mut outputs = core::mem::take(&mut self.outputs);
        for (id, path) in self.paths_mut() {
            path.sender.tunnel_idle = idle;
            path.sender.delay_difference = delay_difference;
            let has_other_path = usable > usize::from(path.sender.liveness == Liveness::Up);
            to_retransmit.extend(path.sender.advance(now, has_other_path));
            if path.sender.wants_probe(now) {
                probes.push(id);
            }
            mtu_probes.extend(path.sender.mtu_probe(now).map(|size| (id, size)));
            if trains && path.sender.wants_train() {
                train_paths.push(id);
            }
            let liveness = path.sender.liveness;
            if path.reported.replace(liveness) != Some(liveness) {
                outputs.push_back(Output::Changed { path: id, liveness, reason: path.sender.reason.clone() });
            }
        }
        self.outputs = outputs;
        self.retransmit(now, to_retransmit);
        probes.into_iter().for_each(|path| self.probe(now, path));
        mtu_probes.into_iter().for_each(|(path, size)| self.probe_mtu(now, path, size));
        train_paths.into_iter().for_each(|path| self.send_train(now, path));
        self.primary = self.primary_path();
        if self.report_due().is_some_and(|at| now >= at) {
            self.report(now);
        }
    }
}

impl<P: Clone> Engine for Tunnel<P> {
    type Input = Input<P>;
    type Output = Output<P>;

    fn handle(&mut self, now: Instant, input: Input<P>) {
        self.advanced = None;
        match input {
            Input::Packet { flow, bytes, bulk, packet } => {
                self.last_busy = now;
                self.queue.push(Queued { flow, bytes, bulk, arrived: now, packet });
            }
            Input::Arrived { key, number, bytes, packet } => self.on_packet(now, key, number, bytes, packet),
            Input::Keyless(packet) => self.reorder.deliver_unordered(packet),
            Input::Message { path, number, message } => self.on_message(now, path, number, message),
            Input::Present(path, true) => self.add_path(now, path),
            Input::Present(path, false) => self.remove_path(now, path),
            Input::SetMode(mode) => {
                self.mode = mode;
                // The peer follows this mode, so it is reported at once.
                self.paths_mut().for_each(|(_, path)| path.receiver.request_immediate_feedback(now));
            }
            Input::SetWantedStates(states) => {
                for (index, state) in states.into_iter().enumerate().take(MAX_PATHS) {
                    self.wanted_states[index] = state;
                    if let Some(path) = self.at_mut(PathId(index as u8)) {
                        path.sender.wanted_state = state;
                        path.receiver.request_immediate_feedback(now);
                    }
                }
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output<P>> {
        if let Some(packet) = self.poll_delivery() {
            return Some(Output::Deliver(packet));
        }
        let output = self.poll_transmit(now);
        output.or_else(|| self.poll_delivery().map(Output::Deliver))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.due().into_iter().chain(self.retry_at).min()
    }
}

#[cfg(test)]
mod tests;
