//! Answers over a path's interface, of all sockets.
//!
//! A peer may delay the acknowledgements of one subflow for tens of milliseconds. With
//! many active subflows, something returns all the time: if nothing does while more is
//! sent, the path is lost, which is detected sooner than on any single subflow. The
//! allowed pause is learned from earlier ones, as long as the interface never falls
//! idle. Packets sent less than an RTT ago do not count as missing: after an idle
//! period, their answers are still in flight.

use alloc::collections::VecDeque;

use crate::path::Counters;
use crate::time::{Duration, Instant};

/// Minimum number of subflows that wait for acknowledgements, and of packets sent more
/// than an RTT ago, for a silence to count; with fewer, there are pauses.
pub const CROWD: usize = 8;
/// Minimum number of answers from which the allowed pause is learned.
const MIN_ANSWERS: u32 = 64;
/// The longest pause is taken over this many answers, and as many before.
const SPAN_ANSWERS: u32 = 128;
/// Maximum number of samples kept; a longer RTT is replaced by the time that they span.
const MAX_SAMPLES: usize = 256;
/// Added to 9/8 of the longest pause.
const MARGIN: Duration = Duration::from_millis(4);
/// The timeout is at least this many mean packet intervals: if packets were
/// independent, one pause in 10^10 would be as long.
const MIN_INTERVALS: u32 = 24;
/// Minimum number of consecutive samples without an answer since samples were last
/// [`MAX_SAMPLE_GAP`] apart: after a CPU stall, what arrived meanwhile is counted late.
const MIN_SILENT_SAMPLES: u32 = 3;
const MAX_SAMPLE_GAP: Duration = Duration::from_millis(15);

/// Packets were sent and nothing returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unanswered {
    /// Time without an answer.
    pub waited: Duration,
    /// The time allowed.
    pub timeout: Duration,
}

/// Observes the counters of one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    last: Counters,
    sampled: Instant,
    /// Packets sent at each sample of the last RTT; packets sent before it (`due`), and
    /// sent when the last answer arrived (`answered`).
    before: VecDeque<(Instant, u64)>,
    due: u64,
    answered: u64,
    /// `None` after an idle period: the first answer takes an RTT and is not used for
    /// learning.
    answered_at: Option<Instant>,
    /// Consecutive samples without an answer, and without a packet sent.
    silent: u32,
    idle: u32,
    spans: [Span; 2],
    /// Minimum timeout after a false positive.
    min_timeout: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    longest_pause: Duration,
    answers: u32,
    packets: u64,
    time: Duration,
}

impl Answers {
    /// Processes the counters; `rtt` is the expected time of an answer.
    pub fn watch(&mut self, now: Instant, counters: Counters, rtt: Duration) -> Option<Unanswered> {
        let last = core::mem::replace(&mut self.last, counters);
        let sampled = core::mem::replace(&mut self.sampled, now);
        self.before.push_back((now, counters.sent));
        while let Some(&(at, sent)) = self.before.front()
            && (now.since(at) >= rtt || self.before.len() > MAX_SAMPLES)
        {
            self.due = sent;
            self.before.pop_front();
        }
        if counters.received != last.received {
            self.on_answer(now, sampled, counters.received.saturating_sub(last.received));
            return None;
        }
        self.silent = if now.since(sampled) > MAX_SAMPLE_GAP { 0 } else { self.silent + 1 };
        self.idle = if counters.sent == last.sent { self.idle + 1 } else { 0 };
        if self.idle >= MIN_SILENT_SAMPLES {
            self.reset();
        }
        let (waited, missed) = (now.since(self.answered_at?), self.due.saturating_sub(self.answered));
        let is_silent = self.silent >= MIN_SILENT_SAMPLES && missed >= CROWD as u64;
        self.timeout().filter(|timeout| is_silent && waited > *timeout).map(|timeout| Unanswered { waited, timeout })
    }

    /// Discards the pauses so far, which say nothing about later ones.
    pub fn reset(&mut self) {
        (self.answered_at, self.silent, self.idle, self.spans) = (None, 0, 0, Default::default());
    }

    /// An answer arrived after this time: the alarm was a false positive.
    pub fn on_false_positive(&mut self, waited: Duration) {
        self.min_timeout = self.min_timeout.max(waited * 2);
    }

