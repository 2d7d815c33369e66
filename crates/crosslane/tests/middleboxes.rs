//! Networks that do not let MPTCP pass, with an agent on the real kernel: what it says of them, and how often it asks.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, exchange, links_through};
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::control::report::{AgentStatus, Explanation};
use crosslane::kernel_counters;
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, vehicle_address};
use crosslane_core::link::Middlebox;
use serde::de::DeserializeOwned;
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
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
/// Longest wait for what must happen.
const SOON: Duration = Duration::from_secs(20);

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
    agent: Agent,
}

impl World {
    /// A vehicle with an agent, over two links with these middleboxes; connections begin over the first, `lte`.
    fn new(middleboxes: [Option<Middlebox>; 2]) -> World {
        World::with(middleboxes, "")
    }

    /// The same with more in the agent's configuration.
    fn with(middleboxes: [Option<Middlebox>; 2], more: &str) -> World {
        let (testbed, emulator) = links_through(&["lte", "nr"], &[10.0; 2], 5, &middleboxes);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        let agent = Agent::start(&testbed.vehicle, &format!("{CONFIGURATION}{more}"));
        World { testbed, _emulator: emulator, listener, agent }
    }

    /// A connection from the address of a path (0 `lte`, 1 `nr`) that has carried data.
    fn connect(&self, path: usize) -> (Socket, Socket) {
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            socket.bind(&SocketAddr::from((vehicle_address(path), 0)).into()).unwrap();
            socket.connect(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
            socket
        };
        let client = self.testbed.vehicle.enter(connect).unwrap();
        let server = self.listener.accept().unwrap().0;
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(SOON)).unwrap();
        }
        exchange(&client, &server);
        (client, server)
    }

    fn ask<T: DeserializeOwned>(&self, arguments: &[&str]) -> T {
        let output = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&output).unwrap()
    }

    fn say(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.testbed.vehicle.spawn(&mut command).unwrap();
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        output.stdout
    }

    /// Waits for the rule by which the agent names the network of a path.
    fn wait_for_rule(&self, path: &str, rule: Option<&str>) {
        let began = Instant::now();
        loop {
            let status: AgentStatus = self.ask(&["status"]);
            let found = status.paths.iter().find(|one| one.path == path).unwrap().network.as_ref();
            let found = found.map(|reason| reason.rule.as_str());
            if found == rule {
                return;
            }
            assert!(began.elapsed() < SOON, "{found:?} instead of {rule:?}; {}", self.agent.read("events.jsonl"));
            sleep(Duration::from_millis(100));
        }
    }

    /// One of the kernel's counters of MPTCP in the vehicle.
    fn counter(&self, name: &str) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let table = self.testbed.vehicle.enter(read).unwrap();
        kernel_counters::table(&table, "MPTcpExt").unwrap()(name).unwrap()
    }

    fn subflows(&self) -> usize {
        let of = || Diag::open().unwrap().connections().unwrap().iter().map(|one| one.subflows.len()).sum();
        self.testbed.vehicle.enter(of).unwrap()
    }
}

fn carries((client, server): &(Socket, Socket)) {
    let data = vec![7; 100_000];
    std::thread::scope(|scope| {
        scope.spawn(|| (&mut &*client).write_all(&data).unwrap());
        let mut read = vec![0; data.len()];
        (&mut &*server).read_exact(&mut read).unwrap();
        assert_eq!(read, data);
    });
}

