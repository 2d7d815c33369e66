//! `crosslane view`: the page of an agent with a recorded run in its place, and a map.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crosslane_core::allocate::Mode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::arrow_file::{self, cut_short};
use crate::error::{Error, Result};
use crate::output;
use crate::text_file;

mod moment;
mod recording;

use moment::Moment;
use recording::Recording;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder that `drive` or `simulate` wrote.
    pub(super) run: PathBuf,
    /// Address and port of the page.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9471")]
    pub(super) listen: SocketAddr,
}

/// A folder of `drive` or `simulate`.
pub struct Replay {
    folder: PathBuf,
    summary: Summary,
    scenario: Scenario,
    /// The run that was read last, with its place in the summary.
    last: Mutex<Option<(usize, Arc<Recording>)>>,
}

/// `summary.json`, as far as it is shown.
#[derive(Deserialize)]
struct Summary {
    title: String,
    engine: String,
    duration_s: f64,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    strategy: String,
    seed: u64,
    folder: Option<String>,
    valid: bool,
}

/// `scenario.json`, as far as it is shown.
#[derive(Deserialize)]
struct Scenario {
    paths: Vec<Named>,
    roadside_units: Vec<Unit>,
    fleet: Option<IgnoredAny>,
    service: Service,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Unit {
    name: String,
    radio: String,
    position_m: [f64; 2],
}

#[derive(Deserialize)]
struct Service {
    mode: Mode,
}

impl Replay {
    /// Reads the folder and its first run.
    ///
    /// # Errors
    /// A file is missing or cut short, or there are no records.
    pub fn open(folder: &Path) -> Result<Replay> {
        let file = folder.join("summary.json");
        let (summary, scenario): (Summary, Scenario) = (read(&file)?, read(&folder.join("scenario.json"))?);
        if summary.duration_s < 0.0 {
            return Err(cut_short(&file, format!("`duration_s` is {}", summary.duration_s)));
        }
        if scenario.fleet.is_some() {
            let cause = "a run of a fleet has no records to show";
            let remedy = "see runs/*/vehicles.csv in it, one row per vehicle";
            return Err(Error::usage(format!("reading {}", folder.display()), cause, remedy));
        }
        let mut replay = Replay { folder: folder.into(), summary, scenario, last: Mutex::default() };
        replay.summary.runs.retain(|run| run.folder.is_some());
        replay.recording(0)?;
        replay.warn_of_packets();
        Ok(replay)
    }

    /// The page shows no packets, so a run without them is shown.
    fn warn_of_packets(&self) {
        for folder in (0..self.summary.runs.len()).filter_map(|place| self.run_folder(place).ok()) {
            let file = folder.join("packets.arrow");
            if arrow_file::open(&file).is_err() {
                let file = file.display();
                output::message(format_args!(
                    "{file} cannot be read, perhaps because its run was killed; the page shows the other records"
                ));
            }
        }
    }

    /// What a request of the page gets; `None`: there is no such address.
    ///
    /// # Errors
    /// A run is missing or cut short.
    pub fn answer(&self, path: &str, query: &str) -> Option<Result<Value>> {
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|value| value.parse::<f64>().ok()).filter(|value| value.is_finite()).unwrap_or(0.0)
        };
        let run = number("run") as usize;
        let at = |show: &dyn Fn(&Moment<'_>) -> Value| {
            let recording = self.recording(run)?;
            Ok(show(&Moment { recording: &recording, at_s: number("t").clamp(0.0, self.summary.duration_s) }))
        };
        Some(match path {
            "/api/replay" => Ok(self.overview()),
            "/api/map" => self.recording(run).map(|recording| self.map(&recording)),
            "/api/state" => at(&|moment| self.status(moment, run)),
            "/api/signals" => at(&|moment| json!(moment.signals())),
            "/api/connections" => at(&|moment| json!(moment.connections())),
            _ => return None,
        })
    }

    fn status(&self, moment: &Moment<'_>, run: usize) -> Value {
        let strategy = self.summary.runs.get(run).map_or("", |run| &run.strategy);
        json!(moment.status(self.folder.display().to_string(), strategy.into(), self.scenario.service.mode))
    }

    fn overview(&self) -> Value {
        let name = |run: &Run| {
            let validity = if run.valid { "" } else { " (invalid)" };
            format!("{}, seed {}{validity}", run.strategy, run.seed)
        };
        json!({
            "title": self.summary.title, "engine": self.summary.engine, "duration_s": self.summary.duration_s,
            "runs": self.summary.runs.iter().map(name).collect::<Vec<_>>(),
        })
    }

    /// The vehicle's way with the path that carries at each place, and the units.
    fn map(&self, recording: &Recording) -> Value {
        let place =
            |(at_s, [x_m, y_m]): &(f64, [f64; 2])| json!([at_s, x_m, y_m, Moment { recording, at_s: *at_s }.carrier()]);
        let unit = |unit: &Unit| json!({ "name": unit.name, "radio": unit.radio, "position_m": unit.position_m });
        json!({
            "paths": recording.paths,
            "way": recording.positions.iter().map(place).collect::<Vec<_>>(),
            "units": self.scenario.roadside_units.iter().map(unit).collect::<Vec<_>>(),
        })
    }

    fn recording(&self, place: usize) -> Result<Arc<Recording>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, recording)) = &*last
            && *known == place
        {
            return Ok(recording.clone());
        }
        let names: Vec<String> = self.scenario.paths.iter().map(|path| path.name.clone()).collect();
        let recording = Arc::new(Recording::read(&self.run_folder(place)?, &names)?);
        *last = Some((place, recording.clone()));
        Ok(recording)
    }

    fn run_folder(&self, place: usize) -> Result<PathBuf> {
        let folder = self.summary.runs.get(place).and_then(|run| run.folder.as_deref()).ok_or_else(|| {
            let remedy = "run `crosslane simulate` with --records all, or fewer seeds";
            Error::usage(
                format!("reading {}", self.folder.display()),
                format!("there is no run {place} with records"),
                remedy,
            )
        })?;
        // The summary is a file like any other: it must not lead elsewhere.
        if Path::new(folder).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(cut_short(&self.folder.join("summary.json"), format!("{folder:?} is not within the folder")));
        }
        Ok(self.folder.join(folder))
    }
}

fn read<T: for<'a> Deserialize<'a>>(file: &Path) -> Result<T> {
    let text = text_file::read_regular(file).map_err(|cause| cut_short(file, cause))?;
    serde_json::from_str(&text).map_err(|cause| cut_short(file, cause))
}
