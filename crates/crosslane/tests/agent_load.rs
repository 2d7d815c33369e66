//! How long an agent with a thousand connections takes to answer, and how long its loop is held up by each request.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, from_environment, quantiles};
use crosslane::clock::processor_time;
use crosslane::control::report::{AgentStatus, ConnectionReport};
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Testbed;
use crosslane::testbed::emulator::Emulator;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::Socket;

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[strategy]
name = "threshold"
"#;
const CONNECTIONS: usize = 1000;
/// Steps of [`computation`].
const COMPUTATION: u64 = 80_000;
/// Of each request; `TIMES` of the environment for more.
const TIMES: usize = 20;
/// Longest wait for an answer, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn times() -> usize {
    from_environment("TIMES", TIMES)
}

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    agent: Agent,
    _connections: Vec<(Socket, Socket)>,
}

impl World {
    /// An agent with this number of connections, each with a subflow over both paths.
    fn new(connections: usize) -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
        let of = (0..connections).map(|_| links::connect(&testbed, &listener)).collect();
        let world = World { testbed, _emulator: emulator, agent, _connections: of };
        let began = Instant::now();
        while world.status().paths.iter().any(|path| path.connections < connections) {
            assert!(began.elapsed() < SOON);
            sleep(Duration::from_millis(200));
        }
        world
    }

    fn connect(&self) -> UnixStream {
        let name = format!("crosslane/agent/{}", self.agent.child.id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let stream = self.testbed.vehicle.enter(|| UnixStream::connect_addr(&address).unwrap()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// The line that answers this request.
    fn ask(&self, stream: &UnixStream, request: &str) -> String {
        { stream }.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }

    fn status(&self) -> AgentStatus {
        let answer = self.ask(&self.connect(), r#"{"request": "status"}"#);
        serde_json::from_value(serde_json::from_str::<serde_json::Value>(&answer).unwrap()["status"].take()).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap().into()
    }

    /// Processor time of the agent's loop, its main thread, once that waits.
    fn loop_time(&self) -> Duration {
        let folder = format!("/proc/{0}/task/{0}", self.agent.child.id());
        let began = Instant::now();
        while !fs::read_to_string(format!("{folder}/stat")).unwrap().contains(") S ") {
            assert!(began.elapsed() < SOON);
            std::thread::yield_now();
        }
        let text = fs::read_to_string(format!("{folder}/schedstat")).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    /// Processor time of the loop meanwhile.
    fn loop_time_of(&self, work: impl FnOnce()) -> Duration {
        let before = self.loop_time();
        work();
        self.loop_time() - before
    }
}

/// Processor time of a computation that is always the same and about as long as an answer: what more it takes now and then is of the
/// machine, which counts interrupts, and what other guests of its host take, as time of the thread.
fn computation() -> Duration {
    let began = processor_time();
    std::hint::black_box((0..COMPUTATION).fold(0_u64, |sum, i| std::hint::black_box(sum ^ i).rotate_left(7)));
    processor_time() - began
}

/// Printed: processor time of the loop for each request, with its other work meanwhile, which is printed too.
#[test]
fn a_thousand_connections_are_shown_quickly_and_no_request_holds_up_the_loop() {
    if !can_drive() {
        return;
    }
    let world = World::new(CONNECTIONS);
    let shown: Vec<ConnectionReport> = serde_json::from_str(&world.run(&["connections", "--json"]).stdout).unwrap();
    assert_eq!(shown.len(), CONNECTIONS);
    let stream = world.connect();
    let middle = shown[CONNECTIONS / 2].token;
    let pause = Duration::from_millis(2);
    let mut machine = Vec::new();
    let own = (0..10 * times()).map(|_| world.loop_time_of(|| sleep(pause))).collect();
    eprintln!("nothing in {pause:?}: {}", quantiles(own));
    for request in [
        r#"{"request": "status"}"#.to_owned(),
        format!(r#"{{"request": {{"connections": {{"after": "{middle}"}}}}}}"#),
        r#"{"request": {"explain": "lte"}}"#.to_owned(),
        format!(r#"{{"request": {{"explain": "{middle}"}}}}"#),
    ] {
        let mut cost = || {
            let cost = world.loop_time_of(|| drop(world.ask(&stream, &request)));
            sleep(pause);
            machine.push(computation());
            cost
        };
        let costs: Vec<Duration> = (0..10 * times()).map(|_| cost()).collect();
        eprintln!("loop, {request}: {}", quantiles(costs));
    }
    let longest = || world.status().longest_answer_ms;
    let before = longest();
    let wrong = |_| world.loop_time_of(|| drop(world.ask(&world.connect(), r#"{"request": {"explain": "0badf00d"}}"#)));
    eprintln!("loop, a connection that does not exist: {}", quantiles((0..10 * times()).map(wrong).collect()));
    let long = format!(r#"{{"request": {{"explain": "{}"}}}}"#, "x".repeat(60_000));
    let answer = world.ask(&world.connect(), &long);
    assert!(answer.len() < 200 && answer.contains("it has no path"), "{answer:.300}");
    eprintln!("the same computation each time, of the machine itself: {}", quantiles(machine));
    eprintln!("longest answer, as the agent measures it: {before:.3} ms, then {:.3} ms", longest());
    for command in ["status", "links", "connections"] {
        let time = |_| {
            let began = Instant::now();
            assert_eq!(world.run(&[command]).code, Some(0));
            began.elapsed()
        };
        let times: Vec<Duration> = (0..times()).map(time).collect();
        assert!(times.iter().min() < Some(&Duration::from_secs(1)), "{command}: {times:?}");
        eprintln!("crosslane {command}, {CONNECTIONS} connections: {}", quantiles(times));
    }
}

#[test]
fn a_client_that_never_reads_is_dropped_and_makes_room() {
    if !can_drive() {
        return;
    }
    let world = World::new(1);
    let request = b"{\"request\": \"status\"}\n";
    // As many as there are places for root.
    let hang = || {
        let stream = world.connect();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let began = Instant::now();
    let (mut hung, refused) = loop {
        let mut hung: Vec<UnixStream> = (0..24).map(|_| hang()).collect();
        // Enough that the last answers do not fit into the sockets, one after the other.
        for _ in 0..150 {
            hung.iter_mut().for_each(|stream| drop(stream.write(request)));
            sleep(Duration::from_millis(5));
        }
        let refused = world.run(&["status"]);
        if refused.code != Some(0) {
            break (hung, refused);
        }
        // On a busy machine the first ones have been dropped before the last ones hang.
        assert!(began.elapsed() < SOON, "{refused:?}");
    };
    assert!(refused.sentence().contains("24 clients are connected; end one of them"), "{refused:?}");
    let began = Instant::now();
    while world.run(&["status"]).code != Some(0) {
        assert!(began.elapsed() < SOON);
        sleep(Duration::from_millis(100));
    }
    for stream in &mut hung {
        // One that reads before it is dropped is not slow any more.
        let mut end = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        assert_eq!(poll(&mut end, PollTimeout::try_from(SOON).unwrap()), Ok(1), "it is not dropped");
        stream.set_nonblocking(false).unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        assert!(answers.len() < 2_000_000, "{} bytes", answers.len());
    }
    assert_eq!(world.agent.end().1, "");
}
