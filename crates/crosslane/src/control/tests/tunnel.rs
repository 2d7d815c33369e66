//! Requests to a tunnel, with both sides of the socket in this process.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use crosslane_core::path::PathId;
use crosslane_core::tunnel::Mode;

use super::super::client::query_tunnel;
use super::super::protocol::{MAX_CLIENTS, MAX_LINE_BYTES, RESERVED_CLIENTS, Reply};
use super::super::server::{Groups, Server};
use super::super::status::{PeerStatus, Status, Tunnels, UnitStatus, path_name};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// An interface name used by no other test.
fn named(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

/// A status with this number of vehicles, more than 1 kB each.
fn status(peers: usize, mode: Mode) -> Tunnels {
    let name = |number: usize| format!("vehicle {number} {}", "x".repeat(1000));
    let peer = |number| PeerStatus {
        name: name(number),
        address: None,
        mode,
        last_seen_s: None,
        problem: None,
        mtu_bytes: 1441,
        paths: vec![],
    };
    let peers = (0..peers).map(peer).collect();
    let (interface, role) = ("crosslane0".into(), "gateway".into());
    let tunnel = Some(Status { interface, role, encrypted: true, mtu_bytes: 1441, peers });
    Tunnels { tunnel, units: vec![] }
}

/// Runs `work` while requests are answered as by an agent: with a status of
/// `peers`, except for one mode, which is rejected.
fn answered<T: Send + 'static>(interface: &str, peers: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    answered_with(None, interface, peers, work)
}

/// The same with a group that may read.
fn answered_with<T: Send + 'static>(
    group: Option<u32>,
    interface: &str,
    peers: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let answer = move |mode: Option<Mode>| match mode {
        Some(Mode::Standby) => Err(Error::usage("changing it", "this one does not", "leave it")),
        mode => Ok(status(peers, mode.unwrap_or_default())),
    };
    answered_by(group, interface, answer, work)
}

fn answered_by<T: Send + 'static>(
    group: Option<u32>,
    interface: &str,
    answer: impl Fn(Option<Mode>) -> Result<Tunnels>,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut server = Server::new(Clock::start(), Groups { senders: group, viewers: None });
        server.listen_for_tunnel(interface).unwrap();
        let mut work = tokio::task::spawn_blocking(work);
        loop {
            tokio::select! {
                done = &mut work => return done.unwrap(),
                update = server.next() => {
                    update.requests.iter().for_each(|request| server.answer(request, answer(request.mode)));
                }
            }
        }
    })
}

fn address(interface: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("crosslane/{interface}")).unwrap()
}

fn connect(interface: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&address(interface)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// The error message of a rejection.
fn rejection(stream: &UnixStream) -> String {
    let mut reply = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut reply).unwrap();
    match serde_json::from_slice(&reply) {
        Ok(Reply::Error(error)) => error,
        other => panic!("{other:?} of {:?}", String::from_utf8_lossy(&reply)),
    }
}

/// Runs `work` on a separate thread as another user; `None` if we are not root.
pub(super) fn as_other_user<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    as_user(UNPRIVILEGED, work)
}

fn as_user<T: Send + 'static>(user: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let user = i64::from(user);
    let change_user = move || {
        // SAFETY: the system call accesses no memory, and affects this thread only.
        let failed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } != 0;
        (!failed).then(work)
    };
    let done = thread::spawn(change_user).join().unwrap();
    if done.is_none() {
        eprintln!("not run: only root can change the user");
    }
    done
}

#[test]
fn a_status_is_returned_and_a_mode_is_changed_or_rejected() {
    let name = named("query");
    let of = name.clone();
    let query = move |mode| query_tunnel(&of, mode);
    let answers = answered(&name, 1000, move || [None, Some(Mode::PerFlow), Some(Mode::Standby)].map(query));
    let [plain, changed, rejected] = answers;
    assert_eq!(plain.unwrap(), status(1000, Mode::Aggregate));
    assert_eq!(changed.unwrap(), status(1000, Mode::PerFlow));
    let rejected = rejected.unwrap_err();
    assert_eq!(
        (rejected.to_string().as_str(), rejected.exit_code()),
        ("while changing it: this one does not; leave it", 2)
    );
}

#[test]
fn an_agent_with_tunnels_to_units_only_answers_with_these() {
    let name = named("units");
    let of = name.clone();
    let unit = UnitStatus {
        name: "rsu1".into(),
        station: 1001,
        slot: Some(0),
        kind: "gre".into(),
        belief: "fading".into(),
        rssi_dbm: -80.0,
        last_cam_s: 0.5,
        has_tunnel: true,
        liveness: None,
        min_rtt_ms: None,
        sent_bytes: Some(1),
        received_bytes: None,
    };
    for tunnel in [None, status(1, Mode::Aggregate).tunnel] {
        let expected = Tunnels { tunnel, units: vec![unit.clone()] };
        let (of, sent) = (of.clone(), expected.clone());
        let received = answered_by(None, &name, move |_| Ok(sent.clone()), move || query_tunnel(&of, None));
        assert_eq!(received.unwrap(), expected);
    }
}

