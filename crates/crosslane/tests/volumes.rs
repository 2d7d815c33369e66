//! Data volumes of paths: real bytes until a limit, and agents that are killed. What the kernel's subflows are decides.

use std::fs;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, exchange, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, crosslane};
use chrono::{Datelike, Days};
use crosslane::clock::local_date;
use crosslane::control::report::{AgentStatus, VolumeReport};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Testbed, vehicle_address};
use crosslane_core::mptcp::Subflow;
use nix::sys::signal::Signal;
use socket2::Socket;
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[path.volume]
month_mb = 3
reset_day = RESET
soft = SOFT
[[path]]
name = "nr"
rat = "nr"
[service]
mode = "backup"
volume_file = "FILE"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
const LIMIT_BYTES: u64 = 3_000_000;
/// Bytes that are written between two looks at the subflows.
const CHUNK_BYTES: usize = 100_000;
/// Bytes of a connection of which only those over `lte` count.
const MAX_BYTES: usize = 30_000_000;
/// Longest time until a state that has its cause is reached.
const SOON: Duration = Duration::from_secs(10);

/// A vehicle with `lte` (preferred) and `nr`, a server, and a folder for the volumes.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "nr"], 20.0, 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        World { testbed, _emulator: emulator, listener, folder: TempDir::new().unwrap() }
    }

    /// Not one whose month ends while the test runs.
    fn configuration(&self, soft: f64) -> String {
        let reset = (local_date() + Days::new(14)).day().to_string();
        let file = self.folder.path().join("volumes.json");
        CONFIGURATION
            .replace("RESET", &reset)
            .replace("SOFT", &format!("{soft:?}"))
            .replace("FILE", file.to_str().unwrap())
    }

    fn start(&self, soft: f64) -> Agent {
        Agent::start(&self.testbed.vehicle, &self.configuration(soft))
    }

    /// The vehicle's subflows over each path, of all connections.
    fn subflows(&self) -> [Vec<Subflow>; 2] {
        let connections = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let all: Vec<Subflow> =
            connections.into_iter().flat_map(|connection| connection.subflows).map(|info| info.subflow).collect();
        [0, 1].map(|path| {
            let local = IpAddr::from(vehicle_address(path));
            all.iter().copied().filter(|subflow| subflow.local.ip() == local).collect()
        })
    }

    fn await_subflows(&self, expected: impl Fn(&[Vec<Subflow>; 2]) -> bool) {
        let began = Instant::now();
        while !expected(&self.subflows()) {
            assert!(began.elapsed() < SOON, "{:?}", self.subflows());
            sleep(Duration::from_millis(20));
        }
    }

    /// Writes until the subflows are as expected; the server reads.
    fn write_until(&self, client: &Socket, server: &Socket, expected: impl Fn(&[Vec<Subflow>; 2]) -> bool) {
        let (mut client, mut server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let written = thread::scope(|scope| {
            let (count, expects) = std::sync::mpsc::channel::<usize>();
            let reader = scope.spawn(move || {
                let mut buffer = vec![0; CHUNK_BYTES];
                expects.iter().for_each(|bytes| server.read_exact(&mut buffer[..bytes]).unwrap());
            });
            let mut written = 0;
            while !expected(&self.subflows()) {
                assert!(written < MAX_BYTES, "{:?}", self.subflows());
                count.send(CHUNK_BYTES).unwrap();
                client.write_all(&[7; CHUNK_BYTES]).unwrap();
                written += CHUNK_BYTES;
            }
            drop(count);
            reader.join().unwrap();
            written
        });
        assert!(written as u64 > LIMIT_BYTES / 4, "after {written} bytes");
    }

    fn status(&self) -> AgentStatus {
        let mut command = Command::new(CROSSLANE);
        command.args(["status", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output: ProgramOutput =
            self.testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap().into();
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }

    /// Volume of `lte`, and its state.
    fn volume(&self) -> (VolumeReport, String) {
        let [lte, nr] = &self.status().paths[..] else { panic!("two paths") };
        assert_eq!(nr.volume, None);
        (lte.volume.clone().unwrap(), lte.state.clone())
    }

    fn kept(&self) -> String {
        fs::read_to_string(self.folder.path().join("volumes.json")).unwrap_or_default()
    }
}

fn both([lte, nr]: &[Vec<Subflow>; 2]) -> bool {
    lte.len() == 1 && nr.len() == 1
}

#[test]
fn a_path_carries_nothing_after_its_volume_is_used_up_also_if_the_agent_is_killed() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let mut agent = world.start(1.0);
    let (client, server) = world.connect();
    world.await_subflows(both);
    assert_eq!(world.volume().0.level, "available");
    world.write_until(&client, &server, |[lte, nr]| lte.is_empty() && nr.len() == 1);
    exchange(&client, &server);
    let (volume, state) = world.volume();
    let used_bytes = volume.periods[0].used_bytes;
    assert_eq!((volume.level.as_str(), state.as_str()), ("exhausted", "closed"));
    assert!(used_bytes >= LIMIT_BYTES && volume.periods[0].limit_bytes == LIMIT_BYTES, "{volume:?}");
    let began = Instant::now();
    while !world.kept().contains("\"lte\"") || kept_bytes(&world.kept()) < LIMIT_BYTES {
        assert!(began.elapsed() < SOON, "{}", world.kept());
        sleep(Duration::from_millis(20));
    }

    agent.signal(Signal::SIGKILL);
    agent.child.wait().unwrap();
    let again = world.start(1.0);
    let (volume, state) = world.volume();
    assert_eq!((volume.level.as_str(), state.as_str()), ("exhausted", "closed"), "after a SIGKILL");
    assert!(volume.periods[0].used_bytes >= used_bytes, "{volume:?}");
    exchange(&client, &server);
    // A new connection begins over the other path.
    let (new, accepted) = world.connect();
    world.await_subflows(|[lte, nr]| lte.is_empty() && nr.len() == 2);
    exchange(&new, &accepted);
    let (events, stderr) = again.end();
    assert_eq!(stderr, "");
    assert!(events.contains("\"rule\":\"volume.exhausted\""), "{events}");
    let creates = |line: &str| line.contains("\"command\":\"create\"") && line.contains("\"path\":\"lte\"");
    assert!(!events.lines().any(creates), "{events}");
    world.assert_check_notes_it(agent.workdir.path());
}

/// Bytes of the last month in a file.
fn kept_bytes(text: &str) -> u64 {
    let state: serde_json::Value = serde_json::from_str(text).unwrap();
    state["paths"]["lte"]["month"][0][1].as_u64().unwrap()
}

impl World {
    /// Client and server sockets of a connection that has carried data.
    fn connect(&self) -> (Socket, Socket) {
        links::connect(&self.testbed, &self.listener)
    }

    fn assert_check_notes_it(&self, folder: &Path) {
        let output = crosslane(folder, &["check", "agent.toml"]);
        let expected = "note: path \"lte\": it has used ";
        assert!(output.code == Some(0) && output.stdout.contains(expected), "{output:?}");
        assert!(output.stdout.contains("of 3.0 MB this month: it carries nothing until "), "{output:?}");
    }
}

#[test]
fn a_path_with_little_volume_left_is_a_backup_while_the_other_is_good() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let agent = world.start(0.5);
    let (client, server) = world.connect();
    world.await_subflows(|subflows| both(subflows) && !subflows[0][0].backup && subflows[1][0].backup);
    world.write_until(&client, &server, |subflows| both(subflows) && subflows[0][0].backup && !subflows[1][0].backup);
    exchange(&client, &server);
    assert_eq!(world.volume().0.level, "scarce");
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    assert!(events.contains("\"rule\":\"volume.scarce\""), "{events}");
    let used_bytes = kept_bytes(&world.kept());
    assert!((LIMIT_BYTES / 2..LIMIT_BYTES).contains(&used_bytes), "{used_bytes}");
}

