//! A drive whose traffic uses the tunnel.

use std::fs;

use crate::program::{can_drive, crosslane};
use serde_json::Value;

/// A scenario with 1000 datagrams over two links with 10 % loss each.
const LOSSY: &str = r#"name = "lossy"
duration_s = 4
[vehicle]
route = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }
[[cellular]]
name = "a"
rat = "lte"
rate_mbit_s = 20
delay_ms = 10
loss = 0.1
[[cellular]]
name = "b"
rat = "lte"
rate_mbit_s = 20
delay_ms = 15
loss = 0.1
[traffic]
kind = "messages"
protocol = "udp"
size_bytes = 1000
every_ms = 2
"#;

#[test]
fn datagrams_lost_on_one_path_arrive_over_the_other_and_the_keys_are_deleted() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), LOSSY).unwrap();
    let strategies = "single,tunnel-redundant";
    let output = crosslane(workdir.path(), &["drive", "s.toml", "--strategy", strategies, "--json", "--out", "out"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    let metric = |run: usize, name: &str| summary["runs"][run]["metrics"][name].as_f64().unwrap();
    let lost = [0, 1].map(|run| metric(run, "lost_share"));
    assert!(lost[0] > 0.05 && lost[1] < 0.04, "{lost:?} lost; expected are 0.1 and 0.01");
    assert_eq!(metric(1, "duplicated_share"), 0.0, "the second copy is removed");
    assert!(metric(1, "copied_bytes") > 0.9e6, "1 MB was sent, and each packet twice");
    assert!(metric(1, "tunnel.cpu_s_per_gb") > 0.0);
    let share = metric(1, "path.a.share");
    assert!((0.4..0.6).contains(&share), "{share} over one of two paths");
    let run = workdir.path().join("out/runs/tunnel-redundant-1");
    for file in ["agent.toml", "agent.log", "gateway.toml", "gateway.log"] {
        assert!(run.join(file).exists(), "{file}");
    }
    assert!(!run.join("keys").exists(), "keys are deleted at the end of a run");
}

/// A drive of a tunnel begins also where an answer takes longer than the first attempt to get one.
#[test]
fn a_tunnel_with_a_long_rtt_is_driven() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    let far = LOSSY.replace("delay_ms = 10", "delay_ms = 120").replace("delay_ms = 15", "delay_ms = 120");
    let tcp = far.replace("loss = 0.1", "loss = 0.0").replace("protocol = \"udp\"\n", "");
    fs::write(workdir.path().join("s.toml"), tcp).unwrap();
    let output = crosslane(workdir.path(), &["drive", "s.toml", "--strategy", "tunnel", "--out", "out"]);
    assert_eq!(output.code, Some(0), "{output:?}");
}
