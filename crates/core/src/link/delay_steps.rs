//! A delay that changes in steps at regular times, as over a satellite network that assigns its satellites
//! again every 15 s.

use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// Parameters of the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayStepParams {
    /// Time between steps (> 0).
    pub period: Duration,
    /// The further delay of each period is uniform between 0 and this.
    pub most: Duration,
}

/// The steps of a link; the first comes within a period of the start.
#[derive(Clone, Debug)]
pub struct DelaySteps {
    params: DelayStepParams,
    next: Instant,
    delay: Duration,
    rng: Rng,
}

impl DelaySteps {
    /// The steps of the link `name` in the run with this seed.
    pub fn new(seed: u64, name: &str, params: DelayStepParams) -> DelaySteps {
        let mut rng = Rng::new(seed, &alloc::format!("delay steps {name}"));
        let next = Instant::from_secs_f64(params.period.as_secs_f64() * rng.uniform());
        let mut steps = DelaySteps { params, next, delay: Duration::ZERO, rng };
        steps.draw();
        steps
    }

    /// The further delay at `now`, which never decreases from call to call.
    pub fn at(&mut self, now: Instant) -> Duration {
        while self.next <= now {
            self.next = self.next + self.params.period;
            self.draw();
        }
        self.delay
    }

    fn draw(&mut self) {
        self.delay = Duration::from_secs_f64(self.params.most.as_secs_f64() * self.rng.uniform());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const PARAMS: DelayStepParams =
        DelayStepParams { period: Duration::from_millis(15_000), most: Duration::from_millis(30) };

    /// Times in ms at which the delay changes within 5 minutes, polled every `step_ms`, and all delays.
    fn changes(step_ms: u64) -> (Vec<u64>, Vec<Duration>) {
        let mut steps = DelaySteps::new(3, "sat", PARAMS);
        let mut delays = Vec::from([steps.at(Instant::ZERO)]);
        let mut times = Vec::new();
        for t_ms in (0..300_000).step_by(step_ms as usize) {
            let delay = steps.at(Instant::from_millis(t_ms));
            if delays.last() != Some(&delay) {
                times.push(t_ms);
                delays.push(delay);
            }
        }
        (times, delays)
    }

    #[test]
    fn the_delay_changes_once_a_period_and_stays_within_its_range() {
        let (times, delays) = changes(1);
        assert_eq!(times.len(), 20);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 15_000));
        let (least, most) = delays.iter().fold((Duration::MAX, Duration::ZERO), |(a, b), d| (a.min(*d), b.max(*d)));
        assert!(least < Duration::from_millis(8) && most > Duration::from_millis(22) && most < PARAMS.most);
    }

    #[test]
    fn the_steps_do_not_depend_on_how_often_they_are_asked() {
        assert_eq!(changes(1).1, changes(7000).1);
    }
}
