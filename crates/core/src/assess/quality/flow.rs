//! One subflow: what its RTT, its oldest unacknowledged byte, its retransmissions and its
//! delivery rate say.

use alloc::collections::VecDeque;

use super::evidence::{Evidence, Limits, Sign};
use super::received::Received;
use crate::assess::averages::{
    DEVIATIONS, MAX_USUAL_MS, Offered, Spread, UNUSUAL, USUAL_S, USUAL_SHARE, ms, rtt_ms, share,
};
use crate::assess::{DELAYED_ACK, SAMPLE_INTERVAL};
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// Mean deviations above the mean at which the RTTs may end if the message would be late otherwise.
const FEW_DEVIATIONS: f64 = 2.0;
/// The usual RTT is the mean of its first samples.
const FIRST_SAMPLES: u32 = 32;
/// Time constant of the recent RTT, and the least and the greatest share of a sample.
const RECENT_S: f64 = 0.3;
const RECENT_SHARES: [f64; 2] = [1.0 / 16.0, 0.25];
/// The least RTT is that of one to two such spans.
const LEAST_SPAN: Duration = Duration::from_secs(30);
/// Time until a change shows, in ms: the sampling interval, and half as much for the acknowledgement.
const NOTICE_MS: f64 = 15.0;
/// Least excess of an age over the RTT that is a sign, in ms. Ages count from the sample before the byte: in the mean from half
/// a sampling interval before it was sent.
const LEAST_EXCESS_MS: f64 = NOTICE_MS + 5.0;
/// A lost message takes three RTTs: until the loss shows, and to be sent and acknowledged again.
const RTTS_OF_A_LOSS: f64 = 3.2;
/// So long before a message is late another path can still deliver it, in ms: one way over a cellular network, and the
/// sampling interval.
const RESCUE_MS: f64 = ONE_WAY_MS + 10.0;
const ONE_WAY_MS: f64 = 25.0;
/// Time constant of the counts of retransmissions and deliveries; how many retransmissions,
/// and which share, say that the path delivers late.
const LOSS_S: f64 = 1.0;
const MIN_LOSSES: f64 = 1.5;
const LOSS_SHARE: f64 = 0.02;
/// A first segment is acknowledged so much later than the RTT at most, in ms (Linux
/// `TCP_DELACK_MIN`): while bytes before it are missing nothing is read, and a single segment
/// is acknowledged only then or with the next.
const DELAYED_ACK_MS: f64 = DELAYED_ACK.as_millis() as f64;
/// While fewer acknowledgements in a row came at once, the next one may be delayed. Linux acknowledges the first segments of a
/// subflow, and those after a pause, at once, later every second one if they are shorter than an earlier one
/// (`tcp_measure_rcv_mss`).
const PROMPT_ACKS: u32 = 32;
/// Least RTT of a path on which a delayed acknowledgement is expected, in ms: roadside units have less, cellular networks more.
const LONG_MS: f64 = 30.0;
/// A bulk sender has its congestion window full, or more than the initial window (RFC 6928)
/// in flight, in more than the first share of the samples, until it is less than the second.
const BULK_SHARES: [f64; 2] = [0.5, 0.1];
const INITIAL_WINDOW: u32 = 10;
const BULK_S: f64 = 0.2;
/// A byte that is unacknowledged for so many times as long as a message may take waits for too long, whatever the RTTs were.
const LATEST: f64 = 2.0;
/// Nothing is acknowledged while the window is full for so much longer than the retransmission timeout explains (RFC 6298,
/// without its minimum), in ms.
const QUIET_MS: f64 = 20.0;
/// A subflow of which nothing was seen for longer has been replaced, if it has delivered nothing.
const GAP: Duration = Duration::from_millis(50);
/// For so long more must wait than the path takes while it delivers less than is offered.
const STARVED: Duration = Duration::from_millis(200);
/// A backup is given nothing new: what it still holds after this time holds up what the other path delivers.
const EMPTYING: Duration = Duration::from_millis(50);
/// A pause of a sender counts as at most this.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of sending times remembered; later ones are not.
const MAX_SENT: usize = 64;

