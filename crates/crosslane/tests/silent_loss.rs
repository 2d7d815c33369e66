//! Silent loss of a path that carries one or many real connections, upstream and downstream;
//! and the processor time of an idle agent.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::busy::decide;
use crate::program::can_drive;
use crate::program::links::two_links;
use crosslane::clock::Clock;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, Wiring, vehicle_address};
use socket2::{Domain, Protocol, Socket, Type};

const AGENT_AT_VEHICLE: &str = r#"
[service]
mode = "MODE"
prefer = ["its-g5", "lte"]
[[path]]
name = "its-g5"
rat = "80211p"
stations = [1001]
[[path]]
name = "lte"
rat = "lte"
[strategy]
name = "threshold"
[strategy.silence]
cam_periods = 0
[observe]
vanetza = "127.0.0.1:5051"
[log]
events = "EVENTS"
"#;
const AGENT_AT_SERVER: &str = r#"
[[path]]
name = "server"
interface = "lo"
address = "ADDRESS"
rat = "lte"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
const MESSAGE_BYTES: usize = 200;
const PERIOD: Duration = Duration::from_millis(20);
/// Messages that have not arrived by this time of a run count as lost.
const LOST_AFTER: Duration = Duration::from_secs(20);
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);

/// A vehicle with `its-g5` (preferred) and `lte`, and a server.
struct World {
    testbed: Testbed,
    emulator: Emulator,
    listener: Socket,
    /// Sender of the CAMs; the agent accepts them while this socket is open.
    radio: UdpSocket,
    /// Time between a message and the start of the silence.
    phase: Duration,
    /// Whether the path that carries the messages falls silent.
    falls_silent: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Up,
    Down,
}

