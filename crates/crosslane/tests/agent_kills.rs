//! An agent that is killed at random moments while connections carry data: no connection is lost, all bytes are right, and
//! the next agent manages soon.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::program::agent::{Agent, command};
use crate::program::links::{self, exchange};
use crate::program::{can_drive, from_environment, quantiles};
use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Testbed, vehicle_address};
use crosslane_core::rng::Rng;
use socket2::Socket;
use tempfile::TempDir;

const PATHS: [&str; 3] = ["lte", "nr", "its-g5"];
const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
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
/// Times that the agent is killed; `TIMES` of the environment for more.
const TIMES: usize = 10;
/// Transfers in each direction.
const TRANSFERS: usize = 2;
/// Connections that begin while no agent runs, and live on.
const KEPT: usize = 20;
/// Longest wait for what is to happen, on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// Longest time between two kills.
const LONGEST_LIFE_MS: f64 = 400.0;
/// Period of the roadside unit's messages.
const PERIOD: Duration = Duration::from_millis(20);

fn times() -> usize {
    from_environment("TIMES", TIMES)
}

struct World {
    testbed: Testbed,
    _emulator: Emulator,
    listener: Socket,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = links::links(&PATHS, &[10.0; 3], 5);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
        World { testbed, _emulator: emulator, listener }
    }

    /// Number of subflows over each path, of each connection by its port of the vehicle.
    fn subflows(&self) -> BTreeMap<u16, [usize; 3]> {
        let found = self.testbed.vehicle.enter(|| Diag::open().unwrap().connections().unwrap()).unwrap();
        let counts = found.iter().map(|connection| {
            let on = |path| {
                let local = IpAddr::from(vehicle_address(path));
                connection.subflows.iter().filter(|info| info.subflow.local.ip() == local).count()
            };
            (connection.local.port(), [0, 1, 2].map(on))
        });
        counts.collect()
    }

    /// Until `condition` holds for the subflows of each connection.
    fn await_subflows(&self, ports: &[u16], condition: impl Fn([usize; 3]) -> bool, agent: &Agent) {
        let began = Instant::now();
        loop {
            let found = self.subflows();
            if ports.iter().all(|port| found.get(port).is_some_and(|counts| condition(*counts))) {
                return;
            }
            assert!(began.elapsed() < SOON, "{ports:?}: {found:?}; {}", agent.read("events.jsonl"));
            sleep(Duration::from_millis(2));
        }
    }

    /// A roadside unit that comes and goes every 300 ms, so that commands are due again and again.
    fn send_cams(&self, stop: &AtomicBool) {
        let socket = self.testbed.vehicle.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let rssi_dbm = if number / 15 % 2 == 0 { -60 } else { -95 };
            let cam =
                format!(r#"{{"rssi": {rssi_dbm}, "stationID": 1001, "fields": {{"header": {{"stationID": 1001}}}}}}"#);
            // No agent listens while none runs.
            drop(socket.send_to(cam.as_bytes(), (Ipv4Addr::LOCALHOST, 5051)));
            sleep(PERIOD);
        }
    }

    /// Starts an agent and kills it within this time, mostly before it is ready.
    fn kill_at_the_start(&self, after: Duration) {
        let workdir = TempDir::new().unwrap();
        let ready = workdir.path().join("ready");
        let _socket = UnixDatagram::bind(&ready).unwrap();
        let mut command = command(workdir.path(), CONFIGURATION, &workdir.path().join("events.jsonl"), &ready);
        let mut child = self.testbed.vehicle.spawn(&mut command).unwrap();
        sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The byte at a place of a stream; its period is a prime number.
fn byte_at(place: u64) -> u8 {
    (place % 251) as u8
}

/// Sends until `stop`, and then the end; the number of bytes.
fn send(socket: &Socket, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (sent..sent + 16_384).map(byte_at).collect();
        { socket }.write_all(&bytes).unwrap();
        sent += bytes.len() as u64;
    }
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    sent
}

/// Receives until the end, compares each byte; the number of bytes.
fn receive(socket: &Socket) -> u64 {
    let (mut received, mut buffer) = (0, vec![0; 65_536]);
    loop {
        let length = { socket }.read(&mut buffer).unwrap();
        if length == 0 {
            return received;
        }
        let wrong = (0..length).find(|place| buffer[*place] != byte_at(received + *place as u64));
        assert_eq!(wrong, None, "after {received} bytes");
        received += length as u64;
    }
}

fn port(client: &Socket) -> u16 {
    client.local_addr().unwrap().as_socket().unwrap().port()
}

#[test]
fn an_agent_that_is_killed_at_any_moment_costs_no_connection_and_the_next_one_manages() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let pairs: Vec<(Socket, Socket)> =
        (0..2 * TRANSFERS).map(|_| links::connect(&world.testbed, &world.listener)).collect();
    let bulk: Vec<u16> = pairs.iter().map(|(client, _)| port(client)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| world.send_cams(&stop));
        let transfers: Vec<_> = pairs
            .iter()
            .enumerate()
            .map(|(number, (client, server))| {
                let (from, to) = if number % 2 == 0 { (client, server) } else { (server, client) };
                (scope.spawn(|| send(from, &stop)), scope.spawn(|| receive(to)))
            })
            .collect();
        let kept = kill_often(&world, &bulk);
        stop.store(true, Ordering::Relaxed);
        let totals: Vec<(u64, u64)> =
            transfers.into_iter().map(|(sent, received)| (sent.join().unwrap(), received.join().unwrap())).collect();
        assert!(totals.iter().all(|(sent, received)| sent == received && *sent > 100_000), "{totals:?}");
        kept.iter().for_each(|(client, server)| exchange(client, server));
        eprintln!("{:.1} MB transferred", totals.iter().map(|(sent, _)| *sent as f64 / 1e6).sum::<f64>());
    });
}

/// Ends the threads of a test that fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills agents; the connections that began meanwhile.
fn kill_often(world: &World, bulk: &[u16]) -> Vec<(Socket, Socket)> {
    let mut rng = Rng::new(from_environment("SEED", 1), "kills");
    let mut kept: Vec<(Socket, Socket)> = Vec::new();
    let (mut ready, mut manages) = (Vec::new(), Vec::new());
    for _ in 0..times() {
        if kept.len() == KEPT {
            let (client, server) = kept.remove(0);
            exchange(&client, &server);
        }
        kept.push(links::connect(&world.testbed, &world.listener));
        let began = Instant::now();
        let agent = Agent::start(&world.testbed.vehicle, CONFIGURATION);
        ready.push(began.elapsed());
        let new = port(&kept.last().unwrap().0);
        world.await_subflows(&[new], |[lte, nr, _]| lte == 1 && nr == 1, &agent);
        manages.push(began.elapsed());
        world.await_subflows(bulk, |[lte, nr, its_g5]| lte == 1 && nr == 1 && its_g5 <= 1, &agent);
        sleep(Duration::from_secs_f64(rng.uniform() * LONGEST_LIFE_MS / 1e3));
        agent.kill();
        if rng.chance(0.3) {
            world.kill_at_the_start(Duration::from_secs_f64(rng.uniform() * 0.05));
        }
        let all: Vec<u16> = kept.iter().map(|(client, _)| port(client)).collect();
        let found = world.subflows();
        let twice = all.iter().chain(bulk).find(|port| found[port].iter().any(|count| *count > 1));
        assert_eq!(twice.map(|port| found[port]), None, "a subflow exists twice");
    }
    eprintln!("ready: {}", quantiles(ready));
    eprintln!("a new connection has its second subflow: {}", quantiles(manages));
    kept
}
