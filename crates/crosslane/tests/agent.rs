//! The agent on a vehicle with two radios: its effect on real connections when the
//! signal or an interface changes and when unknown senders send samples.

use std::fs::{self, File};
use std::io::{Read, pipe};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::program::agent::{Agent, command};
use crate::program::can_drive;
use crate::program::links::{self, exchange, two_links};
use crosslane::clock::Clock;
use crosslane::control::{client, protocol::Reply};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{SERVER, Testbed, vehicle_address};
use crosslane_core::demand::Object;
use crosslane_core::mptcp::Subflow;
use crosslane_core::mptcp::manager::MAX_CONNECTIONS;
use crosslane_core::time::Instant;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
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
const THRESHOLD: &str = "[strategy]\nname = \"threshold\"";
/// Replaces `THRESHOLD`: `its-g5` is the expensive path.
const DEADLINE: &str = r#"[service]
demands = "@crosslane-demands"
cost_per_gb = { lte = 0.1, its-g5 = 0.5 }
[strategy]
name = "deadline-mptcp""#;
const STRONG_DBM: i32 = -60;
const WEAK_DBM: i32 = -95;
/// Period of the roadside unit's messages.
const PERIOD: Duration = Duration::from_millis(50);
/// Messages after which the expected state must be reached.
const MAX_MESSAGES: usize = 100;

/// A vehicle with `lte` (preferred) and `its-g5`, and a server.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
    roadside_unit: UdpSocket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "its-g5"], 10.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        let roadside_unit = testbed.vehicle.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        World { testbed, _emulator: emulator, listener, roadside_unit }
    }

    /// Client and server sockets of a connection over the preferred path that has carried data.
    fn connect(&self) -> (Socket, Socket) {
        links::connect(&self.testbed, &self.listener)
    }

    /// The subflows of all connections from the vehicle's address on `its-g5`.
    fn subflows_on_its_g5(&self) -> Vec<Subflow> {
        let connections = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let subflows = connections.into_iter().flat_map(|connection| connection.subflows);
        let local = IpAddr::from(vehicle_address(1));
        subflows.map(|info| info.subflow).filter(|subflow| subflow.local.ip() == local).collect()
    }

    fn send(&self, datagram: &[u8]) {
        self.roadside_unit.send_to(datagram, (Ipv4Addr::LOCALHOST, 5051)).unwrap();
    }

    /// Sends CAMs with this RSSI until the subflows on `its-g5` are as `expected`.
    fn send_cams_until(&self, rssi_dbm: i32, expected: impl Fn(&[Subflow]) -> bool) {
        for _ in 0..MAX_MESSAGES {
            if expected(&self.subflows_on_its_g5()) {
                return;
            }
            self.send(cam(1001, rssi_dbm).as_bytes());
            sleep(PERIOD);
        }
        panic!("not after {MAX_MESSAGES} messages of {rssi_dbm} dBm: {:?}", self.subflows_on_its_g5());
    }

    fn take_its_g5_down(&self) {
        crate::program::agent::take_down(&self.testbed.vehicle, "its-g5");
    }
}

fn cam(station: u32, rssi_dbm: i32) -> String {
    format!(r#"{{"rssi": {rssi_dbm}, "stationID": {station}, "fields": {{"header": {{"stationID": {station}}}}}}}"#)
}

fn active(subflows: &[Subflow]) -> bool {
    matches!(subflows, [only] if !only.backup)
}

fn backup(subflows: &[Subflow]) -> bool {
    matches!(subflows, [only] if only.backup)
}

/// Starts an agent in the vehicle namespace and waits until it is ready.
fn start(world: &World) -> Agent {
    let workdir = TempDir::new().unwrap();
    let events = workdir.path().join("events.jsonl");
    Agent::with_events(&world.testbed.vehicle, workdir, CONFIGURATION, &events)
}

#[test]
fn a_subflow_is_created_with_signal_demoted_when_it_fades_and_closed_with_the_interface() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = start(&world);
    let (client, server) = world.connect();
    assert_eq!(world.subflows_on_its_g5(), [], "its-g5 has no samples yet");
    world.send_cams_until(STRONG_DBM, active);
    world.send_cams_until(WEAK_DBM, backup);
    world.send_cams_until(STRONG_DBM, active);
    world.take_its_g5_down();
    world.send_cams_until(STRONG_DBM, <[Subflow]>::is_empty);
    exchange(&client, &server);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let commands = events.iter().filter(|event| event["event"] == "command");
    let results: Vec<(&str, bool)> =
        commands.map(|event| (event["command"].as_str().unwrap(), event["error"].is_null())).collect();
    assert_eq!(
        results,
        [("create", true), ("set_backup", true), ("set_backup", true), ("withdraw", true), ("destroy", true)]
    );
    assert_eq!(events.last().unwrap()["event"], "end");
}

