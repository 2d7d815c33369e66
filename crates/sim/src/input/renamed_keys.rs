//! Keys of scenarios and configurations that have a new name; version 0.2 is the
//! last that reads the former ones.

use std::borrow::Cow;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// A key, by the table at the file's top in which it is, with its new name, and its
/// new values in place of former ones.
struct Renamed {
    table: &'static str,
    old: &'static str,
    new: &'static str,
    values: &'static [(&'static str, &'static str)],
}

const OUTAGES: Renamed = Renamed { table: "", old: "silent_s", new: "outages_s", values: &[] };
const ENCRYPTED: &[(&str, &str)] = &[("true", "\"noise\""), ("false", "\"none\"")];
const PLAIN: &[(&str, &str)] = &[("true", "\"none\""), ("false", "\"noise\"")];
const ON_FADE: &[(&str, &str)] = &[("\"demote\"", "\"backup\""), ("\"remove\"", "\"close\"")];

/// All of them.
const RENAMED: [Renamed; 8] = [
    Renamed { table: "roadside_unit", ..OUTAGES },
    Renamed { table: "cellular", ..OUTAGES },
    Renamed { table: "wifi", ..OUTAGES },
    Renamed { table: "wire", ..OUTAGES },
    Renamed { table: "strategy", old: "weak_subflow", new: "on_fade", values: ON_FADE },
    Renamed { table: "strategy", old: "encrypt", new: "encryption", values: ENCRYPTED },
    Renamed { table: "tunnel", old: "plain", new: "encryption", values: PLAIN },
    Renamed { table: "tunnel", old: "standard", new: "rfc8086_only", values: &[] },
];

/// A strategy of the agent, by its former and its new name. A scenario has an array of strategies, in which the
/// former name is that of another one.
const RENAMED_STRATEGY: [&str; 2] = ["deadline", "deadline-mptcp"];

/// The text with new names, each on the line of the former one, and a sentence for each
/// that was replaced. Text that is not TOML is returned as it is.
pub fn renew(text: &str) -> (Cow<'_, str>, Vec<String>) {
    let Ok(document) = DeTable::parse(text) else { return (text.into(), Vec::new()) };
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut warnings: Vec<(usize, String)> = Vec::new();
    for renamed in &RENAMED {
        for (key, value) in tables(document.get_ref(), renamed.table).into_iter().flat_map(DeTable::iter) {
            if key.get_ref() != renamed.old {
                continue;
            }
            let line = 1 + text[..key.span().start].matches('\n').count();
            edits.push((key.span(), renamed.new.into()));
            let former = text[value.span()].replace('\'', "\"");
            if let Some((_, new)) = renamed.values.iter().find(|(old, _)| *old == former) {
                edits.push((value.span(), (*new).into()));
            }
            warnings.push((line, format!("line {line}: `{}` is now `{}`", renamed.old, renamed.new)));
        }
    }
    let strategy = document.get_ref().get("strategy").and_then(|value| value.get_ref().as_table());
    let name = strategy.and_then(|table| table.get("name"));
    if let Some(name) = name.filter(|name| name.get_ref().as_str() == Some(RENAMED_STRATEGY[0])) {
        let line = 1 + text[..name.span().start].matches('\n').count();
        let [old, new] = RENAMED_STRATEGY;
        edits.push((name.span(), format!("\"{new}\"")));
        warnings.push((line, format!("line {line}: strategy `{old}` of an agent is now `{new}`")));
    }
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut renewed = Cow::from(text);
    edits.into_iter().for_each(|(place, new)| renewed.to_mut().replace_range(place, &new));
    warnings.sort();
    (renewed, warnings.into_iter().map(|(_, warning)| warning).collect())
}

/// The tables of this name at the file's top: one, or each of an array.
fn tables<'a, 'i>(document: &'a DeTable<'i>, name: &str) -> Vec<&'a DeTable<'i>> {
    match document.get(name).map(|value| value.get_ref()) {
        Some(DeValue::Table(table)) => vec![table],
        Some(DeValue::Array(items)) => items.iter().filter_map(|item| item.get_ref().as_table()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn former_names_and_values_are_replaced_in_place() {
        let old = "[tunnel]\nplain = true # clear\n[[strategy]]\nname = \"a\"\nweak_subflow = 'remove'\n\
                   [[wire]]\nsilent_s = [[1, 2]]\n[other]\nsilent_s = 1\n";
        let (new, warnings) = renew(old);
        let expected = "[tunnel]\nencryption = \"none\" # clear\n[[strategy]]\nname = \"a\"\non_fade = \"close\"\n\
                        [[wire]]\noutages_s = [[1, 2]]\n[other]\nsilent_s = 1\n";
        assert_eq!(new, expected);
        assert_eq!(warnings.len(), 3);
        assert_eq!(warnings[0], "line 2: `plain` is now `encryption`");
        assert_eq!(renew(&new), (expected.into(), vec![]), "new names are left");
    }

    #[test]
    fn the_former_deadline_of_an_agent_is_renamed_and_that_of_a_scenario_is_left() {
        let (new, warnings) = renew("[strategy]\nname = 'deadline'\nmargin_ms = 9");
        assert_eq!(new, "[strategy]\nname = \"deadline-mptcp\"\nmargin_ms = 9");
        assert_eq!(warnings, ["line 2: strategy `deadline` of an agent is now `deadline-mptcp`"]);
        for kept in ["[[strategy]]\nname = \"deadline\"", "[strategy]\nname = \"threshold\"", "strategy = 3"] {
            assert_eq!(renew(kept), (kept.into(), vec![]));
        }
    }

    #[test]
    fn what_is_no_toml_and_values_that_never_were_are_left_to_the_reader() {
        assert_eq!(renew("[tunnel\nplain = true").0, "[tunnel\nplain = true");
        assert_eq!(renew("[tunnel]\nplain = 3").0, "[tunnel]\nencryption = 3");
    }

    #[test]
    fn a_key_is_found_however_it_is_written() {
        for (old, new) in [
            ("tunnel.plain = true", "tunnel.encryption = \"none\""),
            ("tunnel = { plain = false }", "tunnel = { encryption = \"noise\" }"),
            ("[tunnel]\n\"plain\" = true", "[tunnel]\nencryption = \"none\""),
            ("# ö\n[[wire]]\nname = \"ä\"\n  silent_s=[]", "# ö\n[[wire]]\nname = \"ä\"\n  outages_s=[]"),
            ("wire = [{ silent_s = [] }, { silent_s = [] }]", "wire = [{ outages_s = [] }, { outages_s = [] }]"),
            ("[tunnel.plain]\na = 1", "[tunnel.encryption]\na = 1"),
        ] {
            assert_eq!(renew(old).0, new);
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic_and_no_line_moves(parts in prop::collection::vec(prop::sample::select(vec![
            "[tunnel]", "[[strategy]]", "[[wire]]", "[wire.a]", "tunnel.", "plain", "\"plain\"", "silent_s", "encrypt",
            "weak_subflow", " = ", "true", "'remove'", "{ ", " }", ", ", "[", "]", "\n", "\n", "ö", "\"", "#", ".",
        ]), 0..24)) {
            let text = parts.concat();
            let (renewed, _) = renew(&text);
            prop_assert_eq!(renewed.matches('\n').count(), text.matches('\n').count());
        }
    }
}
