//! The sender of a transfer over one MPTCP connection.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::{self, Outcome, Receipts};
use crosslane_core::transfer::multipath::POLL_INTERVAL;
use crosslane_core::transfer::sender::{Sender, Write};
use crosslane_core::transfer::{Abandoned, Late};
use nix::poll::{PollFd, PollFlags};
use sha2::{Digest, Sha256};
use socket2::Socket;

use super::source::{News, Object, Source, nap};
use super::{PREFACE_TIMEOUT, TransferError, connection, outstanding_bytes, printable, unless_stopped};
use crate::clock::Clock;
use crate::control::client::Agent;
use crate::control::protocol::Reply;

/// Longest wait for the agent's first limit of unacknowledged bytes, which it
/// sends within about a millisecond of the first demand.
const LIMIT_TIMEOUT: Duration = Duration::from_millis(50);
/// Longest wait for a receipt that no longer matters.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) const SEND_AGAIN: &str = "check that the receiver runs and a path to it is up, and send again";
pub(super) const NO_RECEIVER: &str = "check that `crosslane receive` listens there and has room for another sender";

/// Sends the source's objects until there are no more and the receiver has
/// confirmed each, or `stop` is set. Objects with a deadline are reported to
/// the agent before they are written. No receipt is required for an abandoned
/// object, or after its deadline with [`Late::GiveUp`].
///
/// # Errors
/// The connection broke, or the peer is not a receiver or closed the
/// connection before it had sent all receipts.
pub fn send(
    socket: &Socket,
    agent: Option<Agent>,
    source: &mut dyn Source,
    late: Late,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<(), TransferError> {
    let preparing = |cause| TransferError::Connection { attempt: "sending".into(), cause, remedy: SEND_AGAIN };
    connection::prepare(socket).map_err(preparing)?;
    let sending = Sending {
        socket,
        agent,
        source,
        clock,
        engine: Sender::new(late),
        outgoing: BTreeMap::new(),
        awaited: BTreeMap::new(),
        late,
        buffer: frame::PREFACE.to_vec(),
        taken: 0,
        ending: None,
        receipts: Receipts::default(),
        next_report: Instant::ZERO,
        start: clock.now(),
        first_demand: None,
        has_limit: false,
    };
    unless_stopped(sending.run(stop), stop)
}

struct Sending<'a> {
    socket: &'a Socket,
    agent: Option<Agent>,
    source: &'a mut dyn Source,
    clock: Clock,
    engine: Sender,
    outgoing: BTreeMap<u32, Outgoing>,
    /// Offered objects without a receipt, and how long to wait for it; `None`: as
    /// long as the connection is open.
    awaited: BTreeMap<u32, Option<Instant>>,
    late: Late,
    /// The engine's last output, and how many bytes of it are written.
    buffer: Vec<u8>,
    taken: usize,
    /// The object whose last bytes are in `buffer`.
    ending: Option<u32>,
    receipts: Receipts,
    next_report: Instant,
    start: Instant,
    /// When the first demand was sent to the agent.
    first_demand: Option<Instant>,
    /// The agent has sent its limit of unacknowledged bytes.
    has_limit: bool,
}

