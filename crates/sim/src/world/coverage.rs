//! The mean signal between the vehicle and the RSUs of one radio.

use crosslane_core::rng::Rng;

use crate::input::mobility::distance_m;
use crate::radio::path_loss::Geometry;
use crate::radio::shadowing::{Memory, Shadowing};
use crate::scenario::{Radio, RoadsideUnit, Scenario};

/// An RSU is out of reach if its signal, by path loss only, is more than this
/// many dB below the noise: neither shadowing nor fading compensates for it.
const REACH_MARGIN_DB: f64 = 30.0;
/// The set of RSUs in reach is updated after the vehicle has moved this many m;
/// it includes those that may come into reach until then.
const UPDATE_M: f64 = 50.0;

/// The RSUs that share a radio, and the channel to each.
#[derive(Clone, Debug)]
pub struct Coverage {
    radio: Radio,
    vehicle_m: f64,
    channels: Vec<Channel>,
    memory: Memory,
    /// RSUs in reach: ascending indices into `channels`.
    near: Vec<usize>,
    updated_at_m: [f64; 2],
    updates: u64,
}

#[derive(Clone, Debug)]
struct Channel {
    unit: RoadsideUnit,
    /// None: path loss only.
    shadowing: Option<Shadowing>,
}

/// Signal of an RSU at the vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signal {
    /// Index of the RSU among those of the radio.
    pub unit: usize,
    /// Ground distance, in m.
    pub distance_m: f64,
    /// Mean received power with shadowing, before fading, in dBm.
    pub mean_dbm: f64,
}

impl Coverage {
    /// Coverage of a radio of the scenario for a vehicle that starts at
    /// `position_m`; without `seed` there is no shadowing.
    pub fn new(scenario: &Scenario, radio: &Radio, seed: Option<u64>, position_m: [f64; 2]) -> Coverage {
        let decorrelation_m = radio.shadowing_distance_m.unwrap_or(radio.path_loss.decorrelation_m());
        let channels = scenario.units_of(radio).map(|unit| Channel {
            shadowing: seed.map(|seed| {
                let rng = Rng::new(seed, &format!("shadowing {}", unit.name));
                Shadowing::new(rng, position_m)
            }),
            unit: unit.clone(),
        });
        let mut coverage = Coverage {
            radio: radio.clone(),
            vehicle_m: scenario.vehicle.antenna_m,
            channels: channels.collect(),
            memory: Memory::new(decorrelation_m),
            near: Vec::new(),
            updated_at_m: position_m,
            updates: 0,
        };
        coverage.update(position_m);
        coverage
    }

    /// The radio.
    pub fn radio(&self) -> &Radio {
        &self.radio
    }

    /// The RSUs, in file order.
    pub fn units(&self) -> impl Iterator<Item = &RoadsideUnit> {
        self.channels.iter().map(|channel| &channel.unit)
    }

    /// An RSU, by its index.
    pub fn unit(&self, unit: usize) -> Option<&RoadsideUnit> {
        self.channels.get(unit).map(|channel| &channel.unit)
    }

    /// Ascending indices of the RSUs in reach at the last
    /// [update](Self::updates).
    pub fn near(&self) -> &[usize] {
        &self.near
    }

    /// Number of updates of the set of RSUs in reach.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    fn update(&mut self, position_m: [f64; 2]) {
        self.updated_at_m = position_m;
        self.updates += 1;
        let (path_loss, vehicle_m) = (self.radio.path_loss, self.vehicle_m);
        let max_loss_db = self.radio.eirp_dbm - self.radio.noise_dbm + REACH_MARGIN_DB;
        let channels = self.channels.iter().enumerate();
        let near = channels
            .filter(|(_, channel)| path_loss.loss_db(channel.geometry(position_m, vehicle_m, UPDATE_M)) <= max_loss_db);
        self.near.clear();
        self.near.extend(near.map(|(place, _)| place));
    }

    /// Signal, at a vehicle position, of an RSU that is on.
    pub fn signal(&mut self, unit: usize, position_m: [f64; 2]) -> Signal {
        let channel = &mut self.channels[unit];
        let geometry = channel.geometry(position_m, self.vehicle_m, 0.0);
        let (distance_m, loss_db) = (geometry.distance_m, self.radio.path_loss.loss_db(geometry));
        let sigma_db = self.radio.shadowing_db.unwrap_or(self.radio.path_loss.shadowing_db(distance_m));
        let shadow = |shadowing: &mut Shadowing| shadowing.loss_db(position_m, sigma_db, &mut self.memory);
        let shadow_db = channel.shadowing.as_mut().map_or(0.0, shadow);
        Signal { unit, distance_m, mean_dbm: self.radio.eirp_dbm - loss_db - shadow_db }
    }

    /// Signal of an RSU at `t_s`; none if it is off or out of reach.
    pub fn signal_if_on(&mut self, unit: usize, t_s: f64, position_m: [f64; 2]) -> Option<Signal> {
        self.follow(position_m);
        if !self.near.contains(&unit) || is_within(t_s, &self.channels[unit].unit.outages_s) {
            return None;
        }
        Some(self.signal(unit, position_m))
    }

    /// Updates the set of RSUs in reach when the vehicle has moved.
    fn follow(&mut self, position_m: [f64; 2]) {
        if distance_m(self.updated_at_m, position_m) >= UPDATE_M {
            self.update(position_m);
        }
    }

    /// The RSU that serves the vehicle at `t_s`: the one with the strongest mean
    /// signal of those in reach that are on. All RSUs of a radio share one path.
    pub fn serving(&mut self, t_s: f64, position_m: [f64; 2]) -> Option<Signal> {
        self.follow(position_m);
        let mut best: Option<Signal> = None;
        for place in 0..self.near.len() {
            let unit = self.near[place];
            let signal = self.signal(unit, position_m);
            let on = !is_within(t_s, &self.channels[unit].unit.outages_s);
            if on && best.is_none_or(|best| signal.mean_dbm > best.mean_dbm) {
                best = Some(signal);
            }
        }
        best
    }
}

impl Channel {
    /// Geometry between the RSU and a vehicle that is up to `nearer_m` nearer to
    /// it than this position.
    fn geometry(&self, position_m: [f64; 2], vehicle_m: f64, nearer_m: f64) -> Geometry {
        let distance_m = (distance_m(self.unit.position_m, position_m) - nearer_m).max(0.0);
        let [lateral_x, lateral_y] = [0, 1].map(|axis| (self.unit.position_m[axis] - position_m[axis]).abs());
        let lateral_m = (lateral_x.min(lateral_y) - nearer_m).max(0.0);
        Geometry { distance_m, lateral_m, vehicle_m, unit_m: self.unit.antenna_m }
    }
}

/// True if `t_s` is in one of the half-open spans `[begin, end)`.
pub fn is_within(t_s: f64, spans: &[[f64; 2]]) -> bool {
    spans.iter().any(|&[begin, end]| begin <= t_s && t_s < end)
}