#[test]
fn an_agent_goes_on_without_a_file_that_it_cannot_read_and_continues_it_when_it_can() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let file = world.folder.path().join("volumes.json");
    let agent = world.start(1.0);
    let (client, server) = world.connect();
    world.await_subflows(both);
    exchange(&client, &server);
    agent.end();
    let before = kept_bytes(&world.kept());
    let hidden = world.folder.path().join("hidden");
    fs::rename(&file, &hidden).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let agent = world.start(1.0);
    world.await_subflows(both);
    exchange(&client, &server);
    let await_problems = |count: usize| {
        let began = Instant::now();
        while world.status().problems.len() != count {
            assert!(began.elapsed() < SOON, "{}", agent.read("stderr"));
            sleep(Duration::from_millis(50));
        }
    };
    await_problems(1);
    fs::remove_file(&file).unwrap();
    fs::rename(&hidden, &file).unwrap();
    await_problems(0);
    let (_, stderr) = agent.end();
    let lines: Vec<&str> = stderr.lines().collect();
    let [unread, "crosslane: writing data volumes works now"] = lines[..] else { panic!("{stderr}") };
    assert!(unread.contains("while reading data volumes from ") && unread.contains("counting begins at zero"));
    assert!(before > 0 && kept_bytes(&world.kept()) > before, "{before}: {}", world.kept());
}