impl World {
    fn new(agent_at_server: bool) -> World {
        let (testbed, emulator) = two_links(["its-g5", "lte"], 50.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = testbed.server.enter(|| listen(agent_at_server)).unwrap();
        let radio = testbed.vehicle.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
        World { testbed, emulator, listener, radio, phase: PERIOD * 3 / 4, falls_silent: true }
    }

    fn agent(&self, mode: &str) -> Agent {
        let agent = Agent::start(&self.testbed.vehicle, &AGENT_AT_VEHICLE.replace("MODE", mode));
        self.send_cam();
        agent
    }

    fn agent_at_server(&self) -> Agent {
        Agent::start(&self.testbed.server, &AGENT_AT_SERVER.replace("ADDRESS", &SERVER.to_string()))
    }

    /// Sends a CAM of the roadside unit with a strong signal.
    fn send_cam(&self) {
        let cam = br#"{"rssi": -60, "stationID": 1001, "fields": {"header": {"stationID": 1001}}}"#;
        self.radio.send_to(cam, (Ipv4Addr::LOCALHOST, 5051)).unwrap();
    }

    fn send_two_cams(&self) {
        self.send_cam();
        sleep(Duration::from_millis(120));
        self.send_cam();
        sleep(Duration::from_millis(120));
    }

    fn connect(&self, count: usize) -> Vec<(Socket, Socket)> {
        self.connect_to(SERVER, count)
    }

    fn connect_to(&self, server: Ipv4Addr, count: usize) -> Vec<(Socket, Socket)> {
        let connect = || {
            let client = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            client.connect(&SocketAddr::from((server, 5001)).into()).unwrap();
            let accepted = self.listener.accept().unwrap().0;
            for (mut from, mut to) in [(&client, &accepted), (&accepted, &client)] {
                from.write_all(b"hello").unwrap();
                to.read_exact(&mut [0; 5]).unwrap();
            }
            client.set_tcp_nodelay(true).unwrap();
            accepted.set_tcp_nodelay(true).unwrap();
            (client, accepted)
        };
        self.testbed.vehicle.enter(|| (0..count).map(|_| connect()).collect()).unwrap()
    }

    /// The path that carries more bytes.
    fn busier(&self, interval: Duration) -> usize {
        let bytes = || {
            let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            ["its-g5:", "lte:"].map(|name| {
                let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap();
                let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
                numbers[0] + numbers[8]
            })
        };
        let growth = || {
            let before = bytes();
            sleep(interval);
            let after = bytes();
            [after[0] - before[0], after[1] - before[1]]
        };
        let [preferred, other] = self.testbed.vehicle.enter(growth).unwrap();
        usize::from(other > preferred)
    }

    /// Adds or removes the address of a second server; without it the server is dead.
    fn set_other_server(&self, answers: bool) {
        let set = || {
            let mut wiring = Wiring::open().unwrap();
            let loopback = wiring.index("lo").unwrap();
            match answers {
                true => wiring.add_address(loopback, OTHER_SERVER, 32).unwrap(),
                false => wiring.remove_address(loopback, OTHER_SERVER.into(), 32).unwrap(),
            }
        };
        self.testbed.server.enter(set).unwrap();
    }

    /// The maximum delay of messages, one on each connection every 20 ms, while the path
    /// that carries them falls silent (or all stay, without `falls_silent`).
    fn worst_delay(&self, pairs: &[(Socket, Socket)], direction: Direction) -> Duration {
        let (stop, sent, control) = (AtomicBool::new(false), AtomicUsize::new(usize::MAX), self.emulator.control());
        let began = Clock::start();
        thread::scope(|scope| {
            let endpoint =
                |at_server: bool| pairs.iter().map(move |(client, server)| if at_server { server } else { client });
            let (from, to): (Vec<&Socket>, Vec<&Socket>) =
                (endpoint(direction == Direction::Down).collect(), endpoint(direction == Direction::Up).collect());
            let (stop, sent) = (&stop, &sent);
            let sender = scope.spawn(move || {
                for number in 0.. {
                    let due = PERIOD.mul_f64(number as f64 / from.len() as f64);
                    sleep(due.saturating_sub(elapsed(began)));
                    if stop.load(Ordering::Relaxed) {
                        sent.store(number, Ordering::Relaxed);
                        break;
                    }
                    let mut message = [0; MESSAGE_BYTES];
                    message[..8].copy_from_slice(&(elapsed(began).as_nanos() as u64).to_le_bytes());
                    let mut socket = from[number % from.len()];
                    socket.write_all(&message).unwrap();
                }
            });
            let reader = scope.spawn(move || {
                let (mut worst, mut received) = (Duration::ZERO, 0);
                let mut buffers = vec![Vec::new(); to.len()];
                to.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
                while received < sent.load(Ordering::Relaxed) {
                    for (socket, buffer) in to.iter().zip(&mut buffers) {
                        let (messages, delay) = read_messages(socket, buffer, began);
                        (worst, received) = (worst.max(delay), received + messages);
                    }
                    if elapsed(began) > LOST_AFTER {
                        return LOST_AFTER;
                    }
                    sleep(Duration::from_millis(1));
                }
                worst
            });
            sleep(Duration::from_millis(1280));
            let path = self.busier(Duration::from_millis(200));
            sleep((PERIOD * 75 + self.phase).saturating_sub(elapsed(began)));
            control.set_on(path, !self.falls_silent).unwrap();
            sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
            sender.join().unwrap();
            reader.join().unwrap()
        })
    }
}

fn elapsed(began: Clock) -> Duration {
    began.now().since(crosslane_core::time::Instant::ZERO)
}

/// Reads the messages that have arrived; returns their number and maximum delay.
fn read_messages(mut socket: &Socket, buffer: &mut Vec<u8>, began: Clock) -> (usize, Duration) {
    let (mut messages, mut worst, mut room) = (0, Duration::ZERO, [0; 4096]);
    match socket.read(&mut room) {
        Ok(count) => buffer.extend_from_slice(&room[..count]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => panic!("{error}"),
    }
    while buffer.len() >= MESSAGE_BYTES {
        let sent = u64::from_le_bytes(*buffer.first_chunk().unwrap());
        worst = worst.max(elapsed(began).saturating_sub(Duration::from_nanos(sent)));
        buffer.drain(..MESSAGE_BYTES);
        messages += 1;
    }
    (messages, worst)
}

fn listen(agent_at_server: bool) -> Socket {
    EndpointSocket::open().unwrap().set_limits(Limits { subflows: 8, add_addr_accepted: 8 }).unwrap();
    select_path_manager(if agent_at_server { PathManager::UserSpace } else { PathManager::Kernel }).unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 5001)).into()).unwrap();
    socket.listen(1024).unwrap();
    socket
}