/// Receives replies until one is as expected.
fn await_reply(sender: &mut client::Agent, expected: impl Fn(&Reply) -> bool) {
    let mut replies = Vec::new();
    for _ in 0..MAX_MESSAGES {
        while let Some(reply) = sender.poll() {
            if expected(&reply) {
                return;
            }
            replies.push(reply);
        }
        sleep(PERIOD);
    }
    panic!("not among {replies:?}");
}

/// Two senders; the sender that needs the expensive path disconnects.
#[test]
fn an_expensive_path_is_active_while_a_demand_needs_it() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let workdir = TempDir::new().unwrap();
    let events = workdir.path().join("events.jsonl");
    let agent =
        Agent::with_events(&world.testbed.vehicle, workdir, &CONFIGURATION.replace(THRESHOLD, DEADLINE), &events);
    let (client, server) = world.connect();
    let sender = || world.testbed.vehicle.enter(|| client::Agent::connect("@crosslane-demands")).unwrap().unwrap();
    let state = |its_g5: &'static str| move |reply: &Reply| matches!(reply, Reply::States(states) if states["lte"] == "active" && states["its-g5"] == its_g5);
    let (mut patient, mut urgent) = (sender(), sender());
    await_reply(&mut patient, state("backup"));
    let clock = Clock::start();
    let object = |number, seconds| {
        let deadline = Instant::ZERO + Duration::from_secs(seconds);
        Object { number, size_bytes: 2_000_000, acked_bytes: 0, start: clock.now(), deadline }
    };
    patient.send_demand(&[object(0, 3600)], clock);
    await_reply(&mut patient, |reply| matches!(reply, Reply::Admission(admission) if admission.number == 0));
    await_reply(&mut patient, |reply| matches!(reply, Reply::BacklogBytes(Some(_))));
    // No further demand is sent: only the approaching deadline makes the object urgent.
    urgent.send_demand(&[object(5, 3)], clock);
    await_reply(&mut urgent, |reply| matches!(reply, Reply::Admission(admission) if admission.number == 5));
    await_reply(&mut urgent, state("active"));
    world.send_cams_until(STRONG_DBM, active);
    drop(urgent);
    await_reply(&mut patient, state("backup"));
    world.send_cams_until(STRONG_DBM, backup);
    exchange(&client, &server);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    await_reply(&mut patient, |reply| *reply == Reply::Gone);
    let admissions = events.lines().filter(|line| line.contains("\"admission\""));
    assert_eq!(admissions.count(), 2, "{events}");
}

#[test]
fn a_restarted_agent_manages_existing_connections() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let mut agent = start(&world);
    let (client, server) = world.connect();
    world.send_cams_until(STRONG_DBM, active);
    let before = world.subflows_on_its_g5();
    agent.signal(Signal::SIGKILL);
    agent.child.wait().unwrap();
    let agent = start(&world);
    world.send_cams_until(WEAK_DBM, backup);
    world.send_cams_until(STRONG_DBM, active);
    assert_eq!(world.subflows_on_its_g5(), before, "the same subflow, and no other");
    exchange(&client, &server);
    assert_eq!(agent.end().1, "");
}

