//! `crosslane status`, `links`, `connections`, `watch`, `explain`, `prefer`, `mode` and `reload` with real agents on a
//! vehicle with two radios.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::{Agent, take_down};
use crate::program::links::{self, exchange, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, squat};
use crosslane::control::report::{AgentStatus, ConnectionReport, Explanation};
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Namespace, Testbed};
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[service]
mode = "aggregate"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
/// Longest time until a state that was requested is reached.
const SOON: Duration = Duration::from_secs(5);

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        World { testbed, _emulator: emulator, listener }
    }

    /// Client and server sockets of a connection that has carried data.
    fn connect(&self) -> (Socket, Socket) {
        links::connect(&self.testbed, &self.listener)
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        run(&self.testbed.vehicle, arguments)
    }

    /// The answer of a command with `--json`.
    fn json<T: DeserializeOwned>(&self, arguments: &[&str]) -> T {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }

    fn status(&self) -> AgentStatus {
        self.json(&["status"])
    }

    /// State of each path.
    fn states(&self) -> [String; 2] {
        self.status().paths.into_iter().map(|path| path.state).collect::<Vec<_>>().try_into().unwrap()
    }

    /// State of the subflow of the only connection over each path.
    fn subflows(&self) -> Vec<(String, String)> {
        let connections: Vec<ConnectionReport> = self.json(&["connections"]);
        assert!(connections.len() <= 1, "{connections:?}");
        let subflows = connections.into_iter().flat_map(|connection| connection.subflows);
        let mut subflows: Vec<_> = subflows.map(|subflow| (subflow.path, subflow.state)).collect();
        subflows.sort();
        subflows
    }

    fn await_subflows(&self, lte: &str, nr: &str) {
        let expected = [("lte".to_owned(), lte.to_owned()), ("nr".to_owned(), nr.to_owned())];
        let began = Instant::now();
        while self.subflows() != expected {
            assert!(began.elapsed() < SOON, "{:?} instead of {expected:?}", self.subflows());
            sleep(Duration::from_millis(20));
        }
    }
}

fn run(namespace: &Namespace, arguments: &[&str]) -> ProgramOutput {
    start(namespace, arguments).wait_with_output().unwrap().into()
}

fn start(namespace: &Namespace, arguments: &[&str]) -> Child {
    let mut command = Command::new(CROSSLANE);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap()
}

