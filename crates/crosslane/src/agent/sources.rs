//! The agent's sources of observations. To add one: its [`Observer`] in `observe/`, its
//! keys in `config/observe.rs`, and its entry here.

use crosslane_core::agent::Input;
use crosslane_core::path::{PathId, Rat, Sample, SampleKind};

use super::Driver;
use super::config::{Config, PathConfig};
use super::machine::trusted;
use crate::clock::Clock;
use crate::error::Result;
use crate::observe::admission::Admission;
use crate::observe::modem_manager::{self, ModemPath};
use crate::observe::nl80211::{self, WirelessPath};
use crate::observe::vanetza::Vanetza;
use crate::observe::{Observation, Observed, Observer, gpsd, radiotap, recorded};

type Opened = Result<Box<dyn Observer>>;

pub struct Source {
    /// What it does, for notes to the user: "NAME works now".
    pub name: &'static str,
    /// Opens it; `None` if the configuration does not ask for it.
    pub open: fn(&Config, Clock) -> Option<Opened>,
}

pub const SOURCES: [Source; 6] = [
    Source { name: "listening for CAMs", open: vanetza },
    Source { name: "receiving frames of 802.11p", open: radiotap },
    Source { name: "replaying a recorded drive", open: recorded },
    Source { name: "receiving the position", open: gpsd },
    Source { name: "reading signals of Wi-Fi and 802.11p", open: nl80211 },
    Source { name: "reading signals of modems", open: modem_manager },
];

fn vanetza(config: &Config, clock: Clock) -> Option<Opened> {
    let observe = &config.observe;
    let address = *observe.vanetza.as_ref()?.get_ref();
    let (users, _) = trusted(&observe.vanetza_users);
    let admission = Admission::new(observe.vanetza_from.iter().copied(), users);
    let opened = Vanetza::open(address, admission, config.senders(), clock);
    Some(opened.map(|observer| Box::new(observer) as _))
}

fn radiotap(config: &Config, _: Clock) -> Option<Opened> {
    let interface = config.observe.radiotap.as_ref()?.get_ref();
    Some(radiotap::watch(interface, config.senders()).map(|observer| Box::new(observer) as _))
}

fn recorded(config: &Config, _: Clock) -> Option<Opened> {
    let run = config.observe.replay.as_ref()?;
    let names = config.paths.iter().map(|path| path.get_ref().name.clone()).collect();
    Some(recorded::replay(run, names).map(|observer| Box::new(observer) as _))
}

fn gpsd(config: &Config, _: Clock) -> Option<Opened> {
    let address = *config.observe.gpsd.as_ref()?.get_ref();
    Some(Ok(Box::new(gpsd::connect(address))))
}

fn nl80211(config: &Config, _: Clock) -> Option<Opened> {
    let wireless = |(id, path): (PathId, &PathConfig)| WirelessPath {
        path: id,
        interface: path.interface().into(),
        has_signal: path.stations.is_empty(),
    };
    let watch = || nl80211::watch(paths(config, Rat::needs_signal).map(wireless).collect());
    config.observe.nl80211.get_ref().then(|| Ok(Box::new(watch()?) as _))
}

fn modem_manager(config: &Config, _: Clock) -> Option<Opened> {
    let modem = |(id, path): (PathId, &PathConfig)| ModemPath {
        path: id,
        name: path.name.clone(),
        interface: path.interface().into(),
    };
    let watch = || modem_manager::watch(paths(config, Rat::is_cellular).map(modem).collect());
    config.observe.modem_manager.get_ref().then(|| Ok(Box::new(watch()) as _))
}

/// The configured paths over these access technologies.
fn paths(config: &Config, of: fn(Rat) -> bool) -> impl Iterator<Item = (PathId, &PathConfig)> {
    let paths = config.paths.iter().enumerate();
    paths.map(|(place, path)| (PathId(place as u8), path.get_ref())).filter(move |(_, path)| of(path.rat))
}

impl Driver {
    /// Processes what a source observed.
    pub(super) fn observed(&mut self, source: &'static str, observation: Observation) {
        match observation {
            Ok(Observed::Input(input)) => {
                if let Input::Sample(Sample { path, kind: SampleKind::Signal(signal) }) = &input {
                    self.signals.note(self.clock.now(), *path, signal.rssi_dbm, source);
                }
                self.handle(input);
            }
            Ok(Observed::Station(signal)) if self.unit.is_some() => self.on_vehicle(signal),
            Ok(Observed::Station(signal)) => self.on_station(signal),
            Ok(Observed::Fix(fix)) => self.on_fix(fix),
            Ok(Observed::Note(sentence)) => self.note_to_user(&sentence),
            Err(rejected) => self.journal.rejected(&rejected),
        }
    }
}
