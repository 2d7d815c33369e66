//! Faults that the TOML reader finds in a file of the user, in words for the user.

use std::ops::Range;

use strsim::levenshtein;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The message of the TOML reader about a key or table that is there already.
const DUPLICATE: &str = "duplicate key";
/// Messages about addresses, and how one is written.
const ADDRESSES: [(&str, &str); 4] = [
    ("invalid IP address syntax", "10.0.0.2 or fd00::2"),
    ("invalid IPv4 address syntax", "10.0.0.2"),
    ("invalid socket address syntax", "10.0.0.2:5051 or [fd00::2]:5051"),
    ("invalid IPv4 socket address syntax", "10.0.0.2:5051"),
];
/// Maximum number of places at which the first one is sought: each is a reading of the file.
const MAX_TRIED: usize = 100;

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
        let span = error.span();
        let start = span.as_ref().map(|span| span.start);
        let line = start.map(|start| line_at(text, start));
        let found = span.and_then(|span| match error.message() {
            DUPLICATE => duplicate(text, span),
            message => brackets(text.get(span.start..)?, message),
        });
        if let Some((what, remedy)) = found {
            return TomlFault { line, what, remedy };
        }
        let key = match (DeTable::parse(text), start) {
            (Ok(document), Some(start)) => key_of(document.get_ref(), start).map(str::to_owned),
            (Ok(_), None) => None,
            (Err(_), _) => {
                remedy = "write it as TOML (https://toml.io)".into();
                start.and_then(|start| key_before(text, start)).map(str::to_owned)
            }
        };
        if let Some(key) = key.filter(|key| !what.trim_start_matches('`').starts_with(key)) {
            what = format!("`{key}`: {what}");
        }
        TomlFault { line, what, remedy }
    }
}

/// The line, from 1, of a place in a text.
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

/// What is wrong with a key or table that is there already, which stands at `span`.
fn duplicate(text: &str, span: Range<usize>) -> Option<(String, String)> {
    let (before, key) = (text.get(..span.start)?, text.get(span.clone())?);
    let begun = before.rsplit('\n').next()?.trim_start();
    let is_header = begun.starts_with('[') && !begun.contains(['=', '{']);
    // It is a duplicate of the one without which it is none.
    let is_first = |at: &usize| {
        let without = [&text[..*at], &"Z".repeat(key.len()), &text[at + key.len()..]].concat();
        let fault = DeTable::parse(&without).err().and_then(|error| error.span());
        fault.is_none_or(|fault| fault.start > span.start)
    };
    let first = before.rmatch_indices(key).map(|(at, _)| at).take(MAX_TRIED).find(is_first);
    let first = first.map_or("above".into(), |at| format!("in line {}", line_at(text, at)));
    if is_header {
        let name = format!("{}{key}", begun.trim_start_matches('['));
        let remedy = format!("join the two, or write `[[{name}]]` above each if there may be several");
        return Some((format!("`[{name}]` is already {first}"), remedy));
    }
    let is_header = |line: &&str| line.starts_with('[') && DeTable::parse(line).is_ok();
    let header = before.lines().rev().map(str::trim).find(is_header).and_then(|line| line.split('#').next());
    let table = header.map_or(String::new(), |header| format!(" of `{}`", header.trim_end()));
    Some((format!("`{key}`{table} is already {first}"), "remove one of the two".into()))
}

/// What is wrong with the brackets of the header with which `text` begins.
fn brackets(text: &str, message: &str) -> Option<(String, String)> {
    let is_list = text.starts_with("[[");
    let name = text.trim_start_matches('[').split(']').next().filter(|_| text.starts_with('['))?;
    if is_list && message.starts_with("invalid type") {
        Some((format!("there is one `{name}`, and `[[{name}]]` begins a list"), format!("write `[{name}]`")))
    } else if !is_list && message.starts_with("invalid type: map, expected a sequence") {
        Some((format!("there may be several `{name}`, and `[{name}]` is one table"), format!("write `[[{name}]]`")))
    } else {
        None
    }
}

/// The key whose value, or an item in whose list, begins at `offset`. That of a header is none: its value begins
/// before it.
fn key_of<'a>(table: &'a DeTable<'_>, offset: usize) -> Option<&'a str> {
    table.iter().find_map(|(key, value)| {
        let is_value = key.span().end <= value.span().start && begins(value, offset);
        if is_value { Some(key.get_ref().as_ref()) } else { inside(value.get_ref(), offset) }
    })
}

fn begins(value: &Spanned<DeValue<'_>>, offset: usize) -> bool {
    let mut items = value.get_ref().as_array().into_iter().flat_map(|items| items.iter());
    value.span().start == offset || items.any(|item| begins(item, offset))
}

