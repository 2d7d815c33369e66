//! The sending end.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::{self, Outcome, Receipt, Receipts};
use crosslane_core::transfer::sender::{Sender, Write};
use crosslane_core::transfer::{Abandoned, Late};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sha2::{Digest, Sha256};
use socket2::Socket;

use super::{GREET_WITHIN, TransferError, outstanding_bytes, turned_away};
use crate::clock::Clock;
use crate::control::demand::Reply;
use crate::control::demand::client::Agent;

/// How often acknowledgements are asked for and told.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait before the order to stop is looked at again.
const NAP: Duration = Duration::from_millis(50);
/// Longest wait for the agent's first word on how much may be under way. It
/// speaks to those who have told it an object, within a millisecond or so.
const HEED: Duration = Duration::from_millis(50);
/// Longest wait for a receipt that changes nothing any more.
const LINGER: Duration = Duration::from_secs(3);

const SEND_AGAIN: &str = "look whether the receiver runs and a path to it is up, and send again";
const NO_RECEIVER: &str = "look whether it is `crosslane receive` that listens there, and has room for one more sender";

/// An object to be sent.
pub struct Object {
    /// Its name at the receiver.
    pub name: String,
    /// When it came up.
    pub start: Instant,
    /// When it is to be there.
    pub deadline: Option<Instant>,
    /// Its bytes.
    pub content: Box<dyn Content>,
}

/// The bytes of an object.
pub trait Content {
    /// How many.
    fn size_bytes(&self) -> u64;

    /// Fills `buffer` with those that follow what was read before.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Abandoned>;
}

/// Where objects come from, and who hears of them.
pub trait Source {
    /// When the next object comes up; `None`: there is none any more.
    fn next_due(&self) -> Option<Instant>;

    /// The next object.
    fn take(&mut self) -> Option<Object>;

    /// What became of an object, or of the agent.
    fn hear(&mut self, now: Instant, news: News);
}

/// What a source is told.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The object taken last has this number.
    Numbered(u32),
    /// So many bytes of an open object are acknowledged by the peer's kernel; told
    /// of as many as a demand has.
    Acknowledged(u32, u64),
    /// Its last byte has been written to the connection.
    Written(u32),
    /// No more of it is sent.
    Abandoned(u32, Abandoned),
    /// What the receiver says of it.
    Receipt(Receipt),
    /// What the agent says.
    Agent(Reply),
}

/// Sends what the source gives until there is no more and the receiver has
/// said of each object how it went, or `stop` is set. Objects with a deadline
/// are told to the agent before they are written. Of one that is given up, or
/// whose deadline is past with [`Late::GiveUp`], the receiver may say nothing.
///
/// # Errors
/// The connection broke, or the peer is no receiver or has left before it had
/// said of each object how it went.
pub fn send(
    socket: &Socket,
    agent: Option<Agent>,
    source: &mut dyn Source,
    late: Late,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<(), TransferError> {
    let prepare = || {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)
    };
    let preparing = |cause| TransferError::Connection { attempt: "sending".into(), cause, remedy: SEND_AGAIN };
    prepare().map_err(preparing)?;
    let sending = Sending {
        socket,
        agent,
        source,
        clock,
        engine: Sender::new(late),
        going: BTreeMap::new(),
        awaited: BTreeMap::new(),
        late,
        buffer: frame::PREFACE.to_vec(),
        taken: 0,
        ending: None,
        receipts: Receipts::default(),
        tell_at: Instant::ZERO,
        begun: clock.now(),
        told: None,
        heeded: false,
    };
    // What breaks as everything is told to stop is no fault.
    sending.run(stop).or_else(|fault| if stop.load(Ordering::Relaxed) { Ok(()) } else { Err(fault) })
}

struct Sending<'a> {
    socket: &'a Socket,
    agent: Option<Agent>,
    source: &'a mut dyn Source,
    clock: Clock,
    engine: Sender,
    going: BTreeMap<u32, Going>,
    /// Objects offered of which the receiver has not said how they went, and how
    /// long that is waited for; `None`: as long as the connection lives.
    awaited: BTreeMap<u32, Option<Instant>>,
    late: Late,
    /// What the engine gave out last, and how much of it the socket has taken.
    buffer: Vec<u8>,
    taken: usize,
    /// The object whose last piece that is.
    ending: Option<u32>,
    receipts: Receipts,
    tell_at: Instant,
    begun: Instant,
    /// When the agent was first told something.
    told: Option<Instant>,
    /// It has said how much may be under way.
    heeded: bool,
}

