//! Line numbers of the keys of a TOML file, and messages for its reader's errors.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use crate::error::ScenarioError;
use crate::input::toml_fault::{TomlFault, did_you_mean, in_our_words, line_at};

/// The page that lists the keys.
const REFERENCE: &str = "docs/reference/scenario.md";

/// Line of each key of the file.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    file: String,
    lines: BTreeMap<String, usize>,
}

impl Lines {
    pub(super) fn new(text: &str, file_name: &str) -> Result<Lines, ScenarioError> {
        let mut lines = Lines { file: file_name.into(), lines: BTreeMap::new() };
        let document = DeTable::parse(text).map_err(|error| lines.explain(text, &error))?;
        lines.walk(text, "", document.get_ref());
        Ok(lines)
    }

    fn walk(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let path = format!("{prefix}{}", key.get_ref());
            self.lines.insert(path.clone(), line_at(text, key.span().start));
            match value.get_ref() {
                DeValue::Table(inner) => self.walk(text, &format!("{path}."), inner),
                DeValue::Array(items) => {
                    for (place, item) in items.iter().enumerate() {
                        let path = format!("{path}.{place}");
                        self.lines.insert(path.clone(), line_at(text, item.span().start));
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.walk(text, &format!("{path}."), inner);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Line of a key, for example `radio.0.name`, or else of the table around it.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(&line) = self.lines.get(key) {
                return Some(line);
            }
            key = key.rsplit_once('.')?.0;
        }
    }

    /// True if the file has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    /// An error at a key.
    pub(super) fn error(&self, key: &str, what: impl Into<String>, remedy: impl Into<String>) -> ScenarioError {
        ScenarioError { file: self.file.clone(), line: self.line(key), what: what.into(), remedy: remedy.into() }
    }

    /// An error at a key, unless `ok`.
    pub(super) fn require(
        &self,
        ok: bool,
        key: &str,
        what: impl Into<String>,
        remedy: &str,
    ) -> Result<(), ScenarioError> {
        if ok { Ok(()) } else { Err(self.error(key, what, remedy)) }
    }

    /// An error at a key, unless the `name` in it is one of `known`, which are names of a `kind`.
    pub(super) fn known<'a>(
        &self,
        kind: &str,
        name: &str,
        key: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), ScenarioError> {
        if known.clone().any(|other| other == name) {
            return Ok(());
        }
        Err(self.error(key, format!("there is no {kind} `{name}`"), did_you_mean(name, known)))
    }

    /// An error in the value of a key, from a message of serde; `name` is the name to give the key.
    pub(super) fn explain_value(&self, key: &str, name: Option<&str>, message: &str) -> ScenarioError {
        let (what, remedy) = in_our_words(message, REFERENCE);
        self.error(key, name.map_or(what.clone(), |name| format!("`{name}`: {what}")), remedy)
    }

    /// An error of the TOML reader, as a [`ScenarioError`].
    pub(super) fn explain(&self, text: &str, error: &toml::de::Error) -> ScenarioError {
        let TomlFault { line, what, remedy } = TomlFault::of(text, error, REFERENCE);
        ScenarioError { file: self.file.clone(), line, what, remedy }
    }
}