/// One subflow.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) observed: Instant,
    /// Whether the last sample was the first one of a subflow that took the place of another.
    is_new: bool,
    last: Transport,
    received: Received,
    /// Time of the last RTT sample, and their number up to [`FIRST_SAMPLES`].
    sampled: Instant,
    samples: u32,
    /// Minimum RTT of the present and the previous span, in ms, and when the present began.
    least_ms: [f64; 2],
    span: Instant,
    /// RTT above the least.
    recent: Option<Spread>,
    usual: Spread,
    /// When segments were sent, and their number until then.
    sent: VecDeque<(Instant, u32)>,
    /// Acknowledgements in a row that came at once, up to [`PROMPT_ACKS`].
    prompt: u32,
    /// Since when the first unacknowledged byte has been waiting at least.
    waiting_since: Option<Instant>,
    /// Since when something has been waiting and nothing was delivered, not even out of order.
    quiet_since: Option<Instant>,
    /// Whether something was delivered since it began to carry.
    has_delivered: bool,
    losses: f64,
    deliveries: f64,
    /// When the sender last sent, its share of samples with a full window, and whether it is
    /// a bulk sender.
    active: Instant,
    full: f64,
    is_bulk: bool,
    /// Whether more waited at the last sample than the window takes.
    is_full: bool,
    offered: Offered,
    /// Since when it has been a backup with data in flight from before.
    emptying_since: Option<Instant>,
    /// Since when more has waited without a break, and the bytes acknowledged by then.
    full_since: Option<(Instant, u64)>,
    /// Rate in the last such span, in bit/s.
    starved_bit_s: Option<f64>,
}

impl Flow {
    /// A subflow; it is a bulk sender's until the opposite shows, if `is_bulk`.
    pub(super) fn new(now: Instant, transport: &Transport, is_bulk: bool) -> Flow {
        Flow {
            observed: now,
            is_new: false,
            last: *transport,
            received: Received::default(),
            sampled: now,
            samples: 0,
            least_ms: [ms(transport.rtt), f64::INFINITY],
            span: now,
            recent: None,
            usual: Spread::default(),
            sent: VecDeque::new(),
            prompt: 0,
            waiting_since: None,
            quiet_since: None,
            has_delivered: false,
            losses: 0.0,
            deliveries: 0.0,
            active: now,
            full: f64::from(u8::from(is_bulk)),
            is_bulk,
            is_full: false,
            offered: Offered::default(),
            emptying_since: None,
            full_since: None,
            starved_bit_s: None,
        }
    }

    /// Another subflow has taken the place of this one: what is known of its RTT remains.
    fn replace(&mut self, now: Instant, transport: &Transport) {
        let Flow { is_new, least_ms, span, usual, samples, full, is_bulk, offered, .. } = *self;
        *self = Flow { is_new, least_ms, span, usual, samples, full, offered, ..Flow::new(now, transport, is_bulk) };
    }

