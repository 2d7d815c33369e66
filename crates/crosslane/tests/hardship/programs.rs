//! A small honest client and server over MPTCP sockets: every byte is checked,
//! and nothing waits longer than it was told to.

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

use super::exchange::{Connection, HEADER_BYTES, Seen, Stop, decode};
use super::plan::Traffic;

/// Where the server listens.
pub const PORT: u16 = 5001;
/// A stack of each connection's thread.
const STACK_BYTES: usize = 256 * 1024;

/// How a connection ended for one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every byte was right.
    Done,
    /// The end was told that it is over.
    Error,
    /// The deadline came first.
    Hung,
    /// A byte was wrong.
    Wrong,
    /// Bytes came that had come before.
    Repeated,
}

/// What an end says of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Its number.
    pub id: u32,
    /// This end's address as it began.
    pub local: SocketAddr,
    /// How it ended.
    pub outcome: Outcome,
    /// In which call, and with what error.
    pub why: String,
    /// When it ended, in ms of the run.
    pub end_ms: u64,
    /// Longest time in which this end expected something and nothing came.
    pub stall_ms: u64,
    /// Bytes that this end has checked.
    pub bytes: u64,
    /// It had become plain TCP; nobody can save it then.
    pub fallback: bool,
    /// This end's kernel was full of later bytes when it was last waited for: neither.
    pub full: bool,
}

/// What the client is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// Where to connect to.
    pub server: IpAddr,
    /// When the run began, on the monotonic clock.
    pub origin_ns: u64,
    /// When a connection that has not ended hangs.
    pub deadline_ms: u64,
    /// The connections.
    pub connections: Vec<Traffic>,
}

/// Plays the client: carries out the orders and writes what came of each connection.
pub fn client(orders: &Path, told: &Path) {
    let orders: Orders = serde_json::from_str(&fs::read_to_string(orders).unwrap()).unwrap();
    let orders = Arc::new(orders);
    let threads = orders.connections.iter().cloned().map(|traffic| {
        let orders = orders.clone();
        spawn(move || play(&orders, &traffic))
    });
    let threads: Vec<_> = threads.collect();
    let all: Vec<Told> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    fs::write(told, serde_json::to_string(&all).unwrap()).unwrap();
}

/// Plays the server until standard input ends; then writes what came of each connection.
pub fn server(address: IpAddr, origin_ns: u64, told: &Path) {
    let wildcard = if address.is_ipv6() { "[::]" } else { "0.0.0.0" };
    let bound: SocketAddr = format!("{wildcard}:{PORT}").parse().unwrap();
    let listener = mptcp(address);
    listener.set_reuse_address(true).unwrap();
    listener.bind(&bound.into()).unwrap();
    listener.listen(512).unwrap();
    println!("listening");
    let all: Arc<Mutex<Book>> = Arc::default();
    let book = all.clone();
    spawn(move || {
        loop {
            let Ok((socket, _)) = listener.accept() else { continue };
            let book = book.clone();
            spawn(move || serve(Connection::new(socket, origin_ns, u64::MAX), &book));
        }
    });
    drop(io::stdin().read(&mut [0]));
    let mut all = all.lock().unwrap();
    let open = |(entry, seen): &mut (Told, Arc<Seen>)| {
        entry.fallback = seen.fallback.load(Relaxed);
        entry.full = seen.full.load(Relaxed);
        entry.bytes = seen.bytes.load(Relaxed);
        entry.clone()
    };
    let all: Vec<Told> = all.iter_mut().map(open).collect();
    fs::write(told, serde_json::to_string(&all).unwrap()).unwrap();
}

/// What the server says of its connections, and what is known of those that are open.
type Book = Vec<(Told, Arc<Seen>)>;

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap()
}

fn mptcp(address: IpAddr) -> Socket {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

fn play(orders: &Orders, traffic: &Traffic) -> Told {
    let now_ms = || (monotonic_ns() - orders.origin_ns) / 1_000_000;
    sleep(Duration::from_millis(traffic.begin_ms.saturating_sub(now_ms())));
    let socket = mptcp(orders.server);
    let left = Duration::from_millis(orders.deadline_ms.saturating_sub(now_ms()));
    let connected = socket.connect_timeout(&SocketAddr::new(orders.server, PORT).into(), left);
    let mut connection = Connection::new(socket, orders.origin_ns, orders.deadline_ms);
    let went = connected.map_err(|cause| Stop::of("connect", &cause)).and_then(|()| connection.ask(traffic));
    connection.told(traffic.id, went)
}

fn serve(mut connection: Connection, book: &Mutex<Book>) {
    let mut header = [0; HEADER_BYTES];
    // A join whose options were taken out is a connection that says nothing.
    if connection.read_exact(&mut header, "header").is_err() {
        return;
    }
    let Some(traffic) = decode(&header) else { return };
    // It is in the book before it has ended: hung, until more is known.
    let place = {
        let mut book = book.lock().unwrap();
        let open = connection.told(traffic.id, Err(Stop(Outcome::Hung, "open".into())));
        book.push((open, connection.seen.clone()));
        book.len() - 1
    };
    let went = connection.answer(&traffic);
    let told = connection.told(traffic.id, went);
    book.lock().unwrap()[place].0 = told;
}
