//! Addresses, keys and configuration sections of the two endpoints of a drive's
//! tunnel.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crosslane_core::tunnel::Mode;
use crosslane_sim::addresses::unspecified;
use crosslane_sim::scenario::{Scenario, TunnelParams};
use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::program::this_program;
use crate::testbed;

/// The server's address inside the tunnel.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The vehicle's address inside the tunnel.
pub const VEHICLE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Prefix length of the network of both.
pub const PREFIX: u8 = 24;
/// Interface of the tunnel on both sides.
pub const INTERFACE: &str = "crosslane0";
/// UDP port of the gateway.
pub const PORT: u16 = 4760;
/// Endpoints by which keys are named.
pub const CLIENT: &str = "vehicle";
pub const GATEWAY: &str = "gateway";
/// Folder of the keys in the run's folder; removed when the run ends.
const KEYS: &str = "keys";

/// The keys of endpoints, in files that only this user can read. They are
/// removed on drop.
pub struct Keys {
    folder: PathBuf,
    /// The public keys, by endpoint.
    public: BTreeMap<String, String>,
}

impl Keys {
    /// Makes a key for each endpoint, in the folder of the run.
    pub fn make(run: &Path, endpoints: &[&str]) -> Result<Keys> {
        let folder = run.join(KEYS);
        // A run that was killed leaves its keys behind.
        let _ = std::fs::remove_dir_all(&folder);
        let created = DirBuilder::new().mode(0o700).create(&folder);
        created.map_err(|cause| Error::failure(format!("making {}", folder.display()), cause))?;
        let mut keys = Keys { folder, public: BTreeMap::new() };
        for endpoint in endpoints {
            let public = make_key(&keys.file(endpoint))?;
            keys.public.insert((*endpoint).to_owned(), public);
        }
        Ok(keys)
    }

    /// Public key of an endpoint.
    pub fn public(&self, endpoint: &str) -> &str {
        self.public.get(endpoint).map_or("", String::as_str)
    }

    /// File of the private key of an endpoint.
    pub fn file(&self, endpoint: &str) -> PathBuf {
        self.folder.join(format!("{endpoint}.key"))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // A failure cannot be reported here.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a private key in a new file and returns the public key.
fn make_key(file: &Path) -> Result<String> {
    let failure = |cause: &dyn std::fmt::Display| Error::failure("making a key of the tunnel", cause);
    let keygen = |mut program: Command| program.arg("keygen").arg("--out").arg(file).stdin(Stdio::null()).output();
    let output = this_program().and_then(keygen).map_err(|cause| failure(&cause))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().trim_start_matches("crosslane: ").to_string();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(failure(&text(&output.stderr))),
    }
}

/// `[tunnel]` of the vehicle's configuration; unencrypted without keys.
pub fn vehicle_config(scenario: &Scenario, params: &TunnelParams, keys: Option<&Keys>) -> Table {
    let mode = Value::try_from(params.mode).unwrap_or(Value::String(String::new()));
    let mut table = common(scenario, params, VEHICLE);
    table.insert("gateway".into(), SocketAddr::new(scenario.ip_version.server(), PORT).to_string().into());
    table.insert("mode".into(), mode);
    table.insert("encryption".into(), if keys.is_some() { "noise" } else { "none" }.into());
    if let Some(keys) = keys {
        table.insert("key".into(), keys.file(CLIENT).display().to_string().into());
        table.insert("gateway_key".into(), keys.public(GATEWAY).into());
    }
    table
}

/// `[tunnel]` of the gateway's configuration; unencrypted without keys.
pub fn gateway_config(scenario: &Scenario, params: &TunnelParams, keys: Option<&Keys>) -> Table {
    let mut vehicle = Table::from_iter([
        ("name".to_string(), Value::from("vehicle")),
        ("address".to_string(), Value::Array(vec![format!("{VEHICLE}/32").into()])),
    ]);
    let (mut table, listen) = (common(scenario, params, SERVER), unspecified(scenario.ip_version.server()));
    table.insert("listen".into(), SocketAddr::new(listen, PORT).to_string().into());
    match keys {
        Some(keys) => {
            table.insert("key".into(), keys.file(GATEWAY).display().to_string().into());
            vehicle.insert("key".into(), keys.public(CLIENT).into());
        }
        None => drop(table.insert("encryption".into(), "none".into())),
    }
    table.insert("vehicle".into(), Value::Array(vec![vehicle.into()]));
    table
}

/// Settings of both endpoints; those that the scenario does not set keep their
/// defaults.
fn common(scenario: &Scenario, params: &TunnelParams, address: Ipv4Addr) -> Table {
    let mut table = Table::from_iter([
        ("interface".to_string(), Value::from(INTERFACE)),
        ("address".to_string(), Value::Array(vec![format!("{address}/{PREFIX}").into()])),
    ]);
    let mtu = scenario.tunnel.mtu;
    if mtu != testbed::MTU {
        table.insert("mtu".into(), i64::from(mtu).into());
    }
    if params.mode == Mode::Adaptive {
        table.insert("late_ms".into(), i64::from(params.late_ms).into());
        table.insert("extra_bytes".into(), params.extra_bytes.into());
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
        let public = [(CLIENT, "VEHICLE"), (GATEWAY, "PUBLIC")];
        let public = public.map(|(endpoint, key)| (endpoint.to_owned(), key.to_owned())).into();
        Keys { folder: "/nowhere/keys".into(), public }
    }

    #[test]
    fn each_endpoint_has_its_own_key_and_the_peers_public_key() {
        let (params, keys) = (TunnelParams::default(), keys());
        let vehicle = vehicle_config(&scenario(), &params, Some(&keys));
        assert_eq!(vehicle["key"].as_str(), Some("/nowhere/keys/vehicle.key"));
        assert_eq!(vehicle["gateway_key"].as_str(), Some("PUBLIC"));
        assert_eq!(vehicle["gateway"].as_str(), Some("10.255.0.1:4760"));
        assert_eq!(vehicle["address"][0].as_str(), Some("10.77.0.2/24"));
        assert_eq!((vehicle["mode"].as_str(), vehicle["encryption"].as_str()), (Some("aggregate"), Some("noise")));
        let gateway = gateway_config(&scenario(), &params, Some(&keys));
        assert_eq!(gateway["key"].as_str(), Some("/nowhere/keys/gateway.key"));
        assert_eq!(gateway["vehicle"][0]["key"].as_str(), Some("VEHICLE"));
        assert_eq!(gateway["vehicle"][0]["address"][0].as_str(), Some("10.77.0.2/32"));
    }

    #[test]
    fn an_unencrypted_tunnel_has_no_keys() {
        let params = TunnelParams { encryption: Encryption::None, ..TunnelParams::default() };
        for table in [vehicle_config(&scenario(), &params, None), gateway_config(&scenario(), &params, None)] {
            assert_eq!(table["encryption"].as_str(), Some("none"));
            assert!(!table.contains_key("key") && !table.to_string().contains("key"));
        }
    }
}
