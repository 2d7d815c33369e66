//! A small honest client and server over MPTCP sockets: every byte is checked,
//! and nothing waits longer than it was told to.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::plan::{Kind, Traffic};

/// Where the server listens.
pub const PORT: u16 = 5001;
/// First bytes of a connection, so that a stranger's is known.
const MAGIC: u32 = 0x6861_7264;
const HEADER_BYTES: usize = 32;
/// How often a blocked call looks at the time.
const LOOK: Duration = Duration::from_millis(500);
/// What the end that checked the bytes says to the other one.
const RIGHT: [u8; 8] = *b"allright";
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
}

/// What an end says of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Its number.
    pub id: u32,
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
    let open = |(entry, fallback): &mut (Told, Arc<AtomicBool>)| {
        entry.fallback = fallback.load(Relaxed);
        entry.clone()
    };
    let all: Vec<Told> = all.iter_mut().map(open).collect();
    fs::write(told, serde_json::to_string(&all).unwrap()).unwrap();
}

/// What the server says of its connections; whether one has become plain TCP
/// is known while it is still open.
type Book = Vec<(Told, Arc<AtomicBool>)>;

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
        book.push((open, connection.fallback.clone()));
        book.len() - 1
    };
    let went = connection.answer(&traffic);
    let told = connection.told(traffic.id, went);
    book.lock().unwrap()[place].0 = told;
}

fn encode(traffic: &Traffic) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC.to_be_bytes());
    header[4..8].copy_from_slice(&traffic.id.to_be_bytes());
    header[8..16].copy_from_slice(&traffic.bytes.to_be_bytes());
    header[16..20].copy_from_slice(&traffic.chunk.to_be_bytes());
    header[20..24].copy_from_slice(&traffic.tick_ms.to_be_bytes());
    header[25] = u8::from(traffic.spoiled);
    header[24] = match traffic.kind {
        Kind::Up => 0,
        Kind::Down => 1,
        Kind::PingPong => 2,
    };
    header
}

fn decode(header: &[u8; HEADER_BYTES]) -> Option<Traffic> {
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let kind = *[Kind::Up, Kind::Down, Kind::PingPong].get(usize::from(header[24]))?;
    let bytes = u64::from(word(8)) << 32 | u64::from(word(12));
    (word(0) == MAGIC).then(|| Traffic {
        id: word(4),
        kind,
        begin_ms: 0,
        bytes,
        chunk: word(16),
        tick_ms: word(20),
        until_ms: 0,
        spoiled: header[25] != 0,
    })
}

/// Why a connection is over before its time.
struct Stop(Outcome, String);

impl Stop {
    fn of(call: &str, cause: &io::Error) -> Stop {
        Stop(Outcome::Error, format!("{call}: {cause}"))
    }
}

/// One end of a connection, and what it has seen.
struct Connection {
    socket: Socket,
    origin_ns: u64,
    deadline_ms: u64,
    bytes: u64,
    stall_ms: u64,
    fallback: Arc<AtomicBool>,
}

impl Connection {
    fn new(socket: Socket, origin_ns: u64, deadline_ms: u64) -> Connection {
        socket.set_read_timeout(Some(LOOK)).unwrap();
        socket.set_write_timeout(Some(LOOK)).unwrap();
        Connection { socket, origin_ns, deadline_ms, bytes: 0, stall_ms: 0, fallback: Arc::default() }
    }

    fn now_ms(&self) -> u64 {
        (monotonic_ns() - self.origin_ns) / 1_000_000
    }

    fn told(&mut self, id: u32, went: Result<(), Stop>) -> Told {
        self.look_at_fallback();
        let (outcome, why) = match went {
            Ok(()) => (Outcome::Done, String::new()),
            Err(Stop(outcome, why)) => (outcome, why),
        };
        let (end_ms, stall_ms, bytes) = (self.now_ms(), self.stall_ms, self.bytes);
        let fallback = self.fallback.load(Relaxed);
        Told { id, outcome, why, end_ms, stall_ms, bytes, fallback }
    }

    /// The client's part. It closes only once the other end has said its last
    /// word: a connection that is closed on one side takes no further subflow
    /// (Linux `mptcp_is_fully_established`), so nobody could save it.
    fn ask(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        self.write_all(&encode(traffic), "header")?;
        match traffic.kind {
            Kind::Up => self.send(traffic)?,
            Kind::Down => {
                self.take(traffic)?;
                self.write_all(&RIGHT, "verdict")?;
            }
            Kind::PingPong => {
                while self.bytes == 0 || self.now_ms() < traffic.until_ms {
                    let begun_ms = self.now_ms();
                    let mut message = vec![0; traffic.chunk as usize];
                    fill(traffic.id, self.bytes, &mut message);
                    self.write_all(&message, "ping")?;
                    self.check(traffic.id, message.len(), "pong")?;
                    let took_ms = self.now_ms() - begun_ms;
                    self.stall_ms = self.stall_ms.max(took_ms);
                    sleep(Duration::from_millis(u64::from(traffic.tick_ms).saturating_sub(took_ms)));
                }
                return Ok(());
            }
        }
        self.hear_all_right()
    }

    /// The server's part; it closes after the client.
    fn answer(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        match traffic.kind {
            Kind::Up => self.take(traffic)?,
            Kind::Down => {
                self.send(traffic)?;
                self.hear_all_right()?;
            }
            Kind::PingPong => {
                while self.check_or_end(traffic.id, traffic.chunk as usize, "ping")? {
                    let mut message = vec![0; traffic.chunk as usize];
                    fill(traffic.id, self.bytes - message.len() as u64, &mut message);
                    message[0] ^= u8::from(traffic.spoiled);
                    self.write_all(&message, "pong")?;
                }
                return Ok(());
            }
        }
        self.write_all(&RIGHT, "verdict")?;
        self.await_end()
    }

