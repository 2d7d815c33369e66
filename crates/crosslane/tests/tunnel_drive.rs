//! A drive whose traffic goes through the tunnel.
#![allow(missing_docs, clippy::unwrap_used)]

mod program;

use std::fs;

use program::{can_drive, crosslane};
use serde_json::Value;

/// 1000 datagrams over two links that each lose one in ten.
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
fn datagrams_that_each_path_loses_come_over_the_other_and_the_keys_are_gone() {
    if !can_drive() {
        return;
    }
    let desk = tempfile::TempDir::new().unwrap();
    fs::write(desk.path().join("s.toml"), LOSSY).unwrap();
    let strategies = "single,tunnel-redundant";
    let said = crosslane(desk.path(), &["drive", "s.toml", "--strategy", strategies, "--json", "--out", "out"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let summary: Value = serde_json::from_str(&said.stdout).unwrap();
    let metric = |run: usize, name: &str| summary["runs"][run]["metrics"][name].as_f64().unwrap();
    let lost = [0, 1].map(|run| metric(run, "lost_share"));
    assert!(lost[0] > 0.05 && lost[1] < 0.04, "{lost:?} lost: 0.1 and 0.01 in the long run");
    assert_eq!(metric(1, "duplicated_share"), 0.0, "the second copy is taken out");
    assert!(metric(1, "tunnel.cpu_s_per_gb") > 0.0);
    let share = metric(1, "path.a.share");
    assert!((0.4..0.6).contains(&share), "{share} over one of two");
    let run = desk.path().join("out/runs/tunnel-redundant-1");
    for file in ["agent.toml", "agent.log", "gateway.toml", "gateway.log"] {
        assert!(run.join(file).exists(), "{file}");
    }
    assert!(!run.join("keys").exists(), "keys are kept no longer than a run");
}
