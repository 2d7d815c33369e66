//! A cellular or Wi-Fi link of the vehicle.

use crosslane_core::link::{Bottleneck, DirectionParams, Loss, QueueLimit};
use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::Instant;

use super::{Truth, WorldEvent, millis};
use crate::mobility::State;
use crate::radio::is_within;
use crate::scenario::{AccessLink, Queue, Scenario, ScenarioError};
use crate::trace::{Trace, TraceRow};

#[derive(Debug)]
pub(super) struct ModemLink {
    pub(super) path: PathId,
    link: AccessLink,
    up: Way,
    down: Way,
    pub(super) next_sample: Instant,
    rng: Rng,
    pub(super) last: Option<[DirectionParams; 2]>,
}

/// One direction.
#[derive(Clone, Debug)]
struct Way {
    trace: Option<Trace>,
    /// Rate where the trace gives none.
    mbit_s: f64,
    queue: QueueLimit,
}

impl ModemLink {
    pub(super) fn new(
        scenario: &Scenario,
        link: &AccessLink,
        path: PathId,
        seed: u64,
    ) -> Result<ModemLink, ScenarioError> {
        let trace = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match scenario.data.traces.get(name) {
                Some(trace) => Ok(Some(trace.clone())),
                None => Err(scenario.unresolved(&format!("`{name}`"))),
            },
        };
        let up = Way::new(link, trace(&link.trace)?, link.up_mbit_s);
        let down = match (trace(&link.trace_down)?, link.down_mbit_s) {
            (None, None) => up.clone(),
            (trace, mbit_s) => Way::new(link, trace, mbit_s.unwrap_or(link.up_mbit_s)),
        };
        let mut rng = Rng::new(seed, &format!("signal {}", link.name));
        let phase_s = rng.uniform() * link.sample_period_ms / 1000.0;
        Ok(ModemLink {
            path,
            link: link.clone(),
            up,
            down,
            next_sample: Instant::from_secs_f64(phase_s),
            rng,
            last: None,
        })
    }

    /// Both directions; while it is silent nothing passes, and packets wait as
    /// they would in a modem.
    pub(super) fn params(&self, t_s: f64) -> [DirectionParams; 2] {
        let row = self.row(t_s);
        [&self.up, &self.down].map(|way| DirectionParams {
            bottleneck: match &way.trace {
                Some(Trace::Opportunities(moments)) if self.is_on(t_s) => Bottleneck::Opportunities(moments.clone()),
                _ => Bottleneck::Rate { bit_s: self.rate_mbit_s(way, t_s) * 1e6 },
            },
            delay: millis(row.delay_ms.unwrap_or(self.link.delay_ms)),
            loss: row.loss.map_or(self.link.loss, Loss::Independent),
            queue: way.queue,
            codel: self.link.codel,
        })
    }

    pub(super) fn truth(&self, at: Instant, vehicle: State) -> Truth {
        let t_s = at.as_secs_f64();
        let row = self.row(t_s);
        let rssi_dbm = row.rssi_dbm.unwrap_or(self.link.rssi_dbm);
        Truth {
            at,
            path: self.path,
            position_m: vehicle.position_m,
            speed_m_s: vehicle.speed_m_s,
            distance_m: None,
            rssi_dbm: self.is_on(t_s).then_some(rssi_dbm),
            up_mbit_s: self.rate_mbit_s(&self.up, t_s),
            down_mbit_s: self.rate_mbit_s(&self.down, t_s),
            delay_ms: row.delay_ms.unwrap_or(self.link.delay_ms),
            loss: row.loss.unwrap_or(self.link.loss.mean()),
        }
    }

    /// The modem's report of its signal; none while it is silent. What a trace
    /// recorded gets no further noise.
    pub(super) fn sample(&mut self, at: Instant) -> Option<WorldEvent> {
        self.next_sample = at + millis(self.link.sample_period_ms);
        let noise_db = self.rng.normal() * self.link.rssi_sigma_db;
        let t_s = at.as_secs_f64();
        let recorded = self.row(t_s).rssi_dbm;
        self.is_on(t_s).then(|| WorldEvent::Signal {
            at,
            path: self.path,
            rssi_dbm: recorded.unwrap_or((self.link.rssi_dbm + noise_db).min(0.0)),
        })
    }

    fn is_on(&self, t_s: f64) -> bool {
        !is_within(t_s, &self.link.silent_s)
    }

    fn row(&self, t_s: f64) -> TraceRow {
        let trace = self.up.trace.as_ref();
        trace.map_or(TraceRow::default(), |trace| trace.at(t_s))
    }

    fn rate_mbit_s(&self, way: &Way, t_s: f64) -> f64 {
        let traced = match &way.trace {
            Some(trace @ Trace::Opportunities(_)) => Some(trace.mean_mbit_s()),
            Some(trace) => trace.at(t_s).rate_mbit_s,
            None => None,
        };
        if self.is_on(t_s) { traced.unwrap_or(way.mbit_s) } else { 0.0 }
    }
}

impl Way {
    /// A queue in ms is held against the mean rate of the trace.
    fn new(link: &AccessLink, trace: Option<Trace>, mbit_s: f64) -> Way {
        let queue = match link.queue {
            Queue::Limit(limit) => limit,
            Queue::Millis(millis) => {
                let traced = trace.as_ref().map_or(0.0, Trace::mean_mbit_s);
                let mean = if traced > 0.0 { traced } else { mbit_s };
                QueueLimit::Bytes((mean * millis * 1000.0 / 8.0).max(3000.0) as u32)
            }
        };
        Way { trace, mbit_s, queue }
    }
}