/// Fails unless the delay of a run is below the limit.
fn stays_below(limit: Duration, run: impl Fn() -> Duration, what: &str) {
    decide(|| {
        let worst = run();
        eprintln!("{what}: {} ms", worst.as_millis());
        if worst < limit { Ok(()) } else { Err(format!("{what}: {} ms", worst.as_millis())) }
    });
}

/// The maximum delay of 200 connections; prints when the agent acted, in ms after its
/// first alarm.
fn two_hundred(phase: Duration) -> Duration {
    let world = World { phase, ..World::new(false) };
    let agent = world.agent("backup");
    world.send_two_cams();
    let pairs = world.connect(200);
    sleep(Duration::from_millis(700));
    let worst = world.worst_delay(&pairs, Direction::Up);
    let (events, _) = agent.end();
    let excerpt: String =
        events.lines().filter(|line| !line.contains("create")).take(60).collect::<Vec<_>>().join("\n");
    assert!(events.contains("unacknowledged"), "no alarm, {} ms: {excerpt}", worst.as_millis());
    let alarm = when(&events, "\"alarm\"").first().copied().unwrap_or_default();
    let after = |what: &str| {
        let times = when(&events, what).into_iter().filter(|at| *at >= alarm);
        let times: Vec<f64> = times.map(|at| ((at - alarm) * 1e4).round() / 10.0).collect();
        (times.len(), times.first().copied(), times.last().copied())
    };
    let actions = ["\"belief\"", "\"withdraw\"", "\"destroy\"", "suppressed"].map(|what| (what, after(what)));
    let reason =
        events.lines().find(|line| line.contains("\"belief\"") && line.contains("stalled")).unwrap_or_default();
    eprintln!("200 connections, up: {} ms {actions:?} {reason}", worst.as_millis());
    worst
}

/// Times in s of the event lines that contain `what`.
fn when(events: &str, what: &str) -> Vec<f64> {
    let lines = events.lines().filter(|line| line.contains(what));
    lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["t_s"].as_f64()).collect()
}

#[test]
fn sudden_loss_is_detected_with_two_hundred_connections_as_with_one() {
    if !can_drive() {
        return;
    }
    let limit = Duration::from_millis(150);
    stays_below(limit, || two_hundred(PERIOD * 3 / 4), "200 connections, without an alarm more than 200 ms");
}

/// Prints the figures; to be run manually on an idle machine.
#[test]
#[ignore = "a measurement"]
fn what_sudden_loss_costs_two_hundred_connections() {
    let mut worst: Vec<Duration> = (0..10).map(|run| two_hundred(PERIOD * run / 5)).collect();
    worst.sort();
    eprintln!("200 connections, up: median {} ms of {worst:?}", worst[worst.len() / 2].as_millis());
}

/// The maximum delay of downstream messages while the preferred path falls silent.
fn down(mode: &str, agent_at_server: bool, phase: Duration) -> Duration {
    let world = World { phase, ..World::new(agent_at_server) };
    let (_agent, server_agent) = (world.agent(mode), agent_at_server.then(|| world.agent_at_server()));
    world.send_two_cams();
    let pairs = world.connect(1);
    sleep(Duration::from_millis(300));
    let worst = world.worst_delay(&pairs, Direction::Down);
    if let Some(server_agent) = server_agent {
        let (events, stderr) = server_agent.end();
        assert_eq!(stderr, "");
        assert!(!events.contains("set_backup"), "only the vehicle sets backup flags: {events}");
    }
    let at = if agent_at_server { "agents at both endpoints" } else { "agent at the vehicle" };
    eprintln!("down, {mode}, {at}: {} ms", worst.as_millis());
    worst
}