    fn send(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        let mut chunk = vec![0; traffic.chunk as usize];
        let (mut at, mut due_ms) = (0, self.now_ms());
        while at < traffic.bytes {
            due_ms += u64::from(traffic.tick_ms);
            let length = (traffic.bytes - at).min(chunk.len() as u64) as usize;
            fill(traffic.id, at, &mut chunk[..length]);
            self.write_all(&chunk[..length], "write")?;
            at += length as u64;
            sleep(Duration::from_millis(due_ms.saturating_sub(self.now_ms())));
        }
        Ok(())
    }

    fn take(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        let mut left = traffic.bytes;
        while left > 0 {
            let begun_ms = self.now_ms();
            let length = left.min(u64::from(traffic.chunk)) as usize;
            self.check(traffic.id, length, "read")?;
            left -= length as u64;
            let took_ms = (self.now_ms() - begun_ms).saturating_sub(u64::from(traffic.tick_ms));
            self.stall_ms = self.stall_ms.max(took_ms);
        }
        Ok(())
    }

    fn check(&mut self, id: u32, length: usize, call: &str) -> Result<(), Stop> {
        match self.check_or_end(id, length, call)? {
            true => Ok(()),
            false => Err(Stop(Outcome::Error, format!("{call}: closed too early"))),
        }
    }

    /// False if the other end has closed instead.
    fn check_or_end(&mut self, id: u32, length: usize, call: &str) -> Result<bool, Stop> {
        let (mut got, mut right) = (vec![0; length], vec![0; length]);
        let first = self.read_some(&mut got, call)?;
        if first == 0 {
            return Ok(false);
        }
        self.read_exact(&mut got[first..], call)?;
        fill(id, self.bytes, &mut right);
        self.bytes += length as u64;
        if got == right { Ok(true) } else { Err(Stop(Outcome::Wrong, format!("{call}: before byte {}", self.bytes))) }
    }

    fn hear_all_right(&mut self) -> Result<(), Stop> {
        let (begun_ms, mut verdict) = (self.now_ms(), [0; 8]);
        self.read_exact(&mut verdict, "verdict")?;
        self.stall_ms = self.stall_ms.max(self.now_ms() - begun_ms);
        if verdict == RIGHT { Ok(()) } else { Err(Stop(Outcome::Wrong, "verdict".into())) }
    }

    fn await_end(&mut self) -> Result<(), Stop> {
        match self.read_some(&mut [0], "end") {
            Ok(0) => Ok(()),
            Ok(_) => Err(Stop(Outcome::Wrong, "more than all".into())),
            Err(stop) => Err(stop),
        }
    }

    fn read_exact(&mut self, mut buffer: &mut [u8], call: &str) -> Result<(), Stop> {
        while !buffer.is_empty() {
            match self.read_some(buffer, call)? {
                0 => return Err(Stop(Outcome::Error, format!("{call}: closed too early"))),
                length => buffer = &mut buffer[length..],
            }
        }
        Ok(())
    }

    fn read_some(&mut self, buffer: &mut [u8], call: &str) -> Result<usize, Stop> {
        let begun_ms = self.now_ms();
        loop {
            match self.socket.read(buffer) {
                Err(cause) => self.again(&cause, call, begun_ms)?,
                Ok(length) => return Ok(length),
            }
        }
    }

    fn write_all(&mut self, mut buffer: &[u8], call: &str) -> Result<(), Stop> {
        let begun_ms = self.now_ms();
        while !buffer.is_empty() {
            match self.socket.write(buffer) {
                Err(cause) => self.again(&cause, call, begun_ms)?,
                Ok(length) => buffer = &buffer[length..],
            }
        }
        Ok(())
    }

    /// Tells apart a call that may go on from one that is over.
    fn again(&mut self, cause: &io::Error, call: &str, begun_ms: u64) -> Result<(), Stop> {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
            _ => return Err(Stop::of(call, cause)),
        }
        self.look_at_fallback();
        if self.now_ms() < self.deadline_ms {
            return Ok(());
        }
        let waited_ms = self.now_ms() - begun_ms;
        self.stall_ms = self.stall_ms.max(waited_ms);
        Err(Stop(Outcome::Hung, format!("{call}: for {:.1} s", waited_ms as f64 / 1e3)))
    }

    /// MPTCP_INFO is refused once the connection is plain TCP (Linux `net/mptcp/sockopt.c`).
    fn look_at_fallback(&mut self) {
        const SOL_MPTCP: i32 = 284;
        const MPTCP_INFO: i32 = 1;
        let (mut info, mut length) = ([0_u8; 64], 64 as libc::socklen_t);
        // SAFETY: `info` has `length` bytes.
        let asked = unsafe {
            let info = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), SOL_MPTCP, MPTCP_INFO, info, &mut length)
        };
        let refused = io::Error::last_os_error().raw_os_error();
        let is_plain = asked != 0 && matches!(refused, Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT));
        let flag = u32::from_ne_bytes([info[8], info[9], info[10], info[11]]) & 1 != 0;
        self.fallback.fetch_or(is_plain || (asked == 0 && flag), Relaxed);
    }
}

/// The bytes of a connection from `at` on.
fn fill(id: u32, at: u64, bytes: &mut [u8]) {
    for (place, byte) in (at..).zip(bytes) {
        let word = (place / 8 + (u64::from(id) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = ((word ^ (word >> 29)) >> (place % 8 * 8)) as u8;
    }
}
