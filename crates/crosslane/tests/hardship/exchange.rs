//! The exchange on one connection: the data that each endpoint writes and checks, and its report.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use socket2::Socket;

use super::plan::{Kind, Traffic};
use super::programs::{ConnectionReport, Outcome};

/// First bytes of a connection, which identify connections of this test.
const MAGIC: u32 = 0x6861_7264;
/// Length of the header that the client sends first.
pub const HEADER_BYTES: usize = 32;
/// Interval at which a blocked call checks the time.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Sent by the endpoint that has checked all bytes.
const RIGHT: [u8; 8] = *b"allright";

/// Reason for the early end of a connection.
pub struct Stop(pub Outcome, pub String);

impl Stop {
    /// For an error of a system call.
    pub fn of(call: &str, cause: &io::Error) -> Stop {
        Stop(Outcome::Error, format!("{call}: {cause}"))
    }
}

/// State of a connection that other threads read.
#[derive(Debug, Default)]
pub struct State {
    /// It has fallen back to plain TCP.
    pub fallback: AtomicBool,
    /// Its kernel holds later bytes up to the limit and accepts no earlier bytes any more.
    pub full: AtomicBool,
    /// Bytes that this endpoint has checked.
    pub bytes: AtomicU64,
}

/// One endpoint of a connection, and its measurements.
pub struct Connection {
    socket: Socket,
    local: SocketAddr,
    origin_ns: u64,
    deadline_ms: u64,
    bytes: u64,
    stall_ms: u64,
    /// State that is readable while the connection is in progress.
    pub state: Arc<State>,
}

impl Connection {
    /// Takes ownership of a socket; after `deadline_ms` the connection counts as hung.
    pub fn new(socket: Socket, origin_ns: u64, deadline_ms: u64) -> Connection {
        socket.set_read_timeout(Some(CHECK_INTERVAL)).unwrap();
        socket.set_write_timeout(Some(CHECK_INTERVAL)).unwrap();
        let local = socket.local_addr().unwrap().as_socket().unwrap();
        Connection { socket, local, origin_ns, deadline_ms, bytes: 0, stall_ms: 0, state: Arc::default() }
    }

    fn now_ms(&self) -> u64 {
        (monotonic_ns() - self.origin_ns) / 1_000_000
    }

    /// The report of the connection at this time.
    pub fn report(&mut self, id: u32, result: Result<(), Stop>) -> ConnectionReport {
        self.update_fallback();
        let (outcome, why) = match result {
            Ok(()) => (Outcome::Done, String::new()),
            Err(Stop(outcome, why)) => (outcome, why),
        };
        let (end_ms, stall_ms, bytes) = (self.now_ms(), self.stall_ms, self.bytes);
        let (fallback, full) = (self.state.fallback.load(Relaxed), self.state.full.load(Relaxed));
        ConnectionReport { id, local: self.local, outcome, why, end_ms, stall_ms, bytes, fallback, full }
    }

