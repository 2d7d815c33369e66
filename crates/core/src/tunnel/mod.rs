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

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

pub mod anti_replay;
pub mod wire;

mod aim;
mod api;
mod copy_budget;
mod explain;
mod feedback;
mod fq_codel;
mod keepalive;
mod outbox;
mod path_order;
mod paths;
mod peer;
mod primary_path;
mod recv_path;
mod reorder_buffer;
mod reporting;
mod rescue;
mod retransmit_queue;
mod scheduler;
mod send_path;
mod sparse_flow;
mod status;
mod timers;

use aim::Aim;
pub use api::{Copies, Encryption, Input, Mode, Output, Setup};
use copy_budget::CopyBudget;
use feedback::ReportPaths;
use fq_codel::{PathDelays, Queue, Queued};
pub use keepalive::{Keepalive, NAT_TIMEOUT};
use outbox::{Options, Outbox};
use path_order::PathOrder;
pub use paths::PathStats;
use paths::{PathSet, Paths};
use peer::{EpochChange, Peer};
use recv_path::{LATE_REPORT_BYTES, Urgency};
use reorder_buffer::ReorderBuffer;
use retransmit_queue::{RetransmitQueue, Retransmittable};
use scheduler::{Head, Scheduler};
pub use send_path::Liveness;
use send_path::SendPath;
use wire::control_message::{Body, MAX_PATHS, Message};
use wire::gre_key::SEQUENCES;

/// Feedback and retransmission take one RTT of the lowest-delay path in addition to the packet's own delay.
/// If that RTT is longer than this, losses are not retransmitted and the peer does not wait.
const MAX_RETRANSMIT_DELAY: Duration = Duration::from_millis(200);
/// While more bytes than this are in flight over all paths, packets are not kept for retransmission: 250 ms
/// at 1 Gbit/s.
const MAX_KEPT_BYTES: u64 = 32 << 20;

/// The engine of one endpoint of a tunnel.
#[derive(Debug)]
pub struct Tunnel<P> {
    /// The mode until another is wanted; a follower uses that of the initiator.
    wanted_mode: Mode,
    mode: Mode,
    is_initiator: bool,
    epoch: u32,
    peer: Peer,
    paths: Paths<P>,
    queue: Queue<P>,
    /// As of the last [`advance`](Self::advance): what changes them is followed by one.
    delays: PathDelays,
    retransmits: RetransmitQueue<P>,
    copy_budget: CopyBudget,
    late: Duration,
    /// Next flow sequence number of each flow.
    next_sequences: Vec<u32>,
    scheduler: Scheduler,
    reorder: ReorderBuffer<P>,
    report_paths: ReportPaths,
    outbox: Outbox<P>,
    last_busy: Instant,
    /// When it last sent a packet, which could have carried feedback.
    last_sent: Option<Instant>,
    /// When to [`advance`](Self::advance): not after it is [`due`](Self::due).
    advance_at: Option<Instant>,
}

impl<P: Clone> Tunnel<P> {
    /// A tunnel without paths.
    pub fn new(setup: Setup) -> Tunnel<P> {
        let mut paths = Paths::new(PathOrder::new(&setup.ranks));
        if !setup.is_initiator {
            paths.set_keepalives(&[Keepalive::FOLLOWER; MAX_PATHS]);
        }
        Tunnel {
            wanted_mode: setup.mode,
            mode: setup.mode,
            is_initiator: setup.is_initiator,
            epoch: setup.epoch,
            peer: Peer::default(),
            paths,
            queue: Queue::new(),
            delays: PathDelays::default(),
            retransmits: RetransmitQueue::new(),
            copy_budget: CopyBudget::new(setup.copies.extra_bytes),
            late: setup.copies.late,
            next_sequences: alloc::vec![0; 256],
            scheduler: Scheduler::new(),
            reorder: ReorderBuffer::new(),
            report_paths: ReportPaths::default(),
            outbox: Outbox::new(setup.overhead),
            last_busy: Instant::ZERO,
            last_sent: None,
            advance_at: None,
        }
    }

    /// Drops one queued packet: the oldest of the flow with the most bytes.
    pub fn shed(&mut self) {
        self.queue.shed();
    }

