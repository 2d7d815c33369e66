//! The receiver of a transfer over a connection for each path.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::super::connection::{self, POLL_INTERVAL};
use super::super::receiving::{Incomplete, MAX_UNSENT, Offer, READ_BYTES, Sink, broken, timeout};
use super::super::{TransferError, unless_stopped};
use super::cipher::MAX_PART_BYTES;
use super::digests::Digests;
pub use super::greeting::{Joined, Sender, greet};
use super::stream::Stream;
use super::{CATCH_UP_PIECES, random};
use crate::clock::Clock;
use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::Receipt;
use crosslane_core::transfer::multipath::frame::{self, DIGEST_BYTES, Outcome};
use crosslane_core::transfer::multipath::is_resumable;
use crosslane_core::transfer::multipath::receiver::{Event, Receiver};
use nix::poll::{PollFd, PollFlags};

/// A sender whose connections have all ended may connect again within this time.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read from a connection before the receiver replies and turns to the next one.
const TURN_BYTES: usize = 4 * READ_BYTES;
/// Bytes of unsent replies beyond which a connection is closed: its sender does not read. It may open another one, and gets
/// there what it has not read.
const MAX_UNREAD: usize = 1 << 20;
/// A receiver that has read a turn, and then nothing, rests for this time: to be woken by each packet of a fast path would
/// cost both ends more.
const REST: Duration = Duration::from_micros(200);

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
    let mut receiving = Receiving { links, sink, clock, engine, incoming, instance, offered: false, last, cause: None };
    receiving.join(first);
    let result = receiving.run(join, stop);
    for (number, _) in std::mem::take(&mut receiving.incoming) {
        receiving.sink.incomplete(number, Incomplete::Ended);
    }
    receiving.sink.end();
    unless_stopped(result, stop)
}

struct Receiving<'a> {
    links: BTreeMap<u8, Stream>,
    sink: &'a mut dyn Sink,
    clock: Clock,
    engine: Receiver,
    /// Objects in progress; one that was refused is none.
    incoming: BTreeMap<u32, Incoming>,
    instance: u64,
    offered: bool,
    /// When bytes were last received, or a connection ended.
    last: Instant,
    /// Why the last connection ended.
    cause: Option<io::Error>,
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
        let (start, mut since_wait) = (self.clock.now(), 0);
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
            let mut turn = 0;
            for path in paths {
                match self.exchange(path, &mut buffer) {
                    Ok(count) => turn += count,
                    Err(TransferError::Connection { cause, .. }) => {
                        self.links.remove(&path);
                        self.cause = Some(cause);
                        self.engine.disconnect(path);
                        self.last = self.clock.now();
                    }
                    Err(fault) => return Err(fault),
                }
            }
            since_wait += turn;
            if self.catch_up() || turn > 0 {
                continue;
            }
            match since_wait {
                0..TURN_BYTES => self.wait()?,
                _ => std::thread::sleep(REST),
            }
            since_wait = 0;
        }
        Ok(())
    }

    fn join(&mut self, joined: Joined) {
        self.engine.connect(joined.path);
        let Joined { mut stream, path } = joined;
        frame::welcome(&mut stream.outbox, self.instance);
        self.links.insert(path, stream);
    }

    /// Fails if the sender has been silent for too long.
    fn check_timeouts(&mut self, start: Instant) -> Result<(), TransferError> {
        let now = self.clock.now();
        if self.links.is_empty() {
            let cause = (now.since(self.last) >= RECONNECT_TIMEOUT).then(|| self.cause.take());
            let fault = cause.map(|cause| broken(cause.unwrap_or_else(|| ErrorKind::UnexpectedEof.into())));
            return fault.map_or(Ok(()), Err);
        }
        let (since, limit, remedy) = timeout(start, self.last, self.offered, self.engine.is_between_objects());
        if now.since(since) < limit {
            return Ok(());
        }
        Err(TransferError::Silent { attempt: "receiving", limit, remedy })
    }

    /// Writes replies to a connection and reads from it; the number of bytes read.
    fn exchange(&mut self, path: u8, buffer: &mut [u8]) -> Result<usize, TransferError> {
        let Some(link) = self.links.get_mut(&path) else { return Ok(0) };
        link.flush().map_err(broken)?;
        if link.unsent() > MAX_UNREAD {
            return Err(broken(io::Error::new(ErrorKind::TimedOut, "the sender does not read the replies")));
        }
        if link.unsent() > MAX_UNSENT {
            return Ok(0);
        }
        let (mut count, mut is_full) = (0, true);
        while is_full
            && count < TURN_BYTES
            && let Some(link) = self.links.get_mut(&path)
            && let Some(mut bytes) = link.read(buffer).map_err(broken)?
        {
            count += bytes.len();
            is_full = bytes.len() > READ_BYTES - MAX_PART_BYTES;
            self.last = self.clock.now();
            let fault = |cause| TransferError::Stream { attempt: "receiving", cause };
            while let Some(event) = self.engine.take(path, &mut bytes).map_err(fault)? {
                self.handle(path, event);
            }
        }
        if let (Some(pieces), Some(link)) = (self.engine.poll_received(path), self.links.get_mut(&path)) {
            frame::received(&mut link.outbox, pieces);
        }
        // A connection that breaks now is noticed by the next read.
        self.links.values_mut().for_each(|link| drop(link.flush()));
        Ok(count)
    }

    fn handle(&mut self, path: u8, event: Event) {
        let now = self.last;
        match event {
            Event::Offer { number, size_bytes, modified_ns, name, part, .. } => {
                self.offered = true;
                let mut incoming = Incoming { size_bytes, digests: Digests::default(), last: now };
                let begun = self.sink.begin(&Offer { number, name, size_bytes, modified_ns, part });
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
                if let Some(link) = self.links.get_mut(&path).filter(|link| link.unsent() <= MAX_UNREAD) {
                    frame::receipt(&mut link.outbox, &receipt);
                }
            }
        }
    }

    /// Says over a connection which pieces of an object are there.
    fn answer(&mut self, path: u8, number: u32) {
        let link = self.links.get_mut(&path).filter(|link| link.unsent() <= MAX_UNREAD);
        if let (Some(link), Some(pieces)) = (link, self.engine.arrived(number)) {
            frame::have(&mut link.outbox, number, pieces);
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
        self.links.values_mut().for_each(|link| frame::receipt(&mut link.outbox, &receipt));
        self.engine.close(receipt);
    }

    fn wait(&self) -> Result<(), TransferError> {
        let flags = |link: &Stream| match link.unsent() {
            0 => PollFlags::POLLIN,
            1..=MAX_UNSENT => PollFlags::POLLIN | PollFlags::POLLOUT,
            _ => PollFlags::POLLOUT,
        };
        let events = self.links.values().map(|link| PollFd::new(link.socket.as_fd(), flags(link)));
        let mut events: Vec<PollFd<'_>> = events.collect();
        connection::wait(&mut events, POLL_INTERVAL).map(drop).map_err(broken)
    }
}
