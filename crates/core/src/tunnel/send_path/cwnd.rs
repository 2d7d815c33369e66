//! The congestion window of a path: the delivery rate times the min RTT, plus a short queue. While that
//! queue does not appear the window grows; when the queue exceeds its target the window shrinks. So the rate
//! is found by measurement, and the queue in the path stays short.

use super::delivery_rate::DeliveryRate;
use super::rtt::{FEEDBACK_DELAY, Rtt};
use super::slow_start::SlowStart;
use crate::time::{Duration, Instant};

/// Target queueing delay of a full path.
const QUEUE: Duration = Duration::from_millis(6);
/// The same in packets, for slow paths.
const QUEUE_PACKETS: f64 = 4.0;
/// Typical packet size, in bytes.
const PACKET_BYTES: f64 = 1500.0;
/// Initial congestion window.
pub(super) const INITIAL_CWND_BYTES: f64 = 16.0 * PACKET_BYTES;
/// Maximum congestion window, whatever rate and RTT the peer reports: 250 ms at 2 Gbit/s.
pub(in super::super) const MAX_CWND_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// Minimum length of a round.
pub(super) const MIN_ROUND: Duration = Duration::from_millis(10);
/// Maximum window in excess of rate × RTT, as time at the rate and as a factor. Most links buffer 50 ms or
/// more.
const MAX_GAIN_TIME: Duration = Duration::from_millis(20);
const MAX_GAIN: f64 = 2.0;
/// Share of lost packets in a round that stops the window's growth, in addition to twice the baseline loss.
const LOSSY_ROUND: f64 = 0.01;
/// Highest share of lost packets in slow start that says something about the path: the window doubles beyond the rate,
/// and up to half of it is dropped.
const MAX_SLOW_START_LOSS: f64 = 0.25;
/// Number of packets in a round below which their loss does not end slow start: the first packets of a burst may be
/// reported as lost before the peer knows that the path reorders.
const MIN_ROUND_PACKETS: u32 = 16;
/// Number of rounds over which the baseline loss is averaged.
const BASELINE_ROUNDS: f64 = 16.0;
/// Pacing rate as a multiple of the delivery rate, so that the bottleneck's queue is visible.
const PACING_GAIN: f64 = 1.25;
/// The same during slow start, in windows per RTT: a burst then neither fills the queue of a link nor
/// stretches the train of acknowledgements, which HyStart takes for a rising RTT.
const SLOW_START_PACING_GAIN: f64 = 4.0;

/// Observations of one round, about one RTT long.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    since: Instant,
    packets: u32,
    lost: u32,
    was_full: bool,
    was_busy: bool,
    /// Whether a packet train was in flight: the round shows nothing about traffic.
    had_train: bool,
    min_rtt: Option<Duration>,
}

/// Min-RTT probe: the queue is emptied from time to time to measure the RTT without it.
#[derive(Clone, Copy, Debug, Default)]
struct MinRttProbe {
    until: Option<Instant>,
    last: Instant,
}

/// Congestion window of a path.
#[derive(Debug)]
pub(super) struct Cwnd {
    gain: f64,
    /// `None` once slow start has ended.
    slow_start: Option<SlowStart>,
    slow_start_ended: Instant,
    /// Target queueing delay.
    queue: Duration,
    round: Round,
    min_rtt_probe: MinRttProbe,
    baseline_loss: f64,
}

impl Cwnd {
    pub(super) fn new(now: Instant) -> Cwnd {
        Cwnd {
            gain: 1.0,
            slow_start: Some(SlowStart::default()),
            slow_start_ended: now,
            queue: QUEUE,
            round: Round { since: now, ..Round::default() },
            min_rtt_probe: MinRttProbe { until: None, last: now },
            baseline_loss: 0.0,
        }
    }

