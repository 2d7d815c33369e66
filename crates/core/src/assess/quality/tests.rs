use super::*;
use crate::path::{Carried, PathId, Signal};

mod answers;
mod echo;
mod received;
mod returns;

/// One subflow over a path, sampled each 10 ms, that sends a message each 20 ms.
struct Drive {
    quality: Quality,
    now: Instant,
    sent: u32,
    transport: Transport,
}

impl Drive {
    fn new(rat: Rat, late_ms: u64) -> Drive {
        let transport = Transport { rttvar: Duration::from_millis(1), delivered: 1, ..Transport::IDLE };
        let quality = Quality::new(rat, Duration::from_millis(late_ms));
        let mut drive = Drive { quality, now: Instant::ZERO, sent: 1, transport };
        drive.observe(SampleKind::Link { up: true });
        drive.carry(0.0);
        drive
    }

    /// So much of what all paths carry is received.
    fn carry(&mut self, received_share: f64) {
        self.observe(SampleKind::Carried(Carried { received_share: Some(received_share), ..Carried::default() }));
    }

    fn observe(&mut self, kind: SampleKind) {
        self.quality.advance(self.now);
        self.quality.observe(self.now, &Sample { path: PathId(0), kind });
        self.quality.advance(self.now);
    }

    fn signal(&mut self, rssi_dbm: f32) {
        self.observe(SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() }));
    }

    /// `ms` of messages, each with this RTT.
    fn messages(&mut self, ms: u64, rtt_ms: u64) {
        self.deliver(ms, rtt_ms, |_| 0);
    }

    /// The same, with a number of retransmissions after each message.
    fn deliver(&mut self, ms: u64, rtt_ms: u64, lost: impl Fn(u64) -> u32) {
        for message in 0..ms / 20 {
            self.sent += 1;
            self.step(u32::from(rtt_ms > 10));
            self.transport.delivered = self.sent;
            self.transport.bytes_acked += 1000;
            self.transport.retransmitted += lost(message);
            self.transport.rtt = (self.transport.rtt * 7 + Duration::from_millis(rtt_ms)) / 8;
            self.step(0);
        }
    }

    /// The same, but each second one is acknowledged, with the one before it.
    fn pairs(&mut self, ms: u64, rtt_ms: u64) {
        let (began, first) = (self.now, self.sent);
        for step in 0..ms / 10 {
            let acked = 2 * ((step * 10 + 20).saturating_sub(rtt_ms) / 40) as u32;
            self.sent = first + 1 + step as u32 / 2;
            let newly = (first + acked).saturating_sub(self.transport.delivered);
            if newly > 0 {
                self.transport.bytes_acked += u64::from(newly) * 1000;
                self.transport.delivered += newly;
                self.transport.rtt = (self.transport.rtt * 7 + Duration::from_millis(rtt_ms + 20)) / 8;
            }
            self.step(self.sent - self.transport.delivered);
        }
        assert_eq!(self.now.since(began).as_secs_f64() * 1e3, ms as f64);
    }

    fn step(&mut self, unacked: u32) {
        self.now = self.now + Duration::from_millis(10);
        self.transport.unacked = unacked;
        self.observe(SampleKind::Transport(self.transport));
    }

    fn is(&self) -> (Belief, &'static str) {
        let (belief, reason) = self.quality.belief();
        (belief, reason.rule)
    }
}

