//! The reports as users read them.

use std::collections::BTreeMap;

use crosslane_core::allocate::Mode;

use super::*;
use crate::control::report::{PreferredPath, RadioReport, SubflowReport, TokenName, TunnelSummary};

fn reason(rule: &str, text: &str) -> ReasonReport {
    ReasonReport { rule: rule.into(), text: text.into(), inputs: BTreeMap::new() }
}

fn lte() -> PathReport {
    PathReport {
        path: "lte".into(),
        interface: "wwan0".into(),
        address: Some("10.1.0.2".into()),
        preference: 1,
        state: "active".into(),
        state_since_s: 7520.0,
        state_reason: reason("threshold.link-up", "the interface is up"),
        belief: "good".into(),
        belief_since_s: 42.0,
        belief_reason: reason("threshold.link-up", "the interface is up"),
        signal_dbm: None,
        signal_age_s: None,
        signal_source: None,
        radio: None,
        rtt_ms: Some(31.25),
        connections: 2,
        sent_bytes: Some(1_234_567),
        received_bytes: Some(999),
        network: None,
        volume: None,
        echo: None,
    }
}

/// One that is limited by day and month.
fn limited() -> PathReport {
    let period = |period: &str, used_bytes, limit_bytes, resets: &str| VolumePeriodReport {
        period: period.into(),
        used_bytes,
        soft_bytes: limit_bytes / 2,
        limit_bytes,
        resets: resets.into(),
    };
    let month = period("month", 4_600_000_000, 5_000_000_000, "2026-12-01");
    let day = period("day", 1_500_000, 900_000_000, "2026-11-26");
    PathReport { volume: Some(VolumeReport { level: "scarce".into(), periods: vec![month, day] }), ..lte() }
}

fn wlan() -> PathReport {
    let unknown = ReasonReport::default();
    PathReport {
        path: "wlan".into(),
        interface: "wlan0".into(),
        address: None,
        state: "closed".into(),
        state_reason: unknown.clone(),
        belief: "unknown".into(),
        belief_reason: unknown,
        signal_dbm: Some(-71.25),
        signal_source: Some("nl80211".into()),
        radio: Some(RadioReport {
            tx_mbit_s: Some(866.7),
            rx_mbit_s: None,
            retries: Some(5),
            failures: None,
            age_s: 0.1,
        }),
        rtt_ms: None,
        connections: 0,
        sent_bytes: None,
        received_bytes: None,
        ..lte()
    }
}

fn agent() -> AgentStatus {
    AgentStatus {
        version: "0.1.0".into(),
        pid: 812,
        configuration: "/etc/crosslane/agent.toml".into(),
        uptime_s: 7520.0,
        longest_answer_ms: 0.4,
        strategy: Some("threshold".into()),
        tree: None,
        mode: Mode::Backup,
        preferred: Some(PreferredPath { path: "lte".into(), remaining_s: Some(130.0) }),
        connections: 2,
        paths: vec![lte(), wlan()],
        tunnel: Some(TunnelSummary {
            interface: "crosslane0".into(),
            role: "vehicle".into(),
            encrypted: true,
            peers: 1,
            peers_seen: 1,
            paths: vec![],
        }),
        units: vec![],
        problems: vec!["path \"wlan\": the interface \"wlan0\" does not exist, or has no address".into()],
        changes: vec![],
    }
}

#[test]
fn the_status_fits_on_a_screen_and_says_what_does_not_work() {
    let expected = "\
agent 812 of crosslane 0.1.0, up 2 h 5 min
configuration   /etc/crosslane/agent.toml
strategy        threshold, mode backup
preferred       lte by request, for 2 min more
connections     2
tunnel          crosslane0, vehicle, encrypted, 1 of 1 peers seen
problem         path \"wlan\": the interface \"wlan0\" does not exist, or has no address

path  state   since      belief   connections  RTT ms    sent  received  why
lte   active  2 h 5 min  good               2    31.2  1.2 MB     999 B  the interface is up
wlan  closed  2 h 5 min  unknown            0       -       -         -  nothing is known yet
";
    assert_eq!(status(&agent()), expected);
}

#[test]
fn the_links_have_what_is_measured_of_each() {
    let expected = "\
path  interface  address   state   since      belief   since  signal from    dBm  PHY Mbit/s  RTT ms    sent  received
lte   wwan0      10.1.0.2  active  2 h 5 min  good     42 s   -                -           -    31.2  1.2 MB     999 B
wlan  wlan0      -         closed  2 h 5 min  unknown  42 s   nl80211      -71.2       866.7       -       -         -
";
    assert_eq!(links(&agent()), expected);
    assert_eq!(links(&AgentStatus { paths: vec![], ..agent() }), "no paths\n");
}

