//! The data volumes of the paths: counted from their interfaces, kept in a file.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use chrono::NaiveDate;
use crosslane_core::agent::Input;
use crosslane_core::path::PathId;
use crosslane_core::reason::Reason;
use crosslane_core::time::Instant;
use crosslane_core::volume::Volume;

use super::Driver;
use super::config::Config;
use super::config::volume::VolumeConfig;
use super::later::Part;
use crate::clock::local_date;
use crate::control::report::{VolumePeriodReport, VolumeReport};
use crate::control::report_text::bytes;
use crate::error::{Error, Result};

mod calendar;
mod meter;
mod state;

use meter::{Limits, Meter, Reading, Use, level, uses};
use state::{Lack, State};

/// Period in which the counters are read. What a link carries in it, and while the state is written, may be lost
/// with the power.
const PERIOD: Duration = Duration::from_millis(50);

/// The paths with a volume.
pub struct Volumes {
    file: PathBuf,
    /// What was last written, also of paths that have no volume now.
    state: State,
    /// Whether the file has been read, or there was none: until then it is not written.
    is_loaded: bool,
    metered: Vec<Metered>,
    next: Instant,
    writing: Option<JoinHandle<io::Result<()>>>,
    /// Whether the last attempt to read or write failed; [`Missing`](super::later::Missing) decides when the next one is due.
    is_broken: bool,
}

struct Metered {
    path: PathId,
    name: String,
    meter: Meter,
}

impl Volumes {
    /// `None` if no path has a volume. Counting begins at zero until the file is [loaded](Volumes::load).
    pub fn new(config: &Config) -> Option<Volumes> {
        let date = local_date();
        let metered = limited(config).map(|(path, name, limits)| Metered {
            path,
            name: name.into(),
            meter: Meter::new(limits, None, date),
        });
        let metered: Vec<Metered> = metered.collect();
        (!metered.is_empty()).then(|| Volumes {
            file: config.service.volume_file.clone(),
            state: State::default(),
            is_loaded: false,
            metered,
            next: Instant::ZERO,
            writing: None,
            is_broken: false,
        })
    }

    /// Continues what the file has, if that was not done yet. Returns what is wrong with its contents, if anything.
    ///
    /// # Errors
    /// The file cannot be read, and may have all of the volumes, or it is no file of volumes: it stays as it is until then.
    fn load(&mut self) -> Result<Option<String>> {
        if self.is_loaded {
            return Ok(None);
        }
        let boot_id = state::boot_id();
        let attempt = format!("reading data volumes from {}", self.file.display());
        let (state, note) = match state::read(&self.file, &boot_id) {
            Ok(state) => (state, None),
            Err(Lack::Absent) => (State::new(boot_id), None),
            Err(Lack::Unreadable(cause)) => {
                self.is_broken = true;
                return Err(Error::failure(attempt, cause).with_remedy(
                    "make it readable for the agent: until then it stays as it is, and counting begins at zero",
                ));
            }
            Err(Lack::Foreign) => {
                self.is_broken = true;
                return Err(Error::failure(attempt, "it is another program's file, or a user's").with_remedy(
                    "set service.volume_file to another file: this one stays as it is, and counting begins at zero",
                ));
            }
            Err(Lack::Damaged(cause)) => {
                let aside = match state::set_aside(&self.file) {
                    Ok(aside) => format!("it is {} now", aside.display()),
                    Err(cause) => format!("it cannot be renamed ({cause})"),
                };
                (State::new(boot_id), Some(format!("while {attempt}: {cause}; {aside}, and counting begins at zero")))
            }
        };
        for Metered { name, meter, .. } in &mut self.metered {
            state.paths.get(name).into_iter().for_each(|kept| meter.continue_from(kept.clone()));
        }
        (self.state, self.is_loaded) = (state, true);
        Ok(note)
    }

    /// When the counters are to be read next.
    pub fn next_wakeup(&self) -> Instant {
        self.next
    }

    /// Counts up to the present counters; returns the levels that have changed.
    fn check(&mut self, now: Instant, date: NaiveDate, present: impl Fn(PathId) -> Option<Reading>) -> Vec<Input> {
        self.next = now + PERIOD;
        let change = |of: &mut Metered| {
            let level = of.meter.check(now, date, present(of.path))?;
            Some(Input::Volume(of.path, level, reason(&of.name, level, &of.meter.uses())))
        };
        self.metered.iter_mut().filter_map(change).collect()
    }

    /// The result of a write that has ended.
    fn written(&mut self) -> Option<Result<()>> {
        let ended = self.writing.take_if(|writing| writing.is_finished())?;
        let written = ended.join().unwrap_or_else(|_| Err(io::Error::other("the writer has failed")));
        self.is_broken = written.is_err();
        Some(written.map_err(|cause| self.unwritten(cause)))
    }

    fn unwritten(&self, cause: io::Error) -> Error {
        let attempt = format!("writing data volumes to {}", self.file.display());
        let remedy = "set service.volume_file to a file that the agent can write";
        Error::failure(attempt, cause).with_remedy(remedy)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.writing.is_none() && !self.is_broken && self.metered.iter().any(|one| one.meter.is_due(now))
    }

    /// Begins to write the state, beside the agent: a disk may need long.
    fn write(&mut self, now: Instant) -> Result<()> {
        self.keep(|meter| meter.save(now));
        let (file, state) = (self.file.clone(), self.state.clone());
        let write = move || state::write(&file, &state);
        let writing = std::thread::Builder::new().name("volumes".into()).spawn(write);
        self.is_broken = writing.is_err();
        self.writing = Some(writing.map_err(|cause| self.unwritten(cause))?);
        Ok(())
    }

