//! The page and the metrics that a real agent serves over HTTP, and clients that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::two_links;
use crosslane::control::report::{AgentStatus, ConnectionPage};
use crosslane::http::Signals;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Namespace;
use crosslane::testbed::emulator::Emulator;
use crosslane_core::agent::MAX_PATHS;
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
[http]
listen = "127.0.0.1:9470"
[log]
events = "EVENTS"
"#;
const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 9470);
/// Longest time of a connection, with some for a busy machine.
const DROPPED: Duration = Duration::from_secs(15);

fn vehicle() -> (crosslane::testbed::Testbed, Emulator) {
    let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    (testbed, emulator)
}

fn connect(vehicle: &Namespace) -> TcpStream {
    let stream = vehicle.enter(|| TcpStream::connect(SocketAddr::from(ADDRESS)).unwrap()).unwrap();
    stream.set_read_timeout(Some(DROPPED)).unwrap();
    stream
}

/// Sends this and returns what arrives until the agent closes the connection.
fn exchange(vehicle: &Namespace, request: &[u8]) -> String {
    let mut stream = connect(vehicle);
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // The agent may reset a connection of which it did not read everything.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Head and body of the response to GET.
fn get(vehicle: &Namespace, target: &str) -> (String, String) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost:9470\r\n\r\n");
    let answer = exchange(vehicle, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.into(), body.into())
}

#[test]
fn an_agent_serves_its_page_its_state_and_its_metrics() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = vehicle();
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let mut first_view = 0;
    for (target, kind) in [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/api/state", "application/json"),
        ("/api/signals", "application/json"),
        ("/api/connections", "application/json"),
    ] {
        let (head, body) = get(&testbed.vehicle, target);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&format!("content-type: {kind}")), "{head}");
        for header in ["default-src 'none'; script-src 'self'", "nosniff", "cache-control: no-store"] {
            assert!(head.contains(header), "{target}: {header} in {head}");
        }
        first_view += head.len() + body.len();
    }
    assert!(first_view < 200_000, "{first_view} bytes");
    let status: AgentStatus = serde_json::from_str(&get(&testbed.vehicle, "/api/state").1).unwrap();
    assert_eq!((status.pid, status.paths.len()), (agent.child.id(), 2));
    let page: ConnectionPage = serde_json::from_str(&get(&testbed.vehicle, "/api/connections?after=0a").1).unwrap();
    assert!(page.connections.is_empty() && page.next.is_none());
    let signals: Signals = serde_json::from_str(&get(&testbed.vehicle, "/api/signals").1).unwrap();
    assert_eq!(signals.keys().map(String::as_str).collect::<Vec<_>>(), ["lte", "nr"]);
    let (head, body) = get(&testbed.vehicle, "/metrics");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("crosslane_path_bytes_total{path=\"nr\",direction=\"sent\"} "), "{body}");
    assert_eq!(families(&body), documented());
    let resident_kib = agent.resident_kib();
    eprintln!("first view without connections {first_view} bytes; resident {resident_kib} KiB");
    assert!(resident_kib < 15_600, "more than 16 MB");
    assert_eq!(agent.end().1, "");
}

/// Name and type of each metric, as the type lines say; a counter's samples have the suffix `_total`.
fn families(text: &str) -> Vec<(String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split_once(' ').map(|(name, kind)| (name.into(), kind.into())).unwrap()).collect()
}

/// The same of the table in the reference.
fn documented() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agent-metrics.md");
    let text = fs::read_to_string(page).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `crosslane_"));
    let cell = |row: &str, place: usize| row.split('|').nth(place).unwrap().trim().trim_matches('`').to_owned();
    rows.map(|row| (cell(row, 1).trim_end_matches("_total").to_owned(), cell(row, 2))).collect()
}

#[test]
fn clients_that_misbehave_disturb_nothing() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = vehicle();
    let agent = Agent::start(&testbed.vehicle, CONFIGURATION);
    let vehicle = &testbed.vehicle;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: rebound.example:9470\r\n\r\n", "HTTP/1.1 421 "),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 421 "),
        ("POST /api/state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 405 "),
        ("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 "),
        ("\u{16}\u{3}\u{1} no HTTP\r\n\r\n", "HTTP/1.1 400 "),
        (&long, "HTTP/1.1 431 "),
    ] {
        let answer = exchange(vehicle, request.as_bytes());
        assert!(answer.starts_with(expected), "{request:.60}: {answer}");
    }
    let head = exchange(vehicle, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "a response to HEAD has no body: {head}");

    // More clients than there are places, which send nothing: the page waits until they lose theirs.
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..20).map(|_| connect(vehicle)).collect();
    assert!(get(vehicle, "/").0.starts_with("HTTP/1.1 200 "));
    assert!(began.elapsed() < DROPPED, "{:?}", began.elapsed());
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap_or(0), 0, "it was dropped");
    assert_eq!(agent.end().1, "");
}

