//! MP-DPA: deadline and preference awareness after Nota 2020 (master's thesis,
//! Politecnico di Torino), Algorithm 1, chapter 4.3.
//!
//! Each object begins over the preferred path only. One goodput estimate over both
//! paths is compared with the rest of the object and the time until α × deadline: if
//! the estimate carries more, the other paths are switched off, if less, on. The thesis
//! does not publish the estimator; here it is what was acknowledged over the last
//! [`Params::window_ms`], at most since the object's start, updated every
//! [`Params::interval_ms`].

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use super::{Allocator, PathInput, PathSupply, select_active};
use crate::demand::Object;
use crate::path::OnFade;
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use crate::wanted::Wanted;

crate::parameters! {
    /// Parameters of [`MpDpa`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Deadline sensitivity α: the object is to be complete after α × deadline (the thesis: 0.5 to 2.3, default
        /// 1).
        alpha: f64 = 1.0, "", 0.0 to 10.0;
        /// Time between two estimates (not published; Algorithm 1 names 1 ms as the time before the first).
        interval_ms: f64 = 100.0, "ms", 0.0 to 3.6e6;
        /// Averaging time of the goodput (not published).
        window_ms: f64 = 1000.0, "ms", 0.0 to 3.6e6;
    }
}

/// Maximum number of readings: a window of a minute, taken every 10 ms.
const MAX_READINGS: usize = 6000;

/// The allocator.
#[derive(Clone, Debug)]
pub struct MpDpa {
    params: Params,
    /// The object being sent.
    number: Option<u64>,
    /// Time and bytes acknowledged by then, oldest first.
    readings: VecDeque<(Instant, u64)>,
    /// Whether the other paths carry.
    others: bool,
    on: Vec<bool>,
}

impl MpDpa {
    /// An allocator with these parameters.
    pub fn new(params: Params) -> MpDpa {
        MpDpa { params, number: None, readings: VecDeque::new(), others: false, on: Vec::new() }
    }

    /// True if the other paths are to carry data.
    fn decide(&mut self, now: Instant, object: &Object) -> bool {
        if self.number != Some(object.number) {
            self.number = Some(object.number);
            self.readings = [(now, object.acked_bytes)].into();
            return false;
        }
        let interval = Duration::from_secs_f64(self.params.interval_ms / 1e3);
        if self.readings.back().is_some_and(|(at, _)| now.since(*at) < interval) {
            return self.others;
        }
        let window = Duration::from_secs_f64(self.params.window_ms / 1e3);
        while self.readings.get(1).is_some_and(|(at, _)| now.since(*at) >= window) {
            self.readings.pop_front();
        }
        if self.readings.len() >= MAX_READINGS {
            self.readings.pop_front();
        }
        let goodput = self.goodput(now, object);
        self.readings.push_back((now, object.acked_bytes));
        let whole_s = object.deadline.since(object.start).as_secs_f64();
        let spent_s = now.since(object.start).as_secs_f64();
        let expected = (self.params.alpha * whole_s - spent_s) * goodput;
        let rest = object.remaining_bytes() as f64;
        if expected == rest { self.others } else { expected < rest }
    }

    /// Goodput over all paths, in bytes/s.
    fn goodput(&self, now: Instant, object: &Object) -> f64 {
        let Some(&(since, had)) = self.readings.front() else { return 0.0 };
        let span_s = now.since(since).as_secs_f64();
        if span_s > 0.0 { object.acked_bytes.saturating_sub(had) as f64 / span_s } else { 0.0 }
    }
}

impl Allocator for MpDpa {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        select_active(paths, |place, _| self.on.get(place) == Some(&true), OnFade::Backup).into()
    }

    fn on_demand(&mut self, now: Instant, demand: &[Object], paths: &[PathSupply]) -> Option<Reason> {
        let first = demand.first();
        self.others = first.is_some_and(|object| self.decide(now, object));
        let preferred = paths.iter().map(|path| path.input.rank).min();
        let on: Vec<bool> = paths.iter().map(|path| self.others || Some(path.input.rank) == preferred).collect();
        if on == self.on {
            return None;
        }
        self.on = on;
        let goodput = first.map_or(0.0, |object| self.goodput(now, object)) * 8e-6;
        let rest = first.map_or(0, Object::remaining_bytes) as f64 / 1e6;
        let (rule, word) = if self.others { ("mp-dpa.enable", "not enough") } else { ("mp-dpa.disable", "enough") };
        let text = format!("{goodput:.2} Mbit/s are {word} for {rest:.2} MB until α × deadline");
        Some(Reason::plain(rule, text).with([("goodput_mbit_s", goodput), ("rest_mb", rest)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::Latest;
    use crate::assess::Belief;
    use crate::path::{PathState, Rat};

    /// Whether the other path carries at each step, if `bytes` are acknowledged each
    /// 100 ms of 1 MB due in 10 s.
    fn others(params: Params, bytes: impl Fn(u64) -> u64) -> Vec<bool> {
        let mut mp_dpa = MpDpa::new(params);
        let input = |rank| PathInput { belief: Belief::Good, was: PathState::Backup, rank, radio: None };
        let latest = Latest::default();
        let paths = [0, 1].map(|rank| PathSupply {
            unit_cost: None,
            rat: Rat::Lte,
            input: input(rank),
            history: None,
            latest: &latest,
        });
        let mut acked_bytes = 0;
        let mut states = Vec::new();
        for step in 0..100 {
            let (start, deadline) = (Instant::ZERO, Instant::from_millis(10_000));
            let object = Object { number: 0, size_bytes: 1_000_000, acked_bytes, start, deadline };
            let demand = [object];
            mp_dpa.on_demand(Instant::from_millis(step * 100), &demand, &paths);
            states.push(mp_dpa.others);
            acked_bytes += bytes(step);
        }
        states
    }

    #[test]
    fn the_other_path_is_off_at_first_and_while_the_estimate_suffices() {
        assert!(others(Params::default(), |_| 11_000).iter().all(|others| !others));
    }

    #[test]
    fn it_is_switched_on_when_the_estimate_does_not_suffice() {
        let others = others(Params::default(), |_| 9_000);
        assert!(!others[0] && others[1] && others[50]);
    }

    #[test]
    fn a_smaller_alpha_switches_it_on_at_rates_that_suffice() {
        let params = Params { alpha: 0.8, ..Params::default() };
        assert!(others(params, |_| 11_000).iter().any(|others| *others));
    }
}
