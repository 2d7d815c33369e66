//! One endpoint of an established connection.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::AtomicBool;

use nix::poll::PollFlags;
use socket2::Socket;

use super::frame::{self, Checker};
use super::{
    BACKLOG_NS, Clock, ConnectionRecord, MESSAGES_MAX, Plan, TrafficError, has_ended, sleep_until, system, wait,
};

/// One endpoint of the connection.
pub(super) struct Endpoint<'a> {
    pub(super) socket: Socket,
    pub(super) plan: &'a Plan,
    pub(super) clock: Clock<'a>,
    pub(super) stop: &'a AtomicBool,
}

impl Endpoint<'_> {
    /// Sends or receives until the traffic has ended.
    pub(super) fn run(self, sends: bool) -> Result<ConnectionRecord, TrafficError> {
        self.prepare()?;
        if sends { self.send() } else { self.receive() }
    }

    /// Sends messages and waits for the echo of each.
    pub(super) fn send_and_await(self) -> Result<ConnectionRecord, TrafficError> {
        self.prepare()?;
        let plan = self.plan;
        let mut record = ConnectionRecord::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut echo = vec![0; plan.size_bytes as usize];
        let mut checker = Checker::default();
        let mut due_ns = plan.start_ns;
        while sleep_until(self.plan, self.clock, self.stop, due_ns) {
            let now_ns = (self.clock)();
            if now_ns >= plan.stop_ns || record.sent_ns.len() >= MESSAGES_MAX {
                break;
            }
            frame::fill(&mut message, record.sent_ns.len() as u64, now_ns);
            record.sent_ns.push(now_ns);
            if !self.write(&message)? {
                break;
            }
            while record.received_ns.len() < record.sent_ns.len() {
                let Some(count) = self.read(&mut echo)?.filter(|&count| count > 0) else { return Ok(record) };
                let now_ns = (self.clock)();
                checker.take(&echo[..count], |_| record.received_ns.push(now_ns))?;
            }
            due_ns = (due_ns + plan.period_ns).max((self.clock)());
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while self.read(&mut [0; 64])?.is_some_and(|count| count > 0) {}
        Ok(record)
    }

    /// Sends received bytes back.
    pub(super) fn echo(self) -> Result<ConnectionRecord, TrafficError> {
        self.prepare()?;
        let mut buffer = vec![0; 64 * 1024];
        while let Some(count) = self.read(&mut buffer)?.filter(|&count| count > 0) {
            if !self.write(&buffer[..count])? {
                break;
            }
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        Ok(ConnectionRecord::default())
    }

    fn prepare(&self) -> Result<(), TrafficError> {
        self.socket.set_nonblocking(true).map_err(system("setting up the traffic's socket", "see the kernel's log"))?;
        // The default slack of 50 µs would show in every message.
        let _ = nix::sys::prctl::set_timerslack(1);
        Ok(())
    }

    fn send(&self) -> Result<ConnectionRecord, TrafficError> {
        let plan = self.plan;
        let mut record = ConnectionRecord::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut due_ns = plan.start_ns;
        while sleep_until(self.plan, self.clock, self.stop, due_ns) {
            let now_ns = (self.clock)();
            if due_ns.max(now_ns) >= plan.stop_ns || record.sent_ns.len() >= MESSAGES_MAX {
                break;
            }
            if let Some(late_ns) = now_ns.checked_sub(due_ns + BACKLOG_NS).filter(|_| plan.period_ns > 0) {
                let skipped = late_ns / plan.period_ns;
                record.skipped += skipped;
                due_ns += skipped * plan.period_ns;
            }
            frame::fill(&mut message, record.sent_ns.len() as u64, now_ns);
            record.sent_ns.push(now_ns);
            if !self.write(&message)? {
                break;
            }
            due_ns = if plan.period_ns > 0 { due_ns + plan.period_ns } else { (self.clock)() };
        }
        // The peer ends its stream when it has received all.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while self.read(&mut [0; 64])?.is_some_and(|count| count > 0) {}
        Ok(record)
    }

    /// False if the deadline passed or `stop` was set before.
    fn write(&self, mut bytes: &[u8]) -> Result<bool, TrafficError> {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if has_ended(self.plan, self.clock, self.stop) {
                        return Ok(false);
                    }
                    wait(&self.socket, PollFlags::POLLOUT)?;
                }
                Err(error) => {
                    return Err(system("sending the traffic", "see events.jsonl for why the connection was closed")(
                        error,
                    ));
                }
            }
        }
        Ok(true)
    }

    fn receive(&self) -> Result<ConnectionRecord, TrafficError> {
        let mut record = ConnectionRecord::default();
        let mut checker = Checker::default();
        let mut buffer = vec![0; 256 * 1024];
        while let Some(count) = self.read(&mut buffer)?.filter(|&count| count > 0) {
            let now_ns = (self.clock)();
            checker.take(&buffer[..count], |_| record.received_ns.push(now_ns))?;
        }
        Ok(record)
    }

    /// The number of bytes read; 0 at the end of the stream, `None` if the deadline
    /// passed or `stop` was set before.
    fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, TrafficError> {
        loop {
            match (&self.socket).read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if has_ended(self.plan, self.clock, self.stop) {
                        return Ok(None);
                    }
                    wait(&self.socket, PollFlags::POLLIN)?;
                }
                Err(error) => {
                    return Err(system("receiving the traffic", "see events.jsonl for why the connection was closed")(
                        error,
                    ));
                }
            }
        }
    }
}