/// Random bytes, malformed and deeply nested JSON, unknown stations, implausible values, and a
/// known station with a random signal.
#[test]
fn a_hundred_thousand_forged_datagrams_exhaust_neither_memory_nor_disk() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = start(&world);
    let (_client, _server) = world.connect();
    world.send_cams_until(STRONG_DBM, active);
    let before_kib = agent.resident_kib();
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let deep = "[".repeat(8192).into_bytes();
    for number in 0..100_000 {
        match number % 6 {
            0 => world.send(&(0..random() % 300).map(|_| random() as u8).collect::<Vec<u8>>()),
            1 => world.send(cam(random(), -(random() as i32 % 120)).as_bytes()),
            2 => world.send(cam(1001, random() as i32).as_bytes()),
            3 => world.send(cam(1001, -(random() as i32 % 120)).as_bytes()),
            4 => world.send(&deep[..random() as usize % deep.len()]),
            _ => world.send(format!(r#"{{"type": "radio", "path": "{}", "rssi": -70}}"#, random()).as_bytes()),
        }
        // Without a pause the socket buffer would drop most datagrams.
        if number % 50 == 0 {
            sleep(Duration::from_millis(1));
        }
    }
    let grown_kib = agent.resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < 10_000, "{before_kib} KiB have grown by {grown_kib} KiB");
    world.send_cams_until(STRONG_DBM, active);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert!(last["faults"].as_u64() > Some(50_000), "{last}");
    assert!(events.len() < 400_000, "{} bytes of events", events.len());
    assert!(
        events.contains("\"suppressed\"") && events.contains("\"rule\":\"fault rejected\""),
        "no event reports the suppressed datagrams"
    );
}

#[test]
fn connections_beyond_the_path_managers_limit_are_reported_once_and_counted() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let connect = |number: usize| {
        // At most as many at once as the link's queue holds.
        if number.is_multiple_of(50) {
            sleep(Duration::from_millis(20));
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.set_nonblocking(true).unwrap();
        drop(socket.connect(&SocketAddr::from((SERVER, 5001)).into()));
        socket
    };
    let connections: Vec<Socket> =
        world.testbed.vehicle.enter(|| (0..MAX_CONNECTIONS + 6).map(connect).collect()).unwrap();
    while connections.iter().any(|socket| socket.peer_addr().is_err()) {
        sleep(Duration::from_millis(10));
    }
    let (events, _) = start(&world).end();
    assert_eq!(events.matches("\"rule\":\"too_many\"").count(), 1, "{events}");
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["unmanaged_connections"], 6, "{last}");
}

#[test]
fn a_full_disk_is_reported_once_and_affects_no_connection() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent =
        Agent::with_events(&world.testbed.vehicle, TempDir::new().unwrap(), CONFIGURATION, Path::new("/dev/full"));
    let (client, server) = world.connect();
    world.send_cams_until(STRONG_DBM, active);
    exchange(&client, &server);
    let expected = "crosslane: while writing events to /dev/full: No space left on device (os error 28); the agent \
                    continues without them\n";
    assert_eq!(agent.end().1, expected);
}

#[test]
fn a_message_that_cannot_be_written_costs_nothing_else() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let full = Path::new("/dev/full");
    let agent = Agent::spawn(&world.testbed.vehicle, TempDir::new().unwrap(), |workdir, ready| {
        let mut command = command(workdir, CONFIGURATION, full, ready);
        command.stderr(File::options().write(true).open(full).unwrap());
        command
    });
    let (client, server) = world.connect();
    world.send_cams_until(STRONG_DBM, active);
    exchange(&client, &server);
    agent.end();
}

#[test]
fn an_agent_whose_events_are_not_read_goes_on_and_counts_those_that_are_lost() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (mut reader, writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let mut agent = Agent::spawn(&world.testbed.vehicle, TempDir::new().unwrap(), |workdir, ready| {
        let mut command = command(workdir, &CONFIGURATION.replace("events = \"EVENTS\"", ""), Path::new("none"), ready);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        command
    });
    let (client, server) = world.connect();
    // More events than the pipe has space for.
    for _ in 0..4 {
        world.send_cams_until(STRONG_DBM, active);
        world.send_cams_until(WEAK_DBM, |subflows| !active(subflows));
    }
    exchange(&client, &server);
    let reading = spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    // The pause after a lost line.
    sleep(Duration::from_millis(1100));
    world.send_cams_until(STRONG_DBM, active);
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
    let text = reading.join().unwrap();
    let events = text.lines().filter(|line| !line.starts_with("crosslane: "));
    let events: Vec<serde_json::Value> = events.map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_count =
        |event: &serde_json::Value| event["event"] == "suppressed" && event["rule"] == "decision threshold.enter";
    assert!(events.iter().any(is_count), "{text}");
    assert_eq!(events.last().unwrap()["event"], "end", "{text}");
}

