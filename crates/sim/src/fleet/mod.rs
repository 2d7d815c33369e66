//! Many vehicles on one map, each with separate links, transport and agent.
//!
//! Vehicles interact only through the channel: those that one RSU serves share
//! its airtime. Within a step of [`STEP`] every vehicle advances independently,
//! so the vehicles can run on several threads. Between steps each vehicle
//! receives the share of the airtime that the others leave in the next step.
//!
//! The cost in accuracy: the packets of the others take effect up to [`STEP`]
//! late, and only as a share of the airtime, not as single packets.

use std::collections::BTreeMap;

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use self::airtime::AirtimeUse;
use crate::input::mobility::Track;
use crate::scenario::{Fleet as FleetConfig, Scenario, ScenarioError, Strategy};
use crate::simulation::{Detail, Simulation};

pub mod airtime;
mod outcome;

pub use outcome::{Outcome, metrics, table};

/// Time for which vehicles advance independently.
pub const STEP: Duration = Duration::from_millis(10);
/// Minimum change of a share that is applied.
const MIN_CHANGE: f64 = 0.005;

/// A run of many vehicles.
pub struct Fleet {
    vehicles: Vec<Vehicle>,
    /// Number of radios of a vehicle.
    radios: usize,
    now: Instant,
    end: Instant,
}

/// A vehicle of the fleet.
pub struct Vehicle {
    number: u32,
    here: [Instant; 2],
    /// None after it has departed.
    simulation: Option<Box<Simulation>>,
    outcome: Outcome,
    /// Share of the airtime last set, by radio.
    shares: Vec<f64>,
}

impl Fleet {
    /// The vehicles, before the start, of a scenario with `[fleet]` whose files
    /// are [resolved](Scenario::resolve).
    ///
    /// # Errors
    /// The scenario has no fleet, or [`Simulation::new`] fails.
    pub fn new(scenario: &Scenario, strategy: &Strategy, seed: u64) -> Result<Fleet, ScenarioError> {
        let config = scenario.fleet.ok_or_else(|| ScenarioError {
            file: scenario.name.clone(),
            line: None,
            what: "the scenario has no fleet".into(),
            remedy: "add `[fleet]`".into(),
        })?;
        let mut common = scenario.clone();
        let tracks = std::mem::take(&mut common.data.fleet);
        let vehicle = |(number, track)| Vehicle::new(&mut common, &config, strategy, seed, number, track);
        Ok(Fleet {
            vehicles: tracks.into_iter().map(vehicle).collect::<Result<_, _>>()?,
            radios: scenario.radios.len(),
            now: Instant::ZERO,
            end: Instant::from_secs_f64(scenario.duration_s),
        })
    }

    /// The vehicles. Advance each [until](Vehicle::run_until) [`Fleet::next`],
    /// on any thread, then [share the airtime](Fleet::share_airtime).
    pub fn vehicles(&mut self) -> &mut [Vehicle] {
        &mut self.vehicles
    }

    /// End of the current step; none after the end of the run.
    pub fn next(&self) -> Option<Instant> {
        (self.now < self.end).then(|| (self.now + STEP).min(self.end))
    }

    /// Ends the step: sets the share of the airtime that the others leave to
    /// each vehicle.
    pub fn share_airtime(&mut self) {
        self.now = self.next().unwrap_or(self.end);
        for radio in 0..self.radios {
            let mut cells: BTreeMap<usize, Vec<(usize, AirtimeUse)>> = BTreeMap::new();
            for (vehicle, member) in self.vehicles.iter_mut().enumerate() {
                if let Some((unit, used)) = member.airtime_used(radio) {
                    cells.entry(unit).or_default().push((vehicle, used));
                }
            }
            for stations in cells.values() {
                let uses: Vec<AirtimeUse> = stations.iter().map(|(_, used)| *used).collect();
                for ((vehicle, _), share) in stations.iter().zip(airtime::shares(&uses)) {
                    self.vehicles[*vehicle].set_share(radio, share);
                }
            }
        }
    }

    /// Advances the whole run until a time, on this thread.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(next) = self.next().filter(|next| *next <= until) {
            for vehicle in &mut self.vehicles {
                vehicle.run_until(next);
            }
            self.share_airtime();
        }
    }

    /// Ends the run: the outcome of each vehicle, in order of their number.
    pub fn finish(self) -> Vec<Outcome> {
        self.vehicles.into_iter().map(Vehicle::finish).collect()
    }
}

impl Vehicle {
    /// `common` is the scenario of all vehicles; its track is set to this
    /// vehicle's.
    fn new(
        common: &mut Scenario,
        config: &FleetConfig,
        strategy: &Strategy,
        seed: u64,
        number: u32,
        track: Track,
    ) -> Result<Vehicle, ScenarioError> {
        let mut rng = Rng::new(seed, &format!("vehicle {number}"));
        let own_seed = u64::from(rng.below(u32::MAX)) << 32 | u64::from(rng.below(u32::MAX));
        let span_s = [track.points.first(), track.points.last()].map(|point| point.map_or(0.0, |point| point.t_s));
        let here_s = span_s.map(|t_s| (t_s + common.vehicle.start_s).min(common.duration_s));
        let all = common.traffic.clone();
        common.traffic = config.traffic(&all, here_s, rng.uniform());
        common.data.mobility = Some(track);
        let simulation = Simulation::new(common, strategy, own_seed, Detail::NONE);
        common.traffic = all;
        Ok(Vehicle {
            number,
            here: here_s.map(Instant::from_secs_f64),
            simulation: Some(Box::new(simulation?)),
            outcome: Outcome::default(),
            shares: vec![1.0; common.radios.len()],
        })
    }

    /// Advances until a time. It does nothing before the vehicle is present and
    /// after it has departed.
    pub fn run_until(&mut self, until: Instant) {
        let [from, to] = self.here;
        let Some(simulation) = self.simulation.as_mut().filter(|_| until >= from) else { return };
        simulation.run_until(until.min(to));
        if until >= to {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if let Some(simulation) = self.simulation.take() {
            self.outcome = Outcome::of(self.number, self.here, simulation.finish());
        }
    }

    /// The serving RSU, by its index among the radio's, and the airtime used in
    /// the last step.
    fn airtime_used(&mut self, radio: usize) -> Option<(usize, AirtimeUse)> {
        let (unit, used, backlog) = self.simulation.as_mut()?.airtime_used(radio)?;
        Some((unit, AirtimeUse { part: (used.as_secs_f64() / STEP.as_secs_f64()).min(1.0), backlog }))
    }

    fn set_share(&mut self, radio: usize, share: f64) {
        let last = &mut self.shares[radio];
        if let Some(simulation) = &mut self.simulation
            && (*last - share).abs() > MIN_CHANGE
        {
            *last = share;
            simulation.set_airtime_share(radio, share);
        }
    }

    fn finish(mut self) -> Outcome {
        self.leave();
        self.outcome
    }
}
