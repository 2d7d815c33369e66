//! The receiver of a transfer over one MPTCP connection.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::{self, Outcome, Receipt};
use crosslane_core::transfer::multipath::frame::Part;
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::receiver::{Event, Receiver};
use nix::poll::{PollFd, PollFlags};
use sha2::{Digest, Sha256};
use socket2::Socket;

use super::connection::{self, POLL_INTERVAL};
use super::{TransferError, unless_stopped};
use crate::clock::Clock;

/// Timeout for the sender's preface.
pub const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the first offer.
pub const OFFER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout without data of an object that has begun: longer than most
/// vehicles are without any network.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout without a further object (`send --every`).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Bytes read at a time.
pub(super) const READ_BYTES: usize = 256 * 1024;
/// Bytes of unsent replies beyond which nothing more is read from a connection.
pub(super) const MAX_UNSENT: usize = 64 * 1024;

/// An object that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its number in this transfer.
    pub number: u32,
    /// Its name, valid as a file name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// When its content was last modified, in ns since 1970; 0: not known. Of a part, when the file was created.
    pub modified_ns: u64,
    /// Its place in a file that grows; `None`: it is a whole file.
    pub part: Option<Part>,
}

/// Destination of objects. If a function returns an error, its text is sent to
/// the sender and the rest of the object is dropped.
pub trait Sink {
    /// An object begins. Returns which of its [pieces](crosslane_core::transfer::multipath) are there.
    ///
    /// # Errors
    /// Why it cannot be accepted.
    fn begin(&mut self, offer: &Offer) -> Result<Ranges, String>;

    /// Reads bytes of an object that were there when it began.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read(&mut self, _number: u32, _offset: u64, _buffer: &mut [u8]) -> Result<(), String> {
        Err("nothing of it was there; send it again".into())
    }

    /// Whether the transfer is to end here, since a later one sends an object of it.
    fn is_superseded(&self) -> bool {
        false
    }

    /// Bytes of an object, from this offset on; each once, in any order.
    ///
    /// # Errors
    /// Why it cannot be stored.
    fn put(&mut self, number: u32, offset: u64, bytes: &[u8]) -> Result<(), String>;

    /// An object is complete and its digest right; its last byte arrived at `last`.
    ///
    /// # Errors
    /// Why it cannot be stored.
    fn complete(&mut self, number: u32, last: Instant) -> Result<(), String>;

    /// An object stays incomplete.
    fn incomplete(&mut self, number: u32, why: Incomplete);

    /// The transfer has ended: no object follows.
    fn end(&mut self) {}
}

/// Why an object is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// The sender abandoned it.
    Abandoned(Abandoned),
    /// Its digest differs from the sender's.
    Differs,
    /// The connection ended.
    Ended,
    /// The receiver refused it.
    Refused,
}

/// Receives until the sender ends the stream, or `stop` is set.
///
/// # Errors
/// The connection broke, or the peer is not a sender; every object in progress
/// was reported as [incomplete](Sink::incomplete).
pub fn receive(socket: &Socket, sink: &mut dyn Sink, clock: Clock, stop: &AtomicBool) -> Result<(), TransferError> {
    let (engine, incoming, unsent) = (Receiver::default(), BTreeMap::new(), frame::PREFACE.to_vec());
    let mut receiving = Receiving { socket, sink, clock, engine, incoming, unsent, offered: false, last: clock.now() };
    let result = receiving.run(stop);
    for (number, _) in std::mem::take(&mut receiving.incoming) {
        receiving.sink.incomplete(number, Incomplete::Ended);
    }
    unless_stopped(result, stop)
}

/// How long a sender may be silent, since when, and the remedy: `start` is when the transfer began, `last` when bytes
/// were received last.
pub(super) fn timeout(
    start: Instant,
    last: Instant,
    is_offered: bool,
    is_between_objects: bool,
) -> (Instant, Duration, &'static str) {
    match (is_offered, is_between_objects) {
        (false, _) => (start, OFFER_TIMEOUT, "check what else connects to this port"),
        (true, true) => (last, IDLE_TIMEOUT, "the sender may connect again"),
        (true, false) => (last, STALL_TIMEOUT, "the sender may send the rest again"),
    }
}

struct Receiving<'a> {
    socket: &'a Socket,
    sink: &'a mut dyn Sink,
    clock: Clock,
    engine: Receiver,
    /// Objects in progress; one that was refused is none.
    incoming: BTreeMap<u32, Incoming>,
    /// Preface and receipts that are not yet written to the socket.
    unsent: Vec<u8>,
    offered: bool,
    /// When bytes were last received.
    last: Instant,
}

struct Incoming {
    digest: Sha256,
    /// Number of bytes read.
    bytes: u64,
    /// When its last byte so far was read.
    last: Instant,
}

