//! Traffic over one connection: timestamped messages or bulk data, up or down,
//! or messages that the server answers.
//!
//! Each message carries its number and the time at which its write began, and
//! the receiver checks every byte. Delay is measured from the beginning of the
//! write, so it excludes the wait at the source.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use crosslane_core::link::Direction;
use crosslane_sim::record::messages::MessageLog;
use nix::poll::PollFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::driver::{Driver, EndpointRecord, POLL_INTERVAL, Plan, Run, SEE_LOG, system};
use super::frame::Checker;
use crate::error::Result;

/// Timeout of one connection attempt; the kernel retransmits a lost SYN after
/// 1 s.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(4);
/// Remedy for a connection that broke.
const SEE_EVENTS: &str = "see events.jsonl for why the connection was closed";

/// Drives messages, their answers, and bulk data.
pub struct Connection;

impl Driver for Connection {
    fn listen(&self, plan: &Plan, address: SocketAddr) -> Result<Socket> {
        listen(plan, address)
    }

    fn serve(&self, run: Run, listener: Socket) -> Result<EndpointRecord> {
        let endpoint = Endpoint { socket: accept(run, &listener)?, run };
        if run.plan.kind.is_answered() { endpoint.echo() } else { endpoint.run(Direction::Down) }
    }

    fn drive(&self, run: Run, server: SocketAddr, local: Option<IpAddr>) -> Result<EndpointRecord> {
        Endpoint { socket: dial(run, server, local)?, run }.run(Direction::Up)
    }
}

/// Opens the server's socket on the wildcard address, which MPTCP joins to
/// another address of the server need.
pub fn listen(plan: &Plan, address: SocketAddr) -> Result<Socket> {
    plan.check()?;
    let socket = open(plan, Domain::for_address(address))?;
    let prepare = || {
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(address))?;
        socket.listen(1)?;
        socket.set_nonblocking(true)
    };
    prepare().map_err(system(format!("listening on {address}"), "end the program that uses the port"))?;
    Ok(socket)
}

pub fn accept(run: Run, listener: &Socket) -> Result<Socket> {
    let socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(system("accepting the vehicle's connection", SEE_LOG)(error)),
        }
        if run.has_ended() {
            let late = io::Error::from(ErrorKind::TimedOut);
            return Err(system("waiting for the vehicle's connection", "check that a link is up at the start")(late));
        }
        run.wait(listener, PollFlags::POLLIN)?;
    };
    tune(&socket, run.plan)?;
    Ok(socket)
}

/// Connects, with retries until the deadline. `local` is the source address;
/// `None`: the kernel chooses.
pub fn dial(run: Run, server: SocketAddr, local: Option<IpAddr>) -> Result<Socket> {
    run.plan.check()?;
    loop {
        let socket = open(run.plan, Domain::for_address(server))?;
        match connect(&socket, server, local) {
            Ok(()) => return Ok(socket),
            Err(cause) if is_transient(&cause) && !run.has_ended() => std::thread::sleep(POLL_INTERVAL),
            Err(cause) => {
                return Err(system(format!("connecting to {server}"), "check that a link is up at the start")(cause));
            }
        }
    }
}

fn open(plan: &Plan, domain: Domain) -> Result<Socket> {
    // An MPTCP socket without a subflow accepts any name and drops it later, so a
    // TCP socket checks the name first.
    let plain = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
        .map_err(system("opening a socket for the traffic", "raise the limit of open files"))?;
    tune(&plain, plan)?;
    if !plan.mptcp {
        return Ok(plain);
    }
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).map_err(system(
        "opening a socket for MPTCP",
        "use a kernel with CONFIG_MPTCP and set sysctl net.mptcp.enabled=1",
    ))?;
    tune(&socket, plan)?;
    Ok(socket)
}

fn tune(socket: &Socket, plan: &Plan) -> Result<()> {
    socket.set_tcp_congestion(plan.congestion.as_bytes()).map_err(system(
        format!("setting the congestion control {}", plan.congestion),
        "add it to sysctl net.ipv4.tcp_allowed_congestion_control, or run as root",
    ))?;
    let rest = || {
        socket.set_tcp_nodelay(true)?;
        if plan.send_buffer_bytes > 0 {
            socket.set_send_buffer_size(plan.send_buffer_bytes)?;
        }
        Ok(())
    };
    rest().map_err(system("setting up the traffic's socket", "use a kernel of 5.19 or later"))
}

fn connect(socket: &Socket, server: SocketAddr, local: Option<IpAddr>) -> io::Result<()> {
    if let Some(local) = local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(server), CONNECT_ATTEMPT)
}