#[test]
fn an_invalid_request_is_answered_with_an_error_and_the_connection_is_closed() {
    let long = format!("{{\"mode\": \"{}\"}}", "x".repeat(MAX_LINE_BYTES));
    let cases = [
        ("{", "EOF"),
        ("", "EOF"),
        ("\u{fffd}\0\u{7f}", "expected value"),
        ("{}x", "trailing"),
        ("{\"objects\":[]}", "accepts no demand"),
        ("{\"mood\":\"redundant\"}", "unknown field `mood`"),
        ("{\"mode\":\"fast\"}", "unknown variant `fast`"),
        (&long, "more than 65536 bytes"),
        (&long.repeat(10), "more than 65536 bytes"),
    ];
    let cases = cases.map(|(bad, word)| (bad.to_owned(), word));
    let name = named("bad");
    let of = name.clone();
    answered(&name, 1, move || {
        for (bad, word) in cases {
            let mut stream = connect(&of);
            // The server may close before everything is written.
            drop(stream.write_all(format!("{bad}\n").as_bytes()));
            let sentence = rejection(&stream);
            assert!(
                sentence.starts_with("while requesting from the agent: ") && sentence.contains(word),
                "{word}: {sentence}"
            );
            assert!(sentence.contains("; ") && !sentence.contains('\n'), "{sentence}");
        }
        assert!(query_tunnel(&of, None).is_ok());
    });
}

#[test]
fn a_client_beyond_the_maximum_is_rejected_until_another_ends() {
    let name = named("beyond");
    let of = name.clone();
    answered(&name, 1, move || {
        let silent: Vec<UnixStream> = (0..MAX_CLIENTS + RESERVED_CLIENTS).map(|_| connect(&of)).collect();
        let error = query_tunnel(&of, None).unwrap_err().to_string();
        assert_eq!(error, "while requesting from the agent: 24 clients are connected; end one of them");
        drop(silent);
        assert!((0..100).any(|_| query_tunnel(&of, None).is_ok()));
    });
}

#[test]
fn a_client_that_never_reads_blocks_no_other() {
    let name = named("unread");
    let of = name.clone();
    answered(&name, 2000, move || {
        let unread: Vec<UnixStream> = (1..MAX_CLIENTS)
            .map(|_| {
                let mut stream = connect(&of);
                stream.write_all(b"{}\n").unwrap();
                stream
            })
            .collect();
        assert_eq!(query_tunnel(&of, None).unwrap().tunnel.map(|tunnel| tunnel.peers.len()), Some(2000));
        drop(unread);
    });
}

#[test]
fn what_a_client_requests_at_once_is_answered_once() {
    let name = named("many");
    let of = name.clone();
    answered(&name, 1, move || {
        let mut stream = connect(&of);
        stream.write_all(("{}\n".repeat(5000) + "{\"mode\": \"per-flow\"}\n{}\n").as_bytes()).unwrap();
        let replies =
            BufReader::new(&stream).lines().map(|line| serde_json::from_str::<Status>(&line.unwrap()).unwrap());
        let before = replies.take_while(|status| status.peers[0].mode != Mode::PerFlow).count();
        assert!(before < 100, "{before} replies before the last");
    });
}

#[test]
fn another_user_is_rejected() {
    let name = named("unknown");
    let of = name.clone();
    let result = answered(&name, 1, move || as_other_user(move || query_tunnel(&of, Some(Mode::PerFlow))));
    if let Some(result) = result {
        let sentence = "while requesting from the agent: user 65534 is neither root, nor the agent's, nor of \
                        service.demands_group or service.view_group; run this program as one of them, as with `sudo`";
        assert_eq!(result.unwrap_err().to_string(), sentence);
    }
}

#[test]
fn a_user_of_the_group_may_read_and_not_change() {
    let name = named("group");
    let of = name.clone();
    // Another user keeps our group.
    let group = nix::unistd::getgid().as_raw();
    let queries = move || as_other_user(move || [None, Some(Mode::PerFlow)].map(|mode| query_tunnel(&of, mode)));
    if let Some([read, change]) = answered_with(Some(group), &name, 1, queries) {
        assert_eq!(read.unwrap(), status(1, Mode::Aggregate));
        assert!(change.unwrap_err().to_string().contains("only root and the agent's own user may change it"));
    }
}

#[test]
fn root_may_ask_every_user_s_agent_and_a_user_only_root_s_and_its_own() {
    let name = named("imposter");
    let of = name.clone();
    let Some(listener) = as_other_user(move || UnixListener::bind_addr(&address(&of)).unwrap()) else { return };
    let of = name.clone();
    let error = as_user(UNPRIVILEGED - 1, move || query_tunnel(&of, None)).unwrap().unwrap_err().to_string();
    let end = "user 65534 runs it, or another program at its address; run this command as root or as that user";
    assert!(error.ends_with(end), "{error}");
    let agent = thread::spawn(move || {
        drop(listener.accept().unwrap());
        let mut stream = listener.accept().unwrap().0;
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(b"{\"units\": []}\n").unwrap();
    });
    assert_eq!(query_tunnel(&name, None).unwrap(), Tunnels { tunnel: None, units: vec![] });
    agent.join().unwrap();
}

#[test]
fn an_agent_that_does_not_answer_is_reported() {
    let name = named("hangs");
    let hangs = UnixListener::bind_addr(&address(&name)).unwrap();
    let error = query_tunnel(&name, None).unwrap_err();
    assert!(error.to_string().contains(": no answer for 5 s; check whether it hangs"), "{error}");
    assert_eq!(error.exit_code(), 1);
    drop(hangs);
}

#[test]
fn a_name_that_is_taken_is_reported() {
    let name = named("taken");
    let of = name.clone();
    let error = answered(&name, 1, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { Server::new(Clock::start(), Groups::default()).listen_for_tunnel(&of) })
            .unwrap_err()
            .to_string()
    });
    let begin = format!("while listening on @crosslane/{name}: an agent listens there");
    assert!(error.starts_with(&begin) && error.contains("; end the process that listens"), "{error}");
}

#[test]
fn a_path_of_another_endpoint_is_named_by_its_number() {
    assert_eq!(path_name(&["lte", "its-g5"], PathId(1)), "its-g5");
    assert_eq!(path_name(&["lte"], PathId(1)), "1");
}