    fn keep(&mut self, of: impl Fn(&mut Meter) -> meter::Kept) {
        for one in &mut self.metered {
            self.state.paths.insert(one.name.clone(), of(&mut one.meter));
        }
    }

    /// Writes the last state.
    fn finish(mut self) -> Result<()> {
        self.load()?;
        // Its result does not matter: a newer state replaces it.
        self.writing.take().into_iter().for_each(|writing| drop(writing.join()));
        self.keep(Meter::finish);
        state::write(&self.file, &self.state).map_err(|cause| self.unwritten(cause))
    }

    /// The volume of a path, if it has one.
    pub fn report(&self, path: PathId) -> Option<VolumeReport> {
        let meter = &self.metered.iter().find(|one| one.path == path)?.meter;
        let period = |of: Use| VolumePeriodReport {
            period: of.period.into(),
            used_bytes: of.bytes,
            soft_bytes: of.limit.soft,
            limit_bytes: of.limit.hard,
            resets: of.resets.to_string(),
        };
        Some(VolumeReport {
            level: meter.level().name().into(),
            periods: meter.uses().into_iter().map(period).collect(),
        })
    }
}

/// The paths with a volume.
fn limited(config: &Config) -> impl Iterator<Item = (PathId, &str, Limits)> {
    let paths = config.paths.iter().map(|path| path.get_ref()).enumerate();
    let limits =
        |volume: &VolumeConfig| Limits { day: volume.day(), month: volume.month(), reset_day: volume.reset_day() };
    paths.filter_map(move |(place, path)| {
        let volume = path.volume.as_ref()?.get_ref();
        Some((PathId(place as u8), path.name.as_str(), limits(volume)))
    })
}

/// Why a path has this level.
fn reason(name: &str, level: Volume, uses: &[Use]) -> Reason {
    let Some(of) = uses.first() else { return Reason::default() };
    let (rule, consequence) = match level {
        Volume::Available => ("volume.available", "it may carry".into()),
        Volume::Scarce => ("volume.scarce", format!("it carries until {} only while no other path is good", of.resets)),
        Volume::Exhausted => ("volume.exhausted", format!("it carries nothing until {}", of.resets)),
    };
    let text = format!("{name} has used {}: {consequence}", used(of));
    let inputs = [("used_bytes", of.bytes as f64), ("limit_bytes", of.limit.hard as f64)];
    Reason::plain(rule, text).with(inputs)
}

fn used(of: &Use) -> String {
    format!("{} of {} this {}", bytes(Some(of.bytes)), bytes(Some(of.limit.hard)), of.period)
}

/// The paths whose volume is used up according to the file, a sentence each.
pub fn used_up(config: &Config) -> Vec<String> {
    let (date, file) = (local_date(), &config.service.volume_file);
    let Ok(state) = state::read(file, &state::boot_id()) else { return Vec::new() };
    let sentence = |(_, name, limits): (PathId, &str, Limits)| {
        let uses = uses(state.paths.get(name)?, limits, date);
        let level = level(&uses);
        (level == Volume::Exhausted).then(|| format!("path {name:?}: {}", reason("it", level, &uses).text()))
    };
    limited(config).filter_map(sentence).collect()
}

impl Driver {
    /// Levels from before the start precede the decisions about connections that exist.
    pub(super) fn start_volumes(&mut self) {
        self.volumes = Volumes::new(&self.config);
        if let Err(fault) = self.load_volumes() {
            self.set_missing(Part::Volumes, &fault);
        }
        self.check_volumes();
    }

    fn load_volumes(&mut self) -> Result<()> {
        if let Some(note) = self.volumes.as_mut().map_or(Ok(None), Volumes::load)? {
            self.note_to_user(&note);
        }
        Ok(())
    }

    /// Counts what the paths carry, once it is time.
    pub(super) fn check_volumes(&mut self) {
        let now = self.clock.now();
        if self.volumes.as_ref().is_none_or(|volumes| now < volumes.next_wakeup()) {
            return;
        }
        self.count_volumes(now);
        match self.volumes.as_mut().and_then(Volumes::written) {
            Some(Ok(())) => self.set_available(Part::Volumes),
            Some(Err(fault)) => self.set_missing(Part::Volumes, &fault),
            None => {}
        }
        if self.volumes.as_ref().is_some_and(|volumes| volumes.is_due(now)) {
            self.set_up(Part::Volumes);
        }
    }

    fn count_volumes(&mut self, now: Instant) {
        let Some(volumes) = &mut self.volumes else { return };
        let (table, interfaces) = (self.counters.bytes(), &self.interfaces);
        let reading = |path| {
            let [sent, received] = table.get(interfaces.name(path))?;
            Some(Reading { if_index: interfaces.index(path)?, bytes: sent.saturating_add(*received) })
        };
        for input in volumes.check(now, local_date(), reading) {
            if let Input::Volume(_, _, reason) = &input {
                self.journal.note(&reason.text());
            }
            self.handle(input);
        }
    }

    /// Begins to write the volumes; `None`: the result comes later.
    pub(super) fn write_volumes(&mut self) -> Result<Option<()>> {
        self.load_volumes()?;
        let now = self.clock.now();
        self.volumes.as_mut().map_or(Ok(()), |volumes| volumes.write(now))?;
        Ok(None)
    }

    pub(super) fn finish_volumes(&mut self) {
        self.count_volumes(self.clock.now());
        if let Some(Err(fault)) = self.volumes.take().map(Volumes::finish) {
            self.journal.fault(&fault);
        }
    }
}

#[cfg(test)]
mod tests;
