//! An agent's reports as text.

use std::ops::Range;

use super::report::{
    AgentStatus, ChangeReport, ConnectionChangeReport, ConnectionReport, Done, EchoReport, Explanation, PathReport,
    PathUseReport, ReasonReport, VolumePeriodReport, VolumeReport,
};
use crate::durations::spoken;
use crate::output::table;

/// The agent on one screen.
pub fn status(status: &AgentStatus) -> String {
    let AgentStatus { version, pid, configuration, uptime_s, .. } = status;
    let mut text = format!("agent {pid} of crosslane {version}, up {}\n", spoken(*uptime_s));
    let mut line = |name: &str, value: &str| text += &format!("{name:<16}{value}\n");
    line("configuration", configuration);
    if let Some(strategy) = &status.strategy {
        line("strategy", &format!("{strategy}, mode {}", status.mode.name()));
    }
    if let Some(preferred) = &status.preferred {
        let until = preferred.remaining_s.map_or_else(String::new, |left_s| format!(", for {} more", spoken(left_s)));
        line("preferred", &format!("{} by request{until}", preferred.path));
    }
    line("connections", &status.connections.to_string());
    if let Some(tunnel) = &status.tunnel {
        let protection = if tunnel.encrypted { "encrypted" } else { "unencrypted" };
        let seen = format!("{} of {} peers seen", tunnel.peers_seen, tunnel.peers);
        line("tunnel", &format!("{}, {}, {protection}, {seen}", tunnel.interface, tunnel.role));
    }
    if !status.units.is_empty() {
        let units = status.units.iter().map(|unit| format!("{} {}", unit.name, unit.belief));
        line("roadside units", &units.collect::<Vec<_>>().join(", "));
    }
    for (path, volume) in status.paths.iter().filter_map(|path| Some((path, path.volume.as_ref()?))) {
        line("volume", &format!("{} {}", path.path, volume_sentence(volume)));
    }
    for (path, echo) in status.paths.iter().filter_map(|path| Some((path, path.echo.as_ref()?))) {
        line("echo requests", &format!("{} {}", path.path, echo_sentence(echo)));
    }
    for (path, reason) in status.paths.iter().filter_map(|path| Some((path, path.network.as_ref()?))) {
        line("network", &format!("{}: {}", path.path, reason.text));
    }
    status.problems.iter().for_each(|problem| line("problem", problem));
    if !status.paths.is_empty() {
        text += "\n";
        text += &rows(&STATUS_HEADING, STATUS_FIGURES, status.paths.iter().map(status_row));
    }
    printable(&text)
}

const STATUS_HEADING: [&str; 9] =
    ["path", "state", "since", "belief", "connections", "RTT ms", "sent", "received", "why"];
const STATUS_FIGURES: Range<usize> = 4..8;

fn status_row(path: &PathReport) -> Vec<String> {
    vec![
        path.path.clone(),
        path.state.clone(),
        spoken(path.state_since_s),
        path.belief.clone(),
        path.connections.to_string(),
        figure(path.rtt_ms),
        bytes(path.sent_bytes),
        bytes(path.received_bytes),
        sentence(&path.state_reason),
    ]
}

/// The paths with what is measured of each.
pub fn links(status: &AgentStatus) -> String {
    if status.paths.is_empty() {
        return "no paths\n".into();
    }
    let is_limited = status.paths.iter().any(|path| path.volume.is_some());
    let columns = LINK_HEADING.len() - usize::from(!is_limited);
    let row = |path| link_row(path).into_iter().take(columns).collect();
    let faults =
        status.paths.iter().filter_map(|path| Some(format!("{}: {}\n", path.path, path.network.as_ref()?.text)));
    printable(
        &(rows(&LINK_HEADING[..columns], LINK_FIGURES, status.paths.iter().map(row)) + &faults.collect::<String>()),
    )
}

/// The last column only if a path has a volume.
const LINK_HEADING: [&str; 14] = [
    "path",
    "interface",
    "address",
    "state",
    "since",
    "belief",
    "since",
    "signal from",
    "dBm",
    "PHY Mbit/s",
    "RTT ms",
    "sent",
    "received",
    "volume",
];
const LINK_FIGURES: Range<usize> = 8..13;

