//! The agent with peers that reject subflows, addresses that change, and interfaces
//! that go down and up.
//!
//! `CROSSLANE_HANG_RUNS` is the number of runs of the test for hangs (default: 12).

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::{self, exchange, two_links, two_wires};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, TcpState, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Namespace, Route, SERVER, Testbed, Wiring, vehicle_address};
use nix::sys::signal::Signal;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[service]
mode = "MODE"
endpoints = "off"
[[path]]
name = "one"
rat = "lte"
[[path]]
name = "two"
rat = "lte"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
const TIMEOUT: Duration = Duration::from_secs(8);
/// First routing table of the testbed.
const FIRST_TABLE: u32 = 100;

/// A vehicle with two paths, and a server that accepts a given number of additional
/// subflows for each connection.
struct World {
    testbed: Testbed,
    _emulator: Option<Emulator>,
    listener: Socket,
}

impl World {
    fn new(vehicle: PathManager, subflows: u32) -> World {
        let (testbed, emulator) = two_links(["one", "two"], 20.0, 5);
        World::over(testbed, Some(emulator), vehicle, subflows)
    }

    fn over(testbed: Testbed, emulator: Option<Emulator>, vehicle: PathManager, subflows: u32) -> World {
        testbed.vehicle.enter(|| select_path_manager(vehicle).unwrap()).unwrap();
        // The network drops packets with the source address of another path.
        for conf in ["all", "default"] {
            testbed.server.set_sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "1").unwrap();
        }
        let listener = links::listen(&testbed, Limits { subflows, add_addr_accepted: 0 });
        World { testbed, _emulator: emulator, listener }
    }

    fn agent(&self, mode: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, &CONFIGURATION.replace("MODE", mode))
    }

    fn connect(&self) -> (Socket, Socket) {
        links::connect(&self.testbed, &self.listener)
    }

    /// Waits until the vehicle has a subflow from `address`; returns the time that took.
    fn await_subflow(&self, address: Ipv4Addr) -> Duration {
        let start = Instant::now();
        while !established(&self.testbed.vehicle).contains(&address.into()) {
            assert!(start.elapsed() < TIMEOUT, "no subflow from {address}");
            sleep(Duration::from_millis(10));
        }
        start.elapsed()
    }

    /// Removes an address of the vehicle.
    fn remove_address(&self, place: usize, address: Ipv4Addr) {
        let remove = |interface: u32| async move {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let message = rtnetlink::AddressMessageBuilder::<Ipv4Addr>::new().index(interface).address(address, 32);
            handle.address().del(message.build()).execute().await.unwrap();
        };
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let index = || Wiring::open().unwrap().index(["one", "two"][place]).unwrap();
        self.testbed.vehicle.enter(|| runtime().block_on(remove(index()))).unwrap();
    }

    /// Adds an address, with its routes, to a path of the vehicle.
    fn add_address(&self, place: usize, address: Ipv4Addr) {
        let name = ["one", "two"][place];
        let at_vehicle = || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index(name).unwrap();
            let route = Route {
                to: None,
                interface,
                via: None,
                source: Some(address.into()),
                table: None,
                metric: place as u32,
            };
            let table = FIRST_TABLE + place as u32;
            wiring.add_address(interface, address, 32).unwrap();
            wiring.add_route(route).unwrap();
            wiring.add_route(Route { table: Some(table), metric: 0, ..route }).unwrap();
            wiring.add_rule(address.into(), table).unwrap();
        };
        let at_server = || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index(name).unwrap();
            let route = Route {
                to: Some(address.into()),
                interface,
                via: None,
                source: Some(SERVER.into()),
                table: None,
                metric: 0,
            };
            wiring.add_route(route).unwrap();
        };
        self.testbed.server.enter(at_server).unwrap();
        self.testbed.vehicle.enter(at_vehicle).unwrap();
    }
}

/// Vehicle addresses of all established subflows in a namespace.
fn established(namespace: &Namespace) -> Vec<IpAddr> {
    let subflows = namespace.enter(|| Diag::open().unwrap().subflows().unwrap()).unwrap();
    let established = subflows.iter().filter(|info| info.tcp.state == TcpState::Established);
    let addresses = established.map(|info| match info.subflow.local.ip() {
        ip if ip == IpAddr::from(SERVER) => info.subflow.remote.ip(),
        ip => ip,
    });
    addresses.collect()
}

/// The events of this kind.
fn events(text: &str, kind: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|event| event["event"] == kind).collect()
}

