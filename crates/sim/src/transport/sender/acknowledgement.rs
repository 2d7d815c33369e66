//! Processing of an acknowledgement in the sender: it removes delivered segments,
//! measures RTT and rate, and updates the window. [`loss`](super::loss) handles
//! the losses.

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::{Ack, Coupled};
use super::super::segment::Block;
use super::Sender;
use super::in_flight::Sent;

/// Segments newly delivered by an acknowledgement.
#[derive(Default)]
pub(super) struct Delivered {
    /// Their number; one that a SACK block named before does not count again.
    pub(super) newly: u32,
    /// Data was acknowledged in order.
    pub(super) advanced: bool,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) by_sack: Option<Instant>,
    pub(super) any_retransmitted: bool,
    /// Segments found lost by it.
    pub(super) losses: u32,
    /// The one that was sent last.
    pub(super) newest: Option<Sent>,
    /// The same without those that are acknowledged sooner after a retransmission than
    /// the minimum RTT: what arrived may be the original (RFC 8985 §6.2 step 2).
    pub(super) unambiguous: Option<Sent>,
    /// What was sent later cannot have been answered, by the minimum RTT.
    pub(super) answerable: Instant,
}

impl Delivered {
    fn note(&mut self, sent: &Sent) {
        if !sent.ever_retransmitted {
            self.first = self.first.or(Some(sent.at));
            self.last = Some(sent.at);
        }
        self.any_retransmitted |= sent.ever_retransmitted;
        self.note_newest(sent);
    }

    fn note_newest(&mut self, sent: &Sent) {
        let later = |than: Option<Sent>| than.is_none_or(|than| (sent.at, sent.seq) > (than.at, than.seq));
        if later(self.newest) {
            self.newest = Some(*sent);
        }
        if later(self.unambiguous) && (!sent.ever_retransmitted || sent.at <= self.answerable) {
            self.unambiguous = Some(*sent);
        }
    }
}

impl Sender {
    /// Processes an acknowledgement: everything below `ack` and the block `sack`
    /// have arrived; `echo` is the transmission time of the segment that
    /// triggered it.
    pub fn on_ack(&mut self, now: Instant, ack: u64, sack: Option<Block>, echo: Instant, coupled: &Coupled) {
        if ack > self.next {
            return;
        }
        let in_flight = self.in_flight();
        let answerable = now - self.rtt.min().unwrap_or_default();
        let mut delivered = Delivered { answerable, ..Delivered::default() };
        self.acknowledge(ack, &mut delivered);
        if let Some(block) = sack {
            self.note_sack(block, &mut delivered);
        }
        self.delivered += u64::from(delivered.newly);
        let rtt = self.measure(now, ack, echo, &delivered);
        if let Some(latest) = delivered.unambiguous {
            self.recovery.note_delivered(now, &latest);
        }
        delivered.losses = self.find_lost(now);
        // RFC 8985 §7.4; RACK evaluates later segments.
        self.probe.until.take_if(|end| self.una >= *end);
        self.update_window(now, &delivered, rtt, coupled);
        if delivered.newly > 0 {
            self.sample_rate(now, &delivered, rtt, in_flight);
        }
        if delivered.advanced {
            self.timeout_at = (!self.flight.is_empty()).then(|| self.ticks.after(now, self.rtt.timeout()));
            self.schedule_probe(now);
        }
    }

    fn acknowledge(&mut self, ack: u64, delivered: &mut Delivered) {
        self.una = self.una.max(ack);
        while let Some(head) = self.flight.pop_acknowledged(ack) {
            delivered.advanced = true;
            if !head.sacked {
                delivered.newly += 1;
                delivered.note(&head);
            }
        }
    }

    fn note_sack(&mut self, block: Block, delivered: &mut Delivered) {
        self.flight.sack(block, |sent| {
            delivered.newly += 1;
            if !sent.ever_retransmitted {
                delivered.by_sack = delivered.by_sack.or(Some(sent.at));
            }
            delivered.note_newest(sent);
        });
    }

    /// RFC 6298 §3 (no sample from a retransmitted segment), RFC 7323 §4.
    fn measure(&mut self, now: Instant, ack: u64, echo: Instant, delivered: &Delivered) -> Option<Duration> {
        let first = delivered.first.filter(|_| !delivered.any_retransmitted).or(delivered.by_sack);
        let advanced = delivered.advanced && echo > Instant::ZERO;
        let began = first.or(advanced.then_some(echo))?;
        self.rtt.sample(now, now.since(began), ack, self.next);
        Some(now.since(delivered.last.unwrap_or(began)))
    }

    fn update_window(&mut self, now: Instant, delivered: &Delivered, rtt: Option<Duration>, coupled: &Coupled) {
        if self.update_recovery(delivered) || !delivered.advanced {
            return;
        }
        let ack = Ack { now, delivered: delivered.newly, rtt, min_rtt: self.rtt.min(), una: self.una, next: self.next };
        let limited = self.usage.is_limited(self.control.window, self.control.in_slow_start());
        self.control.on_ack(&ack, limited, coupled);
    }
}
