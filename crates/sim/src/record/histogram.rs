//! A histogram of durations: quantiles of millions of values in constant memory.

use crosslane_core::time::Duration;

/// Buckets per factor of two: the relative error of a quantile is at most
/// 1 / (2 × this).
const PER_OCTAVE: u64 = 32;
const OCTAVES: u64 = 40;

/// A histogram of durations with logarithmic buckets, from 1 µs to 12 days.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Allocated with the first value; the size is fixed.
    counts: Vec<u32>,
    count: u64,
    longest: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn note(&mut self, time: Duration) {
        if self.counts.is_empty() {
            self.counts = vec![0; (PER_OCTAVE * OCTAVES) as usize];
        }
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = bucket(micros).min(self.counts.len() - 1);
        self.counts[place] = self.counts[place].saturating_add(1);
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The maximum; zero if there is no value.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The quantile `share` (0 to 1); none if there is no value.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = libm::ceil(share * self.count as f64).max(1.0) as u64;
        let mut cumulative = 0;
        for (place, &count) in self.counts.iter().enumerate() {
            cumulative += u64::from(count);
            if cumulative >= rank {
                return Some(Duration::from_micros(middle(place as u64)).min(self.longest));
            }
        }
        None
    }
}

/// Linear up to [`PER_OCTAVE`] µs, then [`PER_OCTAVE`] buckets per octave.
fn bucket(micros: u64) -> usize {
    let octave = (micros / PER_OCTAVE).checked_ilog2().map_or(0, |octave| u64::from(octave) + 1);
    let within = if octave == 0 { micros } else { (micros >> (octave - 1)) - PER_OCTAVE };
    (octave * PER_OCTAVE + within) as usize
}

fn middle(place: u64) -> u64 {
    match (place / PER_OCTAVE, place % PER_OCTAVE) {
        (0, within) => within,
        (octave, within) => ((PER_OCTAVE + within) << (octave - 1)) + (1 << (octave - 1)) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_near_the_exact_one_whatever_the_size() {
        for scale in [1, 1_000, 1_000_000, 1_000_000_000] {
            let mut histogram = Histogram::default();
            (1..=1000).for_each(|n| histogram.note(Duration::from_micros(n * scale)));
            for share in [0.01, 0.5, 0.99, 1.0] {
                let exact = share * 1000.0 * scale as f64;
                let found = histogram.quantile(share).map_or(0.0, |time| time.as_micros() as f64);
                assert!((found / exact - 1.0).abs() < 0.02, "{share} of {scale}: {found}, not {exact}");
            }
            assert_eq!(histogram.longest(), Duration::from_micros(1000 * scale));
        }
    }

    #[test]
    fn buckets_follow_one_another_without_a_hole() {
        let mut before = 0;
        for micros in 0..100_000 {
            let place = bucket(micros);
            assert!(place == before || place == before + 1, "{micros}");
            before = place;
        }
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
