use super::*;
use crate::path::{Carried, PathId, Signal};
use alloc::vec::Vec;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn cam() -> Sample {
    Sample {
        path: PathId(0),
        kind: SampleKind::Signal(Signal { rssi_dbm: -70.0, station: Some(1), ..Signal::default() }),
    }
}

fn transport(unacked: u32, delivered: u32) -> Sample {
    let rtt = Duration::from_millis(10);
    let rttvar = Duration::from_millis(2);
    let kind = Transport { token: 9, rtt, rttvar, unacked, delivered, ..Transport::IDLE };
    Sample { path: PathId(0), kind: SampleKind::Transport(kind) }
}

fn receiving(until_ms: u64) -> Silence {
    let mut silence = Silence::new(Params::default());
    for ms in (0..=until_ms).step_by(100) {
        silence.advance(at(ms));
        silence.observe(at(ms), &cam());
    }
    silence
}

fn drain(silence: &mut Silence) -> Vec<Alarm> {
    let findings = core::iter::from_fn(|| silence.poll());
    findings.filter_map(|finding| if let Finding::Alarm(alarm) = finding { Some(alarm) } else { None }).collect()
}

#[test]
fn messages_that_stop_mean_loss_after_the_set_periods() {
    let mut silence = receiving(1000);
    silence.advance(at(1399));
    assert_eq!(silence.belief().0, Belief::Unknown);
    assert_eq!(silence.next_wakeup(), Some(at(1400)));
    silence.advance(at(1400));
    assert_eq!(silence.belief().0, Belief::Lost);
    silence.advance(at(2400));
    let kinds: Vec<_> = drain(&mut silence).iter().map(|alarm| alarm.false_positive).collect();
    assert_eq!(kinds, [None, Some(false)]);
    silence.observe(at(9000), &cam());
    silence.advance(at(9000));
    assert_eq!(silence.belief().0, Belief::Unknown, "the first message after a real loss ends it");
}

#[test]
fn messages_that_stop_count_only_while_the_peer_sends_if_delivery_tells_more() {
    for (received_share, is) in [(0.02, Belief::Unknown), (0.98, Belief::Lost)] {
        let mut silence = receiving(1000).with_cams_for_peer();
        let carried = Carried { received_share: Some(received_share), ..Carried::default() };
        silence.observe(at(1000), &Sample { path: PathId(0), kind: SampleKind::Carried(carried) });
        silence.advance(at(1500));
        assert_eq!(silence.belief().0, is, "{received_share}");
    }
}

#[test]
fn a_lost_message_does_not_stretch_the_period() {
    let mut silence = receiving(500);
    for ms in [700, 900] {
        silence.advance(at(ms));
        silence.observe(at(ms), &cam());
    }
    assert_eq!(silence.next_wakeup(), Some(at(1300)));
}

#[test]
fn a_pause_in_a_flood_of_messages_is_no_silence() {
    let mut silence = Silence::new(Params::default());
    (0..20).for_each(|ms| silence.observe(at(ms), &cam()));
    assert_eq!(silence.next_wakeup(), Some(at(219)), "four times the minimum period");
}

#[test]
fn with_sporadic_messages_a_silence_must_last_longer() {
    let mut silence = receiving(500);
    silence.observe(at(850), &cam());
    assert_eq!(silence.next_wakeup(), Some(at(1550)), "twice the longest pause, 350 ms");
}

#[test]
fn data_that_stays_unacknowledged_means_loss() {
    let mut silence = receiving(1000);
    for ms in (1000..1040).step_by(10) {
        silence.observe(at(ms), &transport(3, 50));
    }
    assert_eq!(silence.belief().0, Belief::Unknown, "10 + 4·2 + 20 = 38 ms are allowed");
    silence.observe(at(1040), &transport(3, 50));
    assert_eq!(silence.belief().0, Belief::Stalled);
}

#[test]
fn a_single_segment_may_be_acknowledged_late() {
    let mut silence = receiving(1000);
    silence.observe(at(1000), &transport(1, 50));
    silence.observe(at(1078), &transport(1, 50));
    assert_eq!(silence.belief().0, Belief::Unknown, "10 + 4·2 + 20 + 40 = 78 ms are allowed");
    silence.observe(at(1080), &transport(1, 50));
    assert_eq!(silence.belief().0, Belief::Stalled);
}

#[test]
fn progress_or_an_empty_flight_restarts_the_timeout() {
    let mut silence = receiving(1000);
    for step in 0..20 {
        let ms = 1000 + u64::from(step) * 30;
        silence.observe(at(ms), &transport(3, 50 + step));
    }
    silence.observe(at(1600), &transport(0, 70));
    silence.observe(at(1700), &transport(1, 70));
    assert_eq!(silence.belief().0, Belief::Unknown);
}

