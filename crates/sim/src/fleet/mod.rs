//! Many vehicles on one map, each with its own links, transport and agent.
//!
//! Vehicles meet in the air only: those that a roadside unit serves share its
//! channel. In steps of [`STEP`] every vehicle goes on by itself, whatever the
//! others do, so that they may be spread over threads; between steps each is
//! told which part of the air the others leave to it in the next one.
//!
//! What the steps cost in truth: a vehicle learns of the others' packets up to
//! [`STEP`] late, and never of a single packet, only of the part of the time
//! that they take.

use std::collections::BTreeMap;

use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use crate::input::mobility::Track;
use crate::scenario::{Fleet as Wanted, Scenario, ScenarioError, Strategy};
use crate::simulation::{Detail, Simulation};

pub mod air;
mod outcome;

pub use outcome::{Outcome, Totals};

/// How long vehicles go on without hearing of each other.
pub const STEP: Duration = Duration::from_millis(10);
/// A share that differs less from the one before is not told.
const LEAST_NEWS: f64 = 0.005;

/// A run of many vehicles.
pub struct Fleet {
    vehicles: Vec<Vehicle>,
    radios: Vec<PathId>,
    now: Instant,
    end: Instant,
}

/// One of the vehicles.
pub struct Vehicle {
    number: u32,
    here: [Instant; 2],
    state: State,
    /// The part of the air that it was last told, by radio.
    shares: Vec<f64>,
}

enum State {
    /// On its way, or not there yet.
    Running(Box<Simulation>),
    /// It has left.
    Gone(Box<Outcome>),
}

impl Fleet {
    /// The vehicles of a scenario with `[fleet]`, whose files are
    /// [resolved](Scenario::resolve); none has moved.
    ///
    /// # Errors
    /// A scenario without a fleet, or what [`Simulation::new`] tells.
    pub fn new(scenario: &Scenario, strategy: &Strategy, seed: u64) -> Result<Fleet, ScenarioError> {
        let wanted = scenario.fleet.ok_or_else(|| no_fleet(scenario))?;
        let mut common = scenario.clone();
        let tracks = std::mem::take(&mut common.data.fleet);
        let vehicle = |(number, track)| Vehicle::new(&mut common, &wanted, strategy, seed, number, track);
        Ok(Fleet {
            vehicles: tracks.into_iter().map(vehicle).collect::<Result<_, _>>()?,
            radios: (0..scenario.radios.len() as u8).map(PathId).collect(),
            now: Instant::ZERO,
            end: Instant::from_secs_f64(scenario.duration_s),
        })
    }

    /// The vehicles. Let each [go on](Vehicle::run_until) to [`Fleet::next`],
    /// on any thread, then [share the air](Fleet::share_air).
    pub fn vehicles(&mut self) -> &mut [Vehicle] {
        &mut self.vehicles
    }

    /// The end of the present step; none after the run's end.
    pub fn next(&self) -> Option<Instant> {
        (self.now < self.end).then(|| (self.now + STEP).min(self.end))
    }

    /// Ends the step: tells each vehicle what the others leave of the air.
    pub fn share_air(&mut self) {
        self.now = self.next().unwrap_or(self.end);
        for (place, &path) in self.radios.iter().enumerate() {
            let mut cells: BTreeMap<usize, Vec<(usize, air::Use)>> = BTreeMap::new();
            for (vehicle, one) in self.vehicles.iter_mut().enumerate() {
                if let Some((unit, used)) = one.air_used(path) {
                    cells.entry(unit).or_default().push((vehicle, used));
                }
            }
            for stations in cells.values() {
                let uses: Vec<air::Use> = stations.iter().map(|(_, used)| *used).collect();
                for ((vehicle, _), share) in stations.iter().zip(air::shares(&uses)) {
                    self.vehicles[*vehicle].set_share(place, path, share);
                }
            }
        }
    }

    /// Lets the whole run go on until a moment, on this thread.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(next) = self.next().filter(|next| *next <= until) {
            for vehicle in &mut self.vehicles {
                vehicle.run_until(next);
            }
            self.share_air();
        }
    }

    /// Ends the run: what came of each vehicle, in order of their number.
    pub fn finish(self) -> Vec<Outcome> {
        self.vehicles.into_iter().map(Vehicle::finish).collect()
    }
}

impl Vehicle {
    /// `common` is the scenario of all; it is left with this vehicle's way and
    /// traffic in it.
    fn new(
        common: &mut Scenario,
        wanted: &Wanted,
        strategy: &Strategy,
        seed: u64,
        number: u32,
        track: Track,
    ) -> Result<Vehicle, ScenarioError> {
        let mut chance = Rng::new(seed, &format!("vehicle {number}"));
        let own_seed = u64::from(chance.below(u32::MAX)) << 32 | u64::from(chance.below(u32::MAX));
        let ends = [track.points().first(), track.points().last()].map(|point| point.map_or(0.0, |point| point.t_s));
        let here_s = ends.map(|t_s| (t_s + common.vehicle.start_s).min(common.duration_s));
        let all = common.traffic.clone();
        common.traffic = wanted.traffic(&all, here_s, chance.uniform());
        common.data.mobility = Some(track);
        let simulation = Simulation::new(common, strategy, own_seed, Detail::NONE);
        common.traffic = all;
        Ok(Vehicle {
            number,
            here: here_s.map(Instant::from_secs_f64),
            state: State::Running(Box::new(simulation?)),
            shares: vec![1.0; common.radios.len()],
        })
    }

    /// Goes on until a moment. Before it is there, and once it has left, it does
    /// nothing.
    pub fn run_until(&mut self, until: Instant) {
        let [from, to] = self.here;
        let State::Running(simulation) = &mut self.state else { return };
        if until < from {
            return;
        }
        simulation.run_until(until.min(to));
        if until >= to {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Gone(Box::default())) {
            State::Running(simulation) => {
                State::Gone(Box::new(Outcome::of(self.number, self.here, simulation.finish())))
            }
            gone @ State::Gone(_) => gone,
        };
    }

    /// The unit that serves it, by its place among the radio's, and what it took
    /// of the air in the last step.
    fn air_used(&mut self, path: PathId) -> Option<(usize, air::Use)> {
        let State::Running(simulation) = &mut self.state else { return None };
        let (unit, used, backlog) = simulation.air_used(path)?;
        Some((unit, air::Use { part: (used.as_secs_f64() / STEP.as_secs_f64()).min(1.0), backlog }))
    }

    fn set_share(&mut self, place: usize, path: PathId, share: f64) {
        if let State::Running(simulation) = &mut self.state
            && (self.shares[place] - share).abs() > LEAST_NEWS
        {
            self.shares[place] = share;
            simulation.set_air_share(path, share);
        }
    }

    fn finish(mut self) -> Outcome {
        self.leave();
        match self.state {
            State::Gone(outcome) => *outcome,
            State::Running(_) => Outcome::default(),
        }
    }
}

fn no_fleet(scenario: &Scenario) -> ScenarioError {
    ScenarioError {
        file: scenario.name.clone(),
        line: None,
        what: "the scenario has no fleet".into(),
        remedy: "add `[fleet]`".into(),
    }
}
