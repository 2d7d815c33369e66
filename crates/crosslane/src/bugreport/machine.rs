//! What a fault may depend on: kernel, settings, interfaces.

use std::fs;
use std::path::{Path, PathBuf};

use super::kernel_file;

/// Settings beside those of MPTCP and the reverse-path filters.
const SETTINGS: [&str; 14] = [
    "net/core/default_qdisc",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/ip_forward",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/ping_group_range",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_wmem",
    "net/ipv6/conf/all/disable_ipv6",
];

/// Version of the kernel, and the distribution.
pub fn kernel() -> String {
    kernel_file("/proc/version") + &kernel_file("/etc/os-release")
}

/// The settings as `sysctl` names them; those that this kernel lacks are left out.
pub fn sysctls() -> String {
    let root = Path::new("/proc/sys");
    let mut files: Vec<PathBuf> = SETTINGS.iter().map(|name| root.join(name)).collect();
    files.extend(members("/proc/sys/net/mptcp"));
    files.extend(members("/proc/sys/net/ipv4/conf").map(|interface| interface.join("rp_filter")));
    files.sort();
    let line = |file: &PathBuf| {
        let value = fs::read_to_string(file).ok()?;
        Some(format!("{} = {}\n", file.strip_prefix(root).ok()?.display(), value.trim_end()))
    };
    files.iter().filter_map(line).collect()
}

/// Packet counters of the interfaces, and what the kernel counts of MPTCP.
pub fn interfaces() -> String {
    kernel_file("/proc/net/dev") + &kernel_file("/proc/net/netstat")
}

fn members(folder: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}