#[test]
fn a_port_in_use_is_retried_while_the_rest_of_the_agent_works() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 5051));
    let taken = world.testbed.vehicle.enter(bind).unwrap().unwrap();
    let agent = start(&world);
    let (client, server) = world.connect();
    sleep(Duration::from_secs(1));
    drop(taken);
    world.send_cams_until(STRONG_DBM, active);
    exchange(&client, &server);
    let expected = "crosslane: while listening for CAMs on 127.0.0.1:5051: Address already in use (os error 98); set \
                    observe.vanetza to a free local address and port; the agent continues without it and retries until it \
                    works\ncrosslane: listening for CAMs works now\n";
    assert_eq!(agent.end().1, expected);
}

/// Waits until the standard error of the agent contains this text.
fn await_message(agent: &Agent, message: &str) {
    for _ in 0..MAX_MESSAGES {
        if agent.read("stderr").contains(message) {
            return;
        }
        sleep(PERIOD);
    }
    panic!("{message} is not in {:?}", agent.read("stderr"));
}

#[test]
fn an_agent_reports_that_the_kernels_path_manager_is_selected_and_the_remedy() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let select = |choice| world.testbed.vehicle.enter(move || select_path_manager(choice).unwrap()).unwrap();
    select(PathManager::Kernel);
    let agent = start(&world);
    await_message(
        &agent,
        "net.mptcp.path_manager is `kernel`: connections that begin now remain managed by the kernel",
    );
    assert!(agent.read("stderr").contains("run `sysctl -w net.mptcp.path_manager=userspace`"));
    select(PathManager::UserSpace);
    await_message(&agent, "net.mptcp.path_manager is `userspace` now");
    select(PathManager::Kernel);
    sleep(3 * Duration::from_secs(1));
    let (_, stderr) = agent.end();
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
}

/// Runs `work` in the vehicle namespace as an unprivileged user; `None` where this
/// process cannot change its user.
fn as_unprivileged_user<T: Send>(world: &World, work: impl FnOnce() -> T + Send) -> Option<T> {
    let change_user = || {
        // SAFETY: the raw system call changes only this thread, which ends with the closure.
        let changed = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, 65534, 65534, 65534) };
        (changed == 0).then(work)
    };
    std::thread::scope(|scope| scope.spawn(|| world.testbed.vehicle.enter(change_user).unwrap()).join().unwrap())
}

#[test]
fn samples_of_a_user_that_is_not_configured_are_ignored() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = start(&world);
    let (client, server) = world.connect();
    let Some(forger) = as_unprivileged_user(&world, || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()) else {
        crate::program::not_run("changing to an unprivileged user needs root");
        return;
    };
    for _ in 0..20 {
        forger.send_to(cam(1001, STRONG_DBM).as_bytes(), (Ipv4Addr::LOCALHOST, 5051)).unwrap();
        sleep(PERIOD);
    }
    assert_eq!(world.subflows_on_its_g5(), [], "a forged message was accepted");
    world.send_cams_until(STRONG_DBM, active);
    for _ in 0..20 {
        forger.send_to(cam(1001, WEAK_DBM).as_bytes(), (Ipv4Addr::LOCALHOST, 5051)).unwrap();
        world.send(cam(1001, STRONG_DBM).as_bytes());
        sleep(PERIOD);
    }
    assert!(active(&world.subflows_on_its_g5()));
    exchange(&client, &server);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    assert!(events.contains("a datagram of user 65534, which observe.vanetza_users does not name"), "{events}");
}

#[test]
fn a_restarted_agent_appends_to_the_events_file() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let workdir = TempDir::new().unwrap();
    let events = workdir.path().join("kept.jsonl");
    for _ in 0..2 {
        Agent::with_events(&world.testbed.vehicle, TempDir::new().unwrap(), CONFIGURATION, &events).end();
    }
    let text = fs::read_to_string(&events).unwrap();
    for event in ["start", "end"] {
        let of_event = format!("\"event\":\"{event}\"");
        assert_eq!(text.lines().filter(|line| line.contains(&of_event)).count(), 2, "{event} in {text}");
    }
}
