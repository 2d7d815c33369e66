//! A scenario: what is driven, over which networks, with which traffic, and
//! what must come out. `docs/formats.md` describes the file; the types here
//! are its keys, with their ranges and defaults beside them.

use std::collections::BTreeMap;

pub use crosslane_core::allocate::Mode;
use crosslane_core::path::{PathId, Rat};
use serde::Deserialize;

use crate::input::link_trace::Trace;
use crate::input::mobility::Track;
pub use crate::transport::scheduler::Scheduler;

pub mod base;
mod deadlines;
mod engine;
mod expectation;
mod fleet;
mod impairments;
mod keys;
pub mod metric;
mod models;
mod networks;
mod parse;
mod paths;
mod route;
mod schema;
mod source_map;
mod traffic;
mod tunnel;
mod validate;
mod wires;

pub use crate::error::ScenarioError;
pub use base::Base;
pub use deadlines::{DeadlineTraffic, Starts};
pub use engine::Engine;
pub use expectation::{Bound, Crossing, CrossingDirection, Expectation, Limit};
pub use fleet::Fleet;
pub use networks::{AccessLink, Background, Queue, Radio, RoadsideUnit};
pub use route::{MAX_WAYPOINTS, Route};
use source_map::Lines;
pub use traffic::{Protocol, Traffic, TrafficKind};
pub use tunnel::{Tunnel, TunnelParams};
pub use wires::Wire;

/// A drive to be emulated or simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, `[a-z0-9-]+`.
    pub name: String,
    /// One sentence for the report; empty if none was given.
    pub title: String,
    /// Length of the drive, in s (above 0, at most 7200).
    pub duration_s: f64,
    /// Congestion control of the traffic's sockets.
    pub congestion: Congestion,
    /// Packet scheduler of MPTCP.
    pub scheduler: Scheduler,
    /// May runs of it stand side by side?
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
    /// Cellular links, then Wi-Fi, then wires.
    pub access: Vec<AccessLink>,
    /// What the user wants of the paths.
    pub service: Service,
    /// What tunnels have in common.
    pub tunnel: Tunnel,
    /// What is carried.
    pub traffic: Traffic,
    /// Strategies that the file defines beside the [built-in ones](base::CATALOG).
    pub strategies: Vec<Strategy>,
    /// What must come out.
    pub expectations: Vec<Expectation>,
    /// What the files named in the scenario contain, once [resolved](Self::resolve).
    pub data: Data,
    /// A sentence for each key that the file has under a former name.
    pub renamed: Vec<String>,
    lines: Lines,
}

/// Contents of the files that a scenario names, under the names it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// Traces of links.
    pub traces: BTreeMap<String, Trace>,
    /// The vehicle's way, where a file gives it; the first one's of a fleet.
    pub mobility: Option<Track>,
    /// The way of each vehicle of a fleet, by its number.
    pub fleet: BTreeMap<u32, Track>,
}

/// Most paths in a scenario: a [`PathId`] goes from 0 to 15.
pub const MAX_PATHS: usize = 16;

/// Most roadside units in a scenario: each is looked at 100 times a second.
pub const MAX_UNITS: usize = 256;

/// Congestion control, set per socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// Reno (RFC 5681).
    Reno,
    /// BBR.
    Bbr,
    /// Linked increases (RFC 6356; simulator only).
    Lia,
    /// Opportunistic linked increases (simulator only).
    Olia,
}

/// Bounds of the positions, in m.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Least and greatest x.
    pub x_m: [f64; 2],
    /// Least and greatest y.
    pub y_m: [f64; 2],
}

/// The vehicle.
#[derive(Clone, Debug, PartialEq)]
pub struct Vehicle {
    /// How it moves.
    pub motion: Motion,
    /// Which vehicle of a mobility file of many it is.
    pub number: Option<u32>,
    /// When it begins to move, in s.
    pub start_s: f64,
    /// Height of its antenna, in m.
    pub antenna_m: f64,
}

/// How the vehicle moves.
#[derive(Clone, Debug, PartialEq)]
pub enum Motion {
    /// Along waypoints; it stops at the end.
    Route(Route),
    /// By a file, named as in the scenario.
    Mobility(String),
}

/// What the user wants of the paths.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Use of the paths.
    #[serde(default)]
    pub mode: Mode,
    /// Paths, the preferred first; may be empty.
    #[serde(default)]
    pub prefer: Vec<String>,
    /// Price of 10⁹ bytes over each path, in any currency; may be empty.
    #[serde(default)]
    pub cost_per_gb: BTreeMap<String, f64>,
}

/// A strategy that the file defines.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    /// Its name.
    pub name: String,
    /// The built-in strategy that it varies.
    pub base: Base,
    /// Parameters of the base, to be checked by [`Scenario::check_strategies`].
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

/// A parameter that a strategy does not take, or not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Name of the parameter.
    pub key: String,
    /// What is wrong, as `-3 is not between 0 and 1`.
    pub what: String,
    /// What to do, as `choose a share`.
    pub remedy: String,
}

/// A path of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct PathEntry<'a> {
    /// Its number: radios first, then cellular, Wi-Fi and wires, as in the file.
    pub id: PathId,
    /// Its name.
    pub name: &'a str,
    /// Radio access technology.
    pub rat: Rat,
}

impl Scenario {
    /// Base and parameters of the strategy with this name: one that the file
    /// defines, or a built-in one.
    pub fn strategy(&self, name: &str) -> Option<Strategy> {
        let defined = self.strategies.iter().find(|entry| entry.name == name);
        defined.cloned().or_else(|| tunnel::built_in(name))
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
        files
    }

    /// Holds each strategy's parameters against what its base takes: `check`
    /// gets the name of the base and the parameters.
    pub fn check_strategies(
        &self,
        check: impl Fn(Base, &toml::Table) -> Result<(), ParameterError>,
    ) -> Result<(), ScenarioError> {
        for (place, strategy) in self.strategies.iter().enumerate() {
            check(strategy.base, &strategy.parameters).map_err(|error| {
                let key = format!("strategy.{place}.{}", error.key);
                self.lines.error(&key, error.what, error.remedy)
            })?;
        }
        Ok(())
    }

    /// Where the vehicle is over time; none while its mobility file has not been read.
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
