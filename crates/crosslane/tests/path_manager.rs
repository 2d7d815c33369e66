//! The agent in real hands: peers that refuse, addresses that change, interfaces
//! that go and come back.
//!
//! `CROSSLANE_HANG_RUNS` repeats the connection that once hung so many times.

#![allow(clippy::unwrap_used)]

mod program;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, TcpState, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Namespace, Route, SERVER, Testbed, Wiring, vehicle_address};
use nix::sys::signal::Signal;
use program::agent::Agent;
use program::can_drive;
use program::links::{two_links, two_wires};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[service]
mode = "MODE"
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
const PATIENCE: Duration = Duration::from_secs(8);
/// First of the testbed's routing tables.
const FIRST_TABLE: u32 = 100;

/// A vehicle with two paths, and a server that accepts so many subflows beyond
/// the first of a connection.
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
        // The network takes nothing that bears another path's address.
        for conf in ["all", "default"] {
            testbed.server.set_sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "1").unwrap();
        }
        let listen = || {
            select_path_manager(PathManager::Kernel).unwrap();
            EndpointSocket::open().unwrap().set_limits(Limits { subflows, add_addr_accepted: 0 }).unwrap();
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            socket.bind(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
            socket.listen(256).unwrap();
            socket
        };
        let listener = testbed.server.enter(listen).unwrap();
        World { testbed, _emulator: emulator, listener }
    }

    fn agent(&self, mode: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, &CONFIGURATION.replace("MODE", mode))
    }

    fn connect(&self) -> (Socket, Socket) {
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            socket.connect(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
            socket
        };
        let near = self.testbed.vehicle.enter(connect).unwrap();
        let far = self.listener.accept().unwrap().0;
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        exchange(&near, &far);
        (near, far)
    }

    /// Waits until the vehicle has a subflow from `address`; returns how long.
    fn await_subflow(&self, address: Ipv4Addr) -> Duration {
        let start = Instant::now();
        while !established(&self.testbed.vehicle).contains(&address.into()) {
            assert!(start.elapsed() < PATIENCE, "no subflow from {address}");
            sleep(Duration::from_millis(10));
        }
        start.elapsed()
    }

    /// Takes an address of the vehicle away.
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

    /// Gives a path of the vehicle an address, with the routes for it.
    fn add_address(&self, place: usize, address: Ipv4Addr) {
        let name = ["one", "two"][place];
        let at_vehicle = || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index(name).unwrap();
            let route = Route { to: None, interface, source: Some(address), table: None, metric: place as u32 };
            let table = FIRST_TABLE + place as u32;
            wiring.add_address(interface, address, 32).unwrap();
            wiring.add_route(route).unwrap();
            wiring.add_route(Route { table: Some(table), metric: 0, ..route }).unwrap();
            wiring.add_rule(address, table).unwrap();
        };
        let at_server = || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index(name).unwrap();
            let route = Route { to: Some(address), interface, source: Some(SERVER), table: None, metric: 0 };
            wiring.add_route(route).unwrap();
        };
        self.testbed.server.enter(at_server).unwrap();
        self.testbed.vehicle.enter(at_vehicle).unwrap();
    }
}

/// The vehicle's addresses of the subflows that a namespace holds established.
fn established(namespace: &Namespace) -> Vec<IpAddr> {
    let subflows = namespace.enter(|| Diag::open().unwrap().subflows().unwrap()).unwrap();
    let established = subflows.iter().filter(|info| info.tcp.state == TcpState::Established);
    let vehicle = established.map(|info| match info.subflow.local.ip() {
        ip if ip == IpAddr::from(SERVER) => info.subflow.remote.ip(),
        ip => ip,
    });
    vehicle.collect()
}

fn exchange(near: &Socket, far: &Socket) {
    for (mut from, mut to) in [(near, far), (far, near)] {
        from.write_all(b"hello").unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
    }
}

/// The events of this kind.
fn events(text: &str, kind: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|event| event["event"] == kind).collect()
}

#[test]
fn a_connection_of_the_in_kernel_path_manager_is_left_alone() {
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
    let (near, far) = world.connect();
    world.await_subflow(vehicle_address(1));
    let agent = world.agent("backup");
    sleep(Duration::from_secs(2));
    let asked = Instant::now();
    let (text, stderr) = agent.end_by(Signal::SIGTERM);
    let obeyed = asked.elapsed();
    assert!(obeyed < Duration::from_millis(500), "ended after {obeyed:?}");
    let commands = events(&text, "command").len();
    assert!(commands <= 10, "{commands} commands");
    let notices = events(&text, "notice");
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!((stderr.lines().count(), stderr.contains("`kernel`")), (1, true), "said once: {stderr}");
    exchange(&near, &far);
}

#[test]
fn a_peer_without_room_is_not_stormed_and_its_limit_is_said() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::UserSpace, 0);
    let agent = world.agent("aggregate");
    let (near, far) = world.connect();
    sleep(Duration::from_secs(4));
    exchange(&near, &far);
    let (text, _) = agent.end();
    let commands = events(&text, "command").len();
    assert!((1..=10).contains(&commands), "{commands} commands");
    let notices = events(&text, "notice");
    assert!(notices.iter().any(|notice| notice["rule"] == "peer_limit"), "{notices:?}");
}

