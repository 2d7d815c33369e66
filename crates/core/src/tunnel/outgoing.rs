//! What is under way on one path, what it delivers, and whether it lives.
//!
//! How much may be under way follows what arrives: the delivery rate, times the
//! shortest round trip, and a short queue on top. While that queue does not
//! show, more is allowed; when it is longer than meant, less. So the rate is
//! found without being told, and the queue in the path stays short.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use super::control::PathReport;
use super::label::unwrap;
use crate::allocate::PathState;
use crate::time::{Duration, Instant};

mod rate;
mod round_trip;

use rate::Rate;
use round_trip::RoundTrip;

/// Queue that is meant to stand in a path that is full.
const QUEUE: Duration = Duration::from_millis(6);
/// The same in packets, for slow paths.
const QUEUE_PACKETS: f64 = 4.0;
/// What is under way at most before anything is known, in packets.
const FIRST_PACKETS: f64 = 16.0;
/// A packet's usual size, in bytes.
const PACKET_BYTES: f64 = 1500.0;
/// How long the other end holds a report back, about.
const HOLD: Duration = Duration::from_millis(3);
/// Rounds are at least so long.
const SHORTEST_ROUND: Duration = Duration::from_millis(10);
/// More than the rate times the round trip says, at most so many times.
const MOST_BOOST: f64 = 2.0;
/// Share of a round's packets whose loss ends a path's growth, beyond twice what
/// is usual there.
const LOSSY_ROUND: f64 = 0.01;
/// Rounds over which the usual loss is taken.
const USUAL_ROUNDS: f64 = 16.0;
/// What a path sends at once, as time at its rate.
const BURST: Duration = Duration::from_millis(1);
/// Faster than the rate that was found, so that the queue in the path decides.
const PACE: f64 = 1.25;
/// Beyond round trip and its variation a report may take so long.
const PATIENCE: Duration = Duration::from_millis(25);
/// After that the path is asked, and so much later given up.
const GRACE: Duration = Duration::from_millis(25);
/// Between two questions to a path that does not answer.
const PROBE_EACH: Duration = Duration::from_millis(100);
/// Longest time between two questions while another is unanswered.
const PROBE_WAIT: Duration = Duration::from_millis(250);
/// A path that carries nothing is asked so often, to be known when it is needed,
/// while others carry.
const KEEPALIVE: Duration = Duration::from_millis(500);
/// The same while none carries: in time for translators of addresses, which
/// forget after 30 s (RFC 4787, section 4.3, has 2 minutes at least).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Copies that must arrive before a path that was given up is trusted again.
const TRIAL_PACKETS: u32 = 10;
/// Share of copies that may be lost meanwhile, and of packets of a path that is trusted.
const TRIAL_LOSS: f64 = 0.2;
/// A path that loses more gets copies only.
const UNTRUSTED_LOSS: f64 = 0.35;
/// The answer to a question that came later than so many times the shortest round trip, and
/// [`LATE`] more, speaks against the path.
const LATE_TIMES: u32 = 2;
const LATE: Duration = Duration::from_millis(80);
/// Packets under way at most.
const MOST_UNDER_WAY: usize = 65_536;

/// Whether a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It does.
    Good,
    /// Nothing is known yet.
    New,
    /// It was given up and has answered; copies are sent over it.
    Trial,
    /// What it should have delivered is late; it has been asked.
    Asked,
    /// It is given up.
    Lost,
}

impl Health {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            Health::Good => "good",
            Health::New => "new",
            Health::Trial => "trial",
            Health::Asked => "asked",
            Health::Lost => "lost",
        }
    }
}

/// A packet as the tunnel knows it.
#[derive(Clone, Debug)]
pub(super) struct Parcel<P> {
    pub packet: P,
    pub bytes: u32,
    pub flow: u8,
    pub order: u32,
    /// Until when it is worth being sent again.
    pub until: Instant,
}

#[derive(Debug)]
struct UnderWay<P> {
    sent: Instant,
    bytes: u32,
    parcel: Option<Parcel<P>>,
}

/// The sending side of a path.
#[derive(Debug)]
pub(super) struct Outgoing<P> {
    pub wish: PathState,
    pub health: Health,
    /// Why it is so.
    pub because: String,
    next: u64,
    under_way: VecDeque<UnderWay<P>>,
    bytes_under_way: u64,
    pub round_trip: RoundTrip,
    rate: Rate,
    /// Shortest one-way delay by both clocks, in µs; only differences tell.
    owd_us: Option<i64>,
    boost: f64,
    queue: Duration,
    round: Round,
    drain: Drain,
    paced_to: Instant,
    loss: f64,
    usual_loss: f64,
    probe_wanted: bool,
    /// How much later a report comes over the slowest path than over the quickest.
    pub spread: Duration,
    /// Whether the whole tunnel has nothing to carry.
    pub others_idle: bool,
    last_sent: Instant,
    trial: (u32, u32),
    pub delivered: u64,
    pub acknowledged_bytes: u64,
    pub lost: u64,
    pub sent_bytes: u64,
}

