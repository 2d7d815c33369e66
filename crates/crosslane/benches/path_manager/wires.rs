//! A vehicle and a server connected by two wires, with client and server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crosslane::error::Result;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::{MTU, Namespace, Route, SERVER, Wiring};
use nix::poll::{PollFd, PollFlags, poll};
use rtnetlink::{LinkUnspec, LinkVeth};
use socket2::{Domain, Protocol, Socket, Type};

use super::{LISTENER, PATHS, failure};

const QUEUE_PACKETS: u32 = 1000;
/// First of the vehicle's routing tables, one for each path.
const FIRST_TABLE: u32 = 100;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the server checks whether to end.
const POLL_INTERVAL_MS: u16 = 50;

/// Two namespaces and two veth pairs. They are removed on drop.
pub struct Wires {
    /// Namespace of the clients and the path manager.
    pub vehicle: Namespace,
    server: Namespace,
}

impl Wires {
    /// Creates them; `kind` manages the vehicle's paths, the kernel the server's.
    pub fn new(kind: PathManager) -> Result<Wires> {
        let (vehicle, server) = (Namespace::new()?, Namespace::new()?);
        vehicle.enter(|| runtime()?.block_on(create_pairs(&server)))??;
        vehicle.enter(|| {
            select_path_manager(kind).map_err(failure)?;
            wire_vehicle()
        })??;
        server.enter(wire_server)??;
        Ok(Wires { vehicle, server })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)
}

/// Creates the pairs here and moves the peers to `server`.
async fn create_pairs(server: &Namespace) -> Result<()> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failure)?;
    let connection = tokio::spawn(connection);
    for (path, _) in PATHS {
        let peer = format!("peer-{path}");
        handle.link().add(LinkVeth::new(path, &peer).build()).execute().await.map_err(failure)?;
        let moved = LinkUnspec::new_with_name(&peer).setns_by_fd(server.as_fd().as_raw_fd()).build();
        handle.link().set(moved).execute().await.map_err(failure)?;
    }
    connection.abort();
    Ok(())
}

fn prepare() -> Result<Wiring> {
    for conf in ["all", "default"] {
        // The file is missing in a kernel without IPv6.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{conf}/disable_ipv6"), "1");
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{conf}/rp_filter"), "0").map_err(failure)?;
    }
    let mut wiring = Wiring::open()?;
    wiring.bring_up("lo", 65536, QUEUE_PACKETS)?;
    Ok(wiring)
}

fn wire_vehicle() -> Result<()> {
    let mut wiring = prepare()?;
    for (place, (path, address)) in (0..).zip(PATHS) {
        wiring.bring_up(path, MTU, QUEUE_PACKETS)?;
        let interface = wiring.index(path)?;
        wiring.add_address(interface, address, 32)?;
        let route = Route { to: None, interface, via: None, source: Some(address.into()), table: None, metric: place };
        wiring.add_route(route)?;
        wiring.add_route(Route { table: Some(FIRST_TABLE + place), metric: 0, ..route })?;
        wiring.add_rule(address.into(), FIRST_TABLE + place)?;
    }
    Ok(())
}

fn wire_server() -> Result<()> {
    let mut wiring = prepare()?;
    let loopback = wiring.index("lo")?;
    wiring.add_address(loopback, SERVER, 32)?;
    for (path, address) in PATHS {
        let peer = format!("peer-{path}");
        wiring.bring_up(&peer, MTU, QUEUE_PACKETS)?;
        let interface = wiring.index(&peer)?;
        wiring.add_route(Route {
            to: Some(address.into()),
            interface,
            via: None,
            source: Some(SERVER.into()),
            table: None,
            metric: 0,
        })?;
    }
    Ok(())
}

/// Echoes every client's bytes, until dropped.
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on every address, as joining subflows require.
    pub fn start(wires: &Wires) -> Result<Server> {
        let listening = wires.server.enter(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, LISTENER.port())).into())?;
            socket.listen(128)?;
            io::Result::Ok(socket)
        })?;
        let listening = listening.map_err(failure)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // An MPTCP listener has no timeout.
                let mut arrival = [PollFd::new(listening.as_fd(), PollFlags::POLLIN)];
                if poll(&mut arrival, POLL_INTERVAL_MS) == Ok(1)
                    && let Ok((client, _)) = listening.accept()
                {
                    thread::spawn(move || io::copy(&mut &client, &mut &client));
                }
            }
        });
        Ok(Server { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An open connection.
pub struct Client {
    /// Its address on the vehicle.
    pub local: SocketAddr,
    _socket: Socket,
}

impl Client {
    /// Connects from this thread's network namespace and exchanges a byte.
    pub fn connect() -> Result<Client> {
        let connected = || {
            let mut socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
            socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            socket.connect(&LISTENER.into())?;
            socket.write_all(b"?")?;
            socket.read_exact(&mut [0])?;
            let local = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("it has no address"))?;
            Ok(Client { local, _socket: socket })
        };
        connected().map_err(|cause: io::Error| failure(cause))
    }
}
