//! Requests of users that change a running agent: a preferred path, the mode, the configuration.

use std::sync::Arc;
use std::time::Duration;

use crosslane_core::agent::{Input, Preferred};
use crosslane_core::allocate::Mode;
use crosslane_core::allocate::learned::tree::Tree;
use crosslane_core::assess::Belief;
use crosslane_core::reason::Reason;

use super::config::Config;
use super::config::reload::VEHICLES;
use super::{Driver, machine};
use crate::control::report::Done;
use crate::durations::spoken;
use crate::error::{Error, Result};
use crate::tunnel::endpoint::VehicleChanges;

/// Longest time for which a path can be preferred, in s.
const MAX_FOR_S: f64 = 36_000_000.0;

impl Driver {
    /// # Errors
    /// There is no such path, or the time is out of range.
    pub(super) fn prefer(&mut self, path: Option<&str>, for_s: Option<f64>) -> Result<Done> {
        let now = self.clock.now();
        if let Some(for_s) = for_s.filter(|for_s| !(0.001..=MAX_FOR_S).contains(for_s)) {
            let cause = format!("a path cannot be preferred for {for_s} s");
            return Err(Error::usage("requesting from the agent", cause, "give 0.001 to 36000000 s"));
        }
        let Some(name) = path else {
            let was = self.engine.preferred().is_some();
            self.handle(Input::Prefer(None));
            let sentence = if was { "the strategy decides again" } else { "no path was preferred by request" };
            return Ok(self.changed(sentence.into()));
        };
        let found = self.engine.views().find(|view| view.name == name).map(|view| (view.id, view.belief));
        let Some((path, belief)) = found else { return Err(self.unknown(name, None)) };
        let until = for_s.map(|for_s| now + Duration::from_secs_f64(for_s));
        self.handle(Input::Prefer(Some(Preferred { path, until })));
        let period = for_s.map_or_else(String::new, |for_s| format!(" for {}", spoken(for_s)));
        Ok(self.changed(match belief {
            Belief::Good => format!("{name} carries alone while it is good{period}; the others are in reserve"),
            other => format!("{name} is {} now: it carries alone{period} once it is good", other.name()),
        }))
    }

    /// # Errors
    /// The strategy lacks the mode.
    pub(super) fn use_mode(&mut self, mode: Mode) -> Result<Done> {
        if self.mode == mode {
            return Ok(self.changed(format!("the mode is {} already", mode.name())));
        }
        if let Some(cause) = self.config.lacks(mode) {
            return Err(Error::usage("requesting from the agent", cause, "choose another mode"));
        }
        self.set_mode(mode, &Reason::plain("mode.request", format!("the mode is {} by request", mode.name())));
        Ok(self.changed(format!("the mode is {}", mode.name())))
    }

    fn set_mode(&mut self, mode: Mode, reason: &Reason) {
        self.mode = mode;
        if let Some(strategy) = &self.config.strategy {
            self.engine.set_allocator(self.clock.now(), strategy.allocator(mode), reason);
        }
    }

    /// Reads the configuration again.
    ///
    /// # Errors
    /// It is wrong, and nothing has changed.
    pub(super) fn reload(&mut self) -> Result<Done> {
        let Some(file) = self.file.clone() else {
            let cause = "it has no configuration file";
            return Err(Error::usage("requesting from the agent", cause, "ask the agent of `crosslane agent`"));
        };
        let reloaded = self.config.reload(&file)?;
        let vehicles = self.set_vehicles(&reloaded.config)?;
        self.config = Arc::new(reloaded.config);
        self.unit.iter_mut().for_each(|unit| unit.set_config(&self.config));
        let now = self.clock.now();
        let reason = Reason::plain("reload", "the configuration was read again");
        let keys = reloaded.changed.iter().filter(|key| *key != VEHICLES);
        let mut changed: Vec<String> = keys.map(|key| format!("{key} is as in the file")).chain(vehicles).collect();
        if self.mode != self.config.service.mode {
            if !reloaded.changed.iter().any(|key| key == "service.mode") {
                changed.push("the mode is that of the file again".into());
            }
            self.set_mode(self.config.service.mode, &reason);
        }
        self.engine.set_unit_costs(self.config.prices());
        let of_units = std::iter::repeat(self.config.unit_rank());
        self.engine.set_ranks(now, self.config.ranks().into_iter().chain(of_units), &reason);
        self.control.set_groups(machine::groups(&self.config));
        self.poller.set_period(*self.config.observe.transport_period_ms.get_ref());
        if reloaded.has_new_tree {
            changed.push(self.set_tree(&reason));
        }
        if changed.is_empty() && reloaded.needs_restart.is_empty() {
            changed.push("nothing has changed".into());
        }
        let done = Done { changed, needs_restart: reloaded.needs_restart };
        self.note_changes(&done);
        Ok(done)
    }

    /// Lets the engine use the tree of the configuration; returns what has changed.
    fn set_tree(&mut self, reason: &Reason) -> String {
        let tree = self.config.strategy.as_ref().and_then(|strategy| strategy.tree());
        self.engine.set_tree(self.clock.now(), tree.as_ref(), reason);
        match tree {
            Some(tree) => format!("another tree orders the paths, {}", described(&tree)),
            None => "no tree orders the paths any more".into(),
        }
    }

    /// Lets the vehicles of the gateway's tunnel come and go; returns what has changed. A tunnel that has not started
    /// yet will have them.
    ///
    /// # Errors
    /// Nothing has changed.
    fn set_vehicles(&self, config: &Config) -> Result<Vec<String>> {
        let (Some(active), Some(tunnel)) = (&self.tunnel, &config.tunnel) else { return Ok(Vec::new()) };
        let tunnel = tunnel.get_ref();
        if !tunnel.has_changing_vehicles() {
            return Ok(Vec::new());
        }
        let VehicleChanges { added, removed } = active.data_plane.set_vehicles(tunnel)?;
        let (again, added): (Vec<_>, Vec<_>) = added.into_iter().partition(|name| removed.contains(name));
        let gone = removed.into_iter().filter(|name| !again.contains(name));
        let mut sentences: Vec<String> = gone.map(|name| format!("vehicle {name} is removed")).collect();
        sentences.extend(added.into_iter().map(|name| format!("vehicle {name} is added")));
        let other = |name| format!("vehicle {name} has another key or other addresses: its tunnel starts again");
        sentences.extend(again.into_iter().map(other));
        Ok(sentences)
    }

    /// SIGHUP: as a request to read the configuration again.
    pub(super) fn on_hangup(&mut self) {
        if let Err(fault) = self.reload() {
            self.note_to_user(&format!("{fault}; nothing has changed"));
        }
    }

    fn changed(&mut self, sentence: String) -> Done {
        let done = Done { changed: vec![sentence], needs_restart: vec![] };
        self.note_changes(&done);
        done
    }

    /// Writes into the journal what a user has changed.
    fn note_changes(&mut self, done: &Done) {
        done.changed.iter().for_each(|sentence| self.journal.note(&format!("by request: {sentence}")));
        if !done.needs_restart.is_empty() {
            let keys = done.needs_restart.join(", ");
            self.journal.note(&format!("{keys} differ in the configuration and need a restart"));
        }
    }
}

/// What a tree is: its size, and what it was trained on.
pub(super) fn described(tree: &Tree) -> String {
    let origin = tree.origin();
    let trained = if origin.is_empty() { String::new() } else { format!(", trained: {origin}") };
    format!("with {} nodes{trained}", tree.size())
}
