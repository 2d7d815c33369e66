//! The strategy of a configuration, and the tree that it names.

use std::path::Path;
use std::sync::Arc;

use crosslane_core::strategy::{self, Strategy};
use crosslane_sim::scenario::base::values;

use crate::error::{Error, Result};
use crate::text_file;

/// Reads a strategy from its table: `name` and the parameters of that name.
///
/// # Errors
/// The cause, without the place.
pub fn read_strategy(table: &toml::Table) -> Result<Arc<dyn Strategy>, String> {
    let mut parameters = table.clone();
    let name = match parameters.remove("name") {
        Some(toml::Value::String(name)) => name,
        _ => return Err("the strategy has no `name`".into()),
    };
    if parameters.contains_key("store") && !parameters.contains_key("tree") {
        return Err("`store` without `tree`: there is no tree to be fitted again".into());
    }
    strategy::find(&name)?.read(values(&parameters)).map_err(|fault| fault.to_string())
}

/// The strategy with the tree that it names relative to the configuration `file`, if it names one.
///
/// # Errors
/// The tree cannot be read, is invalid, or is for another strategy.
pub fn with_tree(strategy: Arc<dyn Strategy>, file: &Path) -> Result<Arc<dyn Strategy>> {
    let Some(name) = strategy.tree_file() else { return Ok(strategy) };
    let file = file.parent().unwrap_or(Path::new("")).join(name);
    let attempt = || format!("reading tree {}", file.display());
    let text = text_file::read_regular(&file)
        .map_err(|cause| Error::usage(attempt(), cause, "correct `tree` of [strategy], or put the file there"))?;
    let remedy = "make the tree again with `crosslane-lab learn train`, or remove `tree`";
    let tree = serde_json::from_str(&text).map_err(|cause| Error::usage(attempt(), cause, remedy))?;
    strategy.with_tree(tree).map_err(|cause| Error::usage(attempt(), cause, remedy))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::read;

    #[test]
    fn a_store_without_a_tree_is_rejected() {
        let read = |text: &str| super::read_strategy(&text.parse().unwrap()).map(|strategy| strategy.refitting());
        let fault = read("name = \"learned\"\nstore = \"trials.jsonl\"").unwrap_err();
        assert!(fault.contains("`store` without `tree`"), "{fault}");
        assert_eq!(read("name = \"learned\"\nstore = \"x\"\ntree = \"y\""), Ok(None), "until its tree is read");
    }

    #[test]
    fn the_tree_is_named_relative_to_the_configuration_and_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("agent.toml");
        let text = "[[path]]\nname = \"lte\"\nrat = \"lte\"\n[strategy]\nname = \"learned\"\ntree = \"tree.json\"\n";
        fs::write(&config, text).unwrap();
        let tree = |nodes: &str| {
            let head = r#"{"format": "crosslane-tree", "version": 1, "strategy": "learned", "nodes": ["#;
            fs::write(folder.path().join("tree.json"), format!("{head}{nodes}")).unwrap();
            read(&config).map(|config| format!("{:?}", config.strategy)).map_err(|error| error.to_string())
        };
        let missing = read(&config).err().unwrap().to_string();
        assert!(missing.contains("while reading tree") && missing.contains("tree.json"), "{missing}");
        assert!(tree(r#"{"a_first": 0.25}]}"#).unwrap().contains("0.25"));
        let cut = tree(r#"{"a_first": 0.25}"#).unwrap_err();
        assert!(cut.contains("EOF while parsing") && cut.contains("learn train"), "{cut}");
    }
}
