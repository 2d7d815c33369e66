//! What comes back over a path's interface, whomever it is for.
//!
//! A peer may keep the acknowledgements of one subflow back for tens of
//! milliseconds. Where many subflows carry, something comes back all the time: that
//! nothing does while more is sent tells sooner that the path is lost than any of
//! them can. How long it may take is learnt from the pauses before, as long as the
//! interface never falls idle. What was sent less than a round trip ago is not missed:
//! after a lull its answers are still on their way.

use alloc::collections::VecDeque;

use crate::path::Counters;
use crate::time::{Duration, Instant};

/// So many subflows that wait for acknowledgements, and so many packets sent a round
/// trip ago, make a silence mean something: with fewer there are pauses.
pub const CROWD: usize = 8;
/// So many answers teach how long they may take.
const FEW: u32 = 64;
/// The longest pause is that of so many answers and of as many before.
const SPAN: u32 = 128;
/// Looks remembered: round trips longer than what they span are taken for that long.
const LOOKS_BEFORE: usize = 256;
/// Beyond the longest pause and an eighth of it, so much is waited;
const MARGIN: Duration = Duration::from_millis(4);
/// and no less than so many packets took to come: were they independent of each other,
/// one pause in 10^10 would be as long.
const PACKETS: u32 = 24;
/// So many looks in a row must have found nothing since looks were last so far
/// apart: after a pause of this machine what came meanwhile is counted late.
const LOOKS: u32 = 3;
const APART: Duration = Duration::from_millis(15);

/// Something was sent and nothing came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unanswered {
    /// How long nothing has come.
    pub waited: Duration,
    /// How long it might have taken.
    pub patience: Duration,
}

/// Watches the counters of one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    last: Counters,
    looked: Instant,
    /// What had been sent at the looks of the last round trip; before it, and when the
    /// last answer came.
    before: VecDeque<(Instant, u64)>,
    due: u64,
    answered: u64,
    /// `None` after a lull: the first answer takes a round trip, which teaches nothing.
    came: Option<Instant>,
    /// Looks in a row at which nothing had come; nor gone.
    silent: u32,
    idle: u32,
    spans: [Span; 2],
    /// After a wrong alarm: the least that is waited.
    least: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    longest: Duration,
    answers: u32,
    packets: u64,
    time: Duration,
}

impl Answers {
    /// Takes what the counters say now; `rtt` is how long an answer takes.
    pub fn watch(&mut self, now: Instant, counters: Counters, rtt: Duration) -> Option<Unanswered> {
        let last = core::mem::replace(&mut self.last, counters);
        let looked = core::mem::replace(&mut self.looked, now);
        self.before.push_back((now, counters.sent));
        while let Some(&(at, sent)) = self.before.front()
            && (now.since(at) >= rtt || self.before.len() > LOOKS_BEFORE)
        {
            self.due = sent;
            self.before.pop_front();
        }
        if counters.received != last.received {
            self.come(now, looked, counters.received.saturating_sub(last.received));
            return None;
        }
        self.silent = if now.since(looked) > APART { 0 } else { self.silent + 1 };
        self.idle = if counters.sent == last.sent { self.idle + 1 } else { 0 };
        if self.idle >= LOOKS {
            self.forget();
        }
        let (waited, missed) = (now.since(self.came?), self.due.saturating_sub(self.answered));
        let ripe = self.silent >= LOOKS && missed >= CROWD as u64;
        self.patience().filter(|patience| ripe && waited > *patience).map(|patience| Unanswered { waited, patience })
    }

    /// The pauses so far tell nothing of those to come.
    pub fn forget(&mut self) {
        (self.came, self.silent, self.idle, self.spans) = (None, 0, 0, Default::default());
    }

    /// Something came after all, though nothing had for so long.
    pub fn was_wrong(&mut self, waited: Duration) {
        self.least = self.least.max(waited * 2);
    }

