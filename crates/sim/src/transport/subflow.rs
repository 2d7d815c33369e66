//! One subflow, as one end keeps it.

use crosslane_core::mptcp::AddressId;
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};

use super::receiver::Receiver;
use super::sender::Sender;

/// First wait for an answer to a SYN (RFC 6298 §2.1).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);
/// Times that a SYN is sent again at this pace
/// (`net.ipv4.tcp_syn_linear_timeouts`), and then each time after twice the wait
/// (`net.ipv4.tcp_syn_retries`).
const SYN_LINEAR: u32 = 4;
const SYN_RETRIES: u32 = 6;

/// How far a subflow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A SYN is out.
    Opening,
    /// A SYN has been answered.
    Accepted,
    /// The handshake is over.
    Open,
    /// Closed here; what was queued still drains.
    Closing,
}

/// The subflow.
#[derive(Clone, Debug)]
pub(super) struct Subflow {
    pub(super) path: PathId,
    pub(super) port: u16,
    pub(super) number: u16,
    pub(super) join: bool,
    pub(super) local_id: AddressId,
    pub(super) phase: Phase,
    /// May carry data: a join only once the peer has answered its third
    /// segment (RFC 8684 §3.2, PRE_ESTABLISHED).
    pub(super) usable: bool,
    /// We want it as a backup, and the peer does.
    pub(super) backup: [bool; 2],
    pub(super) tx: Sender,
    pub(super) rx: Receiver,
    /// When something last came over it, and was sent then.
    pub(super) heard: Instant,
    pub(super) echo: Instant,
    pub(super) stale: bool,
    pub(super) stale_count: u32,
    pub(super) stale_heard: Instant,
    /// The scheduler's running mean of the pacing rate, in bytes a second.
    pub(super) pace: Option<f64>,
    /// A priority to be told to the peer.
    pub(super) tell: Option<bool>,
    /// When the handshake or its end is repeated, and how often it was.
    pub(super) repeat: Repeat,
}

/// Repeats a SYN, its answer or a FIN.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeat {
    pub(super) first: Instant,
    pub(super) at: Option<Instant>,
    pub(super) times: u32,
}

impl Repeat {
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Repeat { first: now, at: Some(now + SYN_TIMEOUT), times: 0 };
    }

    /// Counts one more; false when it has been tried often enough.
    pub(super) fn again(&mut self, now: Instant) -> bool {
        self.times += 1;
        let doubled = self.times.saturating_sub(SYN_LINEAR).min(SYN_RETRIES);
        self.at = Some(now + SYN_TIMEOUT * (1 << doubled));
        self.times <= SYN_LINEAR + SYN_RETRIES
    }

    pub(super) fn end(&mut self) {
        self.at = None;
    }
}

impl Subflow {
    /// Linux `mptcp_subflow_active`: usable, and not stale; a stale one is
    /// taken back as soon as anything was heard from the peer.
    pub(super) fn is_active(&mut self) -> bool {
        if self.stale && self.heard != self.stale_heard {
            self.stale = false;
        }
        !self.stale && self.is_usable()
    }

    /// Linux `__mptcp_subflow_active`.
    pub(super) fn is_usable(&self) -> bool {
        self.phase == Phase::Open && self.usable
    }

    /// True if either end wants it as a backup.
    pub(super) fn is_backup(&self) -> bool {
        self.backup[0] || self.backup[1]
    }

    /// Time left of its timer, where that says something of the path (Linux
    /// `mptcp_timeout_from_subflow`).
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        match self.tx.timer() {
            Some(at) if self.stale_count == 0 => at.since(now),
            _ => Duration::ZERO,
        }
    }

    /// When something of it is due.
    pub(super) fn wakeup(&self) -> Option<Instant> {
        [self.tx.wakeup(), self.rx.wakeup(), self.repeat.at].into_iter().flatten().min()
    }
}

/// What `tcp_info` tells of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// Its path.
    pub path: PathId,
    /// Port of the vehicle's end.
    pub port: u16,
    /// Number, in order of the SYN.
    pub number: u16,
    /// True if either end wants it as a backup.
    pub backup: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// Congestion window, in segments.
    pub window: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments held for lost.
    pub lost: u32,
    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub in_flight: u32,
    /// Segments sent again since it began.
    pub repeated: u32,
    /// Segments delivered since it began.
    pub delivered: u32,
    /// Bytes sent since it began, each counted once.
    pub bytes_sent: u64,
    /// Bytes acknowledged since it began.
    pub bytes_acked: u64,
    /// Bytes received since it began.
    pub bytes_received: u64,
    /// Bytes that wait to be sent first.
    pub notsent_bytes: u32,
    /// Delivery rate of the last sample, in bit/s.
    pub delivery_rate_bit_s: u64,
}

impl Subflow {
    pub(super) fn info(&self) -> SubflowInfo {
        let rtt = self.tx.rtt();
        SubflowInfo {
            path: self.path,
            port: self.port,
            number: self.number,
            backup: self.is_backup(),
            rtt: rtt.smoothed().unwrap_or_default(),
            rttvar: rtt.deviation(),
            window: self.tx.control().window,
            unacked: self.tx.unacked(),
            lost: self.tx.lost(),
            in_flight: self.tx.in_flight(),
            repeated: self.tx.repeated,
            delivered: self.tx.delivered as u32,
            bytes_sent: self.tx.next - 1,
            bytes_acked: self.tx.una.saturating_sub(1),
            bytes_received: self.rx.bytes_received,
            notsent_bytes: self.tx.queued_bytes() as u32,
            delivery_rate_bit_s: self.tx.delivery_rate_bit_s(),
        }
    }
}
