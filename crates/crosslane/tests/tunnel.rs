//! The tunnel between two agents, each a process in a namespace of its own.

#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crosslane::clock::Clock;
use crosslane::testbed::{Namespace, SERVER, Wiring};
use crosslane_core::time::Instant;
use nix::sys::signal::Signal;
use program::agent::{Agent, take_down};
use program::can_drive;
use program::tunnelled::{INNER, INNER_V6, World, faults};

const TCP_PORT: u16 = 7000;
const ECHO_PORT: u16 = 7001;
const PROBE_EACH: Duration = Duration::from_millis(10);
/// Traffic flows again after so long at the latest.
const SOON: Duration = Duration::from_secs(1);

/// Asks each 10 ms and notes when answers come, until it is dropped.
struct Probes {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Instant>>>,
    clock: Clock,
}

impl Probes {
    fn start(world: &World) -> Probes {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT)).unwrap();
        let answers = world.testbed.server.enter(bind).unwrap();
        let asks = world.testbed.vehicle.enter(bind).unwrap();
        answers.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        asks.set_nonblocking(true).unwrap();
        let (stop, clock) = (Arc::new(AtomicBool::new(false)), Clock::start());
        let ended = [stop.clone(), stop.clone()];
        let [for_asks, for_answers] = ended;
        let echo = move || {
            let mut bytes = [0; 100];
            while !for_answers.load(Relaxed) {
                if let Ok((length, from)) = answers.recv_from(&mut bytes) {
                    // There may be no tunnel just now.
                    drop(answers.send_to(&bytes[..length], from));
                }
            }
            Vec::new()
        };
        let ask = move || {
            let mut came = Vec::new();
            while !for_asks.load(Relaxed) {
                drop(asks.send_to(b"there?", (INNER, ECHO_PORT)));
                sleep(PROBE_EACH);
                while asks.recv(&mut [0; 100]).is_ok() {
                    came.push(clock.now());
                }
            }
            came
        };
        Probes { stop, threads: vec![thread::spawn(ask), thread::spawn(echo)], clock }
    }

    /// When answers came.
    fn end(mut self) -> Vec<Instant> {
        self.stop.store(true, Relaxed);
        let mut came: Vec<Vec<Instant>> = self.threads.drain(..).map(|thread| thread.join().unwrap()).collect();
        came.swap_remove(0)
    }
}

/// How long after `from` the next answer came.
fn wait(came: &[Instant], from: Instant) -> Duration {
    came.iter().find(|at| **at >= from).expect("an answer").since(from)
}

fn longest_gap(came: &[Instant]) -> Duration {
    came.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap()
}

fn connect(world: &World, to: impl Into<SocketAddr>) -> (TcpStream, TcpStream) {
    let to = to.into();
    let listener = world.testbed.server.enter(|| TcpListener::bind(to)).unwrap().unwrap();
    let near =
        world.testbed.vehicle.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
    (near, listener.accept().unwrap().0)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + byte / 251) as u8).collect()
}

fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(bytes).unwrap());
        let mut came = vec![0; bytes.len()];
        to.read_exact(&mut came).unwrap();
        assert!(came == bytes, "what comes is what was sent");
    });
}

/// A TCP connection that never has enough; how many bytes have come.
fn endless(world: &World) -> Arc<AtomicUsize> {
    let (mut near, mut far) = connect(world, (INNER, TCP_PORT));
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        let block = bytes(65536);
        while near.write_all(&block).is_ok() {}
    });
    thread::spawn(move || {
        let mut block = vec![0; 65536];
        while let Ok(length @ 1..) = far.read(&mut block) {
            counted.fetch_add(length, Relaxed);
        }
    });
    count
}

fn interfaces(namespace: &Namespace) -> Vec<String> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect()
}

#[test]
fn tcp_goes_through_both_ways_and_control_c_leaves_no_interface() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    let block = bytes(3_000_000);
    for (near, far) in [connect(&world, (INNER, TCP_PORT)), connect(&world, (INNER_V6, TCP_PORT))] {
        transfer(&near, &far, &block);
        transfer(&far, &near, &block);
    }
    let namespaces = [&world.testbed.vehicle, &world.testbed.server];
    let of_the_tunnel = |name: &String| name.starts_with("crosslane");
    assert!(namespaces.iter().all(|namespace| interfaces(namespace).iter().any(of_the_tunnel)));
    for agent in [vehicle, gateway] {
        let (events, stderr) = agent.end_by(Signal::SIGINT);
        assert_eq!((faults(&events), stderr.as_str()), (vec![], ""));
    }
    assert!(!namespaces.iter().any(|namespace| interfaces(namespace).iter().any(of_the_tunnel)));
}

#[test]
fn traffic_flows_within_a_second_after_either_end_was_killed() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (mut gateway, mut vehicle) = world.start();
    let count = endless(&world);
    let probes = Probes::start(&world);
    let mut ready = Vec::new();
    for round in 0..4 {
        sleep(Duration::from_millis(1500));
        let before = count.load(Relaxed);
        if round % 2 == 0 {
            gateway.kill();
            gateway = world.start_gateway();
        } else {
            vehicle.kill();
            vehicle = world.start_vehicle();
        }
        ready.push(probes.clock.now());
        sleep(Duration::from_millis(4000));
        let grown = count.load(Relaxed) - before;
        assert!(grown > 1_000_000, "the transfer goes on after round {round}: {grown} bytes");
    }
    let came = probes.end();
    let waits: Vec<Duration> = ready.iter().map(|at| wait(&came, *at)).collect();
    eprintln!("answers came {waits:?} after the agents were ready; longest gap {:?}", longest_gap(&came));
    assert!(waits.iter().all(|wait| *wait < SOON), "{waits:?}");
    assert!(longest_gap(&came) < SOON, "traffic goes on: {:?}", longest_gap(&came));
}

