//! The machine and versions of a drive, which explain why two results differ.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::peer_tunnels;
use crate::error::Result;
use crate::{output, version};

/// Settings that influence a result, read where `drive` runs; the namespaces
/// of a run start with the kernel's defaults.
const SETTINGS: [&str; 8] = [
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/mptcp/scheduler",
    "net/mptcp/stale_loss_cnt",
    "net/mptcp/close_timeout",
];

/// Writes `versions.json`, with the version of the program that these bases
/// need.
pub fn write(folder: &Path, bases: &BTreeSet<String>) -> Result<()> {
    let mut versions = versions();
    if bases.contains(peer_tunnels::PROGRAM) {
        versions[peer_tunnels::PROGRAM] = peer_tunnels::version()?.into();
    }
    output::write(&folder.join("versions.json"), format!("{versions:#}\n"))
}

fn versions() -> Value {
    let read = |file: &str| std::fs::read_to_string(file).map(|text| text.trim().to_string()).ok();
    let setting = |name: &str| (name.replace('/', "."), json!(read(&format!("/proc/sys/{name}"))));
    let settings: Map<String, Value> = SETTINGS.iter().map(|name| setting(name)).collect();
    let processor = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':').map(|(_, name)| name.trim().to_string())
    });
    json!({
        "crosslane": version::version(),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH,
        "processor": processor,
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "settings": settings,
    })
}
