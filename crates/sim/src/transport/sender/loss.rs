//! Loss detection and recovery of a subflow: RACK-TLP (RFC 8985) with selective
//! acknowledgements, proportional rate reduction (RFC 6937), and the
//! retransmission timeout (RFC 6298), as in Linux.
//!
//! Links preserve the order of packets, so there is no reordering, and RACK's
//! reordering window keeps its initial value. Not modelled: the undo of a spurious
//! recovery (F-RTO, Eifel, DSACK).

use crosslane_core::time::{Duration, Instant};

use super::acknowledgement::Delivered;
use super::{Force, Sender, Sent, State};

/// Number of SACKed segments from which the reordering window is 0 (RFC 8985
/// §6.2 step 4, DupThresh).
const DUP_THRESH: u32 = 3;

/// State of recovery.
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
}

impl Recovery {
    pub(super) fn note_delivered(&mut self, now: Instant, newest: &Sent) {
        let later = self.latest.is_none_or(|(at, end, _)| (newest.at, newest.end()) > (at, end));
        if later {
            self.latest = Some((newest.at, newest.end(), now.since(newest.at)));
        }
    }
}

impl Sender {
    /// Processes expired timers; call when [`wakeup`](Sender::wakeup) is due.
    pub fn on_time(&mut self, now: Instant) {
        if self.recovery.reorder_at.is_some_and(|at| at <= now) {
            self.recovery.reorder_at = None;
            self.find_lost(now);
            self.update_recovery(&Delivered::default());
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            // One probe at a time (RFC 8985 §7.3).
            match self.probed {
                None => self.force = Some(Force::Probe),
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
        if self.sacked == 0 && self.retrans_out == 0 {
            return 0;
        }
        let Some((latest_at, latest_end, rtt)) = self.recovery.latest else { return 0 };
        let no_reordering = self.state != State::Open || self.sacked >= DUP_THRESH;
        let reordering_window = match (no_reordering, self.rtt.min(), self.rtt.smoothed()) {
            (false, Some(min), Some(smoothed)) => (min / 4).min(smoothed),
            _ => Duration::ZERO,
        };
        let mut wait: Option<Instant> = None;
        let (mut found, mut lost_again) = (0, 0);
        let mut lowest = u64::MAX;
        for sent in self.flight.iter_mut() {
            if sent.sacked || (sent.lost && !sent.retransmitted) {
                continue;
            }
            if (sent.at, sent.end()) >= (latest_at, latest_end) {
                // Segments are in order of their first transmission.
                if !sent.ever_retransmitted {
                    break;
                }
                continue;
            }
            let due = sent.at + rtt + reordering_window;
            if due > now {
                wait = Some(wait.map_or(due, |wait| wait.max(due)));
                continue;
            }
            lowest = lowest.min(sent.seq);
            if sent.retransmitted {
                sent.retransmitted = false;
                lost_again += 1;
            } else {
                sent.lost = true;
                found += 1;
            }
        }
        self.lost += found;
        self.retrans_out -= lost_again;
        self.recovery.from = self.recovery.from.min(lowest);
        self.recovery.reorder_at = wait.map(|due| self.ticks.at(now, due));
        found + lost_again
    }

    /// Enters, updates and leaves recovery; true while recovery, not congestion
    /// control, sets the window.
    pub(super) fn update_recovery(&mut self, delivered: &Delivered) -> bool {
        match self.state {
            State::Recovery { until } if self.una >= until => {
                self.state = State::Open;
                if self.control.reduces() {
                    self.control.window = self.control.ssthresh;
                }
            }
            State::Loss { until } if self.una >= until => self.state = State::Open,
            _ => {}
        }
        match self.state {
            State::Open if self.lost > 0 => {
                self.state = State::Recovery { until: self.next };
                self.recovery.window = self.control.window;
                (self.recovery.delivered, self.recovery.sent) = (0, 0);
                self.control.on_loss();
                self.probe_at = None;
                self.reduce(delivered);
                true
            }
            State::Recovery { .. } => {
                self.reduce(delivered);
                true
            }
            // After a timeout the window grows as in slow start.
            State::Open | State::Loss { .. } => false,
        }
    }

    /// RFC 6937 §3, with Linux's bound: sends in proportion to the segments
    /// delivered until the window has reached its target.
    fn reduce(&mut self, delivered: &Delivered) {
        if !self.control.reduces() {
            return;
        }
        let newly = delivered.acked + delivered.sacked;
        self.recovery.delivered += newly;
        let in_flight = self.in_flight();
        let target = self.control.ssthresh;
        let may = if in_flight > target {
            let share = u64::from(target) * u64::from(self.recovery.delivered);
            (share.div_ceil(u64::from(self.recovery.window.max(1))) as u32).saturating_sub(self.recovery.sent)
        } else {
            let behind = self.recovery.delivered.saturating_sub(self.recovery.sent).max(newly);
            (target - in_flight).min(behind + u32::from(delivered.acked > 0))
        };
        let first = u32::from(self.recovery.sent == 0);
        self.control.window = in_flight + may.max(first);
    }

    /// Index of the first lost segment that was not retransmitted.
    pub(super) fn next_lost(&mut self) -> Option<usize> {
        if self.lost <= self.retrans_out {
            return None;
        }
        let first = self.flight.partition_point(|sent| sent.seq < self.recovery.from);
        let offset = self.flight.range(first..).position(|sent| sent.lost && !sent.retransmitted)?;
        self.recovery.from = self.flight[first + offset].seq;
        Some(first + offset)
    }

    /// Ends an acknowledged probe (RFC 8985 §7.4); RACK evaluates later
    /// segments.
    pub(super) fn end_probe(&mut self) {
        if self.probed.is_some_and(|end| self.una >= end) {
            self.probed = None;
        }
    }

    /// RFC 6298 §5.4–5.6: marks everything in flight lost except segments sent
    /// less than an RTT ago (RFC 8985 §6.3).
    fn time_out(&mut self, now: Instant) {
        if self.flight.is_empty() {
            self.timeout_at = None;
            return;
        }
        let repeated_timeout = matches!(self.state, State::Loss { until } if self.una < until) && self.rtt.backoff > 0;
        if !repeated_timeout {
            self.control.on_loss();
        }
        self.control.on_timeout();
        self.rtt.backoff += 1;
        let round = self.recovery.latest.map_or(Duration::ZERO, |(_, _, rtt)| rtt);
        let mut lost = 0;
        for (place, sent) in self.flight.iter_mut().enumerate() {
            if !sent.sacked && (place == 0 || sent.at + round <= now) {
                (sent.lost, sent.retransmitted) = (true, false);
            }
            lost += u32::from(sent.lost);
        }
        self.lost = lost;
        self.retrans_out = self.flight.iter().filter(|sent| sent.retransmitted).count() as u32;
        self.recovery.from = 0;
        self.state = State::Loss { until: self.next };
        self.control.window = self.in_flight() + 1;
        (self.probed, self.probe_at) = (None, None);
        self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
    }
}
