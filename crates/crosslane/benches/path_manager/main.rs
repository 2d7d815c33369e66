//! Compares the agent with other path managers: `cargo bench --bench path_manager`. Only some of the measurements: a part
//! of their names after `--`, as `others`; `TIMES` of the environment: connections measured.
//!
//! Two namespaces, two veth pairs, almost no delay. For each of many connections
//! in sequence it measures the time from the third packet of the handshake to
//! the SYN of the second subflow, both as sent by the vehicle. The kernel lets a
//! program open a subflow only after the peer has acknowledged data, so client
//! and server exchange a byte at once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crosslane::error::{Error, Result};
use crosslane::netlink::PathManager;
use crosslane::testbed::{SERVER, prepare_privileges};

mod capture;
mod managers;
mod wires;

use capture::{Capture, Opening};
use managers::Daemon;
use wires::{Client, Server, Wires};

/// Connections measured per path manager, after [`WARM_UP`] others; `TIMES` of the environment for more.
const CONNECTIONS: usize = 300;
const WARM_UP: usize = 20;
/// Connections that are open meanwhile, for one of the measurements.
const OTHERS: usize = 1000;
/// Duration of a measurement of the agent's CPU time.
const CPU_INTERVAL: Duration = Duration::from_secs(5);
const LISTENER: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER), 5000);
/// Interfaces and addresses of the vehicle.
const PATHS: [(&str, Ipv4Addr); 2] = [("first", Ipv4Addr::new(10, 1, 0, 2)), ("second", Ipv4Addr::new(10, 2, 0, 2))];
/// The agent returns memory to the kernel in the meantime.
const GIVEN_BACK: Duration = Duration::from_secs(12);
/// p50 and p99, without others and with them.
const TARGETS_US: [u64; 2] = [600, u64::MAX];
const TARGETS_WITH_OTHERS_US: [u64; 2] = [200, 1000];
const TARGET_MB: f64 = 10.0;
const TARGET_WITH_OTHERS_MB: f64 = 12.0;

/// One line of the table.
struct Row {
    what: String,
    value: String,
    target: &'static str,
    reached: bool,
}

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    match prepare_privileges().and_then(|_| all()) {
        Ok(rows) => print(&rows),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(i32::from(error.exit_code()));
        }
    }
}

