//! Loss detection and recovery of a subflow: RACK-TLP (RFC 8985) with selective
//! acknowledgements, proportional rate reduction (RFC 6937), and the
//! retransmission timeout (RFC 6298) with F-RTO (RFC 5682), as in Linux.

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::RecoveryState;
use super::Sender;
use super::acknowledgement::Delivered;
use super::undo::Filled;

/// Added to the wait for a segment that may only be late (Linux `TCP_TIMEOUT_MIN_US`).
const REORDER_MIN: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    /// Transmission time and end of the delivered segment that was sent last.
    latest: Option<(Instant, u64)>,
    /// RTT of the segment that was delivered last.
    rtt: Duration,
    /// Either changed, or what counts as lost did, since the segments were examined.
    pub(super) advanced: bool,
    /// Expiry of the reordering timer.
    pub(super) reorder_at: Option<Instant>,
    /// PRR: window at the start, segments delivered and sent since.
    window: u32,
    delivered: u32,
    pub(super) sent: u32,
    /// No segment below this waits for retransmission.
    pub(super) from: u64,
    /// It ends when everything below this is acknowledged.
    pub(super) until: u64,
    /// New data is sent instead of retransmissions until the next acknowledgement.
    pub(super) pauses: bool,
    /// F-RTO has not decided yet whether the timeout was spurious.
    may_be_spurious: bool,
}

