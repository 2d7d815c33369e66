use super::track::FRAME_HOLD;
use super::*;
use crate::allocate::Latest;
use crate::assess::Belief::{Fading, Good, Lost, Stalled, Unknown};
use crate::path::{Rat, Signal, Transport};
use PathState::{Active, Backup, Closed};

const RTT: Duration = Duration::from_millis(20);

/// Paths 0 to 2 over radio 0, path 3 over none.
struct Paths {
    allocator: OneOfRadio,
    inputs: Vec<PathInput>,
    latest: Vec<Latest>,
}

impl Paths {
    fn new(mode: Mode) -> Paths {
        let params = Params { mode, threshold_dbm: -82.0, hysteresis_db: 3.0, smoothing: Duration::ZERO };
        let input = |rank: u8| PathInput { belief: Unknown, was: Closed, rank, radio: (rank < 3).then_some(0) };
        Paths {
            allocator: OneOfRadio::new(params),
            inputs: [0, 1, 2, 3].map(input).into(),
            latest: [Latest::default(); 4].into(),
        }
    }

    fn hear(&mut self, ms: u64, place: usize, belief: Belief, rssi_dbm: f32) {
        self.inputs[place].belief = belief;
        self.latest[place].signal = Some((Instant::from_millis(ms), Signal { rssi_dbm, ..Signal::default() }));
    }

    fn deliver(&mut self, ms: u64, place: usize, delivered: u32) {
        let transport = Transport { delivered, ..transport() };
        self.latest[place].transport = Some((Instant::from_millis(ms), transport));
    }

    /// Every path of the radio has a subflow.
    fn prove(&mut self, ms: u64) {
        (0..3).for_each(|place| self.deliver(ms, place, 0));
    }

    /// The least RTTs of the first paths, which have subflows.
    fn measure_rtts(&mut self, rtts_ms: [u64; 2]) {
        for (latest, ms) in self.latest.iter_mut().zip(rtts_ms) {
            latest.transport.as_mut().unwrap().1.min_rtt = Some(Duration::from_millis(ms));
        }
    }

    fn at(&mut self, ms: u64) -> Vec<PathState> {
        let supplies: Vec<PathSupply> = self
            .inputs
            .iter()
            .zip(&self.latest)
            .map(|(&input, latest)| PathSupply { unit_cost: None, rat: Rat::Lte, input, history: None, latest })
            .collect();
        self.allocator.review(Instant::from_millis(ms), &supplies);
        let states = self.allocator.allocate(&self.inputs).states().to_vec();
        for (input, state) in self.inputs.iter_mut().zip(&states) {
            input.was = *state;
        }
        states
    }
}

fn transport() -> Transport {
    Transport { rtt: RTT, rttvar: RTT, unacked: 1, ..Transport::IDLE }
}

#[test]
fn the_strongest_carries_and_another_takes_over_by_the_hysteresis() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.prove(0);
    assert_eq!(paths.at(0)[..2], [Active, Backup]);
    paths.hear(100, 1, Good, -67.2);
    paths.prove(100);
    assert_eq!(paths.at(100)[0], Active, "not stronger by the hysteresis");
    paths.hear(200, 1, Good, -66.5);
    paths.prove(200);
    assert_eq!(paths.at(200)[..2], [Backup, Active]);
}

#[test]
fn a_path_about_as_strong_as_the_one_that_serves_carries_beside_it() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -72.6);
    paths.prove(0);
    assert_eq!(paths.at(0)[..2], [Active, Backup]);
    paths.hear(100, 1, Good, -72.4);
    paths.prove(100);
    assert_eq!(paths.at(100)[..2], [Active, Active]);
    paths.inputs[0..2].iter_mut().for_each(|path| path.belief = Good);
    paths.latest.iter_mut().for_each(|latest| latest.signal = None);
    paths.allocator = OneOfRadio::new(paths.allocator.params);
    assert_eq!(paths.at(200)[..2], [Active, Backup], "nothing is known of the signals");
}

#[test]
fn a_change_of_signal_alone_is_a_reason() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.prove(0);
    paths.at(0);
    paths.hear(100, 1, Good, -66.5);
    paths.prove(100);
    let supply = |place: usize| PathSupply {
        unit_cost: None,
        rat: Rat::Lte,
        input: paths.inputs[place],
        history: None,
        latest: &paths.latest[place],
    };
    let supplies: Vec<PathSupply> = (0..4).map(supply).collect();
    let reason = paths.allocator.review(Instant::from_millis(100), &supplies);
    assert_eq!(reason.map(|reason| reason.rule), Some("radio.signal"));
}

#[test]
fn paths_on_which_nothing_fades_carry_beside_the_strongest() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -50.0);
    paths.hear(0, 1, Good, -61.0);
    paths.hear(0, 2, Good, -63.0);
    paths.prove(0);
    assert_eq!(paths.at(0)[..3], [Active, Active, Closed], "the third is not even opened beside a far stronger one");
    paths.hear(100, 1, Good, -67.5);
    paths.prove(100);
    assert_eq!(paths.at(100)[1], Active);
    paths.hear(200, 1, Good, -68.5);
    paths.prove(200);
    assert_eq!(paths.at(200)[1], Backup);
}