/// The same under the in-kernel path manager, with the same paths and backups.
fn down_with_the_kernel(mode: &str, phase: Duration) -> Duration {
    let world = World { phase, ..World::new(false) };
    let set_up = || {
        select_path_manager(PathManager::Kernel).unwrap();
        let mut socket = EndpointSocket::open().unwrap();
        socket.set_limits(Limits { subflows: 8, add_addr_accepted: 8 }).unwrap();
        for path in [0, 1] {
            let backup = mode == "backup" && path == 1;
            socket.add(&Endpoint { backup, ..Endpoint::subflow(vehicle_address(path).into()) }).unwrap();
        }
    };
    world.testbed.vehicle.enter(set_up).unwrap();
    let pairs = world.connect(1);
    sleep(Duration::from_millis(300));
    let worst = world.worst_delay(&pairs, Direction::Down);
    eprintln!("down, {mode}, in-kernel path manager: {} ms", worst.as_millis());
    worst
}

#[test]
fn downstream_silent_loss_is_detected_at_the_vehicle() {
    if !can_drive() {
        return;
    }
    // With two active paths the server's kernel selects, as without an agent: it stops using
    // the silent path at the latest after its fourth timeout (0.84 s).
    for (mode, limit_ms) in [("backup", 260), ("aggregate", 1000)] {
        let limit = Duration::from_millis(limit_ms);
        stays_below(limit, || down(mode, false, PERIOD * 3 / 4), mode);
    }
}

#[test]
fn downstream_silent_loss_is_detected_at_the_server_if_an_agent_runs_there() {
    if !can_drive() {
        return;
    }
    for mode in ["backup", "aggregate"] {
        let limit = Duration::from_millis(190);
        stays_below(limit, || down(mode, true, PERIOD * 3 / 4), mode);
    }
}

/// Prints the figures; to be run manually on an idle machine.
#[test]
#[ignore = "takes minutes, and is a measurement"]
fn what_downstream_silent_loss_costs_compared_with_the_kernel() {
    for mode in ["backup", "aggregate"] {
        let mut worst: [Vec<Duration>; 3] = Default::default();
        for run in 0..10 {
            let phase = PERIOD * run / 10;
            let runs = [down_with_the_kernel(mode, phase), down(mode, false, phase), down(mode, true, phase)];
            worst.iter_mut().zip(runs).for_each(|(worst, delay)| worst.push(delay));
        }
        for (name, mut worst) in ["kernel", "agent at the vehicle", "agents at both endpoints"].into_iter().zip(worst) {
            worst.sort();
            eprintln!("{mode}, {name}: median {} ms of {worst:?}", worst[worst.len() / 2].as_millis());
        }
    }
}

/// Sends a message on each connection every 20 ms for `periods` periods and reads what arrives.
fn exchange_messages(pairs: &[(Socket, Socket)], periods: u32) {
    for _ in 0..periods {
        for (mut client, mut accepted) in pairs.iter().map(|(client, accepted)| (client, accepted)) {
            client.set_nonblocking(true).unwrap();
            accepted.set_nonblocking(true).unwrap();
            // A dead connection eventually accepts no data, and has nothing to read.
            drop(client.write(&[7; MESSAGE_BYTES]));
            drop(accepted.read(&mut [0; 8192]));
        }
        sleep(PERIOD);
    }
}

/// Effect of a dead server: the number of closed subflows of connections to the other server,
/// and the time in ms during which the preferred path was not in use.
fn effect_of_a_dead_server() -> (usize, u64) {
    let world = World::new(false);
    world.set_other_server(true);
    let agent = world.agent("backup");
    world.send_two_cams();
    let mut pairs = world.connect(5);
    pairs.extend(world.connect_to(OTHER_SERVER, 1));
    exchange_messages(&pairs, 50);
    world.set_other_server(false);
    exchange_messages(&pairs, 200);
    let (events, _) = agent.end();
    let lines: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tokens = |command: &'static str| lines.iter().filter(move |line| line["command"] == command);
    let tokens = |command| tokens(command).map(|line| line["token"].as_u64().unwrap());
    let mut joined: Vec<u64> = Vec::new();
    for token in tokens("create") {
        if !joined.contains(&token) {
            joined.push(token);
        }
    }
    assert_eq!(joined.len(), 6, "each has a second subflow: {events}");
    let closed = tokens("destroy").filter(|token| *token != joined[5]).count();
    (closed, unused_ms(&events))
}

