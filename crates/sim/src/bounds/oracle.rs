//! The oracle: an agent that knows the future state of every path.
//!
//! No real strategy has this knowledge, so its results are an upper bound. The
//! oracle runs the world of the same scenario and seed in advance and records
//! when each path carries data. The allocator and the path manager are those of
//! every other agent; only the assessors differ.

use crosslane_core::actuator::Actuator;
use crosslane_core::agent::Agent;
use crosslane_core::allocate::by_belief::ByBelief;
use crosslane_core::assess::{Assessor, Belief};
use crosslane_core::path::{PathId, PathSpec, Sample};
use crosslane_core::reason::Reason;
use crosslane_core::time::{Duration, Instant};

use crate::scenario::{Mode, OracleParams as Params, Scenario};
use crate::world::{TICK, Truth, World, WorldEvent};

/// The future of a run, path by path.
#[derive(Clone, Debug)]
pub struct Foresight {
    params: Params,
    names: Vec<String>,
    paths: Vec<Future>,
}

/// The future of one path.
#[derive(Clone, Debug, Default)]
struct Future {
    /// Intervals `[from, to]` in which it is usable, ordered and disjoint.
    spans: Vec<[Instant; 2]>,
    /// Its capacity within them, in bytes.
    bytes: f64,
}

impl Foresight {
    /// Runs a new `world` of the scenario to its end.
    pub fn new(mut world: World, scenario: &Scenario, params: Params) -> Foresight {
        let mut paths = vec![Future::default(); scenario.paths().len()];
        let traffic = &scenario.traffic;
        let traffic_s = traffic.start_s..traffic.stop_s;
        while let Some(now) = world.next_wakeup() {
            while let Some(event) = world.poll(now) {
                let WorldEvent::Truth(truth) = event else { continue };
                let Some(future) = paths.get_mut(usize::from(truth.path.0)) else { continue };
                let mbit_s = if traffic.down { truth.down_mbit_s } else { truth.up_mbit_s };
                if mbit_s >= params.floor_mbit_s && truth.loss <= params.loss {
                    future.add(&truth, millis(params.ride_out_ms));
                    if traffic_s.contains(&truth.at.as_secs_f64()) {
                        future.bytes += mbit_s * (1.0 - truth.loss) * 1e6 / 8.0 * TICK.as_secs_f64();
                    }
                }
            }
        }
        let names = scenario.paths().iter().map(|path| path.name.to_owned()).collect();
        Foresight { params, names, paths }
    }

    /// IP bytes that each path could carry during the traffic, in order of path
    /// id: the integral of its rate over the intervals in which it is usable.
    pub fn bytes(&self) -> Vec<f64> {
        self.paths.iter().map(|future| future.bytes).collect()
    }

    /// The agent that uses this knowledge. `ranks` and `actuators` as in
    /// [`Agent::new`].
    pub fn agent(&self, paths: &[PathSpec], ranks: &[u8], mode: Mode, actuators: Vec<Box<dyn Actuator>>) -> Agent {
        let (names, futures, params) = (self.names.clone(), self.paths.clone(), self.params);
        let assessors = move |_: PathId, spec: &PathSpec| -> Vec<Box<dyn Assessor + Send>> {
            let place = names.iter().position(|name| *name == spec.name);
            let future = place.map(|place| futures[place].clone()).unwrap_or_default();
            vec![Box::new(Oracle::new(future, params))]
        };
        let allocator = ByBelief::new(mode, params.on_fade);
        Agent::of(paths, ranks, Box::new(assessors), Box::new(allocator), actuators)
    }
}

impl Future {
    fn add(&mut self, truth: &Truth, ride_out: Duration) {
        let until = truth.at + TICK;
        match self.spans.last_mut() {
            Some([_, end]) if truth.at <= *end + ride_out => *end = until,
            _ => self.spans.push([truth.at, until]),
        }
    }
}

/// Assessor of one path.
struct Oracle {
    future: Future,
    params: Params,
    /// Index of the first span that has not ended.
    place: usize,
    belief: Belief,
    reason: Reason,
    next: Option<Instant>,
}

impl Oracle {
    fn new(future: Future, params: Params) -> Oracle {
        Oracle {
            future,
            params,
            place: 0,
            belief: Belief::Unknown,
            reason: Reason::default(),
            next: Some(Instant::ZERO),
        }
    }

