//! Traffic without a connection: each message a datagram, from one end to the
//! other, never repeated.
//!
//! Every function works in the network namespace of the thread that calls it.
//! Where the server sends, the vehicle calls on it until the first datagram
//! comes, so that it knows where to.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crosslane_core::link::Direction;
use crosslane_sim::record::rows::MessageRow;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};

use super::frame::{self, HEADER_BYTES};
use super::{BACKLOG_NS, Clock, MESSAGES_MAX, NAP, Plan, TrafficError, check, over, system, wait};

/// What the vehicle calls with.
const CALL: &[u8] = b"crosslane";
/// What may wait for the receiver to read, in bytes: 0.1 s at 320 Mbit/s.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// What the sending end did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When each datagram was handed to the socket, by number.
    pub sent_ns: Vec<u64>,
    /// Datagrams that waited too long for the socket and were never sent.
    pub skipped: u64,
}

/// What the receiving end saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// When each datagram first came, by number; those after the last that did
    /// are left out.
    pub received_ns: Vec<Option<u64>>,
    /// How many came once more.
    pub duplicates: u64,
}

/// What one end did or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was the sender.
    Sent(Sent),
    /// It was the receiver.
    Received(Received),
}

/// Opens the server's socket.
///
/// # Errors
/// The plan cannot be carried out, or the port is taken.
pub fn listen(port: u16, plan: &Plan) -> Result<UdpSocket, TrafficError> {
    check(plan)?;
    open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), plan)
}

/// Plays the server's part until the traffic is over, the deadline has passed
/// or `stop` is set.
///
/// # Errors
/// A datagram differs from the one sent, or the socket failed.
pub fn serve(socket: &UdpSocket, plan: &Plan, clock: Clock, stop: &AtomicBool) -> Result<End, TrafficError> {
    let play = Play { socket, plan, clock, stop };
    match plan.direction {
        Direction::Up => play.receive(|| Ok(())).map(End::Received),
        Direction::Down => {
            let Some(vehicle) = play.await_call()? else { return Ok(End::Sent(Sent::default())) };
            socket.connect(vehicle).map_err(system("answering the vehicle", "see the kernel's log"))?;
            play.send().map(End::Sent)
        }
    }
}

/// Plays the vehicle's part. `local` is the address to send from, where the
/// kernel shall not choose.
///
/// # Errors
/// The plan cannot be carried out, a datagram differs from the one sent, or
/// the socket failed.
pub fn drive(
    server: SocketAddr,
    local: Option<IpAddr>,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<End, TrafficError> {
    check(plan)?;
    let local = local.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let socket = open(SocketAddr::new(local, 0), plan)?;
    socket.connect(server).map_err(system(format!("choosing a way to {server}"), "look whether any link is up"))?;
    let play = Play { socket: &socket, plan, clock, stop };
    match plan.direction {
        Direction::Up => play.send().map(End::Sent),
        Direction::Down => play.receive(|| passing(socket.send(CALL)).map(drop)).map(End::Received),
    }
}

/// The record of the datagrams, from what the two ends saw.
pub fn messages(plan: &Plan, sent: &Sent, received: &Received) -> Vec<MessageRow> {
    let received = received.received_ns.iter().copied().chain(std::iter::repeat(None));
    let row = |(number, (&sent_ns, received_ns)): (u64, (&u64, Option<u64>))| MessageRow {
        number,
        sent_ns,
        written_ns: None,
        received_ns,
        size_bytes: plan.size_bytes,
    };
    (0..).zip(sent.sent_ns.iter().zip(received)).map(row).collect()
}

fn open(local: SocketAddr, plan: &Plan) -> Result<UdpSocket, TrafficError> {
    let opened = UdpSocket::bind(local).and_then(|socket| {
        socket.set_nonblocking(true)?;
        // Without the privilege the kernel's own limit has to do.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
        }
        if plan.send_buffer_bytes > 0 {
            setsockopt(&socket, sockopt::SndBuf, &plan.send_buffer_bytes)?;
        }
        Ok(socket)
    });
    opened.map_err(system(format!("opening a socket for datagrams on {local}"), "end what holds the port"))
}

struct Play<'a> {
    socket: &'a UdpSocket,
    plan: &'a Plan,
    clock: Clock<'a>,
    stop: &'a AtomicBool,
}

