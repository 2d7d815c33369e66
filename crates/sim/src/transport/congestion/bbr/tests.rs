use super::*;

/// A path of 1000 segments per second and 50 ms, without a queue.
const RTT: Duration = Duration::from_millis(50);

/// BBR on a path, with the state of its rounds.
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

    /// A flow whose rate has converged, and which has just measured its minimum RTT.
    fn settled() -> Flow {
        let mut flow = Flow::new();
        (0..40).for_each(|_| flow.round());
        flow.await_phase(3);
        flow.bbr.min_rtt_at = Instant::from_millis(flow.ms);
        flow
    }

    fn await_phase(&mut self, wanted: usize) {
        let rounds = (0..40).take_while(|_| {
            self.round();
            !matches!(self.bbr.mode, Mode::ProbeRate { phase, .. } if phase == wanted)
        });
        assert!(rounds.count() < 40);
    }

    /// The sample of one acknowledgement per RTT.
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
            recovery: RecoveryState::None,
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

    /// Rounds for this time, with an RTT slightly above the minimum.
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
fn pacing_starts_with_the_initial_window_per_handshake_rtt() {
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
fn application_limited_rounds_do_not_end_startup() {
    let mut flow = Flow::new();
    (0..40).for_each(|_| flow.round_with(|sample| sample.app_limited = true));
    assert!(!flow.bbr.filled);
}

#[test]
fn an_application_limited_rate_counts_only_if_it_is_higher() {
    let mut flow = Flow::settled();
    let known = flow.bbr.rate();
    let limited = |delivered| move |sample: &mut RateSample| (sample.delivered, sample.app_limited) = (delivered, true);
    (0..40).for_each(|_| flow.round_with(limited(10)));
    assert_eq!(flow.bbr.rate(), known);
    flow.round_with(limited(80));
    assert_eq!(flow.bbr.rate(), 80.0 / 0.05);
    (0..12).for_each(|_| flow.round_with(|sample| sample.delivered = 10));
    assert_eq!(flow.bbr.rate(), 10.0 / 0.05, "a rate that is not application-limited counts after ten rounds");
}

#[test]
fn after_ten_seconds_without_a_lower_rtt_probe_rtt_uses_four_segments() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.rounds_for(10_000);
    assert!(!flow.bbr.probes_rtt());
    flow.rounds_for(50);
    assert_eq!((flow.bbr.probes_rtt(), flow.window), (true, MIN_WINDOW));
    let began = flow.ms;
    while flow.bbr.probes_rtt() {
        flow.rounds_for(50);
    }
    assert_eq!(flow.ms - began, 300, "from the first round at four segments, 200 ms and more");
    assert!(flow.window > MIN_WINDOW);
    flow.await_phase(3);
    assert_eq!(flow.window, before);
}

#[test]
fn probe_rtt_waits_until_the_queue_is_empty() {
    let mut flow = Flow::settled();
    flow.rounds_for(10_000);
    for _ in 0..20 {
        flow.round_with(|sample| (sample.rtt, sample.in_flight) = (Some(RTT * 2), [50; 2]));
    }
    assert_eq!(flow.bbr.mode, Mode::ProbeRtt { until: None, round_over: false });
}

#[test]
fn probe_rtt_lasts_at_least_a_round() {
    let mut flow = Flow::settled();
    flow.rounds_for(10_100);
    (0..10).for_each(|_| flow.round_with(|sample| sample.prior_delivered = 0));
    assert!(flow.bbr.probes_rtt(), "the data sent since has not arrived");
    flow.round();
    assert!(!flow.bbr.probes_rtt());
}

/// Linux has only lower ones do so since 5.10.
#[test]
fn an_rtt_equal_to_the_minimum_does_not_postpone_probe_rtt_and_a_lower_one_does() {
    for (rtt, probes) in [(RTT, true), (RTT - Duration::from_micros(1), false)] {
        let mut flow = Flow::settled();
        flow.rounds_for(9_000);
        flow.round_with(|sample| sample.rtt = Some(rtt));
        let mut has_probed = false;
        for _ in 0..15 {
            flow.rounds_for(100);
            has_probed |= flow.bbr.probes_rtt();
        }
        assert_eq!(has_probed, probes, "{rtt:?}");
    }
}

