//! Echo requests over the paths: ICMP (RFC 792, RFC 4443) by ping sockets, each bound to the address and the interface
//! of its path.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;

use crosslane_core::agent::{Input, PathView};
use crosslane_core::echo::IP_BYTES;
use crosslane_core::path::{PathId, PathSpec};
use crosslane_core::time::Instant;
use tokio::net::UdpSocket;

use super::{Driver, unit_probe};
use crate::control::report::EchoReport;
use crate::error::Error;

/// Length of a message: the header. The kernel sets its checksum and identifier.
const MESSAGE_BYTES: usize = 8;
/// An IPv6 header is longer than one of IPv4 by this, in bytes.
const LONGER_BYTES: u16 = 20;

/// The sockets, and where they send.
pub struct EchoSockets {
    address: IpAddr,
    sockets: BTreeMap<PathId, EchoSocket>,
    /// Paths of which the user knows that nothing can be sent over them.
    faulty: BTreeSet<PathId>,
}

struct EchoSocket {
    local: IpAddr,
    interface: String,
    socket: UdpSocket,
}

/// Types of the messages to an address: of a request, and of its answer.
fn types(address: IpAddr) -> [u8; 2] {
    if address.is_ipv4() { [8, 0] } else { [128, 129] }
}

impl EchoSocket {
    fn open(address: IpAddr, local: IpAddr, interface: &str) -> io::Result<EchoSocket> {
        let socket = unit_probe::ping_socket(address.is_ipv6())?;
        match socket.bind_device(Some(interface.as_bytes())) {
            // Without the privilege the address alone must suffice.
            Err(cause) if cause.kind() != ErrorKind::PermissionDenied => return Err(cause),
            _ => {}
        }
        socket.bind(&SocketAddr::new(local, 0).into())?;
        socket.connect(&SocketAddr::new(address, 0).into())?;
        Ok(EchoSocket { local, interface: interface.into(), socket: UdpSocket::from_std(socket.into())? })
    }

    /// The number of the next answer. Safe to cancel.
    async fn answer(&self, kind: u8) -> u16 {
        loop {
            let mut message = [0; MESSAGE_BYTES];
            // An error, as of an unreachable address, is none.
            if self.socket.recv(&mut message).await.is_ok_and(|bytes| bytes == MESSAGE_BYTES && message[0] == kind) {
                return u16::from_be_bytes([message[6], message[7]]);
            }
        }
    }
}

impl EchoSockets {
    /// Sends a request from this address over this interface. One that the kernel drops is one without an answer.
    ///
    /// # Errors
    /// There is no socket from this address.
    fn send(&mut self, path: PathId, number: u16, local: IpAddr, interface: &str) -> io::Result<()> {
        let is_current = |of: &EchoSocket| of.local == local && of.interface == interface;
        if !self.sockets.get(&path).is_some_and(is_current) {
            self.sockets.remove(&path);
            self.sockets.insert(path, EchoSocket::open(self.address, local, interface)?);
        }
        let [request, _] = types(self.address);
        let mut message = [0; MESSAGE_BYTES];
        message[0] = request;
        message[6..].copy_from_slice(&number.to_be_bytes());
        if let Some(of) = self.sockets.get(&path) {
            drop(of.socket.try_send(&message));
        }
        Ok(())
    }

    /// The path and the number of the next answer. Safe to cancel.
    pub async fn answer(&self) -> (PathId, u16) {
        let [_, kind] = types(self.address);
        let mut answers: Vec<_> = self.sockets.iter().map(|(path, of)| (*path, Box::pin(of.answer(kind)))).collect();
        poll_fn(|context| {
            for (path, answer) in &mut answers {
                if let Poll::Ready(number) = answer.as_mut().poll(context) {
                    return Poll::Ready((*path, number));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Driver {
    /// Begins to send echo requests, if the configuration asks for them.
    pub(super) fn start_echo(&mut self) {
        let Some(address) = self.config.echo.as_ref().map(|echo| *echo.get_ref().address.get_ref()) else { return };
        if let Err(fault) = unit_probe::check() {
            return self
                .note_to_user(&format!("{fault}; until then no echo requests are sent over paths that carry nothing"));
        }
        let specs: Vec<PathSpec> = self.config.paths.iter().map(|path| path.get_ref().spec()).collect();
        self.engine.set_echoes(&specs, &self.config.echo_periods());
        self.echo = Some(EchoSockets { address, sockets: BTreeMap::new(), faulty: BTreeSet::new() });
    }

    pub(super) fn send_echo(&mut self, path: PathId, number: u16) {
        let Some(echo) = &mut self.echo else { return };
        let interface = self.interfaces.name(path);
        let sent = match self.interfaces.towards(path, echo.address) {
            Some(local) => echo.send(path, number, local, interface).map_err(|cause| cause.to_string()),
            None => {
                let version = if echo.address.is_ipv4() { "IPv4" } else { "IPv6" };
                Err(format!("{interface:?} has no {version} address"))
            }
        };
        match sent {
            Ok(()) => drop(echo.faulty.remove(&path)),
            Err(cause) if echo.faulty.insert(path) => {
                let attempt = format!("sending echo requests over {interface:?}");
                let remedy = "give [echo] an address that the path reaches, or the period \"off\" to the path";
                self.journal.fault(&Error::failure(attempt, cause).with_remedy(remedy));
            }
            Err(_) => {}
        }
    }

    pub(super) fn on_echo_answer(&mut self, (path, number): (PathId, u16)) {
        self.handle(Input::EchoAnswer(path, number));
    }

    /// What the echo requests over a path have cost and shown.
    pub(super) fn echo_report(&self, now: Instant, view: &PathView) -> Option<EchoReport> {
        let (counts, address) = (view.echoes?, self.echo.as_ref()?.address);
        let bytes = u64::from(IP_BYTES + if address.is_ipv6() { LONGER_BYTES } else { 0 });
        Some(EchoReport {
            sent_bytes: counts.sent * bytes,
            received_bytes: counts.answered * bytes,
            rtt_ms: view.latest.echo.map(|(_, rtt)| rtt.as_secs_f64() * 1e3),
            answered_s: view.latest.echo.map(|(at, _)| now.since(at).as_secs_f64()),
        })
    }
}
