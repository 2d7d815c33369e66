//! One endpoint of one connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::{self, AddressId, Event, Token};
use crosslane_core::path::{PathId, Transport};
use crosslane_core::time::Instant;
use crosslane_core::wanted::Order;

use super::clock::Ticks;
use super::congestion::Congestion;
use super::frags::{FRAG_BYTES, Frags};
use super::receiver::Receiver;
use super::rtt::RTO_MIN;
use super::scheduler::Scheduler;
use super::segment::{HEADER_BYTES, MAPPING_BYTES, Segment};
use super::sender::Sender;
use super::subflow::{Phase, RetryTimer, Subflow, SubflowInfo};
use super::window::ReceiveQueue;
use crate::addresses;
use data_level::{DataWindow, RetransmitTimer};

mod arrival;
mod command;
mod data_level;
mod departure;
mod push;

/// The server's address and port.
pub const SERVER_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(addresses::SERVER), 5001);
/// Port of the vehicle's first subflow.
const FIRST_PORT: u16 = 40_000;
/// Maximum number of subflows of a connection (Linux: 8 and the first), including
/// those that drain.
const MAX_SUBFLOWS: usize = 32;
/// Send buffer of a connection in addition to that of its subflows
/// (`net.ipv4.tcp_wmem[0]`), in bytes.
const BUFFER_BASE_BYTES: u64 = 4096;

/// The vehicle's address on a path.
pub(super) fn vehicle_address(path: PathId) -> IpAddr {
    addresses::vehicle_address(usize::from(path.0)).into()
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over one path.
    Tcp,
    /// Multipath TCP (RFC 8684).
    Mptcp,
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Congestion control of every subflow.
    pub algorithm: Congestion,
    /// Packet scheduler.
    pub scheduler: Scheduler,
    /// SO_SNDBUF, in bytes; 0: autotuning.
    pub send_buffer_bytes: u32,
    /// `net.mptcp.stale_loss_cnt`; 0: never.
    pub stale_loss_count: u32,
    /// Rank of each path in the user's preference, 0 first, until the [order is
    /// set](Endpoint::set_order).
    pub ranks: Vec<u8>,
    /// IP MTU, in bytes (576 to 9000).
    pub mtu_bytes: u16,
    /// The kernel's ticks.
    pub ticks: Ticks,
}

/// The endpoint.
#[derive(Debug)]
pub struct Endpoint {
    settings: Settings,
    /// Rank of each path in the present order, 0 first.
    ranks: Vec<u8>,
    /// There is no order.
    is_free: bool,
    client: bool,
    token: Token,
    /// In the kernel's order: the first subflow, then by time of joining.
    subflows: Vec<Subflow>,
    frags: Frags,
    data: DataWindow,
    receive_queue: ReceiveQueue,
    timer: RetransmitTimer,
    /// The first subflow has been established.
    connected: bool,
    /// The application waits for space in the send buffer (Linux SOCK_NOSPACE).
    is_awaited: bool,
    /// The peer has acknowledged data (fully established).
    established: bool,
    opened: u16,
    last_chosen: usize,
    segments: VecDeque<Segment>,
    events: VecDeque<Event>,
}

impl Endpoint {
    /// The vehicle's endpoint, which opens the connection.
    pub fn client(settings: Settings) -> Endpoint {
        Endpoint::new(settings, true)
    }

    /// The server's endpoint.
    pub fn server(settings: Settings) -> Endpoint {
        Endpoint::new(settings, false)
    }

    /// The same with this number of the first subflow: with another one for each, connections of one
    /// vehicle differ in port, and in the records.
    pub fn with_first_subflow(self, number: u16) -> Endpoint {
        Endpoint { opened: number, ..self }
    }

