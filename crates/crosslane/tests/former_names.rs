//! Files of the previous version are read with a warning for each renamed key, and
//! rewritten by `check --fix`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

const CONFIGURATION: &str = r#"path = [{ name = "lte", rat = "lte" }]
[strategy]
name = "hapanchak"
weak_subflow = "remove"
[tunnel]
gateway = "192.0.2.1:4760"
address = ["10.77.0.2/24"]
plain = true     # unencrypted
"#;

fn run(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crosslane")).args(arguments).arg(file).output().unwrap()
}

fn scenario() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sudden-loss.toml");
    fs::read_to_string(file).unwrap().replace("outages_s", "silent_s")
}

#[test]
fn a_configuration_of_the_previous_version_is_read_with_a_warning_for_each_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, CONFIGURATION).unwrap();
    let output = run(&["check", "--json"], &file);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["kind"].as_str(), report["ok"].as_bool()), (Some("configuration"), Some(true)), "{report}");
    let warnings: Vec<&str> =
        report["warnings"].as_array().unwrap().iter().filter_map(|warning| warning.as_str()).collect();
    assert!(warnings[0].starts_with("line 4: `weak_subflow` is now `on_fade`"), "{warnings:?}");
    assert!(warnings[1].starts_with("line 8: `plain` is now `encryption`"), "{warnings:?}");
}

#[test]
fn check_fix_rewrites_renamed_keys_and_changes_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, CONFIGURATION).unwrap();
    assert!(run(&["check", "--fix"], &file).status.success());
    let expected = CONFIGURATION
        .replace("weak_subflow = \"remove\"", "on_fade = \"close\"")
        .replace("plain = true ", "encryption = \"none\" ");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    let second = run(&["check", "--fix"], &file);
    assert!(second.stderr.is_empty(), "{}", String::from_utf8_lossy(&second.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
}

#[test]
fn a_link_stays_a_link_and_no_other_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link, taken] = ["agent.toml", "link.toml", "agent.toml.new"].map(|name| folder.path().join(name));
    fs::write(&file, CONFIGURATION).unwrap();
    fs::write(&taken, "mine").unwrap();
    symlink(&file, &link).unwrap();
    let output = run(&["check", "--fix"], &link);
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && sentence.contains("agent.toml.new exists"), "{sentence}");
    assert_eq!(
        (fs::read_to_string(&file).unwrap(), fs::read_to_string(&taken).unwrap()),
        (CONFIGURATION.into(), "mine".into())
    );
    fs::remove_file(&taken).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    assert!(run(&["check", "--fix"], &link).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&file).unwrap().contains("on_fade"));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_scenario_of_the_previous_version_runs_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.toml");
    fs::write(&file, scenario()).unwrap();
    let out = folder.path().join("out");
    let arguments = ["simulate", "--strategy", "kernel", "--records", "none", "--out", out.to_str().unwrap()];
    let output = run(&arguments, &file);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches("`silent_s` is now `outages_s`").count(), 1, "{stderr}");
    assert!(!stderr.contains("earlier comparison"), "{stderr}");
    let second = run(&arguments, &file);
    assert!(String::from_utf8_lossy(&second.stderr).contains("has the records of an earlier comparison"));
}
