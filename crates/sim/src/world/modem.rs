//! A cellular or Wi-Fi link of the vehicle.

use crosslane_core::link::delay_steps::DelaySteps;
use crosslane_core::link::handover_gap::Handovers;
use crosslane_core::link::{Bottleneck, Direction, DirectionParams, Loss, QueueLimit};
use crosslane_core::path::PathId;
use crosslane_core::rng::Rng;
use crosslane_core::time::Instant;

use super::{Truth, WorldEvent, millis};
use crate::input::link_trace::{Trace, TraceRow};
use crate::input::mobility::{State, distance_m};
use crate::radio::access_link::{Channel, Quality, ReceivedSignal};
use crate::scenario::{AccessLink, Queue, Scenario, ScenarioError};
use crate::world::coverage::is_within;

#[derive(Debug)]
pub(super) struct ModemLink {
    pub(super) path: PathId,
    link: AccessLink,
    up: LinkDirection,
    down: LinkDirection,
    /// Channel of a modelled link.
    channel: Option<Channel>,
    /// Last signal received over it.
    received: ReceivedSignal,
    handovers: Option<Handovers>,
    delay_steps: Option<DelaySteps>,
    /// Where the vehicle was at the last update, and how far it has travelled, in m.
    travelled: Option<([f64; 2], f64)>,
    /// Whether a handover interrupts the link now, and the further delay of its steps, in ms.
    is_gap: bool,
    /// Whether the modem has announced one that is not over, now and when it last reported.
    announced: [bool; 2],
    step_ms: f64,
    pub(super) next_sample: Instant,
    rng: Rng,
    pub(super) last: Option<[DirectionParams; 2]>,
}

/// One direction.
#[derive(Clone, Debug)]
struct LinkDirection {
    trace: Option<Trace>,
    /// Rate if the trace has none, in Mbit/s.
    mbit_s: f64,
    queue: QueueLimit,
}

