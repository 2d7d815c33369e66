//! State of one subflow at one endpoint.

use crosslane_core::mptcp::AddressId;
use crosslane_core::path::{PathId, Transport};
use crosslane_core::time::{Duration, Instant};

use super::receiver::Receiver;
use super::rtt::RTO_INITIAL;
use super::segment::{ACK, PSH, Segment};
use super::sender::{Sender, timestamp};

/// Number of SYN retransmissions at this interval
/// (`net.ipv4.tcp_syn_linear_timeouts`), and then with doubled intervals
/// (`net.ipv4.tcp_syn_retries`).
const SYN_LINEAR: u32 = 4;
const SYN_RETRIES: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// SYN sent.
    Opening,
    /// SYN received and answered.
    Accepted,
    /// Handshake complete.
    Open,
    /// Closed locally; queued data still drains.
    Closing,
}

#[derive(Clone, Debug)]
pub(super) struct Subflow {
    pub(super) path: PathId,
    pub(super) port: u16,
    pub(super) number: u16,
    pub(super) join: bool,
    pub(super) local_id: AddressId,
    pub(super) phase: Phase,
    /// True if it may carry data: a join only after the peer has acknowledged
    /// its third segment (RFC 8684 §3.2, PRE_ESTABLISHED).
    pub(super) usable: bool,
    /// Backup flag of this endpoint, and of the peer.
    pub(super) backup: [bool; 2],
    pub(super) tx: Sender,
    pub(super) rx: Receiver,
    /// Time of the last reception.
    pub(super) last_received: Instant,
    /// Transmission time of the segment to echo (RFC 7323 §4.3, `TS.Recent`).
    pub(super) echo: Instant,
    pub(super) stale: bool,
    pub(super) stale_count: u32,
    pub(super) stale_last_received: Instant,
    /// The scheduler's running mean of the pacing rate, in bytes per second.
    pub(super) pace: Option<f64>,
    /// Backup flag to send by MP_PRIO.
    pub(super) pending_prio: Option<bool>,
    pub(super) retry: RetryTimer,
    /// When it is reset, after it was destroyed.
    pub(super) reset_at: Option<Instant>,
}

/// Retransmission timer of a SYN, SYN/ACK or FIN.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryTimer {
    pub(super) first: Instant,
    pub(super) at: Option<Instant>,
    pub(super) attempts: u32,
}

impl RetryTimer {
    pub(super) fn begin(now: Instant) -> RetryTimer {
        RetryTimer { first: now, at: Some(now + RTO_INITIAL), attempts: 0 }
    }

    /// Counts a retransmission; false after the maximum number.
    pub(super) fn next_attempt(&mut self, now: Instant) -> bool {
        self.attempts += 1;
        let doubled = self.attempts.saturating_sub(SYN_LINEAR).min(SYN_RETRIES);
        self.at = Some(now + RTO_INITIAL * (1 << doubled));
        self.attempts <= SYN_LINEAR + SYN_RETRIES
    }
}

impl Subflow {
    /// RFC 7323 §5.3: a segment that is older than the echoed one by more than a tick of the timestamps is not
    /// accepted, its data is answered. As in Linux (`tcp_disordered_ack`) an acknowledgement of what was
    /// acknowledged last is.
    pub(super) fn rejects(&mut self, segment: &Segment, sent: Instant) -> bool {
        let repeats = segment.payload == 0 && segment.ack == self.tx.una;
        let outdated = timestamp(sent) + 1 < timestamp(self.echo) && segment.flags == segment.flags & (ACK | PSH);
        if !outdated || repeats || self.phase != Phase::Open {
            return false;
        }
        if segment.payload > 0 {
            self.rx.reject((segment.seq, segment.seq + u64::from(segment.payload)));
        }
        true
    }

    /// RFC 7323 §4.3: the segment that acknowledgements echo is the first one that was not acknowledged. One that
    /// was acknowledged before says nothing: packets that were sent before its retransmission may follow.
    pub(super) fn note_timestamp(&mut self, segment: &Segment, sent: Instant) {
        let end = segment.seq + u64::from(segment.payload);
        if segment.seq <= self.rx.acknowledged && end >= self.rx.acknowledged {
            self.echo = self.echo.max(sent);
        }
    }

    /// Linux `mptcp_subflow_active`: usable and not stale; a stale subflow is
    /// active again as soon as it receives anything.
    pub(super) fn is_active(&mut self) -> bool {
        self.stale &= self.last_received == self.stale_last_received;
        !self.stale && self.is_usable()
    }

    /// Linux `__mptcp_subflow_active`.
    pub(super) fn is_usable(&self) -> bool {
        self.phase == Phase::Open && self.usable
    }

    /// True if either endpoint has set the backup flag.
    pub(super) fn is_backup(&self) -> bool {
        self.backup[0] || self.backup[1]
    }

    /// Remaining time of its timer, unless it made no progress (Linux
    /// `mptcp_timeout_from_subflow`).
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        match self.tx.timer() {
            Some(at) if self.stale_count == 0 => at.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub(super) fn smoothed_rtt(&self) -> Duration {
        self.tx.rtt.smoothed().unwrap_or_default()
    }

    /// Time of its next timer.
    pub(super) fn wakeup(&self) -> Option<Instant> {
        [self.tx.wakeup(), self.rx.due, self.retry.at, self.reset_at].into_iter().flatten().min()
    }
}

/// Statistics of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// Path.
    pub path: PathId,
    /// The vehicle's port.
    pub port: u16,
    /// Index, in order of the SYNs.
    pub number: u16,
    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub in_flight: u32,
    /// Bytes sent since the subflow began, without retransmissions.
    pub bytes_sent: u64,
    /// `tcp_info`.
    pub transport: Transport,
}