/// An object of which not all is written.
struct Going {
    object: Object,
    digest: Sha256,
}

impl Sending<'_> {
    fn run(mut self, stop: &AtomicBool) -> Result<(), TransferError> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            let rest = (self.buffer.len() - self.taken) as u64;
            let outstanding = outstanding_bytes(self.socket).map_err(|cause| self.broken(cause))?;
            self.engine.set_outstanding(outstanding + rest);
            self.begin(now);
            self.give_up(now);
            self.tell(now);
            self.hear_agent(now);
            let open = self.read(now)?;
            let blocked = self.write(now)?;
            if self.is_over(now) {
                break;
            }
            if !open {
                return Err(self.broken(ErrorKind::UnexpectedEof.into()));
            }
            if !self.receipts.is_greeted() && now >= self.begun + GREET_WITHIN {
                return Err(TransferError::Silent { attempt: "sending", limit: GREET_WITHIN, remedy: NO_RECEIVER });
            }
            self.wait(blocked)?;
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        Ok(())
    }

    fn is_over(&self, now: Instant) -> bool {
        let no_more = self.source.next_due().is_none() && self.going.is_empty();
        let told = self.awaited.is_empty() && self.engine.is_idle() && self.taken == self.buffer.len();
        let enough = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        no_more && (told || !self.awaited.is_empty() && self.awaited.values().all(enough))
    }

    fn broken(&self, cause: io::Error) -> TransferError {
        let remedy = if self.receipts.is_greeted() { SEND_AGAIN } else { NO_RECEIVER };
        TransferError::Connection { attempt: "sending".into(), cause, remedy }
    }

    /// Takes objects that have come up.
    fn begin(&mut self, now: Instant) {
        while !self.engine.is_full() && self.source.next_due().is_some_and(|due| due <= now) {
            let Some(object) = self.source.take() else { return };
            let size = object.content.size_bytes();
            let Some(number) = self.engine.submit(&object.name, size, object.start, object.deadline) else { return };
            self.going.insert(number, Going { object, digest: Sha256::new() });
            self.source.hear(now, News::Numbered(number));
        }
    }

    fn give_up(&mut self, now: Instant) {
        while let Some(number) = self.engine.poll_late(now) {
            if self.going.remove(&number).is_some() {
                self.abandoned(now, number, Abandoned::Late);
            }
        }
    }

    fn abandoned(&mut self, now: Instant, number: u32, why: Abandoned) {
        if let Some(until) = self.awaited.get_mut(&number) {
            *until = Some(now + LINGER);
        }
        self.source.hear(now, News::Abandoned(number, why));
    }

    fn hear_agent(&mut self, now: Instant) {
        while let Some(reply) = self.agent.as_mut().and_then(Agent::poll) {
            match &reply {
                Reply::BacklogBytes(bytes) => {
                    self.engine.set_backlog(*bytes);
                    self.heeded = true;
                }
                Reply::Gone => {
                    self.agent = None;
                    self.engine.set_backlog(None);
                }
                _ => {}
            }
            self.source.hear(now, News::Agent(reply));
        }
    }

    /// Writes what may be written; true if the socket takes no more.
    fn write(&mut self, now: Instant) -> Result<bool, TransferError> {
        loop {
            while self.taken < self.buffer.len() {
                match (&*self.socket).write(&self.buffer[self.taken..]) {
                    Ok(count) => self.taken += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        // What a stranger said before he hung up tells more.
                        self.read(now)?;
                        return Err(self.broken(error));
                    }
                }
            }
            self.buffer.clear();
            self.taken = 0;
            if let Some(number) = self.ending.take() {
                self.source.hear(now, News::Written(number));
            }
            if self.waits_for_agent(now) {
                return Ok(false);
            }
            let Some((write, _)) = self.engine.poll() else { return Ok(false) };
            self.encode(now, write);
        }
    }

    fn waits_for_agent(&self, now: Instant) -> bool {
        self.agent.is_some() && !self.heeded && self.told.is_some_and(|told| now < told + HEED)
    }

    fn encode(&mut self, now: Instant, write: Write) {
        match write {
            Write::Abandon { number, why } => frame::abandon(&mut self.buffer, number, why),
            Write::Chunk { number, offset, length, last } => {
                if let Err(why) = self.encode_piece(number, offset, length, last) {
                    self.buffer.clear();
                    self.engine.take_back(why);
                    self.going.remove(&number);
                    self.abandoned(now, number, why);
                    return;
                }
                if offset == 0 {
                    self.awaited.insert(number, None);
                }
                if last && let Some(Going { object, .. }) = self.going.remove(&number) {
                    let until = object.deadline.filter(|_| self.late == Late::GiveUp);
                    self.awaited.insert(number, until.map(|deadline| deadline.max(now) + LINGER));
                    self.ending = Some(number);
                }
            }
        }
    }

    fn encode_piece(&mut self, number: u32, offset: u64, length: u32, last: bool) -> Result<(), Abandoned> {
        let Some(Going { object, digest }) = self.going.get_mut(&number) else { return Err(Abandoned::Unreadable) };
        if offset == 0 {
            let within = object.deadline.map_or(0, |deadline| deadline.since(object.start).as_millis());
            let within = u32::try_from(within).unwrap_or(u32::MAX);
            frame::offer(&mut self.buffer, number, object.content.size_bytes(), within, &object.name);
        }
        frame::data(&mut self.buffer, number, length);
        let head = self.buffer.len();
        self.buffer.resize(head + length as usize, 0);
        object.content.read(&mut self.buffer[head..])?;
        digest.update(&self.buffer[head..]);
        if last {
            let digest = std::mem::take(digest).finalize();
            frame::end(&mut self.buffer, number, &digest.into());
        }
        Ok(())
    }

    /// Reads receipts; false once the receiver says no more.
    fn read(&mut self, now: Instant) -> Result<bool, TransferError> {
        let mut buffer = [0; 4096];
        loop {
            let mut bytes = match (&*self.socket).read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => &buffer[..count],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(error)),
            };
            let attempt = "reading what the receiver says";
            let fault = |cause| TransferError::Stream { attempt, cause };
            while let Some(receipt) = self.receipts.take(&mut bytes).map_err(fault)? {
                if receipt.number == frame::CONNECTION && receipt.outcome == Outcome::Refused {
                    return Err(turned_away(&receipt.text));
                }
                self.awaited.remove(&receipt.number);
                if receipt.outcome == Outcome::Refused && self.engine.abandon(receipt.number, Abandoned::Refused) {
                    self.going.remove(&receipt.number);
                }
                self.source.hear(now, News::Receipt(receipt));
            }
        }
    }

    /// Tells the agent what is due, when that has changed and else as
    /// acknowledgements come in.
    fn tell(&mut self, now: Instant) {
        let changed = self.engine.take_changed();
        if !changed && now < self.tell_at {
            return;
        }
        self.tell_at = now + 2 * LOOK;
        for (number, bytes) in self.engine.progress() {
            self.source.hear(now, News::Acknowledged(number, bytes));
        }
        let Some(agent) = &mut self.agent else { return };
        let demand = self.engine.demand();
        if changed || !demand.is_empty() {
            agent.send_demand(&demand, self.clock);
        }
        if !demand.is_empty() {
            self.told.get_or_insert(now);
        }
    }

    fn wait(&self, blocked: bool) -> Result<(), TransferError> {
        let events = if blocked { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut waited_for = vec![PollFd::new(self.socket.as_fd(), events)];
        waited_for.extend(self.agent.as_ref().map(|agent| PollFd::new(agent.as_fd(), PollFlags::POLLIN)));
        let due = self.source.next_due().map_or(NAP, |due| due.since(self.clock.now()));
        let nap = if self.engine.is_idle() { NAP.min(due) } else { LOOK.min(due) };
        let nap = nap.max(Duration::from_millis(1));
        match poll(&mut waited_for, PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(self.broken(errno.into())),
        }
    }
}
