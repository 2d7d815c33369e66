//! What a running agent reports of itself (`docs/reference/control-socket.md`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crosslane_core::allocate::Mode;
use crosslane_core::reason::Reason;
use serde::{Deserialize, Serialize};

use super::status::{PathStatus, Status, UnitStatus};

/// The class of connections to which no class of the configuration applies.
pub const DEFAULT_CLASS: &str = "default";

/// The agent's answer to a request about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// How it is.
    Status(Box<AgentStatus>),
    /// A part of its connections.
    Connections(ConnectionPage),
    /// Why a path or a connection is as it is.
    Explanation(Explanation),
    /// What a request has changed.
    Done(Done),
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Its configuration file.
    pub configuration: String,
    /// Time since its start.
    pub uptime_s: f64,
    /// Processor time of the longest answer to a request: so long its loop did nothing else. 0 before the second one.
    #[serde(default)]
    pub longest_answer_ms: f64,
    /// Its strategy; `None` on a gateway, whose vehicles decide.
    pub strategy: Option<String>,
    /// What the tree is that orders the paths, if there is one.
    #[serde(default)]
    pub tree: Option<String>,
    /// How the paths are used together.
    pub mode: Mode,
    /// The path that a user has requested, if there is one.
    pub preferred: Option<PreferredPath>,
    /// Number of connections that it manages.
    pub connections: usize,
    /// The paths, in the order of the configuration; those to roadside units last.
    pub paths: Vec<PathReport>,
    /// Its tunnel, if it runs.
    pub tunnel: Option<TunnelSummary>,
    /// The roadside units in reach.
    pub units: Vec<UnitStatus>,
    /// What does not work now, a sentence each.
    pub problems: Vec<String>,
    /// The last changes of the paths, the oldest first.
    pub changes: Vec<ChangeReport>,
}

/// A path that carries alone while it is good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreferredPath {
    /// Its name.
    pub path: String,
    /// For how long; `None`: until another request.
    pub remaining_s: Option<f64>,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Its name.
    pub path: String,
    /// Its interface.
    pub interface: String,
    /// Its present address, also while the interface is down.
    pub address: Option<String>,
    /// Its place in the user's preference, 1 first.
    pub preference: u16,
    /// Its wanted state: `active`, `backup` or `closed`.
    pub state: String,
    /// Time since the state changed, or since the start.
    pub state_since_s: f64,
    /// The reason of that change.
    pub state_reason: ReasonReport,
    /// What the agent believes of it: `unknown`, `good`, `fading`, `lost` or `stalled`.
    pub belief: String,
    /// Time since the belief changed, or since the start.
    pub belief_since_s: f64,
    /// The reason of that change.
    pub belief_reason: ReasonReport,
    /// The last received signal, in dBm, and its age.
    pub signal_dbm: Option<f64>,
    /// Time since that signal.
    pub signal_age_s: Option<f64>,
    /// Where it comes from: `vanetza`, `nl80211` or `ModemManager`.
    pub signal_source: Option<String>,
    /// Rates and failures of its radio link, if they are known.
    pub radio: Option<RadioReport>,
    /// Smoothed RTT of the subflow, or of the tunnel, that was measured last.
    pub rtt_ms: Option<f64>,
    /// Number of connections with a subflow over it.
    pub connections: usize,
    /// Bytes that its interface has sent, of all programs; `None`: there is no interface.
    pub sent_bytes: Option<u64>,
    /// Bytes that its interface has received.
    pub received_bytes: Option<u64>,
    /// What its network does to MPTCP, if it does not let it pass.
    #[serde(default)]
    pub network: Option<ReasonReport>,
    /// Its data volume, if that is limited.
    pub volume: Option<VolumeReport>,
    /// The echo requests over it, if any are sent.
    #[serde(default)]
    pub echo: Option<EchoReport>,
}

/// The echo requests over a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoReport {
    /// IP bytes of the requests since the start.
    pub sent_bytes: u64,
    /// IP bytes of the answers.
    pub received_bytes: u64,
    /// RTT of the last one that was answered.
    pub rtt_ms: Option<f64>,
    /// Time since that answer.
    pub answered_s: Option<f64>,
}

/// The data volume of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// `available`, `scarce` or `exhausted`.
    pub level: String,
    /// The limited periods, that of which least is left first.
    pub periods: Vec<VolumePeriodReport>,
}

/// A period of which the data volume is limited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumePeriodReport {
    /// `day` or `month`.
    pub period: String,
    /// Bytes sent and received in it.
    pub used_bytes: u64,
    /// Bytes from which on the path is spared.
    pub soft_bytes: u64,
    /// Bytes from which on it carries nothing.
    pub limit_bytes: u64,
    /// Date on which the next one begins.
    pub resets: String,
}

/// Rates and failures of a radio link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RadioReport {
    /// PHY rate of the last transmission.
    pub tx_mbit_s: Option<f64>,
    /// PHY rate of the last reception.
    pub rx_mbit_s: Option<f64>,
    /// Retransmissions of frames since the link began.
    pub retries: Option<u32>,
    /// Frames given up since the link began.
    pub failures: Option<u32>,
    /// Time since these figures.
    pub age_s: f64,
}

/// A reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReasonReport {
    /// The rule that applied; empty before the first.
    pub rule: String,
    /// A sentence with the figures.
    pub text: String,
    /// The figures by name, with the unit as suffix.
    pub inputs: BTreeMap<String, Option<f64>>,
}

impl From<&Reason> for ReasonReport {
    fn from(reason: &Reason) -> ReasonReport {
        let inputs = reason.inputs.iter().map(|(name, value)| ((*name).into(), Some(*value))).collect();
        ReasonReport { rule: reason.rule.into(), text: reason.text(), inputs }
    }
}

