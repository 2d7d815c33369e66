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
    pub(super) acked: u32,
    pub(super) sacked: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    by_sack: Option<Instant>,
    any_retransmitted: bool,
    pub(super) newest: Option<Sent>,
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
        if self.newest.is_none_or(|newest| (sent.at, sent.seq) > (newest.at, newest.seq)) {
            self.newest = Some(*sent);
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
        let mut delivered = Delivered::default();
        self.acknowledge(ack, &mut delivered);
        if let Some(block) = sack {
            self.note_sack(block, &mut delivered);
        }
        let rtt = self.measure(now, ack, echo, &delivered);
        if let Some(newest) = delivered.newest {
            self.recovery.note_delivered(now, &newest);
        }
        let losses = self.find_lost(now);
        // RFC 8985 §7.4; RACK evaluates later segments.
        self.probe.until.take_if(|end| self.una >= *end);
        self.update_window(now, &delivered, rtt, coupled);
        if delivered.acked + delivered.sacked > 0 {
            self.sample_rate(now, &delivered, rtt, in_flight, losses);
        }
        if delivered.acked > 0 {
            self.timeout_at = (!self.flight.is_empty()).then(|| self.ticks.after(now, self.rtt.timeout()));
            self.schedule_probe(now);
        }
    }

    fn acknowledge(&mut self, ack: u64, delivered: &mut Delivered) {
        self.una = self.una.max(ack);
        while let Some(head) = self.flight.pop_acknowledged(ack) {
            delivered.acked += 1;
            if !head.sacked {
                self.delivered += 1;
                delivered.note(&head);
            }
        }
    }

    fn note_sack(&mut self, block: Block, delivered: &mut Delivered) {
        self.flight.sack(block, |sent| {
            delivered.sacked += 1;
            if !sent.ever_retransmitted {
                delivered.by_sack = delivered.by_sack.or(Some(sent.at));
            }
            delivered.note_newest(sent);
        });
        self.delivered += u64::from(delivered.sacked);
    }

    /// RFC 6298 §3 (no sample from a retransmitted segment), RFC 7323 §4.
    fn measure(&mut self, now: Instant, ack: u64, echo: Instant, delivered: &Delivered) -> Option<Duration> {
        let first = delivered.first.filter(|_| !delivered.any_retransmitted).or(delivered.by_sack);
        let advanced = delivered.acked > 0 && echo > Instant::ZERO;
        let began = first.or(advanced.then_some(echo))?;
        self.rtt.sample(now, now.since(began), ack, self.next);
        Some(now.since(delivered.last.unwrap_or(began)))
    }

    fn update_window(&mut self, now: Instant, delivered: &Delivered, rtt: Option<Duration>, coupled: &Coupled) {
        if self.update_recovery(delivered) || delivered.acked == 0 {
            return;
        }
        let ack = Ack { now, acked: delivered.acked, rtt, min_rtt: self.rtt.min(), una: self.una, next: self.next };
        let limited = self.usage.is_limited(self.control.window, self.control.in_slow_start());
        self.control.on_ack(&ack, limited, coupled);
    }
}
