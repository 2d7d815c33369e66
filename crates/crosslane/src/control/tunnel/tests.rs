//! The socket's rules, with both endpoints in this process.

use std::os::unix::net::UnixListener;
use std::thread;

use proptest::prelude::*;

use super::server::{MAX_CLIENTS, Server, next, read};
use super::*;

/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// An interface name used by no other test.
fn named(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

/// A status with this number of vehicles, more than 1 kB each.
fn status(peers: usize, mode: Mode) -> Status {
    let name = |number: usize| format!("vehicle {number} {}", "x".repeat(1000));
    let peer = |number| PeerStatus {
        name: name(number),
        address: None,
        mode,
        last_seen_s: None,
        mtu_bytes: 1432,
        paths: vec![],
    };
    let peers = (0..peers).map(peer).collect();
    Status { interface: "crosslane0".into(), role: "gateway".into(), encrypted: true, mtu_bytes: 1432, peers }
}

/// Runs `work` while requests are answered as by an agent: with a status of
/// `peers`, except for one mode, which is rejected.
fn answered<T: Send + 'static>(interface: &str, peers: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    let answer = |mode: Option<Mode>| match mode {
        Some(Mode::Standby) => Err(Error::usage("changing it", "this one does not", "leave it")),
        mode => Ok(status(peers, mode.unwrap_or_default())),
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut server = Server::open(interface).unwrap();
        let mut work = tokio::task::spawn_blocking(work);
        loop {
            tokio::select! {
                        done = &mut work => return done.unwrap(),
                        request = next(Some(&mut server)) => {
            let mode = request.mode();
            request.answer(answer(mode));
                        }
                    }
        }
    })
}

fn connect(interface: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&address(interface).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// The error message of a rejection.
fn rejection(stream: &UnixStream) -> String {
    let mut reply = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut reply).unwrap();
    match serde_json::from_slice(&reply) {
        Ok(Reply::Refused { error }) => error,
        other => panic!("{other:?} of {:?}", String::from_utf8_lossy(&reply)),
    }
}

/// Runs `work` on a separate thread as another user; `None` if we are not root.
fn as_other_user<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let user = i64::from(UNPRIVILEGED);
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
    let query = move |mode| query(&of, Request { mode });
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
fn an_invalid_request_is_answered_with_an_error_and_the_connection_is_closed() {
    let long = format!("{{\"mode\": \"{}\"}}", "x".repeat(MAX_REQUEST_BYTES));
    let cases = [
        ("{", "EOF"),
        ("", "EOF"),
        ("\u{fffd}\0\u{7f}", "expected value"),
        ("{}x", "trailing"),
        ("{\"mood\":\"redundant\"}", "unknown field `mood`"),
        ("{\"mode\":\"fast\"}", "unknown variant `fast`"),
        (&long, "more than 1024 bytes"),
        (&long.repeat(1000), "more than 1024 bytes"),
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
                sentence.starts_with("while querying the tunnel: ") && sentence.contains(word),
                "{word}: {sentence}"
            );
            assert!(sentence.contains("; ") && !sentence.contains('\n'), "{sentence}");
        }
        assert!(query(&of, Request::default()).is_ok());
    });
}

#[test]
fn the_ninth_client_is_rejected_and_silent_clients_are_disconnected() {
    let name = named("ninth");
    let of = name.clone();
    answered(&name, 1, move || {
        let silent: Vec<UnixStream> = (0..MAX_CLIENTS).map(|_| connect(&of)).collect();
        let error = query(&of, Request::default()).unwrap_err().to_string();
        assert_eq!(error, "while querying the tunnel: 8 other clients are connected; retry in a moment");
        for mut stream in silent {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "it is closed");
        }
        assert!(query(&of, Request::default()).is_ok());
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
        assert_eq!(query(&of, Request::default()).unwrap().peers.len(), 2000);
        drop(unread);
    });
}

#[test]
fn another_user_is_rejected() {
    let name = named("unknown");
    let of = name.clone();
    let result = answered(&name, 1, move || as_other_user(move || query(&of, Request { mode: Some(Mode::PerFlow) })));
    if let Some(result) = result {
        let sentence = "while querying the tunnel: only root and the agent's own user may; \
                        run this command as one of them, as with `sudo`";
        assert_eq!(result.unwrap_err().to_string(), sentence);
    }
}

#[test]
fn a_process_of_another_user_at_the_agents_address_is_not_trusted() {
    let name = named("imposter");
    let of = name.clone();
    let imposter = as_other_user(move || UnixListener::bind_addr(&address(&of).unwrap()).unwrap());
    if imposter.is_some() {
        let error = query(&name, Request::default()).unwrap_err().to_string();
        assert!(
            error.ends_with("user 65534 runs it, or another program at its address; run this command as that user")
        );
    }
}

#[test]
fn an_agent_that_does_not_answer_is_reported() {
    let name = named("hangs");
    let hangs = UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
    let error = query(&name, Request::default()).unwrap_err();
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
        runtime.block_on(async { Server::open(&of).map(drop) }).unwrap_err().to_string()
    });
    let begin = format!("while listening for requests to the tunnel {name:?}: Address already in use");
    assert!(error.starts_with(&begin) && error.contains("; end the process that listens"), "{error}");
}

#[test]
fn a_path_of_another_endpoint_is_named_by_its_number() {
    assert_eq!(path_name(&["lte", "its-g5"], PathId(1)), "its-g5");
    assert_eq!(path_name(&["lte"], PathId(1)), "1");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(prop::num::u8::ANY, 0..200)) {
        prop_assert!(read(&bytes).is_err() || !bytes.is_empty());
    }
}
