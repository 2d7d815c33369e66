//! One end of one connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::{self, AddressId, Event, Token};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};

use super::clock::Ticks;
use super::congestion::Algorithm;
use super::frags::Frags;
use super::receiver::Receiver;
use super::scheduler::Scheduler;
use super::segment::{HEADER_BYTES, MAPPING_BYTES, Segment};
use super::sender::Sender;
use super::subflow::{Phase, Repeat, Subflow, SubflowInfo};
use super::window::Inbox;
use crate::addresses;

mod arrival;
mod command;
mod departure;
mod push;

/// The server's address and port.
pub const SERVER_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(addresses::SERVER), 5001);
/// Port of the vehicle's first subflow.
const FIRST_PORT: u16 = 40_000;
/// Subflows that a connection has at most (Linux: 8 beside the first), those
/// that drain included.
const MAX_SUBFLOWS: usize = 32;
/// Memory that a connection may write beside what its subflows hold
/// (`net.ipv4.tcp_wmem[0]`).
const BUFFER_BASE_BYTES: u64 = 4096;

/// The vehicle's address on a path.
pub(super) fn vehicle_address(path: PathId) -> IpAddr {
    addresses::vehicle_address(usize::from(path.0)).into()
}

/// Plain or multipath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over one path.
    Tcp,
    /// Multipath TCP (RFC 8684).
    Mptcp,
}

/// How a connection works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Plain or multipath.
    pub protocol: Protocol,
    /// Congestion control of every subflow.
    pub algorithm: Algorithm,
    /// Packet scheduler.
    pub scheduler: Scheduler,
    /// SO_SNDBUF, in bytes; 0: the kernel's choice.
    pub send_buffer_bytes: u32,
    /// `net.mptcp.stale_loss_cnt`; 0: never.
    pub stale_loss_count: u32,
    /// Place of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// Bytes of IP in a packet at most (576 to 9000).
    pub mtu_bytes: u16,
    /// The kernel's ticks.
    pub ticks: Ticks,
}

/// The end.
#[derive(Debug)]
pub struct Endpoint {
    settings: Settings,
    client: bool,
    token: Token,
    /// In the kernel's order: the first one first, then by the time of joining.
    subflows: Vec<Subflow>,
    frags: Frags,
    /// Data acknowledged, and handed to subflows at least once.
    una: u64,
    sent: u64,
    /// The peer takes data up to here.
    edge: u64,
    inbox: Inbox,
    /// Connection-level timer and its length.
    retransmit_at: Option<Instant>,
    interval: Duration,
    /// The first subflow has been open.
    connected: bool,
    /// The peer has acknowledged data: it knows that this is MPTCP.
    established: bool,
    opened: u16,
    last_chosen: usize,
    segments: VecDeque<Segment>,
    events: VecDeque<Event>,
}

impl Endpoint {
    /// The vehicle's end, which opens the connection.
    pub fn client(settings: Settings) -> Endpoint {
        Endpoint::new(settings, true)
    }

    /// The server's end.
    pub fn server(settings: Settings) -> Endpoint {
        Endpoint::new(settings, false)
    }

