//! The netlink drivers on the real kernel; each test runs in a separate network namespace
//! over its loopback interface.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use crosslane::netlink::diag::Diag;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::links::{self, Notice};
use crosslane::netlink::path_manager::{self, CommandSocket};

use crosslane::netlink::{
    EventError, PathManager, Subscription, TcpState, Wiring, is_linux, probe, select_path_manager,
};
use crosslane_core::mptcp::{AddressId, Command, Event, Subflow, Token};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, Socket, Type};

const CLIENT: &str = "10.1.0.1";
const SECOND_CLIENT: &str = "10.1.0.2";
const SERVER: &str = "10.2.0.1";
/// Prints the reason for skipped tests only once.
static REPORTED: std::sync::Once = std::sync::Once::new();
/// Receive attempts before a test fails.
const MAX_ATTEMPTS: usize = 200;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs `test` in a new network namespace where loopback is up and has the three addresses.
/// Without permission for that, the test is skipped with a message; in CI it fails.
fn in_namespace(test: fn()) {
    let thread = std::thread::spawn(move || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            let reason =
                format!("e2e NOT RUN: no separate network namespace ({errno}); run as root or in `unshare -Urn`");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
            // Directly to standard error: the test harness captures the output of passing tests.
            REPORTED.call_once(|| drop(writeln!(std::io::stderr(), "{reason}")));
            return;
        }
        runtime().block_on(loopback(&[CLIENT, SECOND_CLIENT, SERVER]));
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn loopback(addresses: &[&str]) {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let up = rtnetlink::LinkUnspec::new_with_index(1).up().build();
    handle.link().set(up).execute().await.unwrap();
    for address in addresses {
        handle.address().add(1, ip(address), 32).execute().await.unwrap();
    }
}

fn mptcp(domain: Domain) -> Socket {
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).unwrap()
}

/// Both endpoints of a connection from `CLIENT` to `SERVER`, and its netlink sockets.
struct Connected {
    client: Socket,
    server: Socket,
    client_token: Token,
    server_token: Token,
    first: Subflow,
    events: Subscription<Event>,
    commands: CommandSocket,
    listener: SocketAddr,
    _listening: Socket,
}

impl Connected {
    fn new() -> Connected {
        Connected::between(Domain::IPV4, ip(CLIENT), ip(SERVER))
    }