    fn new(settings: Settings, client: bool) -> Endpoint {
        Endpoint {
            ranks: settings.ranks.clone(),
            is_free: false,
            settings,
            client,
            token: Token(if client { 1 } else { 2 }),
            subflows: Vec::new(),
            frags: Frags::default(),
            data: DataWindow::default(),
            receive_queue: ReceiveQueue::new(),
            timer: RetransmitTimer { at: None, interval: RTO_MIN },
            connected: false,
            is_awaited: false,
            established: false,
            opened: 0,
            last_chosen: 0,
            segments: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Opens the connection over a path, or opens it again if it is not established.
    pub fn connect(&mut self, now: Instant, path: PathId) {
        self.subflows.clear();
        self.segments.clear();
        self.open(now, path, None, false);
    }

    /// Sets the order of the paths that [`Scheduler::Priority`] follows from the next data on. Without one it selects
    /// the subflow as [`Scheduler::MinRtt`].
    pub fn set_order(&mut self, order: &Order) {
        self.is_free = *order == Order::Free;
        let order = order.paths();
        let ranks = &self.settings.ranks;
        let mut paths: Vec<usize> = (0..ranks.len()).collect();
        let named = |path| order.iter().position(|named| usize::from(named.0) == path).unwrap_or(usize::MAX);
        paths.sort_by_key(|&path| (named(path), ranks[path]));
        for (rank, path) in (0..).zip(paths) {
            self.ranks[path] = rank;
        }
    }

    /// True if data can be written.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Writes data; returns the number of bytes accepted. An application whose data was not accepted whole waits, and
    /// writes again when a third of the buffer is free.
    pub fn write(&mut self, now: Instant, len: u64) -> u64 {
        if self.is_awaited && !self.is_writeable() {
            return 0;
        }
        if self.settings.protocol == Protocol::Tcp && self.frags.next().is_none() {
            self.subflows.iter_mut().for_each(|subflow| subflow.tx.note_write());
        }
        let mut taken = 0;
        while taken < len && self.held() < self.buffer() {
            let part = (len - taken).min(FRAG_BYTES);
            self.frags.write(part);
            taken += part;
        }
        if taken > 0 {
            self.push(now);
        }
        self.is_awaited = taken < len;
        taken
    }

    /// True if a third of the buffer is free (Linux `sk_stream_is_writeable`).
    fn is_writeable(&self) -> bool {
        self.held() * 3 <= self.buffer() * 2
    }

    /// Bytes delivered to the application.
    pub fn delivered(&self) -> u64 {
        self.receive_queue.next
    }

    /// Bytes written and not acknowledged by the peer.
    pub fn outstanding(&self) -> u64 {
        self.frags.written - self.data.acknowledged
    }

    /// Statistics of each open subflow.
    pub fn subflows(&self) -> impl Iterator<Item = SubflowInfo> {
        self.subflows.iter().filter(|subflow| subflow.phase == Phase::Open).map(|subflow| self.info(subflow))
    }

    /// The next segment to send, if any.
    pub fn poll_segment(&mut self) -> Option<Segment> {
        self.segments.pop_front()
    }

    /// The next event for a path manager, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Time of the next call of [`on_time`](Self::on_time).
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.subflows.iter().filter_map(Subflow::wakeup).chain(self.timer.at).min()
    }

    /// Processes expired timers.
    pub fn on_time(&mut self, now: Instant) {
        self.reset_destroyed(now);
        self.subflows.iter_mut().for_each(|subflow| subflow.tx.on_time(now));
        self.retry_handshakes(now);
        if self.timer.take_expired(now) {
            self.retransmit(now);
        }
        self.transmit(now);
    }

    fn info(&self, subflow: &Subflow) -> SubflowInfo {
        let tx = &subflow.tx;
        let transport = Transport {
            token: if self.settings.protocol == Protocol::Mptcp { self.token.0 } else { 0 },
            peer: self.named(subflow).remote,
            accepted: !self.client,
            backup: subflow.is_backup(),
            rtt: subflow.smoothed_rtt(),
            rttvar: tx.rtt.deviation(),
            unacked: tx.flight.len(),
            sacked: tx.flight.sacked,
            delivered: tx.delivered as u32,
            bytes_acked: tx.una - 1,
            notsent_bytes: tx.queue.bytes as u32,
            bytes_received: subflow.rx.bytes_received,
            segments_received: subflow.rx.segments,
            out_of_order: subflow.rx.out_of_order,
            receive_rtt: subflow.rx.rtt,
            lost: tx.flight.lost,
            retransmitted: tx.total_retrans,
            cwnd: tx.control.window,
            min_rtt: tx.rtt.min(),
            delivery_bit_s: Some(tx.rate.last_bit_s as u64),
        };
        let Subflow { path, port, number, .. } = *subflow;
        SubflowInfo { path, port, number, in_flight: tx.in_flight(), bytes_sent: tx.next - 1, transport }
    }

    fn held(&self) -> u64 {
        match self.settings.protocol {
            Protocol::Mptcp => self.frags.charged,
            Protocol::Tcp => {
                let of_subflows: u64 = self.subflows.iter().map(|subflow| subflow.tx.memory()).sum();
                of_subflows + self.frags.written - self.data.sent
            }
        }
    }

    fn buffer(&self) -> u64 {
        if self.settings.send_buffer_bytes > 0 {
            return self.fixed_buffer();
        }
        let of_subflows: u64 = self.subflows.iter().map(|subflow| subflow.tx.buffer.bytes).sum();
        BUFFER_BASE_BYTES + of_subflows
    }

    /// The kernel doubles SO_SNDBUF.
    fn fixed_buffer(&self) -> u64 {
        2 * u64::from(self.settings.send_buffer_bytes)
    }

    fn place_of(&self, port: u16) -> Option<usize> {
        self.subflows.iter().position(|subflow| subflow.port == port)
    }

    /// Reports that a subflow closes, with this `errno`.
    fn report_closed(&mut self, place: usize, error: u8) {
        let subflow = self.named(&self.subflows[place]);
        self.events.push_back(Event::SubflowClosed { token: self.token, subflow, error });
    }

    /// Adds a subflow at this endpoint; returns its index.
    fn add(&mut self, now: Instant, path: PathId, port: u16, phase: Phase, join: bool, local_id: AddressId) -> usize {
        let overhead = match self.settings.protocol {
            Protocol::Mptcp => HEADER_BYTES + MAPPING_BYTES,
            Protocol::Tcp => HEADER_BYTES,
        };
        let mss = self.settings.mtu_bytes.saturating_sub(overhead);
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
            last_received: now,
            echo: Instant::ZERO,
            stale: false,
            stale_count: 0,
            stale_last_received: now,
            pace: None,
            pending_prio: None,
            retry: RetryTimer::begin(now),
            reset_at: None,
        });
        self.opened += 1;
        self.subflows.len() - 1
    }

    /// A subflow as path managers identify it.
    fn named(&self, subflow: &Subflow) -> mptcp::Subflow {
        let vehicle = SocketAddr::new(vehicle_address(subflow.path), subflow.port);
        let (vehicle, server) = ((vehicle, subflow.local_id), (SERVER_ADDRESS, AddressId(0)));
        let ((local, local_id), (remote, remote_id)) = if self.client { (vehicle, server) } else { (server, vehicle) };
        // The kernel reports the peer's backup flag.
        mptcp::Subflow { local, remote, local_id, remote_id, backup: subflow.backup[1] }
    }
}