#[test]
fn connections_of_the_in_kernel_path_manager_are_not_changed() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, 8);
    let endpoints = || {
        let mut socket = EndpointSocket::open().unwrap();
        socket.set_limits(Limits { subflows: 8, add_addr_accepted: 8 }).unwrap();
        socket.add(&Endpoint::subflow(vehicle_address(1).into())).unwrap();
    };
    world.testbed.vehicle.enter(endpoints).unwrap();
    let (client, server) = world.connect();
    world.await_subflow(vehicle_address(1));
    let agent = world.agent("backup");
    sleep(Duration::from_secs(2));
    let signalled = Instant::now();
    let (text, stderr) = agent.end_by(Signal::SIGTERM);
    let took = signalled.elapsed();
    assert!(took < Duration::from_millis(500), "ended after {took:?}");
    let commands = events(&text, "command").len();
    assert!(commands <= 10, "{commands} commands");
    let notices = events(&text, "notice");
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!((stderr.lines().count(), stderr.contains("`kernel`")), (1, true), "reported once: {stderr}");
    exchange(&client, &server);
}

#[test]
fn a_peer_at_its_subflow_limit_gets_few_requests_and_its_limit_is_reported() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::UserSpace, 0);
    let agent = world.agent("aggregate");
    let (client, server) = world.connect();
    sleep(Duration::from_secs(4));
    exchange(&client, &server);
    let (text, _) = agent.end();
    let commands = events(&text, "command").len();
    assert!((1..=10).contains(&commands), "{commands} commands");
    let notices = events(&text, "notice");
    assert!(notices.iter().any(|notice| notice["rule"] == "peer_limit"), "{notices:?}");
}

#[test]
fn the_removal_of_an_address_is_signalled_to_the_peer() {
    if !can_drive() {
        return;
    }
    // The first subflow, with address ID 0, and an additional one.
    for place in [0, 1] {
        let world = World::new(PathManager::UserSpace, 8);
        let _agent = world.agent("aggregate");
        let (client, server) = world.connect();
        world.await_subflow(vehicle_address(1));
        exchange(&client, &server);
        world.remove_address(place, vehicle_address(place));
        let start = Instant::now();
        while established(&world.testbed.server).contains(&vehicle_address(place).into()) {
            assert!(start.elapsed() < TIMEOUT, "the server still holds the subflow of path {place}");
            sleep(Duration::from_millis(20));
        }
        exchange(&client, &server);
    }
}

#[test]
fn a_path_recovers_from_any_number_of_changes_of_its_address() {
    if !can_drive() {
        return;
    }
    // Linux's default limit.
    let world = World::new(PathManager::UserSpace, 2);
    let agent = world.agent("aggregate");
    let (client, server) = world.connect();
    let mut addresses = [vehicle_address(0), vehicle_address(1)];
    world.await_subflow(addresses[1]);
    let (mut slow, mut worst) = (0, Duration::ZERO);
    for number in 0..20 {
        // The path of the additional subflow changes twice as often as that of the first.
        let place = usize::from(number % 3 != 0);
        world.remove_address(place, addresses[place]);
        sleep(Duration::from_millis(50));
        let [a, b, _, _] = addresses[place].octets();
        addresses[place] = Ipv4Addr::new(a, b, 0, 10 + number);
        world.add_address(place, addresses[place]);
        slow += u32::from(world.await_subflow(addresses[place]) > Duration::from_secs(1));
        let start = Instant::now();
        exchange(&client, &server);
        worst = worst.max(start.elapsed());
    }
    eprintln!("20 changes: data waited {} ms at most", worst.as_millis());
    assert!(slow <= 2, "{slow} of 20 took more than a second");
    assert!(worst < Duration::from_secs(3), "data waited {worst:?}");
    // On a busy machine the peer may have reset the last subflow for lack of room; it is then retried.
    sleep(Duration::from_millis(500));
    let start = Instant::now();
    while established(&world.testbed.server).len() != 2 && start.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(20));
    }
    let remaining = established(&world.testbed.server);
    assert_eq!(remaining.len(), 2, "{remaining:?}");
    let (text, _) = agent.end();
    let commands = events(&text, "command").len();
    assert!(commands <= 120, "{commands} commands");
}

#[test]
fn a_subflow_whose_address_was_removed_between_two_agents_is_closed() {
    if !can_drive() {
        return;
    }
    // The first subflow, bound to no interface, and an additional one.
    for place in [0, 1] {
        let world = World::new(PathManager::UserSpace, 8);
        let agent = world.agent("aggregate");
        let (client, server) = world.connect();
        world.await_subflow(vehicle_address(1));
        agent.kill();
        let [a, b, _, _] = vehicle_address(place).octets();
        let address = Ipv4Addr::new(a, b, 0, 10);
        world.remove_address(place, vehicle_address(place));
        world.add_address(place, address);
        let _agent = world.agent("aggregate");
        world.await_subflow(address);
        let start = Instant::now();
        while established(&world.testbed.vehicle).contains(&vehicle_address(place).into()) {
            assert!(start.elapsed() < TIMEOUT, "the former subflow of path {place} is left");
            sleep(Duration::from_millis(20));
        }
        exchange(&client, &server);
    }
}

