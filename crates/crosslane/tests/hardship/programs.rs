//! A client and a server over MPTCP sockets that check every byte and wait no longer than
//! the deadline.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::exchange::{Connection, HEADER_BYTES, State, Stop, decode};
use super::plan::Traffic;

/// Port of the server.
pub const PORT: u16 = 5001;
/// Stack size of the thread of a connection.
const STACK_BYTES: usize = 256 * 1024;

/// How a connection ended at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every byte was correct.
    Done,
    /// A system call returned an error.
    Error,
    /// The deadline passed first.
    Hung,
    /// A byte was wrong.
    Wrong,
    /// Bytes of an earlier offset arrived again.
    Repeated,
}

/// Report of an endpoint about a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// Number of the connection.
    pub id: u32,
    /// Initial local address of this endpoint.
    pub local: SocketAddr,
    /// How it ended.
    pub outcome: Outcome,
    /// The call that failed, and its error.
    pub why: String,
    /// Time of its end, in ms of the run.
    pub end_ms: u64,
    /// Longest time during which this endpoint waited for data.
    pub stall_ms: u64,
    /// Bytes that this endpoint has checked.
    pub bytes: u64,
    /// It had fallen back to plain TCP, so no path manager can save it.
    pub fallback: bool,
    /// At the last wait, the kernel of this endpoint was full of later bytes, so no path manager can save it.
    pub full: bool,
}

/// Orders for the client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Address of the server.
    pub server: IpAddr,
    /// Start of the run, on the monotonic clock.
    pub origin_ns: u64,
    /// A connection that has not ended at this time hangs.
    pub deadline_ms: u64,
    /// The connections.
    pub connections: Vec<Traffic>,
}

/// Runs the client: carries out the orders and writes a report of each connection.
pub fn client(orders: &Path, output: &Path) {
    let orders: Orders = serde_json::from_str(&fs::read_to_string(orders).unwrap()).unwrap();
    let orders = Arc::new(orders);
    let threads = orders.connections.iter().cloned().map(|traffic| {
        let orders = orders.clone();
        spawn(move || run_connection(&orders, &traffic))
    });
    let threads: Vec<_> = threads.collect();
    let all: Vec<ConnectionReport> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    fs::write(output, serde_json::to_string(&all).unwrap()).unwrap();
}

/// Runs the server until standard input ends; then writes a report of each connection.
pub fn server(address: IpAddr, origin_ns: u64, output: &Path) {
    let wildcard = if address.is_ipv6() { "[::]" } else { "0.0.0.0" };
    let bound: SocketAddr = format!("{wildcard}:{PORT}").parse().unwrap();
    let listener = mptcp(address);
    listener.set_reuse_address(true).unwrap();
    listener.bind(&bound.into()).unwrap();
    listener.listen(512).unwrap();
    println!("listening");
    let all: Arc<Mutex<ConnectionTable>> = Arc::default();
    let table = all.clone();
    spawn(move || {
        loop {
            let Ok((socket, _)) = listener.accept() else { continue };
            let table = table.clone();
            spawn(move || serve(Connection::new(socket, origin_ns, u64::MAX), &table));
        }
    });
    drop(io::stdin().read(&mut [0]));
    let mut all = all.lock().unwrap();
    let open = |(entry, state): &mut (ConnectionReport, Arc<State>)| {
        entry.fallback = state.fallback.load(Relaxed);
        entry.full = state.full.load(Relaxed);
        entry.bytes = state.bytes.load(Relaxed);
        entry.clone()
    };
    let all: Vec<ConnectionReport> = all.iter_mut().map(open).collect();
    fs::write(output, serde_json::to_string(&all).unwrap()).unwrap();
}

/// Reports of the connections of the server, with the current state of each.
type ConnectionTable = Vec<(ConnectionReport, Arc<State>)>;

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap()
}

fn mptcp(address: IpAddr) -> Socket {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

fn run_connection(orders: &Orders, traffic: &Traffic) -> ConnectionReport {
    let now_ms = || (monotonic_ns() - orders.origin_ns) / 1_000_000;
    sleep(Duration::from_millis(traffic.begin_ms.saturating_sub(now_ms())));
    let socket = mptcp(orders.server);
    let left = Duration::from_millis(orders.deadline_ms.saturating_sub(now_ms()));
    let connected = socket.connect_timeout(&SocketAddr::new(orders.server, PORT).into(), left);
    let mut connection = Connection::new(socket, orders.origin_ns, orders.deadline_ms);
    let result = connected.map_err(|cause| Stop::of("connect", &cause)).and_then(|()| connection.run_client(traffic));
    connection.report(traffic.id, result)
}

fn serve(mut connection: Connection, table: &Mutex<ConnectionTable>) {
    let mut header = [0; HEADER_BYTES];
    // A join whose MPTCP options were removed is a connection without data.
    if connection.read_exact(&mut header, "header").is_err() {
        return;
    }
    let Some(traffic) = decode(&header) else { return };
    // The connection is listed as hung until its end.
    let place = {
        let mut table = table.lock().unwrap();
        let open = connection.report(traffic.id, Err(Stop(Outcome::Hung, "open".into())));
        table.push((open, connection.state.clone()));
        table.len() - 1
    };
    let result = connection.run_server(&traffic);
    let report = connection.report(traffic.id, result);
    table.lock().unwrap()[place].0 = report;
}
