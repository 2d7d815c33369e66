//! An agent that builds tunnels to the roadside units whose CAMs arrive: interfaces and subflows come
//! and go with the CAMs, and nothing is left.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::{Agent, units_in_slots};
use crate::program::controller::{self, Running};
use crate::program::links::{connect, exchange, two_links};
use crate::program::{can_drive, crosslane};
use crosslane::control::status::UnitStatus;
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::{EndpointSocket, Limits};
use crosslane::netlink::links::{self, Notice};
use crosslane::netlink::{PathManager, TcpState, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Namespace, SERVER, Testbed, Wiring, vehicle_address};
use crosslane::tunnel::security::PrivateKey;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[observe]
vanetza = "127.0.0.1:5051"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
[roadside]
interface = "its-g5"
tunnel = "KIND"
slots = 2
"#;
const STATIONS: [u32; 3] = [1001, 1002, 1003];
/// Longer than a unit may be silent before its slot is given to another.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long CAMs of a unit arrive before they stop.
const ARRIVING: Duration = Duration::from_secs(1);

/// The unit's address on the air, its address in the tunnel, and the vehicle's there.
fn addresses(station: u32) -> [Ipv4Addr; 3] {
    let number = (station - 1000) as u8;
    [[10, 80, 0, 10 + number], [10, 80 + number, 0, 1], [10, 80 + number, 0, 2]].map(Ipv4Addr::from)
}

fn name(station: u32) -> String {
    format!("rsu{}", station - 1000)
}

/// The configuration of a vehicle; `keys` are the units' public keys.
fn configuration(kind: &str, keys: &[String]) -> String {
    let mut text = CONFIGURATION.replace("KIND", kind);
    if !keys.is_empty() {
        text += "key = \"KEY\"\n";
    }
    for (place, &station) in STATIONS.iter().enumerate() {
        let [outer, _, inner] = addresses(station);
        let name = name(station);
        text += &format!(
            "[[roadside.unit]]\nstation = {station}\nname = \"{name}\"\naddress = \"{outer}\"\ninner = \"{inner}/24\"\n"
        );
        keys.get(place).into_iter().for_each(|key| text += &format!("key = \"{key}\"\n"));
    }
    text
}

/// A vehicle with LTE and an 802.11p radio; the units and a server share the other end.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
    onboard_unit: UdpSocket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "its-g5"], 20.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listen = || {
            select_path_manager(PathManager::Kernel).unwrap();
            EndpointSocket::open().unwrap().set_limits(Limits { subflows: 8, add_addr_accepted: 0 }).unwrap();
            let mut wiring = Wiring::open().unwrap();
            let loopback = wiring.index("lo").unwrap();
            for station in STATIONS {
                wiring.add_address(loopback, addresses(station)[0], 32).unwrap();
            }
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            socket.bind(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
            socket.listen(256).unwrap();
            socket
        };
        let listener = testbed.server.enter(listen).unwrap();
        let onboard_unit = testbed.vehicle.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        World { testbed, _emulator: emulator, listener, onboard_unit }
    }

    /// The units' ends of the tunnels.
    fn end_tunnels(&self, kind: &str) {
        let end = || {
            let mut wiring = Wiring::open().unwrap();
            let radio = wiring.index("its-g5").unwrap();
            for station in STATIONS {
                let ([outer, inner, _], name) = (addresses(station), name(station));
                let ends = (outer, vehicle_address(1));
                match kind {
                    "gre" => wiring.add_gre(&name, ends, radio).unwrap(),
                    _ => wiring.add_vxlan(&name, station, ends, Some(radio)).unwrap(),
                }
                wiring.bring_up(&name, 1450, 1000).unwrap();
                let interface = wiring.index(&name).unwrap();
                wiring.add_address(interface, inner, 24).unwrap();
            }
        };
        self.testbed.server.enter(end).unwrap();
    }

    fn agent(&self, configuration: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, configuration)
    }

    fn connect(&self) -> (Socket, Socket) {
        connect(&self.testbed, &self.listener)
    }

    /// Receives CAMs of these stations until the vehicle has interfaces and subflows to exactly these.
    fn receive_until(&self, stations: &[u32]) -> Duration {
        let wanted: Vec<(String, IpAddr)> = stations.iter().map(|&one| (name(one), addresses(one)[2].into())).collect();
        let (start, mut complete) = (Instant::now(), None);
        loop {
            send_cams(&self.onboard_unit, stations);
            let (names, subflows) = (interfaces(&self.testbed.vehicle), established(&self.testbed.vehicle));
            let tunnels = names.iter().filter(|name| name.starts_with("rsu")).count();
            let is_there = |(name, inner): &(String, IpAddr)| names.contains(name) && subflows.contains(inner);
            if tunnels == stations.len() && wanted.iter().all(is_there) {
                complete = complete.or(Some(start.elapsed()));
            }
            if let Some(took) = complete.filter(|took| start.elapsed() > *took + ARRIVING) {
                return took;
            }
            assert!(start.elapsed() < TIMEOUT, "{stations:?}: {names:?} {subflows:?}");
        }
    }

    /// The units in slots, read while CAMs of these stations arrive: without them they are soon taken for lost.
    fn units_while_receiving(&self, stations: &[u32]) -> Vec<UnitStatus> {
        let onboard_unit = &self.onboard_unit;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..60).for_each(|_| send_cams(onboard_unit, stations)));
            units_in_slots(&self.testbed.vehicle)
        })
    }

    /// Interfaces to units.
    fn left(&self) -> Vec<String> {
        interfaces(&self.testbed.vehicle).into_iter().filter(|name| name.starts_with("rsu")).collect()
    }
}