/// Traffic of a connection while the interface of the first path goes down and up.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// An upload; the server sends only after it is complete.
    Up,
    Down,
    PingPong,
}

impl Traffic {
    fn carry(self, run: u64, mut client: &Socket, mut server: &Socket) -> std::io::Result<()> {
        let size = [600_000, 1_500_000, 4_000_000][(run / 3 % 3) as usize];
        let bulk = |mut from: &Socket, mut to: &Socket| {
            thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    from.write_all(&vec![7; size])?;
                    from.shutdown(Shutdown::Write)
                });
                let mut received = Vec::new();
                to.read_to_end(&mut received)?;
                assert_eq!(received.len(), size);
                to.write_all(&[8; 74])?;
                sender.join().unwrap()?;
                from.read_exact(&mut [0; 74])
            })
        };
        match self {
            Traffic::Up => bulk(client, server),
            Traffic::Down => bulk(server, client),
            Traffic::PingPong => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1500) {
                    client.write_all(&[1; 100])?;
                    server.read_exact(&mut [0; 100])?;
                    server.write_all(&[2; 100])?;
                    client.read_exact(&mut [0; 100])?;
                }
                Ok(())
            }
        }
    }
}

fn hangs(world: &World, run: u64) -> bool {
    let (client, server) = world.connect();
    let traffic = [Traffic::Up, Traffic::Down, Traffic::PingPong][(run % 3) as usize];
    let carried = thread::scope(|scope| {
        let carrier = scope.spawn(|| traffic.carry(run, &client, &server));
        sleep(Duration::from_millis(40 + run * 37 % 300));
        world.testbed.set_up(0, false).unwrap();
        sleep(Duration::from_millis([50, 300, 900][(run / 9 % 3) as usize]));
        world.testbed.set_up(0, true).unwrap();
        carrier.join().unwrap()
    });
    carried.inspect_err(|cause| eprintln!("run {run}, {traffic:?}, hangs: {cause}")).is_err()
}

#[test]
fn a_connection_does_not_hang_when_its_first_interface_goes_down_and_up() {
    if !can_drive() {
        return;
    }
    let runs = std::env::var("CROSSLANE_HANG_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(12);
    let routed = || World::over(two_wires(["one", "two"], 20.0), None, PathManager::UserSpace, 2);
    let (mut hung, mut total) = (0, 0);
    for mode in ["aggregate", "backup"] {
        for world in [World::new(PathManager::UserSpace, 2), routed()] {
            let _agent = world.agent(mode);
            let count = u64::div_ceil(runs, 4);
            hung += (0..count).filter(|&run| hangs(&world, run)).count();
            total += count;
        }
    }
    eprintln!("{hung} hangs of {total}");
    assert_eq!(hung, 0, "hangs of {total}");
}

#[test]
fn a_signal_ends_the_agent_promptly_during_a_connection_storm() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, 8);
    let stop = AtomicBool::new(false);
    let storm = |next: &dyn Fn() -> Option<Socket>| {
        let (mut open, mut count) = (VecDeque::new(), 0_u32);
        while !stop.load(Ordering::Relaxed) {
            match next() {
                Some(socket) => open.push_back(socket),
                None => sleep(Duration::from_millis(1)),
            }
            count += 1;
            if open.len() > 50 {
                open.pop_front();
            }
        }
        count
    };
    world.listener.set_nonblocking(true).unwrap();
    let connect = || {
        let mut socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).ok()?;
        socket.connect_timeout(&SocketAddr::from((SERVER, 5001)).into(), Duration::from_millis(200)).ok()?;
        socket.write_all(b"hello").ok()?;
        Some(socket)
    };
    let vehicle = &world.testbed.vehicle;
    let connect_all = || vehicle.enter(|| storm(&connect)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| storm(&|| world.listener.accept().ok().map(|(socket, _)| socket)));
        let connectors: Vec<_> = (0..4).map(|_| scope.spawn(connect_all)).collect();
        sleep(Duration::from_millis(500));
        let agent = world.agent("backup");
        sleep(Duration::from_millis(500));
        vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        sleep(Duration::from_millis(1500));
        let signalled = Instant::now();
        let (text, _) = agent.end_by(Signal::SIGTERM);
        let took = signalled.elapsed();
        stop.store(true, Ordering::Relaxed);
        let connections: u32 = connectors.into_iter().map(|connector| connector.join().unwrap()).sum();
        let commands = events(&text, "command").len();
        eprintln!("{connections} connections, {commands} commands reported, ended after {} ms", took.as_millis());
        assert!(took < Duration::from_millis(500), "ended after {took:?}");
    });
}
