use super::*;
use crate::path::{PathId, Signal};

const MBIT: f64 = 1e6;

struct Path {
    assessor: Throttled,
    now_ms: u64,
}

impl Path {
    fn new(rat: Rat) -> Path {
        Path { assessor: Throttled::new(rat), now_ms: 0 }
    }

    fn observe(&mut self, kind: SampleKind) {
        let now = Instant::from_millis(self.now_ms);
        self.assessor.advance(now);
        self.assessor.observe(now, &Sample { path: PathId(0), kind });
        self.assessor.advance(now);
    }

    /// So many seconds at this rate, with the signal.
    fn carry(&mut self, seconds: u64, carried: Carried, rssi_dbm: f32) {
        for _ in 0..4 * seconds {
            self.now_ms += 250;
            self.observe(SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() }));
            self.observe(SampleKind::Carried(carried));
        }
    }

    fn is(&self) -> (Belief, &'static str) {
        let (belief, reason) = self.assessor.belief();
        (belief, reason.rule)
    }
}

fn full(mbit_s: f64, fastest_other_mbit_s: f64) -> Carried {
    let (bit_s, fastest_other_bit_s) = (mbit_s * MBIT, fastest_other_mbit_s * MBIT);
    let queued = Some(Duration::from_millis(5));
    Carried {
        bit_s,
        is_full: true,
        constant_for: Duration::from_secs(1),
        loss: 0.08,
        queued,
        fastest_other_bit_s,
        ..Carried::default()
    }
}

/// The same in a queue of the network.
fn shaped(mbit_s: f64, fastest_other_mbit_s: f64) -> Carried {
    Carried { loss: 0.0, queued: Some(Duration::from_millis(400)), ..full(mbit_s, fastest_other_mbit_s) }
}

#[test]
fn a_rate_that_fell_to_a_fifth_at_the_same_signal_is_a_sign() {
    let mut path = Path::new(Rat::Lte);
    path.carry(5, full(19.2, 12.0), -85.0);
    assert_eq!(path.is(), (Belief::Unknown, ""));
    path.carry(1, full(0.96, 12.0), -85.0);
    assert_eq!(path.is(), (Belief::Stalled, "throttled.fell"));
    let text = path.assessor.reason.text();
    let expected = "0.96 Mbit/s are delivered at a constant rate while more waits, 19 before, at -85 dBm as then: the \
                    network throttles it; it rests for 10 s";
    assert_eq!(text, expected);
    path.carry(1, full(0.0, 12.0), -85.0);
    assert_eq!(path.is(), (Belief::Fading, "throttled.fell"), "what waited on it is taken back");
}

#[test]
fn a_lower_rate_is_no_sign_if_the_signal_or_the_sender_explains_it_or_it_varies() {
    let explained = [
        (full(0.96, 12.0), -95.0),
        (Carried { is_full: false, constant_for: Duration::ZERO, ..full(0.96, 12.0) }, -85.0),
        (Carried { constant_for: Duration::from_millis(500), ..full(0.96, 12.0) }, -85.0),
        (full(5.0, 12.0), -85.0),
    ];
    for (carried, dbm) in explained {
        let mut path = Path::new(Rat::Lte);
        path.carry(5, full(19.2, 12.0), -85.0);
        path.carry(3, Carried { constant_for: Duration::ZERO, ..carried }, dbm);
        path.carry(5, carried, dbm);
        assert_eq!(path.is().0, Belief::Unknown, "{carried:?} {dbm}");
    }
}

#[test]
fn a_rate_with_a_queue_is_a_sign_only_if_it_stays_the_same_for_longer_than_that_of_a_radio() {
    let mut path = Path::new(Rat::Lte);
    path.carry(5, full(19.2, 12.0), -85.0);
    path.carry(5, shaped(0.96, 12.0), -85.0);
    assert_eq!(path.is().0, Belief::Unknown);
    path.carry(1, shaped(0.96, 12.0), -85.0);
    assert_eq!(path.is(), (Belief::Stalled, "throttled.fell"));
    let mut radio = Path::new(Rat::Lte);
    radio.carry(5, full(19.2, 12.0), -85.0);
    for mbit_s in [0.6, 1.0, 0.7, 1.2, 0.5, 0.8, 1.1].into_iter().cycle().take(40) {
        radio.carry(1, shaped(mbit_s, 12.0), -85.0);
    }
    assert_eq!(radio.is().0, Belief::Unknown);
}

#[test]
fn a_path_that_adds_less_than_it_holds_up_rests_though_it_never_carried_more() {
    let mut path = Path::new(Rat::Nr);
    path.carry(2, full(1.0, 12.0), -85.0);
    assert_eq!(path.is().0, Belief::Unknown, "beside 12 Mbit/s it adds something");
    path.carry(1, shaped(1.0, 123.0), -85.0);
    assert_eq!(path.is(), (Belief::Stalled, "throttled.beside"), "a queue or not");
    let mut radio = Path::new(Rat::Wifi);
    radio.carry(5, full(1.0, 123.0), -85.0);
    assert_eq!(radio.is().0, Belief::Unknown, "the signal of Wi-Fi tells");
}

