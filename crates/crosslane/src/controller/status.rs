//! Status of a running controller (`docs/reference/controller.md`), and the command that shows it.

use serde::{Deserialize, Serialize};

use crate::control::client::query;
use crate::error::{Error, Result};
use crate::output;

/// Name of the control socket: one controller in a network namespace, as its routes are.
pub const SOCKET: &str = "@crosslane-controller";

/// Status of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where it listens.
    pub listen: String,
    /// Its public key.
    pub public_key: String,
    /// Time since its start.
    pub up_s: f64,
    /// `routes` or `openflow`.
    pub redirect: String,
    /// Whether the back end of the redirections answers.
    pub redirector_answers: bool,
    /// The units of the configuration.
    pub units: Vec<UnitStatus>,
    /// The vehicles of the configuration.
    pub vehicles: Vec<VehicleStatus>,
    /// What was refused since the start.
    pub refused: Refused,
}

/// Status of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its name.
    pub name: String,
    /// Its station id.
    pub station: u32,
    /// Whether it is connected.
    pub connected: bool,
    /// Where it connects from, if it is connected.
    pub peer: Option<String>,
    /// Number of vehicles that it serves.
    pub serves: usize,
}

/// Status of a vehicle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VehicleStatus {
    /// Its name.
    pub name: String,
    /// Its station id.
    pub station: u32,
    /// Its home address.
    pub home: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Name of the unit that serves it.
    pub serving: Option<String>,
    /// Since when, in seconds before now.
    pub serving_s: Option<f64>,
    /// What units report of it.
    pub units: Vec<SightStatus>,
}

/// What a unit reports of a vehicle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SightStatus {
    /// Name of the unit.
    pub unit: String,
    /// Time since the last report.
    pub ago_s: f64,
    /// Smoothed RSSI, in dBm; `None`: no CAM was received.
    pub rssi_dbm: Option<f32>,
    /// Position of the vehicle's last CAM: latitude and longitude, in degrees.
    pub position_deg: Option<(f64, f64)>,
    /// Whether the tunnel stands.
    pub has_tunnel: bool,
    /// Whether it carries packets.
    pub carries: bool,
}

/// What was refused since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Connections before the handshake: too many at once.
    pub limited: u64,
    /// Connections whose handshake was forged, damaged or late.
    pub forged: u64,
    /// Connections with a key that is not in the configuration.
    pub unknown_key: u64,
    /// Connections with another version of the messages.
    pub version: u64,
    /// Connections of peers that said other than the configuration.
    pub contradicting: u64,
    /// Connections closed for what is no message.
    pub malformed: u64,
    /// Reports of unknown vehicles, or beyond the limits.
    pub reports: u64,
}

/// The status of the controller in this network namespace.
///
/// # Errors
/// None runs, or it does not answer.
pub fn query_controller() -> Result<Status> {
    query(SOCKET, "querying the controller", "start `crosslane controller --config FILE`", b"{}\n")
}

/// Prints the status.
///
/// # Errors
/// None runs, or it does not answer.
pub fn run(json: bool) -> Result<()> {
    let attempt = "printing the controller's status";
    let status = query_controller()?;
    let shown = match json {
        true => serde_json::to_string(&status).map_err(|cause| Error::failure(attempt, cause))? + "\n",
        false => text(&status),
    };
    output::print(attempt, shown)
}

fn text(status: &Status) -> String {
    let Status { listen, redirect, up_s, units, vehicles, refused, .. } = status;
    let answers = if status.redirector_answers { "" } else { ", which does not answer" };
    let mut text = format!("controller at {listen}, up for {up_s:.0} s, leads by {redirect}{answers}\n\n");
    let heading = ["unit", "station", "connected from", "serves"].map(str::to_owned);
    let row = |unit: &UnitStatus| {
        let peer = unit.peer.clone().unwrap_or_else(|| "-".into());
        [unit.name.clone(), unit.station.to_string(), peer, unit.serves.to_string()]
    };
    text += &output::table(&[heading].into_iter().chain(units.iter().map(row)).collect::<Vec<_>>(), 3..4);
    let heading = ["vehicle", "home address", "serving", "for s", "reported by"].map(str::to_owned);
    let row = |vehicle: &VehicleStatus| {
        let figure = |known: Option<f64>| known.map_or_else(|| "-".into(), |known| format!("{known:.1}"));
        let serving = vehicle.serving.clone().unwrap_or_else(|| "-".into());
        let sights: Vec<String> = vehicle.units.iter().map(sight).collect();
        let (name, home) = (vehicle.name.clone(), vehicle.home.clone());
        [name, home, serving, figure(vehicle.serving_s), sights.join(", ")]
    };
    let rows: Vec<_> = [heading].into_iter().chain(vehicles.iter().map(row)).collect();
    let Refused { limited, forged, unknown_key, version, contradicting, malformed, reports } = refused;
    text + "\n"
        + &output::table(&rows, 3..4)
        + &format!(
            "\nrefused: {limited} beyond the limits, {forged} forged, {unknown_key} of unknown keys, {version} of another \
             version, {contradicting} unlike the configuration, {malformed} malformed, {reports} reports\n"
        )
}

fn sight(of: &SightStatus) -> String {
    let rssi = of.rssi_dbm.map(|rssi| format!(" {rssi:.0} dBm")).unwrap_or_default();
    let tunnel = match (of.has_tunnel, of.carries) {
        (false, _) => "no tunnel",
        (true, false) => "tunnel",
        (true, true) => "carries",
    };
    format!("{}{rssi} {tunnel}", of.unit)
}
