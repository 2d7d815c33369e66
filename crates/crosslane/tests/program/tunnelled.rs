//! A vehicle and its gateway, with the keys of their tunnel.

use std::net::{Ipv4Addr, Ipv6Addr};

use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed};
use crosslane::tunnel::security::PrivateKey;
use tempfile::TempDir;

use super::agent::Agent;
use super::links::{allow_ipv6, two_links, two_wires};

/// The gateway's inner addresses.
pub const INNER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const INNER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

/// A vehicle with `lte` and `its-g5`, a server that is the gateway, and their keys.
pub struct World {
    pub testbed: Testbed,
    _emulator: Option<Emulator>,
    workdir: TempDir,
    pub keys: Vec<PrivateKey>,
}

impl World {
    pub fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "its-g5"], 20.0, 5);
        World::of(testbed, Some(emulator))
    }

    /// Over two shaped veth links of this rate, each through a router.
    pub fn wired(mbit_s: f64) -> World {
        World::of(two_wires(["lte", "its-g5"], mbit_s), None)
    }

    fn of(testbed: Testbed, emulator: Option<Emulator>) -> World {
        allow_ipv6(&testbed);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let workdir = TempDir::new().unwrap();
        let keys: Vec<PrivateKey> = (0..3).map(|_| PrivateKey::generate().unwrap()).collect();
        for (place, key) in keys.iter().enumerate() {
            key.write(&workdir.path().join(format!("{place}.key"))).unwrap();
        }
        World { testbed, _emulator: emulator, workdir, keys }
    }

    fn key_file(&self, place: usize) -> String {
        self.workdir.path().join(format!("{place}.key")).display().to_string()
    }

    /// Configuration of the gateway.
    pub fn gateway(&self) -> String {
        let vehicle = |place: usize| {
            let (name, key) = (["", "car", "van"][place], self.keys[place].public());
            let last = place + 1;
            format!(
                "[[tunnel.vehicle]]\nname = \"{name}\"\nkey = \"{key}\"\n\
                 address = [\"10.77.0.{last}/32\", \"fd77::{last}/128\"]\n"
            )
        };
        let key = self.key_file(0);
        format!(
            "[log]\nevents = \"EVENTS\"\n[tunnel]\naddress = [\"{INNER}/24\", \"{INNER_V6}/64\"]\n\
             listen = \"{SERVER}:4760\"\nkey = \"{key}\"\n{}{}",
            vehicle(1),
            vehicle(2)
        )
    }

    /// Configuration of vehicle 1 or 2 with these paths.
    pub fn vehicle(&self, place: usize, paths: &[&str]) -> String {
        let path = |name: &&str| format!("[[path]]\nname = \"{name}\"\nrat = \"lte\"\n");
        let (key, gateway, last) = (self.key_file(place), self.keys[0].public(), place + 1);
        format!(
            "{}[strategy]\nname = \"threshold\"\n[log]\nevents = \"EVENTS\"\n[tunnel]\ninterface = \"crosslane{place}\"\n\
             address = [\"10.77.0.{last}/24\", \"fd77::{last}/64\"]\ngateway = \"{SERVER}:4760\"\nkey = \"{key}\"\n\
             gateway_key = \"{gateway}\"\n",
            paths.iter().map(path).collect::<String>()
        )
    }

    /// Starts the gateway, and the vehicle with both paths.
    pub fn start(&self) -> (Agent, Agent) {
        (self.start_gateway(), self.start_vehicle())
    }

    pub fn start_gateway(&self) -> Agent {
        Agent::start(&self.testbed.server, &self.gateway())
    }

    pub fn start_vehicle(&self) -> Agent {
        Agent::start(&self.testbed.vehicle, &self.vehicle(1, &["lte", "its-g5"]))
    }
}

/// Reasons of the `fault` events.
pub fn faults(events: &str) -> Vec<String> {
    let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let faults = events.filter(|event| event["event"] == "fault");
    faults.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}