/// True for errors that can disappear while the links come up.
fn is_transient(cause: &io::Error) -> bool {
    use ErrorKind as E;
    matches!(
        cause.kind(),
        E::AddrNotAvailable
            | E::ConnectionRefused
            | E::ConnectionReset
            | E::HostUnreachable
            | E::NetworkDown
            | E::NetworkUnreachable
            | E::TimedOut
    )
}

/// True for the errors of a connection that broke: a result of the strategy, not a failure of the run.
fn is_broken(cause: &io::Error) -> bool {
    use ErrorKind as E;
    matches!(cause.kind(), E::BrokenPipe | E::ConnectionAborted | E::ConnectionReset | E::NotConnected | E::TimedOut)
}

/// One endpoint of an established connection.
struct Endpoint<'a> {
    socket: Socket,
    run: Run<'a>,
}

impl Endpoint<'_> {
    /// Sends or receives until the traffic has ended; an endpoint sends if the
    /// data has its direction.
    fn run(self, sends: Direction) -> Result<EndpointRecord> {
        self.prepare()?;
        if sends == self.run.plan.direction { self.send() } else { self.receive() }
    }

    fn echo(self) -> Result<EndpointRecord> {
        self.prepare()?;
        let mut buffer = vec![0; 64 * 1024];
        while let Some(count) = self.read(&mut buffer)? {
            if !self.write(&buffer[..count])? {
                break;
            }
        }
        let _ = self.socket.shutdown(Shutdown::Write);
        Ok(EndpointRecord::default())
    }

    fn prepare(&self) -> Result<()> {
        self.socket.set_nonblocking(true).map_err(system("setting up the traffic's socket", SEE_LOG))
    }

    fn send(&self) -> Result<EndpointRecord> {
        let is_answered = self.run.plan.kind.is_answered();
        let mut checker = Checker::default();
        let record = self.run.send(|message, log| {
            Ok(self.write(message)? && (!is_answered || self.await_answer(message.len(), &mut checker, log)?))
        })?;
        // The peer ends its stream when it has received all.
        let _ = self.socket.shutdown(Shutdown::Write);
        while self.read(&mut [0; 64])?.is_some() {}
        Ok(record)
    }

    /// False if the stream ended before the answer.
    fn await_answer(&self, size: usize, checker: &mut Checker, log: &mut MessageLog) -> Result<bool> {
        let mut answer = vec![0; size];
        let mut is_complete = false;
        while !is_complete {
            let Some(count) = self.read(&mut answer)? else { return Ok(false) };
            let now = self.run.clock.now();
            checker.take(&answer[..count], |header| {
                log.received(now, header.number);
                is_complete = true;
            })?;
        }
        Ok(true)
    }

    /// False if the connection broke, the deadline passed or the run stopped before.
    fn write(&self, mut bytes: &[u8]) -> Result<bool> {
        while !bytes.is_empty() {
            let write = |mut socket: &Socket| socket.write(bytes);
            let Some(count) = self.when_ready(PollFlags::POLLOUT, "sending the traffic", write)? else {
                return Ok(false);
            };
            bytes = &bytes[count..];
        }
        Ok(true)
    }

    fn receive(&self) -> Result<EndpointRecord> {
        let mut record = EndpointRecord::default();
        let mut checker = Checker::default();
        let mut buffer = vec![0; 256 * 1024];
        while let Some(count) = self.read(&mut buffer)? {
            let now = self.run.clock.now();
            record.reads.note(now);
            checker.take(&buffer[..count], |header| record.note(header.number as usize, now))?;
        }
        Ok(record)
    }

    /// The number of bytes read; `None` at the end of the stream, and as for `when_ready`.
    fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let read = |mut socket: &Socket| socket.read(buffer);
        Ok(self.when_ready(PollFlags::POLLIN, "receiving the traffic", read)?.filter(|&count| count > 0))
    }

    /// Repeats a call until it would not block; `None` if the connection broke, the deadline passed or the run stopped
    /// before.
    fn when_ready(
        &self,
        events: PollFlags,
        attempt: &str,
        mut call: impl FnMut(&Socket) -> io::Result<usize>,
    ) -> Result<Option<usize>> {
        loop {
            match call(&self.socket) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_broken(&error) => return Ok(None),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(system(attempt, SEE_EVENTS)(error)),
                Err(_) if self.await_ready(events)? => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// False if the deadline passed or the run stopped before the socket was ready.
    fn await_ready(&self, events: PollFlags) -> Result<bool> {
        while !self.run.has_ended() {
            if self.run.wait(&self.socket, events)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
