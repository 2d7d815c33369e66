//! Validation across keys: names, references, positions, times.

use std::collections::{BTreeMap, BTreeSet};

use crosslane_core::path::Rat;

use super::source_map::did_you_mean;
use super::{
    Background, Bound, Crossing, Data, Expectation, Limit, MAX_PATHS, MAX_UNITS, Motion, RadioPaths, Scenario,
    ScenarioError, tunnel,
};
use crate::input::link_trace::Trace;
use crate::input::mobility::Track;

/// Maximum length of a network interface's name on Linux (`IFNAMSIZ` − 1).
const MAX_NAME: usize = 15;
/// Maximum share of the airtime of background CAMs: above it stations would
/// send less often (ETSI TS 102 687), which is not modelled.
const MAX_CHANNEL_LOAD: f64 = 0.95;
/// Maximum distance of an RSU from the map's origin along an axis, in m: its CAM
/// has the position in degrees.
const MAX_UNIT_M: f64 = 1e6;

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
                if link.rat == Rat::Wifi && !trace.has_rate_and_signal() {
                    return Err(ScenarioError {
                        file: name.clone(),
                        line: Some(1),
                        what: "a Wi-Fi trace lacks `rate_mbit_s` or `rssi_dbm`".into(),
                        remedy: "add the column, with a value in the first row".into(),
                    });
                }
                data.traces.insert(name.clone(), trace);
            }
            let of_trace = link.trace.as_ref().and_then(|name| data.traces[name].at(0.0).delay_ms);
            if link.delay_ms.or(of_trace).is_none() {
                let what = format!("`{}` has no `delay_ms`, and its trace has none in the first row", link.name);
                return Err(self.lines.error(&link.key, what, "give its one-way delay"));
            }
        }
        self.data = data;
        self.check_positions()
    }

    pub(super) fn validate(&self) -> Result<(), ScenarioError> {
        self.check_names()?;
        self.check_units()?;
        self.check_positions()?;
        self.check_times()?;
        self.check_traffic()?;
        self.check_costs()?;
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

    fn content<'a>(
        &self,
        contents: &'a BTreeMap<String, String>,
        name: &str,
        key: &str,
    ) -> Result<&'a str, ScenarioError> {
        contents.get(name).map(String::as_str).ok_or_else(|| {
            let remedy = "create it, or name its folder with `--data DIR`";
            self.lines.error(key, format!("`{name}` was not found"), remedy)
        })
    }

    fn check_names(&self) -> Result<(), ScenarioError> {
        check_word(&self.name, usize::MAX).map_err(|(what, remedy)| self.lines.error("name", what, remedy))?;
        let radios = self.radios.iter().zip(0..).filter(|(radio, _)| radio.paths == RadioPaths::Radio);
        let radios = radios.map(|(radio, place)| (&radio.name, format!("radio.{place}")));
        let units = self.units.iter().zip(0..).filter(|(unit, _)| {
            self.radios.iter().any(|radio| radio.paths == RadioPaths::Units && radio.name == unit.radio)
        });
        let named = radios.chain(units.map(|(unit, place)| (&unit.name, format!("roadside_unit.{place}"))));
        let access = self.access.iter().map(|link| (&link.name, link.key.clone()));
        let mut names = BTreeSet::new();
        for (name, key) in named.chain(access) {
            let key = format!("{key}.name");
            check_word(name, MAX_NAME).map_err(|(what, remedy)| self.lines.error(&key, what, remedy))?;
            if name == "lo" || !names.insert(name) {
                let what = format!("the path name `{name}` is taken");
                return Err(self.lines.error(&key, what, "choose another"));
            }
        }
        let Some(last) = names.last() else {
            let what = "the scenario has no path";
            let remedy = "add a `[[radio]]` with a `[[roadside_unit]]`, a `[[cellular]]`, a `[[wifi]]` or a `[[wire]]`";
            return Err(self.lines.error("", what, remedy));
        };
        if names.len() > MAX_PATHS {
            let what = format!("{} paths are more than {MAX_PATHS}", names.len());
            return Err(self.lines.error("", what, format!("leave some out, for example `{last}`")));
        }
        self.check_rats()?;
        for (place, name) in self.service.prefer.iter().enumerate() {
            self.known_path(name, &format!("service.prefer.{place}"))?;
        }
        if let Some(name) = &self.traffic.over {
            self.known_path(name, "traffic.over")?;
        }
        Ok(())
    }

    fn check_rats(&self) -> Result<(), ScenarioError> {
        for (place, radio) in self.radios.iter().enumerate() {
            if radio.rat != Rat::Ieee80211p {
                let what = "a `[[radio]]` is always 802.11p";
                let remedy = "write `rat = \"80211p\"`, or make it a `[[cellular]]`";
                return Err(self.lines.error(&format!("radio.{place}.rat"), what, remedy));
            }
            if !(1..=7).contains(&radio.tries) || !(1..=100_000).contains(&radio.queue_packets) {
                let what = format!("`{}` needs 1 to 7 tries and 1 to 100000 packets", radio.name);
                let remedy = "choose `tries` and `queue_packets` in these ranges";
                return Err(self.lines.error(&format!("radio.{place}"), what, remedy));
            }
            let starts_s = match &radio.background {
                Background::Cams(_) => vec![0.0],
                Background::Shares(spans) => spans.iter().map(|[from_s, ..]| *from_s).collect(),
            };
            let load = starts_s.into_iter().map(|t_s| radio.channel_load(t_s)).fold(0.0, f64::max);
            if load > MAX_CHANNEL_LOAD {
                let (percent, max) = (load * 100.0, MAX_CHANNEL_LOAD * 100.0);
                let what = format!("the `background` takes {percent:.0} % of the channel, more than {max} %");
                let remedy = match &radio.background {
                    Background::Cams(_) => {
                        "choose fewer `stations`, a longer `cam_period_ms` or a faster `rate_mbit_s`"
                    }
                    Background::Shares(_) => "choose a smaller share",
                };
                return Err(self.lines.error(&format!("radio.{place}.background"), what, remedy));
            }
        }
        for link in &self.access {
            if link.key.starts_with("cellular") && !link.rat.is_cellular() {
                let what = "a `[[cellular]]` is `lte` or `nr`";
                let remedy = "write one of these, or make it a `[[radio]]` or a `[[wifi]]`";
                return Err(self.lines.error(&format!("{}.rat", link.key), what, remedy));
            }
        }
        Ok(())
    }

    fn check_units(&self) -> Result<(), ScenarioError> {
        if self.units.len() > MAX_UNITS {
            let what = format!("{} roadside units are more than {MAX_UNITS}", self.units.len());
            return Err(self.lines.error("roadside_unit", what, "leave some out"));
        }
        let mut names = BTreeSet::new();
        let mut stations = BTreeSet::new();
        for (place, unit) in self.units.iter().enumerate() {
            let key = format!("roadside_unit.{place}");
            if !self.radios.iter().any(|radio| radio.name == unit.radio) {
                let what = format!("there is no radio `{}`", unit.radio);
                let radios = self.radios.iter().map(|radio| radio.name.as_str());
                let remedy = did_you_mean(&unit.radio, radios);
                return Err(self.lines.error(&format!("{key}.radio"), what, remedy));
            }
            if !names.insert(&unit.name) {
                let what = format!("the roadside unit name `{}` is taken", unit.name);
                return Err(self.lines.error(&format!("{key}.name"), what, "choose another"));
            }
            if !stations.insert(unit.station_id) {
                let what = format!("the station id {} is taken", unit.station_id);
                let key = format!("{key}.station_id");
                return Err(self.lines.error(&key, what, "choose another"));
            }
        }
        for (place, radio) in self.radios.iter().enumerate() {
            if !self.units.iter().any(|unit| unit.radio == radio.name) {
                let what = format!("radio `{}` has no roadside unit", radio.name);
                let remedy = "add a `[[roadside_unit]]` for it";
                return Err(self.lines.error(&format!("radio.{place}"), what, remedy));
            }
        }
        Ok(())
    }

    /// Selects the vehicles of the scenario from its mobility file.
    fn choose_vehicles(&self, mut tracks: BTreeMap<u32, Track>, data: &mut Data) -> Result<(), ScenarioError> {
        let found = tracks.len();
        let (first, last) = (tracks.keys().next().copied(), tracks.keys().next_back().copied());
        let fault = |key: &str, what: String, remedy: &str| Err(self.lines.error(key, what, remedy));
        match (&self.fleet, self.vehicle.number) {
            (Some(fleet), _) => {
                let count = fleet.vehicles.unwrap_or(found);
                if count > found {
                    let what = format!("the mobility file has {found} vehicles, not {count}");
                    return fault("fleet.vehicles", what, "choose fewer, or use a file with more");
                }
                data.fleet = tracks.into_iter().take(count).collect();
                data.mobility = data.fleet.values().next().cloned();
            }
            (None, Some(number)) => {
                data.mobility = tracks.remove(&number);
                if data.mobility.is_none() {
                    let what = format!("the mobility file has no vehicle {number}");
                    let remedy = format!("choose from {} to {}", first.unwrap_or(0), last.unwrap_or(0));
                    return fault("vehicle.vehicle", what, &remedy);
                }
            }
            (None, None) if found > 1 => {
                let what = format!("the mobility file has {found} vehicles");
                return fault("vehicle.mobility", what, "choose one with `vehicle = …`, or add `[fleet]` for all");
            }
            (None, None) => data.mobility = tracks.into_values().next(),
        }
        Ok(())
    }

    fn check_positions(&self) -> Result<(), ScenarioError> {
        for (place, unit) in self.units.iter().enumerate() {
            let what = format!("roadside unit `{}`", unit.name);
            let key = format!("roadside_unit.{place}.position_m");
            if unit.position_m.iter().any(|axis_m| axis_m.is_finite() && axis_m.abs() > MAX_UNIT_M) {
                let what = format!("{what} is more than {} km from the origin", MAX_UNIT_M / 1000.0);
                return Err(self.lines.error(&key, what, "move the origin nearer to the roadside units"));
            }
            self.check_position(unit.position_m, &key, || what.clone())?;
        }
        if let Motion::Route(route) = &self.vehicle.motion {
            for (place, position_m) in route.waypoints_m.iter().enumerate() {
                let (key, what) = route.place(&self.lines, place);
                self.check_position(*position_m, &key, || what.clone())?;
            }
        }
        for track in self.data.mobility.iter().chain(self.data.fleet.values()) {
            for point in track.points() {
                self.check_position(point.position_m, "vehicle.mobility", || {
                    format!("the vehicle at {} s", point.t_s)
                })?;
            }
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
            let remedy = "move it inside `x_m` and `y_m`, or widen the map";
            return Err(self.lines.error(key, what, remedy));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ScenarioError> {
        let traffic = &self.traffic;
        if !(traffic.start_s < traffic.stop_s && traffic.stop_s <= self.duration_s) {
            let what = format!(
                "traffic from {} s to {} s does not fit a drive of {} s",
                traffic.start_s, traffic.stop_s, self.duration_s
            );
            let remedy = "choose a start before the stop, and a stop before the end of the drive";
            return Err(self.lines.error("traffic.stop_s", what, remedy));
        }
        if self.vehicle.start_s >= self.duration_s {
            let what = "the vehicle begins to move after the end of the drive";
            let remedy = "choose an earlier `start_s`, or a longer `duration_s`";
            return Err(self.lines.error("vehicle.start_s", what, remedy));
        }
        Ok(())
    }

    fn check_strategy_names(&self) -> Result<(), ScenarioError> {
        let mut names: BTreeSet<&str> = tunnel::built_in_names().collect();
        for (place, strategy) in self.strategies.iter().enumerate() {
            let key = format!("strategy.{place}");
            check_word(&strategy.name, 40)
                .map_err(|(what, remedy)| self.lines.error(&format!("{key}.name"), what, remedy))?;
            if !names.insert(&strategy.name) {
                let what = format!("the strategy name `{}` is taken", strategy.name);
                return Err(self.lines.error(&format!("{key}.name"), what, "choose another"));
            }
            strategy.base.check(&strategy.parameters).map_err(|error| {
                let what = format!("`{}`: {}", error.key, error.what);
                self.lines.error(&format!("{key}.{}", error.key), what, error.remedy)
            })?;
            if let Some(path) = strategy.path() {
                self.known_path(path, &format!("{key}.path"))?;
            }
        }
        Ok(())
    }

    fn check_crossing(&self, place: usize, crossing: &Crossing) -> Result<(), ScenarioError> {
        self.known_path(&crossing.path, &format!("expect.{place}.crossing"))?;
        let [from, to] = crossing.between_s;
        if !(0.0 <= from && from < to && to <= self.duration_s) {
            let what = format!("[{from}, {to}] is not an interval within {} s", self.duration_s);
            let remedy = "give two times of the drive, in order";
            let key = format!("expect.{place}.between_s");
            return Err(self.lines.error(&key, what, remedy));
        }
        Ok(())
    }

    fn check_bound(&self, place: usize, bound: &Bound) -> Result<(), ScenarioError> {
        self.known_strategy(&bound.strategy, &format!("expect.{place}.strategy"))?;
        let key = format!("expect.{place}.metric");
        let number = match &bound.limit {
            Limit::Number(number) => *number,
            Limit::Of { strategy, times } => {
                self.known_strategy(strategy, &format!("expect.{place}"))?;
                *times
            }
        };
        if !number.is_finite() {
            let what = format!("{number} is no limit for `{}`", bound.metric);
            return Err(self.lines.error(&key, what, "give a finite number"));
        }
        Ok(())
    }

    pub(super) fn known_path(&self, name: &str, key: &str) -> Result<(), ScenarioError> {
        let paths = self.paths();
        if paths.iter().any(|path| path.name == name) {
            return Ok(());
        }
        let remedy = did_you_mean(name, paths.iter().map(|path| path.name));
        Err(self.lines.error(key, format!("there is no path `{name}`"), remedy))
    }

    fn known_strategy(&self, name: &str, key: &str) -> Result<(), ScenarioError> {
        if self.strategy(name).is_some() {
            return Ok(());
        }
        let remedy = did_you_mean(name, self.strategy_names().into_iter());
        Err(self.lines.error(key, format!("there is no strategy `{name}`"), remedy))
    }
}

/// Checks a name: `[a-z0-9-]+`, at most `max_length` characters.
fn check_word(name: &str, max_length: usize) -> Result<(), (String, String)> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(fits) {
        let what = format!("the name `{name}` is not made of a–z, 0–9 and -");
        return Err((what, "use only these characters".into()));
    }
    if name.len() > max_length {
        let what = format!("the name `{name}` is longer than {max_length} characters");
        return Err((what, "choose a shorter one: it names an interface or a folder".into()));
    }
    Ok(())
}