#[test]
fn an_agent_is_looked_at_while_it_runs() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let none = world.run(&["status"]);
    assert_eq!(none.code, Some(3), "{none:?}");
    assert!(none.sentence().contains("no agent runs in this network namespace; start `crosslane agent"), "{none:?}");
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let (client, server) = world.connect();
    world.await_subflows("active", "active");
    let began = Instant::now();
    while world.status().paths.iter().any(|path| path.rtt_ms.is_none()) {
        assert!(began.elapsed() < SOON, "{:?}", world.status().paths);
        sleep(Duration::from_millis(20));
    }
    let status = world.status();
    assert_eq!((status.pid, status.strategy.as_deref(), status.connections), (agent.child.id(), Some("threshold"), 1));
    assert_eq!(status.problems, [""; 0]);
    for path in &status.paths {
        assert_eq!((path.state.as_str(), path.belief.as_str(), path.connections), ("active", "good", 1), "{path:?}");
        assert_eq!(path.state_reason.text, "the interface is up");
        assert!(path.rtt_ms.is_some_and(|rtt_ms| rtt_ms > 9.0), "{path:?}");
        assert!(path.sent_bytes.is_some_and(|bytes| bytes > 100), "{path:?}");
        assert!(path.state_since_s < status.uptime_s);
    }
    let shown = world.run(&["status"]).stdout;
    assert!(shown.contains("strategy        threshold, mode aggregate\nconnections     1\n"), "{shown}");
    assert!(world.run(&["links"]).stdout.starts_with("path  interface  address"), "{shown}");
    let connections: Vec<ConnectionReport> = world.json(&["connections"]);
    let token = connections[0].token.to_string();
    assert!(connections[0].subflows.iter().any(|subflow| subflow.received_bytes == Some(5)), "{connections:?}");
    assert!(world.run(&["connections"]).stdout.contains(&token));
    let explained = || match world.json(&["explain", &token]) {
        Explanation::Connection { paths, changes, .. } => (paths, changes),
        other @ Explanation::Path { .. } => panic!("{other:?}"),
    };
    let (paths, changes) = explained();
    assert!(changes.iter().any(|change| change.text == "the subflow over nr was established, active"), "{changes:?}");
    assert!(paths.iter().all(|path| path.state == "active" && path.reason.is_none()), "{paths:?}");

    take_down(&world.testbed.vehicle, "nr");
    let began = Instant::now();
    while world.states() != ["active", "closed"] {
        assert!(began.elapsed() < SOON, "{:?}", world.states());
    }
    let (_, changes) = explained();
    let closed = "the agent closed the subflow over nr: ";
    assert!(changes.iter().any(|change| change.text.starts_with(closed)), "{changes:?}");
    let shown = world.run(&["explain", &token]).stdout;
    assert!(shown.contains("\nwhat happened last:\n  ") && shown.contains(&format!(" ago: {closed}")), "{shown}");
    let Explanation::Path { status, against, changes, .. } = world.json(&["explain", "nr"]) else {
        panic!("of a path")
    };
    assert_eq!(status.state_reason.text, "the interface went down");
    assert!(against.iter().any(|reason| reason.text == "the interface is down"), "{against:?}");
    assert_eq!(changes.last().map(|change| (change.of.as_str(), change.to.as_str())), Some(("state", "closed")));
    assert!(world.run(&["explain", "nr"]).stdout.contains("against it:\n  the interface "));

    let unknown = world.run(&["explain", "nrr"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.sentence().ends_with("it has no path \"nrr\"; did you mean `nr`?"), "{unknown:?}");
    let digit = if token.ends_with('0') { '1' } else { '0' };
    let similar = format!("{}{digit}", &token[..7]);
    let unknown = world.run(&["explain", &similar]);
    assert!(unknown.sentence().ends_with(&format!("did you mean `{token}`?")), "{unknown:?}");
    exchange(&client, &server);
    assert_eq!(agent.end().1, "");
}

#[test]
fn a_path_is_preferred_and_a_mode_used_while_data_flows() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let (client, server) = world.connect();
    world.await_subflows("active", "active");
    let done = world.run(&["prefer", "nr", "--for", "2s"]);
    assert_eq!(done.stdout, "nr carries alone while it is good for 2.0 s; the others are in reserve\n", "{done:?}");
    world.await_subflows("backup", "active");
    exchange(&client, &server);
    assert_eq!(world.status().preferred.unwrap().path, "nr");
    world.await_subflows("active", "active");
    assert_eq!(world.status().preferred, None, "its time is over");
    assert_eq!(world.run(&["mode", "backup"]).stdout, "the mode is backup\n");
    world.await_subflows("active", "backup");
    assert_eq!(world.run(&["mode", "cost-first"]).stdout, "the mode is cost-first\n");
    world.await_subflows("active", "backup");
    assert_eq!(world.run(&["prefer", "nr"]).code, Some(0));
    world.await_subflows("backup", "active");
    assert_eq!(world.run(&["prefer", "--end"]).stdout, "the strategy decides again\n");
    world.await_subflows("active", "backup");
    exchange(&client, &server);
    let unknown = world.run(&["prefer", "rn"]);
    assert!(unknown.sentence().contains("it has no path \"rn\"; "), "{unknown:?}");
    assert_eq!(unknown.code, Some(2));
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    assert!(events.contains("by request: the mode is backup") && events.contains("\"rule\":\"prefer.request\""));
}