    /// The congestion window, in bytes.
    pub(super) fn bytes(&self, rate: &DeliveryRate, rtt: &Rtt) -> f64 {
        let slow_start_bytes = self
            .slow_start
            .as_ref()
            .map_or(0.0, |slow_start| INITIAL_CWND_BYTES + slow_start.acknowledged_bytes as f64);
        let measured = rate.bytes_s().zip(rtt.unqueued()).map(|(rate, rtt)| self.measured_bytes(rate, rtt));
        measured.unwrap_or(INITIAL_CWND_BYTES).max(slow_start_bytes).min(MAX_CWND_BYTES)
    }

    fn measured_bytes(&self, rate: f64, feedback: Duration) -> f64 {
        let delivered = rate * feedback.as_secs_f64();
        let bytes = match self.in_min_rtt_probe() {
            true => delivered * 0.8,
            false => delivered * self.gain + self.queue_bytes(rate),
        };
        bytes.max(QUEUE_PACKETS * PACKET_BYTES)
    }

    fn queue_bytes(&self, rate: f64) -> f64 {
        (rate * self.queue.as_secs_f64()).max(QUEUE_PACKETS * PACKET_BYTES)
    }

    /// Pacing rate, in bytes/s. It lets the smallest window pass in an RTT: a packet for each RTT would not show that a
    /// path that was almost down has recovered.
    pub(super) fn pacing_bytes_s(&self, rate: &DeliveryRate, rtt: &Rtt) -> Option<f64> {
        let per_rtt = |bytes: f64| rtt.min.map(|min_rtt| bytes / min_rtt.max(FEEDBACK_DELAY).as_secs_f64());
        if let (Some(_), Some(slow_start)) = (&self.slow_start, per_rtt(self.bytes(rate, rtt))) {
            return Some(slow_start * SLOW_START_PACING_GAIN);
        }
        let least = per_rtt(QUEUE_PACKETS * PACKET_BYTES).unwrap_or_default();
        rate.bytes_s().map(|rate| (rate * PACING_GAIN * self.gain).max(least))
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.slow_start.is_some()
    }

    /// The highest share of lost packets, of those sent at `sent` and lately before, that says something about the path:
    /// slow start fills the queue until it drops packets.
    pub(super) fn plausible_loss(&self, sent: Instant) -> f64 {
        if self.in_slow_start() || sent < self.slow_start_ended { MAX_SLOW_START_LOSS } else { 1.0 }
    }

    /// Whether the window is reduced to measure the min RTT.
    pub(super) fn in_min_rtt_probe(&self) -> bool {
        self.min_rtt_probe.until.is_some()
    }

    /// Starts slow start again: the rate is no longer known.
    pub(super) fn restart_slow_start(&mut self) {
        self.slow_start = Some(SlowStart::default());
    }

    /// Ends the growth beyond rate × RTT.
    pub(super) fn reset_gain(&mut self) {
        self.gain = 1.0;
    }

    /// Records that the window limited sending.
    pub(super) fn note_full(&mut self) {
        self.round.was_full = true;
    }

    /// Whether these bytes in flight use half of the window; slow start is judged only in rounds that use it.
    pub(super) fn note_use(&mut self, bytes_in_flight: u64, rate: &DeliveryRate, rtt: &Rtt) -> bool {
        let in_flight = bytes_in_flight as f64;
        let is_used = in_flight * 2.0 >= self.bytes(rate, rtt);
        self.round.was_busy |= is_used || in_flight >= INITIAL_CWND_BYTES;
        is_used
    }

    /// Counts a packet that was delivered or lost.
    pub(super) fn on_packet(&mut self, is_lost: bool) {
        self.round.packets = self.round.packets.saturating_add(1);
        self.round.lost = self.round.lost.saturating_add(u32::from(is_lost));
    }

    /// Adds bytes acknowledged while the window is used.
    pub(super) fn grow(&mut self, bytes: u32) {
        self.slow_start.iter_mut().for_each(|slow_start| slow_start.acknowledged_bytes += u64::from(bytes));
    }

