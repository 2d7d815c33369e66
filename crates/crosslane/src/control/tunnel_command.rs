//! `crosslane tunnel`: shows and controls the tunnel of a running agent.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use crosslane_core::tunnel::Mode;

use super::client::{default_name, query_tunnel};
use super::status::{PathStatus, PeerStatus, Status, Tunnels, UnitStatus};
use crate::error::{Error, Result};
use crate::output;

/// The subcommand.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the status of the tunnel, and of the tunnels to roadside units.
    Status(Options),
    /// Change how a vehicle's tunnel uses its paths, at once and until its agent restarts; its gateway
    /// follows.
    Mode {
        /// The mode.
        #[arg(value_parser = modes())]
        mode: Mode,
        /// Which tunnel.
        #[command(flatten)]
        options: Options,
    },
}

/// Selects the tunnel and the output format.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The tunnel's interface, or `roadside` for an agent with tunnels to roadside units only; default:
    /// crosslane0, else roadside.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Print the status as JSON.
    #[arg(long)]
    json: bool,
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    let named = |name: String| Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or("there is no such mode");
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(named)
}

/// Sends the request to the agent and prints the reply.
///
/// # Errors
/// One error message with the remedy: no agent has that tunnel, or it rejects the request.
pub fn run(command: &Command) -> Result<()> {
    let (mode, options) = match command {
        Command::Status(options) => (None, options),
        Command::Mode { mode, options } => (Some(*mode), options),
    };
    let attempt = "printing the tunnel's status";
    let interface = options.interface.clone().map_or_else(default_name, Ok)?;
    let status = query_tunnel(&interface, mode)?;
    let shown = match options.json {
        true => serde_json::to_string(&status).map_err(|cause| Error::failure(attempt, cause))? + "\n",
        false => all_text(&status),
    };
    output::print(attempt, shown)
}

fn all_text(tunnels: &Tunnels) -> String {
    let mut texts: Vec<String> = tunnels.tunnel.iter().map(text).collect();
    if tunnels.tunnel.is_none() || !tunnels.units.is_empty() {
        texts.push(units_text(&tunnels.units));
    }
    texts.join("\n")
}

fn units_text(units: &[UnitStatus]) -> String {
    if units.is_empty() {
        return "roadside units: none in reach\n".into();
    }
    let heading = UNIT_HEADING.map(str::to_owned);
    let rows: Vec<_> = [heading].into_iter().chain(units.iter().map(unit_row)).collect();
    output::table(&rows, UNIT_FIGURES)
}

const UNIT_COLUMNS: usize = 11;
const UNIT_HEADING: [&str; UNIT_COLUMNS] = [
    "unit",
    "tunnel",
    "belief",
    "liveness",
    "station",
    "slot",
    "RSSI dBm",
    "last CAM s",
    "min RTT ms",
    "sent bytes",
    "received bytes",
];
const UNIT_FIGURES: std::ops::Range<usize> = 4..UNIT_COLUMNS;

fn unit_row(unit: &UnitStatus) -> [String; UNIT_COLUMNS] {
    let number = |known: Option<u64>| known.map_or_else(|| "-".into(), |known| known.to_string());
    [
        unit.name.clone(),
        if unit.has_tunnel { unit.kind.clone() } else { "-".into() },
        unit.belief.clone(),
        unit.liveness.clone().unwrap_or_else(|| "-".into()),
        unit.station.to_string(),
        number(unit.slot.map(u64::from)),
        format!("{:.1}", unit.rssi_dbm),
        format!("{:.1}", unit.last_cam_s),
        unit.min_rtt_ms.map_or_else(|| "-".into(), |rtt| format!("{rtt:.1}")),
        number(unit.sent_bytes),
        number(unit.received_bytes),
    ]
}

fn text(status: &Status) -> String {
    let Status { interface, role, encrypted, mtu_bytes, peers } = status;
    let protection = if *encrypted { "encrypted" } else { "unencrypted" };
    let mut text = format!("{interface}: {role}, {protection}, MTU {mtu_bytes}\n");
    peers.iter().for_each(|peer| text += &peer_text(peer));
    text
}

fn peer_text(peer: &PeerStatus) -> String {
    let address = peer.address.iter().map(|address| format!(" {address}")).collect::<String>();
    let last_seen = match peer.last_seen_s {
        Some(ago_s) => format!("last seen {ago_s:.1} s ago"),
        None => "never seen".into(),
    };
    let mut text = format!("\n{}{address}: {}, {last_seen}\n", peer.name, peer.mode.name());
    text.extend(peer.problem.iter().map(|problem| format!("problem: {problem}\n")));
    if !peer.paths.is_empty() {
        let heading = HEADING.map(str::to_owned);
        let rows: Vec<_> = [heading].into_iter().chain(peer.paths.iter().map(row)).collect();
        text += &output::table(&rows, FIGURES);
    }
    text
}

