//! The socket's rules, with both ends in this process.

use std::os::unix::net::UnixListener;
use std::thread;

use proptest::prelude::*;

use super::server::{MAX_ASKERS, Server, next, read};
use super::*;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// An interface's name that no other test has.
fn named(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

/// A status of so many vehicles, more than 1 kB each.
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

/// Does `work` while what is asked is answered in the agent's manner: a status
/// of `peers`, but for one mode that is refused.
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
                ask = next(Some(&mut server)) => {
                    let mode = ask.mode();
                    ask.answer(answer(mode));
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

/// The sentence with which somebody is refused.
fn refusal(stream: &UnixStream) -> String {
    let mut reply = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut reply).unwrap();
    match serde_json::from_slice(&reply) {
        Ok(Reply::Refused { error }) => error,
        other => panic!("{other:?} of {:?}", String::from_utf8_lossy(&reply)),
    }
}

/// Does `work` on a thread of its own as somebody else; `None` if we are not root.
fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let user = i64::from(NOBODY);
    let become_nobody = move || {
        // SAFETY: the system call has no memory to touch, and changes this thread alone.
        let failed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) } != 0;
        (!failed).then(work)
    };
    let done = thread::spawn(become_nobody).join().unwrap();
    if done.is_none() {
        eprintln!("not run: only root can be somebody else");
    }
    done
}

#[test]
fn a_status_is_asked_for_and_a_mode_is_changed_or_refused() {
    let name = named("asked");
    let of = name.clone();
    let ask = move |mode| ask(&of, Request { mode });
    let answers = answered(&name, 1000, move || [None, Some(Mode::PerFlow), Some(Mode::Standby)].map(ask));
    let [plain, changed, refused] = answers;
    assert_eq!(plain.unwrap(), status(1000, Mode::Aggregate));
    assert_eq!(changed.unwrap(), status(1000, Mode::PerFlow));
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.to_string().as_str(), refused.exit_code()),
        ("while changing it: this one does not; leave it", 2)
    );
}

#[test]
fn what_is_no_request_is_answered_with_one_sentence_and_the_end() {
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
            // It may hang up before all is written.
            drop(stream.write_all(format!("{bad}\n").as_bytes()));
            let sentence = refusal(&stream);
            assert!(sentence.starts_with("while asking the tunnel: ") && sentence.contains(word), "{word}: {sentence}");
            assert!(sentence.contains("; ") && !sentence.contains('\n'), "{sentence}");
        }
        assert!(ask(&of, Request::default()).is_ok());
    });
}

#[test]
fn the_ninth_is_told_so_and_who_says_nothing_is_let_go() {
    let name = named("ninth");
    let of = name.clone();
    answered(&name, 1, move || {
        let silent: Vec<UnixStream> = (0..MAX_ASKERS).map(|_| connect(&of)).collect();
        let told = ask(&of, Request::default()).unwrap_err().to_string();
        assert_eq!(told, "while asking the tunnel: 8 others are asking; try again in a moment");
        for mut stream in silent {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "it hangs up");
        }
        assert!(ask(&of, Request::default()).is_ok());
    });
}

#[test]
fn one_that_never_reads_keeps_nobody_waiting() {
    let name = named("deaf");
    let of = name.clone();
    answered(&name, 2000, move || {
        let deaf: Vec<UnixStream> = (1..MAX_ASKERS)
            .map(|_| {
                let mut stream = connect(&of);
                stream.write_all(b"{}\n").unwrap();
                stream
            })
            .collect();
        assert_eq!(ask(&of, Request::default()).unwrap().peers.len(), 2000);
        drop(deaf);
    });
}

#[test]
fn another_user_is_refused() {
    let name = named("stranger");
    let of = name.clone();
    let told = answered(&name, 1, move || as_nobody(move || ask(&of, Request { mode: Some(Mode::PerFlow) })));
    if let Some(told) = told {
        let sentence = "while asking the tunnel: only root and the agent's own user may; \
                        run this command as one of them, as with `sudo`";
        assert_eq!(told.unwrap_err().to_string(), sentence);
    }
}

#[test]
fn who_passes_for_an_agent_is_not_believed() {
    let name = named("imposter");
    let of = name.clone();
    let imposter = as_nobody(move || UnixListener::bind_addr(&address(&of).unwrap()).unwrap());
    if imposter.is_some() {
        let told = ask(&name, Request::default()).unwrap_err().to_string();
        assert!(told.ends_with("user 65534 runs it, or something that passes for it; run this command as that user"));
    }
}

#[test]
fn an_agent_that_does_not_answer_is_told() {
    let name = named("hangs");
    let hangs = UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
    let told = ask(&name, Request::default()).unwrap_err();
    assert!(told.to_string().contains(": no answer for 5 s; see whether it hangs"), "{told}");
    assert_eq!(told.exit_code(), 1);
    drop(hangs);
}

#[test]
fn a_name_that_is_taken_is_told() {
    let name = named("taken");
    let of = name.clone();
    let told = answered(&name, 1, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Server::open(&of).map(drop) }).unwrap_err().to_string()
    });
    let begin = format!("while letting people ask for the tunnel {name:?}: Address already in use");
    assert!(told.starts_with(&begin) && told.contains("; end who listens"), "{told}");
}

#[test]
fn a_path_of_another_end_has_its_number() {
    assert_eq!(path_name(&["lte", "its-g5"], PathId(1)), "its-g5");
    assert_eq!(path_name(&["lte"], PathId(1)), "1");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(prop::num::u8::ANY, 0..200)) {
        prop_assert!(read(&bytes).is_err() || !bytes.is_empty());
    }
}
