//! `crosslane bugreport`: what is in the archive, and what never is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{allow_ipv6, two_wires};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, crosslane};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::{Namespace, SERVER, vehicle_address};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// The files of an archive by name.
fn unpack(archive: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(File::open(archive).unwrap())).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().strip_prefix("crosslane-bugreport").unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name, text);
    }
    files
}

fn report(namespace: &Namespace, folder: &Path, options: &[&str]) -> ProgramOutput {
    let mut command = Command::new(CROSSLANE);
    command.arg("bugreport").args(options).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap().wait_with_output().unwrap().into()
}

#[test]
fn neither_a_key_nor_an_address_is_in_the_archive_of_a_running_agent() {
    if !can_drive() {
        return;
    }
    let testbed = two_wires(["one", "two"], 20.0);
    allow_ipv6(&testbed);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let folder = TempDir::new().unwrap();
    let own = crosslane(folder.path(), &["keygen", "--out", "key"]).stdout.trim().to_owned();
    let gateway = crosslane(folder.path(), &["keygen", "--out", "gateway"]).stdout.trim().to_owned();
    let private = fs::read_to_string(folder.path().join("key")).unwrap().trim().to_owned();
    let configuration = format!(
        "# {private} of 203.0.113.77\n[[path]]\nname = \"one\"\nrat = \"lte\"\n[[path]]\nname = \"two\"\nrat = \"lte\"\n\
         [strategy]\nname = \"threshold\"\n[log]\nevents = \"EVENTS\"\n[tunnel]\naddress = [\"10.77.0.2/24\", \"fd77::2/64\"]\n\
         key = \"{}\"\ngateway = \"{SERVER}:7000\"\ngateway_key = \"{gateway}\"\n",
        folder.path().join("key").display()
    );
    let agent = Agent::start(&testbed.vehicle, &configuration);
    // The tunnel begins after the agent is ready.
    let began = Instant::now();
    let has_tunnel = || {
        let mut command = Command::new(CROSSLANE);
        command.args(["status", "--json"]).stdout(Stdio::piped());
        let status = testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap().stdout;
        serde_json::from_slice::<Value>(&status).is_ok_and(|status| !status["tunnel"].is_null())
    };
    while !has_tunnel() {
        assert!(began.elapsed() < Duration::from_secs(10), "{}", agent.read("events.jsonl"));
        sleep(Duration::from_millis(50));
    }
    let output = report(&testbed.vehicle, folder.path(), &[]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let archive = folder.path().join("crosslane-bugreport.tar.gz");
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let files = unpack(&archive);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "about.json",
        "configuration.toml",
        "connections.json",
        "doctor.json",
        "events.jsonl",
        "interfaces.txt",
        "kernel.txt",
        "status.json",
        "sysctls.txt",
        "tunnel.json",
    ];
    assert_eq!(names, expected, "{output:?}");
    let all = files.values().cloned().collect::<String>();
    let [one, two] = [0, 1].map(|place| vehicle_address(place).to_string());
    let (server, inner) = (SERVER.to_string(), "10.77.0.2");
    for secret in [&own, &gateway, &private, &one, &two, &server, inner, "fd77::2", "203.0.113.77"] {
        assert!(!all.contains(secret), "{secret}");
    }
    let status: Value = serde_json::from_str(&files["status.json"]).unwrap();
    assert_eq!(status["pid"], agent.child.id());
    assert!(files["configuration.toml"].contains("gateway = \"address-"), "{}", files["configuration.toml"]);
    assert!(files["events.jsonl"].lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(files["sysctls.txt"].contains("net/mptcp/enabled = 1\n") && files["kernel.txt"].contains("Linux version"));

    let output = report(&testbed.vehicle, folder.path(), &[]);
    let expected =
        "crosslane: while writing crosslane-bugreport.tar.gz: File exists (os error 17); name another file by --out\n";
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), expected));
    let output = report(&testbed.vehicle, folder.path(), &["--addresses", "--out", "open.tar.gz"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let all = unpack(&folder.path().join("open.tar.gz")).into_values().collect::<String>();
    assert!(all.contains(&one) && all.contains(&format!("{SERVER}:7000")) && all.contains("fd77::2"));
    for secret in [&own, &gateway, &private] {
        assert!(!all.contains(secret), "{secret}");
    }
}

#[test]
fn what_is_missing_is_named_and_is_no_error() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("bad.toml"), "key = \"wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=\nx").unwrap();
    let output = crosslane(folder.path(), &["bugreport", "--config", "bad.toml", "--agent", "999999999"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    for sentence in [
        "status.json is missing: while asking the agent: ",
        "configuration.toml is missing: while reading configuration bad.toml: ",
    ] {
        assert!(output.stdout.contains(sentence), "{sentence} in {}", output.stdout);
    }
    let files = unpack(&folder.path().join("crosslane-bugreport.tar.gz"));
    assert!(files["doctor.json"].contains("configuration.invalid"));
    assert!(!files.values().any(|text| text.contains("wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE")));
    let about: Value = serde_json::from_str(&files["about.json"]).unwrap();
    assert_eq!(about["missing"].as_array().map(Vec::len), Some(3), "{about}");
}

#[test]
fn an_archive_that_cannot_be_written_is_not_left_in_part() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new("sh");
    // No file may be larger than 0 bytes; without the trap the signal ends the program.
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" bugreport", CROSSLANE]).current_dir(folder.path());
    let output: ProgramOutput = command.stdin(Stdio::null()).output().unwrap().into();
    let expected = "while writing crosslane-bugreport.tar.gz: File too large (os error 27); name another file by --out";
    assert!(output.code == Some(1) && output.stderr.contains(expected), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
