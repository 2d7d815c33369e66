//! The tables of strategies and metrics in the pages and in the lab equal those of `crosslane catalog`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

fn catalog(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_crosslane")).arg("catalog").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

#[test]
fn the_lab_has_the_current_catalogue() {
    let name = "lab/crosslane_lab/catalog.json";
    assert_eq!(file(name), catalog(&["--json"]), "run `crosslane catalog --json > {name}`");
}

#[test]
fn the_pages_have_the_current_tables() {
    let tables = catalog(&[]);
    let (strategies, metrics) = tables.rsplit_once("\n\n").unwrap();
    let (page, pages) = (file("docs/strategies.md"), strategies.split("\n\n"));
    pages.for_each(|table| assert!(page.contains(table), "docs/strategies.md lacks the table:\n{table}"));
    assert!(strategies.contains("| `signal.wifi_threshold_dbm` | dBm | -120 to 0 | unset |"), "{strategies}");
    assert!(file("docs/formats.md").contains(metrics), "docs/formats.md lacks the table:\n{metrics}");
}