#[test]
fn a_message_soon_after_an_alarm_proves_it_wrong() {
    let mut silence = receiving(1000);
    silence.observe(at(1000), &transport(3, 50));
    silence.observe(at(1050), &transport(3, 50));
    silence.observe(at(1100), &cam());
    assert_eq!(silence.belief().0, Belief::Stalled, "not trusted at once");
    assert_eq!(silence.next_wakeup(), Some(at(1550)));
    silence.advance(at(1550));
    assert_eq!(silence.belief().0, Belief::Unknown);
    let false_positive: Vec<_> = drain(&mut silence).iter().map(|alarm| alarm.false_positive).collect();
    assert_eq!(false_positive, [None, Some(true)]);
}

#[test]
fn a_path_without_messages_is_tried_again_later_each_time() {
    let mut silence = Silence::new(Params::default());
    let mut waits = Vec::new();
    let mut now = at(0);
    for _ in 0..3 {
        silence.observe(now, &transport(3, 50));
        now = now + Duration::from_millis(50);
        silence.observe(now, &transport(3, 50));
        let raised = now;
        while let Some(wakeup) = silence.next_wakeup() {
            now = wakeup;
            silence.advance(now);
        }
        waits.push(now.since(raised).as_millis());
    }
    assert_eq!(waits, [1000, 2000, 4000]);
}

#[test]
fn a_down_interface_is_lost_until_it_is_up() {
    let mut silence = receiving(1000);
    let link = |up| Sample { path: PathId(0), kind: SampleKind::Link { up } };
    silence.observe(at(1010), &link(false));
    assert_eq!(silence.belief().0, Belief::Lost);
    silence.observe(at(1300), &link(true));
    silence.advance(at(1300));
    assert_eq!(silence.belief().0, Belief::Unknown);
}

/// As [`transport`], for a connection to one of several servers.
fn of(token: u32, host: u8, unacked: u32, delivered: u32) -> Sample {
    let SampleKind::Transport(common) = transport(unacked, delivered).kind else { unreachable!() };
    let kind = SampleKind::Transport(Transport { token, peer: ([10, 0, 0, host], 80).into(), ..common });
    Sample { path: PathId(0), kind }
}

/// On a lost path, backup subflows stay open, stalled ones do not.
#[test]
fn if_some_subflows_are_idle_only_those_that_wait_are_stalled() {
    for host_of_idle in [1, 2] {
        let mut silence = Silence::new(Params::default());
        for ms in (0..200).step_by(10) {
            silence.observe(at(ms), &of(1, 1, 3, 50));
            silence.observe(at(ms), &of(2, host_of_idle, 0, 7));
        }
        assert_eq!(silence.belief().0, Belief::Lost);
        let stalled: Vec<u32> =
            core::iter::from_fn(|| silence.stalls.poll_stalled()).map(|stalled| stalled.token).collect();
        assert_eq!(stalled, [1]);
    }
}

/// One server stops acknowledging, another acknowledges once a second, over the only
/// path.
#[test]
fn one_dead_server_does_not_keep_the_path_bad() {
    let mut silence = Silence::new(Params::default());
    let mut bad = 0;
    for ms in (0..60_000).step_by(10) {
        silence.advance(at(ms));
        let answered = if ms < 1000 { ms as u32 / 10 } else { 100 };
        silence.observe(at(ms), &of(1, 1, 3, answered));
        silence.observe(at(ms), &of(2, 2, 0, ms as u32 / 1000));
        bad += u32::from(silence.belief().0 > Belief::Fading);
    }
    assert!(bad < 200, "{} s of a minute", f64::from(bad) / 100.0);
    let alarms = drain(&mut silence);
    assert!(alarms.len() <= 2, "{alarms:?}");
    // The path's loss is still detected when the other server's acknowledgements are
    // missing too.
    for ms in (60_000..60_300).step_by(10) {
        silence.observe(at(ms), &of(2, 2, 3, 59));
    }
    assert_eq!(silence.belief().0, Belief::Stalled);
}

#[test]
fn regular_messages_that_stop_mean_loss_unless_data_was_acknowledged_since() {
    let broken = |last| Sample {
        path: PathId(0),
        kind: SampleKind::Break(Break {
            path: PathId(0),
            last: at(last),
            waited: Duration::from_millis(90),
            longest: Duration::from_millis(30),
        }),
    };
    let mut silence = Silence::new(Params::default());
    for ms in (0..1000).step_by(10) {
        silence.observe(at(ms), &transport(0, ms as u32));
    }
    silence.observe(at(1000), &broken(910));
    assert_eq!(silence.belief().0, Belief::Unknown, "what was sent at 980 ms was acknowledged");
    silence.observe(at(1100), &broken(1010));
    assert_eq!(silence.belief().0, Belief::Stalled);
}