/// Processor time of all threads of a process.
fn processor_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap());
    times.map(|text| Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())).sum()
}

/// The agent's processor time with and without a page that is open, and its memory, printed. All 16 paths have an
/// interface; over two of them each connection has a subflow, over the others, Wi-Fi without a signal, none.
#[test]
fn an_open_page_costs_little_with_a_thousand_connections_and_sixteen_paths() {
    const CONNECTIONS: usize = 1000;
    const PERIODS: u32 = 20;
    if !can_drive() {
        return;
    }
    let names: Vec<String> = (0..MAX_PATHS).map(|number| format!("path{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (testbed, _emulator) = crate::program::links::links(&names, &[10.0; MAX_PATHS], 5);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = crate::program::links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let path = |(number, name): (usize, &&str)| {
        let rat = if number < 2 { "lte" } else { "wifi" };
        format!("[[path]]\nname = \"{name}\"\nrat = \"{rat}\"\n")
    };
    let paths: String = names.iter().enumerate().map(path).collect();
    let (_, others) = CONFIGURATION.split_once("[strategy]").unwrap();
    let agent = Agent::start(&testbed.vehicle, &format!("{paths}[strategy]{others}"));
    let _connections: Vec<(Socket, Socket)> =
        (0..CONNECTIONS).map(|_| crate::program::links::connect(&testbed, &listener)).collect();
    let state = || -> AgentStatus { serde_json::from_str(&get(&testbed.vehicle, "/api/state").1).unwrap() };
    let began = Instant::now();
    while state().paths.iter().map(|path| path.connections).sum::<usize>() < 2 * CONNECTIONS {
        assert!(began.elapsed() < 4 * DROPPED, "{:?}", state().paths);
        sleep(Duration::from_secs(1));
    }
    assert!(state().paths.iter().all(|path| path.address.is_some()));
    sleep(Duration::from_secs(5));
    let cost = |is_watched: bool| {
        let before = processor_time(agent.child.id());
        for period in 0..PERIODS {
            if is_watched {
                assert_eq!(state().connections, CONNECTIONS);
            }
            if is_watched && period % 5 == 0 {
                let (_, body) = get(&testbed.vehicle, "/api/connections");
                let page: ConnectionPage = serde_json::from_str(&body).unwrap();
                assert!(page.connections.len() == 64 && page.next.is_some() && body.len() < 100_000, "{}", body.len());
                assert_eq!(families(&get(&testbed.vehicle, "/metrics").1), documented());
            }
            sleep(Duration::from_secs(1));
        }
        (processor_time(agent.child.id()) - before).as_secs_f64() / f64::from(PERIODS)
    };
    let (unwatched, watched) = (cost(false), cost(true));
    let (resident_kib, share) = (agent.resident_kib(), watched - unwatched);
    eprintln!("share of a core: {unwatched:.4} unwatched, {watched:.4} watched; resident {resident_kib} KiB");
    eprintln!("longest answer {:.3} ms", state().longest_answer_ms);
    assert!(share < 0.025, "{share}");
}

#[test]
fn an_agent_whose_port_is_taken_goes_on_and_serves_when_it_is_free() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = vehicle();
    let first = Agent::start(&testbed.vehicle, CONFIGURATION);
    let second = Agent::start(&testbed.vehicle, CONFIGURATION);
    let stderr = second.read("stderr");
    assert!(
        stderr.starts_with("crosslane: while listening for HTTP on 127.0.0.1:9470: Address already in use"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    drop(first.end());
    let began = Instant::now();
    while !second.read("stderr").contains("the page over HTTP works now") {
        assert!(began.elapsed() < DROPPED);
        sleep(Duration::from_millis(100));
    }
    // It looks for other agents every ten seconds.
    let status = || serde_json::from_str::<AgentStatus>(&get(&testbed.vehicle, "/api/state").1).unwrap();
    while !status().problems.is_empty() {
        assert!(began.elapsed() < 2 * DROPPED, "{:?}", status().problems);
        sleep(Duration::from_millis(100));
    }
    assert_eq!(status().pid, second.child.id());
    assert!(get(&testbed.vehicle, "/").0.starts_with("HTTP/1.1 200 "));
}
