//! Traffic with deadlines, and what each path costs.

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::transfer::Late;

use super::source_map::Lines;
use super::{Scenario, ScenarioError, Traffic, TrafficKind};

/// Objects that come up periodically, each due some time later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadlineTraffic {
    /// Size of each, in bytes (1,000 to 10⁹).
    pub object_bytes: u64,
    /// Time from one to the next, in s (above 0, at most 3600).
    pub period_s: f64,
    /// Time from its beginning to its last byte read, in s (above 0, at most
    /// 3600).
    pub deadline_s: f64,
    /// How many at most.
    pub objects: u32,
    /// What becomes of one past its deadline.
    pub late: Late,
}

/// Objects begin up to so much later, by the seed, so that runs of a world
/// without chance differ, in s.
const PHASE_S: f64 = 1.0;

/// When objects come up.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    next: Instant,
    stop: Instant,
    period: Duration,
    left: u32,
}

impl DeadlineTraffic {
    /// When the objects of a run come up.
    pub fn starts(&self, traffic: &Traffic, seed: u64) -> Starts {
        let start_s = traffic.start_s + PHASE_S * Rng::new(seed, "objects").uniform();
        Starts {
            next: Instant::from_secs_f64(start_s),
            stop: Instant::from_secs_f64(traffic.stop_s),
            period: Duration::from_secs_f64(self.period_s),
            left: self.objects,
        }
    }

    /// Time from an object's coming up to its deadline.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.deadline_s)
    }
}

impl Iterator for Starts {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let start = Some(self.next).filter(|start| *start < self.stop && self.left > 0)?;
        self.left -= 1;
        self.next = start + self.period;
        Some(start)
    }
}

/// Sizes that an object may have, in bytes.
const OBJECT_BYTES: [u64; 2] = [1_000, 1_000_000_000];
/// Longest period and deadline, in s.
const LONGEST_S: f64 = 3600.0;
/// Greatest price, per GB.
const DEAREST: f64 = 1e6;

/// The keys of `[traffic]` that only this kind has.
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
            let what = "objects that prefer a path have no `deadline_s`";
            return Err(lines.error("traffic", what, "say within how many seconds each must be there"));
        };
        if !(OBJECT_BYTES[0]..=OBJECT_BYTES[1]).contains(&object_bytes) {
            let what =
                format!("an object of {object_bytes} bytes is outside {} to {}", OBJECT_BYTES[0], OBJECT_BYTES[1]);
            return Err(lines.error("traffic.object_bytes", what, "choose a size inside"));
        }
        for (key, seconds) in [("period_s", period_s), ("deadline_s", deadline_s)] {
            if !(seconds > 0.0 && seconds <= LONGEST_S) {
                let what = format!("`{key}` of {seconds} s is not above 0 and up to {LONGEST_S}");
                return Err(lines.error(&format!("traffic.{key}"), what, "choose a time that is"));
            }
        }
        let objects = self.objects.unwrap_or(u32::MAX);
        if objects == 0 {
            return Err(lines.error("traffic.objects", "no object is to be sent", "give 1 or more, or leave it out"));
        }
        Ok(DeadlineTraffic { object_bytes, period_s, deadline_s, objects, late: self.late.unwrap_or_default() })
    }

    /// A key that is given, if any.
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
    /// When the first object comes up, with traffic that has deadlines. The
    /// connection begins then: a receiver takes what a connection idles before
    /// its first data for round-trip time, and its window then grows late.
    pub fn first_object(&self, seed: u64) -> Option<Instant> {
        match self.traffic.kind {
            TrafficKind::Deadline(rules) => rules.starts(&self.traffic, seed).next(),
            _ => None,
        }
    }

    /// Price of a byte over each path, in the order of the paths: the scenario's
    /// costs, or else the place of each path in the user's preference.
    pub fn unit_costs(&self) -> Vec<f64> {
        let costs = &self.service.cost_per_gb;
        if costs.is_empty() {
            return self.ranks().into_iter().map(f64::from).collect();
        }
        self.paths().iter().map(|path| costs.get(path.name).copied().unwrap_or(0.0) / 1e9).collect()
    }

    /// Every path has a price or none has, and the preferred ones cost least.
    pub(super) fn check_costs(&self) -> Result<(), ScenarioError> {
        let costs = &self.service.cost_per_gb;
        for (name, cost) in costs {
            let key = format!("service.cost_per_gb.{name}");
            self.known_path(name, &key)?;
            if !(0.0..=DEAREST).contains(cost) {
                let what = format!("{cost} per GB is outside 0 to {DEAREST}");
                return Err(self.lines.error(&key, what, "choose a price inside"));
            }
        }
        if costs.is_empty() {
            return Ok(());
        }
        if !matches!(self.traffic.kind, TrafficKind::Deadline(_)) {
            let what = "paths have a price, and the traffic has no deadline to hold it against";
            let remedy = "make it traffic of kind `deadline`, or leave `cost_per_gb` out";
            return Err(self.lines.error("service.cost_per_gb", what, remedy));
        }
        if let Some(path) = self.paths().iter().find(|path| !costs.contains_key(path.name)) {
            let what = format!("path `{}` has no price beside others that have", path.name);
            return Err(self.lines.error("service.cost_per_gb", what, "give it one, or none to any path"));
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
