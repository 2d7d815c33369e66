//! What the package ships, as far as it can be examined without installing it (`make e2e-deb` does that).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{crosslane, not_run};
use tempfile::TempDir;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

#[test]
fn check_accepts_every_example_configuration() {
    let folder = TempDir::new().unwrap();
    let public = crosslane(folder.path(), &["keygen", "--out", "gateway.key"]).stdout;
    let vehicle = crosslane(folder.path(), &["keygen", "--out", "vehicle.key"]).stdout;
    assert_ne!(public, vehicle);
    let mut checked = 0;
    for entry in fs::read_dir(packaging().join("examples")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let text = text.replace("PUBLIC KEY OF THE VEHICLE", vehicle.trim());
        let text = text.replace("\"/etc/crosslane/", &format!("\"{}/", folder.path().display()));
        fs::write(folder.path().join("agent.toml"), text).unwrap();
        let output = crosslane(folder.path(), &["check", "agent.toml"]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        checked += 1;
    }
    assert_eq!(checked, 3);
}

#[test]
fn every_command_has_a_manual_page_that_is_well_formed() {
    let folder = TempDir::new().unwrap();
    let output = crosslane(folder.path(), &["man", "--out", "."]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let pages: BTreeSet<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for page in [
        "crosslane.1",
        "crosslane-agent.1",
        "crosslane-bugreport.1",
        "crosslane-mptcp-endpoint-add.1",
        "crosslane-view.1",
    ] {
        assert!(pages.contains(page), "{page} in {pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("drive-run")), "a hidden command is no user's");
    let version = format!("\"crosslane {}", env!("CARGO_PKG_VERSION"));
    for page in &pages {
        let text = fs::read_to_string(folder.path().join(page)).unwrap();
        let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
        assert!(title.contains(&version), "{title}");
    }
    if Command::new("man").arg("--version").output().is_err() {
        not_run("man is missing");
        return;
    }
    for page in pages {
        let page = folder.path().join(page);
        let mut command = Command::new("man");
        command.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(&page).env("MANROFFSEQ", "");
        let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", page.display());
    }
}

#[test]
fn a_folder_that_cannot_take_the_pages_is_one_sentence() {
    let folder = TempDir::new().unwrap();
    let output = crosslane(folder.path(), &["man", "--out", "absent"]);
    assert_eq!(output.code, Some(1));
    assert!(output.sentence().starts_with("crosslane: while writing manual pages into absent: "), "{output:?}");
}

#[test]
fn every_unit_starts_a_command_with_options_that_it_has() {
    let folder = TempDir::new().unwrap();
    let mut started = Vec::new();
    for entry in fs::read_dir(packaging()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_none_or(|kind| kind != "service") {
            continue;
        }
        let unit = fs::read_to_string(&entry).unwrap();
        let begin = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/crosslane ")).unwrap();
        let words: Vec<&str> = begin.split(' ').collect();
        let help = crosslane(folder.path(), &[words[0], "--help"]);
        assert_eq!(help.code, Some(0), "{help:?}");
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.stdout.contains(&format!("{option} ")), "{}: {option}", entry.display());
        }
        started.push(words[0].to_owned());
    }
    started.sort_unstable();
    assert_eq!(started, ["agent", "controller", "receive", "refit"]);
}