fn link_row(path: &PathReport) -> Vec<String> {
    vec![
        path.path.clone(),
        path.interface.clone(),
        path.address.clone().unwrap_or_else(|| "-".into()),
        path.state.clone(),
        spoken(path.state_since_s),
        path.belief.clone(),
        spoken(path.belief_since_s),
        path.signal_source.clone().unwrap_or_else(|| "-".into()),
        figure(path.signal_dbm),
        figure(path.radio.and_then(|radio| radio.tx_mbit_s)),
        figure(path.rtt_ms),
        bytes(path.sent_bytes),
        bytes(path.received_bytes),
        path.volume.as_ref().and_then(|volume| volume.periods.first()).map_or_else(|| "-".into(), volume_used),
    ]
}

/// What the echo requests over a path have cost and shown.
fn echo_sentence(echo: &EchoReport) -> String {
    let last = match (echo.rtt_ms, echo.answered_s) {
        (Some(rtt_ms), Some(answered_s)) => format!("the last answer {} ago after {rtt_ms:.1} ms", spoken(answered_s)),
        _ => "none was answered".into(),
    };
    format!("{} sent, {} received, {last}", bytes(Some(echo.sent_bytes)), bytes(Some(echo.received_bytes)))
}

/// What is left of a volume, and of each limited period.
fn volume_sentence(volume: &VolumeReport) -> String {
    let period = |of: &VolumePeriodReport| format!("{}, until {}", volume_used(of), of.resets);
    let periods: Vec<String> = volume.periods.iter().map(period).collect();
    format!("{}: {}", volume.level, periods.join("; "))
}

fn volume_used(of: &VolumePeriodReport) -> String {
    format!("{} of {} this {}", bytes(Some(of.used_bytes)), bytes(Some(of.limit_bytes)), of.period)
}

/// The connections, a line for each subflow.
pub fn connections(connections: &[ConnectionReport]) -> String {
    if connections.is_empty() {
        return "no connections\n".into();
    }
    printable(&rows(&CONNECTION_HEADING, CONNECTION_FIGURES, connections.iter().flat_map(connection_rows)))
}

const CONNECTION_HEADING: [&str; 8] = ["token", "peer", "path", "state", "open", "RTT ms", "acked", "received"];
const CONNECTION_FIGURES: Range<usize> = 5..8;

fn connection_rows(connection: &ConnectionReport) -> Vec<Vec<String>> {
    let mut first = [connection.token.to_string(), connection.peer.clone().unwrap_or_else(|| "-".into())];
    if connection.subflows.is_empty() {
        let state = if connection.is_foreign { "of the kernel's path manager" } else { "no subflow" };
        let rest = ["-", state, "-", "-", "-", "-"].map(str::to_owned);
        return vec![first.into_iter().chain(rest).collect()];
    }
    let row = |subflow: &super::report::SubflowReport| {
        let cells = [
            subflow.path.clone(),
            subflow.state.clone(),
            spoken(subflow.open_s),
            figure(subflow.rtt_ms),
            bytes(subflow.acked_bytes),
            bytes(subflow.received_bytes),
        ];
        std::mem::take(&mut first).into_iter().chain(cells).collect()
    };
    connection.subflows.iter().map(row).collect()
}