fn all() -> Result<Vec<Row>> {
    let scratch = tempfile::tempdir().map_err(failure)?;
    let scratch = scratch.path();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let agent = |wires: &Wires| managers::crosslane(wires, scratch).map(Some);
    let mut rows = Vec::new();
    for (name, others) in [("agent", 0), ("agent, 1,000 other connections", OTHERS)] {
        if is_wanted(name) {
            rows.extend(speed(name, PathManager::UserSpace, others, agent)?);
        }
    }
    if is_wanted("mptcpd") {
        rows.extend(match managers::mptcpd_version() {
            Some(name) => speed(&name, PathManager::UserSpace, 0, |wires| managers::mptcpd(wires, scratch).map(Some))?,
            None => vec![row("mptcpd: not installed (packages mptcpd, libmptcpd3-dev)", "")],
        });
    }
    let minimal = |wires: &Wires| managers::minimal(wires).map(|()| None);
    for (name, others) in [("minimal program", 0), ("minimal program, 1,000 other connections", OTHERS)] {
        if is_wanted(name) {
            rows.extend(speed(name, PathManager::UserSpace, others, minimal)?);
        }
    }
    if is_wanted("in-kernel") {
        rows.extend(speed("in-kernel", PathManager::Kernel, 0, |wires| managers::kernel(wires).map(|()| None))?);
    }
    if is_wanted("cost") {
        rows.extend(cost(scratch)?);
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    let machine = nix::sys::utsname::uname();
    let release = machine.as_ref().map_or("?".into(), |uname| uname.release().to_string_lossy());
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("path manager, crosslane {}, Linux {release}, {cores} cores", env!("CARGO_PKG_VERSION"));
    println!("{:<58} {:>20} {:>14}", "", "here", "target");
    for row in rows {
        let mark = if row.reached { ' ' } else { '!' };
        println!("{:<58} {:>20} {:>14} {mark}", row.what, row.value, row.target);
    }
}

/// Measures how fast a path manager opens the second subflow, while `others` connections are open.
fn speed(
    name: &str,
    kind: PathManager,
    others: usize,
    start: impl FnOnce(&Wires) -> Result<Option<Daemon>>,
) -> Result<Vec<Row>> {
    let wires = Wires::new(kind)?;
    let _server = Server::start(&wires)?;
    let daemon = start(&wires)?;
    let _others = wires.vehicle.enter(|| (0..others).map(|_| Client::connect()).collect::<Result<Vec<_>>>())??;
    let times = std::env::var("TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(CONNECTIONS);
    let openings = wires.vehicle.enter(|| connect_often(WARM_UP + times))??;
    let measured = &openings[WARM_UP..];
    let opened: Vec<Opening> = measured.iter().flatten().copied().collect();
    let ours = daemon.as_ref().filter(|_| name.starts_with("agent"));
    let (after_handshake, reached) = quantiles(opened.iter().map(Opening::after_handshake));
    let (after_data_ack, _) = quantiles(opened.iter().map(Opening::after_data_ack));
    let mut rows = vec![
        row(format!("{name}: third ACK → MP_JOIN, p50/p90/p99 µs"), after_handshake),
        row("  of which first DATA_ACK → MP_JOIN", after_data_ack),
    ];
    if ours.is_some() {
        let (targets, text) =
            if others == 0 { (TARGETS_US, "p50 600") } else { (TARGETS_WITH_OTHERS_US, "200 / – / 1000") };
        (rows[0].target, rows[0].reached) = (text, reached[0] <= targets[0] && reached[1] <= targets[1]);
    }
    let missed = measured.len() - opened.len();
    if missed > 0 {
        rows.push(Row {
            reached: false,
            ..row(format!("  connections without MP_JOIN, of {times}"), missed.to_string())
        });
    }
    if let Some(daemon) = daemon {
        let memory = || Ok::<_, Error>((daemon.memory_mb("VmRSS:")?, daemon.memory_mb("RssAnon:")?));
        let text = |(all, own): (f64, f64)| format!("{all:.1} ({own:.1}) MB");
        rows.push(row("  resident (anonymous) memory afterwards", text(memory()?)));
        if others > 0 {
            thread::sleep(GIVEN_BACK);
            let later = memory()?;
            let what = format!("  {} s later", GIVEN_BACK.as_secs());
            rows.push(Row { target: "12 MB", reached: later.0 <= TARGET_WITH_OTHERS_MB, ..row(what, text(later)) });
        }
    }
    Ok(rows)
}

fn connect_often(times: usize) -> Result<Vec<Option<Opening>>> {
    let mut capture = Capture::open().map_err(failure)?;
    let once = |_| {
        capture.clear();
        let client = Client::connect()?;
        let opening = capture.opening_of(client.local);
        drop(client);
        thread::sleep(Duration::from_millis(10));
        Ok(opening)
    };
    (0..times).map(once).collect()
}

/// Measures memory and CPU time of the agent with idle connections.
fn cost(scratch: &Path) -> Result<Vec<Row>> {
    let wires = Wires::new(PathManager::UserSpace)?;
    let _server = Server::start(&wires)?;
    let agent = managers::crosslane(&wires, scratch)?;
    let mut clients = Vec::new();
    let mut rows = Vec::new();
    for count in [0, 1, 10, 100] {
        let missing = count - clients.len();
        let more = wires.vehicle.enter(|| (0..missing).map(|_| Client::connect()).collect::<Result<Vec<_>>>())??;
        clients.extend(more);
        thread::sleep(Duration::from_millis(500));
        let before = agent.cpu()?;
        thread::sleep(CPU_INTERVAL);
        let per_minute = (agent.cpu()? - before).as_secs_f64() * 60.0 / CPU_INTERVAL.as_secs_f64();
        let (all, own) = (agent.memory_mb("VmRSS:")?, agent.memory_mb("RssAnon:")?);
        let memory =
            row(format!("agent, {count} connections: resident (anonymous) memory"), format!("{all:.1} ({own:.1}) MB"));
        rows.push(Row { target: "10 MB", reached: all <= TARGET_MB, ..memory });
        let cpu = row("  CPU per minute", format!("{per_minute:.2} s"));
        rows.push(if count == 10 { Row { target: "0.6 s", reached: per_minute <= 0.6, ..cpu } } else { cpu });
    }
    Ok(rows)
}

fn row(what: impl Into<String>, value: impl Into<String>) -> Row {
    Row { what: what.into(), value: value.into(), target: "", reached: true }
}

/// p50, p90 and p99 in µs as text; and p50 and p99.
fn quantiles(times: impl Iterator<Item = Duration>) -> (String, [u64; 2]) {
    let mut times: Vec<u64> = times.map(|time| time.as_micros() as u64).collect();
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(u64::MAX);
    (format!("{} / {} / {}", at(0.5), at(0.9), at(0.99)), [at(0.5), at(0.99)])
}

fn failure(cause: impl ToString) -> Error {
    Error::failure("measuring path managers", cause)
}
