//! `crosslane tunnel` with agents that carry traffic.

use std::fs;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::tunnelled::{INNER, World, faults};
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::control::status::{PathStatus, PeerStatus, Status};
use crosslane::testbed::Namespace;
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::tunnel::Mode;

const PORT: u16 = 7002;
/// Bytes of an inner datagram, with its headers; the tunnel adds 59.
const BYTES: usize = 600;
const OUTER_BYTES: u64 = BYTES as u64 + 59;
const INTERVAL: Duration = Duration::from_millis(2);
const PHASE: Duration = Duration::from_millis(1500);

fn crosslane(namespace: &Namespace, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(CROSSLANE);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap().wait_with_output().unwrap().into()
}

fn status(namespace: &Namespace, arguments: &[&str]) -> Status {
    let output = crosslane(namespace, &[&["tunnel"], arguments, &["--json"]].concat());
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|cause| panic!("{cause}: {}", output.stdout))
}

/// A stream of numbered datagrams from the vehicle to the gateway.
struct Stream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: [JoinHandle<Vec<u64>>; 2],
}

impl Stream {
    fn start(world: &World) -> Stream {
        let to = world.testbed.server.enter(|| UdpSocket::bind((INNER, PORT))).unwrap().unwrap();
        let from = world.testbed.vehicle.enter(|| UdpSocket::bind(("10.77.0.2", 0))).unwrap().unwrap();
        to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, counted) = (stop.clone(), sent.clone());
        let send = move || {
            while !ended.load(Relaxed) {
                let number = counted.fetch_add(1, Relaxed);
                let mut datagram = vec![0; BYTES - 28];
                datagram[..8].copy_from_slice(&number.to_be_bytes());
                from.send_to(&datagram, (INNER, PORT)).unwrap();
                sleep(INTERVAL);
            }
            Vec::new()
        };
        let receive = move || {
            let mut received = Vec::new();
            let mut datagram = [0; BYTES];
            // Until none arrives for 500 ms.
            while to.recv(&mut datagram).is_ok() {
                received.push(u64::from_be_bytes(*datagram.first_chunk().unwrap()));
            }
            received
        };
        Stream { stop, sent, threads: [thread::spawn(send), thread::spawn(receive)] }
    }

    /// Stops the stream; returns the number of datagrams sent, and the sorted numbers of those received.
    fn end(self) -> (u64, Vec<u64>) {
        self.stop.store(true, Relaxed);
        let [_, mut received] = self.threads.map(|thread| thread.join().unwrap());
        received.sort_unstable();
        (self.sent.load(Relaxed), received)
    }

    /// Datagrams sent during a phase, and the datagrams that each path carried, from its byte counter.
    fn phase(&self, world: &World) -> (u64, Vec<u64>) {
        let read = || (self.sent.load(Relaxed), gateway_of(&world.testbed.vehicle));
        let (sent, before) = read();
        sleep(PHASE);
        let (sent_then, after) = read();
        let pairs = before.paths.iter().zip(&after.paths);
        let data_bytes = |path: &PathStatus| path.sent_bytes - path.control_bytes;
        (sent_then - sent, pairs.map(|(old, new)| (data_bytes(new) - data_bytes(old)) / OUTER_BYTES).collect())
    }
}

/// Status of the gateway as the vehicle reports it.
fn gateway_of(vehicle: &Namespace) -> PeerStatus {
    status(vehicle, &["status", "--interface", "crosslane1"]).peers.remove(0)
}

fn mode(vehicle: &Namespace, mode: Mode) {
    let now = status(vehicle, &["mode", mode.name(), "--interface", "crosslane1"]);
    assert_eq!(now.peers[0].mode, mode);
}

