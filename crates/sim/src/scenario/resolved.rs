//! A scenario with all defaults, as `scenario.json` in a run folder.

use crosslane_core::link::{Middlebox, QueueLimit};
use crosslane_core::path::Rat;
use serde::Serialize;

use super::effects::{DelayStepKeys, JitterKeys, PolicerKeys};
use super::{
    AccessLink, Attacker, Background, Congestion, Echo, Expectation, Fleet, IpVersion, Map, Motion, Queue, Radio,
    RadioTunnel, RoadsideUnit, Scenario, Scheduler, Service, Traffic, Tunnel, Wire,
};
use crate::traffic::Protocol;

/// Version of the format.
const SCHEMA: u32 = 1;

/// A scenario as it is run: every key with its value, with the unit in its name.
#[derive(Serialize)]
pub struct Resolved<'a> {
    schema: u32,
    name: &'a str,
    title: &'a str,
    duration_s: f64,
    congestion: Congestion,
    scheduler: Scheduler,
    ip_version: IpVersion,
    parallel: bool,
    seeds: &'a [u64],
    strategies: Vec<StrategyEntry>,
    paths: Vec<PathEntry<'a>>,
    roadside_units: &'a [RoadsideUnit],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    attackers: &'a [Attacker],
    vehicle: Vehicle<'a>,
    map: Option<Map>,
    fleet: Option<Fleet>,
    service: &'a Service,
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<&'a Echo>,
    tunnel: Tunnel,
    traffic: TrafficEntry<'a>,
    expect: &'a [Expectation],
}

#[derive(Serialize)]
struct StrategyEntry {
    name: String,
    base: &'static str,
    kind: super::base::Kind,
    /// Those that the scenario sets.
    parameters: toml::Table,
}

#[derive(Serialize)]
struct PathEntry<'a> {
    name: &'a str,
    rat: Rat,
    link: &'a str,
    #[serde(flatten)]
    keys: LinkKeys<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum LinkKeys<'a> {
    Radio {
        radio: &'a str,
        rate_mbit_s: f64,
        eirp_dbm: f64,
        noise_dbm: f64,
        tries: u8,
        queue_packets: u32,
        limit_mbit_s: Option<f64>,
        tunnel: Option<RadioTunnel>,
        slots: Option<u8>,
        background_stations: u32,
        background_cam_period_ms: Option<f64>,
        background_shares: &'a [[f64; 3]],
    },
    Access {
        up_mbit_s: f64,
        down_mbit_s: f64,
        /// None: the trace has it.
        delay_ms: Option<f64>,
        /// Long-run ratio of lost packets.
        loss: f64,
        queue_ms: Option<f64>,
        queue_packets: Option<u32>,
        queue_bytes: Option<u32>,
        codel: bool,
        rssi_dbm: f64,
        rssi_sigma_db: f64,
        sample_period_ms: f64,
        trace: Option<&'a str>,
        trace_down: Option<&'a str>,
        modelled: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        handovers: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        policer: Option<PolicerKeys>,
        #[serde(skip_serializing_if = "Option::is_none")]
        jitter: Option<JitterKeys>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_steps: Option<DelayStepKeys>,
        #[serde(skip_serializing_if = "Option::is_none")]
        middlebox: Option<&'static str>,
        outages_s: &'a [[f64; 2]],
        shaping: Option<Wire>,
    },
}

#[derive(Serialize)]
struct Vehicle<'a> {
    start_s: f64,
    antenna_m: f64,
    mobility: Option<&'a str>,
    waypoints_m: &'a [[f64; 2]],
    speeds_kmh: &'a [f64],
}

#[derive(Serialize)]
struct TrafficEntry<'a> {
    kind: &'static str,
    #[serde(flatten)]
    keys: toml::Table,
    protocol: Protocol,
    direction: &'static str,
    over: Option<&'a str>,
    send_buffer_bytes: u32,
    start_s: f64,
    stop_s: f64,
}

impl Scenario {
    /// The scenario with all defaults, as the strategies named are run with these seeds.
    pub fn resolved<'a>(&'a self, strategies: &[String], seeds: &'a [u64]) -> Resolved<'a> {
        Resolved {
            schema: SCHEMA,
            name: &self.name,
            title: &self.title,
            duration_s: self.duration_s,
            congestion: self.congestion,
            scheduler: self.scheduler,
            ip_version: self.ip_version,
            parallel: self.parallel,
            seeds,
            strategies: strategies.iter().filter_map(|name| self.strategy_entry(name)).collect(),
            paths: self.path_entries(),
            roadside_units: &self.units,
            attackers: &self.attackers,
            vehicle: self.vehicle_entry(),
            map: self.map,
            fleet: self.fleet,
            service: &self.service,
            echo: self.echo.as_ref(),
            tunnel: self.tunnel,
            traffic: traffic(&self.traffic),
            expect: &self.expectations,
        }
    }

