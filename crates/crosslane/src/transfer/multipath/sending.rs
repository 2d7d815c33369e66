//! The sender of a transfer over a connection for each path.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::assess::Belief;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::multipath::frame::{self, Greeting, Reply};
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::sender::Sender;
use crosslane_core::transfer::multipath::{self, POLL_INTERVAL};
use nix::poll::PollFd;

use super::super::beliefs::Beliefs;
use super::super::sending::{NO_RECEIVER, SEND_AGAIN};
use super::super::source::{News, Object, Source, nap};
use super::super::{PREFACE_TIMEOUT, TransferError, connection, printable, unless_stopped};
use super::cipher::MAX_PART_BYTES;
use super::digests::Digests;
use super::link::Link;
pub use super::link::{How, Path};
use super::{CATCH_UP_PIECES, random};
use crate::clock::Clock;

mod refusals;
mod writing;

/// So many bytes are written at a time, if the engine gives them.
const WRITE_BYTES: usize = 128 * 1024;
/// Longest wait for the receiver to read the last bytes.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// A transfer without any connection fails after this time.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Why a connection ends before the receiver has said anything.
const NO_GREETING: &str =
    "the peer ended it at once, as a receiver of an older version does, or one with too many senders";
/// Why a connection whose receiver reports too much ends.
const MORE_THAN_SENT: &str = "the peer reports more pieces than were sent";

/// Sends the source's objects over these paths, the preferred one first, until there are no more and the
/// receiver has confirmed each, or `stop` is set. An abandoned object needs no confirmation. A connection that
/// breaks, or over which nothing arrives, is opened again.
///
/// # Errors
/// No path reaches the receiver, or none for a minute; or the peer is not a receiver.
pub fn send(
    paths: &[Path],
    how: &How<'_>,
    source: &mut dyn Source,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<(), TransferError> {
    let unit_costs: Vec<f64> = paths.iter().map(|path| path.unit_cost).collect();
    let transfer = random().map_err(connection::connection_error("drawing a random number", "mount /dev"))?;
    let mut sending = Sending {
        paths,
        beliefs: how.beliefs,
        doubts: vec![Belief::Unknown; paths.len()],
        links: paths.iter().map(|path| Link::new(path, how)).collect(),
        source,
        clock,
        transfer,
        engine: Sender::new(how.late, &unit_costs),
        outgoing: BTreeMap::new(),
        instance: None,
        next_sample: Instant::ZERO,
        start: clock.now(),
        connected: None,
        buffer: vec![0; MAX_PART_BYTES],
    };
    let result = sending.run(stop);
    for path in 0..sending.links.len() {
        let carried = sending.engine.carried(path);
        sending.source.on_news(clock.now(), News::Carried(path, carried));
    }
    unless_stopped(result, stop)
}

struct Sending<'a> {
    paths: &'a [Path],
    beliefs: Option<&'a Beliefs>,
    /// What was last passed to the plan.
    doubts: Vec<Belief>,
    links: Vec<Link<'a>>,
    source: &'a mut dyn Source,
    clock: Clock,
    transfer: [u8; 16],
    engine: Sender,
    outgoing: BTreeMap<u32, Outgoing>,
    /// The receiver's instance.
    instance: Option<u64>,
    next_sample: Instant,
    start: Instant,
    /// When the receiver's connection stood last.
    connected: Option<Instant>,
    /// For what is read.
    buffer: Vec<u8>,
}

/// An object without a receipt.
struct Outgoing {
    object: Object,
    digests: Digests,
}