#[test]
fn of_two_strong_paths_the_one_with_the_shorter_round_trip_carries_alone() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -50.0);
    paths.deliver(0, 0, 0);
    paths.at(0);
    for (ms, rtt_ms, wanted) in [(100, 60, [Active, Active]), (200, 80, [Backup, Active])] {
        paths.hear(ms, 0, Good, -50.0);
        paths.hear(ms, 1, Good, -55.0);
        paths.prove(ms);
        paths.measure_rtts([rtt_ms, 20]);
        assert_eq!(paths.at(ms)[..2], wanted, "{rtt_ms} ms");
    }
    for (ms, dbm, wanted) in [(300, -67.9, [Backup, Active]), (400, -68.1, [Active, Backup])] {
        paths.hear(ms, 1, Good, dbm);
        paths.prove(ms);
        paths.measure_rtts([80, 20]);
        assert_eq!(paths.at(ms)[..2], wanted, "the shorter one fades at {dbm} dBm");
    }
}

#[test]
fn a_strong_signal_without_a_subflow_moves_nothing() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.deliver(0, 0, 1);
    paths.at(0);
    paths.hear(100, 1, Good, -40.0);
    paths.deliver(100, 0, 2);
    assert_eq!(paths.at(100)[..2], [Active, Backup]);
}

#[test]
fn a_good_signal_of_a_station_that_does_not_answer_opens_nothing() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -40.0);
    paths.deliver(0, 0, 1);
    (paths.latest[0].answers, paths.latest[1].answers) = (Some((Instant::ZERO, true)), Some((Instant::ZERO, false)));
    assert_eq!(paths.at(0)[..2], [Active, Closed]);
    paths.latest[1].answers = Some((Instant::from_millis(100), true));
    paths.deliver(100, 0, 2);
    assert_eq!(paths.at(100)[..2], [Active, Backup]);
}

#[test]
fn a_unit_for_which_data_waits_precedes_one_that_is_removed_and_follows_one_that_does_not_answer() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -50.0);
    paths.hear(0, 1, Fading, -85.0);
    paths.prove(0);
    assert_eq!(paths.at(0)[0], Active);
    (paths.inputs[0].belief, paths.inputs[1].belief, paths.inputs[3].belief) = (Lost, Stalled, Lost);
    assert_eq!(paths.at(100)[..2], [Active, Closed], "it may still be there");
    paths.latest[0] = Latest::default();
    assert_eq!(paths.at(200)[..2], [Closed, Active], "of one that is removed nothing is known");
    paths.hear(1300, 2, Fading, -88.0);
    paths.latest[2].answers = Some((Instant::ZERO, false));
    assert_eq!(paths.at(1300)[..3], [Closed, Closed, Active]);
}

#[test]
fn a_far_weaker_station_that_answers_is_in_reserve() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -60.0);
    paths.hear(0, 1, Good, -78.0);
    paths.deliver(0, 0, 1);
    assert_eq!(paths.at(0)[..2], [Active, Closed]);
    paths.latest[1].answers = Some((Instant::from_millis(100), true));
    paths.deliver(100, 0, 2);
    assert_eq!(paths.at(100)[..2], [Active, Backup]);
}

#[test]
fn a_reserve_that_will_soon_not_answer_is_closed_while_another_carries() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.latest[1].answers = Some((Instant::ZERO, true));
    paths.prove(0);
    assert_eq!(paths.at(0)[..2], [Active, Backup]);
    paths.hear(100, 1, Fading, -84.0);
    paths.prove(100);
    assert_eq!(paths.at(100)[..2], [Active, Backup]);
    paths.hear(200, 1, Fading, -86.0);
    paths.prove(200);
    assert_eq!(paths.at(200)[..2], [Active, Closed]);
}

#[test]
fn a_reserve_that_does_not_answer_is_closed_while_another_carries() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -76.0);
    paths.prove(0);
    paths.latest[1].answers = Some((Instant::ZERO, true));
    assert_eq!(paths.at(0)[1], Backup);
    paths.hear(5, 1, Fading, -83.0);
    assert_eq!(paths.at(5)[1], Backup);
    paths.latest[1].answers = Some((Instant::ZERO, false));
    assert_eq!(paths.at(10)[1], Closed);
}

#[test]
fn a_weak_reserve_stays_while_the_one_that_serves_stalls() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -76.0);
    paths.hear(0, 1, Good, -70.0);
    paths.latest[1].answers = Some((Instant::ZERO, true));
    paths.prove(0);
    assert_eq!(paths.at(0)[..2], [Backup, Active]);
    paths.deliver(50, 1, 5);
    paths.at(50);
    paths.hear(100, 0, Good, -72.0);
    paths.hear(100, 1, Good, -76.0);
    assert_eq!(paths.at(100)[..2], [Active, Backup]);
    paths.deliver(150, 0, 5);
    paths.at(150);
    paths.hear(200, 0, Fading, -84.0);
    paths.hear(200, 1, Fading, -86.0);
    paths.deliver(200, 0, 6);
    paths.deliver(200, 1, 5);
    assert_eq!(paths.at(200)[..2], [Active, Backup]);
    paths.inputs[0].belief = Stalled;
    assert_eq!(paths.at(240)[..2], [Active, Backup], "frames for path 1 may hold up path 0");
}

