//! Faults that the TOML reader finds in a file of the user, in words for the user.

use strsim::levenshtein;
use toml::de::DeTable;

/// A fault, its line and the remedy.
pub struct TomlFault {
    /// Line in the file, from 1; none if the fault concerns the whole file.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl TomlFault {
    /// From an error of the reader of `text`, whose keys the page `reference` lists.
    pub fn of(text: &str, error: &toml::de::Error, reference: &str) -> TomlFault {
        let (mut what, mut remedy) = in_our_words(error.message(), reference);
        let start = error.span().map(|span| span.start);
        let key = start.and_then(|start| key_before(text, start));
        if let Some(key) = key.filter(|key| !what.trim_start_matches('`').starts_with(key)) {
            what = format!("`{key}`: {what}");
        }
        if DeTable::parse(text).is_err() {
            remedy = "write it as TOML (https://toml.io)".into();
        }
        TomlFault { line: start.map(|start| line_at(text, start)), what, remedy }
    }
}

/// The line, from 1, of a place in a text.
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// The key whose value begins at `offset`.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let before = text.get(..offset)?.trim_end().strip_suffix('=')?.trim_end();
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    before.rsplit(|c| !inside(c)).next().filter(|key| !key.is_empty())
}

/// Error and remedy, from a message of serde. The text after `; ` in a message is the remedy.
pub(crate) fn in_our_words(message: &str, reference: &str) -> (String, String) {
    let message = message.trim().replace('\n', ", ");
    if let Some((what, remedy)) = message.split_once("; ") {
        return (what.into(), remedy.into());
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.split_once(", expected "), quoted.split_first()) {
        (_, Some((key, []))) if message.starts_with("missing field") => {
            (format!("`{key}` is missing"), format!("add it ({reference} lists the keys)"))
        }
        (Some((what, _)), Some((word, known))) if what.starts_with("unknown") => {
            let what = what.replace("unknown field", "unknown key").replace("unknown variant", "unknown word");
            (what, did_you_mean(word, known.iter().copied()))
        }
        (Some((what, _)), _) if what.ends_with("` as i128") => {
            (what.trim_end_matches(" as i128").replace("type: integer", "value: integer"), "give a smaller one".into())
        }
        (Some((what, expected)), _) if what.starts_with("invalid") => {
            let expected = match expected {
                "u32" | "u64" => "a whole number, 0 or more",
                "u8" => "a whole number, 0 to 255",
                "u16" => "a whole number, 0 to 65535",
                "f64" => "a number",
                "a sequence" => "a list in brackets",
                other => other,
            };
            (what.into(), format!("give {expected}"))
        }
        _ => (message, format!("see {reference} for the keys")),
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
