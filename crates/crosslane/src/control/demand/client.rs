//! A sender's end, for its poll loop.

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
    /// What is left of the last line told.
    outbox: Vec<u8>,
    replies: VecDeque<Reply>,
    gone: bool,
}

impl Agent {
    /// Connects to an agent, by the name that its `service.demands` has.
    ///
    /// # Errors
    /// Nobody listens there, or we may not.
    pub fn connect(name: &str) -> io::Result<Agent> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect(&address(name)?)?;
        socket.set_nonblocking(true)?;
        let stream = UnixStream::from(OwnedFd::from(socket));
        Ok(Agent { stream, inbox: Inbox::default(), outbox: Vec::new(), replies: VecDeque::new(), gone: false })
    }

    /// Tells all that is open (the earliest deadline first; the agent is told of
    /// as many as it looks at), with times on `clock`. Never waits: a demand for
    /// which the socket has no room is dropped, since the next has all of it.
    pub fn tell(&mut self, objects: &[Object], clock: Clock) {
        self.flush();
        if self.outbox.is_empty() && !self.gone {
            self.outbox = write_demand(objects, clock.origin_ns());
            self.flush();
        }
    }

    /// The next thing that the agent has said; [`Reply::Gone`] once, as the last.
    pub fn poll(&mut self) -> Option<Reply> {
        self.flush();
        if self.replies.is_empty() && !self.gone {
            self.read();
        }
        self.replies.pop_front()
    }

    /// An agent that is gone shows when it is read.
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
                // A line that is no reply is of an agent that knows more than we.
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