    fn between(domain: Domain, from: IpAddr, to: IpAddr) -> Connected {
        select_path_manager(PathManager::UserSpace).unwrap();
        let mut events = path_manager::events().unwrap();
        let commands = CommandSocket::open().unwrap();
        let listening = mptcp(Domain::IPV4);
        listening.bind(&"0.0.0.0:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listening.listen(8).unwrap();
        let port = listening.local_addr().unwrap().as_socket().unwrap().port();
        let listener = until(&mut events, |event| match event {
            Event::ListenerCreated { local } => Some(local),
            _ => None,
        });
        assert_eq!(listener, SocketAddr::new(ip("0.0.0.0"), port));
        let client = mptcp(domain);
        client.bind(&SocketAddr::new(from, 0).into()).unwrap();
        client.connect(&SocketAddr::new(to, port).into()).unwrap();
        let (mut server, _) = listening.accept().unwrap();
        let (mut client_token, mut server_token, mut first) = (None, None, None);
        // Data makes the connection fully established at both endpoints.
        (&client).write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        (&server).write_all(b"hello").unwrap();
        let mut created = 0;
        while client_token.is_none() || server_token.is_none() {
            until(&mut events, |event| match event {
                Event::Created { .. } => {
                    created += 1;
                    Some(())
                }
                Event::Established { token, subflow, server_side: false } => {
                    (client_token, first) = (Some(token), Some(subflow));
                    Some(())
                }
                Event::Established { token, server_side: true, .. } => {
                    server_token = Some(token);
                    Some(())
                }
                _ => None,
            });
        }
        assert_eq!(created, 2, "one Created event for each endpoint");
        let (client_token, server_token) = (client_token.unwrap(), server_token.unwrap());
        let listener = SocketAddr::new(ip(SERVER), port);
        Connected {
            client,
            server,
            client_token,
            server_token,
            first: first.unwrap(),
            events,
            commands,
            listener,
            _listening: listening,
        }
    }

    /// Opens a second subflow from `SECOND_CLIENT`; returns it as seen by the client.
    fn join(&mut self) -> Subflow {
        self.open(ip(SECOND_CLIENT), AddressId(7), false).0
    }

    /// Opens a subflow from `local`; returns it as seen by the client and by the server.
    fn open(&mut self, local: IpAddr, local_id: AddressId, backup: bool) -> (Subflow, Subflow) {
        let (token, remote) = (self.client_token, self.listener);
        let command = Command::CreateSubflow { token, local_id, local, if_index: 1, remote, backup };
        self.commands.send(&command).unwrap();
        let (mut ours, mut peers) = (None, None);
        while ours.is_none() || peers.is_none() {
            let (token, subflow) = until(&mut self.events, |event| match event {
                Event::SubflowEstablished { token, subflow } => Some((token, subflow)),
                _ => None,
            });
            *(if token == self.client_token { &mut ours } else { &mut peers }) = Some(subflow);
        }
        let (ours, peers) = (ours.unwrap(), peers.unwrap());
        assert_eq!((peers.local, peers.remote), (ours.remote, ours.local));
        (ours, peers)
    }
}

/// The result of `select` for the first event for which it has one.
fn until<T>(events: &mut Subscription<Event>, mut select: impl FnMut(Event) -> Option<T>) -> T {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(found) = events.recv(Duration::from_millis(20)).unwrap().and_then(&mut select) {
            return found;
        }
    }
    panic!("the event did not arrive");
}

#[test]
fn the_probe_succeeds_on_this_kernel() {
    in_namespace(|| probe().unwrap());
}

#[test]
fn a_connection_is_reported_at_both_endpoints() {
    in_namespace(|| {
        let connected = Connected::new();
        assert_eq!(connected.first.local.ip(), ip(CLIENT));
        assert_eq!(connected.first.remote, connected.listener);
        assert_eq!((connected.first.local_id, connected.first.remote_id), (AddressId(0), AddressId(0)));
        assert_ne!(connected.client_token, connected.server_token);
    });
}

#[test]
fn a_closed_connection_is_reported() {
    in_namespace(|| {
        let Connected { client, server, client_token, mut events, .. } = Connected::new();
        drop((client, server));
        until(&mut events, |event| (event == Event::Closed { token: client_token }).then_some(()));
    });
}

#[test]
fn a_subflow_is_opened_with_the_requested_address_id() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let subflow = connected.join();
        assert_eq!(subflow.local.ip(), ip(SECOND_CLIENT));
        assert_eq!(subflow.local_id, AddressId(7));
        assert!(!subflow.backup);
    });
}

#[test]
fn the_backup_flag_is_set_and_cleared_at_the_peer() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let subflow = connected.join();
        for backup in [true, false] {
            let (token, local, remote) = (connected.client_token, subflow.local, subflow.remote);
            connected.commands.send(&Command::SetBackup { token, local, remote, backup }).unwrap();
            let server = connected.server_token;
            let changed = until(&mut connected.events, |event| match event {
                Event::SubflowPriority { token, subflow } if token == server => Some(subflow),
                _ => None,
            });
            assert_eq!((changed.local, changed.remote, changed.backup), (remote, local, backup));
        }
    });
}

/// The flag in the event is the peer's request; sock_diag shows the effective flag at both endpoints.
#[test]
fn a_subflow_opened_as_backup_is_reported_as_backup_only_at_the_peer() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let (ours, peers) = connected.open(ip(SECOND_CLIENT), AddressId(2), true);
        assert!(!ours.backup && peers.backup);
        let mut diag = Diag::open().unwrap();
        assert!(diag.subflow(ours.local, ours.remote).unwrap().unwrap().subflow.backup);
        assert!(diag.subflow(peers.local, peers.remote).unwrap().unwrap().subflow.backup);
    });
}

