//! Traffic without a connection: each message is a datagram, without
//! retransmission.
//!
//! Every function works in the network namespace of the thread that calls it.
//! If the server sends, the vehicle sends it calls until the first datagram
//! arrives, so that the server knows the vehicle's address.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;

use crosslane_core::link::Direction;
use crosslane_sim::record::rows::MessageRow;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};

use super::frame::{self, HEADER_BYTES};
use super::{BACKLOG_NS, Clock, MESSAGES_MAX, Plan, TrafficError, check, has_ended, sleep_until, system, wait};

/// Payload of a call.
const CALL: &[u8] = b"crosslane";
/// Size of the receive buffer, in bytes: 0.1 s at 320 Mbit/s.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Record of the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When each datagram was passed to the socket, by number.
    pub sent_ns: Vec<u64>,
    /// Datagrams that waited too long for the socket and were not sent.
    pub skipped: u64,
}

/// Record of the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// When each datagram first arrived, by number, up to the last that arrived.
    pub received_ns: Vec<Option<u64>>,
    /// Number of duplicates.
    pub duplicates: u64,
}

/// Record of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointRecord {
    /// Of the sender.
    Sent(Sent),
    /// Of the receiver.
    Received(Received),
}

/// Opens the server's socket.
///
/// # Errors
/// The plan is invalid, or the port is in use.
pub fn listen(port: u16, plan: &Plan) -> Result<UdpSocket, TrafficError> {
    check(plan)?;
    open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), plan)
}

/// Runs the server until the traffic has ended, the deadline has passed or
/// `stop` is set.
///
/// # Errors
/// A datagram differs from the one sent, or the socket failed.
pub fn serve(socket: &UdpSocket, plan: &Plan, clock: Clock, stop: &AtomicBool) -> Result<EndpointRecord, TrafficError> {
    let endpoint = Endpoint { socket, plan, clock, stop };
    match plan.direction {
        Direction::Up => endpoint.receive(|| Ok(())).map(EndpointRecord::Received),
        Direction::Down => {
            let Some(vehicle) = endpoint.await_call()? else { return Ok(EndpointRecord::Sent(Sent::default())) };
            socket.connect(vehicle).map_err(system("answering the vehicle", "see the kernel's log"))?;
            endpoint.send().map(EndpointRecord::Sent)
        }
    }
}

/// Runs the vehicle's client. `local` is the source address; `None`: the kernel
/// chooses.
///
/// # Errors
/// The plan is invalid, a datagram differs from the one sent, or the socket
/// failed.
pub fn drive(
    server: SocketAddr,
    local: Option<IpAddr>,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<EndpointRecord, TrafficError> {
    check(plan)?;
    let local = local.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let socket = open(SocketAddr::new(local, 0), plan)?;
    socket.connect(server).map_err(system(format!("choosing a route to {server}"), "check that a link is up"))?;
    let endpoint = Endpoint { socket: &socket, plan, clock, stop };
    match plan.direction {
        Direction::Up => endpoint.send().map(EndpointRecord::Sent),
        Direction::Down => endpoint.receive(|| is_sent(socket.send(CALL)).map(drop)).map(EndpointRecord::Received),
    }
}

/// Joins the records of both endpoints into rows of messages.
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
        // Without the privilege the kernel's limit applies.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
        }
        if plan.send_buffer_bytes > 0 {
            setsockopt(&socket, sockopt::SndBuf, &plan.send_buffer_bytes)?;
        }
        Ok(socket)
    });
    opened.map_err(system(format!("opening a socket for datagrams on {local}"), "end the program that uses the port"))
}

struct Endpoint<'a> {
    socket: &'a UdpSocket,
    plan: &'a Plan,
    clock: Clock<'a>,
    stop: &'a AtomicBool,
}

