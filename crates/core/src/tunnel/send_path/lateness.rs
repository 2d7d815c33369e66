//! Whether the answers of a path come late, against what is usual for it and what its user calls late (mode adaptive).
//!
//! A path whose answer is late is doubted: another path carries. Once it answers in time it is tried by copies before it
//! carries again, after a pause that grows if it is soon doubted again.

use super::SendPath;
use crate::time::{Duration, Instant};

/// An answer is late beyond this multiple of the usual RTT.
const LATE: f64 = 1.3;
/// And in any case beyond this multiple of the user's limit: one direction at least is late.
const CERTAIN: u32 = 2;
/// Weight of an answer in the usual RTT, and of a late one: what is usual follows a growing queue slowly.
const GAIN: f64 = 1.0 / 32.0;
const GAIN_OF_LATE: f64 = 1.0 / 256.0;
/// What counts of an RTT at most, as a multiple of the usual one.
const OUTLIER: f64 = 2.6;
/// An answer in time shows for this time that a path delivers.
const SURE: Duration = Duration::from_millis(300);
/// Number of answers in time that end a trial.
const TRIAL_ANSWERS: u8 = 10;
/// How long a path that is soon doubted again is not tried; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A path that is trusted for this long is tried at once when it is doubted again.
const LASTING: Duration = Duration::from_secs(10);

/// Trust in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Its answers have come in time since this time.
    Trusted(Instant),
    /// They do not. It is not tried before this time.
    Doubted(Instant),
    /// It carries copies; this number of answers in a row came in time, with this longest RTT.
    Tried(u8, Duration),
}

/// What another path could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Other {
    /// Its usual RTT: to doubt a path before that time helps nothing.
    pub usual: Duration,
    /// Whether it is up and not doubted itself.
    pub is_sure: bool,
    /// A packet that is later than this is as bad as lost.
    pub late: Duration,
}

/// The usual RTT of a path, and whether its answers are late.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Lateness {
    usual: Option<Duration>,
    trust: Trust,
    pause: Duration,
    /// When the last answer in time came.
    in_time: Option<Instant>,
    /// The best other path; `None` if there is none, or the mode sends no copies.
    pub(in super::super) other: Option<Other>,
    /// Until when overdue answers were looked for.
    pub(super) checked: Instant,
}

impl Lateness {
    pub(super) fn new(now: Instant) -> Lateness {
        let trust = Trust::Trusted(now);
        Lateness { usual: None, trust, pause: Duration::ZERO, in_time: None, other: None, checked: now }
    }

    /// Takes an answer, and whether it reported a loss.
    pub(super) fn note(&mut self, now: Instant, rtt: Duration, is_lossy: bool) {
        let is_late = self.other.is_some_and(|other| is_lossy || rtt > self.limit(other).max(other.late));
        let usual = self.usual.unwrap_or(rtt).as_secs_f64();
        let gain = if is_late { GAIN_OF_LATE } else { GAIN };
        let counted = rtt.as_secs_f64().min(usual * OUTLIER);
        self.usual = Some(Duration::from_secs_f64(usual + (counted - usual) * gain));
        if is_late {
            return self.doubt(now);
        }
        self.in_time = Some(now);
        self.trust = match self.trust {
            Trust::Doubted(until) if now >= until => Trust::Tried(1, rtt),
            Trust::Tried(answers, longest) if answers + 1 >= TRIAL_ANSWERS => {
                // What would have been late in the trial is not usual any more.
                self.usual = self.usual.map(|usual| usual.min(longest.max(rtt).mul_f64(LATE)));
                Trust::Trusted(now)
            }
            Trust::Tried(answers, longest) => Trust::Tried(answers + 1, longest.max(rtt)),
            Trust::Trusted(_) | Trust::Doubted(_) => self.trust,
        };
    }

    fn doubt(&mut self, now: Instant) {
        match self.trust {
            Trust::Doubted(_) => return,
            Trust::Trusted(since) if now.since(since) > LASTING => self.pause = Duration::ZERO,
            Trust::Trusted(_) | Trust::Tried(..) => self.pause = (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE),
        }
        self.trust = Trust::Doubted(now + self.pause);
    }

    /// The usual RTT.
    pub(in super::super) fn usual(&self) -> Option<Duration> {
        self.usual
    }

    /// The longest RTT that is not late beside another path.
    fn limit(&self, other: Other) -> Duration {
        let own = self.usual.unwrap_or_default().mul_f64(LATE).min(other.late * CERTAIN);
        own.max(other.usual)
    }

    /// How long to wait for the answer on a packet before it is sent again: as long as the copy would still be in
    /// time. `None` if no other path is sure to do better.
    fn repeat_after(&self) -> Option<Duration> {
        let other = self.other.filter(|other| other.is_sure)?;
        Some(self.limit(other).max(other.late.saturating_sub(other.usual / 2)))
    }

    /// Whether an answer in time came lately.
    pub(in super::super) fn is_sure(&self, now: Instant) -> bool {
        self.in_time.is_some_and(|at| now.since(at) < SURE)
    }

    /// Whether it carries copies to show that it delivers: as long as they are answered in time.
    pub(in super::super) fn is_tried(&self, now: Instant) -> bool {
        matches!(self.trust, Trust::Tried(..)) && self.is_sure(now)
    }

