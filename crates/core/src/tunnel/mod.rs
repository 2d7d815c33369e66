//! A tunnel that spreads any IP traffic over several paths.
//!
//! Packets wait in a queue for each flow ([`fq_codel`]) until a path has room. Each
//! path ([`send_path`]) finds the rate at which it delivers from what the other
//! end reports ([`wire::control_message`]) and holds a short queue only, so the packet goes
//! where it arrives first ([`scheduler`]). What is lost, or was given to a path
//! that went bad, is sent again over another. The other end notes what comes over
//! each path ([`recv_path`]) and puts each flow in order ([`reorder_buffer`]).
//!
//! The engine knows packets by length and flow only; what goes over the wire is
//! in [`wire`]. What keeps strangers out is the
//! driver's, with [`anti_replay`].

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

pub use api::{Input, Mode, Output, PathStats, Setup};
use fq_codel::{Queue, Queued};
use recv_path::RecvPath;
use reorder_buffer::{ActivePaths, ReorderBuffer};
pub use send_path::Liveness;
use send_path::{PathMtu, Retransmittable, SendPath};
use wire::control_message::MAX_PATHS;
use wire::gre::NUMBERED_BYTES;
use wire::gre_key::GreKey;

/// How long after it first left a packet is worth being sent again: TCP does so itself by then.
const RETRANSMIT_WITHIN: Duration = Duration::from_millis(250);
/// A report and what is sent again take a round trip of the nearest path, beyond
/// what the packet itself took. If that is longer the other end does not wait for it.
const MAX_RETRANSMIT_DELAY: Duration = Duration::from_millis(120);
/// Packets that wait to be sent again at most.
const MAX_RETRANSMIT_QUEUE: usize = 8192;
/// How often a packet is sent again at most. That often it goes in [`WORTH`] if it is
/// lost each time, so only who says so of what came comes to the end of it.
const MAX_RETRANSMISSIONS: u8 = 8;
/// Beyond so many bytes under way, over all paths, what leaves is not kept to be sent
/// again: 250 ms at 1 Gbit/s.
const MAX_KEPT_BYTES: u64 = 32 << 20;
/// The other end does not start more often: what says so meanwhile is of the start before, or a lie.
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(250);
/// The tunnel has nothing to carry when nothing came for so long.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// The engine of one tunnel between two ends.
#[derive(Debug)]
pub struct Tunnel<P> {
    mode: Mode,
    is_initiator: bool,
    ranks: Vec<u8>,
    epoch: u32,
    overhead_bytes: u32,
    peer_epoch: Option<u32>,
    /// When it began anew.
    peer_restarted_at: Option<Instant>,
    peer_retransmits: bool,
    /// Longest datagram on the wire; none: the paths' MTU is not probed.
    max_datagram_bytes: Option<u32>,
    paths: Vec<Option<Path<P>>>,
    /// Where the numbers of paths go on that are not there.
    next_numbers: [u64; MAX_PATHS],
    queue: Queue<P>,
    /// What is taken from the queue and waits for room on a path.
    next: Option<Queued<P>>,
    retransmits: VecDeque<Retransmittable<P>>,
    next_sequences: Vec<u32>,
    flow_paths: Vec<Option<PathId>>,
    /// Where elastic flows begin, if not on the nearest path.
    primary: Option<PathId>,
    reorder: ReorderBuffer<P>,
    outputs: VecDeque<Output<P>>,
    wanted_states: Vec<PathState>,
    last_busy: Instant,
    report_turn: u8,
    last_second_report: Instant,
    /// Until when time has passed on all paths; none: something came since.
    advanced: Option<Instant>,
    /// When to try again what found no room.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Path<P> {
    out: SendPath<P>,
    receiver: RecvPath,
    reported: Option<Liveness>,
}