    /// The role of the client. Except in half-closed connections, it closes only
    /// after the last data of the server: a half-closed connection accepts no
    /// further subflow (`tests/netlink.rs` measures it), so a path manager can only
    /// keep the existing ones.
    pub fn run_client(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        self.write_all(&encode(traffic), "header")?;
        match traffic.kind {
            Kind::Up => self.send(traffic)?,
            Kind::HalfClosed => {
                self.send(traffic)?;
                self.socket.shutdown(Shutdown::Write).map_err(|cause| Stop::of("shutdown", &cause))?;
                self.await_verdict()?;
                return self.await_end();
            }
            Kind::Down => {
                self.receive(traffic)?;
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
        self.await_verdict()
    }

    /// The role of the server; it closes after the client.
    pub fn run_server(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        match traffic.kind {
            Kind::Up => self.receive(traffic)?,
            Kind::HalfClosed => {
                self.receive(traffic)?;
                self.await_end()?;
                return self.write_all(&RIGHT, "verdict");
            }
            Kind::Down => {
                self.send(traffic)?;
                self.await_verdict()?;
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
            if at < traffic.bytes {
                sleep(Duration::from_millis(due_ms.saturating_sub(self.now_ms())));
            }
        }
        Ok(())
    }

    fn receive(&mut self, traffic: &Traffic) -> Result<(), Stop> {
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

    /// False if the other endpoint has closed instead.
    fn check_or_end(&mut self, id: u32, length: usize, call: &str) -> Result<bool, Stop> {
        let (mut received, mut expected) = (vec![0; length], vec![0; length]);
        let first = self.read_some(&mut received, call)?;
        if first == 0 {
            return Ok(false);
        }
        self.read_exact(&mut received[first..], call)?;
        fill(id, self.bytes, &mut expected);
        self.bytes += length as u64;
        self.state.bytes.store(self.bytes, Relaxed);
        let Some(first) = received.iter().zip(&expected).position(|(received, expected)| received != expected) else {
            return Ok(true);
        };
        let at = self.bytes - (length - first) as u64;
        let outcome = if is_repeated(id, at, &received[first..]) { Outcome::Repeated } else { Outcome::Wrong };
        Err(Stop(outcome, format!("{call}: at byte {at}")))
    }

    fn await_verdict(&mut self) -> Result<(), Stop> {
        let (begun_ms, mut verdict) = (self.now_ms(), [0; 8]);
        self.read_exact(&mut verdict, "verdict")?;
        self.stall_ms = self.stall_ms.max(self.now_ms() - begun_ms);
        if verdict == RIGHT { Ok(()) } else { Err(Stop(Outcome::Wrong, "verdict".into())) }
    }

    fn await_end(&mut self) -> Result<(), Stop> {
        match self.read_some(&mut [0], "end") {
            Ok(0) => Ok(()),
            Ok(_) => Err(Stop(Outcome::Wrong, "data after the last byte".into())),
            Err(stop) => Err(stop),
        }
    }

    /// Fills the buffer; `call` is what an error names.
    pub fn read_exact(&mut self, mut buffer: &mut [u8], call: &str) -> Result<(), Stop> {
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
                Err(cause) => {
                    self.check_timeout(&cause, call, begun_ms)?;
                    self.state.full.store(self.is_full(), Relaxed);
                }
                Ok(length) => {
                    self.state.full.store(false, Relaxed);
                    return Ok(length);
                }
            }
        }
    }

    fn write_all(&mut self, mut buffer: &[u8], call: &str) -> Result<(), Stop> {
        let begun_ms = self.now_ms();
        while !buffer.is_empty() {
            match self.socket.write(buffer) {
                Err(cause) => self.check_timeout(&cause, call, begun_ms)?,
                Ok(length) => buffer = &buffer[length..],
            }
        }
        Ok(())
    }

    /// Ok if the call may be repeated; an error if it failed or the deadline has passed.
    fn check_timeout(&mut self, cause: &io::Error, call: &str, begun_ms: u64) -> Result<(), Stop> {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
            _ => return Err(Stop::of(call, cause)),
        }
        self.update_fallback();
        if self.now_ms() < self.deadline_ms {
            return Ok(());
        }
        let waited_ms = self.now_ms() - begun_ms;
        self.stall_ms = self.stall_ms.max(waited_ms);
        Err(Stop(Outcome::Hung, format!("{call}: for {:.1} s", waited_ms as f64 / 1e3)))
    }

    /// True if the kernel holds more bytes for this socket than its limit. A read that still waits
    /// waits for earlier bytes, but Linux accepts no data from any subflow while the limit is
    /// exceeded, not even the missing bytes (`docs/design/hardship.md`).
    fn is_full(&self) -> bool {
        const SO_MEMINFO: i32 = 55;
        let (mut info, mut length) = ([0_u32; 9], 36 as libc::socklen_t);
        // SAFETY: `info` has `length` bytes.
        let status = unsafe {
            let info = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, info, &mut length)
        };
        let [held, limit, ..] = info;
        status == 0 && held > limit
    }

    /// MPTCP_INFO is rejected after fallback to plain TCP (Linux `net/mptcp/sockopt.c`).
    fn update_fallback(&mut self) {
        const SOL_MPTCP: i32 = 284;
        const MPTCP_INFO: i32 = 1;
        let (mut info, mut length) = ([0_u8; 64], 64 as libc::socklen_t);
        // SAFETY: `info` has `length` bytes.
        let status = unsafe {
            let info = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), SOL_MPTCP, MPTCP_INFO, info, &mut length)
        };
        let errno = io::Error::last_os_error().raw_os_error();
        let is_plain = status != 0 && matches!(errno, Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT));
        let flag = u32::from_ne_bytes([info[8], info[9], info[10], info[11]]) & 1 != 0;
        self.state.fallback.fetch_or(is_plain || (status == 0 && flag), Relaxed);
    }
}

/// The bytes of a connection from offset `at` on.
fn fill(id: u32, at: u64, bytes: &mut [u8]) {
    for (place, byte) in (at..).zip(bytes) {
        let word = (place / 8 + (u64::from(id) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = ((word ^ (word >> 29)) >> (place % 8 * 8)) as u8;
    }
}

/// True if `bytes`, received at offset `at`, equal bytes of an earlier offset.
fn is_repeated(id: u32, at: u64, bytes: &[u8]) -> bool {
    let (Some(bytes), mut earlier) = (bytes.first_chunk::<8>(), [0; 8]) else { return false };
    (0..at).any(|place| {
        fill(id, place, &mut earlier);
        earlier == *bytes
    })
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
        Kind::HalfClosed => 3,
    };
    header
}

/// The traffic that a client requests in its header; `None` if it is not a client of this test.
pub fn decode(header: &[u8; HEADER_BYTES]) -> Option<Traffic> {
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let kind = *[Kind::Up, Kind::Down, Kind::PingPong, Kind::HalfClosed].get(usize::from(header[24]))?;
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
