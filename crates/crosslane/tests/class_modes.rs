//! Classes by control group, and the mode `interactive`, on the real kernel: subflows and their flags as sock_diag reports
//! them.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, exchange, two_links};
use crate::program::{can_drive, not_run};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, vehicle_address};
use crosslane_core::link::{Bottleneck, Direction, DirectionParams, Loss, QueueLimit};
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[service]
prefer = ["lte", "nr"]
[[class]]
name = "voice"
mode = "interactive"
port = 5001
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
const SOON: Duration = Duration::from_secs(15);
/// The environment variable by which this program is a client: the folder of its control group.
const CLIENT: &str = "CROSSLANE_TEST_CLIENT";

struct World {
    testbed: Testbed,
    emulator: Emulator,
    listener: Socket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        World { testbed, emulator, listener }
    }

    /// Whether the subflow over each path is a backup, of the connection with this port; `None`: there is none.
    fn flags(&self, port: u16) -> [Option<bool>; 2] {
        let found = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let Some(connection) = found.iter().find(|other| other.local.port() == port) else { return [None; 2] };
        [0, 1].map(|path| {
            let local = IpAddr::from(vehicle_address(path));
            let mut subflows = connection.subflows.iter().map(|info| info.subflow);
            subflows.find(|subflow| subflow.local.ip() == local).map(|subflow| subflow.backup)
        })
    }

    /// Waits for these flags while `step` is repeated.
    fn wait_for(&self, port: u16, expected: [Option<bool>; 2], agent: &Agent, step: impl Fn()) {
        let began = Instant::now();
        while self.flags(port) != expected {
            let found = self.flags(port);
            assert!(began.elapsed() < SOON, "{found:?} instead of {expected:?}; {}", agent.read("events.jsonl"));
            step();
            sleep(Duration::from_millis(20));
        }
    }

    fn set_delay(&self, path: usize, delay_ms: u64) {
        let params = DirectionParams {
            bottleneck: Bottleneck::Rate { bit_s: 10e6 },
            delay: Duration::from_millis(delay_ms),
            loss: Loss::NONE,
            queue: QueueLimit::Packets(1000),
            codel: None,
        };
        for direction in Direction::BOTH {
            self.emulator.control().set(path, direction, params.clone()).unwrap();
        }
    }
}

const ACTIVE: Option<bool> = Some(false);
const BACKUP: Option<bool> = Some(true);

#[test]
fn an_interactive_connection_moves_to_the_path_of_less_delay() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.set_delay(1, 30);
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let (client, server) = links::connect(&world.testbed, &world.listener);
    let port = client.local_addr().unwrap().as_socket().unwrap().port();
    let step = || exchange(&client, &server);
    world.wait_for(port, [ACTIVE, BACKUP], &agent, step);
    // A jump would be taken for a loss.
    for delay_ms in (10..=60).step_by(5) {
        world.set_delay(0, delay_ms);
        (0..10).for_each(|_| step());
    }
    world.wait_for(port, [BACKUP, ACTIVE], &agent, step);
    let (events, _) = agent.end();
    let decision = events.lines().find(|line| line.contains("class_decision") && line.contains("interactive.delay"));
    assert!(decision.is_some_and(|line| line.contains("\"voice\"")), "{events}");
}

/// A control group, removed on drop.
struct Group(PathBuf);

impl Group {
    fn new(root: &Path) -> Option<Group> {
        let folder = root.join(format!("crosslane-test-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).ok().map(|()| Group(folder))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in [self.0.join("below"), self.0.clone()] {
            // The kernel removes a group some time after its last process.
            let began = Instant::now();
            while fs::remove_dir(&folder).is_err() && folder.exists() && began.elapsed() < SOON {
                sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A client in a control group with one connection; ended on drop.
struct Client(Child);

impl Client {
    fn start(world: &World, group: &Path) -> Client {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "class_modes::a_client_connects_from_its_control_group", "--ignored", "--nocapture"]);
        command.env(CLIENT, group).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Client(world.testbed.vehicle.spawn(&mut command).unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "a part of the next test, as a process"]
fn a_client_connects_from_its_control_group() {
    let Some(group) = std::env::var_os(CLIENT) else { return };
    fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.connect(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
    std::io::Write::write_all(&mut &socket, b"hello").unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn connections_of_a_control_group_and_of_those_below_have_its_class() {
    if !can_drive() {
        return;
    }
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
    let Some(group) = root.and_then(Group::new) else {
        not_run("creating a control group of version 2 needs its hierarchy and root");
        return;
    };
    let world = World::new();
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let class = CONFIGURATION.replace("port = 5001", &format!("cgroup = \"/{name}\"")).replace("interactive", "backup");
    let agent = Agent::start(&world.testbed.vehicle, &class);
    let below = group.0.join("below");
    let in_group = [root.unwrap(), &group.0, &below].map(|folder| {
        let client = Client::start(&world, folder);
        let (socket, address) = world.listener.accept().unwrap();
        (&socket).read_exact(&mut [0; 5]).unwrap();
        std::io::Write::write_all(&mut &socket, b"hello").unwrap();
        let port = address.as_socket().unwrap().port();
        (client, socket, port)
    });
    let expected = [[ACTIVE, ACTIVE], [ACTIVE, BACKUP], [ACTIVE, BACKUP]];
    for ((_, _, port), expected) in in_group.iter().zip(expected) {
        world.wait_for(*port, expected, &agent, || ());
    }
    // After a restart they are the same.
    agent.kill();
    let agent = Agent::start(&world.testbed.vehicle, &class);
    sleep(Duration::from_secs(1));
    for ((_, _, port), expected) in in_group.iter().zip(expected) {
        world.wait_for(*port, expected, &agent, || ());
    }
}
