//! The agent's configuration file, the same on a vehicle and in a drive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crosslane_core::actuator::EndpointPolicy;
use crosslane_core::agent::MAX_PATHS;
use crosslane_core::allocate::Mode;
use crosslane_core::mptcp::manager::DEFAULT_OVERLAP;
use crosslane_core::path::{PathId, PathSpec, Rat};
use crosslane_core::strategy::Strategy;
use crosslane_sim::input::renamed_keys::renew;
use crosslane_sim::input::strict_toml;
use crosslane_sim::input::toml_fault::{TomlFault, line_at};
use serde::Deserialize;
use toml::Spanned;

use crate::error::{Error, Result};
use crate::observe::vanetza::Senders;
use crate::text_file;
use crate::tunnel::config::TunnelConfig;

mod all_checks;
pub mod cam;
pub mod cgroup;
mod checks;
pub mod class;
pub mod echo;
pub mod http;
pub mod keepalive;
mod log;
pub mod observe;
mod preference;
pub mod reload;
pub mod roadside;
mod strategy;
pub mod unit;
pub mod volume;

use cam::CamConfig;
use checks::Complaint;
use class::ClassConfig;
use echo::EchoConfig;
use http::HttpConfig;
use keepalive::KeepaliveSetting;
pub use log::Log;
use observe::Observe;
use roadside::RoadsideConfig;
use strategy::{read_strategy, with_tree};
use unit::UnitSection;
use volume::VolumeConfig;

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The paths, each over one interface; a gateway has none.
    #[serde(default, rename = "path")]
    pub paths: Vec<Spanned<PathConfig>>,
    /// How the paths are used.
    #[serde(default)]
    pub service: Service,
    /// Connections that use the paths otherwise; the first class that matches applies.
    #[serde(default, rename = "class")]
    pub classes: Vec<Spanned<ClassConfig>>,
    #[serde(rename = "strategy")]
    strategy_table: Option<Spanned<toml::Table>>,
    /// What is observed.
    #[serde(default)]
    pub observe: Observe,
    /// Echo requests, if any.
    pub echo: Option<Spanned<EchoConfig>>,
    /// The tunnel, if there is one.
    pub tunnel: Option<Spanned<TunnelConfig>>,
    /// Roadside units to which tunnels are built, if any.
    pub roadside: Option<Spanned<RoadsideConfig>>,
    /// The vehicle's own CAMs, if it sends any.
    pub cam: Option<Spanned<CamConfig>>,
    /// What this machine is as a roadside unit, if it is one.
    pub unit: Option<Spanned<UnitSection>>,
    /// Where the agent serves its page and metrics; unset, nowhere.
    pub http: Option<HttpConfig>,
    /// Where the agent writes what it observes and does.
    #[serde(default)]
    pub log: Log,
    /// The strategy, read from its table; a gateway has none.
    #[serde(skip)]
    pub strategy: Option<Arc<dyn Strategy>>,
    /// A sentence for each key that the file has under a former name.
    #[serde(skip)]
    pub renamed: Vec<String>,
    /// The file's tables, to compare with those of a later version.
    #[serde(skip)]
    tables: toml::Table,
}

/// A path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// Name in logs and figures.
    pub name: String,
    /// Interface (at most 15 bytes); the name if unset.
    pub interface: Option<String>,
    /// Radio access technology.
    pub rat: Rat,
    /// Our address on it; the interface's first IPv4 (else IPv6) address if unset.
    pub address: Option<IpAddr>,
    /// Station ids of the roadside units reached over it.
    #[serde(default)]
    pub stations: Vec<u32>,
    /// Number of the radio, if it shares one with other paths.
    pub radio: Option<u8>,
    /// Interval of the tunnel's keepalives while it carries nothing, in s (0.1 to 3600), or "off".
    pub keepalive_s: Option<Spanned<KeepaliveSetting>>,
    /// How much it may carry in a day and in a month.
    pub volume: Option<Spanned<VolumeConfig>>,
}