#[test]
fn the_first_subflow_can_be_reopened() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let (token, Subflow { local, remote, .. }) = (connected.client_token, connected.first);
        connected.join();
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        let (reopened, _) = connected.open(ip(CLIENT), AddressId(0), false);
        assert_eq!((reopened.local.ip(), reopened.remote), (local.ip(), remote));
        assert_eq!(reopened.local_id, AddressId(0));
    });
}

/// Whichever endpoint closes its direction, even though the other direction stays open.
#[test]
fn a_half_closed_connection_rejects_further_subflows() {
    in_namespace(|| half_closed(true));
    in_namespace(|| half_closed(false));
}

fn half_closed(at_client: bool) {
    let mut connected = Connected::new();
    let (client, server) = (&connected.client, &connected.server);
    let (mut closer, mut other) = if at_client { (client, server) } else { (server, client) };
    closer.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    other.read_to_end(&mut rest).unwrap();
    let command = create_second(&connected);
    let error = connected.commands.send(&command).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOTCONN));
    other.write_all(b"still").unwrap();
    closer.read_exact(&mut [0; 5]).unwrap_or_else(|cause| panic!("{at_client}: {cause}"));
}

/// The client has no subflow over which it could learn that the server has closed, so it
/// first considers the new subflow established.
#[test]
fn a_join_to_a_server_that_has_closed_is_reset() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let (token, Subflow { local, remote, .. }) = (connected.client_token, connected.first);
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        until(&mut connected.events, |event| match event {
            Event::SubflowClosed { token, .. } => (token == connected.server_token).then_some(()),
            _ => None,
        });
        connected.server.shutdown(Shutdown::Write).unwrap();
        let command = create_second(&connected);
        connected.commands.send(&command).unwrap();
        let closed = until(&mut connected.events, |event| match event {
            Event::SubflowClosed { token: closed, subflow, .. } if closed == token => Some(subflow.local.ip()),
            _ => None,
        });
        assert_eq!(closed, ip(SECOND_CLIENT));
        let connections = Diag::open().unwrap().connections().unwrap();
        assert!(connections.iter().all(|connection| connection.subflows.is_empty()), "{connections:?}");
    });
}

/// A command that creates a subflow from `SECOND_CLIENT`.
fn create_second(connected: &Connected) -> Command {
    let (token, remote, local) = (connected.client_token, connected.listener, ip(SECOND_CLIENT));
    Command::CreateSubflow { token, local_id: AddressId(7), local, if_index: 1, remote, backup: false }
}

#[test]
fn a_destroyed_subflow_is_reported_as_closed() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let Subflow { local, remote, .. } = connected.join();
        let token = connected.client_token;
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        until(&mut connected.events, |event| match event {
            Event::SubflowClosed { token: closed, subflow, .. } => {
                (closed == token && subflow.local == local).then_some(())
            }
            _ => None,
        });
        let connections = Diag::open().unwrap().connections().unwrap();
        let connection = connections.iter().find(|found| found.token == token).unwrap();
        assert_eq!(connection.subflows.len(), 1);
    });
}

#[test]
fn an_aborted_subflow_leaves_no_socket_and_the_connection_goes_on() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let Subflow { local, remote, .. } = connected.join();
        let (mut diag, token) = (Diag::open().unwrap(), connected.client_token);
        diag.abort(local, remote).unwrap();
        until(&mut connected.events, |event| match event {
            Event::SubflowClosed { token: closed, subflow, .. } => {
                (closed == token && subflow.local == local).then_some(())
            }
            _ => None,
        });
        assert!(diag.socket(local, remote).unwrap().is_none());
        assert_eq!(diag.abort(local, remote).unwrap_err().errno(), Some(Errno::ENOENT));
        connected.client.write_all(b"still").unwrap();
        connected.server.read_exact(&mut [0; 5]).unwrap();
    });
}

