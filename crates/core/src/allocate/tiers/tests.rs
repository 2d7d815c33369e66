use alloc::vec;

use super::*;
use crate::allocate::{Latest, select_active};
use crate::path::{OnFade, Rat, Transport};
use PathState::{Active, Backup};

/// Rate of each path in Mbit/s, the cheapest first.
const RATES: [u32; 3] = [5, 20, 50];
const SPILL: &str = "cost-first.spill";
const RETURN: &str = "cost-first.return";

/// Paths that are good, and a sender.
struct Paths {
    tiers: Tiers,
    inputs: Vec<PathInput>,
    now_ms: u64,
    /// The rule of each change, and when it applied, in ms.
    changes: Vec<(u64, &'static str)>,
}

impl Paths {
    fn new(mode: Mode) -> Paths {
        let input = |rank| PathInput { belief: Belief::Good, was: Backup, rank, radio: None };
        let mut paths =
            Paths { tiers: Tiers::new(mode), inputs: (0..3).map(input).collect(), now_ms: 0, changes: Vec::new() };
        paths.allocate();
        paths
    }

    fn allocate(&mut self) {
        let states = select_active(&self.inputs, |place, path| self.tiers.is_on(place, path), OnFade::Backup);
        self.inputs.iter_mut().zip(states).for_each(|(input, state)| input.was = state);
    }

    /// For a time, a sample every 10 ms of each path, which is full or not.
    fn sample(&mut self, for_ms: u64, is_full: impl Fn(&[PathInput]) -> Vec<bool>) {
        for _ in 0..for_ms / 10 {
            let now = Instant::from_millis(self.now_ms);
            let transport = |is_full| Transport { unacked: if is_full { 10 } else { 9 }, ..Transport::IDLE };
            let latest = |is_full| Latest { transport: Some((now, transport(is_full))), ..Latest::default() };
            let latest: Vec<Latest> = is_full(&self.inputs).into_iter().map(latest).collect();
            let supply = |(&input, latest)| PathSupply { unit_cost: None, input, rat: Rat::Lte, history: None, latest };
            let supplies: Vec<PathSupply> = self.inputs.iter().zip(&latest).map(supply).collect();
            if let Some(reason) = self.tiers.review(now, &self.inputs, &supplies) {
                self.changes.push((self.now_ms, reason.rule));
            }
            self.allocate();
            self.now_ms += 10;
        }
    }

    /// For a time the sender has this much data, in Mbit/s; each active path carries what the ones
    /// before it do not.
    fn send(&mut self, for_ms: u64, mbit_s: u32) {
        self.sample(for_ms, |paths| {
            let mut left = mbit_s;
            let fill = |(path, rate): (&PathInput, &u32)| {
                let rate = if path.was == Active { *rate } else { 0 };
                let is_full = path.was == Active && left > rate;
                left = left.saturating_sub(rate);
                is_full
            };
            paths.iter().zip(&RATES).map(fill).collect()
        });
    }

    fn states(&self) -> Vec<PathState> {
        self.inputs.iter().map(|path| path.was).collect()
    }

    fn active(&self) -> usize {
        self.states().into_iter().filter(|state| *state == Active).count()
    }
}

#[test]
fn the_cheapest_path_carries_alone_until_it_is_full_then_the_next_and_they_return_in_turn() {
    let mut paths = Paths::new(Mode::CostFirst);
    paths.send(10_000, 3);
    assert_eq!((paths.active(), &paths.changes[..]), (1, &[][..]));
    paths.send(30_000, 8);
    assert_eq!((paths.active(), &paths.changes[..]), (2, &[(10_200, SPILL)][..]), "it does not flap");
    paths.send(10_000, 30);
    assert_eq!(paths.changes[1..], [(40_200, SPILL)]);
    paths.send(10_000, 3);
    assert_eq!(paths.changes[2..], [(51_990, RETURN), (53_990, RETURN)]);
    assert_eq!(paths.active(), 1);
}

#[test]
fn a_burst_is_no_reason_and_neither_is_a_pause() {
    let mut paths = Paths::new(Mode::CostFirst);
    for _ in 0..50 {
        paths.send(190, 30);
        paths.send(60, 3);
    }
    assert_eq!(paths.changes, []);
    paths.send(1_000, 8);
    for _ in 0..10 {
        paths.send(1_900, 0);
        paths.send(100, 8);
    }
    assert_eq!(paths.changes.len(), 1, "{:?}", paths.changes);
}

#[test]
fn the_hold_time_doubles_with_each_premature_return_up_to_a_minute() {
    let mut paths = Paths::new(Mode::CostFirst);
    // A scheduler that prefers the expensive path: the cheap one seems to suffice.
    paths.sample(600_000, |paths| vec![paths[1].was != Active, false, false]);
    let held: Vec<u64> =
        paths.changes.windows(2).filter(|pair| pair[0].1 == SPILL).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(held[..8], [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    paths.send(200_000, 3);
    paths.send(1_000, 8);
    paths.changes.clear();
    paths.send(10_000, 3);
    assert_eq!(paths.changes.len(), 1, "a return that lasts resets it: {:?}", paths.changes);
}

#[test]
fn while_the_cheapest_path_is_lost_the_next_one_takes_its_place_and_no_other_is_opened() {
    let mut paths = Paths::new(Mode::CostFirst);
    paths.send(1_000, 8);
    paths.inputs[0].belief = Belief::Lost;
    paths.send(1_000, 8);
    assert_eq!(paths.states()[1..], [Active, Backup]);
    paths.send(2_000, 8);
    assert_eq!(paths.changes.last(), Some(&(2_200, RETURN)), "20 Mbit/s are enough");
    paths.inputs[0].belief = Belief::Good;
    paths.send(150, 8);
    assert_eq!(paths.states(), [Active, Backup, Backup]);
    paths.inputs[0].belief = Belief::Lost;
    paths.send(1_000, 30);
    assert_eq!(paths.states()[1..], [Active, Active]);
}

#[test]
fn paths_of_one_rank_are_one_tier() {
    let mut paths = Paths::new(Mode::CostFirst);
    paths.inputs[1].rank = 0;
    paths.send(1_000, 3);
    assert_eq!(paths.active(), 2);
    paths.send(1_000, 30);
    assert_eq!((paths.active(), paths.changes.len()), (3, 1));
    paths.send(1_000, 100);
    assert_eq!(paths.changes.len(), 1, "there is no further path");
    paths.send(10_000, 3);
    assert_eq!(paths.changes.len(), 2, "both remain");
}

#[test]
fn the_other_modes_have_as_many_paths_as_ever() {
    for (mode, active) in [(Mode::Aggregate, 3), (Mode::Backup, 1)] {
        let mut paths = Paths::new(mode);
        paths.send(10_000, 100);
        assert_eq!((paths.active(), &paths.changes[..], paths.tiers.next_wakeup()), (active, &[][..], None));
    }
}