impl<P: Clone> Tunnel<P> {
    /// A tunnel that knows of no path yet.
    pub fn new(setup: Setup) -> Tunnel<P> {
        Tunnel {
            mode: setup.mode,
            is_initiator: setup.is_initiator,
            ranks: (0..MAX_PATHS).map(|place| setup.ranks.get(place).copied().unwrap_or(place as u8)).collect(),
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

    /// How the paths are used together now.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What is known of a path; `None` if it is not there.
    pub fn path(&self, path: PathId) -> Option<PathStats> {
        let out = &self.at(path)?.out;
        Some(PathStats {
            wanted_state: out.wanted_state,
            liveness: out.liveness,
            reason: out.reason.clone(),
            rate_bit_s: out.rate_bytes_s().map(|rate| rate * 8.0),
            rtt: out.rtt.min(),
            loss: out.loss(),
            sent_bytes: out.sent_bytes,
            delivered: out.delivered,
            lost: out.lost,
        })
    }

    /// What the tunnel saw of a path, as an assessor takes it; `token` stands
    /// for the tunnel among connections. Nothing counts as unacknowledged: that
    /// a path delivers nothing the tunnel sees and acts upon itself.
    pub fn sample(&self, path: PathId, token: u32) -> Option<Sample> {
        let out = &self.at(path)?.out;
        out.rtt.min()?;
        let transport = Transport {
            token,
            peer: Transport::NO_PEER,
            accepted: false,
            backup: false,
            rtt: out.rtt.smoothed(),
            rttvar: out.rtt.variation(),
            unacked: 0,
            delivered: out.delivered as u32,
            bytes_acked: out.acknowledged_bytes,
            notsent_bytes: 0,
            bytes_received: 0,
        };
        Some(Sample { path, kind: SampleKind::Transport(transport) })
    }

    /// Packets that were dropped because they waited too long.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Packets that came out after later ones of their flow.
    pub fn late(&self) -> u64 {
        self.reorder.late()
    }

    /// The next packet that came out of the tunnel. Like
    /// [`poll`](Engine::poll), for drivers that deliver and send in two threads.
    pub fn poll_delivery(&mut self) -> Option<P> {
        self.reorder.poll()
    }

    /// The next thing to send or tell, the other half of [`poll`](Engine::poll).
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Output<P>> {
        if self.advanced.is_none_or(|until| now > until) {
            self.advanced = Some(now);
            self.advance(now);
            // What became of it may be due at once as well, such as a path that was
            // asked so long ago that it is lost.
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

    /// When time has something to do.
    fn due(&self) -> Option<Instant> {
        let paths = self.paths.iter().flatten().filter_map(|path| path.out.next_wakeup());
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
        paths.filter_map(|(place, path)| Some((PathId(place as u8), path.as_mut()?)))
    }

    /// A path is there from now on, if it was not.
    fn add_path(&mut self, now: Instant, path: PathId) {
        if let Some(slot @ None) = self.paths.get_mut(usize::from(path.0)) {
            let wanted_state = self.wanted_states[usize::from(path.0)];
            let mut out = SendPath::new(now, wanted_state, self.next_numbers[usize::from(path.0)]);
            out.mtu = self.max_datagram_bytes.map(PathMtu::new);
            *slot = Some(Path { out, receiver: RecvPath::default(), reported: None });
        }
    }

    fn remove_path(&mut self, now: Instant, path: PathId) {
        let Some(gone) = self.paths.get_mut(usize::from(path.0)).and_then(Option::take) else { return };
        let mut out = gone.out;
        self.next_numbers[usize::from(path.0)] = out.next_number();
        self.retransmit(now, out.take_in_flight());
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
            let used = |path: &Path<P>| path.out.wanted_state == PathState::Active && path.out.liveness <= worst;
            let bit = |(place, path): (usize, &Option<Path<P>>)| u16::from(path.as_ref().is_some_and(used)) << place;
            self.paths.iter().enumerate().map(bit).sum::<u16>()
        };
        // Our own question that is unanswered says nothing of what the other end sends.
        let paths =
            Some(up_to(Liveness::Unknown)).filter(|paths| *paths != 0).unwrap_or_else(|| up_to(Liveness::Probing));
        ActivePaths { paths, retransmits: self.peer_retransmits }
    }

    /// Whether what leaves now is sent again if it is lost: where each packet goes twice, it is not.
    fn retransmits(&self) -> bool {
        self.mode != Mode::Redundant && self.min_rtt() <= MAX_RETRANSMIT_DELAY
    }

    /// Whether what leaves now is kept until it is reported.
    fn keeps_copies(&self) -> bool {
        let in_flight = self.paths.iter().flatten().map(|path| path.out.bytes_in_flight()).sum::<u64>();
        self.retransmits() && in_flight < MAX_KEPT_BYTES
    }

    fn retransmit(&mut self, now: Instant, copies: VecDeque<Retransmittable<P>>) {
        for copy in copies {
            if copy.until > now && copy.tries > 0 && self.retransmits.len() < MAX_RETRANSMIT_QUEUE {
                self.retransmits.push_back(Retransmittable { tries: copy.tries - 1, ..copy });
            }
        }
    }

    /// Lets time pass on all paths, and tells what is to be told.
    fn advance(&mut self, now: Instant) {
        let active_paths = self.active_paths();
        self.reorder.advance(now, active_paths);
        let usable = self.paths_mut().filter(|(_, path)| path.out.liveness == Liveness::Up).count();
        let idle = now.since(self.last_busy) > IDLE_AFTER;
        let delay_difference = self.possible_delay_difference();
        let trains = self.wants_trains();
        let (mut back, mut probes, mut train_paths, mut mtu_probes) =
            (VecDeque::new(), Vec::new(), Vec::new(), Vec::new());
        let mut outputs = core::mem::take(&mut self.outputs);
        for (id, path) in self.paths_mut() {
            path.out.tunnel_idle = idle;
            path.out.delay_difference = delay_difference;
            let has_other_path = usable > usize::from(path.out.liveness == Liveness::Up);
            back.extend(path.out.advance(now, has_other_path));
            if path.out.wants_probe(now) {
                probes.push(id);
            }
            mtu_probes.extend(path.out.mtu_probe(now).map(|size| (id, size)));
            if trains && path.out.wants_train() {
                train_paths.push(id);
            }
            let liveness = path.out.liveness;
            if path.reported.replace(liveness) != Some(liveness) {
                outputs.push_back(Output::Changed { path: id, liveness, reason: path.out.reason.clone() });
            }
        }
        self.outputs = outputs;
        self.retransmit(now, back);
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
                // Whoever follows is to be told at once.
                self.paths_mut().for_each(|(_, path)| path.receiver.request_immediate_feedback(now));
            }
            Input::SetWantedStates(states) => {
                for (place, state) in states.into_iter().enumerate().take(MAX_PATHS) {
                    self.wanted_states[place] = state;
                    if let Some(path) = self.at_mut(PathId(place as u8)) {
                        path.out.wanted_state = state;
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
        let departure = self.poll_transmit(now);
        departure.or_else(|| self.poll_delivery().map(Output::Deliver))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.due().into_iter().chain(self.retry_at).min()
    }
}

#[cfg(test)]
mod tests;