/// The subflow is closed at the alarm, and 300 ms later another one is open.
#[test]
fn a_path_that_answers_again_is_only_fading_where_delivery_is_judged_elsewhere() {
    let belief_after = |mut silence: Silence| {
        let received = |ms: u64, bytes_received| {
            let SampleKind::Transport(idle) = transport(0, 1).kind else { unreachable!() };
            (at(ms), Sample { path: PathId(0), kind: SampleKind::Transport(Transport { bytes_received, ..idle }) })
        };
        let observe = |silence: &mut Silence, (at, sample): (Instant, Sample)| silence.observe(at, &sample);
        (0..1000).step_by(10).for_each(|ms| observe(&mut silence, received(ms, ms)));
        let broken = Break {
            path: PathId(0),
            last: at(910),
            waited: Duration::from_millis(90),
            longest: Duration::from_millis(20),
        };
        silence.observe(at(1000), &Sample { path: PathId(0), kind: SampleKind::Break(broken) });
        assert_eq!(silence.belief().0, Belief::Stalled);
        observe(&mut silence, received(1010, 990));
        assert_eq!(silence.belief().0, Belief::Stalled, "still the one that was closed");
        observe(&mut silence, received(1300, 0));
        silence.belief().0
    };
    assert_eq!(belief_after(Silence::new(Params::default()).without_unacked()), Belief::Fading);
    assert_eq!(belief_after(Silence::new(Params::default())), Belief::Stalled);
}

/// The belief when `subflows` wait and an interface has received nothing since 1000 ms,
/// and whether a second alarm is raised after the first proved wrong.
fn unanswered(subflows: u32) -> (Belief, bool) {
    let mut silence = Silence::new(Params::default());
    let sample = |silence: &mut Silence, from: u64, to: u64, receives: &dyn Fn(u64) -> u64| {
        for ms in (from..to).step_by(3) {
            let counters = Counters { received: receives(ms), sent: ms * 5 };
            silence.observe(at(ms), &Sample { path: PathId(0), kind: SampleKind::Counters(counters) });
        }
    };
    (0..subflows).for_each(|token| silence.observe(at(0), &of(token, 1, 0, 0)));
    sample(&mut silence, 0, 1000, &|ms| ms);
    (0..subflows).for_each(|token| silence.observe(at(1000), &of(token, 1, 2, 0)));
    sample(&mut silence, 1000, 1030, &|_| 0);
    let belief = silence.belief().0;
    silence.observe(at(1040), &of(0, 1, 0, 1));
    (1..subflows).for_each(|token| silence.observe(at(1041), &of(token, 1, 0, 3)));
    silence.advance(at(1700));
    (0..subflows).for_each(|token| silence.observe(at(1700), &of(token, 1, 2, 3)));
    sample(&mut silence, 1700, 3500, &|ms| ms);
    sample(&mut silence, 3500, 3521, &|_| 0);
    (belief, silence.belief().0 == Belief::Stalled)
}

#[test]
fn an_interface_that_receives_nothing_is_lost_if_many_subflows_wait() {
    assert_eq!(unanswered(CROWD as u32), (Belief::Stalled, false));
    assert_eq!(unanswered(CROWD as u32 - 1), (Belief::Unknown, false));
}

/// The same, with `late` packets received later: the time from the alarm until the path
/// is trusted again, in ms.
fn trusted_after(late: u64) -> u64 {
    let mut silence = Silence::new(Params::default());
    (0..CROWD as u32).for_each(|token| silence.observe(at(0), &of(token, 1, 2, 0)));
    let mut alarm = None;
    for ms in (0..4000).step_by(3) {
        let received = if ms < 1000 { ms } else { 1000 + if ms < 1060 { 0 } else { late } };
        let kind = SampleKind::Counters(Counters { received, sent: ms * 5 });
        silence.observe(at(ms), &Sample { path: PathId(0), kind });
        silence.advance(at(ms));
        match (alarm, silence.belief().0) {
            (None, Belief::Stalled) => alarm = Some(ms),
            (Some(alarm), Belief::Unknown) => return ms - alarm,
            _ => {}
        }
    }
    panic!("no alarm, or it never ends")
}

#[test]
fn late_answers_prove_the_alarm_wrong() {
    let wait = FIRST_WAIT.as_millis() as u64;
    let after = |late| trusted_after(late) / 10 * 10;
    assert_eq!([after(2), after(CROWD as u64)], [wait, wait / 2]);
}