#[test]
fn the_peer_is_told_that_an_address_is_gone() {
    if !can_drive() {
        return;
    }
    // Both the first subflow, of id 0, and a further one.
    for place in [0, 1] {
        let world = World::new(PathManager::UserSpace, 8);
        let _agent = world.agent("aggregate");
        let (near, far) = world.connect();
        world.await_subflow(vehicle_address(1));
        exchange(&near, &far);
        world.remove_address(place, vehicle_address(place));
        let start = Instant::now();
        while established(&world.testbed.server).contains(&vehicle_address(place).into()) {
            assert!(start.elapsed() < PATIENCE, "the server still holds the subflow of path {place}");
            sleep(Duration::from_millis(20));
        }
        exchange(&near, &far);
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
    let (near, far) = world.connect();
    let mut addresses = [vehicle_address(0), vehicle_address(1)];
    world.await_subflow(addresses[1]);
    let (mut slow, mut worst) = (0, Duration::ZERO);
    for number in 0..20 {
        // The further subflow's path twice as often as the first one's.
        let place = usize::from(number % 3 != 0);
        world.remove_address(place, addresses[place]);
        sleep(Duration::from_millis(50));
        let [a, b, _, _] = addresses[place].octets();
        addresses[place] = Ipv4Addr::new(a, b, 0, 10 + number);
        world.add_address(place, addresses[place]);
        slow += u32::from(world.await_subflow(addresses[place]) > Duration::from_secs(1));
        let began = Instant::now();
        exchange(&near, &far);
        worst = worst.max(began.elapsed());
    }
    eprintln!("20 changes: data waited {} ms at most", worst.as_millis());
    assert!(slow <= 2, "{slow} of 20 took more than a second");
    assert!(worst < Duration::from_secs(3), "data waited {worst:?}");
    sleep(Duration::from_millis(500));
    let held = established(&world.testbed.server);
    assert_eq!(held.len(), 2, "{held:?}");
    let (text, _) = agent.end();
    let commands = events(&text, "command").len();
    assert!(commands <= 120, "{commands} commands");
}

#[test]
fn what_is_left_from_an_address_that_went_between_two_agents_is_closed() {
    if !can_drive() {
        return;
    }
    // Both the first subflow, bound to no interface, and a further one.
    for place in [0, 1] {
        let world = World::new(PathManager::UserSpace, 8);
        let agent = world.agent("aggregate");
        let (near, far) = world.connect();
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
            assert!(start.elapsed() < PATIENCE, "the former subflow of path {place} is left");
            sleep(Duration::from_millis(20));
        }
        exchange(&near, &far);
    }
}

/// What a connection carries while the first path's interface goes down and up.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// An upload, after which the server speaks for the first time.
    Up,
    Down,
    PingPong,
}

impl Traffic {
    fn carry(self, run: u64, mut near: &Socket, mut far: &Socket) -> std::io::Result<()> {
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
            Traffic::Up => bulk(near, far),
            Traffic::Down => bulk(far, near),
            Traffic::PingPong => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1500) {
                    near.write_all(&[1; 100])?;
                    far.read_exact(&mut [0; 100])?;
                    far.write_all(&[2; 100])?;
                    near.read_exact(&mut [0; 100])?;
                }
                Ok(())
            }
        }
    }
}

fn hangs(world: &World, run: u64) -> bool {
    let (near, far) = world.connect();
    let traffic = [Traffic::Up, Traffic::Down, Traffic::PingPong][(run % 3) as usize];
    let carried = thread::scope(|scope| {
        let carrier = scope.spawn(|| traffic.carry(run, &near, &far));
        sleep(Duration::from_millis(40 + run * 37 % 300));
        world.testbed.set_up(0, false).unwrap();
        sleep(Duration::from_millis([50, 300, 900][(run / 9 % 3) as usize]));
        world.testbed.set_up(0, true).unwrap();
        carrier.join().unwrap()
    });
    carried.inspect_err(|cause| eprintln!("run {run}, {traffic:?}, hangs: {cause}")).is_err()
}

#[test]
fn a_connection_does_not_hang_when_its_first_interface_goes_and_comes_back() {
    if !can_drive() {
        return;
    }
    let runs = std::env::var("CROSSLANE_HANG_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(12);
    let routed = || World::over(two_wires(["one", "two"], 20.0), None, PathManager::UserSpace, 2);
    let (mut hung, mut all) = (0, 0);
    for mode in ["aggregate", "backup"] {
        for world in [World::new(PathManager::UserSpace, 2), routed()] {
            let _agent = world.agent(mode);
            let count = u64::div_ceil(runs, 4);
            hung += (0..count).filter(|&run| hangs(&world, run)).count();
            all += count;
        }
    }
    eprintln!("{hung} hangs of {all}");
    assert_eq!(hung, 0, "hangs of {all}");
}

#[test]
fn a_signal_is_obeyed_in_a_storm_of_connections() {
    if !can_drive() {
        return;
    }
    let world = World::new(PathManager::Kernel, 8);
    let over = AtomicBool::new(false);
    let storm = |next: &dyn Fn() -> Option<Socket>| {
        let (mut open, mut count) = (VecDeque::new(), 0_u32);
        while !over.load(Ordering::Relaxed) {
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
        let asked = Instant::now();
        let (text, _) = agent.end_by(Signal::SIGTERM);
        let obeyed = asked.elapsed();
        over.store(true, Ordering::Relaxed);
        let connections: u32 = connectors.into_iter().map(|connector| connector.join().unwrap()).sum();
        let commands = events(&text, "command").len();
        eprintln!("{connections} connections, {commands} commands told, ended after {} ms", obeyed.as_millis());
        assert!(obeyed < Duration::from_millis(500), "ended after {obeyed:?}");
    });
}