#[test]
fn a_path_that_delivers_in_time_is_good_whatever_its_signal() {
    let mut drive = Drive::new(Rat::Ieee80211p, 100);
    for _ in 0..50 {
        drive.signal(-60.0);
        drive.messages(100, 20);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.return"));
    for _ in 0..50 {
        drive.signal(-95.0);
        drive.messages(100, 20);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.return"));
}

#[test]
fn rtts_that_grow_are_a_sign() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
    drive.messages(1000, 90);
    assert_eq!(drive.is(), (Belief::Fading, "quality.rtt"));
}

#[test]
fn an_rtt_that_always_varied_is_no_sign() {
    let mut drive = Drive::new(Rat::Lte, 100);
    for rtt_ms in [20, 90, 40, 70].into_iter().cycle().take(400) {
        drive.messages(20, rtt_ms);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
}

#[test]
fn the_age_of_the_oldest_byte_is_a_sign_though_others_are_delivered() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    drive.sent += 1;
    for _ in 0..6 {
        drive.step(1);
    }
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
}

#[test]
fn retransmissions_are_a_sign_at_a_perfect_rtt() {
    let mut drive = Drive::new(Rat::Lte, 1000);
    drive.messages(5000, 20);
    drive.deliver(440, 20, |message| u32::from(message % 20 == 0));
    assert_eq!(drive.is(), (Belief::Fading, "quality.loss"));
}

#[test]
fn the_queue_of_a_bulk_sender_is_no_sign() {
    let mut drive = Drive::new(Rat::Lte, 100);
    for _ in 0..500 {
        drive.transport.delivered += 10;
        drive.transport.bytes_acked += 10_000;
        drive.transport.rtt += Duration::from_millis(1);
        drive.step(40);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
}

#[test]
fn the_path_of_a_bulk_sender_is_left_when_the_signal_falls_to_the_level() {
    let mut drive = Drive::new(Rat::Ieee80211p, 100);
    drive.signal(-60.0);
    for place in 0..100_u16 {
        drive.now = drive.now + Duration::from_millis(100);
        drive.signal(-60.0 - 0.3 * f32::from(place));
        drive.transport.delivered += 10;
        drive.step(40);
    }
    assert_eq!(drive.is(), (Belief::Fading, "quality.low"));
}

#[test]
fn pauses_double_with_each_return_that_does_not_last() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    for pause_ms in [1000, 2000, 4000, 8000] {
        while drive.is().0 == Belief::Good {
            drive.messages(20, 90);
        }
        let left = drive.quality.left.map_or(Instant::ZERO, |left| left.at);
        assert_eq!(drive.quality.next_wakeup(), Some(left + Duration::from_millis(pause_ms)));
        drive.now = left + Duration::from_millis(pause_ms);
        drive.quality.advance(drive.now);
        assert_eq!(drive.is(), (Belief::Good, "quality.return"));
    }
}

#[test]
fn another_subflow_in_the_place_of_a_closed_one_is_judged_by_what_it_delivers() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    (drive.transport.delivered, drive.transport.bytes_acked, drive.sent) = (1, 0, 1);
    drive.messages(1000, 20);
    assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
}

#[test]
fn a_reserve_of_which_nothing_arrives_is_not_good() {
    let mut drive = Drive::new(Rat::Ieee80211p, 100);
    for _ in 0..10 {
        drive.signal(-70.0);
        drive.messages(100, 20);
    }
    assert_eq!(drive.is(), (Belief::Good, "quality.return"));
    drive.messages(3000, 20);
    assert_eq!(drive.is().0, Belief::Good, "what is delivered proves it");
    for _ in 0..30 {
        drive.now = drive.now + Duration::from_millis(100);
        drive.transport.bytes_received += 1000;
        drive.observe(SampleKind::Transport(drive.transport));
    }
    assert_eq!(drive.is().0, Belief::Good, "what arrives over it proves it, too");
    let last = drive.now;
    drive.now = drive.quality.next_wakeup().unwrap();
    assert!(drive.now > last + Duration::from_millis(900), "{:?}", drive.now);
    drive.quality.advance(drive.now);
    assert_eq!(drive.is(), (Belief::Fading, "quality.silent"));
    drive.now = drive.now + Duration::from_secs(1);
    drive.signal(-70.0);
    assert_eq!(drive.is().0, Belief::Good, "its station is received again");
}

