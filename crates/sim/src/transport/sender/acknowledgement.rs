//! Processing of an acknowledgement in the sender: it removes delivered segments,
//! measures RTT and rate, and updates the window. [`loss`](super::loss) handles
//! the losses.

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::{Ack, Coupled};
use super::super::sack::Sack;
use super::in_flight::Sent;
use super::{Sender, timestamp};

/// Segments newly delivered by an acknowledgement.
#[derive(Default)]
pub(super) struct Delivered {
    /// Their number; one that a SACK block named before does not count again.
    pub(super) newly: u32,
    /// Data was acknowledged in order.
    pub(super) advanced: bool,
    /// Data was acknowledged out of order.
    pub(super) out_of_order: bool,
    /// Data arrived that precedes the recovery and was sent once (Linux `FLAG_ORIG_SACK_ACKED`).
    pub(super) original: bool,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    /// The same of those that a SACK block named.
    pub(super) by_sack: [Option<Instant>; 2],
    pub(super) any_retransmitted: bool,
    /// Segments found lost by it.
    pub(super) losses: u32,
    /// The one that was sent last.
    pub(super) newest: Option<Sent>,
    /// The same without those that are acknowledged sooner after a retransmission than
    /// the minimum RTT: what arrived may be the original (RFC 8985 §6.2 step 2).
    pub(super) unambiguous: Option<Sent>,
    /// Transmission time of the last one that is unambiguous.
    pub(super) last_unambiguous_at: Option<Instant>,
    /// What was sent later cannot have been answered, by the minimum RTT.
    pub(super) answerable: Instant,
    /// First byte that was not acknowledged before.
    pub(super) una_before: u64,
    /// Transmission time of the segment that the acknowledgement echoes.
    pub(super) echo: Instant,
}

impl Delivered {
    /// Notes a segment; recovery ends with `until`. `is_original`: the echoed time shows that what arrived was not
    /// the retransmission (Linux `tcp_skb_spurious_retrans`).
    fn note(&mut self, sent: &Sent, until: u64, is_original: bool) {
        self.newly += 1;
        self.original |= !sent.ever_retransmitted && sent.end() <= until;
        let later = |than: Option<Sent>| than.is_none_or(|than| (sent.at, sent.seq) > (than.at, than.seq));
        if later(self.newest) {
            self.newest = Some(*sent);
        }
        if !sent.ever_retransmitted || (sent.at <= self.answerable && !is_original) {
            self.last_unambiguous_at = Some(sent.at);
            if later(self.unambiguous) {
                self.unambiguous = Some(*sent);
            }
        }
    }
}

impl Sender {
    /// Processes an acknowledgement: everything below `ack` and the blocks of `sack`
    /// have arrived; `echo` is the transmission time that it echoes.
    pub fn on_ack(&mut self, now: Instant, ack: u64, sack: &Sack, echo: Instant, coupled: &Coupled) {
        if ack > self.next {
            return;
        }
        let in_flight = self.in_flight();
        let newest_before = self.newest_sacked();
        let answerable = now - self.rtt.min().unwrap_or_default();
        let mut delivered = Delivered { answerable, una_before: self.una, echo, ..Delivered::default() };
        self.note_sack(ack, sack, &mut delivered);
        self.acknowledge(ack, newest_before, &mut delivered);
        self.delivered += u64::from(delivered.newly);
        self.recovery.note_delivered(now, &delivered);
        let rtt = self.measure(now, ack, echo, &delivered);
        if let Some(newest) = &delivered.newest {
            self.reordering.update(newest.stamp.delivered, self.delivered);
        }
        // RFC 8985 §7.4; RACK evaluates later segments.
        self.probe.until.take_if(|end| self.una >= *end);
        self.update_recovery(now, &mut delivered);
        self.update_window(now, &delivered, rtt, coupled);
        if delivered.newly > 0 {
            self.sample_rate(now, &delivered, rtt, in_flight);
        }
        if delivered.advanced {
            self.timeout_at = (!self.flight.is_empty()).then(|| self.ticks.after(now, self.rtt.timeout()));
            self.schedule_probe(now);
        }
    }