#[test]
fn a_connection_has_a_line_for_each_subflow_and_names_itself_once() {
    let subflow = |path: &str, state: &str| SubflowReport {
        path: path.into(),
        local: "10.1.0.2:40000".into(),
        remote: "192.0.2.1:443".into(),
        state: state.into(),
        open_s: 3.25,
        rtt_ms: None,
        acked_bytes: Some(5),
        received_bytes: Some(2_500),
    };
    let of = |token, is_foreign, subflows| ConnectionReport {
        token: TokenName(token),
        class: "default".into(),
        peer: Some("192.0.2.1:443".into()),
        accepted: false,
        is_foreign,
        subflows,
    };
    let both = vec![subflow("lte", "active"), subflow("wlan", "backup")];
    let expected = "\
token     peer           path  state                         open   RTT ms  acked  received
00000007  192.0.2.1:443  lte   active                        3.2 s       -    5 B    2.5 kB
                         wlan  backup                        3.2 s       -    5 B    2.5 kB
5b3a0c11  192.0.2.1:443  -     of the kernel's path manager  -           -      -         -
";
    assert_eq!(connections(&[of(7, false, both), of(0x5b3a_0c11, true, vec![])]), expected);
    assert_eq!(connections(&[]), "no connections\n");
}

#[test]
fn an_explanation_has_both_sides_and_what_happened_last() {
    let change = ChangeReport {
        number: 3,
        ago_s: 42.0,
        path: "lte".into(),
        of: "belief".into(),
        to: "good".into(),
        reason: reason("threshold.link-up", "the interface is up"),
    };
    let of_path = Explanation::Path {
        status: Box::new(lte()),
        r#for: vec![reason("threshold.link-up", "the interface is up")],
        against: vec![],
        changes: vec![change],
        tree: Some("with 3 nodes, trained: rows 80".into()),
    };
    let expected = "\
lte is active for 2 h 5 min: the interface is up
the agent believes that it is good, for 42 s: the interface is up
a tree orders the paths, with 3 nodes, trained: rows 80

for it:
  the interface is up (threshold.link-up)

against it: nothing

what happened last:
  42 s ago: lte is believed to be good: the interface is up (threshold.link-up)
";
    assert_eq!(explanation(&of_path), expected);
}

#[test]
fn an_explanation_of_a_connection_has_what_happened_last_to_it() {
    let status = ConnectionReport {
        token: TokenName(7),
        class: "default".into(),
        peer: None,
        accepted: false,
        is_foreign: false,
        subflows: vec![],
    };
    let change = |ago_s, times, text: &str| ConnectionChangeReport {
        ago_s,
        path: None,
        what: "began".into(),
        times,
        text: text.into(),
    };
    let changes = vec![change(42.0, 1, "it accepts further subflows"), change(3.0, 4, "it is unlucky")];
    let shown = explanation(&Explanation::Connection { status: Box::new(status), paths: vec![], changes });
    let expected =
        "\nwhat happened last:\n  42 s ago: it accepts further subflows\n  3.0 s ago: it is unlucky (4 times)\n";
    assert!(shown.ends_with(expected), "{shown}");
}

#[test]
fn an_answer_cannot_write_to_the_terminal() {
    let status_of = AgentStatus { configuration: "\u{1b}[2Jx".into(), ..agent() };
    assert!(status(&status_of).contains("configuration   ?[2Jx\n"));
}

#[test]
fn a_volume_is_shown_where_there_is_one() {
    let agent = AgentStatus { paths: vec![limited(), wlan()], ..agent() };
    let expected = "\nvolume          lte scarce: 4.60 GB of 5.00 GB this month, until 2026-12-01; 1.5 MB of 900.0 MB this \
                    day, until 2026-11-26\nproblem ";
    assert!(status(&agent).contains(expected), "{}", status(&agent));
    let shown = links(&agent);
    let ends: Vec<&str> = shown.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(ends, ["volume", "4.60 GB of 5.00 GB this month", "-"]);
    let (r#for, against, changes) = (vec![], vec![], vec![]);
    let shown = explanation(&Explanation::Path { status: Box::new(limited()), r#for, against, changes, tree: None });
    assert!(shown.contains("\nits volume is scarce: 4.60 GB of 5.00 GB this month, until 2026-12-01; 1.5"), "{shown}");
}
