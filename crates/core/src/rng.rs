//! The only source of randomness: seeded, with the same values on every platform.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator. Streams with different names share no values, so drawing more
/// from one (e.g. for a longer queue) does not change another.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream `name` of the run with this seed.
    pub fn new(seed: u64, name: &str) -> Rng {
        // FNV-1a mixes the name into the seed; `seed_from_u64` then applies SplitMix64.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.rotate_left(32);
        for byte in name.bytes().chain(seed.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Rng(Xoshiro256PlusPlus::seed_from_u64(hash))
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability (0 to 1).
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.uniform() < probability
    }

    /// Uniform in `0..bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.0.next_u64() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.uniform())
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }

    /// Gamma with the given shape (> 0) and mean 1: the power of a Nakagami-m
    /// channel with m = `shape` (Marsaglia and Tsang, 2000).
    pub fn gamma_mean_one(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // Gamma(a) = Gamma(a + 1) * U^(1/a), scaled to mean 1.
            let factor = libm::pow(1.0 - self.uniform(), 1.0 / shape);
            return self.gamma_mean_one(shape + 1.0) * factor * (shape + 1.0) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        let mut a = Rng::new(7, "fading");
        let mut b = Rng::new(7, "fading");
        let mut c = Rng::new(7, "loss");
        let mut d = Rng::new(8, "fading");
        let first = a.uniform();
        assert_eq!(first, b.uniform());
        assert_ne!(first, c.uniform());
        assert_ne!(first, d.uniform());
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut rng = Rng::new(1, "moments");
        let n = 100_000;
        let normal: f64 = (0..n).map(|_| rng.normal()).sum::<f64>() / n as f64;
        assert!(normal.abs() < 0.02, "mean {normal}");
        let (sum, squares) = (0..n).map(|_| rng.exponential()).fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        let (mean, power) = (sum / n as f64, squares / n as f64);
        assert!((mean - 1.0).abs() < 0.02 && (power - 2.0).abs() < 0.06, "mean {mean}, power {power}");
        for shape in [0.45, 1.0, 3.0] {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let x = rng.gamma_mean_one(shape);
                sum += x;
                squares += x * x;
            }
            let mean = sum / n as f64;
            let variance = squares / n as f64 - mean * mean;
            assert!((mean - 1.0).abs() < 0.03, "m {shape}: mean {mean}");
            assert!((variance * shape - 1.0).abs() < 0.08, "m {shape}: variance {variance}");
        }
    }
}