/// An object that is not completely written.
struct Outgoing {
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
            self.abandon_late(now);
            self.report(now);
            self.read_replies();
            let open = self.read(now)?;
            let blocked = self.write(now)?;
            if self.is_over(now) {
                break;
            }
            if !open {
                return Err(self.broken(ErrorKind::UnexpectedEof.into()));
            }
            if !self.receipts.is_greeted() && now >= self.start + PREFACE_TIMEOUT {
                return Err(TransferError::Silent { attempt: "sending", limit: PREFACE_TIMEOUT, remedy: NO_RECEIVER });
            }
            self.wait(blocked)?;
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        Ok(())
    }

    fn is_over(&self, now: Instant) -> bool {
        let no_more = self.source.next_due().is_none() && self.outgoing.is_empty();
        let confirmed = self.awaited.is_empty() && self.engine.is_idle() && self.taken == self.buffer.len();
        let expired = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        no_more && (confirmed || !self.awaited.is_empty() && self.awaited.values().all(expired))
    }

    fn broken(&self, cause: io::Error) -> TransferError {
        let remedy = if self.receipts.is_greeted() { SEND_AGAIN } else { NO_RECEIVER };
        TransferError::Connection { attempt: "sending".into(), cause, remedy }
    }

    /// Takes objects that have been generated.
    fn begin(&mut self, now: Instant) {
        while !self.engine.is_full()
            && let Some(object) = self.source.take_due(now)
        {
            let size = object.content.size_bytes();
            let Some(number) = self.engine.submit(&object.name, size, object.start, object.deadline) else { return };
            self.outgoing.insert(number, Outgoing { object, digest: Sha256::new() });
            self.source.on_news(now, News::Numbered(number));
        }
    }

    fn abandon_late(&mut self, now: Instant) {
        while let Some(number) = self.engine.poll_late(now) {
            if self.outgoing.remove(&number).is_some() {
                self.abandoned(now, number, Abandoned::Late);
            }
        }
    }

    fn abandoned(&mut self, now: Instant, number: u32, why: Abandoned) {
        if let Some(until) = self.awaited.get_mut(&number) {
            *until = Some(now + RECEIPT_TIMEOUT);
        }
        self.source.on_news(now, News::Abandoned(number, why));
    }

    fn read_replies(&mut self) {
        while let Some(reply) = self.agent.as_mut().and_then(Agent::poll) {
            match reply {
                Reply::BacklogBytes(bytes) => {
                    self.engine.set_backlog(bytes);
                    self.has_limit = true;
                }
                Reply::Gone => {
                    self.agent = None;
                    self.engine.set_backlog(None);
                }
                _ => {}
            }
        }
    }

    /// Writes as much as the engine allows; true if the socket accepts no more.
    fn write(&mut self, now: Instant) -> Result<bool, TransferError> {
        loop {
            while self.taken < self.buffer.len() {
                match connection::write_some(self.socket, &self.buffer[self.taken..]) {
                    Ok(0) => return Ok(true),
                    Ok(count) => self.taken += count,
                    Err(error) => {
                        // A receipt that the peer sent before it closed explains more.
                        self.read(now)?;
                        return Err(self.broken(error));
                    }
                }
            }
            self.buffer.clear();
            self.taken = 0;
            if let Some(number) = self.ending.take() {
                self.source.on_news(now, News::Written(number));
            }
            if self.waits_for_agent(now) {
                return Ok(false);
            }
            let Some((write, _)) = self.engine.poll() else { return Ok(false) };
            self.encode(now, write);
        }
    }

    fn waits_for_agent(&self, now: Instant) -> bool {
        self.agent.is_some() && !self.has_limit && self.first_demand.is_some_and(|sent| now < sent + LIMIT_TIMEOUT)
    }

    fn encode(&mut self, now: Instant, write: Write) {
        match write {
            Write::Abandon { number, why } => frame::abandon(&mut self.buffer, number, why),
            Write::Chunk { number, offset, length, last } => {
                if let Err(why) = self.encode_data(number, offset, length, last) {
                    self.buffer.clear();
                    self.engine.take_back(why);
                    self.outgoing.remove(&number);
                    self.abandoned(now, number, why);
                    return;
                }
                if offset == 0 {
                    self.awaited.insert(number, None);
                }
                if last && let Some(Outgoing { object, .. }) = self.outgoing.remove(&number) {
                    let until = object.deadline.filter(|_| self.late == Late::GiveUp);
                    self.awaited.insert(number, until.map(|deadline| deadline.max(now) + RECEIPT_TIMEOUT));
                    self.ending = Some(number);
                }
            }
        }
    }

    fn encode_data(&mut self, number: u32, offset: u64, length: u32, last: bool) -> Result<(), Abandoned> {
        let Some(Outgoing { object, digest }) = self.outgoing.get_mut(&number) else {
            return Err(Abandoned::Unreadable);
        };
        if offset == 0 {
            let size_bytes = object.content.size_bytes();
            frame::offer(&mut self.buffer, number, size_bytes, object.deadline_ms(), &object.name);
        }
        frame::data(&mut self.buffer, number, length);
        let head = self.buffer.len();
        self.buffer.resize(head + length as usize, 0);
        object.content.read(offset, &mut self.buffer[head..])?;
        digest.update(&self.buffer[head..]);
        if last {
            let digest = std::mem::take(digest).finalize();
            frame::end(&mut self.buffer, number, &digest.into());
        }
        Ok(())
    }

    /// Reads receipts; false once the receiver has ended the stream.
    fn read(&mut self, now: Instant) -> Result<bool, TransferError> {
        let mut buffer = [0; 4096];
        loop {
            let mut bytes = match connection::read_some(self.socket, &mut buffer) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(self.broken(error)),
            };
            let fault = |cause| TransferError::Stream { attempt: "reading receipts", cause };
            while let Some(receipt) = self.receipts.take(&mut bytes).map_err(fault)? {
                if receipt.number == frame::CONNECTION && receipt.outcome == Outcome::Refused {
                    return Err(TransferError::Rejected { text: printable(&receipt.text) });
                }
                self.awaited.remove(&receipt.number);
                if receipt.outcome == Outcome::Refused && self.engine.abandon(receipt.number, Abandoned::Refused) {
                    self.outgoing.remove(&receipt.number);
                }
                self.source.on_news(now, News::Receipt(receipt));
            }
        }
    }

    /// Sends the demand to the agent, after a change at once, else periodically
    /// with the acknowledged bytes.
    fn report(&mut self, now: Instant) {
        let changed = self.engine.take_changed();
        if !changed && now < self.next_report {
            return;
        }
        self.next_report = now + 2 * POLL_INTERVAL;
        for (number, bytes) in self.engine.progress() {
            self.source.on_news(now, News::Acknowledged(number, bytes));
        }
        let Some(agent) = &mut self.agent else { return };
        let demand = self.engine.demand();
        if changed || !demand.is_empty() {
            agent.send_demand(&demand, self.clock);
        }
        if !demand.is_empty() {
            self.first_demand.get_or_insert(now);
        }
    }

    fn wait(&self, blocked: bool) -> Result<(), TransferError> {
        let events = if blocked { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut waited_for = vec![PollFd::new(self.socket.as_fd(), events)];
        waited_for.extend(self.agent.as_ref().map(|agent| PollFd::new(agent.as_fd(), PollFlags::POLLIN)));
        let nap = nap(self.source, self.clock.now(), self.engine.is_idle());
        connection::wait(&mut waited_for, nap).map(drop).map_err(|cause| self.broken(cause))
    }
}