#[test]
fn pauses_double_with_each_unsuccessful_trial_and_a_recovery_ends_them() {
    let mut path = Path::new(Rat::Lte);
    path.carry(5, full(19.2, 12.0), -85.0);
    path.carry(1, full(0.96, 12.0), -85.0);
    for pause_s in [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 2560] {
        assert_eq!(path.assessor.pause, Duration::from_secs(pause_s));
        assert_eq!(path.is().0, Belief::Stalled);
        path.now_ms += pause_s * 1000 - 1000;
        path.observe(SampleKind::Link { up: true });
        assert_eq!(path.is().0, Belief::Fading);
        path.now_ms += 1000;
        path.observe(SampleKind::Link { up: true });
        assert_eq!(path.is(), (Belief::Unknown, "throttled.trial"), "the interface came up meanwhile");
        path.carry(1, Carried { is_full: false, constant_for: Duration::ZERO, ..full(0.5, 12.0) }, -85.0);
        let half = Carried { is_full: false, constant_for: Duration::from_millis(500), ..full(0.96, 12.0) };
        path.carry(1, half, -85.0);
    }
    let wakeup = path.assessor.next_wakeup();
    assert!(wakeup.is_some_and(|at| at > Instant::from_millis(path.now_ms)));
    path.now_ms += 2_560_000;
    path.assessor.advance(Instant::from_millis(path.now_ms));
    assert_eq!(path.is(), (Belief::Good, "throttled.trial"));
    path.carry(1, full(18.0, 12.0), -85.0);
    assert_eq!(path.is(), (Belief::Good, "throttled.over"));
    path.carry(2, full(0.96, 12.0), -85.0);
    assert_eq!(path.assessor.pause, Duration::from_secs(10), "the volume was new, and is used up again");
}

#[test]
fn a_path_whose_radio_may_be_the_cause_is_tried_again_sooner_for_the_first_time() {
    let mut path = Path::new(Rat::Nr);
    path.carry(1, shaped(1.0, 123.0), -85.0);
    for pause_s in [2, 10, 20] {
        assert_eq!(path.assessor.pause, Duration::from_secs(pause_s));
        path.now_ms += pause_s * 1000;
        path.carry(1, shaped(1.0, 123.0), -85.0);
        assert_eq!(path.is().0, Belief::Stalled);
    }
    path.now_ms += 40_000;
    path.carry(1, shaped(8.0, 123.0), -85.0);
    assert_eq!(path.is(), (Belief::Good, "throttled.over"));
    path.carry(1, shaped(1.0, 123.0), -85.0);
    assert_eq!(path.assessor.pause, Duration::from_secs(2), "another fade");
    let mut lossy = Path::new(Rat::Nr);
    lossy.carry(1, Carried { loss: 0.0, ..full(1.0, 123.0) }, -85.0);
    assert_eq!(lossy.assessor.pause, Duration::from_secs(10), "no queue, no fade");
}

#[test]
fn a_trial_after_a_fade_is_not_judged_by_what_the_path_once_carried() {
    let mut path = Path::new(Rat::Nr);
    path.carry(5, shaped(80.0, 24.0), -85.0);
    path.carry(1, shaped(0.6, 24.0), -85.0);
    assert_eq!(path.is(), (Belief::Stalled, "throttled.beside"));
    path.now_ms += 2000;
    path.carry(1, Carried { constant_for: Duration::from_millis(250), ..shaped(0.6, 24.0) }, -85.0);
    assert_eq!(path.is(), (Belief::Good, "throttled.trial"), "another dip");
    path.carry(1, shaped(1.1, 24.0), -85.0);
    assert_eq!(path.is(), (Belief::Good, "throttled.trial"), "less than a fifth of 80, and more than before");
    path.carry(1, shaped(0.7, 24.0), -85.0);
    assert_eq!(path.is(), (Belief::Stalled, "throttled.beside"));
    let mut policed = Path::new(Rat::Nr);
    policed.carry(5, full(80.0, 24.0), -85.0);
    policed.carry(1, full(0.6, 24.0), -85.0);
    policed.now_ms += 10_000;
    policed.carry(1, Carried { constant_for: Duration::from_millis(250), ..full(1.1, 24.0) }, -85.0);
    assert_eq!(policed.is(), (Belief::Stalled, "throttled.fell"), "the network throttles it");
}

#[test]
fn what_was_received_says_nothing_of_what_is_sent() {
    for (received_share, is) in [(0.01, "throttled.fell"), (0.99, "")] {
        let mut path = Path::new(Rat::Lte);
        path.carry(5, Carried { received_share: Some(received_share), ..full(19.2, 0.0) }, -85.0);
        path.carry(2, Carried { received_share: Some(0.01), ..full(0.96, 0.0) }, -85.0);
        assert_eq!(path.is().1, is, "{received_share}");
    }
}