/// What was seen since a moment, about one round trip long.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    since: Instant,
    packets: u32,
    lost: u32,
    was_full: bool,
    shortest: Option<Duration>,
}

/// The round trip is measured without a queue from time to time.
#[derive(Clone, Copy, Debug, Default)]
struct Drain {
    until: Option<Instant>,
    last: Instant,
}

/// What a report brought about.
#[derive(Debug)]
pub(super) struct Settled<P> {
    /// To be sent again.
    pub lost: VecDeque<Parcel<P>>,
}

impl<P: Clone> Outgoing<P> {
    pub(super) fn new(now: Instant, wish: PathState, next: u64) -> Outgoing<P> {
        Outgoing {
            wish,
            health: Health::New,
            because: "nothing is known yet".into(),
            next,
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            round_trip: RoundTrip::default(),
            rate: Rate::default(),
            owd_us: None,
            boost: 1.0,
            queue: QUEUE,
            round: Round { since: now, ..Round::default() },
            drain: Drain { until: None, last: now },
            paced_to: now,
            loss: 0.0,
            usual_loss: 0.0,
            probe_wanted: true,
            spread: Duration::ZERO,
            others_idle: false,
            last_sent: now,
            trial: (0, 0),
            delivered: 0,
            acknowledged_bytes: 0,
            lost: 0,
            sent_bytes: 0,
        }
    }

