//! The receiver of a transfer over a connection for each path.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::PREFACE as FORMER_PREFACE;
use crosslane_core::transfer::frame::Receipt;
use crosslane_core::transfer::multipath::frame::{self, DIGEST_BYTES, GREETING_BYTES, Greeting, Outcome};
use crosslane_core::transfer::multipath::is_resumable;
use crosslane_core::transfer::multipath::receiver::{Event, Receiver};
use nix::poll::{PollFd, PollFlags};
use socket2::Socket;

use super::super::TransferError;
use super::super::connection::{self, POLL_INTERVAL};
use super::super::receiving::{IDLE_TIMEOUT, Incomplete, OFFER_TIMEOUT, Offer, PREFACE_TIMEOUT, STALL_TIMEOUT, Sink};
use super::digests::Digests;
use super::{CATCH_UP_PIECES, random};
use crate::clock::Clock;

/// A sender whose connections have all ended may connect again within this time.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of unsent replies beyond which nothing more is read from a connection.
const MAX_UNSENT: usize = 64 * 1024;

/// A connection of a sender, after its greeting.
pub struct Joined {
    /// The connection.
    pub socket: Socket,
    /// The sender's path.
    pub path: u8,
}

/// Reads the greeting of a sender. A sender of the former version is rejected with a reason that it shows.
///
/// # Errors
/// The connection broke, or the peer is not a sender of this version.
pub fn greet(socket: &Socket, clock: Clock, stop: &AtomicBool) -> Result<Greeting, TransferError> {
    connection::prepare(socket).map_err(broken)?;
    let (mut bytes, mut length) = ([0; GREETING_BYTES], 0);
    let until = clock.now() + PREFACE_TIMEOUT;
    while !stop.load(Ordering::Relaxed) && clock.now() < until {
        match connection::read_some(socket, &mut bytes[length..]).map_err(broken)?.map(<[u8]>::len) {
            Some(count) => length += count,
            None => {
                let mut events = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
                connection::wait(&mut events, POLL_INTERVAL).map_err(broken)?;
            }
        }
        if frame::is_former_version(&bytes[..length]) {
            let text = "it has version 2 of the transfer, the sender version 1; update Crosslane at the sender";
            connection::reject(socket, &FORMER_PREFACE, text);
        }
        let parsed = Greeting::parse(&bytes[..length]);
        let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
        if let Some(greeting) = parsed.map_err(fault)? {
            return Ok(greeting);
        }
    }
    let remedy = "check what else connects to this port";
    Err(TransferError::Silent { attempt: "receiving", limit: PREFACE_TIMEOUT, remedy })
}

/// Receives a transfer over its first connection and those that `join` it, until the sender ends them, or
/// `stop` is set.
///
/// # Errors
/// All connections broke and none followed, or the peer is not a sender; every object in progress was reported
/// as [incomplete](Sink::incomplete).
pub fn receive(
    first: Joined,
    join: &mpsc::Receiver<Joined>,
    sink: &mut dyn Sink,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<(), TransferError> {
    let instance = u64::from_be_bytes(random().map_err(broken)?);
    let (engine, incoming, last) = (Receiver::default(), BTreeMap::new(), clock.now());
    let links = BTreeMap::new();
    let mut receiving = Receiving { links, sink, clock, engine, incoming, instance, offered: false, last };
    receiving.join(first);
    // An error after `stop` was set is no fault.
    let result = receiving.run(join, stop);
    let result = result.or_else(|fault| if stop.load(Ordering::Relaxed) { Ok(()) } else { Err(fault) });
    for (number, _) in std::mem::take(&mut receiving.incoming) {
        receiving.sink.incomplete(number, Incomplete::Ended);
    }
    result
}

struct Receiving<'a> {
    links: BTreeMap<u8, Link>,
    sink: &'a mut dyn Sink,
    clock: Clock,
    engine: Receiver,
    /// Objects in progress; one that was refused is none.
    incoming: BTreeMap<u32, Incoming>,
    instance: u64,
    offered: bool,
    /// When bytes were last received, or a connection ended.
    last: Instant,
}

/// A connection.
struct Link {
    socket: Socket,
    /// Replies that are not yet written to the socket.
    unsent: Vec<u8>,
}

