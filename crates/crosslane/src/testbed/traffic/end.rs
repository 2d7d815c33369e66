//! One end of the connection, once it stands.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nix::poll::PollFlags;
use socket2::Socket;

use super::frame::{self, Checker};
use super::{BACKLOG_NS, Clock, MESSAGES_MAX, NAP, Plan, Seen, TrafficError, over, system, wait};

/// One end of the connection.
pub(super) struct End<'a> {
    pub(super) socket: Socket,
    pub(super) plan: &'a Plan,
    pub(super) clock: Clock<'a>,
    pub(super) stop: &'a AtomicBool,
}

impl End<'_> {
    /// Sends or receives until the traffic is over.
    pub(super) fn play(self, sends: bool) -> Result<Seen, TrafficError> {
        self.prepare()?;
        if sends { self.send() } else { self.receive() }
    }

    /// Sends messages and awaits the answer of each.
    pub(super) fn ask(self) -> Result<Seen, TrafficError> {
        self.prepare()?;
        let plan = self.plan;
        let mut seen = Seen::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut answer = vec![0; plan.size_bytes as usize];
        let mut checker = Checker::default();
        let mut due_ns = plan.start_ns;
        while self.sleep_until(due_ns) {
            let now_ns = (self.clock)();
            if now_ns >= plan.stop_ns || seen.sent_ns.len() >= MESSAGES_MAX {
                break;
            }
            frame::fill(&mut message, seen.sent_ns.len() as u64, now_ns);
            seen.sent_ns.push(now_ns);
            if !self.write(&message)? {
                break;
            }
            while seen.received_ns.len() < seen.sent_ns.len() {
                let Some(count) = self.read(&mut answer)?.filter(|&count| count > 0) else { return Ok(seen) };
                let now_ns = (self.clock)();
                checker.take(&answer[..count], |_| seen.received_ns.push(now_ns))?;
            }
            due_ns = (due_ns + plan.period_ns).max((self.clock)());
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while self.read(&mut [0; 64])?.is_some_and(|count| count > 0) {}
        Ok(seen)
    }

    /// Sends back what comes.
    pub(super) fn answer(self) -> Result<Seen, TrafficError> {
        self.prepare()?;
        let mut buffer = vec![0; 64 * 1024];
        while let Some(count) = self.read(&mut buffer)?.filter(|&count| count > 0) {
            if !self.write(&buffer[..count])? {
                break;
            }
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        Ok(Seen::default())
    }

    fn prepare(&self) -> Result<(), TrafficError> {
        self.socket.set_nonblocking(true).map_err(system("setting up the traffic's socket", "see the kernel's log"))?;
        // The default slack of 50 µs would show in every message.
        let _ = nix::sys::prctl::set_timerslack(1);
        Ok(())
    }

    fn send(&self) -> Result<Seen, TrafficError> {
        let plan = self.plan;
        let mut seen = Seen::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut due_ns = plan.start_ns;
        while self.sleep_until(due_ns) {
            let now_ns = (self.clock)();
            if due_ns.max(now_ns) >= plan.stop_ns || seen.sent_ns.len() >= MESSAGES_MAX {
                break;
            }
            if let Some(late_ns) = now_ns.checked_sub(due_ns + BACKLOG_NS).filter(|_| plan.period_ns > 0) {
                let skipped = late_ns / plan.period_ns;
                seen.skipped += skipped;
                due_ns += skipped * plan.period_ns;
            }
            frame::fill(&mut message, seen.sent_ns.len() as u64, now_ns);
            seen.sent_ns.push(now_ns);
            if !self.write(&message)? {
                break;
            }
            due_ns = if plan.period_ns > 0 { due_ns + plan.period_ns } else { (self.clock)() };
        }
        // The peer answers the end of the stream with its own when it has all.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while self.read(&mut [0; 64])?.is_some_and(|count| count > 0) {}
        Ok(seen)
    }

    /// False if the order to stop came first.
    fn sleep_until(&self, due_ns: u64) -> bool {
        loop {
            if over(self.plan, self.clock, self.stop) {
                return false;
            }
            let left = Duration::from_nanos(due_ns.saturating_sub((self.clock)()));
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// False if the deadline or the order to stop came first.
    fn write(&self, mut bytes: &[u8]) -> Result<bool, TrafficError> {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if over(self.plan, self.clock, self.stop) {
                        return Ok(false);
                    }
                    wait(&self.socket, PollFlags::POLLOUT)?;
                }
                Err(error) => {
                    return Err(system("sending the traffic", "see events.jsonl for what closed the connection")(
                        error,
                    ));
                }
            }
        }
        Ok(true)
    }

    fn receive(&self) -> Result<Seen, TrafficError> {
        let mut seen = Seen::default();
        let mut checker = Checker::default();
        let mut buffer = vec![0; 256 * 1024];
        while let Some(count) = self.read(&mut buffer)?.filter(|&count| count > 0) {
            let now_ns = (self.clock)();
            checker.take(&buffer[..count], |_| seen.received_ns.push(now_ns))?;
        }
        Ok(seen)
    }

    /// How many bytes came; 0 at the end of the stream, `None` if the deadline
    /// or the order to stop came first.
    fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, TrafficError> {
        loop {
            match (&self.socket).read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if over(self.plan, self.clock, self.stop) {
                        return Ok(None);
                    }
                    wait(&self.socket, PollFlags::POLLIN)?;
                }
                Err(error) => {
                    return Err(system("receiving the traffic", "see events.jsonl for what closed the connection")(
                        error,
                    ));
                }
            }
        }
    }
}
