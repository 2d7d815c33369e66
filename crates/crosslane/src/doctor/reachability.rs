//! Whether the gateway and a server answer over each path.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use toml::Spanned;

use super::Finding;
use super::configuration::address_of;
use crate::agent::config::{Config, PathConfig};
use crate::clock::{self, Clock};
use crate::netlink::diag::Diag;
use crate::tunnel::security::Security;

/// Longest wait for an answer, or for an ICMP error, after each attempt.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(600);
/// Initiations that are sent to the gateway over each path.
const ATTEMPTS: usize = 3;
/// Longest attempt to connect to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Sent to a gateway without encryption, which discards it: shorter than every message of the tunnel.
const PROBE: &[u8] = b"\0";

/// The tunnel's UDP port, over each path, by the first message of a handshake: the gateway's answer is discarded, and it
/// sends nothing in the session before that is used. Without encryption nothing answers, and only errors are found.
pub fn of_gateway(config: &Config) -> Vec<Finding> {
    let Some(tunnel) = config.tunnel.as_ref().map(Spanned::get_ref) else { return Vec::new() };
    let gateway = match tunnel.gateway_address() {
        Ok(Some(gateway)) => gateway,
        Ok(None) => return Vec::new(),
        Err(fault) => {
            let fix = "correct `gateway` in [tunnel]; `resolvectl status` shows the name servers";
            return vec![Finding::broken("gateway.unknown", fault, "the tunnel has no peer", fix)];
        }
    };
    // A key that cannot be read is a finding already.
    let keys = tunnel.keys().ok().flatten();
    let initiation = keys
        .and_then(|(private, peers)| Security::new(private, peers).initiate(Clock::start().now(), clock::unix_ns(), 0));
    each_path(config, gateway, |path, address| {
        let cause = exchange(path.interface(), address, gateway, initiation.as_deref()).err()?;
        let (name, fix) = match cause.kind() {
            io::ErrorKind::ConnectionRefused => (
                "gateway.refused",
                "start `crosslane agent` at the gateway, or correct the port of `gateway`".to_owned(),
            ),
            io::ErrorKind::WouldBlock => {
                let port = gateway.port();
                let fix = format!(
                    "allow UDP port {port} in firewalls on the way; compare both public keys (`crosslane keygen --public FILE`)"
                );
                ("gateway.silent", fix)
            }
            _ => ("gateway.unreachable", format!("ip route get {} from {address}", gateway.ip())),
        };
        let cause = if name == "gateway.silent" { "no answer to the handshake".into() } else { cause.to_string() };
        let what = format!("path {:?}: the gateway {gateway} is not reached: {cause}", path.name);
        Some(Finding::broken(name, what, "the tunnel carries nothing over this path", fix))
    })
}

/// Sends the initiation until an answer arrives. Errors: `WouldBlock` without an answer, else the kernel's.
fn exchange(interface: &str, address: IpAddr, gateway: SocketAddr, initiation: Option<&[u8]>) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(gateway), Type::DGRAM, Some(Protocol::UDP))?;
    bind(&socket, interface, address)?;
    socket.connect(&gateway.into())?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        socket.send(initiation.unwrap_or(PROBE))?;
        last = socket.recv(&mut [MaybeUninit::uninit(); 1]).map(drop);
        match &last {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock && initiation.is_some() => {}
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            _ => break,
        }
    }
    last
}

/// An MPTCP connection to the server, over each path of the configuration, or else over the default route.
pub fn of_server(config: Option<&Config>, server: SocketAddr) -> Vec<Finding> {
    match config.filter(|config| !config.paths.is_empty()) {
        Some(config) => each_path(config, server, |path, address| {
            let place = format!("path {:?}: ", path.name);
            handshake(&place, server, Some((path.interface(), address)))
        }),
        None => handshake("", server, None).into_iter().collect(),
    }
}

fn handshake(place: &str, server: SocketAddr, from: Option<(&str, IpAddr)>) -> Option<Finding> {
    match keeps_mptcp(server, from) {
        Ok(true) => None,
        Ok(false) => {
            let what = format!("{place}the connection to {server} fell back to TCP");
            let why = "its connections use one path: the server lacks MPTCP, or a box between removes the option";
            let fix = "sysctl -w net.mptcp.enabled=1 and `mptcpize run` at the server; if another path keeps it, use the tunnel";
            Some(Finding::broken("mptcp.stripped", what, why, fix))
        }
        Err(cause) => {
            let what = format!("{place}no connection to {server}: {cause}");
            let fix = "check address and port, that the server listens, and firewalls between";
            Some(Finding::broken("server.unreachable", what, "nothing reaches the server over this path", fix))
        }
    }
}

/// Whether a connection uses MPTCP after its handshake.
fn keeps_mptcp(server: SocketAddr, from: Option<(&str, IpAddr)>) -> io::Result<bool> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::MPTCP))?;
    if let Some((interface, address)) = from {
        bind(&socket, interface, address)?;
    }
    socket.connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    let local = socket.local_addr()?.as_socket().ok_or(Errno::EAFNOSUPPORT)?;
    // sock_diag lists no connection that fell back to TCP.
    let connections = Diag::open().map_err(io::Error::other)?.connections().map_err(io::Error::other)?;
    Ok(connections.iter().any(|found| (found.local, found.remote) == (local, server)))
}

fn bind(socket: &Socket, interface: &str, address: IpAddr) -> io::Result<()> {
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

/// The findings of all paths with an address of the peer's family, examined at the same time.
fn each_path(
    config: &Config,
    peer: SocketAddr,
    examine: impl Fn(&PathConfig, IpAddr) -> Option<Finding> + Sync,
) -> Vec<Finding> {
    let paths = config.paths.iter().map(Spanned::get_ref);
    let usable = paths.filter_map(|path| Some((path, address_of(path)?)));
    let usable: Vec<_> = usable.filter(|(_, address)| address.is_ipv4() == peer.is_ipv4()).collect();
    thread::scope(|scope| {
        let examine = &examine;
        let started: Vec<_> =
            usable.iter().map(|(path, address)| scope.spawn(move || examine(path, *address))).collect();
        started.into_iter().filter_map(|thread| thread.join().ok()?).collect()
    })
}
