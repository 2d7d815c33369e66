//! A configuration that is read again: what can change while the agent runs, and what cannot.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Spanned, Table, Value};

use super::{Config, from_table, read, with_tree};
use crate::error::Result;
use crate::tunnel::config::TunnelConfig;

/// Keys whose new values apply at once.
const AT_ONCE: [&str; 6] = [
    "service.mode",
    "service.prefer",
    "service.cost_per_gb",
    "service.view_group",
    "observe.transport_period_ms",
    VEHICLES,
];
/// The file of the strategy's tree, which is read again even if its name is the same.
const TREE: &str = "strategy.tree";
/// The vehicles of a gateway.
pub const VEHICLES: &str = "tunnel.vehicle";

/// A configuration that was read again.
pub struct Reloaded {
    /// The present one with the new values that apply at once.
    pub config: Config,
    /// Keys with new values that apply at once.
    pub changed: Vec<String>,
    /// Whether the tree of the strategy is another one.
    pub has_new_tree: bool,
    /// Keys, or arrays of tables, with new values that need a restart.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// Reads the file again, and the tree that it names.
    ///
    /// # Errors
    /// The file or the tree has an error, or what applies at once does not fit to what needs a restart: nothing is to change.
    pub fn reload(&self, file: &Path) -> Result<Reloaded> {
        let new = read(file)?;
        let attempt = format!("reading configuration {} again", file.display());
        let tunnel = self.tunnel.as_ref().map(Spanned::get_ref);
        let is_same_strategy = self.strategy_name() == new.strategy_name();
        let applies = |key: &String| match key.as_str() {
            TREE => is_same_strategy,
            // The tunnel has its order of the paths from its start.
            "service.prefer" => tunnel.is_none(),
            VEHICLES => tunnel.is_some_and(TunnelConfig::has_changing_vehicles),
            key => AT_ONCE.contains(&key),
        };
        let (changed, needs_restart): (Vec<String>, Vec<String>) =
            differences(&self.tables, &new.tables).into_iter().partition(applies);
        let mut merged = self.tables.clone();
        for key in &changed {
            take_over(&mut merged, &new.tables, key);
        }
        let mut config = from_table(&attempt, &merged).map_err(|fault| {
            let keys = needs_restart.join(", ");
            if keys.is_empty() { fault } else { fault.with_remedy(format!("restart the agent for {keys}")) }
        })?;
        config.strategy = match config.strategy {
            Some(strategy) if is_same_strategy => Some(with_tree(strategy, file)?),
            // Another one needs a restart.
            _ => self.strategy.clone(),
        };
        let tree = |config: &Config| config.strategy.as_ref().and_then(|strategy| strategy.tree());
        let has_new_tree = tree(&config) != tree(self);
        Ok(Reloaded { config, changed, has_new_tree, needs_restart })
    }
}

/// The keys that differ, as `service.mode`; an array of tables by its name.
fn differences(present: &Table, new: &Table) -> Vec<String> {
    let empty = Table::new();
    let mut differing = Vec::new();
    for section in present.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let tables = match (present.get(section), new.get(section)) {
            (Some(Value::Table(present)), Some(Value::Table(new))) => Some((present, new)),
            (Some(Value::Table(present)), None) => Some((present, &empty)),
            (None, Some(Value::Table(new))) => Some((&empty, new)),
            (present, new) => {
                if present != new {
                    differing.push(section.clone());
                }
                None
            }
        };
        let Some((present, new)) = tables else { continue };
        let keys: BTreeSet<&String> = present.keys().chain(new.keys()).collect();
        let changed = keys.into_iter().filter(|key| present.get(*key) != new.get(*key));
        differing.extend(changed.map(|key| format!("{section}.{key}")));
    }
    differing
}

fn take_over(to: &mut Table, from: &Table, key: &str) {
    let Some((section, key)) = key.split_once('.') else { return };
    let new = from.get(section).and_then(|table| table.get(key)).cloned();
    let table = to.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let Some(table) = table.as_table_mut() else { return };
    match new {
        Some(value) => drop(table.insert(key.into(), value)),
        None => drop(table.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::NamedTempFile;

    use super::*;

    const PRESENT: &str = r#"
[[path]]
name = "its-g5"
rat = "80211p"
[[path]]
name = "lte"
rat = "lte"
[service]
mode = "backup"
prefer = ["its-g5"]
[strategy]
name = "threshold"
"#;

    fn reload(from: &str, to: &str) -> Result<Reloaded> {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), PRESENT.replacen(from, to, 1)).unwrap();
        from_table("a test", &PRESENT.parse().unwrap()).unwrap().reload(file.path())
    }

    #[test]
    fn what_can_change_does_and_the_rest_is_named() {
        let done = reload("mode = \"backup\"\nprefer = [\"its-g5\"]", "prefer = [\"lte\"]\noverlap_ms = 20").unwrap();
        assert_eq!(done.changed, ["service.mode", "service.prefer"]);
        assert_eq!(done.needs_restart, ["service.overlap_ms"]);
        assert_eq!(done.config.ranks(), [1, 0]);
        assert_eq!(*done.config.service.overlap_ms.get_ref(), 10, "only after a restart");
        let same = reload("x", "y").unwrap();
        assert!(same.changed.is_empty() && same.needs_restart.is_empty());
        let strategy = reload("name = \"threshold\"", "name = \"hapanchak\"\n[log]\nevents = \"x\"").unwrap();
        assert_eq!(strategy.needs_restart, ["log.events", "strategy.name"]);
    }

    #[test]
    fn a_file_with_an_error_changes_nothing_and_names_its_line() {
        let fault = reload("mode = \"backup\"", "mode = \"bakup\"").err().unwrap().to_string();
        assert!(fault.contains("line 9") && fault.contains("bakup"), "{fault}");
    }

    #[test]
    fn a_preference_for_a_path_that_needs_a_restart_changes_nothing() {
        let to = "name = \"wlan\"\nrat = \"lte\"\n[service]\nprefer = [\"wlan\"]";
        let from = "name = \"lte\"\nrat = \"lte\"\n[service]\nmode = \"backup\"\nprefer = [\"its-g5\"]";
        let fault = reload(from, to).err().unwrap().to_string();
        assert!(
            fault.contains("\"wlan\", which is no path") && fault.ends_with("restart the agent for path"),
            "{fault}"
        );
    }
}
