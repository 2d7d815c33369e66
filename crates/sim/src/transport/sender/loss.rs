//! How a subflow finds and repairs losses: RACK-TLP (RFC 8985) over selective
//! acknowledgements, proportional rate reduction (RFC 6937), and the
//! retransmission timeout (RFC 6298), as Linux does them.
//!
//! Links keep the order of packets, so reordering is never seen and RACK's
//! window for it stays at its first value. Not modelled: the undoing of a
//! recovery that proves needless (F-RTO, Eifel, DSACK).

use crosslane_core::time::{Duration, Instant};

use super::acknowledgement::Delivered;
use super::{Force, Sender, Sent, State};

/// Segments selectively acknowledged after which no reordering is allowed for
/// (RFC 8985 §6.2 step 4, DupThresh).
const SURE: u32 = 3;

/// What recovery remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// Of the latest sent of the segments delivered: when, its end, its round
    /// trip.
    latest: Option<(Instant, u64, Duration)>,
    /// When segments sent before it count as lost.
    pub(super) reorder_at: Option<Instant>,
    /// PRR: window at the beginning, delivered and sent since.
    window: u32,
    delivered: u32,
    pub(super) sent: u32,
    /// No segment below this waits to be sent again.
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
    /// Lets timers expire; call when [`wakeup`](Sender::wakeup) is due.
    pub fn on_time(&mut self, now: Instant) {
        if self.recovery.reorder_at.is_some_and(|at| at <= now) {
            self.recovery.reorder_at = None;
            self.find_lost(now);
            self.repair(&Delivered::default());
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

    /// RFC 8985 §6.2 step 5: what was sent before something that has arrived is
    /// lost, once the time for reordering is over; returns how many are.
    pub(super) fn find_lost(&mut self, now: Instant) -> u32 {
        self.recovery.reorder_at = None;
        if self.sacked == 0 && self.again == 0 {
            return 0;
        }
        let Some((latest_at, latest_end, rtt)) = self.recovery.latest else { return 0 };
        let sure = self.state != State::Open || self.sacked >= SURE;
        let patience = match (sure, self.rtt.least(), self.rtt.smoothed()) {
            (false, Some(least), Some(smoothed)) => (least / 4).min(smoothed),
            _ => Duration::ZERO,
        };
        let mut wait: Option<Instant> = None;
        let (mut found, mut again) = (0, 0);
        let mut lowest = u64::MAX;
        for sent in self.flight.iter_mut() {
            if sent.sacked || (sent.lost && !sent.again) {
                continue;
            }
            if (sent.at, sent.end()) >= (latest_at, latest_end) {
                // Segments follow in the order in which they were first sent.
                if !sent.repeated {
                    break;
                }
                continue;
            }
            let due = sent.at + rtt + patience;
            if due > now {
                wait = Some(wait.map_or(due, |wait| wait.max(due)));
                continue;
            }
            lowest = lowest.min(sent.seq);
            if sent.again {
                sent.again = false;
                again += 1;
            } else {
                sent.lost = true;
                found += 1;
            }
        }
        self.lost += found;
        self.again -= again;
        self.recovery.from = self.recovery.from.min(lowest);
        self.recovery.reorder_at = wait.map(|due| self.ticks.at(now, due));
        found + again
    }

    /// Enters, steers and leaves recovery; true while the window follows it and
    /// not the congestion control.
    pub(super) fn repair(&mut self, delivered: &Delivered) -> bool {
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

    /// RFC 6937 §3, with Linux's bound: in each round, send in proportion to
    /// what arrives until the window has come down.
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

    /// Place of the first segment that is lost and was not sent again.
    pub(super) fn next_lost(&mut self) -> Option<usize> {
        if self.lost <= self.again {
            return None;
        }
        let first = self.flight.partition_point(|sent| sent.seq < self.recovery.from);
        let offset = self.flight.range(first..).position(|sent| sent.lost && !sent.again)?;
        self.recovery.from = self.flight[first + offset].seq;
        Some(first + offset)
    }

    /// The probe has been answered (RFC 8985 §7.4): what lay beyond it is for
    /// RACK to judge.
    pub(super) fn end_probe(&mut self) {
        if self.probed.is_some_and(|end| self.una >= end) {
            self.probed = None;
        }
    }

    /// RFC 6298 §5.4–5.6: everything in flight is held for lost, but what was
    /// sent less than a round trip ago (RFC 8985 §6.3).
    fn time_out(&mut self, now: Instant) {
        if self.flight.is_empty() {
            self.timeout_at = None;
            return;
        }
        let again = matches!(self.state, State::Loss { until } if self.una < until) && self.rtt.backoff > 0;
        if !again {
            self.control.on_loss();
        }
        self.control.on_timeout();
        self.rtt.backoff += 1;
        let round = self.recovery.latest.map_or(Duration::ZERO, |(_, _, rtt)| rtt);
        let mut lost = 0;
        for (place, sent) in self.flight.iter_mut().enumerate() {
            if !sent.sacked && (place == 0 || sent.at + round <= now) {
                (sent.lost, sent.again) = (true, false);
            }
            lost += u32::from(sent.lost);
        }
        self.lost = lost;
        self.again = self.flight.iter().filter(|sent| sent.again).count() as u32;
        self.recovery.from = 0;
        self.state = State::Loss { until: self.next };
        self.control.window = self.in_flight() + 1;
        (self.probed, self.probe_at) = (None, None);
        self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
    }
}