#[test]
fn an_interface_that_goes_down_costs_no_second() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    let count = endless(&world);
    let probes = Probes::start(&world);
    sleep(Duration::from_secs(2));
    let at = probes.clock.now();
    take_down(&world.testbed.vehicle, "lte");
    let before = count.load(Relaxed);
    sleep(Duration::from_secs(3));
    let grown = count.load(Relaxed) - before;
    let came = probes.end();
    let after: Vec<Instant> = came.into_iter().filter(|came| *came + SOON > at).collect();
    eprintln!("longest gap {:?}, {grown} bytes in 3 s", longest_gap(&after));
    assert!(longest_gap(&after) < SOON, "{:?}", longest_gap(&after));
    assert!(grown > 3_000_000, "{grown} bytes over what is left");
    drop((gateway, vehicle));
}

#[test]
fn two_vehicles_of_one_gateway_each_get_their_own() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let gateway = world.start_gateway();
    let start = |place, path| Agent::start(&world.testbed.vehicle, &world.vehicle(place, &[path]));
    let vehicles = [start(1, "lte"), start(2, "its-g5")];
    let server = world.testbed.server.enter(|| UdpSocket::bind((INNER, ECHO_PORT))).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let own = |last: u8| {
        let bind = || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
            socket.bind_device(Some(format!("crosslane{}", last - 1).as_bytes())).unwrap();
            socket.bind(&SocketAddr::from((Ipv4Addr::new(10, 77, 0, last), ECHO_PORT)).into()).unwrap();
            UdpSocket::from(socket)
        };
        let socket = world.testbed.vehicle.enter(bind).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket
    };
    for (last, socket) in [(2u8, own(2)), (3, own(3))] {
        socket.send_to(&[last], (INNER, ECHO_PORT)).unwrap();
        let mut said = [0; 10];
        let (length, from) = server.recv_from(&mut said).unwrap();
        assert_eq!((&said[..length], from.ip()), (&[last][..], Ipv4Addr::new(10, 77, 0, last).into()));
        server.send_to(&[last, 0], from).unwrap();
        let length = socket.recv(&mut said).unwrap();
        assert_eq!(&said[..length], [last, 0]);
    }
    drop((gateway, vehicles));
}

#[test]
fn a_gateway_that_does_not_answer_is_told_once() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let gateway = world.start_gateway();
    let configuration = world.vehicle(1, &["lte", "its-g5"]);
    let (right, wrong) = (world.keys[0].public().to_string(), world.keys[2].public().to_string());
    let elsewhere = format!("{SERVER}:4761");
    for told in [configuration.replace(&right, &wrong), configuration.replace(&format!("{SERVER}:4760"), &elsewhere)] {
        let agent = Agent::start(&world.testbed.vehicle, &told);
        sleep(Duration::from_secs(5));
        let (events, _) = agent.end();
        let faults = faults(&events);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("no answer from the gateway 10.255.0.1:476"), "{faults:?}");
        assert!(faults[0].ends_with("for 3 s; check its address, its key and whether it has our key"), "{faults:?}");
    }
    drop(gateway);
}

#[test]
fn a_path_without_a_route_is_told_once() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let address = || {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index("lte").unwrap();
        let address: Ipv6Addr = "fd01::2".parse().unwrap();
        wiring.add_address(interface, address, 128).unwrap();
    };
    world.testbed.vehicle.enter(address).unwrap();
    let configuration = world.vehicle(1, &["lte"]);
    let configuration = configuration.replace("rat = \"lte\"", "rat = \"lte\"\naddress = \"fd01::2\"");
    let configuration = configuration.replace(&format!("{SERVER}:4760"), "[fd99::1]:4760");
    let agent = Agent::start(&world.testbed.vehicle, &configuration);
    sleep(Duration::from_secs(2));
    let (events, _) = agent.end();
    let faults = faults(&events);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].starts_with("while sending from fd01::2 at lte to [fd99::1]:4760: Network is unreachable"),
        "{faults:?}"
    );
}

#[test]
fn an_interface_name_that_is_taken_is_told_and_taken_up_when_it_is_free() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let first = world.start_vehicle();
    let second = Agent::start(&world.testbed.vehicle, &world.vehicle(1, &["lte"]));
    assert!(second.read("stderr").contains("\"crosslane1\": an interface has this name already; "));
    first.end();
    assert!(!interfaces(&world.testbed.vehicle).contains(&"crosslane1".to_owned()));
    for _ in 0..50 {
        if interfaces(&world.testbed.vehicle).contains(&"crosslane1".to_owned()) {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    let (_, stderr) = second.end();
    assert_eq!(stderr.matches("crosslane1").count(), 1, "{stderr}");
    assert!(stderr.contains("crosslane: the tunnel works now\n"), "{stderr}");
}