#[test]
fn a_destroyed_subflow_whose_path_is_gone_leaves_no_socket() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let Subflow { local, remote, .. } = connected.join();
        let (mut diag, token) = (Diag::open().unwrap(), connected.client_token);
        assert!(diag.socket(local, remote).unwrap().is_some());
        Wiring::open().unwrap().remove_address(1, ip(SECOND_CLIENT), 32).unwrap();
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        assert!(diag.socket(local, remote).unwrap().is_some(), "its FIN is not acknowledged");
        diag.reset_destroyed(local, remote).unwrap();
        assert_eq!(diag.socket(local, remote).unwrap().is_none(), is_linux(6, 12));
    });
}

#[test]
fn a_subflow_of_a_dual_stack_socket_is_destroyed_too() {
    in_namespace(|| {
        let (from, to) = ("::ffff:10.1.0.1", "::ffff:10.2.0.1");
        let mut connected = Connected::between(Domain::IPV6, ip(from), ip(to));
        let Subflow { local, remote, .. } = connected.first;
        assert_eq!((local.ip(), remote.ip()), (ip(CLIENT), ip(SERVER)));
        let diag = Diag::open().unwrap().subflow(local, remote).unwrap().unwrap();
        assert_eq!(diag.token_local, connected.client_token);
        connected.join();
        let token = connected.client_token;
        connected.commands.send(&Command::SetBackup { token, local, remote, backup: true }).unwrap();
        assert!(Diag::open().unwrap().subflow(local, remote).unwrap().unwrap().subflow.backup);
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        until(&mut connected.events, |event| match event {
            Event::SubflowClosed { token: closed, subflow, .. } => {
                (closed == token && subflow.local == local).then_some(())
            }
            _ => None,
        });
    });
}

#[test]
fn announced_and_withdrawn_addresses_reach_the_peer() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let (token, local_id) = (connected.client_token, AddressId(5));
        let local = SocketAddr::new(ip(SECOND_CLIENT), 0);
        connected.commands.send(&Command::Announce { token, local_id, local }).unwrap();
        let server = connected.server_token;
        let announced = until(&mut connected.events, |event| match event {
            Event::Announced { token, remote_id, remote } if token == server => Some((remote_id, remote.ip())),
            _ => None,
        });
        assert_eq!(announced, (local_id, ip(SECOND_CLIENT)));
        connected.commands.send(&Command::Withdraw { token, local_id }).unwrap();
        let removed = Event::Removed { token: server, remote_id: local_id };
        until(&mut connected.events, |event| (event == removed).then_some(()));
    });
}

#[test]
fn sock_diag_shows_both_subflows_under_the_token_of_the_events() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let joined = connected.join();
        let mut diag = Diag::open().unwrap();
        let connections = diag.connections().unwrap();
        assert_eq!(connections.len(), 2);
        for (token, server_side) in [(connected.client_token, false), (connected.server_token, true)] {
            let connection = connections.iter().find(|found| found.token == token).unwrap();
            assert_eq!(connection.server_side, Some(server_side));
            assert_eq!(connection.subflows.len(), 2);
        }
        let exact = diag.subflow(joined.local, joined.remote).unwrap().unwrap();
        assert_eq!(exact.subflow, joined);
        assert_eq!((exact.token_local, exact.token_remote), (connected.client_token, connected.server_token));
        assert_eq!(exact.tcp.state, TcpState::Established);
        assert!(exact.tcp.cwnd > 0 && !exact.tcp.rtt.is_zero());
        assert!(exact.mptcp.joined() && exact.mptcp.opened_here());
        let Subflow { local, remote, .. } = joined;
        let command = Command::SetBackup { token: connected.client_token, local, remote, backup: true };
        connected.commands.send(&command).unwrap();
        assert!(diag.subflow(local, remote).unwrap().unwrap().subflow.backup);
        assert_eq!(diag.subflow(local, SocketAddr::new(remote.ip(), 1)).unwrap(), None);
    });
}