impl Receiving<'_> {
    fn run(&mut self, stop: &AtomicBool) -> Result<(), TransferError> {
        connection::prepare(self.socket).map_err(broken)?;
        let mut buffer = vec![0; READ_BYTES];
        let start = self.clock.now();
        while !stop.load(Ordering::Relaxed) {
            self.flush()?;
            if self.unsent.len() > MAX_UNSENT {
                self.wait(PollFlags::POLLOUT)?;
                continue;
            }
            self.check_timeouts(start)?;
            match connection::read_some(self.socket, &mut buffer) {
                Ok(Some(bytes)) => self.take(bytes)?,
                Ok(None) => {
                    let unsent = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                    self.wait(PollFlags::POLLIN | unsent)?;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.engine.is_between_objects() => {
                    return Ok(());
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Fails if the sender has been silent for too long.
    fn check_timeouts(&self, start: Instant) -> Result<(), TransferError> {
        let (since, mut limit, remedy) = timeout(start, self.last, self.offered, self.engine.is_between_objects());
        if !self.engine.is_greeted() {
            limit = PREFACE_TIMEOUT;
        }
        if self.clock.now().since(since) < limit {
            return Ok(());
        }
        Err(TransferError::Silent { attempt: "receiving", limit, remedy })
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), TransferError> {
        let now = self.clock.now();
        self.last = now;
        let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
        while let Some(event) = self.engine.take(&mut bytes).map_err(fault)? {
            match event {
                Event::Offer { number, size_bytes, name, .. } => {
                    self.begin(now, Offer { number, name, size_bytes, modified_ns: 0, part: None });
                }
                Event::Data { number, bytes } => self.put(now, number, bytes),
                Event::End { number, digest } => self.end(number, digest),
                Event::Abandon { number, why } => self.abandon(number, why),
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Instant, offer: Offer) {
        self.offered = true;
        self.incoming.insert(offer.number, Incoming { digest: Sha256::new(), bytes: 0, last: now });
        if let Err(why) = self.sink.begin(&offer) {
            self.refuse(offer.number, why);
        }
    }

    fn put(&mut self, now: Instant, number: u32, bytes: &[u8]) {
        let Some(incoming) = self.incoming.get_mut(&number) else { return };
        incoming.digest.update(bytes);
        incoming.last = now;
        let offset = incoming.bytes;
        incoming.bytes += bytes.len() as u64;
        if let Err(why) = self.sink.put(number, offset, bytes) {
            self.refuse(number, why);
        }
    }

    fn end(&mut self, number: u32, digest: [u8; frame::DIGEST_BYTES]) {
        let Some(incoming) = self.incoming.remove(&number) else { return };
        let right = <[u8; frame::DIGEST_BYTES]>::from(incoming.digest.finalize()) == digest;
        let (outcome, text) = match right.then(|| self.sink.complete(number, incoming.last)) {
            Some(Ok(())) => (Outcome::Stored, String::new()),
            Some(Err(why)) => {
                self.sink.incomplete(number, Incomplete::Refused);
                (Outcome::Refused, why)
            }
            None => {
                self.sink.incomplete(number, Incomplete::Differs);
                (Outcome::Differs, String::new())
            }
        };
        self.send_receipt(number, outcome, incoming.last, text);
    }

    fn abandon(&mut self, number: u32, why: Abandoned) {
        let Some(incoming) = self.incoming.remove(&number) else { return };
        self.sink.incomplete(number, Incomplete::Abandoned(why));
        self.send_receipt(number, Outcome::Partial, incoming.last, String::new());
    }

    fn refuse(&mut self, number: u32, why: String) {
        let Some(incoming) = self.incoming.remove(&number) else { return };
        self.sink.incomplete(number, Incomplete::Refused);
        self.send_receipt(number, Outcome::Refused, incoming.last, why);
    }

    fn send_receipt(&mut self, number: u32, outcome: Outcome, last: Instant, text: String) {
        let waited = self.clock.now().since(last);
        frame::receipt(&mut self.unsent, &Receipt { number, outcome, waited, text });
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        while !self.unsent.is_empty() {
            match connection::write_some(self.socket, &self.unsent).map_err(broken)? {
                0 => return Ok(()),
                count => drop(self.unsent.drain(..count)),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags) -> Result<(), TransferError> {
        let socket = PollFd::new(self.socket.as_fd(), events);
        connection::wait(&mut [socket], POLL_INTERVAL).map(drop).map_err(broken)
    }
}

pub(super) fn broken(cause: io::Error) -> TransferError {
    let remedy = "complete files are stored; the sender may send the rest again";
    TransferError::Connection { attempt: "receiving".into(), cause, remedy }
}
