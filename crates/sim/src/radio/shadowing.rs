//! Shadowing: log-normal, correlated over the distance driven.

use crosslane_core::rng::Rng;

/// Shadowing between two stations (Gudmundson, *Electronics Letters* 27, 1991): an
/// autoregressive process with correlation e^(−distance / decorrelation).
#[derive(Clone, Debug)]
pub struct Shadowing {
    rng: Rng,
    position_m: [f64; 2],
    /// Standard normal.
    value: f64,
}

/// Correlation of shadowing over a distance. It is the same for all stations of a
/// vehicle, so it is computed once per step.
#[derive(Clone, Debug)]
pub struct Memory {
    decorrelation_m: f64,
    moved_m: f64,
    old: f64,
    new: f64,
}

impl Memory {
    /// A memory that falls to 1/e over `decorrelation_m`, which is above 0.
    pub fn new(decorrelation_m: f64) -> Memory {
        Memory { decorrelation_m, moved_m: 0.0, old: 1.0, new: 0.0 }
    }

    /// Weights of the value `moved_m` ago and of a new one.
    fn after(&mut self, moved_m: f64) -> (f64, f64) {
        if self.moved_m != moved_m {
            self.moved_m = moved_m;
            self.old = libm::exp(-moved_m / self.decorrelation_m);
            self.new = libm::sqrt(1.0 - self.old * self.old);
        }
        (self.old, self.new)
    }
}

impl Shadowing {
    /// Shadowing that starts at a position.
    pub fn new(mut rng: Rng, position_m: [f64; 2]) -> Shadowing {
        let value = rng.normal();
        Shadowing { rng, position_m, value }
    }

    /// Loss, in dB, at the next position, with standard deviation `sigma_db`
    /// there.
    pub fn loss_db(&mut self, position_m: [f64; 2], sigma_db: f64, memory: &mut Memory) -> f64 {
        let moved_m = crate::input::mobility::distance_m(self.position_m, position_m);
        if moved_m > 0.0 {
            let (old, new) = memory.after(moved_m);
            self.value = old * self.value + new * self.rng.normal();
            self.position_m = position_m;
        }
        sigma_db * self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(step_m: f64, steps: u32) -> Vec<f64> {
        let mut shadowing = Shadowing::new(Rng::new(3, "shadowing"), [0.0, 0.0]);
        let mut memory = Memory::new(10.0);
        let position = |step: u32| [f64::from(step) * step_m, 0.0];
        (0..steps).map(|step| shadowing.loss_db(position(step), 4.0, &mut memory)).collect()
    }

    #[test]
    fn shadowing_has_its_deviation_and_forgets_over_its_distance() {
        let losses = walk(2.0, 200_000);
        let n = losses.len() as f64;
        let power = losses.iter().map(|x| x * x).sum::<f64>() / n;
        let after_10_m = losses.windows(6).map(|w| w[0] * w[5]).sum::<f64>() / n;
        assert!((power - 16.0).abs() < 0.8, "variance {power}");
        let correlation = after_10_m / power;
        assert!((correlation - 0.368).abs() < 0.03, "correlation {correlation}");
    }

    #[test]
    fn a_vehicle_at_rest_keeps_its_shadow() {
        let losses = walk(0.0, 10);
        assert!(losses.iter().all(|loss| *loss == losses[0]));
    }
}