impl PathConfig {
    /// The path for the engine, without an address yet.
    pub fn spec(&self) -> PathSpec {
        PathSpec { name: self.name.clone(), rat: self.rat, local: None, if_index: 0, radio: self.radio }
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or(&self.name)
    }
}

/// How the paths are used.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// All paths together, one with the others as backup, or as many as the load needs.
    pub mode: Mode,
    /// Paths by preference; those not named come last, in the order of the file.
    pub prefer: Vec<Spanned<String>>,
    /// How long two subflows carry data together in a switch of paths, in ms (0 to 1000).
    pub overlap_ms: Spanned<u32>,
    /// Socket for the demand of senders (objects and deadlines): a file, or after `@` a name in the network namespace.
    pub demands: Option<Spanned<String>>,
    /// Group whose users may also send demand, besides root and the agent's own user; a name or a number.
    pub demands_group: Option<Spanned<String>>,
    /// Group whose users may look at the agent and its tunnel, besides those; a name or a number.
    pub view_group: Option<Spanned<String>>,
    /// Whether the agent sets a source rule and a routing table for each path.
    pub routes: bool,
    /// Whether connections of programs that choose no address begin on the path that the strategy prefers.
    pub default_route: bool,
    /// Which endpoints it uses where the kernel's path manager manages the connections.
    pub endpoints: EndpointPolicy,
    /// File in which the volumes of the paths are kept.
    pub volume_file: PathBuf,
    /// Price of 10⁹ bytes over each path, in any currency; may be empty.
    pub cost_per_gb: BTreeMap<String, Spanned<f64>>,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            mode: Mode::Aggregate,
            prefer: Vec::new(),
            overlap_ms: Spanned::new(0..0, DEFAULT_OVERLAP.as_millis() as u32),
            demands: None,
            demands_group: None,
            view_group: None,
            routes: true,
            default_route: true,
            endpoints: EndpointPolicy::Adopt,
            volume_file: "/var/lib/crosslane/volumes.json".into(),
            cost_per_gb: BTreeMap::new(),
        }
    }
}

/// The page that lists the keys.
const REFERENCE: &str = "docs/reference/agent-config.md";

/// The strategy of an agent whose file names none.
const DEFAULT_STRATEGY: &str = "adaptive";

/// The name of all roadside units together, also in `service.prefer` and `service.cost_per_gb`.
pub use crate::control::protocol::UNITS;

/// Reads and checks a configuration.
///
/// # Errors
/// One error message with file, line, and remedy.
pub fn read(file: &Path) -> Result<Config> {
    parse_file(&text_file::read_configuration(file)?, file)
}

/// The same from the text of the file.
///
/// # Errors
/// One error message with file, line, and remedy.
pub fn parse_file(text: &str, file: &Path) -> Result<Config> {
    let attempt = |line| format!("reading configuration {} line {line}", file.display());
    let mut config = parse(text).map_err(|fault| Error::usage(attempt(fault.line), fault.cause, fault.remedy))?;
    config.strategy = config.strategy.map(|strategy| with_tree(strategy, file)).transpose()?;
    Ok(config)
}

/// The same from a table built by a program.
/// # Errors
/// One error message with the remedy.
pub fn from_table(attempt: &str, table: &toml::Table) -> Result<Config> {
    parse(&table.to_string()).map_err(|fault| Error::usage(attempt, fault.cause, fault.remedy))
}

struct Fault {
    line: usize,
    cause: String,
    remedy: String,
}

impl From<TomlFault> for Fault {
    fn from(TomlFault { line, what, remedy }: TomlFault) -> Fault {
        Fault { line: line.unwrap_or(1), cause: what, remedy }
    }
}