impl Recovery {
    pub(super) fn note_delivered(&mut self, now: Instant, delivered: &Delivered) {
        if let Some(sent) = delivered.unambiguous
            && self.latest.is_none_or(|latest| (sent.at, sent.end()) > latest)
        {
            self.latest = Some((sent.at, sent.end()));
        }
        if let Some(at) = delivered.last_unambiguous_at {
            (self.rtt, self.advanced) = (now.since(at), true);
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
    /// That probe is a retransmission.
    pub(super) repeats: bool,
}

impl Sender {
    /// Processes expired timers; call when [`wakeup`](Sender::wakeup) is due.
    pub fn on_time(&mut self, now: Instant) {
        if self.recovery.reorder_at.is_some_and(|at| at <= now) {
            self.find_lost(now);
            self.recovery.pauses = false;
            // Linux `tcp_rack_reo_timeout`: recovery begins as with one delivered segment.
            if self.state != RecoveryState::Recovery && self.flight.lost > 0 {
                self.enter_recovery();
                self.reduce(&Delivered { newly: 1, ..Delivered::default() });
            }
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
    /// the reordering window is over.
    fn find_lost(&mut self, now: Instant) -> Found {
        (self.recovery.reorder_at, self.recovery.advanced) = (None, false);
        let Some(latest) = self.recovery.latest else { return Found::default() };
        let (min, smoothed) = (self.rtt.min().unwrap_or_default(), self.rtt.smoothed().unwrap_or_default());
        let in_recovery = self.state != RecoveryState::None;
        let window = self.reordering.window(in_recovery, self.flight.sacked, min, smoothed);
        let found = self.flight.find_lost(now, latest, self.recovery.rtt + window);
        self.recovery.from = self.recovery.from.min(found.lowest);
        self.recovery.reorder_at = found.wait.map(|due| self.ticks.at(now, due + REORDER_MIN));
        Found { lost: found.count, again: found.again > 0 }
    }

    /// Linux `tcp_identify_packet_loss`; true if a retransmission was lost.
    fn identify_losses(&mut self, now: Instant, delivered: &mut Delivered) -> bool {
        if !self.recovery.advanced {
            return false;
        }
        let found = self.find_lost(now);
        delivered.losses += found.lost;
        found.again
    }

    /// Enters, updates and leaves recovery (Linux `tcp_fastretrans_alert`).
    pub(super) fn update_recovery(&mut self, now: Instant, delivered: &mut Delivered) {
        self.recovery.pauses = false;
        if self.state == RecoveryState::Recovery && self.una >= self.recovery.until {
            self.end_recovery(delivered);
        }
        match self.state {
            RecoveryState::Recovery => {
                if delivered.advanced {
                    match self.undo_partial(delivered.una_before, delivered.echo) {
                        Filled::LateWhileRepaired => return self.recovery.pauses = true,
                        Filled::Late => self.state = RecoveryState::None,
                        Filled::Repaired => {}
                    }
                }
                if self.undo_needless() {
                    self.state = RecoveryState::None;
                }
                self.identify_losses(now, delivered);
            }
            RecoveryState::Loss => {
                self.update_loss(delivered);
                if self.identify_losses(now, delivered) && self.state == RecoveryState::Loss {
                    self.enter_recovery();
                }
            }
            RecoveryState::None => {
                self.undo_needless();
                self.identify_losses(now, delivered);
            }
        }
        if self.state == RecoveryState::None && self.flight.lost > 0 {
            self.enter_recovery();
        }
    }

    /// Everything that was in flight at the start of the recovery is acknowledged.
    fn end_recovery(&mut self, delivered: &Delivered) {
        if !self.undo_spurious(delivered.echo, false) {
            self.reordering.note_recovered();
        }
        let reduced = self.undo.is_pending() && self.control.reduces();
        if std::mem::take(&mut self.state) == RecoveryState::Recovery && reduced {
            self.control.window = self.control.ssthresh;
        }
    }

    fn enter_recovery(&mut self) {
        self.begin_undo();
        self.state = RecoveryState::Recovery;
        (self.recovery.until, self.recovery.window) = (self.next, self.control.window);
        (self.recovery.delivered, self.recovery.sent) = (0, 0);
        self.control.on_loss();
        self.probe.at = None;
    }

    /// After a timeout (Linux `tcp_process_loss`): by the echoed time (Eifel) or because what was never
    /// retransmitted arrives (F-RTO) it may turn out to be spurious.
    fn update_loss(&mut self, delivered: &Delivered) {
        let recovered = self.una >= self.recovery.until;
        if delivered.advanced && self.undo_spurious(delivered.echo, true) {
            return self.state = RecoveryState::None;
        }
        if self.recovery.may_be_spurious {
            if delivered.original {
                self.restore(true);
                return self.state = RecoveryState::None;
            }
            if self.next > self.recovery.until {
                self.recovery.may_be_spurious = !delivered.out_of_order && delivered.advanced;
            } else if delivered.advanced && !recovered {
                self.recovery.until = self.next;
                // RFC 5682 §3.1 step 2b: new data shows what arrives.
                self.recovery.pauses = !self.queue.is_empty();
                self.recovery.may_be_spurious = self.recovery.pauses;
                return;
            }
        }
        if recovered {
            self.end_recovery(delivered);
        }
    }

    /// True while recovery, not congestion control, sets the window.
    pub(super) fn recovers(&self) -> bool {
        self.state == RecoveryState::Recovery
    }

    /// RFC 6937 §3, with Linux's bound (`tcp_cwnd_reduction`): sends in proportion to
    /// the segments delivered until the window has reached its target.
    pub(super) fn reduce(&mut self, delivered: &Delivered) {
        let newly = delivered.newly;
        if newly == 0 || !self.control.reduces() {
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
        if self.recovery.pauses {
            return None;
        }
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
        let again = self.rtt.backoff > 0;
        let first = self.state == RecoveryState::Loss && !again;
        let new = self.state == RecoveryState::None;
        let round = if self.recovery.latest.is_some() { self.recovery.rtt } else { Duration::ZERO };
        self.flight.mark_all_lost(now, round);
        if new || first || self.una >= self.recovery.until {
            self.begin_undo();
            self.control.on_loss();
        }
        if new {
            self.reordering.note_timeout(self.flight.sacked);
        }
        self.control.on_timeout();
        self.rtt.backoff += 1;
        self.recovery.may_be_spurious = new || again;
        (self.recovery.from, self.recovery.until, self.recovery.pauses) = (0, self.next, false);
        self.state = RecoveryState::Loss;
        self.control.window = self.in_flight() + 1;
        (self.probe.at, self.probe.until) = (None, None);
        self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
    }
}

/// Result of [`Sender::find_lost`].
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    lost: u32,
    /// A retransmission among them.
    again: bool,
}