    fn believe(&mut self, belief: Belief, until: Option<Instant>, now: Instant) {
        self.next = until;
        if belief == self.belief {
            return;
        }
        self.belief = belief;
        let left_s = until.map_or(f64::INFINITY, |until| until.since(now).as_secs_f64());
        let (rule, text) = match belief {
            Belief::Good => ("oracle.carries", format!("the path is usable for at least another {left_s:.1} s")),
            Belief::Fading => ("oracle.ends", format!("the path is usable for only another {left_s:.2} s")),
            _ => ("oracle.silent", format!("the path carries nothing for {left_s:.1} s")),
        };
        self.reason = Reason::plain(rule, text).with([("left_s", left_s)]);
    }
}

impl Assessor for Oracle {
    fn observe(&mut self, _: Instant, _: &Sample) {}

    fn advance(&mut self, now: Instant) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        while self.future.spans.get(self.place).is_some_and(|[_, end]| *end <= now) {
            self.place += 1;
        }
        let lookahead = millis(self.params.lookahead_ms);
        match self.future.spans.get(self.place).copied() {
            None => self.believe(Belief::Lost, None, now),
            Some([begin, _]) if now < begin => self.believe(Belief::Lost, Some(begin), now),
            Some([_, end]) if now + lookahead < end => self.believe(Belief::Good, Some(end - lookahead), now),
            Some([_, end]) => self.believe(Belief::Fading, Some(end), now),
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.next
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    const SUDDEN: &str = include_str!("../../../../scenarios/sudden-loss.toml");

    fn foresight(params: Params) -> Result<Foresight, Box<dyn Error>> {
        let scenario = Scenario::parse(SUDDEN, "test.toml")?;
        Ok(Foresight::new(World::new(&scenario, 1)?, &scenario, params))
    }

    /// Changes of the belief of a path: (ms, belief).
    fn beliefs(foresight: &Foresight, path: usize) -> Vec<(u64, Belief)> {
        let mut oracle = Oracle::new(foresight.paths[path].clone(), foresight.params);
        let mut changes = Vec::new();
        while let Some(now) = oracle.next_wakeup() {
            let before = oracle.belief;
            oracle.advance(now);
            if oracle.belief != before {
                changes.push((now.as_nanos() / 1_000_000, oracle.belief));
            }
        }
        changes
    }

    #[test]
    fn an_rsu_that_stops_at_20_s_is_left_just_before() -> Result<(), Box<dyn Error>> {
        let beliefs = beliefs(&foresight(Params::default())?, 0);
        let leave = [(0, Belief::Good), (19_900, Belief::Fading), (20_000, Belief::Lost)];
        assert_eq!(beliefs.get(..3), Some(&leave[..]));
        Ok(())
    }

    #[test]
    fn a_path_that_always_carries_is_left_only_at_the_end_of_the_run() -> Result<(), Box<dyn Error>> {
        let beliefs = beliefs(&foresight(Params::default())?, 1);
        assert_eq!(beliefs[0], (0, Belief::Good));
        assert!(beliefs[1].0 >= 39_900, "{beliefs:?}");
        Ok(())
    }

    #[test]
    fn the_bound_is_the_rate_times_the_time_in_which_a_path_carries() -> Result<(), Box<dyn Error>> {
        let scenario = Scenario::parse(SUDDEN, "test.toml")?;
        let bytes = foresight(Params::default())?.bytes();
        let whole = (scenario.traffic.stop_s - scenario.traffic.start_s) * scenario.access[0].up_mbit_s * 1e6 / 8.0;
        assert!((bytes[1] / whole - 1.0).abs() < 1e-3, "{} of {whole}", bytes[1]);
        assert!(bytes[0] > 10e6 && bytes[0] < 20.0 * 5.2e6 / 8.0, "{}", bytes[0]);
        Ok(())
    }

    #[test]
    fn a_path_below_the_floor_carries_nothing() -> Result<(), Box<dyn Error>> {
        let foresight = foresight(Params { floor_mbit_s: 1e3, ..Params::default() })?;
        assert_eq!(foresight.bytes(), [0.0, 0.0]);
        assert_eq!(beliefs(&foresight, 0), [(0, Belief::Lost)]);
        Ok(())
    }
}