#[test]
fn a_mode_changes_while_datagrams_flow_and_none_is_lost() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    let stream = Stream::start(&world);
    sleep(Duration::from_millis(500));
    let (sent, over) = stream.phase(&world);
    assert!(over.iter().sum::<u64>() < sent * 5 / 4, "each is sent once: {over:?} of {sent}");
    mode(&world.testbed.vehicle, Mode::Redundant);
    sleep(Duration::from_millis(100));
    let followed = status(&world.testbed.server, &["status"]).peers.remove(0);
    assert_eq!((followed.name.as_str(), followed.mode), ("car", Mode::Redundant));
    let (sent, over) = stream.phase(&world);
    assert!(sent > 300 && over.iter().all(|over| *over + 20 > sent), "each is sent over both: {over:?} of {sent}");
    mode(&world.testbed.vehicle, Mode::Aggregate);
    let (sent, over) = stream.phase(&world);
    assert!(over.iter().sum::<u64>() < sent * 5 / 4, "each is sent once again: {over:?} of {sent}");
    // Selecting the current mode is not a change.
    mode(&world.testbed.vehicle, Mode::Aggregate);
    let (sent, received) = stream.end();
    assert_eq!(received, (0..sent).collect::<Vec<u64>>(), "each arrives exactly once");
    let (events, _) = vehicle.end();
    let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let changes = events.filter(|event| event["event"] == "tunnel_mode");
    let changes: Vec<String> = changes.map(|event| format!("{} to {}", event["was"], event["mode"])).collect();
    assert_eq!(changes, ["\"aggregate\" to \"redundant\"", "\"redundant\" to \"aggregate\""]);
    drop(gateway);
}

#[test]
fn a_status_reports_each_peer_and_path() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    sleep(Duration::from_secs(1));
    let current = status(&world.testbed.vehicle, &["status", "--interface", "crosslane1"]);
    assert_eq!((current.interface.as_str(), current.role.as_str(), current.encrypted), ("crosslane1", "vehicle", true));
    assert_eq!(current.mtu_bytes, 1441);
    let [peer] = &current.peers[..] else { panic!("{current:?}") };
    assert_eq!((peer.name.as_str(), peer.address.as_deref()), ("gateway", Some("10.255.0.1:4760")));
    assert!(peer.last_seen_s.is_some_and(|ago_s| ago_s < 1.0), "{peer:?}");
    assert_eq!(peer.paths.iter().map(|path| path.path.as_str()).collect::<Vec<_>>(), ["lte", "its-g5"]);
    for path in &peer.paths {
        assert_eq!((path.wanted_state.as_str(), path.liveness.as_str(), path.lost), ("active", "up", 0), "{path:?}");
        assert!(path.min_rtt_ms.is_some_and(|ms| (10.0..30.0).contains(&ms)), "{path:?}");
        assert!(path.sent_bytes > 0 && path.loss == 0.0 && !path.reason.is_empty(), "{path:?}");
    }
    let of_gateway = status(&world.testbed.server, &["status"]);
    assert_eq!(of_gateway.role, "gateway");
    let [car, van] = &of_gateway.peers[..] else { panic!("{of_gateway:?}") };
    assert_eq!(car.paths.iter().map(|path| path.path.as_str()).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!((van.name.as_str(), van.last_seen_s, van.paths.len()), ("van", None, 0));
    let shown = crosslane(&world.testbed.server, &["tunnel", "status"]).stdout;
    assert!(shown.starts_with("crosslane0: gateway, encrypted, MTU 1441\n\ncar: aggregate, last seen 0."), "{shown}");
    assert!(shown.ends_with("\nvan: aggregate, never seen\n"), "{shown}");
    drop((gateway, vehicle));
}

#[test]
fn the_mode_cannot_be_changed_at_a_gateway() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let gateway = world.start_gateway();
    let output = crosslane(&world.testbed.server, &["tunnel", "mode", "redundant"]);
    let sentence = "crosslane: while changing the tunnel's mode: this is the gateway, which uses the paths of each \
                    vehicle as that vehicle does; run `crosslane tunnel mode` on the vehicle";
    assert_eq!((output.sentence(), output.code), (sentence, Some(2)));
    assert_eq!(status(&world.testbed.server, &["status"]).peers[0].mode, Mode::Aggregate);
    drop(gateway);
}