impl Play<'_> {
    fn send(&self) -> Result<Sent, TrafficError> {
        // The default slack of 50 µs would show in every datagram.
        let _ = nix::sys::prctl::set_timerslack(1);
        let plan = self.plan;
        let mut seen = Sent::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut due_ns = plan.start_ns;
        while self.sleep_until(due_ns) && seen.sent_ns.len() < MESSAGES_MAX {
            let now_ns = (self.clock)();
            if due_ns.max(now_ns) >= plan.stop_ns {
                break;
            }
            if let Some(late_ns) = now_ns.checked_sub(due_ns + BACKLOG_NS).filter(|_| plan.period_ns > 0) {
                let skipped = late_ns / plan.period_ns;
                seen.skipped += skipped;
                due_ns += skipped * plan.period_ns;
            }
            frame::fill(&mut message, seen.sent_ns.len() as u64, now_ns);
            seen.sent_ns.push(now_ns);
            if !self.hand_over(&message)? {
                break;
            }
            due_ns += plan.period_ns;
        }
        Ok(seen)
    }

    /// False if the deadline or the order to stop came first.
    fn hand_over(&self, message: &[u8]) -> Result<bool, TrafficError> {
        while !passing(self.socket.send(message))? {
            if over(self.plan, self.clock, self.stop) {
                return Ok(false);
            }
            wait(self.socket, PollFlags::POLLOUT)?;
        }
        Ok(true)
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

    /// Receives to the deadline: nothing tells that no more will come. Calls
    /// until the first datagram does.
    fn receive(&self, call: impl Fn() -> Result<(), TrafficError>) -> Result<Received, TrafficError> {
        let mut seen = Received::default();
        let mut buffer = vec![0; 65_536];
        while !over(self.plan, self.clock, self.stop) {
            match self.socket.recv(&mut buffer) {
                Ok(length) if &buffer[..length] != CALL => {
                    let now_ns = (self.clock)();
                    let header = frame::check(&buffer[..length]);
                    let header = header.map_err(|what| TrafficError::Damaged { length, what })?;
                    seen.note(header.number as usize, now_ns);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if seen.received_ns.is_empty() {
                        call()?;
                    }
                    wait(self.socket, PollFlags::POLLIN)?;
                }
                other => drop(passing(other)?),
            }
        }
        Ok(seen)
    }

    /// Where the vehicle is; none if the deadline or the order to stop came first.
    fn await_call(&self) -> Result<Option<SocketAddr>, TrafficError> {
        let mut buffer = [0; HEADER_BYTES];
        while !over(self.plan, self.clock, self.stop) {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, vehicle)) if &buffer[..length] == CALL => return Ok(Some(vehicle)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(self.socket, PollFlags::POLLIN)?,
                other => drop(passing(other.map(|(length, _)| length))?),
            }
        }
        Ok(None)
    }
}

impl Received {
    fn note(&mut self, number: usize, now_ns: u64) {
        if number >= MESSAGES_MAX {
            return;
        }
        if number >= self.received_ns.len() {
            self.received_ns.resize(number + 1, None);
        }
        match self.received_ns.get_mut(number) {
            Some(first @ None) => *first = Some(now_ns),
            Some(Some(_)) => self.duplicates += 1,
            None => {}
        }
    }
}

/// False if the socket has to be waited for. What a link that is down or a full
/// queue swallows is lost, as everywhere in UDP.
fn passing(sent: io::Result<usize>) -> Result<bool, TrafficError> {
    use ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock};
    match sent {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == WouldBlock => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(true),
        Err(error) => match error.kind() {
            ConnectionRefused | HostUnreachable | Interrupted | NetworkDown | NetworkUnreachable => Ok(true),
            _ => Err(system("carrying datagrams", "see the kernel's log")(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const MS: u64 = 1_000_000;

    fn plan(direction: Direction) -> Plan {
        Plan {
            answered: false,
            direction,
            size_bytes: 1000,
            period_ns: 5 * MS,
            start_ns: 50 * MS,
            stop_ns: 350 * MS,
            deadline_ns: 500 * MS,
            mptcp: false,
            congestion: "cubic".into(),
            send_buffer_bytes: 0,
        }
    }

    /// Runs both ends over loopback.
    fn run(plan: &Plan) -> (Sent, Received) {
        let began = Instant::now();
        let clock = move || began.elapsed().as_nanos() as u64;
        let stop = AtomicBool::new(false);
        let socket = listen(0, plan).unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()));
        let ends = std::thread::scope(|scope| {
            let vehicle = scope.spawn(|| drive(server, Some(Ipv4Addr::LOCALHOST.into()), plan, &clock, &stop));
            (serve(&socket, plan, &clock, &stop).unwrap(), vehicle.join().unwrap().unwrap())
        });
        match ends {
            (End::Sent(sent), End::Received(received)) | (End::Received(received), End::Sent(sent)) => (sent, received),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn datagrams_arrive_both_ways_each_once_and_timed() {
        for direction in [Direction::Up, Direction::Down] {
            let plan = plan(direction);
            let (sent, received) = run(&plan);
            let rows = messages(&plan, &sent, &received);
            assert_eq!((rows.len(), sent.skipped, received.duplicates), (60, 0, 0), "{direction:?}");
            assert!(rows.iter().all(|row| row.received_ns.is_some_and(|at| at >= row.sent_ns)));
            let last = sent.sent_ns.last().unwrap();
            assert!((345 * MS..360 * MS).contains(last), "no drift: {last}");
        }
    }

    #[test]
    fn a_datagram_that_comes_again_is_counted_and_a_lost_one_is_not_there() {
        let mut seen = Received::default();
        for (number, now_ns) in [(0, 10), (3, 20), (1, 30), (3, 40), (1, 50)] {
            seen.note(number, now_ns);
        }
        assert_eq!(seen, Received { received_ns: vec![Some(10), Some(30), None, Some(20)], duplicates: 2 });
        seen.note(usize::MAX, 60);
        assert_eq!(seen.received_ns.len(), 4, "no number makes the record grow without limit");
    }

    #[test]
    fn a_damaged_datagram_is_told() {
        let mut message = vec![0; 100];
        frame::fill(&mut message, 7, 9);
        assert_eq!(frame::check(&message).map(|header| (header.number, header.sent_ns)), Ok((7, 9)));
        for wrong in [0, 5, 24, 99] {
            let mut damaged = message.clone();
            damaged[wrong] ^= 1;
            assert!(frame::check(&damaged).is_err(), "byte {wrong}");
        }
        assert!(frame::check(&message[..23]).is_err() && frame::check(&message[..99]).is_err());
    }
}