/// A tunnel, in short; its [`Status`] has the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelSummary {
    /// Its interface.
    pub interface: String,
    /// `vehicle` or `gateway`.
    pub role: String,
    /// Whether what it sends is encrypted.
    pub encrypted: bool,
    /// Number of peers: a vehicle's gateway, a gateway's vehicles.
    pub peers: usize,
    /// Peers from which a packet has arrived within the last 10 s.
    pub peers_seen: usize,
    /// Of a vehicle, its paths; a gateway may have thousands.
    #[serde(default)]
    pub paths: Vec<PathStatus>,
}

/// A peer from which nothing has arrived for this time is not seen, in s.
const SEEN_S: f64 = 10.0;

impl From<&Status> for TunnelSummary {
    fn from(status: &Status) -> TunnelSummary {
        let is_seen = |seen: Option<f64>| seen.is_some_and(|ago_s| ago_s < SEEN_S);
        let of_vehicle = status.peers.iter().filter(|_| status.role == "vehicle");
        TunnelSummary {
            interface: status.interface.clone(),
            role: status.role.clone(),
            encrypted: status.encrypted,
            peers: status.peers.len(),
            peers_seen: status.peers.iter().filter(|peer| is_seen(peer.last_seen_s)).count(),
            paths: of_vehicle.flat_map(|gateway| gateway.paths.clone()).collect(),
        }
    }
}

/// A change of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Counts the changes of all paths since the agent's start, from 1.
    pub number: u64,
    /// Time since the change.
    pub ago_s: f64,
    /// The path.
    pub path: String,
    /// `state` or `belief`.
    pub of: String,
    /// The new state or belief.
    pub to: String,
    /// The reason.
    pub reason: ReasonReport,
}

/// A part of the connections, in the order of their tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionPage {
    /// The connections.
    pub connections: Vec<ConnectionReport>,
    /// The token after which the next part begins; `None`: this is the last part.
    pub next: Option<TokenName>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Its token.
    pub token: TokenName,
    /// Its class; `default`: as `[service]` has it.
    pub class: String,
    /// The peer's address and port.
    pub peer: Option<String>,
    /// Whether this machine accepted it.
    pub accepted: bool,
    /// Whether the in-kernel path manager manages it.
    pub is_foreign: bool,
    /// Its subflows.
    pub subflows: Vec<SubflowReport>,
}

/// A subflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubflowReport {
    /// Its path.
    pub path: String,
    /// Local address and port.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// `active`, `backup`, or `closed` while it is being closed.
    pub state: String,
    /// Time since it was opened, or found by the agent.
    pub open_s: f64,
    /// Its smoothed RTT.
    pub rtt_ms: Option<f64>,
    /// Bytes acknowledged by the peer, and bytes received; `None` until they are measured.
    pub acked_bytes: Option<u64>,
    /// Bytes received.
    pub received_bytes: Option<u64>,
}

/// Why a path or a connection is as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Explanation {
    /// Of a path.
    Path {
        /// The path.
        status: Box<PathReport>,
        /// What speaks for it now.
        r#for: Vec<ReasonReport>,
        /// What speaks against it now.
        against: Vec<ReasonReport>,
        /// Its last changes, the oldest first.
        changes: Vec<ChangeReport>,
        /// What the tree is that orders the paths, if there is one.
        #[serde(default)]
        tree: Option<String>,
    },
    /// Of a connection.
    Connection {
        /// The connection.
        status: Box<ConnectionReport>,
        /// How it uses each path.
        paths: Vec<PathUseReport>,
        /// What happened last to it, the oldest first.
        #[serde(default)]
        changes: Vec<ConnectionChangeReport>,
    },
}

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionChangeReport {
    /// Time since it happened, the last time.
    pub ago_s: f64,
    /// The path of the subflow; `None`: it concerns the whole connection.
    pub path: Option<String>,
    /// Its kind: `began`, `found`, `opened`, `not_opened`, `refused`, `set`, `set_by_peer`, `closed`, `ended`, `full`
    /// or `left`.
    pub what: String,
    /// How many times, with nothing else on that path in between.
    pub times: u16,
    /// A sentence, with the reason.
    pub text: String,
}

/// How a connection uses a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathUseReport {
    /// The path.
    pub path: String,
    /// The state that is wanted: `active`, `backup` or `closed`.
    pub wanted_state: String,
    /// The state of its subflow; `closed`: there is none.
    pub state: String,
    /// The reason of the wanted state.
    pub wanted_reason: ReasonReport,
    /// Why it is not as wanted; `None`: it is.
    pub reason: Option<ReasonReport>,
}

/// What a request has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// What is different now, a sentence each.
    pub changed: Vec<String>,
    /// Keys of the configuration that differ in the file and need a restart.
    pub needs_restart: Vec<String>,
}

/// The token of a connection, as `ip mptcp monitor` prints it: eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TokenName(pub u32);

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for TokenName {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenName, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let is_token = (1..=8).contains(&digits.len()) && digits.chars().all(|digit| digit.is_ascii_hexdigit());
        let token = is_token.then(|| u32::from_str_radix(digits, 16).ok()).flatten();
        token.map(TokenName).ok_or_else(|| format!("{text:?} is no token of a connection"))
    }
}

impl From<TokenName> for String {
    fn from(token: TokenName) -> String {
        token.to_string()
    }
}

impl TryFrom<String> for TokenName {
    type Error = String;

    fn try_from(text: String) -> Result<TokenName, String> {
        text.parse()
    }
}
