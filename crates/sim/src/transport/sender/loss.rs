//! Loss detection and recovery of a subflow: RACK-TLP (RFC 8985) with selective
//! acknowledgements, proportional rate reduction (RFC 6937), and the
//! retransmission timeout (RFC 6298), as in Linux.
//!
//! Links preserve the order of packets, so there is no reordering, and RACK's
//! reordering window keeps its initial value. Not modelled: the undo of a spurious
//! recovery (F-RTO, Eifel, DSACK).

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::RecoveryState;
use super::Sender;
use super::acknowledgement::Delivered;
use super::in_flight::Sent;

/// Number of SACKed segments from which the reordering window is 0 (RFC 8985
/// §6.2 step 4, DupThresh).
const DUP_THRESH: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// Transmission time, end and RTT of the delivered segment that was sent
    /// last.
    latest: Option<(Instant, u64, Duration)>,
    /// Expiry of the reordering timer.
    pub(super) reorder_at: Option<Instant>,
    /// PRR: window at the start, segments delivered and sent since.
    window: u32,
    delivered: u32,
    pub(super) sent: u32,
    /// No segment below this waits for retransmission.
    from: u64,
    /// It ends when everything below this is acknowledged.
    until: u64,
}

impl Recovery {
    pub(super) fn note_delivered(&mut self, now: Instant, newest: &Sent) {
        if self.latest.is_none_or(|(at, end, _)| (newest.at, newest.end()) > (at, end)) {
            self.latest = Some((newest.at, newest.end(), now.since(newest.at)));
        }
    }
}

/// The tail-loss probe (RFC 8985 §7).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossProbe {
    /// When a probe is due.
    pub(super) at: Option<Instant>,
    /// It is sent next, regardless of the window.
    pub(super) due: bool,
    /// End of the outstanding probe.
    pub(super) until: Option<u64>,
}

impl Sender {
    /// Processes expired timers; call when [`wakeup`](Sender::wakeup) is due.
    pub fn on_time(&mut self, now: Instant) {
        if self.recovery.reorder_at.is_some_and(|at| at <= now) {
            self.find_lost(now);
            // Linux `tcp_rack_reo_timeout`: recovery begins as with one delivered segment.
            let newly = u32::from(self.state == RecoveryState::None);
            self.update_recovery(&Delivered { newly, ..Delivered::default() });
        }
        if self.probe.at.take_if(|at| *at <= now).is_some() {
            // One probe at a time (RFC 8985 §7.3).
            match self.probe.until {
                None => self.probe.due = true,
                Some(_) => self.await_timeout(now),
            }
        } else if self.timeout_at.is_some_and(|at| at <= now) {
            self.time_out(now);
        }
    }

    /// RFC 8985 §6.2 step 5: a segment sent before a delivered one is lost once
    /// the reordering window is over. Returns the number of new losses.
    pub(super) fn find_lost(&mut self, now: Instant) -> u32 {
        self.recovery.reorder_at = None;
        if self.flight.sacked == 0 && self.flight.retransmitted == 0 {
            return 0;
        }
        let Some((latest_at, latest_end, rtt)) = self.recovery.latest else { return 0 };
        let no_reordering = self.state != RecoveryState::None || self.flight.sacked >= DUP_THRESH;
        let reordering_window = match (no_reordering, self.rtt.min(), self.rtt.smoothed()) {
            (false, Some(min), Some(smoothed)) => (min / 4).min(smoothed),
            _ => Duration::ZERO,
        };
        let found = self.flight.find_lost(now, (latest_at, latest_end), rtt + reordering_window);
        self.recovery.from = self.recovery.from.min(found.lowest);
        self.recovery.reorder_at = found.wait.map(|due| self.ticks.at(now, due));
        found.count
    }

    /// Enters, updates and leaves recovery; true while recovery, not congestion
    /// control, sets the window.
    pub(super) fn update_recovery(&mut self, delivered: &Delivered) -> bool {
        if self.una >= self.recovery.until {
            let before = std::mem::take(&mut self.state);
            if before == RecoveryState::Recovery && self.control.reduces() {
                self.control.window = self.control.ssthresh;
            }
        }
        if self.state == RecoveryState::None && self.flight.lost > 0 {
            self.state = RecoveryState::Recovery;
            (self.recovery.until, self.recovery.window) = (self.next, self.control.window);
            (self.recovery.delivered, self.recovery.sent) = (0, 0);
            self.control.on_loss();
            self.probe.at = None;
        }
        // After a timeout the window grows as in slow start.
        let recovers = self.state == RecoveryState::Recovery;
        if recovers && self.control.reduces() {
            self.reduce(delivered);
        }
        recovers
    }

    /// RFC 6937 §3, with Linux's bound (`tcp_cwnd_reduction`): sends in proportion to
    /// the segments delivered until the window has reached its target.
    fn reduce(&mut self, delivered: &Delivered) {
        let newly = delivered.newly;
        if newly == 0 {
            return;
        }
        self.recovery.delivered += newly;
        let in_flight = self.in_flight();
        let target = self.control.ssthresh;
        let may = if in_flight > target {
            let share = u64::from(target) * u64::from(self.recovery.delivered);
            (share.div_ceil(u64::from(self.recovery.window.max(1))) as u32).saturating_sub(self.recovery.sent)
        } else {
            let behind = self.recovery.delivered.saturating_sub(self.recovery.sent).max(newly);
            (target - in_flight).min(behind + u32::from(delivered.advanced && delivered.losses == 0))
        };
        let first = u32::from(self.recovery.sent == 0);
        self.control.window = in_flight + may.max(first);
    }

    /// Index of the first lost segment that was not retransmitted.
    pub(super) fn next_lost(&mut self) -> Option<usize> {
        let (place, seq) = self.flight.next_lost(self.recovery.from)?;
        self.recovery.from = seq;
        Some(place)
    }

    /// RFC 6298 §5.4–5.6: marks everything in flight lost except segments sent
    /// less than an RTT ago (RFC 8985 §6.3).
    fn time_out(&mut self, now: Instant) {
        if self.flight.is_empty() {
            self.timeout_at = None;
            return;
        }
        let in_loss = self.state == RecoveryState::Loss && self.una < self.recovery.until;
        if !in_loss || self.rtt.backoff == 0 {
            self.control.on_loss();
        }
        self.control.on_timeout();
        self.rtt.backoff += 1;
        let round = self.recovery.latest.map_or(Duration::ZERO, |(_, _, rtt)| rtt);
        self.flight.mark_all_lost(now, round);
        (self.recovery.from, self.recovery.until) = (0, self.next);
        self.state = RecoveryState::Loss;
        self.control.window = self.in_flight() + 1;
        (self.probe.at, self.probe.until) = (None, None);
        self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
    }
}
