//! What an acknowledgement does to the sending half: it frees what has arrived,
//! measures, and moves the window. Losses it reveals are for
//! [`loss`](super::loss).

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::{Ack, Coupled};
use super::super::segment::Block;
use super::{Sender, Sent};

/// What an acknowledgement delivered.
#[derive(Default)]
pub(super) struct Delivered {
    pub(super) acked: u32,
    pub(super) sacked: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    by_sack: Option<Instant>,
    repeated: bool,
    pub(super) newest: Option<Sent>,
}

impl Delivered {
    fn note(&mut self, sent: &Sent) {
        if !sent.repeated {
            self.first = self.first.or(Some(sent.at));
            self.last = Some(sent.at);
        }
        self.repeated |= sent.repeated;
        self.note_newest(sent);
    }

    fn note_newest(&mut self, sent: &Sent) {
        if self.newest.is_none_or(|newest| (sent.at, sent.seq) > (newest.at, newest.seq)) {
            self.newest = Some(*sent);
        }
    }
}

impl Sender {
    /// Takes an acknowledgement: everything below `ack` and the block `sack`
    /// have arrived; `echo` is when the segment was sent that caused it. True
    /// if something new has arrived.
    pub fn on_ack(&mut self, now: Instant, ack: u64, sack: Option<Block>, echo: Instant, coupled: &Coupled) -> bool {
        if ack > self.next {
            return false;
        }
        let in_flight = self.in_flight();
        let mut delivered = Delivered::default();
        self.acknowledge(ack, &mut delivered);
        if let Some(block) = sack {
            self.note_sack(block, &mut delivered);
        }
        let newly = delivered.acked + delivered.sacked;
        let rtt = self.measure(now, ack, echo, &delivered);
        if let Some(newest) = delivered.newest {
            self.recovery.note_delivered(now, &newest);
        }
        let losses = self.find_lost(now);
        self.end_probe();
        self.steer(now, &delivered, rtt, coupled);
        if newly > 0 {
            self.sample_rate(now, &delivered, rtt, in_flight, losses);
        }
        if delivered.acked > 0 {
            self.timeout_at = (!self.flight.is_empty()).then(|| self.ticks.after(now, self.rtt.timeout()));
            self.schedule_probe(now);
        }
        newly > 0
    }

    fn acknowledge(&mut self, ack: u64, delivered: &mut Delivered) {
        self.una = self.una.max(ack);
        while let Some(head) = self.flight.front().copied().filter(|head| head.end() <= ack) {
            self.flight.pop_front();
            self.flight_bytes -= head.piece.len;
            delivered.acked += 1;
            self.sacked -= u32::from(head.sacked);
            self.lost -= u32::from(head.lost);
            self.again -= u32::from(head.again);
            if !head.sacked {
                self.delivered += 1;
                delivered.note(&head);
            }
        }
    }

    fn note_sack(&mut self, (begin, end): Block, delivered: &mut Delivered) {
        let first = self.flight.partition_point(|sent| sent.seq < begin);
        for sent in self.flight.range_mut(first..).take_while(|sent| sent.end() <= end) {
            if sent.sacked {
                continue;
            }
            sent.sacked = true;
            self.sacked += 1;
            self.lost -= u32::from(sent.lost);
            self.again -= u32::from(sent.again);
            (sent.lost, sent.again) = (false, false);
            self.delivered += 1;
            delivered.sacked += 1;
            if !sent.repeated {
                delivered.by_sack = delivered.by_sack.or(Some(sent.at));
            }
            let sent = *sent;
            delivered.note_newest(&sent);
        }
    }

    /// RFC 6298 §3 (no sample from a segment sent twice), RFC 7323 §4.
    fn measure(&mut self, now: Instant, ack: u64, echo: Instant, delivered: &Delivered) -> Option<Duration> {
        let first = delivered.first.filter(|_| !delivered.repeated).or(delivered.by_sack);
        let advanced = delivered.acked > 0 && echo > Instant::ZERO;
        let began = first.or(advanced.then_some(echo))?;
        self.rtt.sample(now, now.since(began), ack, self.next);
        Some(now.since(delivered.last.unwrap_or(began)))
    }

    fn steer(&mut self, now: Instant, delivered: &Delivered, rtt: Option<Duration>, coupled: &Coupled) {
        if self.repair(delivered) || delivered.acked == 0 {
            return;
        }
        let ack = Ack { now, acked: delivered.acked, rtt, least_rtt: self.rtt.least(), una: self.una, next: self.next };
        let limited = self.limited || (self.control.in_slow_start() && self.control.window < 2 * self.most_out);
        self.control.on_ack(&ack, limited, coupled);
    }
}
