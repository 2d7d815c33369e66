//! One connection's exchange: what each end writes, checks and says at last.

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
use super::programs::{Outcome, Told};

/// First bytes of a connection, so that a stranger's is known.
const MAGIC: u32 = 0x6861_7264;
/// Length of the client's first word.
pub const HEADER_BYTES: usize = 32;
/// How often a blocked call looks at the time.
const LOOK: Duration = Duration::from_millis(500);
/// What the end that checked the bytes says to the other one.
const RIGHT: [u8; 8] = *b"allright";

/// Why a connection is over before its time.
pub struct Stop(pub Outcome, pub String);

impl Stop {
    /// For an error of the system's.
    pub fn of(call: &str, cause: &io::Error) -> Stop {
        Stop(Outcome::Error, format!("{call}: {cause}"))
    }
}

/// What another thread may look at.
#[derive(Debug, Default)]
pub struct Seen {
    /// It has become plain TCP.
    pub fallback: AtomicBool,
    /// Its kernel holds later bytes up to the limit and takes no earlier ones any more.
    pub full: AtomicBool,
    /// Bytes that this end has checked.
    pub bytes: AtomicU64,
}

/// One end of a connection, and what it has seen.
pub struct Connection {
    socket: Socket,
    local: SocketAddr,
    origin_ns: u64,
    deadline_ms: u64,
    bytes: u64,
    stall_ms: u64,
    /// What is known of it while it goes on.
    pub seen: Arc<Seen>,
}

impl Connection {
    /// Takes a socket over; `deadline_ms` is when it hangs.
    pub fn new(socket: Socket, origin_ns: u64, deadline_ms: u64) -> Connection {
        socket.set_read_timeout(Some(LOOK)).unwrap();
        socket.set_write_timeout(Some(LOOK)).unwrap();
        let local = socket.local_addr().unwrap().as_socket().unwrap();
        Connection { socket, local, origin_ns, deadline_ms, bytes: 0, stall_ms: 0, seen: Arc::default() }
    }

    fn now_ms(&self) -> u64 {
        (monotonic_ns() - self.origin_ns) / 1_000_000
    }

    /// What there is to tell of it now.
    pub fn told(&mut self, id: u32, went: Result<(), Stop>) -> Told {
        self.look_at_fallback();
        let (outcome, why) = match went {
            Ok(()) => (Outcome::Done, String::new()),
            Err(Stop(outcome, why)) => (outcome, why),
        };
        let (end_ms, stall_ms, bytes) = (self.now_ms(), self.stall_ms, self.bytes);
        let (fallback, full) = (self.seen.fallback.load(Relaxed), self.seen.full.load(Relaxed));
        Told { id, local: self.local, outcome, why, end_ms, stall_ms, bytes, fallback, full }
    }

    /// The client's part. But for what closes its half, it closes only once the
    /// other end has said its last word: a connection that is closed on one side
    /// takes no further subflow (`tests/netlink.rs` measures it), so a path
    /// manager can only keep what it has.
    pub fn ask(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        self.write_all(&encode(traffic), "header")?;
        match traffic.kind {
            Kind::Up => self.send(traffic)?,
            Kind::HalfClosed => {
                self.send(traffic)?;
                self.socket.shutdown(Shutdown::Write).map_err(|cause| Stop::of("shutdown", &cause))?;
                self.hear_all_right()?;
                return self.await_end();
            }
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
    pub fn answer(&mut self, traffic: &Traffic) -> Result<(), Stop> {
        match traffic.kind {
            Kind::Up => self.take(traffic)?,
            Kind::HalfClosed => {
                self.take(traffic)?;
                self.await_end()?;
                return self.write_all(&RIGHT, "verdict");
            }
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
            if at < traffic.bytes {
                sleep(Duration::from_millis(due_ms.saturating_sub(self.now_ms())));
            }
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
        self.seen.bytes.store(self.bytes, Relaxed);
        let Some(first) = got.iter().zip(&right).position(|(got, right)| got != right) else { return Ok(true) };
        let at = self.bytes - (length - first) as u64;
        let outcome = if came_before(id, at, &got[first..]) { Outcome::Repeated } else { Outcome::Wrong };
        Err(Stop(outcome, format!("{call}: at byte {at}")))
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
                    self.again(&cause, call, begun_ms)?;
                    self.seen.full.store(self.is_full(), Relaxed);
                }
                Ok(length) => {
                    self.seen.full.store(false, Relaxed);
                    return Ok(length);
                }
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

    /// True if what the kernel holds for this socket is more than its limit. A read that waits
    /// all the same waits for bytes before these, and Linux takes nothing from any subflow while
    /// the limit is exceeded, the missing bytes neither (`docs/hardship.md`).
    fn is_full(&self) -> bool {
        const SO_MEMINFO: i32 = 55;
        let (mut info, mut length) = ([0_u32; 9], 36 as libc::socklen_t);
        // SAFETY: `info` has `length` bytes.
        let asked = unsafe {
            let info = info.as_mut_ptr().cast();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, info, &mut length)
        };
        let [held, limit, ..] = info;
        asked == 0 && held > limit
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
        self.seen.fallback.fetch_or(is_plain || (asked == 0 && flag), Relaxed);
    }
}

/// The bytes of a connection from `at` on.
fn fill(id: u32, at: u64, bytes: &mut [u8]) {
    for (place, byte) in (at..).zip(bytes) {
        let word = (place / 8 + (u64::from(id) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = ((word ^ (word >> 29)) >> (place % 8 * 8)) as u8;
    }
}

/// True if `bytes`, which came at `at`, are some that belong before.
fn came_before(id: u32, at: u64, bytes: &[u8]) -> bool {
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

/// What the client wants, from its first bytes; `None` if it is a stranger's.
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
