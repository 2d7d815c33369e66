//! A sender's side of the socket, for its poll loop.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crosslane_core::demand::Object;
use socket2::{Domain, Socket, Type};

use super::{Inbox, READ_BYTES, Reply, address, flush, write_demand};
use crate::clock::Clock;

/// A connection to an agent.
pub struct Agent {
    stream: UnixStream,
    inbox: Inbox,
    /// Rest of the last demand line, not sent yet.
    outbox: Vec<u8>,
    replies: VecDeque<Reply>,
    gone: bool,
}

impl Agent {
    /// Connects to an agent, by the name that its `service.demands` has.
    ///
    /// # Errors
    /// No agent listens there, or access is denied.
    pub fn connect(name: &str) -> io::Result<Agent> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect(&address(name)?)?;
        socket.set_nonblocking(true)?;
        let stream = UnixStream::from(OwnedFd::from(socket));
        Ok(Agent { stream, inbox: Inbox::default(), outbox: Vec::new(), replies: VecDeque::new(), gone: false })
    }

    /// Sends all open objects (the earliest deadline first; at most as many as an
    /// agent considers), with times on `clock`. Never blocks: a demand for which the
    /// socket has no room is dropped, since the next one is complete again.
    pub fn send_demand(&mut self, objects: &[Object], clock: Clock) {
        self.flush();
        if self.outbox.is_empty() && !self.gone {
            self.outbox = write_demand(objects, clock.origin_ns());
            self.flush();
        }
    }

    /// The agent's next reply; [`Reply::Gone`] once, as the last.
    pub fn poll(&mut self) -> Option<Reply> {
        self.flush();
        if self.replies.is_empty() && !self.gone {
            self.read();
        }
        self.replies.pop_front()
    }

    /// Errors are ignored: the next read shows whether the agent is gone.
    fn flush(&mut self) {
        if flush(&self.stream, &mut self.outbox).is_err() {
            self.outbox.clear();
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; READ_BYTES];
        while self.replies.is_empty() && !self.gone {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                // A line that is no known reply is from a newer agent.
                Ok(length) => {
                    let lines = self.inbox.lines(&buffer[..length]);
                    self.replies.extend(lines.iter().filter_map(|line| serde_json::from_slice(line).ok()));
                }
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
        if self.gone {
            self.replies.push_back(Reply::Gone);
        }
    }
}

impl AsFd for Agent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
