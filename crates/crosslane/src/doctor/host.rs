//! What every agent needs: MPTCP, privileges, no competitor, a clock.

use std::fs;

use crosslane_core::actuator::EndpointPolicy;

use super::Finding;
use crate::agent::config::Config;
use crate::clock;
use crate::control::running_agent;
use crate::kernel_counters;
use crate::netlink::endpoints::EndpointSocket;
use crate::netlink::{self, OpenError, PathManager, ProbeError, selected_path_manager};
use crate::program::{endpoint_owner, process_named};

/// Bit of CAP_NET_ADMIN (capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
/// 2025-01-01: a clock before it has not been set.
const EARLIEST_UNIX_S: f64 = 1_735_689_600.0;

/// The faults, with what the configuration makes of them.
pub fn examine(config: Option<&Config>) -> Vec<Finding> {
    let manages = config.is_none_or(|config| !config.paths.is_empty() || config.roadside.is_some());
    let mut findings: Vec<Finding> = privileges().into_iter().chain(clock_fault(clock::unix_s())).collect();
    if manages {
        findings.extend(mptcp());
        findings.extend(blackhole(&fs::read_to_string("/proc/net/netstat").unwrap_or_default()));
        findings.extend(path_manager(config));
        findings.extend(competitors());
    }
    findings
}

fn privileges() -> Option<Finding> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let has = u64::from_str_radix(effective.trim(), 16).is_ok_and(|mask| mask & CAP_NET_ADMIN != 0);
    let why = "an agent opens subflows, interfaces and routes, for which the kernel requires CAP_NET_ADMIN";
    let what = "this user lacks CAP_NET_ADMIN in this network namespace";
    (!has).then(|| {
        Finding::broken(
            "privileges.net-admin",
            what,
            why,
            "sudo crosslane doctor; run the agent as root or by its unit",
        )
    })
}

/// A clock that was never set. The tunnel's handshake needs none that is right (decision 33).
fn clock_fault(unix_s: f64) -> Option<Finding> {
    let why = "records and logs have the wrong time, and certificates of other programs are invalid";
    let what = "the clock is before 2025: it has not been set";
    (unix_s < EARLIEST_UNIX_S).then(|| Finding::warning("clock.unset", what, why, "timedatectl set-ntp true"))
}

fn mptcp() -> Option<Finding> {
    let why = "no connection of this network namespace uses more than one path";
    match netlink::probe() {
        Ok(()) | Err(ProbeError::NotPermitted | ProbeError::Setting { .. }) => None,
        Err(ProbeError::Disabled) => {
            Some(Finding::broken("mptcp.disabled", "net.mptcp.enabled is 0", why, "sysctl -w net.mptcp.enabled=1"))
        }
        Err(ProbeError::NoMptcp | ProbeError::Netlink(OpenError::Absent { .. })) => Some(Finding::broken(
            "mptcp.absent",
            "this kernel has no MPTCP",
            why,
            "boot Linux 5.19 or newer with CONFIG_MPTCP=y",
        )),
        Err(other) => {
            Some(Finding::broken("mptcp.unusable", other, why, "boot Linux 5.19 or newer with CONFIG_MPTCP=y"))
        }
    }
}

/// What the kernel has counted of networks that drop SYNs with MPTCP (`blackhole_timeout`, mptcp-sysctl.rst): it takes a path
/// that carries nothing while a connection begins for one. The counter is that of this network namespace since its beginning.
fn blackhole(netstat: &str) -> Option<Finding> {
    let count = kernel_counters::table(netstat, "MPTcpExt")?("Blackhole")?;
    let what = format!(
        "SYNs with MPTCP had no answer, one without had, and the kernel switched to TCP for a time ({count} times)"
    );
    let why = "connections that begin meanwhile use one path";
    let fix = "crosslane doctor --server ADDRESS:PORT names a network that drops them; where a path carried nothing for 3 s, \
               sysctl -w net.mptcp.syn_retrans_before_tcp_fallback=4; sysctl -w net.mptcp.blackhole_timeout=0 keeps MPTCP on";
    (count > 0).then(|| Finding::warning("mptcp.blackhole", what, why, fix))
}

/// With a configuration the agent is to manage the paths; without one the kernel may.
fn path_manager(config: Option<&Config>) -> Vec<Finding> {
    let Ok(PathManager::Kernel) = selected_path_manager() else { return Vec::new() };
    if let Some(config) = config {
        let (code, what) = ("mptcp.path-manager", "the in-kernel path manager is selected");
        let fix = format!("sysctl -w {}", netlink::user_space_setting());
        return vec![match config.service.endpoints {
            EndpointPolicy::Off => {
                Finding::broken(code, what, "an agent with `endpoints = \"off\"` opens no subflows then", fix)
            }
            _ => {
                let why = "of connections that begin now the agent steers the endpoints only: no classes, and no new subflow \
                           in the place of one that ended";
                Finding::warning(code, what, why, fix)
            }
        }];
    }
    let limits = EndpointSocket::open().ok().and_then(|mut socket| socket.limits().ok());
    let none = limits.filter(|limits| limits.subflows == 0).map(|_| {
        let what = "the in-kernel path manager accepts no further subflows (limit 0)";
        let why = "peers cannot add a path to connections of this host";
        Finding::warning("mptcp.limits", what, why, "crosslane mptcp limits set --subflows 8")
    });
    none.into_iter().collect()
}

fn competitors() -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(pid) = process_named("mptcpd") {
        let why = "two path managers open and close the same subflows";
        let fix = "systemctl disable --now mptcp (mptcpd's unit)";
        findings.push(Finding::warning("competitor.mptcpd", format!("mptcpd runs (process {pid})"), why, fix));
    }
    let agents = running_agent::all();
    if agents.len() > 1 {
        let list = agents.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let what = format!("{} agents run in this network namespace (processes {list})", agents.len());
        let why = "two agents for the same paths work against each other";
        let fix = "end all but one; crosslane status --agent PID shows each";
        findings.push(Finding::warning("competitor.agent", what, why, fix));
    }
    let endpoints = EndpointSocket::open().ok().and_then(|mut socket| socket.list().ok()).unwrap_or_default();
    if matches!(selected_path_manager(), Ok(PathManager::UserSpace)) && !endpoints.is_empty() {
        let (count, owner) = (endpoints.len(), endpoint_owner());
        let what = format!("{owner} has set {count} endpoints, with the user-space path manager");
        let why = "connections that began before keep opening subflows from them, besides the agent's";
        let fix = "crosslane mptcp endpoint flush; nmcli connection modify NAME connection.mptcp-flags 0x1";
        findings.push(Finding::warning("competitor.endpoints", what, why, fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_never_set_is_a_warning() {
        assert_eq!(clock_fault(0.0).map(|finding| finding.name), Some("clock.unset"));
        assert!(clock_fault(EARLIEST_UNIX_S).is_none());
    }

    #[test]
    fn a_network_that_drops_mptcp_is_a_warning() {
        let netstat =
            |count: u32| format!("TcpExt: A\nTcpExt: 7\nMPTcpExt: MPCapableSYNRX Blackhole\nMPTcpExt: 3 {count}\n");
        let finding = blackhole(&netstat(2)).expect("a finding");
        assert_eq!(finding.name, "mptcp.blackhole");
        assert!(finding.what.contains("(2 times)") && finding.fix.contains("syn_retrans_before_tcp_fallback=4"));
        assert!(blackhole(&netstat(0)).is_none() && blackhole("").is_none());
    }
}