/// Sends a CAM of each station, and waits for the time to the next ones.
fn send_cams(onboard_unit: &UdpSocket, stations: &[u32]) {
    for station in stations {
        let cam = format!(r#"{{"stationID": {station}, "rssi": -60}}"#);
        onboard_unit.send_to(cam.as_bytes(), "127.0.0.1:5051").unwrap();
    }
    sleep(Duration::from_millis(50));
}

fn interfaces(namespace: &Namespace) -> Vec<String> {
    let present = namespace.enter(|| links::snapshot().unwrap()).unwrap();
    let names = present.into_iter().filter_map(|notice| match notice {
        Notice::Link(link) => Some(link.name),
        Notice::Address(_) => None,
    });
    names.collect()
}

/// Local addresses of all established subflows.
fn established(namespace: &Namespace) -> Vec<IpAddr> {
    let subflows = namespace.enter(|| Diag::open().unwrap().subflows().unwrap()).unwrap();
    let established = subflows.iter().filter(|info| info.tcp.state == TcpState::Established);
    established.map(|info| info.subflow.local.ip()).collect()
}

/// Removes the rules of the tables of tunnels; returns their number.
fn remove_rules(namespace: &Namespace) -> usize {
    namespace.enter(|| Wiring::open().unwrap().remove_rules(0x4352_5300..=0x4352_530f).unwrap()).unwrap()
}

/// Unit, action and reason of each change of a slot.
fn changes(text: &str) -> Vec<(String, String, String)> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let field = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let changes = lines.filter(|event| event["event"] == "roadside");
    changes.map(|event| (field(&event, "unit"), field(&event, "action"), field(&event, "reason"))).collect()
}

/// Two units, then another in the place of the first, and an agent after one that was killed.
fn come_and_go(world: &World, configuration: &str) -> (Vec<(String, String, String)>, String) {
    let agent = world.agent(configuration);
    let (client, server) = world.connect();
    let took = world.receive_until(&[1001, 1002]);
    eprintln!("two units after {} ms", took.as_millis());
    exchange(&client, &server);
    let took = world.receive_until(&[1002, 1003]);
    eprintln!("another unit {} ms after the last CAM of the first", took.as_millis());
    exchange(&client, &server);
    // No CAM is sent meanwhile: on a busy machine the units are taken for lost.
    world.receive_until(&[1002, 1003]);
    assert!(!established(&world.testbed.vehicle).contains(&addresses(1001)[2].into()), "the unit that is gone");
    let units = world.units_while_receiving(&[1002, 1003]);
    assert_eq!(units.len(), 2);
    for (unit, station) in units.iter().zip([1002, 1003]) {
        assert_eq!((unit.station, &unit.name, unit.has_tunnel), (station, &name(station), true), "{unit:?}");
        assert!(configuration.contains(&format!("tunnel = \"{}\"", unit.kind)), "{unit:?}");
        let is_encrypted = unit.kind == "crosslane";
        assert_eq!((unit.liveness.as_deref() == Some("up"), unit.min_rtt_ms.is_some()), (is_encrypted, is_encrypted));
        assert!(unit.sent_bytes > Some(0) && unit.received_bytes > Some(0), "the handshake of a subflow: {unit:?}");
        assert!(unit.belief == "good" && unit.last_cam_s < 3.0 && (unit.rssi_dbm + 60.0).abs() < 0.1, "{unit:?}");
    }
    let text = agent.read("events.jsonl");
    agent.kill();
    assert_eq!(world.left(), ["rsu2", "rsu3"], "a killed agent leaves its tunnels");
    let agent = world.agent(configuration);
    assert_eq!((world.left().len(), remove_rules(&world.testbed.vehicle)), (0, 0), "the next one removes them");
    world.receive_until(&[1001]);
    exchange(&client, &server);
    assert_eq!(remove_rules(&world.testbed.vehicle), 1, "a rule for the tunnel");
    let (_, stderr) = agent.end();
    assert_eq!((world.left().len(), remove_rules(&world.testbed.vehicle)), (0, 0), "an agent that ends leaves nothing");
    (changes(&text), stderr)
}

