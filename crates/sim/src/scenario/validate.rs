//! Validation across keys: names, references, positions, times.

use std::collections::{BTreeMap, BTreeSet};

use crosslane_core::path::{MAX_PATHS, Rat};

use super::schema::MAX_UNIT_M;
use super::{
    Background, Bound, Crossing, Data, Expectation, IpVersion, MAX_UNITS, Motion, RadioPaths, RadioTunnel, Scenario,
    ScenarioError, Traffic, tunnel,
};
use crate::addresses;
use crate::input::link_trace::Trace;
use crate::input::mobility::Track;

/// Maximum length of a network interface's name on Linux (`IFNAMSIZ` − 1).
const MAX_NAME: usize = 15;

/// Largest identifier of a VXLAN network (RFC 7348 §5).
const MAX_VXLAN_NETWORK: u32 = 0x00ff_ffff;
/// Maximum share of the airtime of background CAMs: above it stations would
/// send less often (ETSI TS 102 687), which is not modelled.
const MAX_CHANNEL_LOAD: f64 = 0.95;

impl Scenario {
    /// Reads and checks the contents of the [files](Scenario::files), keyed by
    /// [`FileRef::name`](super::FileRef::name).
    pub fn resolve(&mut self, contents: &BTreeMap<String, String>) -> Result<(), ScenarioError> {
        let mut data = Data::default();
        if let Motion::Mobility(name) = &self.vehicle.motion {
            let text = self.content(contents, name, "vehicle.mobility")?;
            self.choose_vehicles(Track::parse(text, name)?, &mut data)?;
        }
        for link in &self.access {
            for (name, key) in [(&link.trace, "trace"), (&link.trace_down, "trace_down")] {
                let Some(name) = name else { continue };
                let text = self.content(contents, name, &format!("{}.{key}", link.key))?;
                let trace = Trace::parse(text, name)?;
                let first = trace.at(0.0);
                if link.rat == Rat::Wifi && (first.rate_mbit_s.is_none() || first.rssi_dbm.is_none()) {
                    return Err(ScenarioError {
                        file: name.clone(),
                        line: Some(1),
                        what: "a Wi-Fi trace lacks `rate_mbit_s` or `rssi_dbm`".into(),
                        remedy: "add the column, with a value in the first row".into(),
                    });
                }
                data.traces.insert(name.clone(), trace);
            }
            let trace = link.trace.as_ref().map(|name| &data.traces[name]);
            let is_rated = trace.is_none_or(|trace| {
                matches!(trace, Trace::Opportunities(_)) || trace.at(0.0).rate_mbit_s.is_some() || link.up_mbit_s > 0.0
            });
            let what = format!("`{}` has no `rate_mbit_s`, and its trace has none in the first row", link.name);
            self.lines.require(is_rated, &link.key, what, "give its rate")?;
            let of_trace = trace.and_then(|trace| trace.at(0.0).delay_ms);
            let what = format!("`{}` has no `delay_ms`, and its trace has none in the first row", link.name);
            self.lines.require(link.delay_ms.or(of_trace).is_some(), &link.key, what, "give its one-way delay")?;
        }
        data.trees = self.trees(contents)?;
        self.data = data;
        self.check_agent_strategies()?;
        self.check_positions()
    }

    pub(super) fn validate(&self) -> Result<(), ScenarioError> {
        self.check_names()?;
        self.check_units()?;
        self.check_positions()?;
        self.check_times()?;
        self.check_traffic()?;
        self.check_costs()?;
        self.check_echo()?;
        self.check_fleet()?;
        self.check_strategy_names()?;
        for (place, expectation) in self.expectations.iter().enumerate() {
            match expectation {
                Expectation::Crossing(crossing) => self.check_crossing(place, crossing)?,
                Expectation::Bound(bound) => self.check_bound(place, bound)?,
            }
        }
        Ok(())
    }