    /// Processes the statistics; returns whether something was delivered.
    pub(super) fn observe(&mut self, now: Instant, transport: &Transport) -> bool {
        let is_behind = (transport.delivered.wrapping_sub(self.last.delivered) as i32) < 0;
        let Transport { bytes_acked, bytes_received, .. } = self.last;
        let is_idle = transport.delivered == self.last.delivered && bytes_received == 0;
        let is_less = transport.bytes_acked < bytes_acked || transport.bytes_received < bytes_received;
        self.is_new = is_behind || is_less || (is_idle && transport.bytes_acked == 0 && now.since(self.observed) > GAP);
        if self.is_new {
            self.replace(now, transport);
            return false;
        }
        self.received.observe(now, transport);
        let before = core::mem::replace(&mut self.observed, now);
        let last = core::mem::replace(&mut self.last, *transport);
        let delivered = transport.delivered.wrapping_sub(last.delivered);
        let losses = transport.retransmitted.wrapping_sub(last.retransmitted);
        let kept = 1.0 - share(now.since(before), LOSS_S);
        self.losses = self.losses * kept + f64::from(losses);
        self.deliveries = self.deliveries * kept + f64::from(delivered);
        self.quiet_since = self.quiet_since.filter(|_| delivered == 0).or(Some(now)).filter(|_| transport.unacked > 0);
        let since = if last.backup { self.emptying_since } else { Some(now) };
        self.emptying_since = since.filter(|_| transport.backup && transport.unacked > 0);
        if transport.unacked > 0 || delivered > 0 {
            self.follow_window(now, transport);
        }
        self.follow_rate(now, before, &last, transport);
        // Bytes may have been sent just after the last sample.
        let last_sent = self.follow_sent((now - SAMPLE_INTERVAL).max(before), &last, transport);
        if delivered > 0 {
            let least_ms = transport.min_rtt.map_or(0.0, ms);
            // The kernel measures the first one, that waited for the last one. When that was sent and acknowledged is
            // known to a sampling interval, as is the age with which this is compared.
            let last_sent = last_sent.filter(|_| self.may_be_delayed());
            let of_last_ms = last_sent.map_or(f64::INFINITY, |sent| ms(before.since(sent)));
            self.on_rtt(now, rtt_ms(&last, transport, delivered).min(of_last_ms).max(least_ms));
        }
        self.has_delivered = !transport.backup && (self.has_delivered || delivered > 0);
        if transport.backup {
            self.prompt = 0;
        }
        delivered > 0
    }

    /// Whether the last sample was the first one of a subflow that took the place of another.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether anything has arrived over the subflow since it was last observed.
    pub(super) fn has_received(&self, transport: &Transport) -> bool {
        transport.bytes_received > self.last.bytes_received
    }

    /// What is delivered while more waits, and what is offered.
    fn follow_rate(&mut self, now: Instant, before: Instant, last: &Transport, transport: &Transport) {
        let was_full = core::mem::replace(&mut self.is_full, is_full(transport));
        self.starved_bit_s = None;
        if transport.backup {
            self.full_since = None;
        } else if !self.is_full {
            self.full_since = None;
            if !was_full && !self.is_bulk && self.has_delivered {
                let bits = 8.0 * transport.bytes_acked.saturating_sub(last.bytes_acked) as f64;
                self.offered.follow(now.since(before), bits);
            }
        } else {
            let (since, acked) = *self.full_since.get_or_insert((now, transport.bytes_acked));
            let span = now.since(since);
            if span >= STARVED {
                self.starved_bit_s =
                    Some(8.0 * transport.bytes_acked.saturating_sub(acked) as f64 / span.as_secs_f64());
                self.full_since = Some((now, transport.bytes_acked));
            }
        }
    }

    fn follow_window(&mut self, now: Instant, transport: &Transport) {
        let elapsed = now.since(core::mem::replace(&mut self.active, now)).min(MAX_PAUSE);
        self.full += share(elapsed, BULK_S) * (f64::from(u8::from(is_full(transport))) - self.full);
        self.is_bulk = self.full > BULK_SHARES[usize::from(self.is_bulk)];
    }

    /// Returns when the last of several segments was sent that one acknowledgement covers.
    fn follow_sent(&mut self, earliest: Instant, last: &Transport, transport: &Transport) -> Option<Instant> {
        let is_moving = transport.bytes_acked != last.bytes_acked;
        self.waiting_since = match self.waiting_since {
            _ if transport.unacked == 0 => None,
            Some(since) if !is_moving => Some(since),
            _ => Some(earliest),
        };
        let sent = transport.delivered.wrapping_add(transport.unacked);
        let known = self.sent.back().map_or(last.delivered.wrapping_add(last.unacked), |(_, sent)| *sent);
        if sent != known && self.sent.len() < MAX_SENT {
            self.sent.push_back((earliest, sent));
        }
        let is_delivered = |sent: u32| transport.delivered.wrapping_sub(sent) as i32 >= 0;
        let (mut acked, mut last_sent) = (0, None);
        while self.sent.front().is_some_and(|(_, sent)| transport.unacked == 0 || is_delivered(*sent)) {
            last_sent = self.sent.pop_front().map(|(at, _)| at);
            acked += 1;
        }
        // That of a gap that was filled covers more.
        let is_regular = last.sacked == 0 && transport.retransmitted == last.retransmitted;
        self.prompt = match acked {
            1 => (self.prompt + 1).min(PROMPT_ACKS),
            2.. if is_regular => 0,
            _ => self.prompt,
        };
        last_sent.filter(|_| acked > 1 && is_regular)
    }

