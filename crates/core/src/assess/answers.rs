//! What comes back over a path's interface, whomever it is for.
//!
//! A peer may keep the acknowledgements of one subflow back for tens of
//! milliseconds. Where many subflows carry, something comes back all the time: that
//! nothing does while more is sent tells sooner that the path is lost than any of
//! them can. How long it may take is learnt from the pauses before, as long as the
//! interface never falls idle.

use crate::path::Counters;
use crate::time::{Duration, Instant};

/// So many subflows that wait for acknowledgements, and so many packets sent, make a
/// silence mean something: with fewer there are pauses.
pub const CROWD: usize = 8;
/// The longest pause is that of so many answers and of as many before.
const SPAN: u32 = 64;
/// Beyond the longest pause and an eighth of it, so much is waited.
const MARGIN: Duration = Duration::from_millis(6);
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
    /// When the last answer came, and what had been sent then.
    came: Instant,
    sent: u64,
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
}

impl Answers {
    /// Takes what the counters say now.
    pub fn watch(&mut self, now: Instant, counters: Counters) -> Option<Unanswered> {
        let last = core::mem::replace(&mut self.last, counters);
        let looked = core::mem::replace(&mut self.looked, now);
        if counters.received != last.received {
            self.come(now, looked, counters.sent);
            return None;
        }
        self.silent = if now.since(looked) > APART { 0 } else { self.silent + 1 };
        self.idle = if counters.sent == last.sent { self.idle + 1 } else { 0 };
        if self.idle >= LOOKS {
            self.forget();
        }
        let (waited, sent) = (now.since(self.came), counters.sent.saturating_sub(self.sent));
        let ripe = self.silent >= LOOKS && sent >= CROWD as u64;
        self.patience().filter(|patience| ripe && waited > *patience).map(|patience| Unanswered { waited, patience })
    }

    /// The pauses so far tell nothing of those to come.
    pub fn forget(&mut self) {
        *self = Answers {
            last: self.last,
            looked: self.looked,
            came: self.looked,
            least: self.least,
            ..Answers::default()
        };
    }

    /// Something came after all, though nothing had for so long.
    pub fn was_wrong(&mut self, waited: Duration) {
        self.least = self.least.max(waited * 2);
    }

    /// Nothing had come until it was looked before; when it came since is not known,
    /// and a look that came late tells nothing of the path.
    fn come(&mut self, now: Instant, looked: Instant, sent: u64) {
        let [current, _] = &mut self.spans;
        current.longest = current.longest.max(looked.since(self.came));
        current.answers += 1;
        if current.answers > SPAN {
            self.spans = [Span { answers: 1, ..Span::default() }, *current];
        }
        (self.came, self.sent, self.silent, self.idle) = (now, sent, 0, 0);
    }

    fn patience(&self) -> Option<Duration> {
        let [current, before] = self.spans;
        let learnt = current.longest.max(before.longest) * 9 / 8 + MARGIN;
        (before.answers > 0).then(|| learnt.max(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each 3 ms at an interface over which something goes each time and what
    /// `comes` says comes; when it was found unanswered first.
    fn watch(answers: &mut Answers, from: u64, to: u64, comes: impl Fn(u64) -> u64) -> Option<u64> {
        let mut looks = (from..to).step_by(3);
        looks.find(|&ms| {
            let counters = Counters { received: comes(ms), sent: ms * 5 };
            answers.watch(Instant::from_millis(ms), counters).is_some()
        })
    }

    #[test]
    fn a_silence_is_seen_soon_and_no_pause_like_those_before() {
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 3000, |ms| ms), None);
        let found = watch(&mut answers, 3000, 3100, |_| 0).unwrap();
        assert!((3009..=3024).contains(&found), "{found}");
        // An answer each 30 ms.
        let mut answers = Answers::default();
        assert_eq!(watch(&mut answers, 0, 9000, |ms| ms / 30), None);
        assert!(watch(&mut answers, 9000, 9200, |_| 300).is_some_and(|found| found > 9036));
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
        assert!(rest.all(|ms| answers.watch(Instant::from_millis(ms), last).is_none()));
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