impl Sending<'_> {
    fn run(&mut self, stop: &AtomicBool) -> Result<(), TransferError> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            self.begin(now);
            while let Some(number) = self.engine.poll_late(now) {
                self.abandoned(now, number, Abandoned::Late);
            }
            self.connect(now)?;
            (0..self.links.len()).try_for_each(|path| self.read(now, path))?;
            self.catch_up(now);
            self.review(now);
            for path in 0..self.links.len() {
                if let Err(cause) = self.write(now, path) {
                    // A reply that the peer sent before it closed explains more.
                    self.read(now, path)?;
                    self.down(now, path, &cause);
                }
            }
            if self.is_over() {
                break;
            }
            self.wait()?;
        }
        if !stop.load(Ordering::Relaxed) {
            self.end()?;
        }
        Ok(())
    }

    /// Ends the streams and waits until the receiver has read them: unread replies would reset a connection that is
    /// closed before.
    fn end(&mut self) -> Result<(), TransferError> {
        let until = self.clock.now() + END_TIMEOUT;
        for open in self.links.iter().filter_map(|link| link.open.as_ref()) {
            let _ = open.stream.socket.shutdown(Shutdown::Write);
        }
        let mut buffer = vec![0; MAX_PART_BYTES];
        while self.links.iter().any(|link| link.open.is_some()) && self.clock.now() < until {
            for link in &mut self.links {
                let read = link.open.as_mut().map(|open| open.stream.read(&mut buffer).map(drop));
                link.open.take_if(|_| matches!(read, Some(Err(_))));
            }
            self.wait()?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_flushed = self.links.iter().filter_map(|link| link.open.as_ref()).all(|open| open.stream.unsent() == 0);
        self.source.next_due().is_none() && self.engine.is_idle() && is_flushed
    }

    /// Takes objects that have been generated.
    fn begin(&mut self, now: Instant) {
        while !self.engine.is_full()
            && let Some(object) = self.source.take_due(now)
        {
            let (size_bytes, modified_ns) = (object.content.size_bytes(), object.content.modified_ns());
            let number = self.engine.submit(size_bytes, modified_ns, object.start, object.deadline);
            let Some(number) = number else { return };
            if object.is_droppable {
                self.engine.allow_drop(number);
            }
            self.outgoing.insert(number, Outgoing { object, digests: Digests::default() });
            self.source.on_news(now, News::Numbered(number));
        }
    }

    fn abandoned(&mut self, now: Instant, number: u32, why: Abandoned) {
        if self.outgoing.remove(&number).is_some() {
            self.source.on_news(now, News::Abandoned(number, why));
        }
    }

    /// Opens the connections that are missing.
    fn connect(&mut self, now: Instant) -> Result<(), TransferError> {
        let mut news = Vec::new();
        for (path, link) in self.links.iter_mut().enumerate() {
            let greeting = Greeting { transfer: self.transfer, path: path as u8 };
            let had_fault = link.fault.is_some();
            if link.advance(now, self.engine.is_silent(now, path), greeting) {
                self.engine.open(now, path);
            } else if let Some(fault) = link.fault.as_ref().filter(|_| !had_fault) {
                news.push(News::Down(path, fault.to_string()));
            }
        }
        if self.links.iter().any(Link::is_greeted) {
            self.connected = Some(now);
        }
        let is_refused = match self.connected {
            None => self.links.iter().all(Link::is_refused),
            Some(at) => now.since(at) >= GIVE_UP,
        };
        if !is_refused {
            news.into_iter().for_each(|news| self.source.on_news(now, news));
            return Ok(());
        }
        let fault = self.links.iter_mut().find_map(|link| link.fault.take());
        Err(fault.unwrap_or_else(|| broken(ErrorKind::NotConnected.into())))
    }

    fn down(&mut self, now: Instant, path: usize, cause: &io::Error) {
        self.engine.close(path);
        if let Some(link) = self.links.get_mut(path) {
            link.close(now);
        }
        self.source.on_news(now, News::Down(path, format!("its connection broke: {cause}")));
    }

    /// Reads the receiver's replies of a path.
    fn read(&mut self, now: Instant, path: usize) -> Result<(), TransferError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.read_into(now, path, &mut buffer);
        self.buffer = buffer;
        result
    }

    fn read_into(&mut self, now: Instant, path: usize, buffer: &mut [u8]) -> Result<(), TransferError> {
        let mut have = Vec::new();
        loop {
            let Some(open) = self.links.get_mut(path).and_then(|link| link.open.as_mut()) else { return Ok(()) };
            let is_greeted = open.instance().is_some();
            let mut bytes = match open.stream.read(buffer) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                // A receiver of this version says why.
                Err(cause) if is_end(&cause) && !is_greeted => {
                    self.refused(now, path, broken(io::Error::other(NO_GREETING)));
                    break;
                }
                Err(cause) => {
                    self.down(now, path, &cause);
                    break;
                }
            };
            let fault = |cause| TransferError::Stream { attempt: "reading receipts", cause };
            loop {
                let reply = match open.replies.take(&mut bytes).map_err(fault) {
                    Ok(Some(reply)) => reply,
                    Ok(None) => break,
                    Err(fault) if open.replies.instance().is_none() => {
                        self.refused(now, path, fault);
                        return Ok(());
                    }
                    Err(fault) => return Err(fault),
                };
                match reply {
                    Reply::Received(pieces) => {
                        if !self.engine.on_received(now, path, pieces) {
                            self.down(now, path, &io::Error::other(MORE_THAN_SENT));
                            return Ok(());
                        }
                    }
                    Reply::Have(number, pieces) => have.push((number, pieces)),
                    Reply::Receipt(receipt) if receipt.number == frame::CONNECTION => {
                        let rejected = TransferError::Rejected { text: printable(&receipt.text) };
                        return self.rejected(now, path, rejected);
                    }
                    Reply::Receipt(receipt) => {
                        self.engine.close_object(receipt.number);
                        // Each connection brings one.
                        if self.outgoing.remove(&receipt.number).is_some() {
                            self.source.on_news(now, News::Receipt(receipt));
                        }
                    }
                }
            }
            let instance = open.instance();
            if !is_greeted && instance.is_some() && self.links.get_mut(path).is_some_and(Link::confirm) {
                self.source.on_news(now, News::Up(path));
            }
            if let Some(instance) = instance.filter(|new| self.instance != Some(*new)) {
                self.on_instance(now, instance);
            }
        }
        have.into_iter().for_each(|(number, pieces)| self.on_have(now, number, pieces));
        let is_greeted = self.instance.is_some() || now < self.start + PREFACE_TIMEOUT;
        let silent = TransferError::Silent { attempt: "sending", limit: PREFACE_TIMEOUT, remedy: NO_RECEIVER };
        if is_greeted { Ok(()) } else { Err(silent) }
    }

    /// The receiver has these pieces of an object.
    fn on_have(&mut self, now: Instant, number: u32, pieces: Ranges) {
        let is_first = self.engine.on_have(number, &pieces);
        let Some(Outgoing { object, digests }) = self.outgoing.get_mut(&number).filter(|_| is_first) else { return };
        let there = multipath::bytes(object.content.size_bytes(), &pieces);
        digests.await_pieces(pieces);
        if !digests.is_waiting() {
            self.engine.on_digest(number);
        }
        if there > 0 {
            self.source.on_news(now, News::Resumed(number, there));
        }
    }

    /// A receiver that was started again is asked what it has.
    fn on_instance(&mut self, now: Instant, instance: u64) {
        if self.instance.replace(instance).is_none() {
            return;
        }
        self.engine.restart();
        self.links.iter_mut().for_each(|link| link.reopen(now));
    }

    /// Reads pieces that the receiver has, for the digest.
    fn catch_up(&mut self, now: Instant) {
        let waiting = |(number, outgoing): (&u32, &Outgoing)| outgoing.digests.is_waiting().then_some(*number);
        let Some(number) = self.outgoing.iter().find_map(waiting) else { return };
        let Some(Outgoing { object, digests }) = self.outgoing.get_mut(&number) else { return };
        let size_bytes = object.content.size_bytes();
        match digests.catch_up(CATCH_UP_PIECES, size_bytes, |offset, buffer| object.content.read(offset, buffer)) {
            Ok(()) if digests.is_waiting() => {}
            Ok(()) => self.engine.on_digest(number),
            Err(why) => self.give_up(now, number, why),
        }
    }

    fn give_up(&mut self, now: Instant, number: u32, why: Abandoned) {
        self.engine.abandon(number, why);
        self.abandoned(now, number, why);
    }

    /// Passes statistics to the plan, and its results to the source.
    fn review(&mut self, now: Instant) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + POLL_INTERVAL;
        self.doubt(now);
        for path in 0..self.links.len() {
            let statistics = self.links[path].open.as_ref().map(|open| open.statistics());
            match statistics {
                Some(Ok(transport)) => self.engine.on_transport(now, path, &transport),
                Some(Err(cause)) => self.down(now, path, &cause),
                None => {}
            }
        }
        self.engine.review(now);
        while let Some(decision) = self.engine.poll_decision() {
            self.source.on_news(now, News::Decision(decision));
        }
        while let Some(admission) = self.engine.poll_admission() {
            self.source.on_news(now, News::Admission(admission));
        }
        for (number, bytes) in self.engine.progress() {
            self.source.on_news(now, News::Acknowledged(number, bytes));
        }
    }

    /// Writes as much to a path as the engine gives it.
    fn write(&mut self, now: Instant, path: usize) -> io::Result<()> {
        let mut is_fresh = false;
        while let Some(open) = self.links.get_mut(path).and_then(|link| link.open.as_mut()) {
            if open.stream.unsent() >= WRITE_BYTES && !open.stream.flush()? {
                return Ok(());
            }
            match self.engine.poll(now, path) {
                Some(write) => self.encode(now, path, write),
                None => {
                    if !open.stream.flush()? || is_fresh || self.engine.is_idle() {
                        return Ok(());
                    }
                    let transport = open.statistics()?;
                    self.engine.on_backlog(now, path, &transport);
                    is_fresh = true;
                }
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), TransferError> {
        let mut events: Vec<PollFd<'_>> = self.links.iter().flat_map(Link::events).collect();
        let is_reading = self.outgoing.values().any(|outgoing| outgoing.digests.is_waiting());
        let nap = if is_reading { Duration::ZERO } else { nap(self.source, self.clock.now(), self.engine.is_idle()) };
        connection::wait(&mut events, nap).map(drop).map_err(broken)
    }
}

/// Whether the peer ended the connection, with or without having read all.
fn is_end(cause: &io::Error) -> bool {
    matches!(cause.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

fn broken(cause: io::Error) -> TransferError {
    TransferError::Connection { attempt: "sending".into(), cause, remedy: SEND_AGAIN }
}