    fn on_rtt(&mut self, now: Instant, rtt_ms: f64) {
        let elapsed = now.since(core::mem::replace(&mut self.sampled, now));
        if now.since(self.span) >= LEAST_SPAN {
            (self.least_ms, self.span) = ([rtt_ms, self.least_ms[0]], now);
        }
        self.least_ms[0] = self.least_ms[0].min(rtt_ms);
        let excess_ms = rtt_ms - self.least();
        let [least_share, greatest_share] = RECENT_SHARES;
        let weight = share(elapsed, RECENT_S).clamp(least_share, greatest_share);
        if self.has_delivered || excess_ms > NOTICE_MS + DELAYED_ACK_MS {
            // A path that was late and is not any more has usual RTTs that none of the recent ones has.
            let usual = Spread { mean: self.usual.mean.min(excess_ms), ..self.usual };
            self.recent.get_or_insert(usual).follow(excess_ms, weight);
        }
        self.samples += 1;
        let (weight, most_ms) = if self.samples < FIRST_SAMPLES {
            (1.0 / f64::from(self.samples + 1), MAX_USUAL_MS)
        } else {
            self.samples = FIRST_SAMPLES;
            let most_ms = (self.usual.end(DEVIATIONS) + NOTICE_MS).min(MAX_USUAL_MS);
            (share(elapsed, USUAL_S).min(USUAL_SHARE), most_ms)
        };
        self.usual.follow(excess_ms.min(most_ms), weight);
    }

    fn least(&self) -> f64 {
        self.least_ms[0].min(self.least_ms[1])
    }

    /// Whether the sender has more data than the path takes: RTTs and ages of bytes are those of the sender's queue.
    pub(super) fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// Whether the next acknowledgement may be delayed. Over a short path to wait for it would take most of the time that a
    /// message has; there a delay becomes usual.
    fn may_be_delayed(&self) -> bool {
        self.least() >= LONG_MS && self.prompt < PROMPT_ACKS && self.has_delivered
    }

    /// Since when a byte has been waiting that should have been acknowledged, at least.
    fn aging_since(&self) -> Option<Instant> {
        let sent = |place: usize| self.sent.get(place).map(|(at, _)| *at);
        let oldest = sent(0).into_iter().chain(self.waiting_since).min();
        if !self.may_be_delayed() {
            return oldest;
        }
        let delayed = oldest.map(|at| at + DELAYED_ACK);
        sent(1).into_iter().chain(delayed).min()
    }

    /// When the RTTs explain the age of the oldest byte no more, if that is a sign.
    pub(super) fn late_at(&self, limits: Limits) -> Option<Instant> {
        let since = self.aging_since().filter(|_| !limits.is_of_the_air && !self.has_much(limits))?;
        Some(since + Duration::from_secs_f64(self.age_limit_ms(limits) / 1e3) + Duration::from_micros(1))
    }

    /// Whether ages and RTTs are those of the sender's queue. A loss makes the window of a sender of messages small; a full
    /// one is then no sign of much data. Nor is one that a cellular backup still has: a radio's is left before, by its signal.
    pub(super) fn has_much(&self, limits: Limits) -> bool {
        let is_left = self.emptying_since.is_some_and(|since| self.observed.since(since) >= EMPTYING);
        (limits.needs_signal || !is_left) && (self.is_bulk || self.is_full && self.last.cwnd >= INITIAL_WINDOW)
    }

    /// Less is delivered than is usually offered, while more waits.
    fn shortfall(&self) -> Option<Evidence> {
        Evidence::shortfall(self.starved_bit_s?, self.offered.bit_s()?)
    }