/// The same as [`key_of`] for the tables inside a value.
fn inside<'a>(value: &'a DeValue<'_>, offset: usize) -> Option<&'a str> {
    match value {
        DeValue::Table(table) => key_of(table, offset),
        DeValue::Array(items) => items.iter().find_map(|item| inside(item.get_ref(), offset)),
        _ => None,
    }
}

/// The key whose value begins at `offset`, in a text that is no TOML.
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
                "an array of length 2" => "a list of two",
                "an array of length 3" => "a list of three",
                other if other.starts_with("struct ") => "a table, as { key = value }",
                other => other,
            };
            (
                what.replace("type: map", "type: table").replace("type: sequence", "type: list"),
                format!("give {expected}"),
            )
        }
        _ => match ADDRESSES.iter().find(|(fault, _)| message == *fault) {
            Some((_, example)) => (message, format!("write it as {example}")),
            None => (message, format!("see {reference} for the keys")),
        },
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::input::strict_toml;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct File {
        vehicle: Option<Vehicle>,
        path: Option<Vec<Path>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Vehicle {
        of: Option<Path>,
        at_m: [f64; 2],
        spans_s: Option<Vec<[f64; 3]>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Path {
        name: Option<String>,
        cost: Option<f64>,
    }

    fn sentence(text: &str) -> String {
        let TomlFault { line, what, remedy } =
            TomlFault::of(text, &strict_toml::from_str::<File>(text).unwrap_err(), "the page");
        format!("{}: {what}; {remedy}", line.unwrap_or(0))
    }

    #[test]
    fn a_duplicate_is_named_with_its_table_and_both_lines() {
        let twice = "remove one of the two";
        for (text, expected) in [
            ("a = 1\nb = 2\na = 3\n", format!("3: `a` is already in line 1; {twice}")),
            // A comment, a value, a longer key, and keys of other tables are none of it.
            (
                "[[path]]\nname = 'cost'\ncost = 1 # cost\n[[path]] # two\ncost = 2\ncosts = [\n[1],\n]\nof = { cost = 3 }\ncost = 4\n",
                format!("10: `cost` of `[[path]]` is already in line 5; {twice}"),
            ),
            ("[vehicle]\nof = { cost = 1, cost = 2 }\n", format!("2: `cost` of `[vehicle]` is already in line 2; {twice}")),
            (
                "[vehicle]\n[vehicle.of]\n[path]\n[vehicle.of]\n",
                "4: `[vehicle.of]` is already in line 2; join the two, or write `[[vehicle.of]]` above each if there may \
                 be several"
                    .into(),
            ),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }

    #[test]
    fn a_table_in_the_place_of_a_list_and_a_list_in_the_place_of_a_table_are_named_with_the_brackets_to_write() {
        let several = "there may be several `path`, and `[path]` is one table; write `[[path]]`";
        assert_eq!(sentence("# first\n[path]\nname = 'lte'\n"), format!("2: {several}"));
        let one = "there is one `vehicle`, and `[[vehicle]]` begins a list; write `[vehicle]`";
        assert_eq!(sentence("[[vehicle]]\nat_m = [1, 2]\n"), format!("1: {one}"));
        let one = "there is one `vehicle.of`, and `[[vehicle.of]]` begins a list; write `[vehicle.of]`";
        assert_eq!(sentence("[vehicle]\n[[vehicle.of]]\ncost = 5\n"), format!("2: {one}"));
    }

    #[test]
    fn a_list_of_fixed_length_is_refused_where_it_is_longer_or_shorter() {
        for (values, expected) in [
            ("at_m = [1]", "2: `at_m`: invalid length 1; give a list of two"),
            ("at_m = [1, 2, 3, 4]", "2: `at_m`: invalid length 4; give a list of two"),
            ("spans_s = [\n[1, 2, 3],\n[1, 2, 3, 4],\n]", "4: `spans_s`: invalid length 4; give a list of three"),
            ("spans_s = [[1, 2]]", "2: `spans_s`: invalid length 2; give a list of three"),
        ] {
            assert_eq!(sentence(&format!("[vehicle]\n{values}\n")), expected);
        }
    }

    #[test]
    fn types_are_named_as_the_user_writes_them() {
        for (text, expected) in [
            ("vehicle = 5", "1: `vehicle`: invalid type: integer `5`; give a table, as { key = value }"),
            ("[vehicle]\nat_m = 5", "2: `at_m`: invalid type: integer `5`; give a list of two"),
            ("vehicle = { of = {}, too = 1 }", "1: unknown key `too`; did you mean `of`?"),
            ("vehicle = [5]", "1: `vehicle`: invalid type: list; give a table, as { key = value }"),
            ("[[path]]\ncost = [5]", "2: `cost`: invalid type: list; give a number"),
            ("[[path]]\ncost = { a = 5 }", "2: `cost`: invalid type: table; give a number"),
        ] {
            assert_eq!(sentence(text), expected);
        }
    }
}