fn come_and_go_over(kind: &str) {
    let world = World::new();
    world.end_tunnels(kind);
    let (changes, stderr) = come_and_go(&world, &configuration(kind, &[]));
    let order: Vec<(&str, &str)> = changes.iter().map(|(unit, action, _)| (&unit[..], &action[..])).collect();
    assert_eq!(order, [("rsu1", "open"), ("rsu2", "open"), ("rsu1", "close"), ("rsu3", "open")]);
    assert!(changes.iter().all(|(unit, _, reason)| reason.contains(unit)), "{changes:?}");
    assert_eq!(stderr.matches("neither encrypts nor authenticates").count(), 1, "{stderr}");
}

fn has_gre() -> bool {
    let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Namespace::new().unwrap().enter(|| Wiring::open().unwrap().add_gre("probe", ends, 1)).unwrap().is_ok()
}

#[test]
fn a_unit_in_reach_has_a_subflow_over_vxlan_and_gives_its_slot_to_another() {
    if can_drive() {
        come_and_go_over("vxlan");
    }
}

#[test]
fn a_unit_in_reach_has_a_subflow_over_gre_and_gives_its_slot_to_another() {
    if !has_gre() {
        // Not a failure in CI, whose kernel lacks it, too.
        println!("this kernel lacks GRE; make e2e-gre runs this test in an emulated machine");
    } else if can_drive() {
        come_and_go_over("gre");
    }
}

#[test]
fn several_encrypted_tunnels_to_units_work_at_once_in_one_agent() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let folder = TempDir::new().unwrap();
    let key = |name: &str| {
        assert_eq!(crosslane(folder.path(), &["keygen", "--out", name]).code, Some(0));
        crosslane(folder.path(), &["keygen", "--public", name]).stdout.trim().to_owned()
    };
    let public = key("vehicle.key");
    let mut keys = Vec::new();
    let units = STATIONS.map(|station| {
        let ([outer, inner, vehicle], name) = (addresses(station), name(station));
        keys.push(key(&format!("{name}.key")));
        let file = folder.path().join(format!("{name}.key"));
        let text = format!(
            "[log]\nevents = \"EVENTS\"\n[tunnel]\ninterface = \"{name}\"\naddress = [\"{inner}/24\"]\n\
             listen = \"{outer}:4760\"\nkey = \"{}\"\n[[tunnel.vehicle]]\nname = \"car\"\nkey = \"{public}\"\n\
             address = [\"{vehicle}/32\"]\n",
            file.display()
        );
        Agent::start(&world.testbed.server, &text)
    });
    let own = folder.path().join("vehicle.key").display().to_string();
    let (changes, stderr) = come_and_go(&world, &configuration("crosslane", &keys).replace("KEY", &own));
    // On a busy machine a tunnel may stand only when its unit counts as silent, and is tried again.
    let is_late = changes.len() == 6 && changes[4].2.ends_with("does not answer");
    assert!(changes.len() == 4 || is_late, "{changes:?}");
    assert!(!stderr.contains("neither encrypts"), "{stderr}");
    units.into_iter().for_each(|unit| drop(unit.end()));
}