fn parse(text: &str) -> Result<Config, Fault> {
    let (text, renamed) = renew(text);
    let mut config: Config = strict_toml::from_str(&text).map_err(|error| TomlFault::of(&text, &error, REFERENCE))?;
    complete(&mut config).map_err(|(place, cause, remedy)| {
        let (line, remedy) = (line_at(&text, place), remedy.into());
        Fault { line, cause, remedy }
    })?;
    config.renamed = renamed;
    config.tables = text.parse().unwrap_or_default();
    Ok(config)
}

/// Checks the configuration and reads its strategy.
fn complete(config: &mut Config) -> Result<(), Complaint> {
    if let Some(tunnel) = &config.tunnel {
        let at = |place: usize| if place == 0 { tunnel.span().start } else { place };
        let checked = tunnel.get_ref().check(config.paths.len());
        checked.map_err(|(place, cause, remedy)| (at(place), cause, remedy))?;
    }
    let listens = config.tunnel.as_ref().is_some_and(|tunnel| tunnel.get_ref().listen.is_some());
    let is_gateway = listens || config.unit.is_some();
    if config.strategy_table.is_none() && !is_gateway {
        let default = toml::Table::from_iter([("name".into(), DEFAULT_STRATEGY.into())]);
        config.strategy_table = Some(Spanned::new(0..0, default));
    }
    if let Some(table) = &config.strategy_table {
        config.strategy = Some(read_strategy(table.get_ref()).map_err(|cause| {
            let remedy = "see docs/reference/strategies.md for the strategies and their parameters";
            (table.span().start, cause, remedy)
        })?);
    }
    let needs_path = !is_gateway && config.roadside.is_none();
    if (config.paths.is_empty() && needs_path) || config.paths.len() > MAX_PATHS {
        return Err((0, format!("{} paths", config.paths.len()), "give between 1 and 16 [[path]] sections"));
    }
    let mut names = BTreeSet::new();
    for path in &config.paths {
        let (place, path) = (path.span().start, path.get_ref());
        if !names.insert(&path.name) {
            return Err((place, format!("path {:?} is defined twice", path.name), "give each path a different name"));
        }
        if !is_path_name(&path.name) {
            let remedy = "give `name` 1 to 64 bytes, without / and control characters, as \"lte-1\"";
            return Err((place, format!("{:?} is no name of a path", path.name), remedy));
        }
        if path.interface().len() > 15 || path.interface().is_empty() {
            let cause = format!("{:?} is no interface name", path.interface());
            return Err((place, cause, "give `interface` a name of 1 to 15 bytes"));
        }
    }
    let is_name = |name: &String| names.contains(name) || (config.roadside.is_some() && name == UNITS);
    if let Some(unknown) = config.service.prefer.iter().find(|name| !is_name(name.get_ref())) {
        let cause = format!("`prefer` names {:?}, which is no path", unknown.get_ref());
        return Err((unknown.span().start, cause, "name paths of this file"));
    }
    all_checks::check(config)
}

fn is_path_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && !name.contains(|letter: char| letter == '/' || letter.is_control())
}

impl Config {
    /// The path of each sender of messages.
    pub fn senders(&self) -> Senders {
        let has_units = self.roadside.is_some() || self.unit.is_some();
        let mut senders = Senders { has_units, ..Senders::default() };
        for (place, path) in self.paths.iter().enumerate() {
            let (id, path) = (PathId(place as u8), path.get_ref());
            senders.paths.insert(path.name.clone(), id);
            senders.stations.extend(path.stations.iter().map(|station| (*station, id)));
        }
        senders
    }

    /// Name of the strategy; a gateway has none.
    pub fn strategy_name(&self) -> Option<&str> {
        self.strategy_table.as_ref()?.get_ref().get("name")?.as_str()
    }