    fn path_entries(&self) -> Vec<PathEntry<'_>> {
        let names = self.paths();
        let radios = self.radios.iter().zip(self.links());
        let radios = radios.flat_map(|(of, link)| names[link.paths].iter().map(|path| radio(of, path.name)));
        radios.chain(self.access.iter().map(access)).collect()
    }

    fn strategy_entry(&self, name: &str) -> Option<StrategyEntry> {
        let strategy = self.strategy(name)?;
        let (base, parameters) = (strategy.base.entry(), strategy.parameters);
        Some(StrategyEntry { name: name.into(), base: base.name, kind: base.kind, parameters })
    }

    fn vehicle_entry(&self) -> Vehicle<'_> {
        let (mobility, waypoints_m, speeds_kmh): (_, &[_], &[_]) = match &self.vehicle.motion {
            Motion::Route(route) => (None, &route.waypoints_m, &route.speeds_kmh),
            Motion::Mobility(file) => (Some(file.as_str()), &[], &[]),
        };
        let (start_s, antenna_m) = (self.vehicle.start_s, self.vehicle.antenna_m);
        Vehicle { start_s, antenna_m, mobility, waypoints_m, speeds_kmh }
    }
}

fn radio<'a>(radio: &'a Radio, name: &'a str) -> PathEntry<'a> {
    let (background_stations, background_cam_period_ms, background_shares): (_, _, &[_]) = match &radio.background {
        Background::Cams(cams) => (cams.stations, Some(cams.cam_period_ms), &[]),
        Background::Shares(spans) => (0, None, spans),
    };
    let keys = LinkKeys::Radio {
        radio: &radio.name,
        rate_mbit_s: radio.rate.mbit_s(),
        eirp_dbm: radio.eirp_dbm,
        noise_dbm: radio.noise_dbm,
        tries: radio.tries,
        queue_packets: radio.queue_packets,
        limit_mbit_s: radio.limit_mbit_s,
        tunnel: radio.tunnel,
        slots: radio.slots,
        background_stations,
        background_cam_period_ms,
        background_shares,
    };
    PathEntry { name, rat: radio.rat, link: "radio", keys }
}

fn access(link: &AccessLink) -> PathEntry<'_> {
    let (queue_ms, queue_packets, queue_bytes) = match link.queue {
        Queue::Millis(ms) => (Some(ms), None, None),
        Queue::Limit(QueueLimit::Packets(packets)) => (None, Some(packets), None),
        Queue::Limit(QueueLimit::Bytes(bytes)) => (None, None, Some(bytes)),
    };
    let keys = LinkKeys::Access {
        up_mbit_s: link.up_mbit_s,
        down_mbit_s: link.down_mbit_s.unwrap_or(link.up_mbit_s),
        delay_ms: link.delay_ms,
        loss: link.loss.mean(),
        queue_ms,
        queue_packets,
        queue_bytes,
        codel: link.codel.is_some(),
        rssi_dbm: link.rssi_dbm,
        rssi_sigma_db: link.rssi_sigma_db,
        sample_period_ms: link.sample_period_ms,
        trace: link.trace.as_deref(),
        trace_down: link.trace_down.as_deref(),
        modelled: link.model.is_some(),
        handovers: link.effects.handovers_word(),
        policer: link.effects.policer,
        jitter: link.effects.jitter,
        delay_steps: link.effects.delay_steps,
        middlebox: link.effects.middlebox.map(Middlebox::word),
        outages_s: &link.outages_s,
        shaping: link.wire,
    };
    let kind = link.key.split('.').next().unwrap_or_default();
    PathEntry { name: &link.name, rat: link.rat, link: kind, keys }
}

fn traffic(traffic: &Traffic) -> TrafficEntry<'_> {
    TrafficEntry {
        kind: if traffic.kind.is_answered() { "ping-pong" } else { traffic.kind.name() },
        keys: traffic.kind.parameters(),
        protocol: traffic.protocol,
        direction: if traffic.down { "down" } else { "up" },
        over: traffic.over.as_deref(),
        send_buffer_bytes: traffic.send_buffer_bytes,
        start_s: traffic.start_s,
        stop_s: traffic.stop_s,
    }
}
