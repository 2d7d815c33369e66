//! The receiving end.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::{self, Outcome, Receipt};
use crosslane_core::transfer::receiver::{Event, Receiver};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sha2::{Digest, Sha256};
use socket2::Socket;

use super::TransferError;
use crate::clock::Clock;

/// Longest wait before the order to stop is looked at again.
const NAP: Duration = Duration::from_millis(50);
/// How long a sender may take to say what it is.
pub const GREETED_WITHIN: Duration = Duration::from_secs(10);
/// And until the first object is offered.
pub const OFFERED_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing may come of an object that has begun: longer than most
/// vehicles are without any network.
pub const STALLED_AFTER: Duration = Duration::from_secs(600);
/// How long no object may come up (`send --every`).
pub const IDLE_AFTER: Duration = Duration::from_secs(3600);
/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of receipts that the sender has not read, beyond which nothing more is
/// taken from it.
const MAX_UNSENT: usize = 64 * 1024;

/// An object that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its number in this transfer.
    pub number: u32,
    /// Its name, fit for a file of a folder.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
}

/// Where objects go. What a function refuses, with its sentence, is told to the
/// sender, and no more of the object is handed on.
pub trait Sink {
    /// An object begins.
    ///
    /// # Errors
    /// Why it cannot be taken.
    fn begin(&mut self, offer: &Offer) -> Result<(), String>;

    /// More of it.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn put(&mut self, number: u32, bytes: &[u8]) -> Result<(), String>;

    /// It is complete and its digest right; its last byte came at `last`.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn complete(&mut self, number: u32, last: Instant) -> Result<(), String>;

    /// It stays in part.
    fn leave(&mut self, number: u32, why: Left);
}

/// Why an object stays in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The sender abandoned it.
    Abandoned(Abandoned),
    /// Its digest differs from the sender's.
    Differs,
    /// The connection ended.
    Ended,
    /// It was refused here.
    Refused,
}

/// Receives until the sender has no more to say, or `stop` is set.
///
/// # Errors
/// The connection broke, or the peer is no sender; every object that was coming
/// has been [left](Sink::leave).
pub fn receive(socket: &Socket, sink: &mut dyn Sink, clock: Clock, stop: &AtomicBool) -> Result<(), TransferError> {
    let (engine, coming, unsent) = (Receiver::default(), BTreeMap::new(), frame::PREFACE.to_vec());
    let mut receiving = Receiving { socket, sink, clock, engine, coming, unsent, offered: false, last: clock.now() };
    // What breaks as everything is told to stop is no fault.
    let came = receiving.run(stop).or_else(|fault| if stop.load(Ordering::Relaxed) { Ok(()) } else { Err(fault) });
    for (number, _) in std::mem::take(&mut receiving.coming) {
        receiving.sink.leave(number, Left::Ended);
    }
    came
}

struct Receiving<'a> {
    socket: &'a Socket,
    sink: &'a mut dyn Sink,
    clock: Clock,
    engine: Receiver,
    coming: BTreeMap<u32, Coming>,
    /// Greeting and receipts that the socket has not taken.
    unsent: Vec<u8>,
    /// An object was offered.
    offered: bool,
    /// When bytes came last.
    last: Instant,
}

struct Coming {
    digest: Sha256,
    /// When its last byte so far was read.
    last: Instant,
    refused: bool,
}

impl Receiving<'_> {
    fn run(&mut self, stop: &AtomicBool) -> Result<(), TransferError> {
        let prepare = || {
            self.socket.set_nonblocking(true)?;
            self.socket.set_tcp_nodelay(true)
        };
        prepare().map_err(broken)?;
        let mut buffer = vec![0; READ_BYTES];
        let begun = self.clock.now();
        while !stop.load(Ordering::Relaxed) {
            self.flush()?;
            if self.unsent.len() > MAX_UNSENT {
                self.wait(PollFlags::POLLOUT)?;
                continue;
            }
            self.check_patience(begun)?;
            match (&*self.socket).read(&mut buffer) {
                Ok(0) if self.engine.is_between_objects() => return Ok(()),
                Ok(0) => return Err(broken(ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.take(&buffer[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let unsent = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                    self.wait(PollFlags::POLLIN | unsent)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// A sender that says nothing does not hold its place for ever.
    fn check_patience(&self, begun: Instant) -> Result<(), TransferError> {
        let (since, limit, remedy) = if !self.engine.is_greeted() {
            (begun, GREETED_WITHIN, "look who else connects to this port")
        } else if !self.offered {
            (begun, OFFERED_WITHIN, "look who else connects to this port")
        } else if self.engine.is_between_objects() {
            (self.last, IDLE_AFTER, "the sender may connect again")
        } else {
            (self.last, STALLED_AFTER, "the sender may send the rest again")
        };
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
                Event::Offer { number, size_bytes, name, .. } => self.begin(now, Offer { number, name, size_bytes }),
                Event::Data { number, bytes } => self.put(now, number, bytes),
                Event::End { number, digest } => self.end(number, digest),
                Event::Abandon { number, why } => self.abandon(number, why),
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Instant, offer: Offer) {
        self.offered = true;
        self.coming.insert(offer.number, Coming { digest: Sha256::new(), last: now, refused: false });
        if let Err(why) = self.sink.begin(&offer) {
            self.refuse(offer.number, why);
        }
    }

    fn put(&mut self, now: Instant, number: u32, bytes: &[u8]) {
        let Some(coming) = self.coming.get_mut(&number).filter(|coming| !coming.refused) else { return };
        coming.digest.update(bytes);
        coming.last = now;
        if let Err(why) = self.sink.put(number, bytes) {
            self.refuse(number, why);
        }
    }

    fn end(&mut self, number: u32, digest: [u8; frame::DIGEST_BYTES]) {
        let Some(coming) = self.coming.remove(&number).filter(|coming| !coming.refused) else { return };
        let right = <[u8; frame::DIGEST_BYTES]>::from(coming.digest.finalize()) == digest;
        let (outcome, text) = match right.then(|| self.sink.complete(number, coming.last)) {
            Some(Ok(())) => (Outcome::Stored, String::new()),
            Some(Err(why)) => {
                self.sink.leave(number, Left::Refused);
                (Outcome::Refused, why)
            }
            None => {
                self.sink.leave(number, Left::Differs);
                (Outcome::Differs, String::new())
            }
        };
        self.tell(number, outcome, coming.last, text);
    }

    fn abandon(&mut self, number: u32, why: Abandoned) {
        let Some(coming) = self.coming.remove(&number).filter(|coming| !coming.refused) else { return };
        self.sink.leave(number, Left::Abandoned(why));
        self.tell(number, Outcome::Partial, coming.last, String::new());
    }

    fn refuse(&mut self, number: u32, why: String) {
        let Some(coming) = self.coming.get_mut(&number) else { return };
        coming.refused = true;
        let last = coming.last;
        self.sink.leave(number, Left::Refused);
        self.tell(number, Outcome::Refused, last, why);
    }

    fn tell(&mut self, number: u32, outcome: Outcome, last: Instant, text: String) {
        let waited = self.clock.now().since(last);
        frame::receipt(&mut self.unsent, &Receipt { number, outcome, waited, text });
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        while !self.unsent.is_empty() {
            match (&*self.socket).write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags) -> Result<(), TransferError> {
        let timeout = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(self.socket.as_fd(), events)], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(broken(errno.into())),
        }
    }
}

fn broken(cause: io::Error) -> TransferError {
    let remedy = "what is complete is stored; the sender may send the rest again";
    TransferError::Connection { attempt: "receiving".into(), cause, remedy }
}
