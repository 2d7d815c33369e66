//! What drives the two endpoints of a kind of traffic over real sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::agent::Output;
use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::record::messages::MessageLog;
use crosslane_sim::record::rows::{MessageRow, Reads};
use crosslane_sim::traffic::{BULK_BYTES, Span, TrafficKind, Write};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::Socket;

use super::frame::{self, HEADER_BYTES, SIZE_MAX_BYTES};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Maximum number of messages in a run; its record stays below 400 MB.
pub const MESSAGES_MAX: usize = 10_000_000;
/// Longest wait before `stop` is checked again.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Remedy for what the kernel should not refuse.
pub const SEE_LOG: &str = "see the kernel's log";

/// Turns an error of the system into one for the user.
pub fn system(attempt: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::failure(attempt, cause).with_remedy(remedy)
}

/// Drives kinds of traffic. Each function works in the network namespace of the
/// thread that calls it, and returns when the traffic has ended, the deadline
/// has passed or the run stops.
pub trait Driver: Send + Sync {
    /// Opens the server's socket.
    ///
    /// # Errors
    /// The plan is invalid, or the kernel refuses the socket.
    fn listen(&self, plan: &Plan, address: SocketAddr) -> Result<Socket>;

    /// Runs the server.
    ///
    /// # Errors
    /// The vehicle does not connect, or bytes differ from those sent.
    fn serve(&self, run: Run, listener: Socket) -> Result<EndpointRecord>;

    /// Runs the vehicle's client. `local` is the source address; `None`: the
    /// kernel chooses.
    ///
    /// # Errors
    /// The connection fails, or bytes differ from those sent.
    fn drive(&self, run: Run, server: SocketAddr, local: Option<IpAddr>) -> Result<EndpointRecord>;
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Arc<dyn TrafficKind>,
    pub span: Span,
    pub seed: u64,
    pub direction: Direction,
    /// When both endpoints stop.
    pub deadline: Instant,
    /// Multipath TCP, or plain TCP.
    pub mptcp: bool,
    /// Congestion control (`cubic`, `reno`, `bbr`).
    pub congestion: String,
    /// SO_SNDBUF of the sender, in bytes; 0: the kernel's default.
    pub send_buffer_bytes: usize,
}

/// What one endpoint recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointRecord {
    /// Messages that it sent, with the time of the answer if they are answered.
    pub sent: Vec<MessageRow>,
    /// Messages that waited too long at the source and were not sent.
    pub skipped: u64,
    /// When the last byte of each message first arrived, by number, up to the
    /// last that arrived.
    pub received_ns: Vec<Option<u64>>,
    pub duplicates: u64,
    /// Reads of the byte stream.
    pub reads: Reads,
    /// What it decided and predicted itself.
    pub outputs: Vec<(Instant, Output)>,
}

impl Plan {
    /// Checks that messages have a valid size and number.
    pub fn check(&self) -> Result<()> {
        let attempt = "planning the traffic";
        let size_bytes = self.kind.message_bytes().unwrap_or(BULK_BYTES);
        if !(HEADER_BYTES..=SIZE_MAX_BYTES).contains(&(size_bytes as usize)) {
            let remedy = format!("set size_bytes between {HEADER_BYTES} and {SIZE_MAX_BYTES}");
            return Err(
                Error::failure(attempt, format!("messages of {size_bytes} bytes cannot be sent")).with_remedy(remedy)
            );
        }
        let span_ns = self.span.stop.since(self.span.start).as_nanos();
        let due = span_ns.checked_div(self.kind.period_ns().into()).unwrap_or(0);
        if due > MESSAGES_MAX as u128 {
            let remedy = "send fewer or larger ones, or drive for less long";
            return Err(
                Error::failure(attempt, format!("{due} messages are more than {MESSAGES_MAX}")).with_remedy(remedy)
            );
        }
        Ok(())
    }
}

impl EndpointRecord {
    /// The last byte of a message has arrived.
    pub fn note(&mut self, number: usize, now: Instant) {
        if number >= MESSAGES_MAX {
            return;
        }
        if number >= self.received_ns.len() {
            self.received_ns.resize(number + 1, None);
        }
        match &mut self.received_ns[number] {
            first @ None => *first = Some(now.as_nanos()),
            Some(_) => self.duplicates += 1,
        }
    }
}

/// A run of the traffic at one endpoint.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub plan: &'a Plan,
    pub clock: Clock,
    pub stop: &'a AtomicBool,
}

impl Run<'_> {
    /// True when the run stops or the deadline has passed.
    pub fn has_ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.clock.now() >= self.plan.deadline
    }

    /// Writes the source's messages when they are due. `write` gets the bytes of
    /// a message; it returns false if the traffic has ended before they are
    /// written, and answered if the kind has answers.
    pub fn send(&self, mut write: impl FnMut(&[u8], &mut MessageLog) -> Result<bool>) -> Result<EndpointRecord> {
        // The default slack of 50 µs would show in every message.
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut source = self.plan.kind.source(self.plan.span, self.plan.seed);
        let mut log = MessageLog::new(true);
        let mut message = Vec::new();
        while let Some(due) = source.next_write()
            && self.sleep_until(due)
            && log.count() < MESSAGES_MAX as u64
        {
            let now = self.clock.now();
            let Some(Write::Message(bytes)) = source.poll(now) else { continue };
            let number = log.begin(now, bytes);
            message.resize(bytes as usize, 0);
            frame::fill(&mut message, number, now.as_nanos());
            if !write(&message, &mut log)? {
                break;
            }
            source.on_answer();
        }
        // After a connection that broke the others would all have waited too long.
        source.poll(self.plan.span.stop - Duration::from_nanos(1));
        let skipped = source.skipped();
        Ok(EndpointRecord { sent: log.finish().0, skipped, ..EndpointRecord::default() })
    }

    /// Waits until the socket is ready (to write: until a third of its buffer is free), which returns true, or
    /// [`POLL_INTERVAL`] has passed.
    pub fn wait(&self, socket: &impl AsFd, events: PollFlags) -> Result<bool> {
        let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(socket.as_fd(), events)], timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(errno) => Err(system("waiting for the traffic's socket", SEE_LOG)(errno.into())),
        }
    }

    /// Sleeps until this time; false if the traffic has ended before.
    fn sleep_until(&self, due: Instant) -> bool {
        while !self.has_ended() {
            let remaining = due.since(self.clock.now());
            if remaining.is_zero() {
                return true;
            }
            std::thread::sleep(remaining.min(POLL_INTERVAL));
        }
        false
    }
}
