//! Traffic with deadlines, and the price of each path.

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::transfer::Late;
use serde::Serialize;

use super::source_map::Lines;
use super::{Scenario, ScenarioError, Traffic, TrafficKind};

/// Objects that are generated periodically, each with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeadlineTraffic {
    /// Size of an object, in bytes (1,000 to 10⁹).
    pub object_bytes: u64,
    /// Period, in s (above 0, at most 3600).
    pub period_s: f64,
    /// Time from an object's generation to its last byte read, in s (above 0, at
    /// most 3600).
    pub deadline_s: f64,
    /// Maximum number of objects.
    pub objects: u32,
    /// Handling of an object after its deadline.
    pub late: Late,
}

/// Maximum random delay of the first object, in s. By this the seeds of a world
/// without randomness differ.
const PHASE_S: f64 = 1.0;

/// Generation times of the objects.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    next: Instant,
    stop: Instant,
    period: Duration,
    remaining: u32,
}

impl DeadlineTraffic {
    /// Generation times of the objects of a run.
    pub fn starts(&self, traffic: &Traffic, seed: u64) -> Starts {
        let start_s = traffic.start_s + PHASE_S * Rng::new(seed, "objects").uniform();
        Starts {
            next: Instant::from_secs_f64(start_s),
            stop: Instant::from_secs_f64(traffic.stop_s),
            period: Duration::from_secs_f64(self.period_s),
            remaining: self.objects,
        }
    }

    /// Time from an object's generation to its deadline.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.deadline_s)
    }
}

impl Iterator for Starts {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let start = Some(self.next).filter(|start| *start < self.stop && self.remaining > 0)?;
        self.remaining -= 1;
        self.next = start + self.period;
        Some(start)
    }
}

/// Minimum and maximum size of an object, in bytes.
const OBJECT_BYTES: [u64; 2] = [1_000, 1_000_000_000];
/// Maximum period and deadline, in s.
const MAX_S: f64 = 3600.0;
/// Maximum price, per GB.
const MAX_COST_PER_GB: f64 = 1e6;

/// Keys of `[traffic]` that only this kind has.
#[derive(Clone, Copy, Default)]
pub(super) struct DeadlineKeys {
    pub(super) object_bytes: Option<u64>,
    pub(super) period_s: Option<f64>,
    pub(super) deadline_s: Option<f64>,
    pub(super) objects: Option<u32>,
    pub(super) late: Option<Late>,
}

impl DeadlineKeys {
    pub(super) fn build(self, lines: &Lines) -> Result<DeadlineTraffic, ScenarioError> {
        let (Some(object_bytes), Some(period_s)) = (self.object_bytes, self.period_s) else {
            let what = "traffic of kind `deadline` needs `object_bytes` and `period_s`";
            return Err(lines.error("traffic", what, "give both"));
        };
        let Some(deadline_s) = self.deadline_s else {
            let what = "traffic of kind `deadline` has no `deadline_s`";
            return Err(lines.error("traffic", what, "give the time until an object's deadline in s"));
        };
        if !(OBJECT_BYTES[0]..=OBJECT_BYTES[1]).contains(&object_bytes) {
            let what =
                format!("an object of {object_bytes} bytes is outside {} to {}", OBJECT_BYTES[0], OBJECT_BYTES[1]);
            return Err(lines.error("traffic.object_bytes", what, "choose a size in this range"));
        }
        for (key, seconds) in [("period_s", period_s), ("deadline_s", deadline_s)] {
            if !(seconds > 0.0 && seconds <= MAX_S) {
                let what = format!("`{key}` of {seconds} s is not above 0 and up to {MAX_S}");
                return Err(lines.error(&format!("traffic.{key}"), what, "choose a time in this range"));
            }
        }
        let objects = self.objects.unwrap_or(u32::MAX);
        if objects == 0 {
            return Err(lines.error("traffic.objects", "`objects` is 0", "give 1 or more, or leave it out"));
        }
        Ok(DeadlineTraffic { object_bytes, period_s, deadline_s, objects, late: self.late.unwrap_or_default() })
    }

    /// The first of these keys that is given, if any.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.object_bytes.is_some(), "object_bytes"),
            (self.period_s.is_some(), "period_s"),
            (self.deadline_s.is_some(), "deadline_s"),
            (self.objects.is_some(), "objects"),
            (self.late.is_some(), "late"),
        ];
        given.into_iter().find_map(|(is, key)| is.then_some(key))
    }
}

impl Scenario {
    /// Generation time of the first object, for traffic with deadlines. The
    /// connection starts then: a receiver counts the idle time before the first
    /// data as round-trip time, which would delay the growth of its window.
    pub fn first_object(&self, seed: u64) -> Option<Instant> {
        match self.traffic.kind {
            TrafficKind::Deadline(rules) => rules.starts(&self.traffic, seed).next(),
            _ => None,
        }
    }

    /// Price of a byte over each path, in order of the paths: the scenario's
    /// costs, or else the rank of each path in the user's preference.
    pub fn unit_costs(&self) -> Vec<f64> {
        let costs = &self.service.cost_per_gb;
        if costs.is_empty() {
            return self.ranks().into_iter().map(f64::from).collect();
        }
        self.paths().iter().map(|path| costs.get(path.name).copied().unwrap_or(0.0) / 1e9).collect()
    }

    /// Checks that all paths have a price or none has, and that preferred paths
    /// do not cost more.
    pub(super) fn check_costs(&self) -> Result<(), ScenarioError> {
        let costs = &self.service.cost_per_gb;
        for (name, cost) in costs {
            let key = format!("service.cost_per_gb.{name}");
            self.known_path(name, &key)?;
            if !(0.0..=MAX_COST_PER_GB).contains(cost) {
                let what = format!("{cost} per GB is outside 0 to {MAX_COST_PER_GB}");
                return Err(self.lines.error(&key, what, "choose a price in this range"));
            }
        }
        if costs.is_empty() {
            return Ok(());
        }
        if !matches!(self.traffic.kind, TrafficKind::Deadline(_)) {
            let what = "paths have a price, but the traffic has no deadlines";
            let remedy = "make it traffic of kind `deadline`, or leave `cost_per_gb` out";
            return Err(self.lines.error("service.cost_per_gb", what, remedy));
        }
        if let Some(path) = self.paths().iter().find(|path| !costs.contains_key(path.name)) {
            let what = format!("path `{}` has no price, but other paths have one", path.name);
            return Err(self.lines.error("service.cost_per_gb", what, "give all paths a price, or none"));
        }
        let price = |name: &String| costs.get(name).copied().unwrap_or(0.0);
        if let Some([a, b]) = self.service.prefer.windows(2).find_map(|pair| match pair {
            [a, b] if price(a) > price(b) => Some([a, b]),
            _ => None,
        }) {
            let what = format!("`{a}` is preferred to `{b}` and costs more");
            return Err(self.lines.error("service.prefer", what, "name the cheaper path first"));
        }
        Ok(())
    }
}
