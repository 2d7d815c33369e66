//! An agent whose links and connections come and go for a long time: neither its memory nor its descriptors grow.
//! `MINUTES` of the environment sets how long; `make soak` takes an hour.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, two_links};
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Testbed;
use socket2::Socket;

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[strategy]
name = "adaptive"
[http]
listen = "127.0.0.1:9470"
[log]
events = "EVENTS"
"#;
/// How long the test takes without `MINUTES`.
const SECONDS: u64 = 20;
/// Connections at a time; with each cycle the oldest one ends.
const CONNECTIONS: usize = 30;
/// The agent returns memory every ten seconds, so a measurement is the least of so many cycles.
const CYCLES: usize = 25;
/// How much more memory than after the first sixth may be resident: in minutes, when everything was used once, and in seconds.
const GROWTH_KIB: [u64; 2] = [512, 2048];

/// How long the test takes, and the growth that is allowed.
fn limits() -> (Duration, u64) {
    let minutes = std::env::var("MINUTES").ok().and_then(|minutes| minutes.parse::<u64>().ok());
    let [long, short] = GROWTH_KIB;
    minutes.map_or((Duration::from_secs(SECONDS), short), |minutes| (Duration::from_secs(minutes * 60), long))
}

/// Reads the metrics and the status, as a monitoring system and a user do.
fn ask(testbed: &Testbed) {
    let answer = testbed.vehicle.enter(|| {
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], 9470))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9470\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut status = Command::new(CROSSLANE);
    status.args(["status", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output: ProgramOutput = testbed.vehicle.spawn(&mut status).unwrap().wait_with_output().unwrap().into();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

fn descriptors(agent: &Agent) -> usize {
    fs::read_dir(format!("/proc/{}/fd", agent.child.id())).unwrap().count()
}

#[test]
fn neither_memory_nor_descriptors_grow_while_links_and_connections_come_and_go() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = two_links(["lte", "nr"], 10.0, 5);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let mut agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let mut connections: Vec<(Socket, Socket)> = Vec::new();
    // Least memory and fewest descriptors of each measurement: a connection of HTTP that was just closed counts in one cycle.
    let mut measured: Vec<(u64, usize)> = Vec::new();
    let (duration, growth_kib) = limits();
    let (began, mut of_cycles) = (Instant::now(), Vec::new());
    for cycle in 0.. {
        // One link at a time, so that each connection keeps a subflow.
        let (place, up) = (cycle / 4 % 2, cycle % 4 >= 2);
        if cycle % 2 == 0 {
            testbed.set_up(place, up).unwrap();
        }
        connections.push(links::connect(&testbed, &listener));
        if connections.len() > CONNECTIONS {
            connections.remove(0);
        }
        connections.iter().for_each(|(client, server)| links::exchange(client, server));
        ask(&testbed);
        assert!(agent.child.try_wait().unwrap().is_none(), "{}", agent.read("stderr"));
        of_cycles.push((agent.resident_kib(), descriptors(&agent)));
        if of_cycles.len() == CYCLES {
            let (memory, open): (Vec<u64>, Vec<usize>) = of_cycles.drain(..).unzip();
            measured.push((memory.into_iter().min().unwrap(), open.into_iter().min().unwrap()));
        }
        if began.elapsed() >= duration && measured.len() >= 2 {
            eprintln!("{cycle} cycles");
            break;
        }
        sleep(Duration::from_millis(400));
    }
    let (warm, last) = (measured[measured.len() / 6], measured[measured.len() - 1]);
    eprintln!(
        "resident KiB and descriptors: {warm:?} after a sixth, {last:?} at the end, at most {:?}",
        measured.iter().max()
    );
    assert!(last.0 <= warm.0 + growth_kib && last.1 <= warm.1, "{measured:?}");
}
