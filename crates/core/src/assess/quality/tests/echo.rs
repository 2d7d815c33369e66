//! What echo requests over a path that carries nothing show.

use super::*;
use crate::path::Echo;

/// A reserve that carries nothing and is probed each 200 ms.
struct Reserve(Drive);

impl Reserve {
    fn new(late_ms: u64) -> Reserve {
        let mut drive = Drive::new(Rat::Lte, late_ms);
        drive.transport.backup = true;
        drive.step(0);
        Reserve(drive)
    }

    fn echo(&mut self, waiting_since: Option<Instant>, rtt_ms: Option<u64>) {
        self.0.observe(SampleKind::Echo(Echo { waiting_since, rtt: rtt_ms.map(Duration::from_millis) }));
    }

    /// Requests that are answered after this time.
    fn answered(&mut self, number: u32, rtt_ms: u64) {
        for _ in 0..number {
            let sent = self.0.now;
            self.echo(Some(sent), None);
            self.advance(rtt_ms.min(200));
            self.echo(None, Some(rtt_ms));
            self.advance(200_u64.saturating_sub(rtt_ms));
        }
    }

    /// A request that is not answered.
    fn unanswered(&mut self) {
        let sent = self.0.now;
        self.echo(Some(sent), None);
    }

    fn advance(&mut self, ms: u64) {
        let end = self.0.now + Duration::from_millis(ms);
        while let Some(at) = self.0.quality.next_wakeup().filter(|at| *at <= end) {
            assert!(at > self.0.now, "it would be asked for ever");
            self.0.now = at;
            self.0.quality.advance(at);
        }
        self.0.now = end;
        self.0.quality.advance(end);
    }
}

#[test]
fn a_reserve_whose_echo_requests_are_not_answered_is_not_good_until_one_is_in_time() {
    let mut reserve = Reserve::new(100);
    reserve.answered(5, 40);
    assert_eq!(reserve.0.is(), (Belief::Good, "quality.link-up"));
    reserve.unanswered();
    reserve.advance(99);
    assert_eq!(reserve.0.is().0, Belief::Good);
    reserve.advance(1);
    assert_eq!(reserve.0.is(), (Belief::Fading, "quality.echo"));
    let (_, reason) = reserve.0.quality.belief();
    assert_eq!(reason.text(), "an echo request is not answered for 100 ms, 100 ms allowed");
    assert_eq!(*reason.inputs, [("echo_ms", 100.0), ("limit_ms", 100.0)]);
    reserve.advance(60_000);
    assert_eq!(reserve.0.is().0, Belief::Fading, "no pause makes it good");
    reserve.answered(1, 40);
    assert_eq!(reserve.0.is(), (Belief::Good, "quality.return"));
}

#[test]
fn a_reserve_whose_echo_requests_are_answered_late_is_not_good() {
    let mut reserve = Reserve::new(100);
    reserve.answered(5, 40);
    reserve.answered(1, 150);
    assert_eq!(reserve.0.is(), (Belief::Fading, "quality.echo"));
    reserve.answered(5, 150);
    assert_eq!(reserve.0.is().0, Belief::Fading);
    let mut far = Reserve::new(100);
    far.answered(5, 150);
    assert_eq!(far.0.is().0, Belief::Good, "a long RTT is no sign if it is the usual one");
}

#[test]
fn an_address_that_never_answered_is_no_sign() {
    let mut reserve = Reserve::new(100);
    for _ in 0..1000 {
        reserve.unanswered();
        reserve.advance(200);
    }
    assert_eq!(reserve.0.is(), (Belief::Good, "quality.link-up"));
    assert_eq!(reserve.0.quality.next_wakeup(), None);
}

#[test]
fn a_reserve_of_which_nothing_was_received_for_a_minute_is_not_good() {
    let mut reserve = Reserve::new(100);
    reserve.answered(5, 40);
    reserve.advance(59_000);
    assert_eq!(reserve.0.is().0, Belief::Good);
    reserve.advance(1000);
    assert_eq!(reserve.0.is(), (Belief::Fading, "quality.silent"));
    let mut without = Reserve::new(100);
    without.advance(600_000);
    assert_eq!(without.0.is().0, Belief::Good, "nothing is known of it without requests");
}

#[test]
fn a_path_that_was_left_returns_when_echo_requests_are_answered_in_time() {
    for (rtt_ms, is) in [(40, Belief::Good), (150, Belief::Fading)] {
        let mut reserve = Reserve::new(100);
        reserve.answered(1, 40);
        reserve.0.transport.backup = false;
        reserve.0.messages(5000, 40);
        while reserve.0.is().0 == Belief::Good {
            reserve.0.messages(20, 110);
        }
        assert_eq!(reserve.0.is(), (Belief::Fading, "quality.rtt"));
        reserve.0.transport.backup = true;
        reserve.advance(100);
        reserve.answered(3, rtt_ms);
        assert_eq!(reserve.0.is().0, is, "{rtt_ms} ms");
        reserve.answered(20, rtt_ms);
        assert_eq!(reserve.0.is().0, is, "{rtt_ms} ms: no pause makes it good");
    }
}

#[test]
fn data_in_time_over_a_path_shows_that_requests_without_an_answer_mean_nothing() {
    let mut reserve = Reserve::new(100);
    reserve.answered(5, 40);
    reserve.unanswered();
    reserve.advance(500);
    assert_eq!(reserve.0.is(), (Belief::Fading, "quality.echo"));
    reserve.0.transport.backup = false;
    reserve.0.messages(1000, 40);
    assert_eq!(reserve.0.is(), (Belief::Good, "quality.proof"));
    reserve.0.transport.backup = true;
    for _ in 0..10 {
        reserve.unanswered();
        reserve.advance(200);
    }
    assert_eq!(reserve.0.is().0, Belief::Good, "the address does not answer any more");
}
