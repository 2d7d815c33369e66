//! A thousand connections that begin within five seconds: each gets its subflows, and none twice. The kernel's list of
//! sockets is the judge.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::{self, two_links};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, vehicle_address};
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[service]
prefer = ["lte", "nr"]
[[class]]
name = "telemetry"
mode = "backup"
port = 5002
[[class]]
name = "updates"
mode = "off"
port = 5003
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
const CONNECTIONS: usize = 1000;
const DURATION: Duration = Duration::from_secs(5);
/// Threads that connect, each one connection after the other: each takes some RTTs.
const CLIENTS: usize = 20;
/// The server's ports: connections to each have a class.
const PORTS: [u16; 3] = [5001, 5002, 5003];
/// Longest wait for the subflows, and for an answer, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// How long the subflows are watched once they are as expected: longer than the agent waits for a join.
const WATCHED: Duration = Duration::from_secs(4);

/// Backup flags of a connection's subflows over each path.
type Flags = [Vec<bool>; 2];

/// The subflows that a connection to a port is to have.
fn expected(port: u16) -> Flags {
    match port {
        5001 => [vec![false], vec![false]],
        5002 => [vec![false], vec![true]],
        _ => [vec![false], vec![]],
    }
}

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    /// The server's ends of connections.
    accepted: Receiver<Socket>,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 50.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let first = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        let listen = |port| {
            let socket = mptcp_socket();
            socket.bind(&SocketAddr::from((SERVER, port)).into()).unwrap();
            socket.listen(2048).unwrap();
            socket
        };
        let (accepting, accepted) = mpsc::channel();
        let others = testbed.server.enter(|| [listen(PORTS[1]), listen(PORTS[2])]).unwrap();
        for listener in [first].into_iter().chain(others) {
            let accepting = accepting.clone();
            // Ends with the process: an MPTCP listener has no timeout.
            thread::spawn(move || {
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_read_timeout(Some(SOON)).unwrap();
                    { &socket }.read_exact(&mut [0; 5]).unwrap();
                    { &socket }.write_all(b"hello").unwrap();
                    if accepting.send(socket).is_err() {
                        break;
                    }
                }
            });
        }
        World { testbed, _emulator: emulator, accepted }
    }

    /// Opens the connections, one every five milliseconds; the client's ends.
    fn connect_all(&self) -> Vec<Socket> {
        let (began, vehicle) = (Instant::now(), &self.testbed.vehicle);
        let client = |first: usize| {
            let connect = || (first..CONNECTIONS).step_by(CLIENTS).map(|number| connect(began, number)).collect();
            vehicle.enter(connect).unwrap()
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|first| scope.spawn(move || client(first))).collect();
            clients.into_iter().flat_map(|client| -> Vec<Socket> { client.join().unwrap() }).collect()
        })
    }

    /// The flags of each connection, by its port of the server.
    fn flags(&self) -> Vec<(u16, Flags)> {
        let found = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let of_path = |connection: &crosslane::netlink::diag::Connection, path| {
            let local = IpAddr::from(vehicle_address(path));
            let subflows = connection.subflows.iter().filter(|info| info.subflow.local.ip() == local);
            subflows.map(|info| info.mptcp.backup_local()).collect()
        };
        found.iter().map(|one| (one.remote.port(), [0, 1].map(|path| of_path(one, path)))).collect()
    }
}

fn mptcp_socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

/// A connection that begins in its turn and has carried data in both directions.
fn connect(began: Instant, number: usize) -> Socket {
    let turn = began + DURATION * number as u32 / CONNECTIONS as u32;
    sleep(turn.saturating_duration_since(Instant::now()));
    let socket = mptcp_socket();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.connect(&SocketAddr::from((SERVER, PORTS[number % PORTS.len()])).into()).unwrap();
    { &socket }.write_all(b"hello").unwrap();
    { &socket }.read_exact(&mut [0; 5]).unwrap();
    socket
}

/// How many connections to each port have which subflows.
fn summary(found: &[(u16, Flags)]) -> BTreeMap<&(u16, Flags), usize> {
    found.iter().fold(BTreeMap::new(), |mut counts, one| {
        *counts.entry(one).or_default() += 1;
        counts
    })
}

#[test]
fn a_thousand_connections_in_five_seconds_have_each_subflow_of_their_class_once() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let began = Instant::now();
    let clients = world.connect_all();
    let last = Instant::now();
    let servers: Vec<Socket> = (0..CONNECTIONS).map(|_| world.accepted.recv_timeout(SOON).unwrap()).collect();
    let mut complete = None;
    while complete.is_none_or(|at: Instant| at.elapsed() < WATCHED) {
        let found = world.flags();
        let has_one_twice = |(_, flags): &&(u16, Flags)| flags.iter().any(|of_path| of_path.len() > 1);
        assert_eq!(found.iter().find(has_one_twice), None);
        let is_complete = found.len() == CONNECTIONS && found.iter().all(|(port, flags)| *flags == expected(*port));
        match complete {
            None if is_complete => complete = Some(Instant::now()),
            None => assert!(last.elapsed() < SOON, "{:?}; {}", summary(&found), agent.read("stderr")),
            Some(_) => assert!(is_complete, "no longer as expected: {:?}", summary(&found)),
        }
        sleep(Duration::from_millis(20));
    }
    let late = complete.unwrap() - last;
    eprintln!(
        "{CONNECTIONS} connections in {:.2} s; the last subflow at most {late:.0?} after the last connection; none twice",
        (last - began).as_secs_f64()
    );
    assert_eq!((clients.len(), servers.len()), (CONNECTIONS, CONNECTIONS));
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    for fault in ["\"waiting\"", "\"too_many\"", "\"error\":\""] {
        assert!(!events.contains(fault), "{fault}");
    }
}