#[test]
fn the_first_acknowledgement_of_a_path_that_begins_to_carry_may_be_delayed() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.transport.rtt = Duration::from_millis(50);
    drive.messages(5000, 50);
    drive.transport.backup = true;
    drive.messages(20, 50);
    drive.transport.backup = false;
    drive.sent += 1;
    (0..9).for_each(|_| drive.step(1));
    drive.transport.delivered = drive.sent;
    drive.transport.rtt = (drive.transport.rtt * 7 + Duration::from_millis(90)) / 8;
    drive.step(0);
    assert_eq!(drive.is().0, Belief::Good, "{:?}", drive.is());
    drive.sent += 1;
    (0..12).for_each(|_| drive.step(1));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"), "a delay of 40 ms does not explain it");
}

/// Linux does so for segments shorter than an earlier one (`tcp_measure_rcv_mss`).
#[test]
fn an_acknowledgement_of_two_segments_is_not_late_for_the_first() {
    let drive = || {
        let mut drive = Drive::new(Rat::Lte, 60);
        drive.transport.rtt = Duration::from_millis(50);
        drive.messages(1000, 50);
        drive.transport.backup = true;
        drive.messages(20, 50);
        drive.transport.backup = false;
        drive.messages(400, 50);
        drive.pairs(4000, 50);
        assert_eq!(drive.is(), (Belief::Good, "quality.link-up"));
        drive
    };
    let mut stalled = drive();
    (0..8).for_each(|_| stalled.step(2));
    assert_eq!(stalled.is(), (Belief::Stalled, "quality.age"));
    let mut slow = drive();
    slow.pairs(2000, 120);
    assert_ne!(slow.is().0, Belief::Good);
}

/// What an RTT is taken for must not be less than the age at which the acknowledgement is still awaited.
#[test]
fn an_rtt_that_is_usual_is_no_stall_if_two_segments_share_an_acknowledgement() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.transport.rtt = Duration::from_millis(64);
    // Ends just before an acknowledgement.
    drive.pairs(10_020, 80);
    assert_eq!(drive.is().0, Belief::Good, "{:?}", drive.is());
}

#[test]
fn less_delivered_than_is_usually_offered_is_a_sign_though_more_waits() {
    for (bytes_of_a_sample, is) in [(200, (Belief::Stalled, "quality.rate")), (2000, (Belief::Good, "quality.link-up"))]
    {
        let mut drive = Drive::new(Rat::Lte, 100);
        drive.messages(5000, 20);
        for _ in 0..60 {
            drive.transport.delivered += 1;
            drive.transport.bytes_acked += bytes_of_a_sample;
            drive.step(40);
        }
        assert_eq!(drive.is(), is, "500 bytes each 10 ms are usually offered");
    }
}

/// As of a sender whose messages another path has carried until now.
#[test]
fn less_sent_over_all_paths_than_usual_while_it_is_full_is_a_sign() {
    for (sent, is) in [(3e5, (Belief::Stalled, "quality.rate")), (3.8e5, (Belief::Good, "quality.link-up"))] {
        let mut drive = Drive::new(Rat::Lte, 100);
        let full = SampleKind::Carried(Carried { sent_of_usual: Some([sent, 4e5]), ..Carried::default() });
        drive.observe(full);
        assert_eq!(drive.is(), is, "{sent} of 400,000 bit/s");
        drive.observe(SampleKind::Link { up: false });
        drive.observe(full);
        assert_eq!(drive.is().0, Belief::Lost);
    }
}

#[test]
fn what_a_path_delivers_while_more_waits_does_not_prove_that_it_is_in_time() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(5000, 20);
    drive.messages(400, 90);
    let late = (Belief::Fading, "quality.rtt");
    assert_eq!(drive.is(), late);
    for _ in 0..40 {
        drive.transport.delivered += 1;
        drive.transport.bytes_acked += 1000;
        drive.step(20);
    }
    assert_eq!(drive.is(), late);
}