    /// Sequence number of the newest segment that arrived out of order, or the first one that is not acknowledged.
    pub(super) fn newest_sacked(&self) -> u64 {
        self.flight.newest_sacked().unwrap_or(self.una)
    }

    /// Linux `tcp_clean_rtx_queue`.
    fn acknowledge(&mut self, ack: u64, newest_before: u64, delivered: &mut Delivered) {
        self.una = self.una.max(ack);
        let mut late = u64::MAX;
        while let Some(head) = self.flight.pop_acknowledged(ack) {
            delivered.advanced = true;
            delivered.any_retransmitted |= head.ever_retransmitted;
            if head.sacked {
                continue;
            }
            if !head.ever_retransmitted {
                delivered.first = delivered.first.or(Some(head.at));
                delivered.last = Some(head.at);
                late = late.min(head.seq);
            }
            let is_original = timestamp(delivered.echo) < timestamp(head.at);
            delivered.note(&head, self.recovery.until, is_original);
        }
        if late < newest_before {
            self.reordering.note(late, self.newest_sacked(), self.mss);
        }
    }

    /// Linux `tcp_sacktag_write_queue`.
    fn note_sack(&mut self, ack: u64, sack: &Sack, delivered: &mut Delivered) {
        let duplicate = sack.duplicate(ack);
        let mut blocks = *sack;
        blocks.sort();
        let (until, mut late) = (self.recovery.until, u64::MAX);
        for &block in blocks.blocks() {
            self.flight.sack(block, |sent, is_late| {
                delivered.out_of_order = true;
                if !sent.ever_retransmitted {
                    delivered.by_sack = [delivered.by_sack[0].or(Some(sent.at)), Some(sent.at)];
                    late = if is_late { late.min(sent.seq) } else { late };
                }
                delivered.note(sent, until, false);
            });
        }
        self.reordering.note(late, self.newest_sacked(), self.mss);
        if let Some((begin, end)) = duplicate {
            self.note_duplicate(begin, end, delivered);
        }
    }

    /// Linux `tcp_check_dsack`: a retransmission was needless.
    fn note_duplicate(&mut self, begin: u64, end: u64, delivered: &mut Delivered) {
        let segments = (end - begin).div_ceil(self.mss) as u32;
        delivered.newly += segments;
        // A tail-loss probe says nothing of reordering.
        if self.probe.until != Some(end) {
            self.reordering.note_duplicate();
        }
        let outstanding = self.flight.duplicates((begin, end));
        self.undo.note_duplicates(if end <= self.una { segments } else { outstanding }, end);
    }

    /// RFC 6298 §3 (no sample from a retransmitted segment), RFC 7323 §4.
    fn measure(&mut self, now: Instant, ack: u64, echo: Instant, delivered: &Delivered) -> Option<Duration> {
        let in_order = delivered.first.filter(|_| !delivered.any_retransmitted);
        let [first_sacked, last_sacked] = delivered.by_sack;
        let first = in_order.or(first_sacked);
        let advanced = delivered.advanced && echo > Instant::ZERO;
        let began = first.or(advanced.then_some(echo))?;
        self.rtt.sample(now, now.since(began), ack, self.next);
        Some(now.since(last_sacked.or(delivered.last).unwrap_or(began)))
    }

    fn update_window(&mut self, now: Instant, delivered: &Delivered, rtt: Option<Duration>, coupled: &Coupled) {
        let ack = Ack { now, delivered: delivered.newly, rtt, min_rtt: self.rtt.min(), una: self.una, next: self.next };
        self.control.note_rtt(&ack);
        if self.recovers() {
            return self.reduce(delivered);
        }
        // Linux `tcp_may_raise_cwnd`.
        if delivered.advanced || (self.reordering.is_high() && delivered.out_of_order) {
            let limited = self.usage.is_limited(self.control.window, self.control.in_slow_start());
            self.control.on_ack(&ack, limited, coupled);
        }
    }
}