/// Plain TCP detects that its application paused, a subflow of MPTCP does not.
#[test]
fn only_a_flow_that_detects_its_idle_period_skips_probe_rtt() {
    for (app_limited, probes) in [(true, false), (false, true)] {
        let mut flow = Flow::settled();
        flow.ms += 11_000;
        flow.window = flow.bbr.on_start(Instant::from_millis(flow.ms), app_limited, flow.window);
        flow.rounds_for(50);
        assert_eq!(flow.bbr.probes_rtt(), probes);
        assert_eq!(flow.bbr.min_rtt, Some(RTT + Duration::from_micros(100)), "the old one has expired");
        assert!(!flow.bbr.restarts_from_idle, "data was delivered: the idle period is over");
    }
}

#[test]
fn after_an_idle_period_the_pacing_rate_is_the_estimated_rate() {
    let mut flow = Flow::settled();
    flow.await_phase(0);
    assert!(flow.pace() > flow.bbr.rate());
    flow.bbr.on_start(Instant::from_millis(flow.ms + 1000), true, flow.window);
    assert!((flow.pace() - flow.bbr.rate() * MARGIN).abs() < 1e-6);
}

#[test]
fn an_idle_period_ends_probe_rtt() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.rounds_for(10_100);
    assert!(flow.bbr.probes_rtt());
    flow.window = flow.bbr.on_start(Instant::from_millis(flow.ms + 1000), true, flow.window);
    assert_eq!((flow.bbr.probes_rtt(), flow.window), (false, before), "as it was");
}

#[test]
fn until_the_pipe_is_full_the_pacing_rate_does_not_decrease() {
    let mut flow = Flow::new();
    (0..3).for_each(|_| flow.round());
    let known = flow.pace();
    flow.ms += 11_000;
    flow.round_with(|sample| sample.rtt = Some(RTT * 2));
    assert!(flow.bbr.probes_rtt() && flow.pace() >= known);
}

#[test]
fn the_first_round_of_recovery_conserves_packets_and_its_end_restores_the_window() {
    let mut flow = Flow::settled();
    let before = flow.window;
    flow.bbr.on_loss(before);
    let lossy = |sample: &mut RateSample| {
        (sample.losses, sample.recovery) = (5, RecoveryState::Recovery);
        (sample.newly, sample.in_flight) = (2, [50, 43]);
    };
    flow.round_with(lossy);
    assert_eq!(flow.window, 45);
    flow.round_with(|sample| (sample.recovery, sample.newly) = (RecoveryState::Recovery, 2));
    assert_eq!(flow.window, 47, "later rounds grow");
    flow.round_with(|sample| sample.newly = 0);
    assert!(flow.window.abs_diff(before) <= 2, "two more while the rate is probed");
}

#[test]
fn a_timeout_saves_the_window_and_resets_the_full_rate() {
    let mut flow = Flow::new();
    (0..3).for_each(|_| flow.round());
    let before = flow.window;
    flow.bbr.on_loss(before);
    flow.bbr.on_timeout();
    assert_eq!(flow.bbr.full_rate, 0.0);
    flow.window = 1;
    flow.round_with(|sample| sample.recovery = RecoveryState::Loss);
    assert_eq!(flow.window, MIN_WINDOW);
    flow.round();
    assert!(flow.window >= before);
}

#[test]
fn the_window_is_two_bdps_three_bursts_and_the_aggregation() {
    let mut flow = Flow::settled();
    // One acknowledgement per round covers all its 50 segments.
    assert_eq!(flow.window, 2 * 50 + 3 * 2 + 50);
    flow.bbr.aggregation = Aggregation { since: Instant::from_millis(flow.ms), ..Aggregation::default() };
    flow.round_with(|sample| sample.newly = 0);
    assert_eq!(flow.bbr.budget(flow.bbr.bdp(2.0) + flow.bbr.aggregated()), 106);
}

#[test]
fn a_sample_shorter_than_the_minimum_rtt_is_ignored() {
    let mut flow = Flow::settled();
    let (rate, round) = (flow.bbr.rate(), flow.bbr.round);
    flow.round_with(|sample| (sample.delivered, sample.interval) = (1000, Duration::ZERO));
    assert_eq!((flow.bbr.rate(), flow.bbr.round), (rate, round));
}