    /// Why the strategy lacks a mode, if it does.
    pub fn lacks(&self, mode: Mode) -> Option<String> {
        let why = self.strategy.as_ref()?.lacks(mode)?;
        Some(format!("strategy `{}` has no mode `{}`: {why}", self.strategy_name()?, mode.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[path]]
name = "its-g5"
rat = "80211p"
stations = [1001]

[[path]]
name = "lte"
interface = "wwan0"
rat = "lte"

[service]
mode = "backup"
prefer = ["lte"]

[strategy]
name = "threshold"
signal = { hysteresis_db = 4 }
"#;

    #[test]
    fn a_configuration_has_paths_service_and_strategy() {
        let config = parse(GOOD).ok().expect("readable");
        assert_eq!(config.ranks(), [1, 0]);
        assert_eq!(config.paths[1].get_ref().interface(), "wwan0");
        let strategy = format!("{:?}", config.strategy.expect("a strategy"));
        assert!(strategy.contains("hysteresis_db: 4.0") && strategy.contains("threshold_dbm: -82.0"), "{strategy}");
    }

    #[test]
    fn without_a_strategy_a_vehicle_has_adaptive() {
        let without = GOOD.split("[strategy]").next().unwrap_or_default();
        let config = parse(without).ok().expect("readable");
        assert_eq!(config.strategy_name(), Some("adaptive"));
        assert!(config.strategy.is_some_and(|strategy| strategy.uses_echoes()));
        let fault = parse(&without.replace("\"backup\"", "\"interactive\"")).err();
        assert!(fault.is_some_and(|fault| fault.cause.contains("`adaptive` has no mode `interactive`")));
    }

    #[test]
    fn cost_first_is_a_mode_of_strategies_that_do_not_order_the_paths_themselves() {
        for (strategy, has_it) in
            [("threshold", true), ("adaptive", true), ("smartps", false), ("deadline-mptcp", false)]
        {
            let text = GOOD.replacen("\"threshold\"\nsignal = { hysteresis_db = 4 }", &format!("{strategy:?}"), 1);
            let fault = parse(&text.replacen("\"backup\"", "\"cost-first\"", 1)).err();
            let refused = fault.is_some_and(|fault| fault.line == 16 && fault.cause.contains("no mode `cost-first`"));
            assert_eq!(refused, !has_it, "{strategy}");
        }
    }

    #[test]
    fn handover_is_an_older_word_for_backup() {
        let config = parse(&GOOD.replacen("\"backup\"", "\"handover\"", 1)).ok().expect("readable");
        assert_eq!(config.service.mode, Mode::Backup);
    }

    #[test]
    fn a_fault_names_its_line_and_what_to_do() {
        let cases = [
            ("rat = \"lte\"", "rat = \"lta\"", 10, "lta"),
            ("[service]", "[servce]", 12, "unknown key `servce`; did you mean `service`?"),
            ("stations = [1001]", "stations = 1001", 5, "`stations`: invalid type: integer `1001`; give a list"),
            ("mode = \"backup\"", "overlap_ms = 99999999999999999999", 13, "`99999999999999999999`; give a smaller"),
            ("mode = \"backup\"", "mode = \"backup\"\nmode = \"backup\"", 14, "already in line 13; remove one"),
            ("name = \"lte\"", "name = \"its-g5\"", 7, "twice"),
            ("prefer = [\"lte\"]", "prefer = [\"5g\"]", 14, "5g"),
            ("name = \"threshold\"", "name = \"treshold\"", 16, "treshold"),
            ("hysteresis_db", "hysteresis", 16, "hysteresis"),
            ("stations = [1001]", "stations = [-1]", 5, "-1"),
            ("mode = \"backup\"", "overlap_ms = 2000", 13, "2000"),
            ("mode = \"backup\"", "mode = \"redundant\"", 13, "of the tunnel"),
            ("mode = \"backup\"", "mode = \"cheapest\"", 13, "cost-first"),
        ];
        for (good, bad, line, word) in cases {
            let fault = parse(&GOOD.replacen(good, bad, 1)).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert_eq!(fault.line, line, "{bad}: {}", fault.cause);
            let sentence = format!("{}; {}", fault.cause, fault.remedy);
            assert!(sentence.contains(word) && !sentence.contains('\n'), "{bad}: {sentence}");
        }
    }
}