impl ModemLink {
    pub(super) fn new(
        scenario: &Scenario,
        link: &AccessLink,
        path: PathId,
        seed: u64,
        position_m: [f64; 2],
    ) -> Result<ModemLink, ScenarioError> {
        let trace = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match scenario.data.traces.get(name) {
                Some(trace) => Ok(Some(trace.clone())),
                None => Err(scenario.unresolved(&format!("`{name}`"))),
            },
        };
        let up = LinkDirection::new(link, trace(&link.trace)?, link.up_mbit_s);
        let down = match (trace(&link.trace_down)?, link.down_mbit_s) {
            (None, None) => up.clone(),
            (trace, mbit_s) => LinkDirection::new(link, trace, mbit_s.unwrap_or(link.up_mbit_s)),
        };
        let mut rng = Rng::new(seed, &format!("signal {}", link.name));
        let phase_s = rng.uniform() * link.sample_period_ms / 1000.0;
        Ok(ModemLink {
            path,
            link: link.clone(),
            up,
            down,
            channel: link.model.as_ref().map(|model| Channel::new(model, &link.name, Some(seed), position_m)),
            received: ReceivedSignal::default(),
            handovers: link.effects.handovers.map(|network| Handovers::new(seed, &link.name, network)),
            delay_steps: link.effects.delay_steps.map(|steps| DelaySteps::new(seed, &link.name, steps.params())),
            travelled: None,
            is_gap: false,
            announced: [false; 2],
            step_ms: 0.0,
            next_sample: Instant::from_secs_f64(phase_s),
            rng,
            last: None,
        })
    }

    /// Parameters of both directions. During an outage or without a signal the
    /// rate is 0, and packets wait as in a modem; in the gap of a handover too.
    pub(super) fn params(&mut self, t_s: f64, vehicle: State) -> [DirectionParams; 2] {
        if let Some(channel) = &mut self.channel {
            self.received = channel.signal_at(t_s, vehicle.position_m);
        }
        self.apply_effects(Instant::from_secs_f64(t_s), vehicle.position_m);
        let row = self.row(t_s);
        [Direction::Up, Direction::Down].map(|direction| DirectionParams {
            bottleneck: match &self.direction(direction).trace {
                Some(Trace::Opportunities(moments)) if self.passes(t_s) => Bottleneck::Opportunities(moments.clone()),
                _ => Bottleneck::Rate { bit_s: self.rate_mbit_s(direction, t_s) * 1e6 },
            },
            delay: millis(self.delay_ms(row, direction)),
            loss: row.loss_to(direction).map_or(self.link.loss, Loss::Independent),
            queue: self.direction(direction).queue,
            codel: self.link.codel,
        })
    }

    fn apply_effects(&mut self, now: Instant, position_m: [f64; 2]) {
        if let Some(handovers) = &mut self.handovers {
            let (before_m, travelled_m) = self.travelled.unwrap_or((position_m, 0.0));
            let travelled_m = travelled_m + distance_m(before_m, position_m);
            self.travelled = Some((position_m, travelled_m));
            let last = handovers.at(now, travelled_m);
            self.is_gap = last.is_some_and(|last| last.is_gap(now));
            self.announced[0] = last.is_some_and(|last| last.is_announced(now));
        }
        if let Some(steps) = &mut self.delay_steps {
            self.step_ms = steps.at(now).as_secs_f64() * 1e3;
        }
    }

    /// What the modem reports of a handover, if that has changed.
    pub(super) fn handover_report(&mut self) -> Option<WorldEvent> {
        let [is_announced, was_announced] = self.announced;
        self.announced[1] = is_announced;
        (is_announced != was_announced).then_some(WorldEvent::Handover { path: self.path, is_announced })
    }

    fn delay_ms(&self, row: TraceRow, direction: Direction) -> f64 {
        row.delay_to(direction).or(self.link.delay_ms).unwrap_or(0.0) + self.step_ms
    }

    pub(super) fn truth(&self, at: Instant, vehicle: State) -> Truth {
        let t_s = at.as_secs_f64();
        let row = self.row(t_s);
        Truth {
            at,
            path: self.path,
            position_m: vehicle.position_m,
            speed_m_s: vehicle.speed_m_s,
            distance_m: self.channel.as_ref().map(|_| self.received.distance_m),
            rssi_dbm: self.mean_dbm(t_s),
            up_mbit_s: self.rate_mbit_s(Direction::Up, t_s),
            down_mbit_s: self.rate_mbit_s(Direction::Down, t_s),
            delay_ms: self.delay_ms(row, Direction::Up),
            loss: row.loss.unwrap_or(self.link.loss.mean()),
            quality: if self.is_on(t_s) { self.received.quality } else { Quality::default() },
        }
    }

    /// The modem's signal report; none during an outage or without a signal. A
    /// recorded signal gets no further noise.
    pub(super) fn sample(&mut self, at: Instant) -> Option<WorldEvent> {
        self.next_sample = at + millis(self.link.sample_period_ms);
        let noise_db = self.rng.normal() * self.link.rssi_sigma_db;
        let t_s = at.as_secs_f64();
        let recorded = self.row(t_s).rssi_dbm;
        self.mean_dbm(t_s).map(|mean_dbm| WorldEvent::Signal {
            at,
            path: self.path,
            rssi_dbm: recorded.unwrap_or((mean_dbm + noise_db).min(0.0)),
            quality: self.received.quality,
        })
    }

    /// The last received, recorded or configured signal; none during an outage.
    fn mean_dbm(&self, t_s: f64) -> Option<f64> {
        let given = || Some(self.row(t_s).rssi_dbm.unwrap_or(self.link.rssi_dbm));
        let dbm = if self.channel.is_some() { self.received.dbm } else { given() };
        dbm.filter(|_| self.is_on(t_s))
    }

    fn is_on(&self, t_s: f64) -> bool {
        !is_within(t_s, &self.link.outages_s)
    }

    /// Whether packets pass: no outage and no handover.
    fn passes(&self, t_s: f64) -> bool {
        self.is_on(t_s) && !self.is_gap
    }

    fn row(&self, t_s: f64) -> TraceRow {
        let trace = self.up.trace.as_ref();
        trace.map_or(TraceRow::default(), |trace| trace.at(t_s))
    }

    fn direction(&self, direction: Direction) -> &LinkDirection {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn rate_mbit_s(&self, direction: Direction, t_s: f64) -> f64 {
        if !self.passes(t_s) {
            return 0.0;
        }
        if self.channel.is_some() {
            return match direction {
                Direction::Up => self.received.up_mbit_s,
                Direction::Down => self.received.down_mbit_s,
            };
        }
        let side = self.direction(direction);
        let traced = match &side.trace {
            Some(trace @ Trace::Opportunities(_)) => Some(trace.mean_mbit_s()),
            Some(trace) => trace.at(t_s).rate_mbit_s,
            None => None,
        };
        traced.unwrap_or(side.mbit_s)
    }
}

impl LinkDirection {
    /// A queue in ms is converted to bytes with the mean rate of the trace.
    fn new(link: &AccessLink, trace: Option<Trace>, mbit_s: f64) -> LinkDirection {
        let queue = match link.queue {
            Queue::Limit(limit) => limit,
            Queue::Millis(millis) => {
                let traced = trace.as_ref().map_or(0.0, Trace::mean_mbit_s);
                let mean = if traced > 0.0 { traced } else { mbit_s };
                QueueLimit::Bytes((mean * millis * 1000.0 / 8.0).max(3000.0) as u32)
            }
        };
        LinkDirection { trace, mbit_s, queue }
    }
}
