//! A vehicle, two roadside units and a gateway each with an agent, and what a controller is
//! for a unit: it accepts the connection, announces a vehicle, and keeps the reports.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use crosslane::clock::Clock;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::roadside::channel::{INITIATION_BYTES, respond};
use crosslane::testbed::emulator::{Control, EmulatedLink, Emulator};
use crosslane::testbed::{Namespace, PathPlan, RadioPlan, Route, Testbed, TestbedPlan, Wiring, unit_address};
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::link::ieee80211p::PhyRate;
use crosslane_core::link::{Bottleneck, Channel, DirectionParams, Link, Loss, QueueLimit};
use crosslane_core::roadside::messages::{Announcement, MAX_REPORT_BYTES, Report, VehicleEntry};
use tempfile::TempDir;

use super::CROSSLANE;
use super::agent::Agent;

/// Station ids of the units.
pub const STATIONS: [u32; 2] = [1001, 1002];
/// The vehicle's entry at the controller.
pub const VEHICLE: VehicleEntry = VehicleEntry { station: 2007, host: 7, home: HOME };
/// The vehicle's home address.
pub const HOME: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);
/// Delay of the air in each direction.
pub const AIR_DELAY: Duration = Duration::from_millis(1);
/// Longest wait for what should happen within a second or two.
const TIMEOUT: Duration = Duration::from_secs(20);

const CONTROLLER: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);
const CONTROLLER_PORT: u16 = 4761;

pub fn name(unit: usize) -> String {
    format!("rsu{}", unit + 1)
}

/// The unit's address on the backhaul.
pub fn backhaul(unit: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 90, 0, 11 + unit as u8)
}

/// An address in the unit's prefix.
pub fn inner(unit: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 81 + unit as u8, 0, host)
}

/// Everything but the agents.
pub struct World {
    pub testbed: Testbed,
    pub air: Control,
    pub keys: Keys,
    _emulator: Emulator,
}

/// Key files of the vehicle, the units and the controller.
pub struct Keys(TempDir);

impl Keys {
    fn make() -> Keys {
        let keys = Keys(TempDir::new().unwrap());
        for name in ["vehicle", "rsu1", "rsu2", "controller"] {
            PrivateKey::generate().unwrap().write(&keys.0.path().join(name)).unwrap();
        }
        keys
    }

    pub fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub fn private(&self, name: &str) -> PrivateKey {
        PrivateKey::read(&self.0.path().join(name)).unwrap()
    }

    pub fn public(&self, name: &str) -> String {
        self.private(name).public().to_string()
    }
}

impl World {
    /// Both units are in reach, over a radio that loses nothing.
    pub fn new() -> World {
        let names = [name(0), name(1)];
        let plan = |(metric, name): (usize, &String)| PathPlan { name: name.clone(), metric: metric as u32 };
        let plans: Vec<_> = names.iter().enumerate().map(plan).collect();
        let radio = RadioPlan { interface: "its-g5".into(), units: names.clone().into() };
        let plan = TestbedPlan { radio: Some(radio), ..TestbedPlan::default() };
        let mut testbed = Testbed::with(&plans, &plan).unwrap();
        let link = Link::shared(1, "its-g5", names.iter().map(|name| (name.as_str(), [air(), air()])));
        let links = vec![EmulatedLink { devices: testbed.take_devices(), link }];
        let emulator = Emulator::start(Clock::start(), links, None).unwrap();
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let world = World { testbed, air: emulator.control(), keys: Keys::make(), _emulator: emulator };
        world.connect();
        world
    }

    /// The backhaul: an address for each unit, one for the controller, and routes between them.
    fn connect(&self) {
        let host = |to: Option<Ipv4Addr>| Route {
            to: to.map(IpAddr::from),
            interface: 0,
            via: None,
            source: None,
            table: None,
            metric: 0,
        };
        let join = |namespace: &Namespace, own: Option<Ipv4Addr>, routes: &[(Option<Ipv4Addr>, &str)]| {
            let add = || {
                let mut wiring = Wiring::open().unwrap();
                let loopback = wiring.index("lo").unwrap();
                own.into_iter().for_each(|own| wiring.add_address(loopback, own, 32).unwrap());
                for &(to, over) in routes {
                    let interface = wiring.index(over).unwrap();
                    wiring.add_route(Route { interface, source: own.map(IpAddr::from), ..host(to) }).unwrap();
                }
            };
            namespace.enter(add).unwrap();
        };
        let to_units = [(Some(backhaul(0)), "rsu1"), (Some(backhaul(1)), "rsu2")];
        join(self.gateway(), Some(CONTROLLER), &to_units);
        (0..2).for_each(|unit| join(self.unit(unit), Some(backhaul(unit)), &[(None, "to-gateway")]));
        join(&self.testbed.server, None, &[(Some(HOME), "to-gateway")]);
    }

    pub fn gateway(&self) -> &Namespace {
        self.testbed.gateway().unwrap()
    }

