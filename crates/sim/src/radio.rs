//! The mean signal between the vehicle and the roadside units of one radio.

use crosslane_core::rng::Rng;

use crate::mobility::distance_m;
use crate::path_loss::Geometry;
use crate::scenario::{Radio, RoadsideUnit, Scenario};
use crate::shadowing::Shadowing;

/// The units that share a radio, and the channel to each.
#[derive(Clone, Debug)]
pub struct Coverage {
    radio: Radio,
    vehicle_m: f64,
    channels: Vec<Channel>,
}

#[derive(Clone, Debug)]
struct Channel {
    unit: RoadsideUnit,
    /// None on the bare path loss.
    shadowing: Option<Shadowing>,
}

/// How the vehicle hears a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signal {
    /// The unit, by its place among those of the radio.
    pub unit: usize,
    /// Distance over ground, in m.
    pub distance_m: f64,
    /// Mean received power, in dBm, with shadowing, before fading.
    pub mean_dbm: f64,
}

impl Coverage {
    /// Coverage of a radio of the scenario around a vehicle that begins at
    /// `position_m`; without `seed` there is no shadowing.
    pub fn new(scenario: &Scenario, radio: &Radio, seed: Option<u64>, position_m: [f64; 2]) -> Coverage {
        let decorrelation_m = radio.shadowing_distance_m.unwrap_or(radio.path_loss.decorrelation_m());
        let units = scenario.units.iter().filter(|unit| unit.radio == radio.name);
        let channels = units.map(|unit| Channel {
            shadowing: seed.map(|seed| {
                let rng = Rng::new(seed, &format!("shadowing {}", unit.name));
                Shadowing::new(rng, decorrelation_m, position_m)
            }),
            unit: unit.clone(),
        });
        Coverage { radio: radio.clone(), vehicle_m: scenario.vehicle.antenna_m, channels: channels.collect() }
    }

    /// The radio.
    pub fn radio(&self) -> &Radio {
        &self.radio
    }

    /// The units, in the order of the file.
    pub fn units(&self) -> impl Iterator<Item = &RoadsideUnit> {
        self.channels.iter().map(|channel| &channel.unit)
    }

    /// How the vehicle at a position hears a unit that is on.
    pub fn signal(&mut self, unit: usize, position_m: [f64; 2]) -> Signal {
        let channel = &mut self.channels[unit];
        let distance_m = distance_m(channel.unit.position_m, position_m);
        let [beside_x, beside_y] = [0, 1].map(|axis| (channel.unit.position_m[axis] - position_m[axis]).abs());
        let loss_db = self.radio.path_loss.loss_db(Geometry {
            distance_m,
            beside_m: beside_x.min(beside_y),
            vehicle_m: self.vehicle_m,
            unit_m: channel.unit.antenna_m,
        });
        let sigma_db = self.radio.shadowing_db.unwrap_or(self.radio.path_loss.shadowing_db(distance_m));
        let shadow = |shadowing: &mut Shadowing| shadowing.loss_db(position_m, sigma_db);
        let shadow_db = channel.shadowing.as_mut().map_or(0.0, shadow);
        Signal { unit, distance_m, mean_dbm: self.radio.eirp_dbm - loss_db - shadow_db }
    }

    /// The unit that serves the vehicle at `t_s`: the one with the strongest
    /// mean signal of those that are on. Several units share one path.
    pub fn serving(&mut self, t_s: f64, position_m: [f64; 2]) -> Option<Signal> {
        let mut best: Option<Signal> = None;
        for unit in 0..self.channels.len() {
            let signal = self.signal(unit, position_m);
            let on = !is_within(t_s, &self.channels[unit].unit.silent_s);
            if on && best.is_none_or(|best| signal.mean_dbm > best.mean_dbm) {
                best = Some(signal);
            }
        }
        best
    }
}

/// True if `t_s` lies in one of the spans, whose ends do not belong to them.
pub fn is_within(t_s: f64, spans: &[[f64; 2]]) -> bool {
    spans.iter().any(|&[begin, end]| begin <= t_s && t_s < end)
}
