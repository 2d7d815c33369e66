//! A drive whose traffic is datagrams from the server, which sends once the vehicle has called it.

use std::fs;

use crate::program::{can_drive, crosslane};
use serde_json::Value;

/// With seeds 3 and 4 the path loses the first call.
const LOSSY: &str = r#"name = "lossy"
duration_s = 4
[vehicle]
route = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }
[[cellular]]
name = "a"
rat = "lte"
rate_mbit_s = 20
delay_ms = 10
loss = 0.6
[traffic]
kind = "messages"
protocol = "udp"
direction = "down"
size_bytes = 1000
every_ms = 20
"#;

#[test]
fn a_call_that_is_lost_is_repeated() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), LOSSY).unwrap();
    let arguments = ["drive", "s.toml", "--strategy", "single", "--seed", "3,4", "--json", "--out", "out"];
    let output = crosslane(workdir.path(), &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    for run in [0, 1] {
        let metrics = &summary["runs"][run]["metrics"];
        assert_eq!(metrics["messages.sent"], 100.0, "{metrics}");
        assert!(metrics["delivered_bytes"].as_f64().unwrap() > 20_000.0, "{metrics}");
    }
}