impl Endpoint<'_> {
    fn send(&self) -> Result<Sent, TrafficError> {
        // The default slack of 50 µs would show in every datagram.
        let _ = nix::sys::prctl::set_timerslack(1);
        let plan = self.plan;
        let mut record = Sent::default();
        let mut message = vec![0; plan.size_bytes as usize];
        let mut due_ns = plan.start_ns;
        while sleep_until(self.plan, self.clock, self.stop, due_ns) && record.sent_ns.len() < MESSAGES_MAX {
            let now_ns = (self.clock)();
            if due_ns.max(now_ns) >= plan.stop_ns {
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
            due_ns += plan.period_ns;
        }
        Ok(record)
    }

    /// False if the deadline passed or `stop` was set before.
    fn write(&self, message: &[u8]) -> Result<bool, TrafficError> {
        while !is_sent(self.socket.send(message))? {
            if has_ended(self.plan, self.clock, self.stop) {
                return Ok(false);
            }
            wait(self.socket, PollFlags::POLLOUT)?;
        }
        Ok(true)
    }

    /// Receives until the deadline, since nothing marks the last datagram. Calls
    /// the server until the first datagram arrives.
    fn receive(&self, call: impl Fn() -> Result<(), TrafficError>) -> Result<Received, TrafficError> {
        let mut record = Received::default();
        let mut buffer = vec![0; 65_536];
        while !has_ended(self.plan, self.clock, self.stop) {
            match self.socket.recv(&mut buffer) {
                Ok(length) if &buffer[..length] != CALL => {
                    let now_ns = (self.clock)();
                    let header = frame::check(&buffer[..length]);
                    let header = header.map_err(|what| TrafficError::Damaged { length, what })?;
                    record.note(header.number as usize, now_ns);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if record.received_ns.is_empty() {
                        call()?;
                    }
                    wait(self.socket, PollFlags::POLLIN)?;
                }
                other => drop(is_sent(other)?),
            }
        }
        Ok(record)
    }

    /// The vehicle's address; `None` if the deadline passed or `stop` was set before.
    fn await_call(&self) -> Result<Option<SocketAddr>, TrafficError> {
        let mut buffer = [0; HEADER_BYTES];
        while !has_ended(self.plan, self.clock, self.stop) {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, vehicle)) if &buffer[..length] == CALL => return Ok(Some(vehicle)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait(self.socket, PollFlags::POLLIN)?,
                other => drop(is_sent(other.map(|(length, _)| length))?),
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

/// False if the socket would block. A datagram that a link outage or a full
/// queue drops is lost, as usual in UDP.
fn is_sent(sent: io::Result<usize>) -> Result<bool, TrafficError> {
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

    /// Runs both endpoints over loopback.
    fn run(plan: &Plan) -> (Sent, Received) {
        let began = Instant::now();
        let clock = move || began.elapsed().as_nanos() as u64;
        let stop = AtomicBool::new(false);
        let socket = listen(0, plan).unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()));
        let records = std::thread::scope(|scope| {
            let vehicle = scope.spawn(|| drive(server, Some(Ipv4Addr::LOCALHOST.into()), plan, &clock, &stop));
            (serve(&socket, plan, &clock, &stop).unwrap(), vehicle.join().unwrap().unwrap())
        });
        match records {
            (EndpointRecord::Sent(sent), EndpointRecord::Received(received))
            | (EndpointRecord::Received(received), EndpointRecord::Sent(sent)) => (sent, received),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn datagrams_arrive_in_both_directions_once_and_timed() {
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
    fn duplicates_are_counted_and_lost_datagrams_have_no_time() {
        let mut record = Received::default();
        for (number, now_ns) in [(0, 10), (3, 20), (1, 30), (3, 40), (1, 50)] {
            record.note(number, now_ns);
        }
        assert_eq!(record, Received { received_ns: vec![Some(10), Some(30), None, Some(20)], duplicates: 2 });
        record.note(usize::MAX, 60);
        assert_eq!(record.received_ns.len(), 4, "the size of the record is limited");
    }

    #[test]
    fn a_damaged_datagram_is_reported() {
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
