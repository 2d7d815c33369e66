//! The tables of strategies and metrics in the pages and in the lab equal those of `crosslane catalog`.
//! With `UPDATE=1` in the environment the tests write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const REMEDY: &str = "run UPDATE=1 cargo test --release -p crosslane --test main catalog::";

fn catalog(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_crosslane")).arg("catalog").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Compares a file with what it has to be, or writes it.
fn assert_is(name: &str, current: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path(name), current).unwrap();
    }
    let present = fs::read_to_string(path(name)).unwrap();
    let differs = present.lines().zip(current.lines()).find(|(line, other)| line != other);
    assert!(present == current, "{name} differs at {differs:?}; {REMEDY}");
}

/// The page with its table of the same head replaced; the head alone is a table, too.
fn with_table(name: &str, page: &str, table: &str) -> String {
    let head = table.lines().next().unwrap();
    let lacks = || panic!("{name} lacks a table; add this line where it belongs, and a blank one:\n{head}");
    let (before, rest) = page.split_once(head).unwrap_or_else(lacks);
    let after = rest.split_once("\n\n").map_or("\n", |(_, after)| after);
    let gap = if after == "\n" { "" } else { "\n" };
    format!("{before}{}\n{gap}{}", table.trim_end(), after.trim_start_matches('\n'))
}

#[test]
fn the_lab_has_the_current_catalogue() {
    assert_is("lab/crosslane_lab/catalog.json", &catalog(&["--json"]));
}

#[test]
fn the_pages_have_the_current_tables() {
    let catalog = catalog(&[]);
    for name in ["docs/reference/strategies.md", "docs/reference/metrics.md"] {
        let is_of_page = |table: &&str| table.starts_with("| metric |") == name.ends_with("metrics.md");
        let page = fs::read_to_string(path(name)).unwrap();
        let tables = catalog.split("\n\n").filter(is_of_page);
        assert_is(name, &tables.fold(page, |page, table| with_table(name, &page, table)));
    }
}
