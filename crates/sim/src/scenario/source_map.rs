//! Line numbers of the keys of a TOML file, and messages for its reader's errors.

use std::collections::BTreeMap;

use strsim::levenshtein;
use toml::de::{DeTable, DeValue};

use crate::error::ScenarioError;

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
        let (what, remedy) = in_our_words(message);
        self.error(key, name.map_or(what.clone(), |name| format!("`{name}`: {what}")), remedy)
    }

    /// An error of the TOML reader, as a [`ScenarioError`].
    pub(super) fn explain(&self, text: &str, error: &toml::de::Error) -> ScenarioError {
        let (mut what, remedy) = in_our_words(error.message());
        let start = error.span().map(|span| span.start);
        if let Some(key) = start.and_then(|start| key_before(text, start)) {
            what = format!("`{key}`: {what}");
        }
        ScenarioError { file: self.file.clone(), line: start.map(|start| line_at(text, start)), what, remedy }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The key whose value begins at `offset`.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let before = text.get(..offset)?.trim_end().strip_suffix('=')?.trim_end();
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    before.rsplit(|c| !inside(c)).next().filter(|key| !key.is_empty())
}

/// Error and remedy, from a message of serde or of the TOML reader.
fn in_our_words(message: &str) -> (String, String) {
    let message = message.trim().replace('\n', ", ");
    if let Some((what, remedy)) = message.split_once("; ") {
        return (what.into(), remedy.into());
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.split_once(", expected "), quoted.split_first()) {
        (_, Some((key, []))) if message.starts_with("missing field") => {
            (format!("`{key}` is missing"), "add it (docs/reference/scenario.md lists the keys)".into())
        }
        (Some((what, _)), Some((word, known))) if what.starts_with("unknown") => {
            let what = what.replace("unknown field", "unknown key").replace("unknown variant", "unknown word");
            (what, did_you_mean(word, known.iter().copied()))
        }
        (Some((what, expected)), _) if what.starts_with("invalid") => {
            let expected = match expected {
                "u32" => "a whole number, 0 or more",
                "u8" => "a whole number, 0 to 255",
                "f64" => "a number",
                other => other,
            };
            (what.into(), format!("give {expected}"))
        }
        _ => (message, "write it as TOML (https://toml.io)".into()),
    }
}

/// A remedy that names the most similar of the known words, or all of them.
pub fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let longer = known.iter().find(|other| other.starts_with(word));
    let nearest = known.iter().min_by_key(|other| levenshtein(word, other));
    match longer.or(nearest) {
        Some(other) if longer.is_some() || levenshtein(word, other) <= 1 + word.chars().count() / 3 => {
            format!("did you mean `{other}`?")
        }
        Some(_) => format!("choose from `{}`", known.join("`, `")),
        None => "leave it out: there is nothing to choose from".into(),
    }
}