    /// The number of the next packet. The other end has counted so far, so a path
    /// that begins anew goes on there.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// The number of a packet that leaves now; `parcel` is what can be sent again.
    pub(super) fn send(&mut self, now: Instant, bytes: u32, parcel: Option<Parcel<P>>) -> u32 {
        let number = self.next;
        self.next += 1;
        if self.under_way.len() == MOST_UNDER_WAY
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.bytes_under_way -= u64::from(oldest.bytes);
        }
        self.under_way.push_back(UnderWay { sent: now, bytes, parcel });
        self.bytes_under_way += u64::from(bytes);
        self.sent_bytes += u64::from(bytes);
        self.last_sent = now;
        if let Some(rate) = self.rate.bytes_s() {
            let takes = Duration::from_secs_f64(f64::from(bytes) / (rate * PACE * self.boost));
            self.paced_to = self.paced_to.max(now - BURST) + takes;
        }
        number as u32
    }

    /// Bytes that may be under way.
    fn window(&self) -> f64 {
        let Some((rate, base)) = self.rate.bytes_s().zip(self.round_trip.base()) else {
            return FIRST_PACKETS * PACKET_BYTES * self.boost;
        };
        let least = QUEUE_PACKETS * PACKET_BYTES;
        if self.drain.until.is_some() {
            return (rate * (base + HOLD).as_secs_f64() * 0.8).max(least);
        }
        (rate * (base + HOLD).as_secs_f64() * self.boost + self.queue_bytes(rate)).max(least)
    }

    /// Bytes under way, and that may be.
    pub(super) fn under_way_bytes(&self) -> [u64; 2] {
        [self.bytes_under_way, self.window() as u64]
    }

    fn queue_bytes(&self, rate: f64) -> f64 {
        (rate * self.queue.as_secs_f64()).max(QUEUE_PACKETS * PACKET_BYTES)
    }

    /// Whether another packet may leave as far as what is under way goes.
    pub(super) fn has_window(&self) -> bool {
        (self.bytes_under_way as f64) < self.window()
    }

    /// Whether a packet that goes over other paths too may leave: copies come at
    /// the rate of the traffic, so only a path that is much too slow is spared.
    pub(super) fn has_room_for_copies(&self) -> bool {
        (self.bytes_under_way as f64) < self.window() * 3.0
    }

    /// When the next packet may leave as far as the pace goes.
    pub(super) fn paced_to(&self) -> Instant {
        self.paced_to - BURST
    }

    /// There was more to send than was allowed.
    pub(super) fn note_full(&mut self, now: Instant) {
        self.round.was_full = true;
        self.rate.note_limited(now);
    }

    /// There was nothing to send over it though more was allowed.
    pub(super) fn note_idle(&mut self, now: Instant) {
        self.rate.note_idle(now);
    }

    /// When a packet of `bytes` that leaves now arrives, by a clock that all
    /// paths share, in µs.
    pub(super) fn arrival_us(&self, bytes: u32) -> i64 {
        let delay_us = self.owd_us.unwrap_or(0);
        let Some((rate, base)) = self.rate.bytes_s().zip(self.round_trip.base()) else { return delay_us };
        let ahead_s = (self.bytes_under_way as f64 / rate - (base + HOLD).as_secs_f64()).max(0.0);
        delay_us + ((ahead_s + f64::from(bytes) / rate) * 1e6) as i64
    }

    /// Rate at which it delivers, in bytes a second.
    pub(super) fn rate_bytes_s(&self) -> Option<f64> {
        self.rate.bytes_s()
    }

    /// One-way delay without a queue, in µs by the clocks of both ends.
    pub(super) fn owd_us(&self) -> Option<i64> {
        self.owd_us
    }

    /// Share of packets lost, lately.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// What is under way, to be sent elsewhere.
    pub(super) fn give_back(&mut self) -> VecDeque<Parcel<P>> {
        self.under_way.iter_mut().filter_map(|packet| packet.parcel.take()).collect()
    }

    /// Takes what the other end says of this path.
    pub(super) fn settle(&mut self, now: Instant, report: &PathReport) -> Settled<P> {
        let mut settled = Settled { lost: VecDeque::new() };
        let first = self.next - self.under_way.len() as u64;
        let highest = unwrap(self.next, report.highest, 32);
        if highest >= self.next || highest < first {
            return settled;
        }
        let gone = |number: u64| {
            let inside = |&(first, length): &(u32, u16)| (number as u32).wrapping_sub(first) < u32::from(length);
            report.missing.iter().any(inside)
        };
        let mut newest = None;
        for number in first..=highest {
            let Some(packet) = self.under_way.pop_front() else { break };
            self.bytes_under_way -= u64::from(packet.bytes);
            let is_lost = !report.missing.is_empty() && gone(number);
            self.count(is_lost);
            match is_lost {
                true => settled.lost.extend(packet.parcel),
                false => {
                    self.acknowledged_bytes += u64::from(packet.bytes);
                    newest = Some(packet.sent);
                }
            }
        }
        if let Some(sent) = newest {
            self.measure(now, sent, report);
        }
        settled
    }

    fn count(&mut self, is_lost: bool) {
        self.round.packets += 1;
        self.round.lost += u32::from(is_lost);
        self.trial.0 += u32::from(!is_lost);
        self.trial.1 += u32::from(is_lost);
        self.delivered += u64::from(!is_lost);
        self.lost += u64::from(is_lost);
        self.loss += (f64::from(u8::from(is_lost)) - self.loss) / 100.0;
    }

    fn measure(&mut self, now: Instant, sent: Instant, report: &PathReport) {
        let took = now.since(sent).saturating_sub(Duration::from_micros(u64::from(report.held_us)));
        let drains = self.drain.until.is_some();
        self.round_trip.note(now, took);
        self.round.shortest = Some(self.round.shortest.map_or(took, |shortest| shortest.min(took)));
        let sent_us = (sent.as_nanos() / 1000) as u32;
        let owd_us = i64::from(report.arrival_us.wrapping_sub(sent_us) as i32);
        let queued_us = took.saturating_sub(self.round_trip.base().unwrap_or(took)).as_micros() as i64;
        // What of the round trip is queue is taken to be on the way there.
        let clear_us = owd_us - queued_us;
        self.owd_us = Some(self.owd_us.map_or(clear_us, |old_us| old_us + (clear_us - old_us) / 8));
        let window = self.round_trip.smoothed().max(SHORTEST_ROUND);
        self.rate.note(now, sent, (report.arrival_us, report.bytes), window, drains);
        self.answer(took);
        self.end_round(now);
    }

    /// It delivered: what that says of its health.
    fn answer(&mut self, took: Duration) {
        let base = self.round_trip.base().unwrap_or(took);
        let in_time = took < base * LATE_TIMES + LATE;
        match self.health {
            Health::Asked | Health::New if in_time => self.become_(Health::Good, "it delivers".into()),
            Health::Lost if in_time => {
                self.trial = (0, 0);
                self.become_(Health::Trial, format!("it answers within {} ms", took.as_millis()));
            }
            Health::Trial => self.judge_trial(),
            Health::Good if self.loss > UNTRUSTED_LOSS => {
                self.trial = (0, 0);
                self.become_(Health::Trial, format!("it loses {:.0} % of packets", self.loss * 100.0));
            }
            _ => {}
        }
    }

    fn judge_trial(&mut self) {
        let (came, lost) = self.trial;
        if came + lost < TRIAL_PACKETS {
            return;
        }
        let share = f64::from(lost) / f64::from(came + lost);
        if share <= TRIAL_LOSS {
            self.loss = share;
            self.become_(Health::Good, format!("{came} of {} copies arrived", came + lost));
        }
        self.trial = (0, 0);
    }

    fn become_(&mut self, health: Health, because: String) {
        if self.health != health {
            self.health = health;
            self.because = because;
        }
    }

    fn end_round(&mut self, now: Instant) {
        let length = self.round_trip.smoothed().max(SHORTEST_ROUND);
        if now.since(self.round.since) < length {
            return;
        }
        let round = core::mem::replace(&mut self.round, Round { since: now, ..Round::default() });
        let (Some(shortest), Some(base)) = (round.shortest, self.round_trip.base()) else { return };
        if let Some(until) = self.drain.until {
            if now >= until {
                self.drain = Drain { until: None, last: now };
                self.round_trip.rebase(now, shortest);
            }
            return;
        }
        let queue = shortest.saturating_sub(base);
        let meant = match self.rate.bytes_s() {
            Some(rate) => Duration::from_secs_f64(self.queue_bytes(rate) / rate),
            None => self.queue,
        };
        let share = f64::from(round.lost) / f64::from(round.packets.max(1));
        let lossy = round.lost > 1 && share > LOSSY_ROUND + self.usual_loss * 2.0;
        if !lossy {
            self.usual_loss += (share - self.usual_loss) / USUAL_ROUNDS;
        }
        if lossy && self.boost > 1.0 {
            self.boost = 1.0;
        } else if round.was_full && queue < meant / 3 && !lossy {
            self.boost = (self.boost * 1.5).min(MOST_BOOST);
        } else if queue > meant {
            self.boost = (self.boost * 0.8).max(1.0);
        }
        let (shorter, longer) = (self.queue * 4 / 5, self.queue * 21 / 20);
        self.queue = if lossy { shorter.max(QUEUE / 4) } else { longer.min(QUEUE) };
        if queue > meant * 2 || self.round_trip.is_old(now) && round.was_full {
            let takes = (self.round_trip.smoothed() + HOLD) * 2;
            if now.since(self.drain.last) > takes * 8 {
                self.drain.until = Some(now + takes);
            }
        }
    }

    /// Lets time pass; what is to be sent elsewhere.
    pub(super) fn advance(&mut self, now: Instant, elsewhere: bool) -> VecDeque<Parcel<P>> {
        match self.health {
            Health::Good | Health::Trial | Health::New if self.late_at().is_some_and(|at| now >= at) => {
                self.probe_wanted = true;
                let waited = self.oldest().map_or(Duration::ZERO, |sent| now.since(sent));
                if self.health == Health::Trial {
                    self.become_(Health::Lost, format!("copies are unanswered for {} ms", waited.as_millis()));
                } else {
                    self.become_(Health::Asked, format!("packets are unanswered for {} ms", waited.as_millis()));
                }
                if elsewhere { self.give_back() } else { VecDeque::new() }
            }
            Health::Asked if self.lost_at().is_some_and(|at| now >= at) => {
                let waited = self.oldest().map_or(Duration::ZERO, |sent| now.since(sent));
                self.become_(Health::Lost, format!("no answer for {} ms", waited.as_millis()));
                self.boost = 1.0;
                let back = if elsewhere { self.give_back() } else { VecDeque::new() };
                self.under_way.clear();
                self.bytes_under_way = 0;
                back
            }
            _ => VecDeque::new(),
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.under_way.front().map(|packet| packet.sent)
    }

    fn patience(&self) -> Duration {
        self.round_trip.smoothed() + self.round_trip.variation() * 4 + HOLD * 3 + PATIENCE + self.spread
    }

    fn late_at(&self) -> Option<Instant> {
        let since = self.oldest()?;
        let known = self.round_trip.base().is_some();
        Some(since + if known { self.patience() } else { PROBE_WAIT })
    }

    fn lost_at(&self) -> Option<Instant> {
        self.oldest().map(|sent| sent + self.patience() * 2 + GRACE)
    }

    /// Whether a probe should leave now.
    pub(super) fn wants_probe(&self, now: Instant) -> bool {
        self.probe_at().is_some_and(|at| now >= at)
    }

    fn probe_at(&self) -> Option<Instant> {
        if self.wish == PathState::Closed {
            return None;
        }
        if self.probe_wanted {
            return Some(self.last_sent);
        }
        let idle = self.under_way.is_empty();
        match self.health {
            Health::Good => {
                let each = if self.others_idle { KEEPALIVE_IDLE } else { KEEPALIVE };
                Some(self.last_sent + each).filter(|_| idle)
            }
            Health::Trial | Health::New | Health::Lost | Health::Asked => {
                Some(self.last_sent + if idle || self.health == Health::Trial { PROBE_EACH } else { PROBE_WAIT })
            }
        }
    }

    pub(super) fn probed(&mut self) {
        self.probe_wanted = false;
    }

    /// When [`advance`](Self::advance) or a probe is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let judged = match self.health {
            Health::Good | Health::Trial | Health::New => self.late_at(),
            Health::Asked => self.lost_at(),
            Health::Lost => None,
        };
        judged.into_iter().chain(self.probe_at()).min()
    }
}