#[test]
fn a_configuration_is_read_again_without_an_interruption() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let file = agent.workdir.path().join("agent.toml");
    let present = fs::read_to_string(&file).unwrap();
    let (client, server) = world.connect();
    world.await_subflows("active", "active");
    assert_eq!(world.run(&["reload"]).stdout, "nothing has changed\n");
    let wrong = present.replace("aggregate", "agregate");
    fs::write(&file, wrong).unwrap();
    let rejected = world.run(&["reload"]);
    assert_eq!(rejected.code, Some(2));
    assert!(rejected.sentence().contains("agent.toml line 9: `mode`: unknown word `agregate`"), "{rejected:?}");
    assert_eq!(world.states(), ["active", "active"], "a wrong file changes nothing");
    let new = present.replace("mode = \"aggregate\"", "mode = \"backup\"\nprefer = [\"nr\"]\noverlap_ms = 20");
    fs::write(&file, &new).unwrap();
    let done = world.run(&["reload"]);
    let expected = "service.mode is as in the file\nservice.prefer is as in the file\nafter a restart of the agent only: \
                    service.overlap_ms\n";
    assert_eq!(done.stdout, expected, "{done:?}");
    world.await_subflows("backup", "active");
    exchange(&client, &server);
    fs::write(&file, new.replace("\"nr\"]", "\"lte\"]")).unwrap();
    agent.signal(Signal::SIGHUP);
    world.await_subflows("active", "backup");
    exchange(&client, &server);
    assert_eq!(agent.end().1, "");
}

#[test]
fn changes_are_watched_until_the_agent_ends() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
    let mut watch = start(&world.testbed.vehicle, &["watch"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = |part: &str| lines.find(|line| line.as_ref().unwrap().contains(part)).unwrap().unwrap();
    assert!(next("lte becomes active").ends_with("the interface is up (threshold.link-up)"));
    take_down(&world.testbed.vehicle, "nr");
    next("s: nr is believed to be lost: the interface went down");
    next("s: nr becomes closed");
    drop(agent.end());
    let output: ProgramOutput = watch.wait_with_output().unwrap().into();
    assert_eq!(output.code, Some(3));
    assert!(output.stderr.contains("while asking the agent: ") && output.stderr.lines().count() == 1, "{output:?}");
}

#[test]
fn two_agents_are_distinguished_and_one_that_hangs_is_reported() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let [first, second] = [(); 2].map(|()| Agent::start(&world.testbed.vehicle, CONFIGURATION));
    let both = world.run(&["status"]);
    assert_eq!(both.code, Some(2));
    assert!(both.sentence().contains("2 agents run in this network namespace ("), "{both:?}");
    let (one, other) = (first.child.id().to_string(), second.child.id().to_string());
    let named: AgentStatus = world.json(&["status", "--agent", &other]);
    assert_eq!(named.pid.to_string(), other);
    first.signal(Signal::SIGSTOP);
    let hung = world.run(&["status", "--agent", &one]);
    first.signal(Signal::SIGCONT);
    assert_eq!(hung.code, Some(1));
    assert!(hung.sentence().contains("no answer for 5 s; check whether it hangs"), "{hung:?}");
    let absent = world.run(&["status", "--agent", "1"]);
    assert_eq!(absent.code, Some(3));
    assert!(absent.sentence().contains("no agent of this network namespace has the process id 1; choose from"));
}

#[test]
fn other_users_programs_at_agents_names_hold_up_no_agent_and_no_command() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let vehicle = &world.testbed.vehicle;
    let names = [900_001, 900_002].map(|pid| format!("crosslane/agent/{pid}"));
    let squatters = names.each_ref().map(|name| squat(vehicle, name));
    let fill = || {
        names.each_ref().map(|name| {
            let client = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
            client.connect(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
            client
        })
    };
    let clients = vehicle.enter(fill).unwrap();
    let began = Instant::now();
    let agent = Agent::start(vehicle, CONFIGURATION);
    assert_eq!(world.status().pid, agent.child.id());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop((squatters, clients));
}

#[test]
fn another_users_program_at_the_name_of_a_missing_tunnel_holds_up_no_command() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let squatter = squat(&world.testbed.vehicle, "crosslane/crosslane0");
    let began = Instant::now();
    let output = world.run(&["tunnel", "status"]);
    assert!(output.code == Some(3) && output.sentence().contains("none runs"), "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(squatter);
}

#[test]
fn root_sees_the_tunnel_of_an_agent_of_another_user() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let listener = squat(&world.testbed.vehicle, "crosslane/mine0");
    let answer = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let asked = stream.read(&mut [0; 100]).unwrap();
        stream.write_all(b"{\"units\": []}\n").unwrap();
        asked
    });
    let shown = world.run(&["tunnel", "status", "--interface", "mine0"]);
    assert_eq!(shown.stdout, "roadside units: none in reach\n", "{shown:?}");
    assert!(answer.join().unwrap() > 0);
}
