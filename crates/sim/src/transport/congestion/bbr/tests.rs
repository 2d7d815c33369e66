use super::*;

/// A way of 1000 segments a second and 50 ms, without a queue.
const RTT: Duration = Duration::from_millis(50);

/// BBR, with the round trips that it has seen.
struct Flow {
    bbr: Bbr,
    window: u32,
    ms: u64,
    total: u64,
}

impl Flow {
    fn new() -> Flow {
        let mut bbr = Bbr::default();
        bbr.begin(Instant::ZERO, RTT);
        Flow { bbr, window: INITIAL_WINDOW, ms: 0, total: 0 }
    }

    /// A flow that has found the rate and holds it.
    fn settled() -> Flow {
        let mut flow = Flow::new();
        (0..40).for_each(|_| flow.round());
        flow.await_phase(3);
        flow
    }

    fn await_phase(&mut self, wanted: usize) {
        let rounds = (0..40).take_while(|_| {
            self.round();
            !matches!(self.bbr.mode, Mode::ProbeRate { phase, .. } if phase == wanted)
        });
        assert!(rounds.count() < 40);
    }

    /// What one acknowledgement for each round trip tells.
    fn sample(&self, delivered: u64) -> RateSample {
        RateSample {
            now: Instant::from_millis(self.ms),
            delivered,
            interval: RTT,
            prior_delivered: self.total - delivered,
            total_delivered: self.total,
            rtt: Some(RTT),
            app_limited: false,
            in_flight: [self.window, self.window.min(50)],
            newly: delivered as u32,
            losses: 0,
            repair: Repair::None,
        }
    }

    fn round(&mut self) {
        self.round_with(|_| {});
    }

    fn round_with(&mut self, change: impl FnOnce(&mut RateSample)) {
        self.ms += 50;
        let delivered = u64::from(self.window).min(50);
        self.total += delivered;
        let mut sample = self.sample(delivered);
        change(&mut sample);
        self.window = self.bbr.on_sample(&sample, self.window);
    }

    /// Rounds of so many ms whose round trip is a little longer than the least.
    fn rounds_for(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.round_with(|sample| sample.rtt = Some(RTT + Duration::from_micros(100)));
        }
    }

    fn pace(&self) -> f64 {
        self.bbr.pace.unwrap_or_default()
    }
}

#[test]
fn pacing_begins_with_the_first_window_in_the_handshakes_round_trip() {
    let flow = Flow::new();
    assert!((flow.pace() - 10.0 / 0.05 * 2.89 * 0.99).abs() < 1e-9, "{}", flow.pace());
    assert!((flow.bbr.pace().unwrap_or_default() / flow.pace() - 1448.0).abs() < 1e-9);
}

#[test]
fn startup_ends_after_three_rounds_without_growth_and_the_queue_is_drained() {
    let mut flow = Flow::new();
    let mut rounds = 0;
    while !flow.bbr.filled {
        flow.round_with(|sample| sample.in_flight = [200; 2]);
        rounds += 1;
    }
    assert_eq!((flow.bbr.mode, rounds), (Mode::Drain, 7), "10, 20, 40, 50 segments, and three rounds");
    assert!(flow.pace() < 0.35 * 1000.0);
    flow.round();
    assert!(matches!(flow.bbr.mode, Mode::ProbeRate { .. }));
}

#[test]
fn rounds_that_the_application_limits_do_not_end_startup() {
    let mut flow = Flow::new();
    (0..40).for_each(|_| flow.round_with(|sample| sample.app_limited = true));
    assert!(!flow.bbr.filled);
}

#[test]
fn a_rate_that_the_application_limits_counts_only_if_it_is_higher() {
    let mut flow = Flow::settled();
    let known = flow.bbr.rate();
    let limited = |delivered| move |sample: &mut RateSample| (sample.delivered, sample.app_limited) = (delivered, true);
    (0..40).for_each(|_| flow.round_with(limited(10)));
    assert_eq!(flow.bbr.rate(), known);
    flow.round_with(limited(80));
    assert_eq!(flow.bbr.rate(), 80.0 / 0.05);
    (0..12).for_each(|_| flow.round_with(|sample| sample.delivered = 10));
    assert_eq!(flow.bbr.rate(), 10.0 / 0.05, "without the mark a low rate counts, ten rounds later");
}

#[test]
fn after_ten_seconds_without_a_shorter_round_trip_four_segments_look_for_it() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.rounds_for(10_000);
    assert!(!flow.bbr.probes_rtt());
    flow.rounds_for(50);
    assert_eq!((flow.bbr.probes_rtt(), flow.window), (true, LEAST_WINDOW));
    let began = flow.ms;
    while flow.bbr.probes_rtt() {
        flow.rounds_for(50);
    }
    assert_eq!(flow.ms - began, 300, "from the first round at four segments, 200 ms and more");
    assert!(flow.window > LEAST_WINDOW);
    flow.await_phase(3);
    assert_eq!(flow.window, before);
}

