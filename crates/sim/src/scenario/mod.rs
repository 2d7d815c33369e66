//! A scenario: vehicle, networks, traffic and expectations. `docs/reference/scenario.md`
//! describes the file; the types here are its keys, with ranges and defaults.

use std::collections::BTreeMap;

pub use crosslane_core::allocate::Mode;
use crosslane_core::allocate::learned::tree::Tree;
use crosslane_core::path::{PathId, Rat};
use serde::{Deserialize, Serialize};

pub use crate::addresses::IpVersion;
use crate::input::link_trace::Trace;
use crate::input::mobility::Track;
pub use crate::transport::congestion::Congestion;
pub use crate::transport::scheduler::Scheduler;

mod background;
pub mod base;
mod deadlines;
mod echo;
mod effects;
mod engine;
mod expectation;
mod fleet;
mod impairments;
mod keys;
mod models;
mod networks;
mod params;
mod parse;
mod paths;
mod resolved;
mod route;
mod schema;
mod source_map;
mod traffic;
mod trees;
mod tunnel;
mod validate;
mod wires;

pub use crate::error::ScenarioError;
pub use background::{Background, BackgroundCams};
pub use base::{Base, Engines};
pub use echo::{Echo, EchoPeriod};
pub use effects::{DelayStepKeys, Effects, JitterKeys, PolicerKeys};
pub use engine::Engine;
pub use expectation::{Bound, Crossing, CrossingDirection, Expectation};
pub use fleet::Fleet;
pub use networks::{AccessLink, Attacker, Queue, Radio, RadioPaths, RadioTunnel, RoadsideUnit, UnitDelay};
pub use params::{OracleParams, Steer, TunnelParams};
pub use paths::LinkEntry;
pub use resolved::Resolved;
pub use route::{MAX_WAYPOINTS, Route};
use schema::ordered;
use source_map::Lines;
pub use traffic::Traffic;
pub use tunnel::Tunnel;
pub use wires::Wire;

/// A drive to be emulated or simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, `[a-z0-9-]+`.
    pub name: String,
    /// One sentence for the report; may be empty.
    pub title: String,
    /// Duration of the drive, in s (above 0, at most 7200).
    pub duration_s: f64,
    /// Congestion control of the traffic's sockets.
    pub congestion: Congestion,
    /// Packet scheduler of MPTCP.
    pub scheduler: Scheduler,
    /// IP version of all paths.
    pub ip_version: IpVersion,
    /// True if several runs may execute in parallel.
    pub parallel: bool,
    /// Bounds of the positions.
    pub map: Option<Map>,
    /// The vehicle.
    pub vehicle: Vehicle,
    /// All vehicles of the mobility file instead of one.
    pub fleet: Option<Fleet>,
    /// 802.11p interfaces of the vehicle.
    pub radios: Vec<Radio>,
    /// Roadside units.
    pub units: Vec<RoadsideUnit>,
    /// Stations that send in the names of roadside units.
    pub attackers: Vec<Attacker>,
    /// Cellular links, then Wi-Fi, then wires.
    pub access: Vec<AccessLink>,
    /// The user's preferences.
    pub service: Service,
    /// Echo requests of the strategies that use them, if there are any.
    pub echo: Option<Echo>,
    /// Settings of all tunnels.
    pub tunnel: Tunnel,
    /// Traffic.
    pub traffic: Traffic,
    /// Strategies that the file defines in addition to the [built-in ones](base::catalog).
    pub strategies: Vec<Strategy>,
    /// Expectations.
    pub expectations: Vec<Expectation>,
    /// Contents of the files named in the scenario, once [resolved](Self::resolve).
    pub data: Data,
    /// A sentence for each key that the file has under a former name.
    pub renamed: Vec<String>,
    lines: Lines,
}

/// Contents of the files that a scenario names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// Link traces, by the names that the scenario uses.
    pub traces: BTreeMap<String, Trace>,
    /// The vehicle's track from a file; of a fleet, the first vehicle's.
    pub mobility: Option<Track>,
    /// Learned trees, by the names that the scenario uses.
    pub trees: BTreeMap<String, Tree>,
    /// The track of each vehicle of a fleet, by its number.
    pub fleet: BTreeMap<u32, Track>,
}