    fn new(settings: Settings, client: bool) -> Endpoint {
        Endpoint {
            settings,
            client,
            token: Token(if client { 1 } else { 2 }),
            subflows: Vec::new(),
            frags: Frags::default(),
            una: 0,
            sent: 0,
            edge: 0,
            inbox: Inbox::new(),
            retransmit_at: None,
            interval: push::LEAST_INTERVAL,
            connected: false,
            established: false,
            opened: 0,
            last_chosen: 0,
            segments: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Opens the connection over a path.
    pub fn connect(&mut self, now: Instant, path: PathId) {
        self.open(now, path, None, false);
    }

    /// True once data can be written.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Hands over data; returns how many bytes were taken.
    pub fn write(&mut self, now: Instant, len: u64) -> u64 {
        if self.settings.protocol == Protocol::Tcp && self.frags.next().is_none() {
            self.subflows.iter_mut().for_each(|subflow| subflow.tx.note_write());
        }
        let mut taken = 0;
        while taken < len && self.held() < self.buffer() {
            let part = (len - taken).min(32_768);
            self.frags.write(part);
            taken += part;
        }
        if taken > 0 {
            self.push(now);
        }
        taken
    }

    /// True if a writer that waited would be woken: a third of the buffer is
    /// free (Linux `sk_stream_is_writeable`).
    pub fn is_writeable(&self) -> bool {
        self.held() * 3 <= self.buffer() * 2
    }

    /// Bytes that the application has had, in order.
    pub fn delivered(&self) -> u64 {
        self.inbox.delivered()
    }

    /// Bytes written and not acknowledged by the peer's end of the connection.
    pub fn outstanding(&self) -> u64 {
        self.frags.written() - self.una
    }

    /// How each subflow fares.
    pub fn subflows(&self) -> impl Iterator<Item = SubflowInfo> {
        self.subflows.iter().filter(|subflow| subflow.phase == Phase::Open).map(Subflow::info)
    }

    /// The next segment to be sent, if any.
    pub fn poll_segment(&mut self) -> Option<Segment> {
        self.segments.pop_front()
    }

    /// The next event for a path manager, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`on_time`](Self::on_time) has something to do.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.subflows.iter().filter_map(Subflow::wakeup).chain(self.retransmit_at).min()
    }

    /// Lets timers expire.
    pub fn on_time(&mut self, now: Instant) {
        for place in 0..self.subflows.len() {
            self.subflows[place].tx.on_time(now);
        }
        self.repeat_handshakes(now);
        if self.retransmit_at.is_some_and(|at| at <= now) {
            self.retransmit_at = None;
            self.retransmit(now);
        }
        self.transmit(now);
    }

    fn held(&self) -> u64 {
        match self.settings.protocol {
            Protocol::Mptcp => self.frags.charged(),
            Protocol::Tcp => {
                let of_subflows: u64 = self.subflows.iter().map(|subflow| subflow.tx.memory()).sum();
                of_subflows + self.frags.written() - self.sent
            }
        }
    }

    fn buffer(&self) -> u64 {
        if self.settings.send_buffer_bytes > 0 {
            return self.fixed_buffer();
        }
        let of_subflows: u64 = self.subflows.iter().map(|subflow| subflow.tx.buffer()).sum();
        BUFFER_BASE_BYTES + of_subflows
    }

    /// The kernel holds twice what SO_SNDBUF asks for.
    fn fixed_buffer(&self) -> u64 {
        2 * u64::from(self.settings.send_buffer_bytes)
    }

    fn place_of(&self, port: u16) -> Option<usize> {
        self.subflows.iter().position(|subflow| subflow.port == port)
    }

    /// A new subflow at this end.
    fn add(&mut self, now: Instant, path: PathId, port: u16, phase: Phase, join: bool, local_id: AddressId) -> usize {
        let overhead = match self.settings.protocol {
            Protocol::Mptcp => HEADER_BYTES + MAPPING_BYTES,
            Protocol::Tcp => HEADER_BYTES,
        };
        let mss = self.settings.mtu_bytes.saturating_sub(overhead);
        let mut repeat = Repeat::default();
        repeat.begin(now);
        self.subflows.push(Subflow {
            path,
            port,
            number: self.opened,
            join,
            local_id,
            phase,
            usable: false,
            backup: [false; 2],
            tx: Sender::new(self.settings.algorithm, self.settings.ticks, mss, self.fixed_buffer()),
            rx: Receiver::new(self.settings.ticks),
            heard: now,
            echo: Instant::ZERO,
            stale: false,
            stale_count: 0,
            stale_heard: now,
            pace: None,
            tell: None,
            repeat,
        });
        self.opened += 1;
        self.subflows.len() - 1
    }

    /// A subflow as path managers name it.
    fn named(&self, subflow: &Subflow) -> mptcp::Subflow {
        let vehicle = SocketAddr::new(vehicle_address(subflow.path), subflow.port);
        let (local, remote) = if self.client { (vehicle, SERVER_ADDRESS) } else { (SERVER_ADDRESS, vehicle) };
        let (local_id, remote_id) =
            if self.client { (subflow.local_id, AddressId(0)) } else { (AddressId(0), subflow.local_id) };
        // What the kernel tells is the peer's wish.
        mptcp::Subflow { local, remote, local_id, remote_id, backup: subflow.backup[1] }
    }
}