/// Why a path or a connection is as it is.
pub fn explanation(explanation: &Explanation) -> String {
    let text = match explanation {
        Explanation::Path { status, r#for, against, changes, tree } => {
            let PathReport { path, state, state_since_s, state_reason, belief, belief_since_s, .. } = &**status;
            let because = |reason: &ReasonReport| {
                if reason.text.is_empty() { String::new() } else { format!(": {}", sentence(reason)) }
            };
            let mut text = format!("{path} is {state} for {}{}\n", spoken(*state_since_s), because(state_reason));
            text += &format!("the agent believes that it is {belief}, for {}", spoken(*belief_since_s));
            text += &format!("{}\n", because(&status.belief_reason));
            text += &status
                .volume
                .as_ref()
                .map_or(String::new(), |one| format!("its volume is {}\n", volume_sentence(one)));
            text += &status.network.as_ref().map_or(String::new(), |one| format!("{} ({})\n", one.text, one.rule));
            text += &tree.as_ref().map_or(String::new(), |tree| format!("a tree orders the paths, {tree}\n"));
            for (heading, reasons) in [("for it", r#for), ("against it", against)] {
                text += &format!("\n{heading}:{}\n", if reasons.is_empty() { " nothing" } else { "" });
                reasons.iter().for_each(|reason| text += &format!("  {} ({})\n", reason.text, reason.rule));
            }
            text + &last_changes(changes.iter().map(|one| (one.ago_s, change(one))))
        }
        Explanation::Connection { status, paths, changes } => {
            let heading = ["path", "wanted", "is", "why"];
            let mut text = connections(std::slice::from_ref(status)) + "\n";
            text += &rows(&heading, 0..0, paths.iter().map(path_use_row));
            text += &last_changes(changes.iter().map(|one| (one.ago_s, connection_change(one))));
            text
        }
    };
    printable(&text)
}

/// What happened last, a line for each change.
fn last_changes(changes: impl Iterator<Item = (f64, String)>) -> String {
    let lines: String = changes.map(|(ago_s, text)| format!("  {} ago: {text}\n", spoken(ago_s))).collect();
    if lines.is_empty() { lines } else { format!("\nwhat happened last:\n{lines}") }
}

fn connection_change(change: &ConnectionChangeReport) -> String {
    let times = if change.times > 1 { format!(" ({} times)", change.times) } else { String::new() };
    format!("{}{times}", change.text)
}

fn path_use_row(path: &PathUseReport) -> Vec<String> {
    let wanted = sentence(&path.wanted_reason);
    let why = path.reason.as_ref().map_or(wanted, |reason| reason.text.clone());
    vec![path.path.clone(), path.wanted_state.clone(), path.state.clone(), why]
}

/// A change in a sentence.
pub fn change(change: &ChangeReport) -> String {
    let ChangeReport { path, of, to, reason, .. } = change;
    let verb = if of == "belief" { "is believed to be" } else { "becomes" };
    let rule = if reason.rule.is_empty() { String::new() } else { format!(" ({})", reason.rule) };
    printable(&format!("{path} {verb} {to}: {}{rule}", sentence(reason)))
}

/// What a request has changed.
pub fn done(done: &Done) -> String {
    let mut text: String = done.changed.iter().map(|sentence| format!("{sentence}\n")).collect();
    if !done.needs_restart.is_empty() {
        text += &format!("after a restart of the agent only: {}\n", done.needs_restart.join(", "));
    }
    printable(&text)
}

fn rows(heading: &[&str], figures: Range<usize>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let heading: Vec<String> = heading.iter().map(|&name| name.into()).collect();
    table(&[heading].into_iter().chain(rows).collect::<Vec<_>>(), figures)
}

fn sentence(reason: &ReasonReport) -> String {
    if reason.text.is_empty() { "nothing is known yet".into() } else { reason.text.clone() }
}

fn figure(known: Option<f64>) -> String {
    known.map_or_else(|| "-".into(), |known| format!("{known:.1}"))
}

/// Bytes with the unit that fits; of powers of ten.
pub fn bytes(known: Option<u64>) -> String {
    match known {
        None => "-".into(),
        Some(bytes @ 0..1_000) => format!("{bytes} B"),
        Some(bytes @ 1_000..1_000_000) => format!("{:.1} kB", bytes as f64 / 1e3),
        Some(bytes @ 1_000_000..1_000_000_000) => format!("{:.1} MB", bytes as f64 / 1e6),
        Some(bytes) => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Without control characters, with which an agent that is none could write to the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '?' } else { letter }).collect()
}

#[cfg(test)]
#[path = "report_text/tests.rs"]
mod tests;