#[test]
fn a_path_that_was_late_for_long_is_good_as_soon_as_it_delivers_in_time() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.messages(100, 20);
    drive.messages(1000, 400);
    assert_eq!(drive.is(), (Belief::Fading, "quality.rtt"));
    drive.messages(3000, 20);
    for _ in 0..100 {
        drive.messages(20, 20);
        assert_eq!(drive.is().0, Belief::Good, "{:?}", drive.is());
    }
}

#[test]
fn a_path_that_begins_to_carry_and_delivers_nothing_is_left_though_more_waits() {
    let mut drive = Drive::new(Rat::Lte, 100);
    drive.transport.backup = true;
    (0..10).for_each(|_| drive.step(0));
    drive.transport.backup = false;
    (0..9).for_each(|_| drive.step(40));
    assert_eq!(drive.is(), (Belief::Stalled, "quality.age"));
}

#[test]
fn where_a_late_message_cannot_be_saved_or_is_the_peers_a_path_is_left_before() {
    // What the peer sends while the vehicle sends 5000 bytes.
    for (late_ms, received_bytes, is_left) in
        [(30, 0.0, true), (100, 0.0, false), (100, 400.0, false), (100, 600.0, true), (100, 5000.0, true)]
    {
        let mut drive = Drive::new(Rat::Ieee80211p, late_ms);
        for place in 0..100_u16 {
            drive.signal(-70.0 - 0.2 * f32::from(place));
            drive.carry(received_bytes / (received_bytes + 5000.0));
            drive.messages(100, 20);
        }
        let is = if is_left { (Belief::Fading, "quality.low") } else { (Belief::Good, "quality.return") };
        assert_eq!(drive.is(), is, "{late_ms} ms, {received_bytes} bytes");
    }
}

#[test]
fn where_no_other_network_can_carry_a_single_delay_at_a_good_signal_is_no_sign() {
    let [good, stalled, late, low] =
        [(Belief::Good, "return"), (Belief::Stalled, "age"), (Belief::Fading, "rtt"), (Belief::Fading, "low")];
    for (is_only_network, dbm, of_stall, of_delay, of_delays) in [
        (false, -60.0, stalled, late, late),
        (true, -60.0, good, good, late),
        // It was left because of its signal.
        (true, -95.0, stalled, low, low),
    ] {
        let check = |what: &str, (belief, rule): (Belief, &str), what_shows: &dyn Fn(&mut Drive)| {
            let mut drive = Drive::new(Rat::Ieee80211p, 100);
            for place in 0..50 {
                drive.signal(if place < 45 { -60.0 } else { dbm });
                let carried = Carried { received_share: Some(0.0), is_only_network, ..Carried::default() };
                drive.observe(SampleKind::Carried(carried));
                drive.messages(100, 20);
            }
            what_shows(&mut drive);
            let (is, by) = drive.is();
            assert_eq!((is, by.trim_start_matches("quality.")), (belief, rule), "{what}: {is_only_network} {dbm} dBm");
        };
        check("a byte waits", of_stall, &|drive| {
            drive.sent += 1;
            (0..20).for_each(|_| drive.step(1));
        });
        check("some messages are delayed", of_delay, &|drive| drive.messages(100, 60));
        check("messages are late in the mean", of_delays, &|drive| drive.messages(2000, 150));
    }
}

#[test]
fn what_waits_in_a_handover_that_was_announced_is_no_sign() {
    for (is_announced, is) in [(true, (Belief::Good, "quality.link-up")), (false, (Belief::Stalled, "quality.age"))] {
        let mut drive = Drive::new(Rat::Lte, 100);
        drive.messages(5000, 20);
        if is_announced {
            drive.observe(SampleKind::Handover { is_announced });
        }
        drive.sent += 1;
        (0..30).for_each(|_| drive.step(1));
        assert_eq!(drive.is(), is);
        (0..10).for_each(|_| drive.step(1));
        assert_eq!(drive.is(), (Belief::Stalled, "quality.age"), "its end is overdue");
    }
}