#[test]
fn a_subflow_bound_to_an_interface_is_found() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let mut diag = Diag::open().unwrap();
        let first = connected.first;
        assert!(diag.subflow(first.local, first.remote).unwrap().is_some());
        let bound = connected.join();
        for subflow in [bound, first] {
            let found = diag.subflow(subflow.local, subflow.remote).unwrap().unwrap();
            assert_eq!(found.subflow, subflow);
        }
    });
}

#[test]
fn sock_diag_counts_the_bytes_of_plain_tcp() {
    in_namespace(|| {
        let listener = std::net::TcpListener::bind((ip(SERVER), 0)).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[0; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let mut diag = Diag::open().unwrap();
        let addresses = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let socket = diag.socket(addresses.0, addresses.1).unwrap().unwrap();
        assert_eq!((socket.local, socket.remote), addresses);
        assert_eq!((socket.tcp.bytes_acked, socket.tcp.bytes_sent), (1001, 1000), "the SYN counts as one");
        assert!(socket.mptcp.is_none());
        let peer = diag.socket(addresses.1, addresses.0).unwrap().unwrap();
        assert_eq!(peer.tcp.bytes_received, 1000);
        assert_eq!(diag.sockets().unwrap().len(), 2);
    });
}

#[test]
fn a_rejection_includes_the_kernels_message() {
    in_namespace(|| {
        select_path_manager(PathManager::Kernel).unwrap();
        let listening = mptcp(Domain::IPV4);
        listening.bind(&"0.0.0.0:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listening.listen(8).unwrap();
        let port = listening.local_addr().unwrap().as_socket().unwrap().port();
        let client = mptcp(Domain::IPV4);
        client.connect(&SocketAddr::new(ip(SERVER), port).into()).unwrap();
        let token = Diag::open().unwrap().connections().unwrap()[0].token;
        let mut commands = CommandSocket::open().unwrap();
        let command = Command::Withdraw { token, local_id: AddressId(3) };
        let error = commands.send(&command).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EINVAL));
        let sentence = error.to_string();
        assert!(sentence.starts_with("while asking the kernel to withdraw an address: "), "{sentence}");
        assert!(sentence.to_lowercase().contains("userspace pm not selected"), "{sentence}");
        let unknown = commands.send(&Command::Withdraw { token: Token(1), local_id: AddressId(3) }).unwrap_err();
        assert!(unknown.errno().is_some(), "{unknown}");
    });
}

#[test]
fn endpoints_and_limits_read_back_as_set() {
    in_namespace(|| {
        let mut socket = EndpointSocket::open().unwrap();
        let limits = Limits { subflows: 8, add_addr_accepted: 8 };
        socket.set_limits(limits).unwrap();
        assert_eq!(socket.limits().unwrap(), limits);
        let error = socket.set_limits(Limits { subflows: 9, ..limits }).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EINVAL));
        let first = Endpoint { id: Some(AddressId(3)), if_index: 1, ..Endpoint::subflow(ip(CLIENT)) };
        let second =
            Endpoint { id: Some(AddressId(4)), backup: true, fullmesh: true, ..Endpoint::subflow(ip(SECOND_CLIENT)) };
        socket.add(&first).unwrap();
        socket.add(&second).unwrap();
        assert!(socket.add(&first).is_err());
        assert_eq!(socket.list().unwrap(), [first, second]);
        socket.set_flags(first.address, true, false).unwrap();
        assert_eq!(socket.list().unwrap()[0], Endpoint { backup: true, ..first });
        socket.remove(AddressId(3)).unwrap();
        assert_eq!(socket.list().unwrap(), [second]);
        socket.flush().unwrap();
        assert_eq!(socket.list().unwrap(), []);
    });
}