    pub(super) fn content<'a>(
        &self,
        contents: &'a BTreeMap<String, String>,
        name: &str,
        key: &str,
    ) -> Result<&'a str, ScenarioError> {
        // Editors of Windows begin a file with a byte order mark.
        contents.get(name).map(|text| text.strip_prefix('\u{feff}').unwrap_or(text)).ok_or_else(|| {
            let remedy = "create it, or name its folder with `--data DIR`";
            self.lines.error(key, format!("`{name}` was not found"), remedy)
        })
    }

    fn check_names(&self) -> Result<(), ScenarioError> {
        self.check_word("name", &self.name, usize::MAX)?;
        let of_units =
            |name: &String| self.radios.iter().any(|radio| radio.paths == RadioPaths::Units && radio.name == *name);
        let radios = self.radios.iter().zip(0..).filter(|(radio, _)| !of_units(&radio.name));
        let radios = radios.map(|(radio, place)| (&radio.name, format!("radio.{place}")));
        let units = self.units.iter().zip(0..).filter(|(unit, _)| of_units(&unit.radio));
        let named = radios.chain(units.map(|(unit, place)| (&unit.name, format!("roadside_unit.{place}"))));
        let access = self.access.iter().map(|link| (&link.name, link.key.clone()));
        let mut names = BTreeSet::new();
        for (name, key) in named.chain(access) {
            let key = format!("{key}.name");
            self.check_word(&key, name, MAX_NAME)?;
            let what = format!("the path name `{name}` is taken");
            self.lines.require(name != "lo" && names.insert(name), &key, what, "choose another")?;
        }
        let Some(last) = names.last() else {
            let remedy = "add a `[[radio]]` with a `[[roadside_unit]]`, a `[[cellular]]`, a `[[wifi]]` or a `[[wire]]`";
            return Err(self.lines.error("", "the scenario has no path", remedy));
        };
        let what = format!("{} paths are more than {}", names.len(), addresses::MAX_PATHS);
        let remedy = format!("leave some out, for example `{last}`");
        self.lines.require(names.len() <= addresses::MAX_PATHS, "", what, &remedy)?;
        self.check_slots(&remedy)?;
        self.check_rats()?;
        self.check_radio_tunnels()?;
        self.check_ip_version()?;
        if let Some(late_ms) = self.service.late_ms {
            let what = format!("`late_ms`: {late_ms} is outside 1 to 60000");
            let ok = (1..=60_000).contains(&late_ms);
            self.lines.require(ok, "service.late_ms", what, "choose a time in this range")?;
        }
        for (place, name) in self.service.prefer.iter().enumerate() {
            self.known_path(name, &format!("service.prefer.{place}"))?;
        }
        self.traffic.over.as_ref().map_or(Ok(()), |name| self.known_path(name, "traffic.over"))
    }

    /// Checks that an agent has room for what stands at the same time; `remedy` for paths
    /// that always stand.
    fn check_slots(&self, remedy: &str) -> Result<(), ScenarioError> {
        let links = self.links();
        let standing: usize = links.iter().filter(|link| link.slots.is_none()).map(|link| link.paths.len()).sum();
        let what = format!("{standing} paths are more than {MAX_PATHS}");
        let units = self.radios.iter().any(|radio| radio.paths == RadioPaths::Units);
        let remedy = if units { format!("{remedy}, or give the radio `slots`") } else { remedy.to_owned() };
        self.lines.require(standing <= MAX_PATHS, "", what, &remedy)?;
        let mut left = MAX_PATHS - standing;
        for (place, radio) in self.radios.iter().enumerate() {
            let Some(slots) = radio.slots else { continue };
            let key = format!("radio.{place}.slots");
            let what = format!("`slots` of radio `{}`, which is one path", radio.name);
            let remedy = "set `paths = \"units\"`, or leave it out";
            self.lines.require(radio.paths == RadioPaths::Units, &key, what, remedy)?;
            let what = format!("{slots} slots of radio `{}`, with {left} left of {MAX_PATHS} paths", radio.name);
            self.lines.require(usize::from(slots) <= left, &key, what, "choose fewer `slots`, or fewer other paths")?;
            left -= usize::from(slots);
            let what =
                format!("`slots` of radio `{}`, and traffic with deadlines, whose prices are by path", radio.name);
            let remedy = "leave `slots` out, or choose another kind of traffic";
            self.lines.require(self.traffic.kind.deadlines().is_none(), &key, what, remedy)?;
        }
        Ok(())
    }

    /// Checks a name: `[a-z0-9-]+`, at most `max_length` characters.
    fn check_word(&self, key: &str, name: &str, max_length: usize) -> Result<(), ScenarioError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let what = format!("the name `{name}` is not made of a–z, 0–9 and -");
        self.lines.require(!name.is_empty() && name.bytes().all(fits), key, what, "use only these characters")?;
        let what = format!("the name `{name}` is longer than {max_length} characters");
        let remedy = "choose a shorter one: it names an interface or a folder";
        self.lines.require(name.len() <= max_length, key, what, remedy)
    }

    /// Checks the tunnels to RSUs: an agent has one `[roadside]`, which is one radio.
    /// The tunnels and prefixes of roadside units are IPv4.
    fn check_ip_version(&self) -> Result<(), ScenarioError> {
        let units = self.radios.iter().any(|radio| radio.paths == RadioPaths::Units);
        let remedy = "write 4, or leave `paths = \"units\"` out";
        let ok = self.ip_version == IpVersion::V4 || !units;
        self.lines.require(ok, "ip_version", "paths to roadside units have IPv4", remedy)
    }

    fn check_radio_tunnels(&self) -> Result<(), ScenarioError> {
        let mut first = None;
        for (place, radio) in self.radios.iter().enumerate().filter(|(_, radio)| radio.tunnel.is_some()) {
            let (key, name) = (format!("radio.{place}.tunnel"), &radio.name);
            let what = format!("`tunnel` of radio `{name}`, which is one path");
            let remedy = "set `paths = \"units\"`, or leave it out";
            self.lines.require(radio.paths == RadioPaths::Units, &key, what, remedy)?;
            if let Some(first) = first.replace(name) {
                let what =
                    format!("radios `{first}` and `{name}` have a `tunnel`, and an agent builds tunnels over one");
                return Err(self.lines.error(&key, what, "leave it out of one"));
            }
            self.check_word(&format!("radio.{place}.name"), name, MAX_NAME)?;
            let what = format!("the radio `{name}` is an interface, and so is the path `{name}`");
            self.lines.require(self.path_id(name).is_none(), &format!("radio.{place}.name"), what, "rename one")?;
            let what = format!("`tunnel` of radio `{name}`, and traffic with deadlines, whose prices are by path");
            let remedy = "leave `tunnel` out, or choose another kind of traffic";
            self.lines.require(self.traffic.kind.deadlines().is_none(), &key, what, remedy)?;
            let wide = self.units_of(radio).find(|unit| unit.station_id > MAX_VXLAN_NETWORK);
            if let Some(unit) = wide.filter(|_| radio.tunnel == Some(RadioTunnel::Vxlan)) {
                let what =
                    format!("the station id {} of `{}` is no VXLAN network (24 bits)", unit.station_id, unit.name);
                return Err(self.lines.error(&key, what, "choose a `station_id` of at most 16777215"));
            }
        }
        Ok(())
    }

    fn check_rats(&self) -> Result<(), ScenarioError> {
        for (place, radio) in self.radios.iter().enumerate() {
            let key = format!("radio.{place}");
            let remedy = "write `rat = \"80211p\"`, or make it a `[[cellular]]`";
            let is_80211p = radio.rat == Rat::Ieee80211p;
            self.lines.require(is_80211p, &format!("{key}.rat"), "a `[[radio]]` is always 802.11p", remedy)?;
            let in_range = (1..=7).contains(&radio.tries) && (1..=100_000).contains(&radio.queue_packets);
            let what = format!("`{}` needs 1 to 7 tries and 1 to 100000 packets", radio.name);
            self.lines.require(in_range, &key, what, "choose `tries` and `queue_packets` in these ranges")?;
            let load = radio.background.max_load(radio.rate);
            let (percent, max) = (load * 100.0, MAX_CHANNEL_LOAD * 100.0);
            let what = format!("the `background` takes {percent:.0} % of the channel, more than {max} %");
            let remedy = match radio.background {
                Background::Cams(_) => "choose fewer `stations`, a longer `cam_period_ms` or a faster `rate_mbit_s`",
                Background::Shares(_) => "choose a smaller share",
            };
            self.lines.require(load <= MAX_CHANNEL_LOAD, &format!("{key}.background"), what, remedy)?;
        }
        for link in self.access.iter().filter(|link| link.key.starts_with("cellular")) {
            let remedy = "write one of these, or make it a `[[radio]]` or a `[[wifi]]`";
            let key = format!("{}.rat", link.key);
            self.lines.require(link.rat.is_cellular(), &key, "a `[[cellular]]` is `lte` or `nr`", remedy)?;
        }
        Ok(())
    }

    fn check_units(&self) -> Result<(), ScenarioError> {
        let what = format!("{} roadside units are more than {MAX_UNITS}", self.units.len());
        self.lines.require(self.units.len() <= MAX_UNITS, "roadside_unit", what, "leave some out")?;
        let mut names = BTreeSet::new();
        let mut stations = BTreeSet::new();
        for (place, unit) in self.units.iter().enumerate() {
            let key = |name: &str| format!("roadside_unit.{place}.{name}");
            let radios = self.radios.iter().map(|radio| radio.name.as_str());
            self.lines.known("radio", &unit.radio, &key("radio"), radios)?;
            let what = format!("the roadside unit name `{}` is taken", unit.name);
            self.lines.require(names.insert(&unit.name), &key("name"), what, "choose another")?;
            let what = format!("the station id {} is taken", unit.station_id);
            self.lines.require(stations.insert(unit.station_id), &key("station_id"), what, "choose another")?;
        }
        self.check_attackers()?;
        for (place, radio) in self.radios.iter().enumerate() {
            let what = format!("radio `{}` has no roadside unit", radio.name);
            let remedy = "add a `[[roadside_unit]]` for it";
            let served = self.units.iter().any(|unit| unit.radio == radio.name);
            self.lines.require(served, &format!("radio.{place}"), what, remedy)?;
        }
        Ok(())
    }

    fn check_attackers(&self) -> Result<(), ScenarioError> {
        for (place, attacker) in self.attackers.iter().enumerate() {
            let key = |name: &str| format!("attacker.{place}.{name}");
            let radios = self.radios.iter().map(|radio| radio.name.as_str());
            self.lines.known("radio", &attacker.radio, &key("radio"), radios)?;
            let what = "an attacker has no roadside unit's name to send in".to_owned();
            self.lines.require(!attacker.names.is_empty(), &key("names"), what, "name a roadside unit")?;
            for name in &attacker.names {
                let units = self.units.iter().filter(|unit| unit.radio == attacker.radio);
                let units = units.map(|unit| unit.name.as_str());
                self.lines.known("roadside unit", name, &key("names"), units)?;
            }
        }
        Ok(())
    }

    /// Selects the vehicles of the scenario from its mobility file.
    fn choose_vehicles(&self, mut tracks: BTreeMap<u32, Track>, data: &mut Data) -> Result<(), ScenarioError> {
        let found = tracks.len();
        let (first, last) = (tracks.keys().next().copied(), tracks.keys().next_back().copied());
        match (&self.fleet, self.vehicle.number) {
            (Some(fleet), _) => {
                let count = fleet.vehicles.unwrap_or(found);
                let what = format!("the mobility file has {found} vehicles, not {count}");
                let remedy = "choose fewer, or use a file with more";
                self.lines.require(count <= found, "fleet.vehicles", what, remedy)?;
                data.fleet = tracks.into_iter().take(count).collect();
                data.mobility = data.fleet.values().next().cloned();
            }
            (None, Some(number)) => {
                data.mobility = tracks.remove(&number);
                let what = format!("the mobility file has no vehicle {number}");
                let remedy = format!("choose from {} to {}", first.unwrap_or(0), last.unwrap_or(0));
                self.lines.require(data.mobility.is_some(), "vehicle.vehicle", what, &remedy)?;
            }
            (None, None) => {
                let what = format!("the mobility file has {found} vehicles");
                let remedy = "choose one with `vehicle = …`, or add `[fleet]` for all";
                self.lines.require(found <= 1, "vehicle.mobility", what, remedy)?;
                data.mobility = tracks.into_values().next();
            }
        }
        Ok(())
    }

    fn check_positions(&self) -> Result<(), ScenarioError> {
        for (place, unit) in self.units.iter().enumerate() {
            let what = format!("roadside unit `{}`", unit.name);
            let key = format!("roadside_unit.{place}.position_m");
            let near = unit.position_m.iter().all(|axis_m| !axis_m.is_finite() || axis_m.abs() <= MAX_UNIT_M);
            let too_far = format!("{what} is more than {} km from the origin", MAX_UNIT_M / 1000.0);
            self.lines.require(near, &key, too_far, "move the origin nearer to the roadside units")?;
            self.check_position(unit.position_m, &key, || what.clone())?;
        }
        if let Motion::Route(route) = &self.vehicle.motion {
            for (place, position_m) in route.waypoints_m.iter().enumerate() {
                let (key, what) = route.place(&self.lines, place);
                self.check_position(*position_m, &key, || what.clone())?;
            }
        }
        for point in self.data.mobility.iter().chain(self.data.fleet.values()).flat_map(|track| &track.points) {
            let what = || format!("the vehicle at {} s", point.t_s);
            self.check_position(point.position_m, "vehicle.mobility", what)?;
        }
        Ok(())
    }

    fn check_position(&self, [x, y]: [f64; 2], key: &str, what: impl Fn() -> String) -> Result<(), ScenarioError> {
        if !(x.is_finite() && y.is_finite()) {
            let what = format!("{} is not at a finite position", what());
            return Err(self.lines.error(key, what, "give x and y in m"));
        }
        let inside = |value, [low, high]: [f64; 2]| low <= value && value <= high;
        if self.map.is_some_and(|map| !(inside(x, map.x_m) && inside(y, map.y_m))) {
            let what = format!("{}, [{x}, {y}] m, is outside the map", what());
            return Err(self.lines.error(key, what, "move it inside `x_m` and `y_m`, or widen the map"));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ScenarioError> {
        let Traffic { start_s, stop_s, .. } = self.traffic;
        let what = format!("traffic from {start_s} s to {stop_s} s does not fit a drive of {} s", self.duration_s);
        let remedy = "choose a start before the stop, and a stop before the end of the drive";
        self.lines.require(start_s < stop_s && stop_s <= self.duration_s, "traffic.stop_s", what, remedy)?;
        let what = "the vehicle begins to move after the end of the drive";
        let remedy = "choose an earlier `start_s`, or a longer `duration_s`";
        self.lines.require(self.vehicle.start_s < self.duration_s, "vehicle.start_s", what, remedy)
    }

    fn check_strategy_names(&self) -> Result<(), ScenarioError> {
        let mut names: BTreeSet<&str> = tunnel::built_in_names().collect();
        for (place, strategy) in self.strategies.iter().enumerate() {
            let key = |name: &str| format!("strategy.{place}.{name}");
            self.check_word(&key("name"), &strategy.name, 40)?;
            let what = format!("the strategy name `{}` is taken", strategy.name);
            self.lines.require(names.insert(&strategy.name), &key("name"), what, "choose another")?;
            strategy.base.check(&strategy.parameters).map_err(|error| {
                let what = format!("`{}`: {}", error.key, error.what);
                self.lines.error(&key(&error.key), what, error.remedy)
            })?;
            if let Some(path) = strategy.path() {
                self.known_path(path, &key("path"))?;
            }
        }
        Ok(())
    }

    fn check_crossing(&self, place: usize, crossing: &Crossing) -> Result<(), ScenarioError> {
        self.known_path(&crossing.path, &format!("expect.{place}.crossing"))?;
        let [from, to] = crossing.between_s;
        let what = format!("[{from}, {to}] is not an interval within {} s", self.duration_s);
        let ok = 0.0 <= from && from < to && to <= self.duration_s;
        self.lines.require(ok, &format!("expect.{place}.between_s"), what, "give two times of the drive, in order")
    }

    fn check_bound(&self, place: usize, bound: &Bound) -> Result<(), ScenarioError> {
        self.known_strategy(&bound.strategy, &format!("expect.{place}.strategy"))?;
        if let Some(strategy) = &bound.of_strategy {
            self.known_strategy(strategy, &format!("expect.{place}"))?;
        }
        let what = format!("{} is no limit for `{}`", bound.limit, bound.metric);
        self.lines.require(bound.limit.is_finite(), &format!("expect.{place}.metric"), what, "give a finite number")
    }

    pub(super) fn known_path(&self, name: &str, key: &str) -> Result<(), ScenarioError> {
        self.lines.known("path", name, key, self.paths().iter().map(|path| path.name))
    }

    fn known_strategy(&self, name: &str, key: &str) -> Result<(), ScenarioError> {
        self.lines.known("strategy", name, key, self.strategy_names().into_iter())
    }
}