#[test]
fn a_network_that_removes_mp_join_is_named_and_asked_rarely() {
    if !can_drive() {
        return;
    }
    let world = World::new([None, Some(Middlebox::StripsJoin)]);
    let first = world.connect(0);
    world.wait_for_rule("nr", Some("network.strips-mp-join"));
    let more: Vec<_> = (0..10).map(|_| world.connect(0)).collect();
    sleep(Duration::from_secs(4));
    let joins = world.counter("MPJoinSynTx");
    assert!((3..=4).contains(&joins), "{joins} joins of eleven connections");
    more.iter().chain([&first]).for_each(carries);
    assert_eq!(world.subflows(), 11, "the kernel has no further subflows");
    let status = world.say(&["status"]);
    assert!(
        status.contains("network         nr: ") && status.contains("a tunnel ([tunnel]) would pass it"),
        "{status}"
    );
    assert!(world.say(&["links"]).contains("had no MP_JOIN"));
    let Explanation::Path { status, .. } = world.ask(&["explain", "nr"]) else { panic!() };
    assert_eq!(status.network.unwrap().rule, "network.strips-mp-join");
    let listed: Vec<serde_json::Value> = world.ask(&["connections"]);
    let Explanation::Connection { paths, .. } = world.ask(&["explain", listed[0]["token"].as_str().unwrap()]) else {
        panic!()
    };
    assert_eq!(paths[1].reason.as_ref().unwrap().rule, "subflow.network", "{paths:?}");
    let (events, errors) = world.agent.end();
    let notices = events.lines().filter(|line| line.contains("\"network.strips-mp-join\"")).count();
    assert_eq!((notices, errors.matches("had no MP_JOIN").count()), (1, 1), "{errors}");
}

#[test]
fn a_network_that_drops_joins_is_named_while_connections_go_on() {
    if !can_drive() {
        return;
    }
    let world = World::new([None, Some(Middlebox::DropsJoin)]);
    let connections: Vec<_> = (0..10).map(|_| world.connect(0)).collect();
    world.wait_for_rule("nr", Some("network.no-answer"));
    let began = Instant::now();
    while world.subflows() > connections.len() {
        assert!(began.elapsed() < SOON, "the kernel still repeats the SYNs of joins that were given up");
        sleep(Duration::from_millis(50));
    }
    connections.iter().for_each(carries);
    // A connection that begins over it shows that it carries.
    let _over_nr = world.connect(1);
    let Explanation::Path { status, .. } = world.ask(&["explain", "nr"]) else { panic!() };
    let text = status.network.unwrap().text;
    assert!(text.contains("its network drops SYNs with MP_JOIN, and no connection"), "{text}");
}

#[test]
fn a_network_that_removes_mp_capable_is_known_by_a_peer_with_mptcp_elsewhere() {
    if !can_drive() {
        return;
    }
    let world = World::new([Some(Middlebox::StripsCapable), None]);
    let plain = world.connect(0);
    world.wait_for_rule("lte", Some("network.no-mptcp"));
    let _with_mptcp = world.connect(1);
    world.wait_for_rule("lte", Some("network.strips-mp-capable"));
    world.wait_for_rule("nr", None);
    carries(&plain);
}

#[test]
fn with_a_tunnel_the_command_is_named_that_leads_a_server_through_it() {
    if !can_drive() {
        return;
    }
    let tunnel = "[tunnel]\naddress = [\"10.77.0.2/24\"]\ngateway = \"10.255.0.1:4754\"\nencryption = \"none\"\n";
    let world = World::with([Some(Middlebox::StripsCapable), None], tunnel);
    let _plain = world.connect(0);
    world.wait_for_rule("lte", Some("network.no-mptcp"));
    let remedy = "`ip route add ADDRESS dev crosslane0` leads what goes to a server through it";
    let said = world.say(&["status"]);
    assert!(said.contains(remedy), "{said}");
    let (events, errors) = world.agent.end();
    assert!(events.contains(remedy) && errors.contains(remedy), "{errors}");
}

#[test]
fn a_blackhole_that_the_kernel_found_is_named_until_mptcp_is_back() {
    if !can_drive() {
        return;
    }
    let world = World::new([Some(Middlebox::DropsCapable), None]);
    let plain = world.connect(0);
    let is_named = || {
        let status: AgentStatus = world.ask(&["status"]);
        status.problems.iter().any(|problem| problem.contains("net.mptcp.blackhole_timeout"))
    };
    let wait = |named: bool| {
        let began = Instant::now();
        while is_named() != named {
            assert!(began.elapsed() < SOON, "{}", world.agent.read("events.jsonl"));
            sleep(Duration::from_millis(100));
        }
    };
    wait(true);
    carries(&plain);
    // The kernel begins without MPTCP over each path.
    let _second = world.connect(1);
    assert_eq!(world.counter("MPCapableSYNTXDisabled"), 1);
    // The kernel forgets it when the time is set.
    world.testbed.vehicle.set_sysctl("net/mptcp/blackhole_timeout", "0").unwrap();
    let _third = world.connect(1);
    wait(false);
}