struct Incoming {
    size_bytes: u64,
    digests: Digests,
    /// When its last piece so far was read.
    last: Instant,
}

impl Receiving<'_> {
    fn run(&mut self, join: &mpsc::Receiver<Joined>, stop: &AtomicBool) -> Result<(), TransferError> {
        let mut buffer = vec![0; READ_BYTES];
        let start = self.clock.now();
        while !stop.load(Ordering::Relaxed) {
            join.try_iter().for_each(|joined| self.join(joined));
            if self.links.is_empty() && self.engine.is_between_objects() {
                return Ok(());
            }
            self.check_timeouts(start)?;
            if self.sink.is_superseded() {
                return Err(TransferError::Superseded);
            }
            let paths: Vec<u8> = self.links.keys().copied().collect();
            let mut idle = true;
            for path in paths {
                match self.exchange(path, &mut buffer) {
                    Ok(count) => idle &= count == 0,
                    Err(TransferError::Connection { .. }) => {
                        self.links.remove(&path);
                        self.engine.disconnect(path);
                        self.last = self.clock.now();
                    }
                    Err(fault) => return Err(fault),
                }
            }
            if !self.catch_up() && idle {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn join(&mut self, joined: Joined) {
        self.engine.connect(joined.path);
        let mut unsent = Vec::new();
        frame::welcome(&mut unsent, self.instance);
        self.links.insert(joined.path, Link { socket: joined.socket, unsent });
    }

    /// Fails if the sender has been silent for too long.
    fn check_timeouts(&self, start: Instant) -> Result<(), TransferError> {
        let (since, limit, remedy) = if self.links.is_empty() {
            (self.last, RECONNECT_TIMEOUT, "the sender may send the rest again")
        } else if !self.offered {
            (start, OFFER_TIMEOUT, "check what else connects to this port")
        } else if self.engine.is_between_objects() {
            (self.last, IDLE_TIMEOUT, "the sender may connect again")
        } else {
            (self.last, STALL_TIMEOUT, "the sender may send the rest again")
        };
        match self.clock.now().since(since) < limit {
            true => Ok(()),
            false if self.links.is_empty() => Err(broken(ErrorKind::UnexpectedEof.into())),
            false => Err(TransferError::Silent { attempt: "receiving", limit, remedy }),
        }
    }

    /// Writes replies to a connection and reads from it; the number of bytes read.
    fn exchange(&mut self, path: u8, buffer: &mut [u8]) -> Result<usize, TransferError> {
        let Some(link) = self.links.get_mut(&path) else { return Ok(0) };
        link.flush().map_err(broken)?;
        if link.unsent.len() > MAX_UNSENT {
            return Ok(0);
        }
        let Some(mut bytes) = connection::read_some(&link.socket, buffer).map_err(broken)? else { return Ok(0) };
        let count = bytes.len();
        self.last = self.clock.now();
        let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
        while let Some(event) = self.engine.take(path, &mut bytes).map_err(fault)? {
            self.handle(path, event);
        }
        if let (Some(pieces), Some(link)) = (self.engine.poll_received(path), self.links.get_mut(&path)) {
            frame::received(&mut link.unsent, pieces);
        }
        // A connection that breaks now is noticed by the next read.
        self.links.values_mut().for_each(|link| drop(link.flush()));
        Ok(count)
    }

    fn handle(&mut self, path: u8, event: Event) {
        let now = self.last;
        match event {
            Event::Offer { number, size_bytes, modified_ns, name, .. } => {
                self.offered = true;
                let mut incoming = Incoming { size_bytes, digests: Digests::default(), last: now };
                let begun = self.sink.begin(&Offer { number, name, size_bytes, modified_ns });
                if let Ok(pieces) = &begun {
                    incoming.digests.await_pieces(pieces.clone());
                    self.engine.have(number, pieces.clone());
                }
                self.incoming.insert(number, incoming);
                match begun {
                    Ok(_) if is_resumable(size_bytes, modified_ns) => self.answer(path, number),
                    Ok(_) => {}
                    Err(why) => self.refuse(number, why),
                }
            }
            Event::OfferedAgain { number } => self.answer(path, number),
            Event::Piece { number, index, offset, bytes } => {
                let Some(incoming) = self.incoming.get_mut(&number) else { return };
                incoming.last = now;
                incoming.digests.add(index, &bytes);
                if let Err(why) = self.sink.put(number, offset, &bytes) {
                    self.refuse(number, why);
                }
            }
            Event::Complete { number, digest } => self.end(number, digest),
            Event::Abandon { number, why } => {
                self.sink.incomplete(number, Incomplete::Abandoned(why));
                self.close(number, Outcome::Partial, String::new());
            }
            Event::Closed(receipt) => {
                if let Some(link) = self.links.get_mut(&path) {
                    frame::receipt(&mut link.unsent, &receipt);
                }
            }
        }
    }

    /// Says over a connection which pieces of an object are there.
    fn answer(&mut self, path: u8, number: u32) {
        if let (Some(link), Some(pieces)) = (self.links.get_mut(&path), self.engine.arrived(number)) {
            frame::have(&mut link.unsent, number, pieces);
        }
    }

    /// Reads some of the pieces that were there, for the digest; false if there are none.
    fn catch_up(&mut self) -> bool {
        let waiting = |(number, incoming): (&u32, &Incoming)| incoming.digests.is_waiting().then_some(*number);
        let Some(number) = self.incoming.iter().find_map(waiting) else { return false };
        self.read(number, CATCH_UP_PIECES);
        true
    }

    /// Reads up to this number of pieces that were there; one that cannot be read refuses the object.
    fn read(&mut self, number: u32, most: usize) -> Option<&mut Incoming> {
        let incoming = self.incoming.get_mut(&number)?;
        let read = |offset, buffer: &mut [u8]| self.sink.read(number, offset, buffer);
        match incoming.digests.catch_up(most, incoming.size_bytes, read) {
            Ok(()) => self.incoming.get_mut(&number),
            Err(why) => {
                self.refuse(number, why);
                None
            }
        }
    }

    fn end(&mut self, number: u32, digest: [u8; DIGEST_BYTES]) {
        let Some(incoming) = self.read(number, usize::MAX) else { return };
        let (is_right, last) = (incoming.digests.finish() == digest, incoming.last);
        match is_right.then(|| self.sink.complete(number, last)) {
            Some(Ok(())) => self.close(number, Outcome::Stored, String::new()),
            Some(Err(why)) => self.refuse(number, why),
            None => {
                self.sink.incomplete(number, Incomplete::Differs);
                self.close(number, Outcome::Differs, String::new());
            }
        }
    }

    fn refuse(&mut self, number: u32, why: String) {
        self.sink.incomplete(number, Incomplete::Refused);
        self.close(number, Outcome::Refused, why);
    }

    /// Sends the receipt over all connections, since any may break.
    fn close(&mut self, number: u32, outcome: Outcome, text: String) {
        let Some(incoming) = self.incoming.remove(&number) else { return };
        let waited = self.clock.now().since(incoming.last);
        let receipt = Receipt { number, outcome, waited, text };
        self.links.values_mut().for_each(|link| frame::receipt(&mut link.unsent, &receipt));
        self.engine.close(receipt);
    }

    fn wait(&self) -> Result<(), TransferError> {
        let flags = |link: &Link| match link.unsent.len() {
            0 => PollFlags::POLLIN,
            1..=MAX_UNSENT => PollFlags::POLLIN | PollFlags::POLLOUT,
            _ => PollFlags::POLLOUT,
        };
        let events = self.links.values().map(|link| PollFd::new(link.socket.as_fd(), flags(link)));
        let mut events: Vec<PollFd<'_>> = events.collect();
        connection::wait(&mut events, POLL_INTERVAL).map(drop).map_err(broken)
    }
}

impl Link {
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match connection::write_some(&self.socket, &self.unsent)? {
                0 => return Ok(()),
                count => drop(self.unsent.drain(..count)),
            }
        }
        Ok(())
    }
}

fn broken(cause: io::Error) -> TransferError {
    let remedy = "complete files are stored; the sender may send the rest again";
    TransferError::Connection { attempt: "receiving".into(), cause, remedy }
}