    /// Whether its last answers were late or reported a loss, and another path could carry instead.
    pub(super) fn is_doubted(&self) -> bool {
        self.other.is_some() && !matches!(self.trust, Trust::Trusted(_))
    }
}

impl<P> SendPath<P> {
    /// How long after a packet was sent it is sent again if there is no answer; `None` if no other path would do better.
    pub(in super::super) fn repeat_after(&self) -> Option<Duration> {
        Some(self.lateness.repeat_after()? + self.rtt.feedback_delay() * 3)
    }

    /// Whether an answer is overdue, or the last ones were late or reported a loss, and another path could carry.
    pub(in super::super) fn is_doubted(&self, now: Instant) -> bool {
        let overdue = self.repeat_after().zip(self.in_flight.oldest_timed_from()).map(|(after, from)| from + after);
        self.lateness.is_doubted() || overdue.is_some_and(|at| now >= at)
    }

    /// When the next packet of which a copy is kept is to be sent again.
    pub(super) fn next_repeat(&self) -> Option<Instant> {
        let after = self.repeat_after()?;
        let at = self.in_flight.oldest_kept_timed_from()? + after;
        (at > self.lateness.checked).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const OTHER: Other = Other { usual: Duration::from_millis(50), is_sure: true, late: Duration::from_millis(100) };

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A path that has answered within 80 ms for 20 s.
    fn usual_80() -> Lateness {
        let mut lateness = Lateness::new(at(0));
        lateness.other = Some(OTHER);
        (0..1000).for_each(|answer| lateness.note(at(answer * 20), MS * 80, false));
        lateness
    }

    #[test]
    fn a_late_answer_raises_doubt_and_ten_in_time_end_it() {
        let mut lateness = usual_80();
        lateness.note(at(20_000), MS * 100, false);
        assert!(!lateness.is_doubted(), "the message was in time");
        lateness.note(at(20_020), MS * 120, false);
        assert!(lateness.is_doubted());
        (0..9).for_each(|answer| lateness.note(at(20_040 + answer * 20), MS * 80, false));
        assert!(lateness.is_doubted());
        lateness.note(at(20_300), MS * 80, false);
        assert!(!lateness.is_doubted());
    }

    #[test]
    fn a_loss_raises_doubt() {
        let mut lateness = usual_80();
        lateness.note(at(20_000), MS * 80, true);
        assert!(lateness.is_doubted());
    }

    #[test]
    fn the_pause_before_a_trial_grows_with_vain_returns() {
        let (mut lateness, mut now) = (usual_80(), 20_000);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            lateness.note(at(now), MS * 500, false);
            let begins = |ms: &u64| {
                let (mut answered, now) = (lateness, at(now + ms));
                answered.note(now, MS * 80, false);
                answered.is_tried(now)
            };
            let first = (0..).find(begins).unwrap_or_default();
            pauses.push(first);
            now += first;
            (0..10).for_each(|answer| lateness.note(at(now + answer * 20), MS * 80, false));
            now += 300;
            assert!(!lateness.is_doubted());
        }
        assert_eq!(pauses, [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn a_path_carries_copies_only_while_its_answers_come_in_time() {
        let mut lateness = usual_80();
        lateness.note(at(20_000), MS * 120, false);
        assert!(!lateness.is_tried(at(20_010)), "its last answer was late");
        lateness.note(at(20_020), MS * 80, false);
        assert!(lateness.is_tried(at(20_319)));
        assert!(!lateness.is_tried(at(20_320)), "no answer for 300 ms");
    }

    #[test]
    fn what_was_usual_in_a_hole_is_not_after_a_trial() {
        let mut lateness = Lateness::new(at(0));
        lateness.other = Some(OTHER);
        lateness.note(at(3000), MS * 3000, false);
        assert_eq!(lateness.usual(), Some(MS * 3000));
        let answers = (0..10).map(|answer| (at(3500 + u64::from(answer) * 20), MS * (70 - answer)));
        answers.for_each(|(now, rtt)| lateness.note(now, rtt, false));
        assert!(!lateness.is_doubted());
        assert_eq!(lateness.usual(), Some(MS * 91), "1.3 times the longest RTT of the trial");
    }

    #[test]
    fn a_copy_is_sent_when_it_would_just_be_in_time() {
        let mut lateness = usual_80();
        assert_eq!(lateness.repeat_after().map(|after| after.as_millis()), Some(104), "1.3 times 80 ms");
        lateness.other = Some(Other { late: MS * 300, ..OTHER });
        assert_eq!(lateness.repeat_after(), Some(MS * 275), "25 ms before it is late");
        lateness.other = Some(Other { usual: MS * 200, ..OTHER });
        assert_eq!(lateness.repeat_after(), Some(MS * 200), "the other path is no faster");
        lateness.other = Some(Other { is_sure: false, ..OTHER });
        assert_eq!(lateness.repeat_after(), None);
    }

    #[test]
    fn a_path_that_becomes_slow_stays_doubted() {
        let (mut lateness, mut now) = (usual_80(), 20_000);
        for _ in 0..10_000 {
            lateness.note(at(now), MS * 400, false);
            now += 100;
        }
        assert!(lateness.is_doubted(), "{:?} is usual", lateness.usual());
        lateness.other = None;
        assert!(!lateness.is_doubted(), "there is no other path");
    }
}
