//! `crosslane doctor` with rules of nftables: those that drop, strip or translate what an agent sends are named, others
//! are not. `nft` makes the rules.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use crate::program::links::two_wires;
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::{Namespace, SERVER, Testbed};
use serde_json::Value;
use tempfile::TempDir;

const VEHICLE: &str = r#"
[[path]]
name = "one"
rat = "lte"
[[path]]
name = "two"
rat = "lte"
[strategy]
name = "threshold"
[tunnel]
encryption = "none"
address = ["10.77.0.2/24"]
gateway = "10.255.0.1:7000"
"#;
const GATEWAY: &str = r#"
[tunnel]
encryption = "none"
address = ["10.77.0.1/24"]
listen = "0.0.0.0:7000"
[[tunnel.vehicle]]
name = "bus"
address = ["10.77.0.2/32"]
"#;

/// Name and sentence of each finding in the namespace with this configuration.
fn findings(namespace: &Namespace, configuration: &str) -> Vec<(String, String)> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["doctor", "--json", "--config"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::piped());
    let output: ProgramOutput = namespace.spawn(&mut command).unwrap().wait_with_output().unwrap().into();
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| (text(finding, "name"), format!("{}; {}", text(finding, "what"), text(finding, "fix"))))
        .collect()
}

/// Replaces the rules of the namespace.
fn set_rules(namespace: &Namespace, rules: &str) {
    let mut command = Command::new("nft");
    command.arg(format!("flush ruleset; {rules}")).stdin(Stdio::null());
    assert!(namespace.spawn(&mut command).unwrap().wait().unwrap().success(), "{rules}");
}

fn testbed() -> Option<Testbed> {
    if !can_drive() {
        return None;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        drop(writeln!(std::io::stderr(), "doctor NOT RUN: no nft (apt install nftables)"));
        return None;
    }
    let testbed = two_wires(["one", "two"], 20.0);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    Some(testbed)
}

#[test]
fn rules_that_stop_an_agent_are_named_with_their_path() {
    const FILTER: &str = "add table inet filter; add chain inet filter";
    let Some(testbed) = testbed() else { return };
    // Answers nothing, so that no path is found to be refused.
    let gateway = || UdpSocket::bind(SocketAddr::from((SERVER, 7000))).unwrap();
    let _gateway = testbed.server.enter(gateway).unwrap();
    let output = format!(
        "{FILTER} output {{ type filter hook output priority 0; policy accept; }}; add rule inet filter output"
    );
    let input =
        format!("{FILTER} input {{ type filter hook input priority 0; policy drop; }}; add rule inet filter input");
    let post =
        "add table ip t; add chain ip t post { type filter hook postrouting priority -150; }; add rule ip t post";
    let nat = "add table ip t; add chain ip t nat { type nat hook postrouting priority 100; }; add rule ip t nat";
    for (rules, expected) in [
        (String::new(), vec![]),
        (format!("{output} udp dport 7000 drop"), vec!["firewall.tunnel", "firewall.tunnel", "gateway.", "gateway."]),
        (format!("{output} oifname \"two\" udp dport {{ 53, 7000-7010 }} reject"), vec!["firewall.tunnel", "gateway."]),
        (format!("{output} udp dport 7001 drop"), vec![]),
        (format!("{output} ip daddr 10.255.0.0/24 meta mark 7 drop"), vec![]),
        (format!("{input} ct state established,related accept"), vec![]),
        (format!("{input} ct state vmap {{ established : accept, invalid : drop }}"), vec![]),
        (format!("{input} tcp dport 22 accept"), vec!["firewall.tunnel", "firewall.tunnel"]),
        (format!("{output} tcp option mptcp exists drop"), vec!["firewall.mptcp", "firewall.mptcp"]),
        (format!("{output} oifname \"one\" meta l4proto tcp drop"), vec!["firewall.mptcp"]),
        (format!("{post} reset tcp option mptcp"), vec!["firewall.strips", "firewall.strips"]),
        (format!("{nat} oifname \"two\" meta l4proto udp snat to 192.0.2.77"), vec!["nat.translated"]),
        (format!("{nat} masquerade"), vec![]),
    ] {
        set_rules(&testbed.vehicle, &rules);
        let found = findings(&testbed.vehicle, VEHICLE);
        let is_as_expected = found.len() == expected.len()
            && found.iter().zip(&expected).all(|((name, _), expected)| name.starts_with(expected));
        assert!(is_as_expected, "{rules}: {found:?} instead of {expected:?}");
    }
    set_rules(&testbed.vehicle, &format!("{output} oifname \"two\" udp dport 7000 drop"));
    let (_, sentence) = findings(&testbed.vehicle, VEHICLE).swap_remove(0);
    let expected = "path \"two\": datagrams to the gateway 10.255.0.1:7000 are dropped by rule 2 of the chain \"inet filter \
                    output\"; nft delete rule inet filter output handle 2 (`nft -a list ruleset` shows it)";
    assert_eq!(sentence, expected);
}

#[test]
fn a_gateway_that_lets_no_vehicle_in_is_named() {
    let Some(testbed) = testbed() else { return };
    let input =
        "add table inet f; add chain inet f i { type filter hook input priority 0; policy drop; }; add rule inet f i";
    set_rules(&testbed.server, &format!("{input} udp dport 4760 accept"));
    let found = findings(&testbed.server, GATEWAY);
    let [(name, sentence)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(name, "firewall.tunnel");
    assert!(sentence.ends_with("nft insert rule inet f i udp dport 7000 accept"), "{sentence}");
    set_rules(&testbed.server, &format!("{input} udp dport 7000 accept"));
    assert_eq!(findings(&testbed.server, GATEWAY), []);
    // Whom it lets in is not known.
    set_rules(&testbed.server, &format!("{input} ip saddr 192.0.2.0/24 accept"));
    assert_eq!(findings(&testbed.server, GATEWAY), []);
}

#[test]
fn keepalives_too_rare_for_a_nat_are_named() {
    let Some(testbed) = testbed() else { return };
    let public = VEHICLE.replace("10.255.0.1", "198.51.100.1").replacen("rat", "keepalive_s = 60\nrat", 1);
    let names = |configuration: &str| -> Vec<String> {
        let found = findings(&testbed.vehicle, configuration).into_iter().map(|(name, _)| name);
        found.filter(|name| name.starts_with("nat.")).collect()
    };
    assert_eq!(names(&public), ["nat.keepalive"]);
    assert_eq!(names(&public.replace("60", "20")), [""; 0]);
    assert_eq!(names(&public.replace("198.51.100.1", "10.255.0.1")), [""; 0], "no NAT is known of");
}
