//! The tunnel between two agents, each a process in a separate namespace.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crate::program::agent::{Agent, take_down};
use crate::program::can_drive;
use crate::program::tunnelled::{INNER, INNER_V6, World, faults};
use crosslane::clock::Clock;
use crosslane::testbed::{Namespace, SERVER, Wiring};
use crosslane_core::time::Instant;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

const TCP_PORT: u16 = 7000;
const ECHO_PORT: u16 = 7001;
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum interruption of traffic.
const MAX_INTERRUPTION: Duration = Duration::from_secs(1);

/// Sends a request every 10 ms and records when replies arrive, until it is ended.
struct Probes {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Instant>>>,
    clock: Clock,
}

impl Probes {
    fn start(world: &World) -> Probes {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT)).unwrap();
        let server = world.testbed.server.enter(bind).unwrap();
        let client = world.testbed.vehicle.enter(bind).unwrap();
        server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        client.set_nonblocking(true).unwrap();
        let (stop, clock) = (Arc::new(AtomicBool::new(false)), Clock::start());
        let ended = [stop.clone(), stop.clone()];
        let [stop_client, stop_server] = ended;
        let echo = move || {
            let mut bytes = [0; 100];
            while !stop_server.load(Relaxed) {
                if let Ok((length, from)) = server.recv_from(&mut bytes) {
                    // The tunnel may be down at the moment.
                    drop(server.send_to(&bytes[..length], from));
                }
            }
            Vec::new()
        };
        let request = move || {
            let mut arrivals = Vec::new();
            while !stop_client.load(Relaxed) {
                drop(client.send_to(b"there?", (INNER, ECHO_PORT)));
                sleep(PROBE_INTERVAL);
                while client.recv(&mut [0; 100]).is_ok() {
                    arrivals.push(clock.now());
                }
            }
            arrivals
        };
        Probes { stop, threads: vec![thread::spawn(request), thread::spawn(echo)], clock }
    }

    /// Stops the probes; returns when replies arrived.
    fn end(mut self) -> Vec<Instant> {
        self.stop.store(true, Relaxed);
        let mut arrivals: Vec<Vec<Instant>> = self.threads.drain(..).map(|thread| thread.join().unwrap()).collect();
        arrivals.swap_remove(0)
    }
}

/// Time from `from` to the next reply.
fn wait(arrivals: &[Instant], from: Instant) -> Duration {
    arrivals.iter().find(|at| **at >= from).expect("a reply").since(from)
}

fn longest_gap(arrivals: &[Instant]) -> Duration {
    arrivals.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap()
}

fn connect(world: &World, to: impl Into<SocketAddr>) -> (TcpStream, TcpStream) {
    let to = to.into();
    let listener = world.testbed.server.enter(|| TcpListener::bind(to)).unwrap().unwrap();
    let client =
        world.testbed.vehicle.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().unwrap();
    (client, listener.accept().unwrap().0)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + byte / 251) as u8).collect()
}

fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(bytes).unwrap());
        let mut received = vec![0; bytes.len()];
        to.read_exact(&mut received).unwrap();
        assert!(received == bytes, "the bytes differ");
    });
}

/// A TCP connection with unlimited data; returns the counter of received bytes.
///
/// CUBIC, whatever the machine prefers: where an interruption follows a ProbeRTT of BBR, that forgets the rate and
/// takes 3 to 5 s to find it again.
fn endless(world: &World) -> Arc<AtomicUsize> {
    let (mut client, mut server) = connect(world, (INNER, TCP_PORT));
    setsockopt(&client, TcpCongestion, &"cubic".into()).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        let block = bytes(65536);
        while client.write_all(&block).is_ok() {}
    });
    thread::spawn(move || {
        let mut block = vec![0; 65536];
        while let Ok(length @ 1..) = server.read(&mut block) {
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
fn tcp_passes_in_both_directions_and_control_c_leaves_no_interface() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    let block = bytes(3_000_000);
    for (client, server) in [connect(&world, (INNER, TCP_PORT)), connect(&world, (INNER_V6, TCP_PORT))] {
        transfer(&client, &server, &block);
        transfer(&server, &client, &block);
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
fn traffic_flows_within_a_second_after_either_endpoint_was_killed() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (mut gateway, mut vehicle) = world.start();
    let count = endless(&world);
    let probes = Probes::start(&world);
    let (mut ready, mut down, mut grown) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..4 {
        sleep(Duration::from_millis(1500));
        let (before, killed) = (count.load(Relaxed), probes.clock.now());
        if round % 2 == 0 {
            gateway.kill();
            gateway = world.start_gateway();
        } else {
            vehicle.kill();
            vehicle = world.start_vehicle();
        }
        let at = probes.clock.now();
        ready.push(at);
        down.push(at.since(killed));
        sleep(Duration::from_millis(4000));
        grown.push(count.load(Relaxed) - before);
    }
    let arrivals = probes.end();
    let waits: Vec<Duration> = ready.iter().map(|at| wait(&arrivals, *at)).collect();
    eprintln!("replies arrived {waits:?} after the agents were ready, which took {down:?}");
    eprintln!("longest gap {:?}", longest_gap(&arrivals));
    assert!(grown.iter().all(|bytes| *bytes > 1_000_000), "the transfer continues each time: {grown:?} bytes");
    assert!(waits.iter().all(|wait| *wait < MAX_INTERRUPTION), "{waits:?}");
    assert!(longest_gap(&arrivals) < MAX_INTERRUPTION, "traffic continues: {:?}", longest_gap(&arrivals));
}

#[test]
fn an_interface_that_goes_down_interrupts_traffic_for_less_than_a_second() {
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
    let arrivals = probes.end();
    let after: Vec<Instant> = arrivals.into_iter().filter(|arrival| *arrival + MAX_INTERRUPTION > at).collect();
    eprintln!("longest gap {:?}, {grown} bytes in 3 s", longest_gap(&after));
    assert!(longest_gap(&after) < MAX_INTERRUPTION, "{:?}", longest_gap(&after));
    assert!(grown > 3_000_000, "{grown} bytes over the remaining path");
    drop((gateway, vehicle));
}

#[test]
fn two_vehicles_of_one_gateway_receive_only_their_own_packets() {
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
        let mut buffer = [0; 10];
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from.ip()), (&[last][..], Ipv4Addr::new(10, 77, 0, last).into()));
        server.send_to(&[last, 0], from).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], [last, 0]);
    }
    drop((gateway, vehicles));
}

#[test]
fn a_gateway_that_does_not_answer_is_reported_once() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let gateway = world.start_gateway();
    let configuration = world.vehicle(1, &["lte", "its-g5"]);
    let (right, wrong) = (world.keys[0].public().to_string(), world.keys[2].public().to_string());
    let elsewhere = format!("{SERVER}:4761");
    for faulty in [configuration.replace(&right, &wrong), configuration.replace(&format!("{SERVER}:4760"), &elsewhere)]
    {
        let agent = Agent::start(&world.testbed.vehicle, &faulty);
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
fn a_path_without_a_route_is_reported_once() {
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
fn an_interface_name_in_use_is_reported_and_used_once_it_is_free() {
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