    /// Drops packets queued for longer than 5 s, such as those for an absent peer, and frees their memory.
    /// To be called every few seconds.
    pub fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
        self.retransmits.expire(now);
        self.paths.iter_mut().for_each(|(_, path)| path.sender.in_flight.release_memory());
    }

    /// Enables path MTU discovery by probes of up to `max_datagram_bytes` (outer IP header included). To be
    /// called before a path is added.
    pub fn probe_mtu_up_to(&mut self, max_datagram_bytes: u32) {
        self.paths.max_datagram_bytes = Some(max_datagram_bytes);
    }

    /// Sets the keepalives of the first paths; the others have [`Keepalive::DEFAULT`]. To be called before a path
    /// is added. A follower answers those of the initiator.
    pub fn set_keepalives(&mut self, keepalives: &[Keepalive]) {
        if self.is_initiator {
            self.paths.set_keepalives(keepalives);
        }
    }

    /// The next packet to deliver. Like [`poll`](Engine::poll), for drivers that deliver and send in two
    /// threads.
    pub fn poll_delivery(&mut self) -> Option<P> {
        self.reorder.ready.pop_front()
    }

    /// The next packet or message to send, or event: the other half of [`poll`](Engine::poll).
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Output<P>> {
        self.advance_if_due(now);
        if self.outbox.outputs.is_empty() {
            self.transmit(now);
        }
        self.outbox.outputs.pop_front()
    }

    /// Sends the next packet, with its copies, if a path has room.
    fn transmit(&mut self, now: Instant) {
        if self.scheduler.is_full && self.scheduler.retry_at.is_none_or(|at| now < at) {
            return;
        }
        if !self.retransmits.packets.is_empty()
            && self.paths.any_delivers()
            && let Some(&Retransmittable { bytes, flow, bulk, avoid, .. }) = self.retransmits.front(now)
        {
            let aim = if bulk { Aim::Arrival } else { Aim::of(false, bytes) };
            if let Some(path) = self.choose(now, flow, bytes, now, aim, avoid).iter().next()
                && let Some(copy) = self.retransmits.packets.pop_front()
            {
                self.retransmit(now, path, copy);
            }
            return;
        }
        let Some(&Queued { bytes, flow, arrived, bulk, .. }) = self.queue.head(now, self.delays) else {
            return self.scheduler.note_idle(now, &mut self.paths);
        };
        let chosen = self.choose(now, flow, bytes, arrived, Aim::of(bulk, bytes), None);
        let Some(queued) = self.queue.take_head_if(!chosen.is_empty()) else { return };
        let next = &mut self.next_sequences[usize::from(flow)];
        let copy = Retransmittable::new(now, queued, *next);
        *next = (*next + 1) % SEQUENCES;
        let is_kept = (self.mode != Mode::Redundant || self.paths.number_up(chosen) < 2) && self.keeps_copies();
        for (number, path) in chosen.iter().enumerate() {
            self.send_on(now, path, &copy, Options { is_kept, is_copy: number > 0, ..Options::default() });
        }
        self.send_copy_at_risk(now, &copy);
        self.send_recovery_copies(now, &copy);
    }

    /// Sends a packet again; on a lossy path twice if it was lost and its flow is bulk, which is held up until one arrives.
    fn retransmit(&mut self, now: Instant, path: PathId, mut copy: Retransmittable<P>) {
        let options = Options { is_copy: true, ..Options::default() };
        let is_lossy = self.paths.get(path).is_some_and(|path| path.sender.counts.is_lossy());
        if copy.bulk && copy.is_lost && is_lossy && copy.take_try() {
            self.send_on(now, path, &copy, options);
        }
        self.send_on(now, path, &copy, Options { is_kept: self.keeps_copies(), ..options });
    }

    fn choose(
        &mut self,
        now: Instant,
        flow: u8,
        bytes: u32,
        arrived: Instant,
        aim: Aim,
        avoid: Option<PathId>,
    ) -> PathSet {
        let wire_bytes = self.outbox.wire_bytes(bytes);
        let backlog_bytes = self.queue.backlog_bytes(flow) + u64::from(bytes);
        let head = Head { flow, aim, avoid, arrived, wire_bytes, backlog_bytes };
        self.scheduler.choose(now, self.mode, &mut self.paths, head)
    }

    fn send_on(&mut self, now: Instant, path: PathId, copy: &Retransmittable<P>, options: Options) {
        let feedback = self.ride(now, path, copy.bytes);
        let Some(at) = self.paths.get_mut(path) else { return };
        let timed_from = at.sender.in_flight.timed_from();
        let leniency = if self.peer.reads_feedback { at.leniency(now, copy.bytes) } else { Duration::ZERO };
        self.outbox.packet(now, path, at, copy, Options { leniency, feedback, ..options });
        at.sender.last_carried = now;
        at.sender.note_used(now);
        self.last_sent = Some(now);
        if copy.bytes > LATE_REPORT_BYTES {
            at.sender.last_prompt = Some(now);
        }
        if at.sender.in_flight.timed_from() != timed_from {
            self.watch(path);
        }
    }

    /// Sends copies on recovering paths, which must show that they deliver; mode redundant has done so.
    fn send_recovery_copies(&mut self, now: Instant, copy: &Retransmittable<P>) {
        let is_recovering = |sender: &SendPath<P>| sender.liveness() == Liveness::Recovering && sender.is_open();
        let is_redundant = self.mode == Mode::Redundant;
        let mut due = None;
        for (id, path) in self.paths.iter_mut().filter(|(_, path)| is_recovering(&path.sender)) {
            let is_limited = self.mode == Mode::Adaptive;
            let has_room = path.sender.has_cwnd_room() && !is_redundant;
            if has_room && (!is_limited || self.copy_budget.take(now, copy.bytes)) {
                self.outbox.packet(now, id, path, copy, Options { is_copy: true, ..Options::default() });
                due = path.next_wakeup().into_iter().chain(due).min();
            }
        }
        self.advance_by(due);
    }

    /// Whether losses of packets sent now are repaired; in mode redundant they are not.
    fn retransmits(&self) -> bool {
        self.mode != Mode::Redundant && self.paths.min_rtt() <= MAX_RETRANSMIT_DELAY
    }

    /// Whether packets sent now are kept until they are acknowledged.
    fn keeps_copies(&self) -> bool {
        self.paths.bytes_in_flight() < MAX_KEPT_BYTES
    }

    fn on_message(&mut self, now: Instant, path: PathId, number: Option<u32>, message: Message) {
        self.paths.add(now, path);
        match self.peer.on_epoch(now, message.epoch) {
            EpochChange::None => {}
            EpochChange::TooSoon => return,
            EpochChange::Restarted => self.on_peer_restart(now),
        }
        (self.peer.retransmits, self.peer.reads_feedback) = (message.retransmits, message.reads_feedback);
        let follows = message.is_initiator && !self.is_initiator;
        if follows {
            self.mode = message.mode;
        }
        self.note_received(now, path, number, message.body.bytes() as u32, Urgency::default());
        match message.body {
            Body::Probe | Body::MtuProbe(_) if number.is_some() => {
                self.paths.request_feedback(now, path);
                if let Some(path) = self.paths.get_mut(path).filter(|_| !self.is_initiator) {
                    // It has not closed the path, as it did before a restart or before the path vanished: its report that says
                    // so follows once something has arrived over the path.
                    path.sender.wanted_state = path.sender.wanted_state.max(PathState::Backup);
                    path.sender.answer_probe(now);
                }
            }
            Body::Report { peer_epoch, paths } => {
                paths.iter().filter(|_| follows).for_each(|report| self.paths.follow(report));
                if peer_epoch == self.epoch {
                    paths.iter().for_each(|report| self.on_report(now, report));
                }
            }
            Body::Probe | Body::MtuProbe(_) | Body::PacketTrain => {}
        }
    }

    /// The peer lost its state. Sequence numbers of flows and paths continue, because the peer may have
    /// received some already.
    fn on_peer_restart(&mut self, now: Instant) {
        self.reorder = ReorderBuffer::after_sender_restart(now);
        self.paths.on_peer_restart(now);
        self.retransmits.packets.clear();
        self.report_paths.note_change(now);
    }
}

