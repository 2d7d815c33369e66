//! Traffic without a connection: each message is a datagram, without
//! retransmission.
//!
//! If the server sends, the vehicle sends it calls until the first datagram
//! arrives, so that the server knows the vehicle's address.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use crosslane_core::link::Direction;
use crosslane_sim::addresses::unspecified;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::Socket;

use super::driver::{Driver, EndpointRecord, Plan, Run, SEE_LOG, system};
use super::frame::{self, HEADER_BYTES};
use crate::error::{Error, Result};

/// Payload of a call.
const CALL: &[u8] = b"crosslane";
/// Size of the receive buffer, in bytes: 0.1 s at 320 Mbit/s.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

pub struct Datagrams;

impl Driver for Datagrams {
    fn listen(&self, plan: &Plan, address: SocketAddr) -> Result<Socket> {
        plan.check()?;
        Ok(open(address, plan)?.into())
    }

    fn serve(&self, run: Run, listener: Socket) -> Result<EndpointRecord> {
        let endpoint = Endpoint { socket: UdpSocket::from(listener), run };
        if run.plan.direction == Direction::Up {
            return endpoint.receive(|| Ok(()));
        }
        let Some(vehicle) = endpoint.await_call()? else { return Ok(EndpointRecord::default()) };
        endpoint.socket.connect(vehicle).map_err(system("answering the vehicle", SEE_LOG))?;
        endpoint.send()
    }

    fn drive(&self, run: Run, server: SocketAddr, local: Option<IpAddr>) -> Result<EndpointRecord> {
        run.plan.check()?;
        let socket = open(SocketAddr::new(local.unwrap_or(unspecified(server.ip())), 0), run.plan)?;
        socket.connect(server).map_err(system(format!("choosing a route to {server}"), "check that a link is up"))?;
        let endpoint = Endpoint { socket, run };
        match run.plan.direction {
            Direction::Up => endpoint.send(),
            Direction::Down => endpoint.receive(|| is_sent(endpoint.socket.send(CALL)).map(drop)),
        }
    }
}

fn open(local: SocketAddr, plan: &Plan) -> Result<UdpSocket> {
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
    socket: UdpSocket,
    run: Run<'a>,
}

impl Endpoint<'_> {
    fn send(&self) -> Result<EndpointRecord> {
        self.run.send(|message, _| self.write(message))
    }

    /// False if the deadline passed or the run stopped before.
    fn write(&self, message: &[u8]) -> Result<bool> {
        while !is_sent(self.socket.send(message))? {
            if self.run.has_ended() {
                return Ok(false);
            }
            self.run.wait(&self.socket, PollFlags::POLLOUT)?;
        }
        Ok(true)
    }

    /// Receives until the deadline, since nothing marks the last datagram. Calls
    /// the server until the first datagram arrives.
    fn receive(&self, call: impl Fn() -> Result<()>) -> Result<EndpointRecord> {
        let mut record = EndpointRecord::default();
        let mut buffer = vec![0; 65_536];
        while !self.run.has_ended() {
            match self.socket.recv(&mut buffer) {
                Ok(length) if &buffer[..length] != CALL => {
                    let now = self.run.clock.now();
                    let header = frame::check(&buffer[..length]).map_err(|what| {
                        Error::failure("checking received data", format!("datagram of {length} bytes: {what}"))
                            .with_remedy("report this, since UDP has checksums")
                    })?;
                    record.note(header.number as usize, now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if record.received_ns.is_empty() {
                        call()?;
                    }
                    self.run.wait(&self.socket, PollFlags::POLLIN)?;
                }
                other => drop(is_sent(other)?),
            }
        }
        Ok(record)
    }

    /// The vehicle's address; `None` if the deadline passed or the run stopped before.
    fn await_call(&self) -> Result<Option<SocketAddr>> {
        let mut buffer = [0; HEADER_BYTES];
        while !self.run.has_ended() {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, vehicle)) if &buffer[..length] == CALL => return Ok(Some(vehicle)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.run.wait(&self.socket, PollFlags::POLLIN)?;
                }
                other => drop(is_sent(other.map(|(length, _)| length))?),
            }
        }
        Ok(None)
    }
}

/// False if the socket would block. A datagram that a link outage or a full
/// queue drops is lost, as usual in UDP.
fn is_sent(sent: io::Result<usize>) -> Result<bool> {
    use ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock};
    match sent {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == WouldBlock => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(true),
        Err(error) => match error.kind() {
            ConnectionRefused | HostUnreachable | Interrupted | NetworkDown | NetworkUnreachable => Ok(true),
            _ => Err(system("carrying datagrams", SEE_LOG)(error)),
        },
    }
}