/// Whether the gateway receives from this vehicle now.
fn is_seen(world: &World, name: &str) -> bool {
    let peers = status(&world.testbed.server, &["status"]).peers;
    peers.iter().any(|peer| peer.name == name && peer.last_seen_s.is_some_and(|ago| ago < 2.0))
}

fn await_seen(world: &World, name: &str) {
    let seen = (0..200).any(|_| {
        sleep(Duration::from_millis(50));
        is_seen(world, name)
    });
    assert!(seen, "{name} is not seen");
}

#[test]
fn a_vehicle_comes_and_goes_by_a_reload_and_the_other_ones_packets_flow_on() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let whole = world.gateway();
    let (car, van) = whole.split_at(whole.rfind("[[tunnel.vehicle]]").unwrap());
    let gateway = Agent::start(&world.testbed.server, car);
    let file = gateway.workdir.path().join("agent.toml");
    let without_van = fs::read_to_string(&file).unwrap();
    let start = |place, path| Agent::start(&world.testbed.vehicle, &world.vehicle(place, &[path]));
    let vehicles = [start(1, "lte"), start(2, "its-g5")];
    await_seen(&world, "car");
    let stream = Stream::start(&world);
    let reload = |configuration: &str| {
        fs::write(&file, configuration).unwrap();
        let output = crosslane(&world.testbed.server, &["reload"]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        output.stdout
    };
    assert_eq!(reload(&format!("{without_van}{van}")), "vehicle van is added\n");
    await_seen(&world, "van");
    let other_key =
        van.replace(&world.keys[2].public().to_string(), &PrivateKey::generate().unwrap().public().to_string());
    let sentence = "vehicle van has another key or other addresses: its tunnel starts again\n";
    assert_eq!(reload(&format!("{without_van}{other_key}")), sentence);
    sleep(Duration::from_millis(2500));
    assert!(!is_seen(&world, "van") && is_seen(&world, "car"));
    assert_eq!(reload(&without_van), "vehicle van is removed\n");
    assert_eq!(reload(&without_van), "nothing has changed\n");
    assert_eq!(status(&world.testbed.server, &["status"]).peers.len(), 1);
    let (sent, received) = stream.end();
    assert_eq!(received, (0..sent).collect::<Vec<u64>>(), "each arrives exactly once");
    drop((gateway, vehicles));
}

#[test]
fn two_agents_of_a_machine_are_selected_by_interface() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let start = |place, path| Agent::start(&world.testbed.vehicle, &world.vehicle(place, &[path]));
    let agents = [start(1, "lte"), start(2, "its-g5")];
    for (interface, path) in [("crosslane1", "lte"), ("crosslane2", "its-g5")] {
        let current = status(&world.testbed.vehicle, &["status", "--interface", interface]);
        assert_eq!((current.interface.as_str(), current.peers[0].paths[0].path.as_str()), (interface, path));
    }
    let output = crosslane(&world.testbed.vehicle, &["tunnel", "status"]);
    assert_eq!(output.code, Some(3));
    assert!(output.sentence().contains("\"crosslane0\": none runs in this network namespace; start"), "{output:?}");
    drop(agents);
}

#[test]
fn a_tunnel_carries_traffic_if_its_control_socket_is_in_use() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let gateway = world.start_gateway();
    let name = SocketAddr::from_abstract_name("crosslane/crosslane1").unwrap();
    let taken = world.testbed.vehicle.enter(|| UnixListener::bind_addr(&name)).unwrap().unwrap();
    let vehicle = world.start_vehicle();
    let stream = Stream::start(&world);
    sleep(PHASE);
    let (sent, received) = stream.end();
    assert!(received.len() as u64 * 2 > sent, "{} of {sent} arrived", received.len());
    let (events, _) = vehicle.end();
    let faults = faults(&events);
    assert_eq!(faults.len(), 1, "{faults:?}");
    let begin = "while listening on @crosslane/crosslane1: an agent listens there";
    assert!(
        faults[0].starts_with(begin) && faults[0].contains("; end the process that listens at this name;"),
        "{faults:?}"
    );
    drop((gateway, taken));
}