#[test]
fn a_stronger_path_that_fades_gives_way_to_a_good_one() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.at(0);
    paths.hear(100, 0, Fading, -70.0);
    assert_eq!(paths.at(100)[..2], [Backup, Active]);
}

#[test]
fn a_path_that_begins_to_carry_is_not_blamed_for_the_frames_of_the_former_one() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.hear(0, 1, Good, -75.0);
    paths.at(0);
    paths.inputs[0].belief = Stalled;
    assert_eq!(paths.at(1000)[..2], [Closed, Active]);
    paths.inputs[1].belief = Stalled;
    assert_eq!(paths.at(1100)[1], Active);
    assert_eq!(paths.at(1900)[1], Active);
    paths.hear(2100, 2, Good, -80.0);
    assert_eq!(paths.at(2100)[1..3], [Closed, Active], "after a second it is");
}

#[test]
fn of_two_that_stall_the_one_that_delivered_last_stays() {
    let mut paths = Paths::new(Mode::Aggregate);
    for (place, rssi_dbm) in [(0, -50.0), (1, -50.0)] {
        paths.hear(0, place, Good, rssi_dbm);
        paths.deliver(0, place, 1);
    }
    assert_eq!(paths.at(0)[..2], [Active, Active]);
    paths.deliver(990, 0, 100);
    paths.at(990);
    paths.deliver(1040, 1, 100);
    paths.at(1040);
    paths.inputs[0].belief = Stalled;
    paths.at(1060);
    paths.inputs[1].belief = Stalled;
    assert_eq!(paths.at(1070)[..2], [Closed, Active]);
}

#[test]
fn a_unit_of_which_no_message_came_is_not_tried() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.hear(0, 0, Good, -70.0);
    paths.at(0);
    (paths.inputs[0].belief, paths.inputs[3].belief) = (Stalled, Stalled);
    assert_eq!(paths.at(1000), [Active, Closed, Closed, Active]);
}

#[test]
fn a_radio_counts_as_one_path_with_its_best_rank() {
    let mut paths = Paths::new(Mode::Backup);
    paths.inputs[3].rank = 1;
    (paths.inputs[0].rank, paths.inputs[1].rank, paths.inputs[2].rank) = (0, 2, 3);
    paths.hear(0, 1, Good, -70.0);
    paths.inputs[3].belief = Good;
    assert_eq!(paths.at(0), [Closed, Active, Closed, Backup]);
    paths.inputs[1].belief = Fading;
    assert_eq!(paths.at(100), [Closed, Backup, Closed, Active]);
}

#[test]
fn a_path_that_stalls_alone_is_left_when_its_frames_are_gone() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.prove(0);
    paths.hear(0, 0, Good, -60.0);
    paths.hear(0, 1, Good, -69.0);
    paths.prove(90);
    assert_eq!(paths.at(90)[..2], [Active, Backup]);
    for (ms, delivered) in [(100, 1), (120, 2)] {
        let transport = Transport { delivered, unacked: 20, ..transport() };
        paths.latest[0].transport = Some((Instant::from_millis(ms), transport));
        paths.deliver(ms, 1, 0);
        paths.at(ms);
    }
    paths.inputs[0].belief = Stalled;
    paths.deliver(180, 1, 0);
    assert_eq!(paths.at(180)[..2], [Active, Backup], "20 frames for a station that is gone fill the queue");
    let until = paths.allocator.next_wakeup().unwrap();
    assert_eq!(until, Instant::from_millis(120) + FRAME_HOLD * 20);
    paths.deliver(460, 1, 0);
    assert_eq!(paths.at(460)[..2], [Closed, Active]);
}

#[test]
fn a_path_with_few_segments_under_way_is_left_at_once() {
    let mut paths = Paths::new(Mode::Aggregate);
    paths.prove(0);
    paths.hear(0, 0, Good, -60.0);
    paths.hear(0, 1, Good, -69.0);
    paths.prove(90);
    paths.at(90);
    paths.deliver(120, 0, 2);
    paths.deliver(120, 1, 0);
    paths.at(120);
    paths.inputs[0].belief = Stalled;
    assert_eq!(paths.at(180)[..2], [Closed, Active]);
}

#[test]
fn a_path_that_stalls_is_not_excused_while_a_path_beyond_the_radio_is_good() {
    let mut paths = Paths::new(Mode::Backup);
    paths.hear(0, 0, Good, -86.0);
    paths.hear(0, 1, Fading, -88.0);
    paths.inputs[3].belief = Good;
    paths.prove(0);
    assert_eq!(paths.at(0), [Active, Closed, Closed, Backup]);
    paths.inputs[1].was = Backup;
    paths.inputs[0].belief = Stalled;
    paths.inputs[1].belief = Stalled;
    paths.prove(20);
    assert_eq!(paths.at(20), [Closed, Closed, Closed, Active], "nor one that begins to carry");
}