    /// No answer had arrived at the previous sample; when it arrived since then is
    /// unknown, and a late sample says nothing about the path.
    fn on_answer(&mut self, now: Instant, sampled: Instant, packets: u64) {
        (self.answered, self.silent, self.idle) = (self.due, 0, 0);
        let Some(answered_at) = self.answered_at.replace(now) else { return };
        let [current, _] = &mut self.spans;
        current.longest_pause = current.longest_pause.max(sampled.since(answered_at));
        current.answers += 1;
        current.packets += packets;
        current.time += now.since(answered_at);
        if current.answers >= SPAN_ANSWERS {
            self.spans = [Span::default(), *current];
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let [current, before] = self.spans;
        let packets = u32::try_from(current.packets + before.packets).unwrap_or(u32::MAX).max(1);
        let interval = (current.time + before.time) / packets;
        let learned = current.longest_pause.max(before.longest_pause) * 9 / 8 + MARGIN;
        let timeout = learned.max(interval * MIN_INTERVALS).max(self.min_timeout);
        (current.answers.max(before.answers) >= MIN_ANSWERS).then_some(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    /// Samples each 3 ms an interface that sends all the time and receives `comes`
    /// packets; returns when it was first found unanswered, in ms.
    fn watch(answers: &mut Answers, from: u64, to: u64, comes: impl Fn(u64) -> u64) -> Option<u64> {
        let mut samples = (from..to).step_by(3);
        samples.find(|&ms| {
            let counters = Counters { received: comes(ms), sent: ms * 5 };
            answers.watch(Instant::from_millis(ms), counters, RTT).is_some()
        })
    }

    #[test]
    fn a_silence_is_detected_soon_but_no_pause_like_earlier_ones() {
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 3000, |ms| ms * 4), None);
        let found = watch(&mut answers, 3000, 3100, |_| 0).unwrap();
        assert!((3009..=3024).contains(&found), "{found}");
        // An answer every 30 ms.
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 9000, |ms| ms / 30), None);
        assert!(watch(&mut answers, 9000, 9800, |_| 300).is_some_and(|found| found > 9036));
    }

    #[test]
    fn sparse_packets_get_a_longer_timeout() {
        let found = |each_ms: u64| {
            let mut answers = Answers::default();
            assert_eq!(watch(&mut answers, 0, 3000, |ms| ms / each_ms), None);
            watch(&mut answers, 3000, 3400, |_| 2999 / each_ms).unwrap() - 3000
        };
        assert!([2, 4, 6].map(|each_ms| found(each_ms) / each_ms).iter().all(|packets| (22..=26).contains(packets)));
    }

    #[test]
    fn a_pause_of_half_a_second_ago_still_counts() {
        let comes = |ms: u64| 4 * if (400..440).contains(&ms) { 400 } else { ms };
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 800, comes), Some(411), "the first such pause");
        answers = Answers::default();
        for ms in (0..800).step_by(3) {
            let counters = Counters { received: comes(ms), sent: ms * 5 };
            answers.watch(Instant::from_millis(ms), counters, RTT);
        }
        let found = watch(&mut answers, 800, 900, |_| 4 * 798).unwrap();
        assert!((840..860).contains(&found), "{found}");
    }

    #[test]
    fn packets_sent_less_than_an_rtt_ago_do_not_count_as_missing() {
        let silent_after = |rtt: u64| {
            let mut answers = Answers::default();
            let mut samples = (0..1300u64).step_by(3);
            samples.find(|&ms| {
                // First little is sent, then much.
                let sent = ms / 8 + ms.saturating_sub(1000) * 5;
                let counters = Counters { received: 2 * ms.min(1000), sent };
                answers.watch(Instant::from_millis(ms), counters, Duration::from_millis(rtt)).is_some()
            })
        };
        let found = [1, 60].map(silent_after);
        assert!(matches!(found, [Some(1009..1024), Some(1054..1070)]), "{found:?}");
    }

    #[test]
    fn few_answers_and_those_before_an_idle_period_are_not_used() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 90, |ms| ms);
        assert_eq!(watch(&mut answers, 90, 900, |_| 0), None);
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        let last = Counters { received: 2997, sent: 2998 * 5 };
        let mut idle = (3000..3500).step_by(3);
        assert!(idle.all(|ms| answers.watch(Instant::from_millis(ms), last, RTT / 5).is_none()));
        assert_eq!(watch(&mut answers, 3501, 3600, |_| 2997), None, "after an idle period it waits for an RTT");
    }

    #[test]
    fn a_pause_that_caused_a_false_positive_causes_no_other() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        assert!(watch(&mut answers, 3000, 3040, |_| 0).is_some());
        answers.on_false_positive(Duration::from_millis(20));
        watch(&mut answers, 3040, 6000, |ms| ms);
        assert_eq!(watch(&mut answers, 6000, 6036, |_| 0), None);
    }

    #[test]
    fn a_cpu_stall_is_not_taken_for_a_pause_of_the_path() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        watch(&mut answers, 3000, 3003, |_| 2997);
        // No sample for 200 ms; what arrived meanwhile is counted late.
        assert_eq!(watch(&mut answers, 3200, 3206, |_| 2997), None);
        assert_eq!(watch(&mut answers, 3206, 3300, |ms| ms), None);
    }
}
