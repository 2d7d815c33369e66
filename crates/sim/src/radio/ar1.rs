//! Random variation around a mean over time: fast fading, other users, the
//! cell's scheduler.

use crosslane_core::rng::Rng;

/// A stationary normal process with mean 0, deviation 1 and correlation
/// e^(−time / memory) (Ornstein and Uhlenbeck; AR(1) when sampled).
#[derive(Clone, Debug)]
pub struct Ar1 {
    rng: Rng,
    memory_s: f64,
    t_s: f64,
    value: f64,
}

impl Ar1 {
    /// A process that starts at 0 s; `memory_s` is above 0.
    pub fn new(mut rng: Rng, memory_s: f64) -> Ar1 {
        let value = rng.normal();
        Ar1 { rng, memory_s, t_s: 0.0, value }
    }

    /// Value at a time; times must not decrease.
    pub fn at(&mut self, t_s: f64) -> f64 {
        if t_s > self.t_s {
            let memory = libm::exp((self.t_s - t_s) / self.memory_s);
            self.value = memory * self.value + libm::sqrt(1.0 - memory * memory) * self.rng.normal();
            self.t_s = t_s;
        }
        self.value
    }
}

/// Deviation from the median, in dB, for a value of the process: a two-piece
/// normal distribution with separate deviations below and above the median.
pub fn off_median_db(value: f64, [below_db, above_db]: [f64; 2]) -> f64 {
    value * if value < 0.0 { below_db } else { above_db }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_deviation_one_and_the_specified_memory() {
        let mut process = Ar1::new(Rng::new(1, "process"), 2.0);
        let values: Vec<f64> = (0..200_000).map(|step| process.at(f64::from(step) * 0.5)).collect();
        let n = values.len() as f64;
        let power = values.iter().map(|x| x * x).sum::<f64>() / n;
        let after_2_s = values.windows(5).map(|w| w[0] * w[4]).sum::<f64>() / n;
        assert!((power - 1.0).abs() < 0.05, "variance {power}");
        assert!((after_2_s / power - 0.368).abs() < 0.03, "correlation {after_2_s}");
    }
}