    /// Adds a measured RTT to the round.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
    }

    /// Ends the round if it is over, and adapts the window. A round with a packet train in flight is not
    /// evaluated. On a path that reorders,
    /// the lowest RTT of a round exceeds the minimum by about the jitter, without a queue.
    pub(super) fn end_round(&mut self, now: Instant, rtt: &mut Rtt, rate: &mut DeliveryRate, has_train: bool) {
        self.round.had_train |= has_train;
        if now.since(self.round.since) < rtt.smoothed().max(MIN_ROUND) {
            return;
        }
        let round = core::mem::replace(&mut self.round, Round { since: now, ..Round::default() });
        let (Some(round_min), Some(min_rtt)) = (round.min_rtt, rtt.min) else { return };
        if round.had_train {
            return;
        }
        if let Some(until) = self.min_rtt_probe.until {
            if now >= until {
                self.min_rtt_probe = MinRttProbe { until: None, last: now };
                rtt.set_min(now, round_min);
            }
            return;
        }
        let queue = round_min.saturating_sub(min_rtt + rtt.reordering_jitter());
        let target = match rate.bytes_s() {
            Some(rate) => Duration::from_secs_f64(self.queue_bytes(rate) / rate),
            None => self.queue,
        };
        let share = f64::from(round.lost) / f64::from(round.packets.max(1));
        let is_lossy = round.lost > 1 && share > LOSSY_ROUND + self.baseline_loss * 2.0;
        if !is_lossy {
            self.baseline_loss += (share - self.baseline_loss) / BASELINE_ROUNDS;
        }
        let slow_start = self.slow_start.as_mut().filter(|_| round.was_busy);
        let is_sure = round.packets >= MIN_ROUND_PACKETS;
        let (sure_share, sure_queue) = (if is_sure { share } else { 0.0 }, is_sure && queue > target);
        if slow_start.is_some_and(|slow_start| slow_start.is_over(rate.last, sure_share, sure_queue)) {
            self.slow_start = None;
            self.slow_start_ended = now;
            rate.adopt();
        }
        self.adapt(&round, queue, target, is_lossy, min_rtt);
        if queue > target * 2 || rtt.min_is_old(now) && round.was_full {
            let duration = (rtt.smoothed() + rtt.feedback_delay()) * 2;
            if now.since(self.min_rtt_probe.last) > duration * 8 {
                self.min_rtt_probe.until = Some(now + duration);
            }
        }
    }

    /// Adapts gain and target queue to the round's queue and loss.
    fn adapt(&mut self, round: &Round, queue: Duration, target: Duration, is_lossy: bool, min_rtt: Duration) {
        if is_lossy && self.gain > 1.0 {
            self.gain = 1.0;
        } else if round.was_full && queue < target / 3 && !is_lossy {
            let max_gain = 1.0 + MAX_GAIN_TIME.as_secs_f64() / min_rtt.as_secs_f64();
            self.gain = (self.gain * 1.5).min(max_gain).min(MAX_GAIN);
        } else if queue > target {
            self.gain = (self.gain * 0.8).max(1.0);
        }
        let (shorter, longer) = (self.queue * 4 / 5, self.queue * 21 / 20);
        self.queue = if is_lossy { shorter.max(QUEUE / 4) } else { longer.min(QUEUE) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::feedback::Mark;
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A window after slow start, over a path of 1.25 MB/s and a min RTT of 40 ms.
    fn measured() -> (Cwnd, Rtt, DeliveryRate) {
        let (mut cwnd, mut rtt, mut rate) = (Cwnd::new(at(0)), Rtt::default(), DeliveryRate::default());
        rtt.note(at(0), RTT);
        rate.note(at(1), at(1), Mark { us: 0, bytes: 0 }, RTT, false, Duration::ZERO);
        rate.limited = at(2);
        rate.note(at(101), at(2), Mark { us: 100_000, bytes: 125_000 }, RTT, false, Duration::ZERO);
        assert_eq!(rate.bytes_s(), Some(1.25e6));
        cwnd.slow_start = None;
        (cwnd, rtt, rate)
    }

    /// Ends a round of a full window with this RTT and this number of 100 packets lost.
    fn round(state: &mut (Cwnd, Rtt, DeliveryRate), now: Instant, rtt_ms: u64, lost: u32) {
        let (cwnd, rtt, rate) = state;
        cwnd.note_full();
        (0..100).for_each(|number| cwnd.on_packet(number < lost));
        cwnd.on_rtt(Duration::from_millis(rtt_ms));
        cwnd.end_round(now, rtt, rate, false);
    }

    #[test]
    fn slow_start_grows_by_acknowledged_bytes_up_to_the_maximum() {
        let (mut cwnd, rtt, rate) = (Cwnd::new(at(0)), Rtt::default(), DeliveryRate::default());
        assert_eq!(cwnd.bytes(&rate, &rtt), INITIAL_CWND_BYTES);
        cwnd.grow(10_000);
        assert_eq!(cwnd.bytes(&rate, &rtt), INITIAL_CWND_BYTES + 10_000.0);
        (0..100).for_each(|_| cwnd.grow(1 << 20));
        assert_eq!(cwnd.bytes(&rate, &rtt), MAX_CWND_BYTES);
    }

    /// Whether slow start has ended after a round of so many packets, with this RTT, and each second one lost or none.
    fn has_ended(packets: u32, rtt_ms: u64, is_lossy: bool, has_train: bool) -> bool {
        let (mut cwnd, mut rtt, mut rate) = (Cwnd::new(at(0)), Rtt::default(), DeliveryRate::default());
        rtt.note(at(0), RTT);
        cwnd.note_use(INITIAL_CWND_BYTES as u64, &rate, &rtt);
        (0..packets).for_each(|number| cwnd.on_packet(is_lossy && number % 2 == 0));
        cwnd.on_rtt(Duration::from_millis(rtt_ms));
        cwnd.end_round(at(10), &mut rtt, &mut rate, has_train);
        cwnd.end_round(at(50), &mut rtt, &mut rate, false);
        !cwnd.in_slow_start()
    }

    #[test]
    fn slow_start_ends_by_loss_or_a_queue_of_many_packets_and_by_no_packet_train() {
        for (rtt_ms, is_lossy) in [(40, true), (60, false)] {
            let has_ended = |packets, has_train| has_ended(packets, rtt_ms, is_lossy, has_train);
            assert_eq!([has_ended(100, false), has_ended(10, false), has_ended(100, true)], [true, false, false]);
        }
        assert!(!has_ended(100, 40, false, false));
    }

    #[test]
    fn the_window_is_rate_times_rtt_and_a_queue() {
        let (cwnd, rtt, rate) = measured();
        let bytes = 1.25e6 * 0.043 + 1.25e6 * 0.006;
        assert!((cwnd.bytes(&rate, &rtt) - bytes).abs() < 1.0, "{}", cwnd.bytes(&rate, &rtt));
        assert_eq!(cwnd.pacing_bytes_s(&rate, &rtt), Some(1.25e6 * PACING_GAIN));
    }

    #[test]
    fn a_full_window_without_queue_grows_and_a_long_queue_or_loss_ends_the_growth() {
        for (rtt_ms, lost) in [(60, 0), (40, 50)] {
            let mut state = measured();
            round(&mut state, at(100), 40, 0);
            round(&mut state, at(200), 40, 0);
            assert_eq!(state.0.gain, 1.5, "20 ms of 40");
            (3..9).for_each(|tick| round(&mut state, at(tick * 100), rtt_ms, lost));
            assert_eq!(state.0.gain, 1.0, "an RTT of {rtt_ms} ms, {lost} % lost");
        }
    }

    #[test]
    fn a_long_queue_starts_a_probe_of_the_min_rtt() {
        let mut state = measured();
        let full = state.0.bytes(&state.2, &state.1);
        round(&mut state, at(1000), 60, 0);
        assert!(state.0.in_min_rtt_probe());
        assert!(state.0.bytes(&state.2, &state.1) < full);
        round(&mut state, at(1100), 50, 0);
        assert!(!state.0.in_min_rtt_probe());
        assert_eq!(state.1.min, Some(Duration::from_millis(50)));
    }
}