impl<P: Clone> Engine for Tunnel<P> {
    type Input = Input<P>;
    type Output = Output<P>;

    fn handle(&mut self, now: Instant, input: Input<P>) {
        match input {
            Input::Packet { flow, bytes, bulk, packet } => {
                self.note_busy(now);
                self.queue.push(Queued { flow, bytes, bulk, arrived: now, packet });
                return;
            }
            Input::Arrived { key, number, bytes, feedback, is_pure_ack, packet } => {
                let tells_more = feedback.is_some() || self.paths.get(key.path).is_none();
                self.note_packet(now, key.path, number, bytes, feedback);
                let active_paths = self.paths.active_paths(self.mode, self.peer.retransmits);
                self.reorder.take(now, key, packet, is_pure_ack, active_paths);
                if !tells_more {
                    self.watch_receiver(key.path);
                    return self.advance_by(self.reorder.next_wakeup());
                }
            }
            Input::Keyless(packet) => return self.reorder.ready.push_back(packet),
            Input::Message { path, number, message } => self.on_message(now, path, number, message),
            Input::Present(path, true) => self.paths.add(now, path),
            Input::Present(path, false) => self.retransmits.push_moved(now, self.paths.remove(path)),
            Input::SetMode(mode) => {
                (self.wanted_mode, self.mode) = (mode, self.paths.order.mode(mode));
                self.report_paths.note_change(now);
                self.paths.request_feedback_on_all(now);
            }
            Input::SetWantedStates(states) => {
                self.report_paths.note_change(now);
                self.paths.set_wanted(now, states);
            }
            Input::SetOrder(order) => {
                self.report_paths.note_change(now);
                self.paths.set_order(now, &order);
                self.mode = self.paths.order.mode(self.wanted_mode);
            }
        }
        self.advance_at = Some(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Output<P>> {
        if let Some(packet) = self.poll_delivery() {
            return Some(Output::Deliver(packet));
        }
        let output = self.poll_transmit(now);
        output.or_else(|| self.poll_delivery().map(Output::Deliver))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.advance_at.into_iter().chain(self.scheduler.retry_at).min()
    }
}

#[cfg(test)]
mod tests;