    pub fn unit(&self, unit: usize) -> &Namespace {
        self.testbed.unit(&name(unit)).unwrap()
    }

    /// The configuration of a unit.
    pub fn unit_configuration(&self, unit: usize, kind: &str) -> String {
        let (station, prefix, address, name) = (STATIONS[unit], inner(unit, 0), backhaul(unit), name(unit));
        let interface = if kind == "vxlan" { "interface = \"its-g5\"\n" } else { "" };
        let mut text = format!(
            "[observe]\nvanetza = \"127.0.0.1:5051\"\n[log]\nevents = \"EVENTS\"\n[unit]\nstation = {station}\n\
             prefix = \"{prefix}/24\"\naddress = \"{address}\"\ntunnel = \"{kind}\"\n{interface}controller = \
             \"{CONTROLLER}:{CONTROLLER_PORT}\"\ncontroller_key = \"{}\"\nkey = \"{}\"\n",
            self.keys.public("controller"),
            self.keys.file(&name),
        );
        if kind == "crosslane" {
            let (own, vehicle, outer) = (inner(unit, 1), inner(unit, VEHICLE.host as u8), unit_address(unit));
            text += &format!(
                "[tunnel]\naddress = [\"{own}/24\"]\nlisten = \"{outer}:4760\"\nkey = \"{}\"\n[[tunnel.vehicle]]\n\
                 name = \"car\"\nkey = \"{}\"\naddress = [\"{vehicle}/32\", \"{HOME}/32\"]\n",
                self.keys.file(&name),
                self.keys.public("vehicle"),
            );
        }
        text
    }

    pub fn start_unit(&self, unit: usize, kind: &str) -> Agent {
        Agent::start(self.unit(unit), &self.unit_configuration(unit, kind))
    }

    /// The configuration of the vehicle.
    pub fn vehicle_configuration(&self, kind: &str) -> String {
        let is_encrypted = kind == "crosslane";
        let mut text = format!(
            "[observe]\nvanetza = \"127.0.0.1:5051\"\n[strategy]\nname = \"threshold\"\n[log]\nevents = \
             \"EVENTS\"\n[roadside]\ninterface = \"its-g5\"\ntunnel = \"{kind}\"\nhome = \"{HOME}/32\"\n"
        );
        if is_encrypted {
            text += &format!("key = \"{}\"\n", self.keys.file("vehicle"));
        }
        for (unit, station) in STATIONS.into_iter().enumerate() {
            let (name, outer, own) = (name(unit), unit_address(unit), inner(unit, VEHICLE.host as u8));
            text += &format!(
                "[[roadside.unit]]\nstation = {station}\nname = \"{name}\"\naddress = \"{outer}\"\ninner = \
                 \"{own}/24\"\n"
            );
            if is_encrypted {
                text += &format!("key = \"{}\"\n", self.keys.public(&name));
            }
        }
        text
    }

    pub fn start_vehicle(&self, kind: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, &self.vehicle_configuration(kind))
    }

    /// Starts the controller.
    pub fn controller(&self) -> Controller {
        Controller::start(self.gateway(), &self.keys.private("controller"))
    }

    /// Starts the program of the controller.
    pub fn start_controller(&self) -> Agent {
        let mut text = format!(
            "listen = \"{CONTROLLER}:{CONTROLLER_PORT}\"\nkey = \"{}\"\n[log]\nevents = \"{}\"\n[[vehicle]]\nname = \
             \"car\"\nstation = {}\nkey = \"{}\"\nhost = {}\nhome = \"{HOME}\"\n",
            self.keys.file("controller"),
            self.keys.file("controller.jsonl"),
            VEHICLE.station,
            self.keys.public("vehicle"),
            VEHICLE.host,
        );
        for (unit, station) in STATIONS.into_iter().enumerate() {
            let (name, outer, prefix, next_hop) = (name(unit), unit_address(unit), inner(unit, 0), backhaul(unit));
            text += &format!(
                "[[unit]]\nname = \"{name}\"\nstation = {station}\nkey = \"{}\"\naddress = \"{outer}\"\nprefix = \
                 \"{prefix}/24\"\nnext_hop = \"{next_hop}\"\n",
                self.keys.public(&name),
            );
        }
        let file = self.keys.file("controller.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(CROSSLANE);
        command.args(["controller", "--config", &file]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = self.gateway().spawn(&mut command).unwrap();
        Agent { workdir: TempDir::new().unwrap(), child }
    }

    /// The radios of all: CAMs of both units at the vehicle and of the vehicle at both units, until it is dropped.
    pub fn radio(&self) -> Radio {
        let socket = |namespace: &Namespace| namespace.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let sockets = [socket(&self.testbed.vehicle), socket(self.unit(0)), socket(self.unit(1))];
        let (stop, signals) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new([Some(-60); 2])));
        let (stopped, audible) = (stop.clone(), signals.clone());
        let send = move || {
            while !stopped.load(Ordering::Relaxed) {
                let audible = *audible.lock().unwrap();
                for (unit, rssi_dbm) in audible.iter().enumerate().filter_map(|(unit, rssi)| Some((unit, (*rssi)?))) {
                    drop(sockets[0].send_to(cam(STATIONS[unit], rssi_dbm).as_bytes(), "127.0.0.1:5051"));
                    drop(sockets[1 + unit].send_to(cam(VEHICLE.station, rssi_dbm).as_bytes(), "127.0.0.1:5051"));
                }
                sleep(Duration::from_millis(100));
            }
        };
        Radio { stop, signals, thread: Some(thread::spawn(send)) }
    }
}