#[test]
fn changes_of_links_and_addresses_are_reported() {
    in_namespace(|| {
        let (present, mut monitor) = links::monitor().unwrap();
        let up = present.iter().find_map(|notice| match notice {
            Notice::Link(link) if link.name == "lo" => Some(link.clone()),
            _ => None,
        });
        assert!(up.is_some_and(|lo| lo.up && lo.present && lo.if_index == 1));
        let has = |notices: &[Notice], wanted| {
            notices
                .iter()
                .any(|notice| matches!(notice, Notice::Address(event) if event.address == wanted && event.usable))
        };
        assert!(has(&present, ip(CLIENT)));
        runtime().block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            handle.address().add(1, ip("10.9.0.1"), 24).execute().await.unwrap();
            let down = rtnetlink::LinkUnspec::new_with_index(1).down().build();
            handle.link().set(down).execute().await.unwrap();
        });
        let mut notices = Vec::new();
        while let Some(notice) = monitor.recv(Duration::from_millis(50)).unwrap() {
            notices.push(notice);
        }
        assert!(has(&notices, ip("10.9.0.1")));
        assert!(notices.iter().any(|notice| matches!(notice, Notice::Link(link) if link.if_index == 1 && !link.up)));
    });
}

#[test]
fn the_same_events_arrive_in_tokio() {
    in_namespace(|| {
        select_path_manager(PathManager::UserSpace).unwrap();
        runtime().block_on(async {
            let mut stream = path_manager::events().unwrap().into_stream().unwrap();
            let wait = Duration::from_millis(20);
            assert!(tokio::time::timeout(wait, stream.next()).await.is_err(), "no event yet");
            for _ in 0..3 {
                let listening = mptcp(Domain::IPV4);
                listening.bind(&"0.0.0.0:0".parse::<SocketAddr>().unwrap().into()).unwrap();
                listening.listen(8).unwrap();
                assert!(matches!(stream.next().await.unwrap(), Event::ListenerCreated { .. }));
                drop(listening);
                assert!(matches!(stream.next().await.unwrap(), Event::ListenerClosed { .. }));
            }
        });
    });
}

#[test]
fn an_overrun_is_reported_once_and_then_only_new_events_follow() {
    in_namespace(|| {
        select_path_manager(PathManager::UserSpace).unwrap();
        let mut events = path_manager::events().unwrap();
        socket2::SockRef::from(&events).set_recv_buffer_size(1).unwrap();
        let listen = || {
            let listening = mptcp(Domain::IPV4);
            listening.bind(&"0.0.0.0:0".parse::<SocketAddr>().unwrap().into()).unwrap();
            listening.listen(1).unwrap();
            listening.local_addr().unwrap().as_socket().unwrap()
        };
        for _ in 0..100 {
            listen();
        }
        let error = (0..MAX_ATTEMPTS).find_map(|_| events.try_recv().err());
        assert!(matches!(error, Some(EventError::Overrun)), "{error:?}");
        assert_eq!(events.try_recv().unwrap(), None);
        let local = listen();
        assert_eq!(events.try_recv().unwrap(), Some(Event::ListenerCreated { local }));
    });
}

#[test]
fn a_connection_without_subflows_is_found_and_can_be_joined_again() {
    in_namespace(|| {
        let mut connected = Connected::new();
        let (token, Subflow { local, remote, .. }) = (connected.client_token, connected.first);
        connected.commands.send(&Command::DestroySubflow { token, local, remote, lost: false }).unwrap();
        let mut diag = Diag::open().unwrap();
        let found = diag.connections().unwrap().into_iter().find(|found| found.token == token).unwrap();
        assert_eq!((found.local, found.remote), (local, remote));
        assert_eq!((found.server_side == Some(true), found.subflows.len()), (false, 0));
        connected.join();
        (&connected.client).write_all(b"again").unwrap();
        let mut received = [0; 5];
        connected.server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"again");
    });
}

#[test]
fn a_connection_that_fell_back_to_tcp_is_not_listed_as_mptcp() {
    in_namespace(|| {
        let listener = std::net::TcpListener::bind((ip(SERVER), 0)).unwrap();
        let client = mptcp(Domain::IPV4);
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let mut diag = Diag::open().unwrap();
        assert_eq!(diag.connections().unwrap(), []);
        assert_eq!(diag.sockets().unwrap().len(), 2);
    });
}