/// Starts a controller at the server, with these units and the vehicle in its configuration.
fn start_controller(world: &World, folder: &Path, vehicle: &PrivateKey, stations: &[u32]) -> Running {
    let mut text = format!(
        "listen = \"{SERVER}:4761\"\nkey = \"controller.key\"\n[[vehicle]]\nname = \"car\"\nstation = 7\n\
         key = \"{}\"\nhost = 2\nhome = \"10.99.0.7\"\n",
        vehicle.public()
    );
    for &station in stations {
        let ([address, inner, _], name, key) = (addresses(station), name(station), PrivateKey::generate().unwrap());
        text += &format!(
            "[[unit]]\nname = \"{name}\"\nstation = {station}\nkey = \"{}\"\naddress = \"{address}\"\n\
             prefix = \"{}/24\"\nnext_hop = \"10.90.0.{}\"\n",
            key.public(),
            Ipv4Addr::from_bits(inner.to_bits() - 1),
            station - 990
        );
    }
    std::fs::write(folder.join("controller.toml"), text).unwrap();
    controller::start(&world.testbed.server, folder)
}

#[test]
fn units_that_the_controller_announces_are_used_until_it_withdraws_them() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.end_tunnels("vxlan");
    let folder = TempDir::new().unwrap();
    let [own, controller] = ["own.key", "controller.key"].map(|name| {
        let key = PrivateKey::generate().unwrap();
        key.write(&folder.path().join(name)).unwrap();
        key
    });
    let text = format!(
        "{}key = \"{}\"\ncontroller = \"{SERVER}:4761\"\ncontroller_key = \"{}\"\n",
        CONFIGURATION.replace("KIND", "vxlan"),
        folder.path().join("own.key").display(),
        controller.public()
    );
    let agent = world.agent(&text);
    let (client, server) = world.connect();
    let first = start_controller(&world, folder.path(), &own, &[1001, 1002]);
    world.receive_until(&[1001, 1002]);
    exchange(&client, &server);
    drop(first);
    world.receive_until(&[1001, 1002]);
    let _second = start_controller(&world, folder.path(), &own, &[1002, 1003]);
    let took = world.receive_until(&[1002, 1003]);
    eprintln!("a unit in place of one that is withdrawn: {} ms after its last CAM", took.as_millis());
    exchange(&client, &server);
    let cam = br#"{"stationID": 1001, "rssi": -30}"#;
    for _ in 0..10 {
        world.onboard_unit.send_to(cam, "127.0.0.1:5051").unwrap();
    }
    world.receive_until(&[1002, 1003]);
    let (text, stderr) = agent.end();
    assert_eq!(world.left().len(), 0, "an agent that ends leaves nothing");
    let closed = changes(&text).into_iter().find(|(unit, action, _)| unit == "rsu1" && action == "close");
    assert_eq!(closed.map(|(_, _, reason)| reason).as_deref(), Some("the unit is no longer known"));
    assert!(stderr.contains("while following the controller at 10.255.0.1:4761: "), "{stderr}");
    assert!(stderr.contains("; the units that are known stay in use"), "{stderr}");
    assert!(stderr.contains("following the controller works now"), "{stderr}");
}

#[test]
fn an_agent_works_without_a_kind_of_tunnel_that_the_kernel_lacks_and_says_so_once() {
    if !can_drive() {
        return;
    }
    if has_gre() {
        crate::program::not_run("this kernel has GRE");
        return;
    }
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("agent.toml"), configuration("gre", &[])).unwrap();
    let checked = crosslane(folder.path(), &["check", "agent.toml"]);
    assert!(checked.stdout.contains("CONFIG_NET_IPGRE"), "{}", checked.stdout);
    let world = World::new();
    let agent = world.agent(&configuration("gre", &[]));
    let (client, server) = world.connect();
    for _ in 0..60 {
        world.onboard_unit.send_to(br#"{"stationID": 1001, "rssi": -60}"#, "127.0.0.1:5051").unwrap();
        sleep(Duration::from_millis(50));
    }
    exchange(&client, &server);
    let (_, stderr) = agent.end();
    let sentence = "while creating the GRE interface rsu1: ";
    assert_eq!(stderr.matches(sentence).count(), 1, "{stderr}");
    assert!(stderr.contains("the kernel needs CONFIG_NET_IPGRE (`modprobe ip_gre` may load it)"), "{stderr}");
}