    /// The age that the RTTs explain, in ms: that at which they usually end, and less if the message would be late then. The
    /// first acknowledgement may be delayed: it is awaited for up to two RTTs and a sampling interval.
    fn age_limit_ms(&self, Limits { late_ms, needs_signal, .. }: Limits) -> f64 {
        let least = self.least();
        let deviations = if needs_signal { FEW_DEVIATIONS } else { DEVIATIONS };
        let tight_ms = self.usual.end(deviations).max(LEAST_EXCESS_MS);
        let usual_ms = self.usual.end(DEVIATIONS).max(tight_ms);
        let first_ms =
            if self.has_delivered { 0.0 } else { (least + ms(SAMPLE_INTERVAL)).min(LEAST_EXCESS_MS + DELAYED_ACK_MS) };
        let limit_ms = (late_ms - RESCUE_MS - least).clamp(tight_ms, usual_ms).min(LATEST * late_ms - least);
        least + limit_ms.max(first_ms).max(LEAST_EXCESS_MS)
    }

    /// Whether another path can still deliver in time what is late over this one.
    pub(super) fn can_be_saved(&self, late_ms: f64) -> bool {
        late_ms - ONE_WAY_MS >= self.least() + self.usual.end(FEW_DEVIATIONS).max(NOTICE_MS)
    }

    /// Where the RTTs may end above the least, in ms.
    fn rtt_limit_ms(&self, late_ms: f64) -> f64 {
        (UNUSUAL * self.usual.end(DEVIATIONS)).max((late_ms - NOTICE_MS) / RTTS_OF_A_LOSS).max(1.0)
    }

    /// Nothing is acknowledged, however much waits.
    fn quiet(&self, now: Instant, limits: Limits) -> Option<Evidence> {
        let Transport { rtt, rttvar, unacked, .. } = self.last;
        let delayed_ms = if unacked < 2 { DELAYED_ACK_MS } else { 0.0 };
        let limit = (ms(rtt) + DEVIATIONS * ms(rttvar) + delayed_ms + QUIET_MS).max(self.age_limit_ms(limits));
        let figure = self.quiet_since.map_or(0.0, |since| ms(now.since(since)));
        (!limits.needs_signal && figure > limit).then_some(Evidence { sign: Sign::Age, figure, limit })
    }

    /// What says that the path delivers late.
    pub(super) fn evidence(&self, now: Instant, limits: Limits) -> Option<Evidence> {
        let late_ms = limits.late_ms;
        let exceeds = |sign, figure, limit| (figure > limit).then_some(Evidence { sign, figure, limit });
        let recent = self.recent.unwrap_or_default();
        let is_first = !self.has_delivered && !self.last.backup;
        // A message has arrived when half of the RTT is left.
        let one_way_ms = self.least() / 2.0;
        let age_ms = self.aging_since().map_or(0.0, |since| ms(now.since(since)));
        let counts = |_: &Evidence| !limits.is_of_the_air;
        let by_age = || exceeds(Sign::Age, age_ms, self.age_limit_ms(limits)).filter(counts);
        if self.has_much(limits) {
            return self.shortfall().or_else(|| by_age().filter(|_| is_first)).or_else(|| self.quiet(now, limits));
        }
        by_age()
            .or_else(|| exceeds(Sign::Rtt, recent.mean, late_ms - one_way_ms).filter(|_| one_way_ms < late_ms))
            .or_else(|| exceeds(Sign::Rtt, recent.end(DEVIATIONS), self.rtt_limit_ms(late_ms)).filter(counts))
            .or_else(|| {
                let share = self.losses / (self.deliveries + self.losses).max(1.0);
                exceeds(Sign::Loss, share, LOSS_SHARE).filter(|_| self.losses > MIN_LOSSES)
            })
            .or_else(|| self.received.evidence(now, late_ms))
    }

    /// The subflow starts to carry again: what it did before counts no more.
    pub(super) fn restart(&mut self) {
        (self.recent, self.losses) = (None, 0.0);
    }
}

/// Whether more waits than the window takes, or more is in flight than a first window.
fn is_full(transport: &Transport) -> bool {
    transport.is_full() || transport.unacked > INITIAL_WINDOW
}