/// Time in ms during which the preferred path was not in use, after its first use.
fn unused_ms(events: &str) -> u64 {
    let of_path = |line: &&str| line.contains("\"decision\"") && line.contains("\"its-g5\"");
    let decisions: String = events.lines().filter(of_path).collect::<Vec<_>>().join("\n");
    let (entered, left) = (when(&decisions, "\"state\":\"active\""), when(&decisions, "\"was\":\"active\""));
    let reentered = entered.into_iter().skip(1).chain(when(events, "\"event\":\"end\""));
    left.into_iter().zip(reentered).map(|(left, reentered)| ((reentered - left) * 1e3) as u64).sum()
}

#[test]
fn one_dead_server_costs_other_connections_neither_the_preferred_path_nor_a_subflow() {
    if !can_drive() {
        return;
    }
    // Effects of load on the machine do not occur in each attempt.
    let has_no_effect = (0..5).any(|_| {
        let (closed, unused_ms) = effect_of_a_dead_server();
        eprintln!("a dead server: {closed} subflows of others closed, {unused_ms} ms without the preferred path");
        closed == 0 && unused_ms < 300
    });
    assert!(has_no_effect, "in all five attempts subflows of others were closed, or the preferred path was left");
}

/// There is no RSU: packets sent over its path are lost.
#[test]
fn forged_cams_do_not_move_a_connection_to_a_path_without_acknowledgements() {
    if !can_drive() {
        return;
    }
    let run = || {
        let world = World { falls_silent: false, ..World::new(false) };
        world.emulator.control().set_on(0, false).unwrap();
        let agent = Agent::start(
            &world.testbed.vehicle,
            &AGENT_AT_VEHICLE
                .replace("MODE", "backup")
                .replace("prefer = [\"its-g5\", \"lte\"]", "prefer = [\"its-g5\", \"lte\"]\noverlap_ms = 10"),
        );
        // The connection starts over lte.
        let local = vehicle_address(1);
        let connect = || {
            let client = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            client.bind(&SocketAddr::from((local, 0)).into()).unwrap();
            client.connect(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
            client
        };
        let client = world.testbed.vehicle.enter(connect).unwrap();
        let accepted = world.listener.accept().unwrap().0;
        (&client).write_all(b"hello").unwrap();
        (&accepted).read_exact(&mut [0; 5]).unwrap();
        client.set_tcp_nodelay(true).unwrap();
        let pairs = [(client, accepted)];
        let stop = AtomicBool::new(false);
        let worst = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    world.send_cam();
                    sleep(Duration::from_millis(20));
                }
            });
            let worst = world.worst_delay(&pairs, Direction::Up);
            stop.store(true, Ordering::Relaxed);
            worst
        });
        let (events, _) = agent.end();
        let demoted = events.lines().filter(|line| line.contains("\"set_backup\"") && line.contains("\"lte\""));
        assert_eq!(demoted.count(), 0, "lte was demoted for a path that carries nothing: {events}");
        worst
    };
    // One way takes 5 ms; a message that was sent to nowhere waits for a timeout of 200 ms at least.
    let limit = Duration::from_millis(100);
    stays_below(limit, run, "forged CAMs");
}

fn processor_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn idle_cost(connections: usize, interval: Duration) -> f64 {
    let world = World::new(false);
    let agent = world.agent("aggregate");
    world.send_two_cams();
    let pairs = world.connect(connections);
    sleep(Duration::from_secs(4));
    let before = processor_s(agent.child.id());
    sleep(interval);
    let cost = (processor_s(agent.child.id()) - before) / interval.as_secs_f64() * 60.0;
    drop(pairs);
    eprintln!("{connections} idle connections: {cost:.2} s of processor time a minute");
    cost
}

#[test]
fn an_idle_agent_is_idle() {
    if !can_drive() {
        return;
    }
    let cost = (0..2).map(|_| idle_cost(100, Duration::from_secs(4))).fold(f64::MAX, f64::min);
    assert!(cost < 1.5, "{cost} s a minute; with polling every 10 ms it was above 5");
}

/// Prints the figures; to be run manually on an idle machine.
#[test]
#[ignore = "takes minutes, and is a measurement"]
fn what_an_idle_agent_costs() {
    for connections in [10, 100, 1000] {
        idle_cost(connections, Duration::from_secs(20));
    }
}
