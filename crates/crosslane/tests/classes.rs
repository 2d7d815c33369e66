//! Classes of connections on the real kernel: subflows and their flags as sock_diag reports them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::links::{self, exchange, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, not_run};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, vehicle_address};
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[service]
prefer = ["its-g5", "lte"]
[[class]]
name = "updates"
mode = "off"
mark = 7
[[class]]
name = "telemetry"
mode = "backup"
port = "5002-5003"
to = "10.255.0.0/16"
[[class]]
name = "video"
mode = "backup"
user = "65534"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "its-g5"
rat = "80211p"
stations = [1001]
[strategy]
name = "threshold"
[observe]
vanetza = "127.0.0.1:5051"
[log]
events = "EVENTS"
"#;
/// Period of the roadside unit's messages.
const PERIOD: Duration = Duration::from_millis(50);
/// Messages after which the expected state must be reached.
const MAX_MESSAGES: usize = 100;

/// Whether the subflow over `lte` and the one over `its-g5` are backups; `None`: there is none.
type Flags = [Option<bool>; 2];

const ACTIVE: Option<bool> = Some(false);
const BACKUP: Option<bool> = Some(true);

/// A vehicle with `lte` and `its-g5`, and a server with two ports.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listeners: [Socket; 2],
    roadside_unit: UdpSocket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "its-g5"], 10.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let first = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        let second = testbed.server.enter(|| {
            let socket = mptcp_socket();
            socket.bind(&SocketAddr::from((SERVER, 5002)).into()).unwrap();
            socket.listen(16).unwrap();
            socket
        });
        let roadside_unit = testbed.vehicle.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        World { testbed, _emulator: emulator, listeners: [first, second.unwrap()], roadside_unit }
    }

    /// A connection to one of the two ports by a socket with this mark.
    fn connect(&self, port: u16, mark: u32) -> Connection {
        Connection::new(self, port, || open(port, mark))
    }

    /// The same by an unprivileged user; `None` where this process cannot change its user.
    fn connect_unprivileged(&self, port: u16) -> Option<Connection> {
        let change_user = || {
            // SAFETY: the raw system call changes only this thread, which ends with the closure.
            unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, 65534, 65534, 65534) == 0 }
        };
        let as_user = || std::thread::scope(|scope| scope.spawn(change_user).join().unwrap());
        as_user().then(|| {
            Connection::new(self, port, || {
                assert!(change_user());
                open(port, 0)
            })
        })
    }

    fn flags(&self, connections: &[&Connection]) -> Vec<Flags> {
        let found = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let of = |connection: &&Connection| {
            let connection = found.iter().find(|other| other.local.port() == connection.port).unwrap();
            [0, 1].map(|path| {
                let local = IpAddr::from(vehicle_address(path));
                let mut subflows = connection.subflows.iter().map(|info| info.subflow);
                subflows.find(|subflow| subflow.local.ip() == local).map(|subflow| subflow.backup)
            })
        };
        connections.iter().map(of).collect()
    }

    /// Sends CAMs with this RSSI until the subflows of the connections are as expected.
    fn send_cams_until(&self, rssi_dbm: i32, connections: &[&Connection], expected: &[Flags]) {
        let cam =
            format!(r#"{{"rssi": {rssi_dbm}, "stationID": 1001, "fields": {{"header": {{"stationID": 1001}}}}}}"#);
        for _ in 0..MAX_MESSAGES {
            if self.flags(connections) == expected {
                return;
            }
            self.roadside_unit.send_to(cam.as_bytes(), (Ipv4Addr::LOCALHOST, 5051)).unwrap();
            sleep(PERIOD);
        }
        assert_eq!(self.flags(connections), expected, "after {MAX_MESSAGES} messages of {rssi_dbm} dBm");
    }

    /// What the program prints in the vehicle, read as JSON.
    fn ask(&self, arguments: &[&str]) -> serde_json::Value {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output: ProgramOutput =
            self.testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap().into();
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }
}

/// Both ends of a connection, and the vehicle's port.
struct Connection {
    client: Socket,
    server: Socket,
    port: u16,
}

impl Connection {
    fn new(world: &World, to: u16, open: impl FnOnce() -> Socket + Send) -> Connection {
        let open = || world.testbed.vehicle.enter(open).unwrap();
        let client = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        let server = world.listeners[usize::from(to - 5001)].accept().unwrap().0;
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        exchange(&client, &server);
        let port = client.local_addr().unwrap().as_socket().unwrap().port();
        Connection { client, server, port }
    }
}

fn mptcp_socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

fn open(port: u16, mark: u32) -> Socket {
    let socket = mptcp_socket();
    if mark != 0 {
        socket.set_mark(mark).unwrap();
    }
    socket.connect(&SocketAddr::from((SERVER, port)).into()).unwrap();
    socket
}

#[test]
fn connections_of_each_class_use_the_paths_as_its_mode_says() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let (plain, telemetry, updates) = (world.connect(5001, 0), world.connect(5002, 0), world.connect(5002, 7));
    let Some(video) = world.connect_unprivileged(5001) else {
        not_run("changing to an unprivileged user needs root");
        return;
    };
    let all = [&plain, &telemetry, &updates, &video];
    let first_only = [ACTIVE, None];
    let strong = [[ACTIVE, ACTIVE], [BACKUP, ACTIVE], first_only, [BACKUP, ACTIVE]];
    let weak = [[ACTIVE, BACKUP], [ACTIVE, BACKUP], first_only, [ACTIVE, BACKUP]];
    assert_eq!(world.flags(&all), [first_only; 4], "its-g5 has no samples yet");
    world.send_cams_until(-60, &all, &strong);
    world.send_cams_until(-95, &all, &weak);
    world.send_cams_until(-60, &all, &strong);

    let listed = world.ask(&["connections", "--json"]);
    let mut classes: Vec<&str> =
        listed.as_array().unwrap().iter().map(|connection| connection["class"].as_str().unwrap()).collect();
    classes.sort_unstable();
    assert_eq!(classes, ["default", "telemetry", "video"], "the agent manages no connection of class updates");
    let events = agent.read("events.jsonl");
    let decisions: Vec<serde_json::Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &serde_json::Value| event["event"] == "class_decision" && event["class"] == "telemetry")
        .collect();
    assert!(decisions.iter().any(|event| event["path"] == "lte" && event["state"] == "backup"), "{decisions:?}");

    agent.kill();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    world.send_cams_until(-95, &all, &weak);
    let later = world.connect(5002, 0);
    let all = [&plain, &telemetry, &updates, &video, &later];
    world.send_cams_until(-60, &all, &[strong[0], strong[1], strong[2], strong[3], strong[1]]);
    all.iter().for_each(|connection| exchange(&connection.client, &connection.server));
    let (_, stderr) = agent.end();
    assert_eq!(stderr, "");
}