const COLUMNS: usize = 12;
/// Texts are aligned left, figures right; sentences are last.
const HEADING: [&str; COLUMNS] = [
    "path",
    "wanted",
    "liveness",
    "Mbit/s",
    "min RTT ms",
    "loss %",
    "sent bytes",
    "of control",
    "of copies",
    "packets lost",
    "reason",
    "carries",
];
const FIGURES: std::ops::Range<usize> = 3..10;

fn row(path: &PathStatus) -> [String; COLUMNS] {
    let figure = |known: Option<f64>| known.map_or_else(|| "-".into(), |known| format!("{known:.1}"));
    [
        path.path.clone(),
        path.wanted_state.clone(),
        path.liveness.clone(),
        figure(path.rate_mbit_s),
        figure(path.min_rtt_ms),
        figure(Some(path.loss * 100.0)),
        path.sent_bytes.to_string(),
        path.control_bytes.to_string(),
        path.copied_bytes.to_string(),
        path.lost.to_string(),
        path.reason.clone(),
        path.carries.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_marks_unknown_figures() {
        let path = |path: &str, rate_mbit_s, lost| PathStatus {
            path: path.into(),
            wanted_state: "active".into(),
            liveness: "up".into(),
            reason: "it answers".into(),
            carries: "a copy of each packet".into(),
            rate_mbit_s,
            min_rtt_ms: Some(10.25),
            loss: 0.021,
            sent_bytes: 123_456,
            control_bytes: 2345,
            copied_bytes: 678,
            delivered: 90,
            lost,
        };
        let paths = vec![path("lte", Some(19.84), 7), path("its-g5", None, 12345)];
        let gateway = PeerStatus {
            name: "gateway".into(),
            address: Some("192.0.2.1:4760".into()),
            mode: Mode::CheapestFirst,
            mtu_bytes: 1441,
            problem: None,
            last_seen_s: Some(0.04),
            paths,
        };
        let van = PeerStatus {
            name: "van".into(),
            address: None,
            problem: Some("its key".into()),
            last_seen_s: None,
            paths: vec![],
            ..gateway.clone()
        };
        let status = Status {
            interface: "crosslane0".into(),
            role: "vehicle".into(),
            encrypted: true,
            mtu_bytes: 1441,
            peers: vec![gateway, van],
        };
        let expected = "\
crosslane0: vehicle, encrypted, MTU 1441

gateway 192.0.2.1:4760: cheapest-first, last seen 0.0 s ago
path    wanted  liveness  Mbit/s  min RTT ms  loss %  sent bytes  of control  of copies  packets lost  reason      carries
lte     active  up          19.8        10.2     2.1      123456        2345        678             7  it answers  a copy of each packet
its-g5  active  up             -        10.2     2.1      123456        2345        678         12345  it answers  a copy of each packet

van: cheapest-first, never seen
problem: its key
";
        assert_eq!(text(&status), expected);
        assert_eq!(all_text(&Tunnels { tunnel: Some(status), units: vec![] }), expected);
    }

    #[test]
    fn a_unit_without_a_slot_has_no_tunnel_and_no_figures_of_one() {
        let tunnelled = UnitStatus {
            name: "rsu1".into(),
            station: 1001,
            slot: Some(0),
            kind: "crosslane".into(),
            belief: "good".into(),
            rssi_dbm: -71.26,
            last_cam_s: 0.04,
            has_tunnel: true,
            liveness: Some("up".into()),
            min_rtt_ms: Some(4.2),
            sent_bytes: Some(1400),
            received_bytes: Some(52),
        };
        let waiting = UnitStatus {
            name: "rsu2".into(),
            slot: None,
            belief: "unknown".into(),
            has_tunnel: false,
            liveness: None,
            min_rtt_ms: None,
            sent_bytes: None,
            received_bytes: None,
            ..tunnelled.clone()
        };
        let expected = "\
unit  tunnel     belief   liveness  station  slot  RSSI dBm  last CAM s  min RTT ms  sent bytes  received bytes
rsu1  crosslane  good     up           1001     0     -71.3         0.0         4.2        1400              52
rsu2  -          unknown  -            1001     -     -71.3         0.0           -           -               -
";
        assert_eq!(all_text(&Tunnels { tunnel: None, units: vec![tunnelled, waiting] }), expected);
        assert_eq!(all_text(&Tunnels { tunnel: None, units: vec![] }), "roadside units: none in reach\n");
    }
}
