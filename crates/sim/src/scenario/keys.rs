//! The tables of the scenario file whose keys depend on each other, and their
//! conversion to the types of a [`Scenario`].

use super::base::{self, Base};
use super::source_map::Lines;
use crate::input::toml_fault::did_you_mean;
use crosslane_core::link::handover_gap::CellularNetwork;
use crosslane_core::link::{CoDel, Loss, Middlebox, QueueLimit};
use crosslane_core::path::Rat;
use serde::Deserialize;

use super::effects::{self, DelayStepKeys, Effects, JitterKeys, PolicerKeys};
use super::impairments::{codel, loss};
use super::models::{CellularModelKeys, WifiModelKeys};
use super::route::RouteKeys;
use super::schema::{number, period, spans, whole};
use super::traffic::TrafficKeys;
use super::wires::WireKeys;
use super::{
    AccessLink, Attacker, Bound, Congestion, Crossing, CrossingDirection, Data, Echo, Expectation, Fleet, Map, Motion,
    Queue, Radio, RoadsideUnit, Scenario, ScenarioError, Scheduler, Service, Strategy, Tunnel, Vehicle,
};
use crate::addresses::IpVersion;
use crate::radio::access_link::AccessModel;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(deserialize_with = "period::<_, _, 7200>")]
    duration_s: f64,
    #[serde(default)]
    congestion: Congestion,
    #[serde(default)]
    scheduler: Scheduler,
    #[serde(default)]
    ip_version: IpVersion,
    #[serde(default = "yes")]
    parallel: bool,
    map: Option<Map>,
    vehicle: VehicleKeys,
    fleet: Option<Fleet>,
    #[serde(default)]
    radio: Vec<Radio>,
    #[serde(default)]
    roadside_unit: Vec<RoadsideUnit>,
    #[serde(default)]
    attacker: Vec<Attacker>,
    #[serde(default)]
    cellular: Vec<CellularKeys>,
    #[serde(default)]
    wifi: Vec<WifiKeys>,
    #[serde(default)]
    wire: Vec<WireKeys>,
    #[serde(default)]
    service: Service,
    echo: Option<Echo>,
    #[serde(default)]
    tunnel: Tunnel,
    traffic: TrafficKeys,
    #[serde(default)]
    strategy: Vec<StrategyKeys>,
    #[serde(default)]
    expect: Vec<ExpectKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VehicleKeys {
    route: Option<RouteKeys>,
    mobility: Option<String>,
    vehicle: Option<u32>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 7200>")]
    start_s: f64,
    #[serde(default = "one_and_a_half", deserialize_with = "period::<_, _, 100>")]
    antenna_m: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellularKeys {
    name: String,
    rat: Rat,
    #[serde(default, deserialize_with = "number::<_, _, 0, 100_000>")]
    rate_mbit_s: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 100_000>")]
    down_mbit_s: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 10_000>")]
    delay_ms: Option<f64>,
    #[serde(default, deserialize_with = "loss")]
    loss: Loss,
    #[serde(default, deserialize_with = "codel")]
    codel: Option<CoDel>,
    #[serde(default, deserialize_with = "period::<_, _, 60_000>")]
    queue_ms: Option<f64>,
    queue_bytes: Option<u32>,
    queue_packets: Option<u32>,
    #[serde(default, deserialize_with = "number::<_, _, -150, 0>")]
    rssi_dbm: Option<f64>,
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, _, 0, 20>")]
    rssi_sigma_db: f64,
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, _, 10, 10_000>")]
    sample_period_ms: f64,
    trace: Option<String>,
    trace_down: Option<String>,
    model: Option<CellularModelKeys>,
    #[serde(default, deserialize_with = "effects::network")]
    handovers: Option<CellularNetwork>,
    policer: Option<PolicerKeys>,
    jitter: Option<JitterKeys>,
    delay_steps: Option<DelayStepKeys>,
    #[serde(default, deserialize_with = "effects::middlebox")]
    middlebox: Option<Middlebox>,
    #[serde(default, deserialize_with = "spans")]
    outages_s: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WifiKeys {
    name: String,
    trace: Option<String>,
    model: Option<WifiModelKeys>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 10_000>")]
    delay_ms: Option<f64>,
    #[serde(default, deserialize_with = "loss")]
    loss: Loss,
    #[serde(default, deserialize_with = "codel")]
    codel: Option<CoDel>,
    #[serde(default, deserialize_with = "period::<_, _, 60_000>")]
    queue_ms: Option<f64>,
    queue_bytes: Option<u32>,
    queue_packets: Option<u32>,
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, _, 0, 20>")]
    rssi_sigma_db: f64,
    #[serde(default = "whole::<100>", deserialize_with = "number::<_, _, 10, 10_000>")]
    sample_period_ms: f64,
    #[serde(default, deserialize_with = "spans")]
    outages_s: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
struct StrategyKeys {
    name: String,
    base: String,
    #[serde(flatten)]
    parameters: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectKeys {
    crossing: Option<String>,
    #[serde(default, deserialize_with = "number::<_, _, -150, 0>")]
    threshold_dbm: Option<f64>,
    direction: Option<CrossingDirection>,
    between_s: Option<[f64; 2]>,
    strategy: Option<String>,
    metric: Option<String>,
    at_most: Option<f64>,
    at_least: Option<f64>,
    at_most_of: Option<OfKeys>,
    at_least_of: Option<OfKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKeys {
    strategy: String,
    times: f64,
}

fn yes() -> bool {
    true
}

fn one_and_a_half() -> f64 {
    1.5
}

impl Keys {
    pub(super) fn build(self, lines: Lines) -> Result<Scenario, ScenarioError> {
        let cellular = self.cellular.into_iter().zip(0..);
        let wifi = self.wifi.into_iter().zip(0..);
        let wires = self.wire.into_iter().zip(0..);
        let access = cellular
            .map(|(keys, place)| keys.build(&lines, format!("cellular.{place}")))
            .chain(wifi.map(|(keys, place)| keys.build(&lines, format!("wifi.{place}"))))
            .chain(wires.map(|(keys, place)| Ok(keys.build(format!("wire.{place}")))))
            .collect::<Result<_, _>>()?;
        let mut units = self.roadside_unit;
        for (unit, place) in units.iter_mut().zip(0..) {
            if unit.station_id == 0 {
                unit.station_id = 1000 + place;
            }
        }
        let mut strategies = Vec::new();
        for (place, keys) in self.strategy.into_iter().enumerate() {
            let base = Base::find(&keys.base).ok_or_else(|| {
                let what = format!("there is no strategy `{}` to base on", keys.base);
                let remedy = did_you_mean(&keys.base, base::catalog().map(Base::name));
                lines.error(&format!("strategy.{place}.base"), what, remedy)
            })?;
            strategies.push(Strategy { name: keys.name, base, parameters: keys.parameters });
        }
        let expectations = self.expect.into_iter().zip(0..);
        Ok(Scenario {
            renamed: Vec::new(),
            name: self.name,
            title: self.title,
            duration_s: self.duration_s,
            congestion: self.congestion,
            scheduler: self.scheduler,
            ip_version: self.ip_version,
            parallel: self.parallel,
            map: self.map,
            vehicle: self.vehicle.build(&lines)?,
            fleet: self.fleet,
            radios: self.radio,
            units,
            attackers: self.attacker,
            access,
            service: self.service,
            echo: self.echo,
            tunnel: self.tunnel,
            traffic: self.traffic.build(&lines, self.duration_s)?,
            strategies,
            expectations: expectations
                .map(|(keys, place)| keys.build(&lines, &format!("expect.{place}")))
                .collect::<Result<_, _>>()?,
            data: Data::default(),
            lines,
        })
    }
}

impl VehicleKeys {
    fn build(self, lines: &Lines) -> Result<Vehicle, ScenarioError> {
        let motion = match (self.route, self.mobility) {
            (Some(route), None) => Motion::Route(route.build(lines)?),
            (None, Some(file)) => Motion::Mobility(file),
            (None, None) => {
                let what = "the vehicle has neither `route` nor `mobility`";
                return Err(lines.error("vehicle", what, "give one of them"));
            }
            (Some(_), Some(_)) => {
                let what = "the vehicle has both `route` and `mobility`";
                return Err(lines.error("vehicle.mobility", what, "keep one of them"));
            }
        };
        let ok = self.vehicle.is_none() || matches!(motion, Motion::Mobility(_));
        let what = "`vehicle` selects a vehicle of a mobility file, and there is no such file";
        lines.require(ok, "vehicle.vehicle", what, "leave `vehicle` out")?;
        Ok(Vehicle { motion, number: self.vehicle, start_s: self.start_s, antenna_m: self.antenna_m })
    }
}

impl CellularKeys {
    fn build(self, lines: &Lines, key: String) -> Result<AccessLink, ScenarioError> {
        let constant = self.rate_mbit_s.is_some() || self.down_mbit_s.is_some() || self.rssi_dbm.is_some();
        let only_model = !constant && self.trace.is_none() && self.trace_down.is_none();
        let what = format!("`{}` has both a model and a rate, signal or trace", self.name);
        let remedy = "keep the model or the other keys";
        lines.require(self.model.is_none() || only_model, &format!("{key}.model"), what, remedy)?;
        let what = format!("`{}` has neither `rate_mbit_s` nor `trace` nor `model`", self.name);
        let ok = self.rate_mbit_s.is_some() || self.trace.is_some() || self.model.is_some();
        lines.require(ok, &key, what, "give its rate, a trace or the positions of its cells")?;
        let what = format!("`{}` has `trace_down` without `trace`", self.name);
        lines.require(self.trace_down.is_none() || self.trace.is_some(), &key, what, "give the uplink trace too")?;
        let model = self.model.map(|keys| keys.build(lines, &key, self.rat)).transpose()?;
        let usual = model.as_ref().map(AccessModel::nominal_mbit_s);
        Ok(AccessLink {
            rat: self.rat,
            up_mbit_s: usual.map(|[up, _]| up).or(self.rate_mbit_s).unwrap_or(0.0),
            down_mbit_s: usual.map(|[_, down]| down).or(self.down_mbit_s),
            delay_ms: delay(lines, &key, self.delay_ms, self.trace.is_some())?,
            loss: self.loss,
            codel: self.codel,
            queue: queue(lines, &key, (self.queue_ms, self.queue_bytes, self.queue_packets))?,
            rssi_dbm: self.rssi_dbm.unwrap_or(-85.0),
            rssi_sigma_db: self.rssi_sigma_db,
            sample_period_ms: self.sample_period_ms,
            trace: self.trace,
            trace_down: self.trace_down,
            model,
            effects: Effects {
                handovers: self.handovers,
                policer: self.policer,
                jitter: self.jitter,
                delay_steps: self.delay_steps,
                middlebox: self.middlebox,
            },
            outages_s: self.outages_s,
            wire: None,
            name: self.name,
            key,
        })
    }
}

impl WifiKeys {
    fn build(self, lines: &Lines, key: String) -> Result<AccessLink, ScenarioError> {
        let what = format!("`{}` does not have exactly one of `trace` and `model`", self.name);
        let remedy = "give a trace or the position of its access point";
        lines.require(self.trace.is_some() != self.model.is_some(), &key, what, remedy)?;
        let model = self.model.map(|keys| keys.build(lines, &key)).transpose()?;
        let usual = model.as_ref().map(AccessModel::nominal_mbit_s);
        Ok(AccessLink {
            rat: Rat::Wifi,
            up_mbit_s: usual.map_or(0.0, |[up, _]| up),
            down_mbit_s: usual.map(|[_, down]| down),
            delay_ms: delay(lines, &key, self.delay_ms, self.trace.is_some())?,
            loss: self.loss,
            codel: self.codel,
            queue: queue(lines, &key, (self.queue_ms, self.queue_bytes, self.queue_packets))?,
            rssi_dbm: -85.0,
            rssi_sigma_db: self.rssi_sigma_db,
            sample_period_ms: self.sample_period_ms,
            trace: self.trace,
            trace_down: None,
            model,
            effects: Effects::default(),
            outages_s: self.outages_s,
            wire: None,
            name: self.name,
            key,
        })
    }
}

/// The delay of a link; only a trace may have it instead, which [`Scenario::resolve`] checks.
fn delay(lines: &Lines, key: &str, delay_ms: Option<f64>, has_trace: bool) -> Result<Option<f64>, ScenarioError> {
    let ok = delay_ms.is_some() || has_trace;
    lines.require(ok, key, "the link has no `delay_ms`", "give its one-way delay").map(|()| delay_ms)
}

fn queue(lines: &Lines, key: &str, keys: (Option<f64>, Option<u32>, Option<u32>)) -> Result<Queue, ScenarioError> {
    match keys {
        (None, None, None) => Ok(Queue::Millis(200.0)),
        (Some(millis), None, None) => Ok(Queue::Millis(millis)),
        (None, Some(bytes), None) if bytes >= 1500 => Ok(Queue::Limit(QueueLimit::Bytes(bytes))),
        (None, None, Some(packets)) if packets > 0 => Ok(Queue::Limit(QueueLimit::Packets(packets))),
        (None, _, _) => {
            let what = "a queue has one size and must hold at least one packet";
            let remedy = "keep one of `queue_bytes` (from 1500) and `queue_packets` (from 1)";
            Err(lines.error(key, what, remedy))
        }
        _ => {
            let what = "the queue has more than one size";
            let remedy = "keep one of `queue_ms`, `queue_bytes` and `queue_packets`";
            Err(lines.error(key, what, remedy))
        }
    }
}

impl ExpectKeys {
    fn build(self, lines: &Lines, key: &str) -> Result<Expectation, ScenarioError> {
        let crossing = (self.crossing, self.threshold_dbm, self.direction, self.between_s);
        let limit = (self.at_most, self.at_least, self.at_most_of, self.at_least_of);
        match (crossing, (self.strategy, self.metric), limit) {
            (
                (Some(path), Some(threshold_dbm), Some(direction), Some(between_s)),
                (None, None),
                (None, None, None, None),
            ) => Ok(Expectation::Crossing(Crossing { path, threshold_dbm, direction, between_s })),
            ((None, None, None, None), (Some(strategy), Some(metric)), limit) => {
                let (at_most, limit, of_strategy) = match limit {
                    (Some(limit), None, None, None) => (true, limit, None),
                    (None, Some(limit), None, None) => (false, limit, None),
                    (None, None, Some(of), None) => (true, of.times, Some(of.strategy)),
                    (None, None, None, Some(of)) => (false, of.times, Some(of.strategy)),
                    _ => {
                        let what = format!("`{metric}` does not have exactly one limit");
                        let remedy = "give one of `at_most`, `at_least`, `at_most_of`, `at_least_of`";
                        return Err(lines.error(key, what, remedy));
                    }
                };
                Ok(Expectation::Bound(Bound { strategy, metric, at_most, limit, of_strategy }))
            }
            _ => {
                let what = "an expectation is neither a crossing nor a metric";
                let remedy = "give `crossing`, `threshold_dbm`, `direction` and `between_s`, \
                              or `strategy`, `metric` and a limit";
                Err(lines.error(key, what, remedy))
            }
        }
    }
}