/// Maximum number of RSUs in a scenario: each is evaluated 100 times a second.
pub const MAX_UNITS: usize = 256;

/// Bounds of the positions, in m.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Minimum and maximum x.
    #[serde(deserialize_with = "ordered")]
    pub x_m: [f64; 2],
    /// Minimum and maximum y.
    #[serde(deserialize_with = "ordered")]
    pub y_m: [f64; 2],
}

/// The vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct Vehicle {
    /// Motion.
    pub motion: Motion,
    /// Its number in a mobility file of many vehicles.
    pub number: Option<u32>,
    /// Time at which it begins to move, in s.
    pub start_s: f64,
    /// Height of its antenna, in m.
    pub antenna_m: f64,
}

/// Motion of the vehicle.
#[derive(Clone, Debug, PartialEq)]
pub enum Motion {
    /// Along waypoints; it stops at the end.
    Route(Route),
    /// From a file, by the name that the scenario uses.
    Mobility(String),
}

/// The user's preferences.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Mode of use of the paths.
    pub mode: Mode,
    /// Paths in order of preference; may be empty.
    pub prefer: Vec<String>,
    /// Price of 10⁹ bytes over each path, in any currency; may be empty.
    pub cost_per_gb: BTreeMap<String, f64>,
    /// A message that is delivered later than this is as bad as lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u32>,
}

impl Service {
    /// After how long a message counts as late, in ms.
    pub fn late_after_ms(&self) -> f64 {
        self.late_ms.map_or(200.0, f64::from)
    }
}

/// A strategy that the file defines.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// Its name.
    pub name: String,
    /// The built-in strategy that it is based on.
    pub base: Base,
    /// Parameters of the base ([`Base::check`]).
    pub parameters: toml::Table,
}

/// A file that the scenario names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// As written in the scenario; key of the map for [`Scenario::resolve`].
    pub name: String,
    /// The name without `data:`.
    pub path: String,
    /// True if it is relative to the data folder, else to the scenario.
    pub in_data: bool,
    /// Line of the scenario that names it.
    pub line: Option<usize>,
}

/// A path of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct PathEntry<'a> {
    /// Its id: radios first, then cellular, Wi-Fi and wires, in file order.
    pub id: PathId,
    /// Its name.
    pub name: &'a str,
    /// Radio access technology.
    pub rat: Rat,
}

impl Scenario {
    /// The strategy with this name: one that the file defines, or a built-in
    /// one. One with the parameter `late_ms` has that of the service, unless its own is set.
    pub fn strategy(&self, name: &str) -> Option<Strategy> {
        const LATE_MS: &str = "late_ms";
        let defined = self.strategies.iter().find(|entry| entry.name == name);
        let mut strategy = defined.cloned().or_else(|| tunnel::built_in(name))?;
        if let Some(late_ms) = self.service.late_ms
            && strategy.base.entry().parameters.iter().any(|parameter| parameter.name == LATE_MS)
        {
            strategy.parameters.entry(LATE_MS).or_insert(late_ms.into());
        }
        Some(strategy)
    }

    /// Files that must be read before the drive.
    pub fn files(&self) -> Vec<FileRef> {
        let mut files = Vec::new();
        if let Motion::Mobility(name) = &self.vehicle.motion {
            files.push(self.file_ref(name, "vehicle.mobility"));
        }
        for link in &self.access {
            let up = link.trace.iter().map(|name| (name, "trace"));
            let down = link.trace_down.iter().map(|name| (name, "trace_down"));
            for (name, key) in up.chain(down) {
                files.push(self.file_ref(name, &format!("{}.{key}", link.key)));
            }
        }
        files.extend(self.tree_files());
        files
    }

    /// The vehicle's track; none before its mobility file has been read.
    pub(crate) fn known_track(&self) -> Option<Track> {
        match &self.vehicle.motion {
            Motion::Route(route) => Some(route.track()),
            Motion::Mobility(_) => self.data.mobility.clone(),
        }
    }

    fn file_ref(&self, name: &str, key: &str) -> FileRef {
        let in_data = name.strip_prefix("data:");
        FileRef {
            name: name.into(),
            path: in_data.unwrap_or(name).into(),
            in_data: in_data.is_some(),
            line: self.lines.line(key),
        }
    }
}