    /// Nothing had come until it was looked before; when it came since is not known,
    /// and a look that came late tells nothing of the path.
    fn come(&mut self, now: Instant, looked: Instant, packets: u64) {
        (self.answered, self.silent, self.idle) = (self.due, 0, 0);
        let Some(came) = self.came.replace(now) else { return };
        let [current, _] = &mut self.spans;
        current.longest = current.longest.max(looked.since(came));
        current.answers += 1;
        current.packets += packets;
        current.time += now.since(came);
        if current.answers >= SPAN {
            self.spans = [Span::default(), *current];
        }
    }

    fn patience(&self) -> Option<Duration> {
        let [current, before] = self.spans;
        let packets = u32::try_from(current.packets + before.packets).unwrap_or(u32::MAX).max(1);
        let apart = (current.time + before.time) / packets;
        let learnt = current.longest.max(before.longest) * 9 / 8 + MARGIN;
        let patience = learnt.max(apart * PACKETS).max(self.least);
        (current.answers.max(before.answers) >= FEW).then_some(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    /// Looks each 3 ms at an interface over which something goes each time and what
    /// `comes` says comes; when it was found unanswered first.
    fn watch(answers: &mut Answers, from: u64, to: u64, comes: impl Fn(u64) -> u64) -> Option<u64> {
        let mut looks = (from..to).step_by(3);
        looks.find(|&ms| {
            let counters = Counters { received: comes(ms), sent: ms * 5 };
            answers.watch(Instant::from_millis(ms), counters, RTT).is_some()
        })
    }

    #[test]
    fn a_silence_is_seen_soon_and_no_pause_like_those_before() {
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 3000, |ms| ms * 4), None);
        let found = watch(&mut answers, 3000, 3100, |_| 0).unwrap();
        assert!((3009..=3024).contains(&found), "{found}");
        // An answer each 30 ms.
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 9000, |ms| ms / 30), None);
        assert!(watch(&mut answers, 9000, 9800, |_| 300).is_some_and(|found| found > 9036));
    }

    #[test]
    fn packets_that_come_far_apart_are_waited_for_longer() {
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
    fn what_was_sent_less_than_a_round_trip_ago_is_not_missed() {
        let silent_after = |rtt: u64| {
            let mut answers = Answers::default();
            let mut looks = (0..1300u64).step_by(3);
            looks.find(|&ms| {
                // Little is sent, and then much.
                let sent = ms / 8 + ms.saturating_sub(1000) * 5;
                let counters = Counters { received: 2 * ms.min(1000), sent };
                answers.watch(Instant::from_millis(ms), counters, Duration::from_millis(rtt)).is_some()
            })
        };
        let found = [1, 60].map(silent_after);
        assert!(matches!(found, [Some(1009..1024), Some(1054..1070)]), "{found:?}");
    }

    #[test]
    fn few_answers_teach_nothing_nor_do_those_before_a_rest() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 90, |ms| ms);
        assert_eq!(watch(&mut answers, 90, 900, |_| 0), None);
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        let last = Counters { received: 2997, sent: 2998 * 5 };
        let mut rest = (3000..3500).step_by(3);
        assert!(rest.all(|ms| answers.watch(Instant::from_millis(ms), last, RTT / 5).is_none()));
        assert_eq!(watch(&mut answers, 3501, 3600, |_| 2997), None, "who begins anew waits for a round trip");
    }

    #[test]
    fn a_pause_that_gave_a_wrong_alarm_gives_no_other() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        assert!(watch(&mut answers, 3000, 3040, |_| 0).is_some());
        answers.was_wrong(Duration::from_millis(20));
        watch(&mut answers, 3040, 6000, |ms| ms);
        assert_eq!(watch(&mut answers, 6000, 6036, |_| 0), None);
    }

    #[test]
    fn a_pause_of_this_machine_is_none_of_the_path() {
        let mut answers = Answers::default();
        watch(&mut answers, 0, 3000, |ms| ms);
        watch(&mut answers, 3000, 3003, |_| 2997);
        // Nobody looked for 200 ms, and what came then is counted late.
        assert_eq!(watch(&mut answers, 3200, 3206, |_| 2997), None);
        assert_eq!(watch(&mut answers, 3206, 3300, |ms| ms), None);
    }
}