fn air() -> DirectionParams {
    let rate = PhyRate::from_mbit_s(27.0).unwrap();
    let channel = Channel {
        rate,
        mean_snr_db: 60.0,
        nakagami_m: f64::INFINITY,
        tries: 7,
        share: 1.0,
        limit_bit_s: f64::INFINITY,
    };
    DirectionParams {
        bottleneck: Bottleneck::Ieee80211p(channel),
        delay: AIR_DELAY,
        loss: Loss::NONE,
        queue: QueueLimit::Packets(1000),
        codel: None,
    }
}

/// As an on-board unit passes a CAM on.
pub fn cam(station: u32, rssi_dbm: i32) -> String {
    format!(r#"{{"stationID": {station}, "rssi": {rssi_dbm}}}"#)
}

/// Received CAMs; dropping it ends them.
pub struct Radio {
    stop: Arc<AtomicBool>,
    /// Signal in dBm from each unit and there, if it is received.
    pub signals: Arc<Mutex<[Option<i32>; 2]>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Radio {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// The last report about the vehicle of each unit, by the unit's address on the backhaul.
pub type Reports = Arc<Mutex<BTreeMap<Ipv4Addr, Vec<Report>>>>;

/// A controller that announces [`VEHICLE`]; dropping it closes its connections.
pub struct Controller {
    stop: Arc<AtomicBool>,
    pub reports: Reports,
    thread: Option<JoinHandle<()>>,
}

impl Controller {
    fn start(gateway: &Namespace, key: &PrivateKey) -> Controller {
        let listener = gateway.enter(|| TcpListener::bind((CONTROLLER, CONTROLLER_PORT)).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, reports) = (Arc::new(AtomicBool::new(false)), Reports::default());
        let (stopped, kept, key) = (stop.clone(), reports.clone(), key.clone());
        let listen = move || {
            let mut units = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, from)) => {
                        let (stopped, kept, key) = (stopped.clone(), kept.clone(), key.clone());
                        units.push(thread::spawn(move || serve(stream, from, &key, &stopped, &kept)));
                    }
                    Err(_) => sleep(Duration::from_millis(10)),
                }
            }
            units.into_iter().for_each(|unit| unit.join().unwrap());
        };
        Controller { stop, reports, thread: Some(thread::spawn(listen)) }
    }

    /// Reports of a unit about the vehicle so far.
    pub fn of(&self, unit: usize) -> Vec<Report> {
        self.reports.lock().unwrap().get(&backhaul(unit)).cloned().unwrap_or_default()
    }

    /// Waits until the last report of a unit is such.
    pub fn wait(&self, unit: usize, what: &str, is_such: impl Fn(&Report) -> bool) {
        wait_until(|| self.of(unit).last().is_some_and(&is_such), || format!("{what}: {:?}", self.of(unit).last()));
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// True for the report of a vehicle whose tunnel stands and carries.
pub fn carries(report: &Report) -> bool {
    matches!(report, Report::Vehicle { has_tunnel: true, carries: true, .. })
}

fn serve(mut stream: TcpStream, from: SocketAddr, key: &PrivateKey, stop: &AtomicBool, reports: &Reports) {
    let SocketAddr::V4(from) = from else { return };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut frame = [0; INITIATION_BYTES];
    stream.read_exact(&mut frame).unwrap();
    let (_, answer, mut sealer, mut opener) = respond(key, &frame, MAX_REPORT_BYTES).unwrap();
    stream.write_all(&answer).unwrap();
    let mut send = |stream: &mut TcpStream, announcement: &Announcement| {
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        announcement.encode(&mut plain);
        sealer.seal(&plain, &mut out).unwrap();
        stream.write_all(&out)
    };
    let begun = send(&mut stream, &Announcement::Vehicles(vec![VEHICLE]));
    let (mut bytes, mut is_open) = ([0; 4096], begun.is_ok());
    while is_open && !stop.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => opener.push(&bytes[..count]),
            Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        while let Some(message) = opener.next().unwrap() {
            let report = Report::decode(message).unwrap();
            if !matches!(report, Report::Keepalive | Report::Hello { .. }) {
                reports.lock().unwrap().entry(*from.ip()).or_default().push(report);
            }
        }
        is_open = send(&mut stream, &Announcement::Keepalive).is_ok();
    }
}

/// Waits until it is so, or fails with the description of what is.
pub fn wait_until(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{}", what());
        sleep(Duration::from_millis(20));
    }
}
