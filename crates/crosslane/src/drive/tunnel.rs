//! What the two ends of a drive's tunnel are told: addresses, keys, and their
//! part of the agents' configurations.

use std::fs::DirBuilder;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crosslane_sim::scenario::{Scenario, TunnelParams};
use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::testbed;

/// The server's address inside the tunnel.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The vehicle's.
pub const VEHICLE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The network of both.
pub const PREFIX: u8 = 24;
/// Interface of the tunnel on either side.
pub const INTERFACE: &str = "crosslane0";
/// UDP port of the gateway.
const PORT: u16 = 4760;
/// Folder of the keys in that of the run; it goes when the run ends.
const KEYS: &str = "keys";

/// The keys of both ends, in files that nobody else may read. They go when
/// this is dropped.
pub struct Keys {
    folder: PathBuf,
    /// Public key of the vehicle.
    vehicle: String,
    /// Public key of the gateway.
    gateway: String,
}

impl Keys {
    /// Makes fresh keys in the folder of a run.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn make(run: &Path) -> Result<Keys> {
        let folder = run.join(KEYS);
        // A run that was killed leaves its own.
        let _ = std::fs::remove_dir_all(&folder);
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|cause| Error::failure(format!("making {}", folder.display()), cause))?;
        let mut keys = Keys { folder, vehicle: String::new(), gateway: String::new() };
        keys.vehicle = make_key(&keys.file("vehicle"))?;
        keys.gateway = make_key(&keys.file("gateway"))?;
        Ok(keys)
    }

    fn file(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{end}.key"))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Makes a private key in a new file and returns the public one.
fn make_key(file: &Path) -> Result<String> {
    let failure = |cause: &dyn std::fmt::Display| Error::failure("making a key of the tunnel", cause);
    let program = std::env::current_exe().map_err(|cause| failure(&cause))?;
    let said = Command::new(program).arg("keygen").arg("--out").arg(file).stdin(Stdio::null()).output();
    let said = said.map_err(|cause| failure(&cause))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().trim_start_matches("crosslane: ").to_string();
    match said.status.success() {
        true => Ok(text(&said.stdout)),
        false => Err(failure(&text(&said.stderr))),
    }
}

/// `[tunnel]` of the vehicle's configuration; without keys in the clear.
pub fn of_vehicle(scenario: &Scenario, params: &TunnelParams, keys: Option<&Keys>) -> Table {
    let mode = Value::try_from(params.mode).unwrap_or(Value::String(String::new()));
    let mut table = common(scenario, VEHICLE);
    table.insert("gateway".into(), format!("{}:{PORT}", testbed::SERVER).into());
    table.insert("mode".into(), mode);
    table.insert("encryption".into(), if keys.is_some() { "noise" } else { "none" }.into());
    if let Some(keys) = keys {
        table.insert("key".into(), keys.file("vehicle").display().to_string().into());
        table.insert("gateway_key".into(), keys.gateway.as_str().into());
    }
    table
}

/// `[tunnel]` of the gateway's configuration; without keys in the clear.
pub fn of_gateway(scenario: &Scenario, keys: Option<&Keys>) -> Table {
    let mut vehicle = Table::from_iter([
        ("name".to_string(), Value::from("vehicle")),
        ("address".to_string(), Value::Array(vec![format!("{VEHICLE}/32").into()])),
    ]);
    let mut table = common(scenario, SERVER);
    table.insert("listen".into(), format!("0.0.0.0:{PORT}").into());
    match keys {
        Some(keys) => {
            table.insert("key".into(), keys.file("gateway").display().to_string().into());
            vehicle.insert("key".into(), keys.vehicle.as_str().into());
        }
        None => drop(table.insert("encryption".into(), "none".into())),
    }
    table.insert("vehicle".into(), Value::Array(vec![vehicle.into()]));
    table
}

/// What both ends are told; what the scenario leaves open is theirs to choose.
fn common(scenario: &Scenario, address: Ipv4Addr) -> Table {
    let mut table = Table::from_iter([
        ("interface".to_string(), Value::from(INTERFACE)),
        ("address".to_string(), Value::Array(vec![format!("{address}/{PREFIX}").into()])),
    ]);
    let wanted = &scenario.tunnel;
    if wanted.mtu != testbed::MTU {
        table.insert("mtu".into(), i64::from(wanted.mtu).into());
    }
    table
}

#[cfg(test)]
mod tests {
    use crosslane_core::tunnel::Encryption;

    use super::*;
    use crate::scenario_file;

    fn scenario() -> Scenario {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tunnel/equal-60-60.toml"));
        scenario_file::read(file, None).unwrap()
    }

    fn keys() -> Keys {
        Keys { folder: "/nowhere/keys".into(), vehicle: "VEHICLE".into(), gateway: "GATEWAY".into() }
    }

    #[test]
    fn each_end_is_told_its_own_key_and_the_public_one_of_the_other() {
        let (params, keys) = (TunnelParams::default(), keys());
        let vehicle = of_vehicle(&scenario(), &params, Some(&keys));
        assert_eq!(vehicle["key"].as_str(), Some("/nowhere/keys/vehicle.key"));
        assert_eq!(vehicle["gateway_key"].as_str(), Some("GATEWAY"));
        assert_eq!(vehicle["gateway"].as_str(), Some("10.255.0.1:4760"));
        assert_eq!(vehicle["address"][0].as_str(), Some("10.77.0.2/24"));
        assert_eq!((vehicle["mode"].as_str(), vehicle["encryption"].as_str()), (Some("aggregate"), Some("noise")));
        let gateway = of_gateway(&scenario(), Some(&keys));
        assert_eq!(gateway["key"].as_str(), Some("/nowhere/keys/gateway.key"));
        assert_eq!(gateway["vehicle"][0]["key"].as_str(), Some("VEHICLE"));
        assert_eq!(gateway["vehicle"][0]["address"][0].as_str(), Some("10.77.0.2/32"));
    }

    #[test]
    fn a_tunnel_in_the_clear_has_no_keys() {
        let params = TunnelParams { encryption: Encryption::None, ..TunnelParams::default() };
        for table in [of_vehicle(&scenario(), &params, None), of_gateway(&scenario(), None)] {
            assert_eq!(table["encryption"].as_str(), Some("none"));
            assert!(!table.contains_key("key") && !table.to_string().contains("key"));
        }
    }
}