#[test]
fn the_probe_of_the_round_trip_waits_until_the_queue_is_gone() {
    let mut flow = Flow::settled();
    flow.rounds_for(10_000);
    for _ in 0..20 {
        flow.round_with(|sample| (sample.rtt, sample.in_flight) = (Some(RTT * 2), [50; 2]));
    }
    assert_eq!(flow.bbr.mode, Mode::ProbeRtt { until: None, round_over: false });
}

#[test]
fn the_probe_of_the_round_trip_lasts_a_round_at_least() {
    let mut flow = Flow::settled();
    flow.rounds_for(10_100);
    (0..10).for_each(|_| flow.round_with(|sample| sample.prior_delivered = 0));
    assert!(flow.bbr.probes_rtt(), "what was sent since has not arrived");
    flow.round();
    assert!(!flow.bbr.probes_rtt());
}

#[test]
fn a_round_trip_as_short_as_the_least_puts_off_the_probe() {
    let mut flow = Flow::settled();
    flow.rounds_for(9_000);
    flow.round();
    flow.rounds_for(9_000);
    assert!(!flow.bbr.probes_rtt());
}

/// Plain TCP knows that its application paused, a subflow of MPTCP does not.
#[test]
fn after_a_rest_only_who_knows_that_it_rested_skips_the_probe() {
    for (app_limited, probes) in [(true, false), (false, true)] {
        let mut flow = Flow::settled();
        flow.ms += 11_000;
        flow.window = flow.bbr.on_start(Instant::from_millis(flow.ms), app_limited, flow.window);
        flow.rounds_for(50);
        assert_eq!(flow.bbr.probes_rtt(), probes);
        assert_eq!(flow.bbr.least_rtt, Some(RTT + Duration::from_micros(100)), "the old one has expired");
        assert!(!flow.bbr.restarts, "data was delivered: the rest is over");
    }
}

#[test]
fn who_begins_again_paces_at_the_rate_and_no_faster() {
    let mut flow = Flow::settled();
    flow.await_phase(0);
    assert!(flow.pace() > flow.bbr.rate());
    flow.bbr.on_start(Instant::from_millis(flow.ms + 1000), true, flow.window);
    assert!((flow.pace() - flow.bbr.rate() * MARGIN).abs() < 1e-6);
}

#[test]
fn a_rest_in_the_probe_ends_it() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.rounds_for(10_100);
    assert!(flow.bbr.probes_rtt());
    flow.window = flow.bbr.on_start(Instant::from_millis(flow.ms + 1000), true, flow.window);
    assert_eq!((flow.bbr.probes_rtt(), flow.window), (false, before), "as it was");
}

#[test]
fn until_the_pipe_is_full_the_pace_only_rises() {
    let mut flow = Flow::new();
    (0..3).for_each(|_| flow.round());
    let known = flow.pace();
    flow.ms += 11_000;
    flow.round_with(|sample| sample.rtt = Some(RTT * 2));
    assert!(flow.bbr.probes_rtt() && flow.pace() >= known);
}

#[test]
fn the_first_round_of_recovery_sends_as_much_as_arrives_and_its_end_restores_the_window() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.bbr.on_loss(before);
    let lossy = |sample: &mut RateSample| {
        (sample.losses, sample.repair) = (5, Repair::Recovery);
        (sample.newly, sample.in_flight) = (2, [50, 43]);
    };
    flow.round_with(lossy);
    assert_eq!(flow.window, 45);
    flow.round_with(|sample| (sample.repair, sample.newly) = (Repair::Recovery, 2));
    assert_eq!(flow.window, 47, "later rounds grow");
    flow.round_with(|sample| sample.newly = 0);
    assert!(flow.window.abs_diff(before) <= 2, "two more while the rate is probed");
}

#[test]
fn a_timeout_saves_the_window_and_forgets_how_full_the_pipe_was() {
    let mut flow = Flow::new();
    (0..3).for_each(|_| flow.round());
    let before = flow.window;
    flow.bbr.on_loss(before);
    flow.bbr.on_timeout();
    assert_eq!(flow.bbr.full_rate, 0.0);
    flow.window = 1;
    flow.round_with(|sample| sample.repair = Repair::Loss);
    assert_eq!(flow.window, LEAST_WINDOW);
    flow.round();
    assert!(flow.window >= before);
}

#[test]
fn the_window_is_two_products_three_bursts_and_what_is_acknowledged_at_once() {
    let mut flow = Flow::settled();
    // One acknowledgement a round: all 50 segments of it come at once.
    assert_eq!(flow.window, 2 * 50 + 3 * 2 + 50);
    flow.bbr.aggregation = Aggregation { since: Instant::from_millis(flow.ms), ..Aggregation::default() };
    flow.round_with(|sample| sample.newly = 0);
    assert_eq!(flow.bbr.budget(flow.bbr.bdp(2.0) + flow.bbr.aggregated()), 106);
}

#[test]
fn a_sample_shorter_than_any_round_trip_says_nothing() {
    let mut flow = Flow::settled();
    let (rate, round) = (flow.bbr.rate(), flow.bbr.round);
    flow.round_with(|sample| (sample.delivered, sample.interval) = (1000, Duration::ZERO));
    assert_eq!((flow.bbr.rate(), flow.bbr.round), (rate, round));
}
