//! An agent where the kernel's path manager manages: it steers the kernel's endpoints, and names those of others. The kernel's
//! lists of endpoints and of sockets are the judge.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Testbed, vehicle_address};
use crosslane_core::mptcp::AddressId;
use socket2::Socket;

const CONFIGURATION: &str = r#"
[service]
mode = "backup"
prefer = ["lte", "nr"]
endpoints = "POLICY"
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
const SOON: Duration = Duration::from_secs(10);

/// Id, path and backup flag of each endpoint.
type Endpoints = Vec<(u8, usize, bool)>;

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
}

impl World {
    fn new() -> World {
        World::with_delay(5)
    }

    fn with_delay(delay_ms: u64) -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 10.0, delay_ms);
        testbed.vehicle.enter(|| select_path_manager(PathManager::Kernel).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        World { testbed, _emulator: emulator, listener }
    }

    fn agent(&self, policy: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, &CONFIGURATION.replace("POLICY", policy))
    }

    fn of_kernel<T: Send>(&self, work: impl FnOnce(&mut EndpointSocket) -> T + Send) -> T {
        self.testbed.vehicle.enter(|| work(&mut EndpointSocket::open().unwrap())).unwrap()
    }

    /// Adds an endpoint as another program does.
    fn add(&self, id: u8, path: usize, backup: bool) {
        let endpoint = Endpoint::subflow(vehicle_address(path).into());
        let endpoint = Endpoint { id: Some(AddressId(id)), backup, fullmesh: true, ..endpoint };
        self.of_kernel(|kernel| kernel.add(&endpoint).unwrap());
    }

    fn endpoints(&self) -> Endpoints {
        let path = |address: IpAddr| (0..2).find(|path| address == IpAddr::from(vehicle_address(*path))).unwrap();
        let list = self.of_kernel(|kernel| kernel.list().unwrap());
        let mut list: Endpoints = list.iter().map(|one| (one.id.unwrap().0, path(one.address), one.backup)).collect();
        list.sort_unstable();
        list
    }

    /// Path and backup flag of each subflow of all connections.
    fn subflows(&self) -> Vec<(usize, bool)> {
        let connections = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let subflows = connections.iter().flat_map(|connection| &connection.subflows);
        let path = |local: IpAddr| (0..2).find(|path| local == IpAddr::from(vehicle_address(*path))).unwrap();
        let mut found: Vec<_> =
            subflows.map(|info| (path(info.subflow.local.ip()), info.mptcp.backup_local())).collect();
        found.sort_unstable();
        found
    }

    fn wait_for(&self, agent: &Agent, endpoints: &[(u8, usize, bool)], subflows: &[(usize, bool)]) {
        let began = Instant::now();
        while (self.endpoints(), self.subflows()) != (endpoints.to_vec(), subflows.to_vec()) {
            let found = (self.endpoints(), self.subflows());
            assert!(
                began.elapsed() < SOON,
                "{found:?} instead of {:?}; {}",
                (endpoints, subflows),
                agent.read("events.jsonl")
            );
            sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.testbed.vehicle.spawn(&mut command).unwrap();
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }
}

#[test]
fn the_endpoints_of_the_kernel_follow_the_wanted_states_and_survive_the_agent() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = world.agent("adopt");
    let normal = [(200, 0, false), (201, 1, true)];
    world.wait_for(&agent, &normal, &[]);
    let _connection = links::connect(&world.testbed, &world.listener);
    world.wait_for(&agent, &normal, &[(0, false), (1, true)]);
    // The kernel changes the flag of a subflow only when the peer has confirmed it.
    sleep(Duration::from_secs(1));
    world.run(&["prefer", "nr"]);
    world.wait_for(&agent, &[(200, 0, true), (201, 1, false)], &[(0, true), (1, false)]);
    agent.kill();
    let agent = world.agent("adopt");
    world.wait_for(&agent, &normal, &[(0, false), (1, true)]);
    assert_eq!(world.of_kernel(|kernel| kernel.limits().unwrap().subflows), 2);
}

/// The kernel changes the flag of a subflow only when the peer has confirmed it, an RTT after the join.
#[test]
fn a_flag_that_changes_while_a_subflow_is_joined_reaches_it() {
    if !can_drive() {
        return;
    }
    let world = World::with_delay(250);
    let agent = world.agent("adopt");
    world.wait_for(&agent, &[(200, 0, false), (201, 1, true)], &[]);
    let _connection = links::connect(&world.testbed, &world.listener);
    let began = Instant::now();
    while world.subflows().len() < 2 {
        assert!(began.elapsed() < SOON);
        sleep(Duration::from_millis(5));
    }
    world.run(&["prefer", "nr"]);
    world.wait_for(&agent, &[(200, 0, true), (201, 1, false)], &[(0, true), (1, false)]);
    sleep(Duration::from_secs(3));
    let repeats = agent.read("events.jsonl").matches("\"repeat_backup\"").count();
    assert!((1..=3).contains(&repeats), "{repeats}: none once it has reached all");
}

#[test]
fn endpoints_of_others_are_named_and_adopted_or_left_alone() {
    if !can_drive() {
        return;
    }
    for (policy, expected, sentence) in [
        ("adopt", [(3, 1, true), (200, 0, false)], "this agent sets its backup flag as path \"nr\" needs it"),
        ("own", [(3, 1, false), (200, 0, false)], "it stays as it is, and this agent does not steer path \"nr\""),
    ] {
        let world = World::new();
        world.add(3, 1, false);
        let agent = world.agent(policy);
        world.wait_for(&agent, &expected, &[]);
        sleep(Duration::from_secs(2));
        assert_eq!(world.endpoints(), expected);
        let fullmesh = world.of_kernel(|kernel| kernel.list().unwrap().iter().filter(|one| one.fullmesh).count());
        assert_eq!(fullmesh, 1, "its other flag stays");
        let (_, errors) = agent.end();
        assert_eq!(errors.matches("has set the MPTCP endpoint 3 with address").count(), 1, "{errors}");
        assert!(errors.contains("another program") && errors.contains(sentence), "{errors}");
    }
}

#[test]
fn a_program_that_runs_and_sets_endpoints_is_named_as_the_probable_owner() {
    if !can_drive() {
        return;
    }
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    world.add(3, 1, false);
    // Its name counts; it is no mptcpd.
    let name = folder.path().join("mptcpd");
    std::os::unix::fs::symlink(CROSSLANE, &name).unwrap();
    let mut command = Command::new(name);
    command.args(["mptcp", "listen", "127.0.0.1"]).stdout(Stdio::null());
    let mut other = world.testbed.vehicle.spawn(&mut command).unwrap();
    let agent = world.agent("adopt");
    world.wait_for(&agent, &[(3, 1, true), (200, 0, false)], &[]);
    let (_, errors) = agent.end();
    let expected = format!("mptcpd (process {}), has set the MPTCP endpoint 3", other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(errors.contains(&expected), "{errors}");
}

#[test]
fn no_endpoint_is_touched_if_that_is_off() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.add(3, 1, false);
    let agent = world.agent("off");
    sleep(Duration::from_secs(3));
    assert_eq!(world.endpoints(), [(3, 1, false)]);
    agent.end();
}

#[test]
fn a_second_agent_is_named_by_the_first() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let first = world.agent("adopt");
    let second = world.agent("adopt");
    let began = Instant::now();
    while !first.read("events.jsonl").contains("runs in this network namespace too") {
        assert!(began.elapsed() < 2 * SOON, "{}", first.read("events.jsonl"));
        sleep(Duration::from_millis(100));
    }
    second.end();
    first.end();
}
