//! Connections of `crosslane send` that break, and receivers that are killed in the middle of a file.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread::{ScopedJoinHandle, scope, sleep, spawn};
use std::time::Duration;

use crate::program::{ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane::clock::Clock;
use crosslane::transfer::connection;
use crosslane::transfer::files::{Ending, Files, Upload};
use crosslane::transfer::multipath::sending::{self, How, Path as Way};
use crosslane::transfer::source::News;
use crosslane_core::transfer::Late;
use crosslane_core::transfer::multipath::frame::{self, GREETING_BYTES};
use tempfile::TempDir;

/// More than the socket buffers of both endpoints hold.
const BIG: usize = 40_000_000;

fn workdir() -> (TempDir, Vec<u8>) {
    let workdir = TempDir::new().unwrap();
    let content: Vec<u8> = (0..BIG).map(|place| (place * 31 + place / 251) as u8).collect();
    fs::write(workdir.path().join("big"), &content).unwrap();
    (workdir, content)
}

/// Stands between sender and receiver.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    (listener, at)
}

fn send(workdir: &Path, to: &str) -> ProgramOutput {
    crosslane(workdir, &["send", "--encryption", "none", "--to", to, "big"])
}

/// Connects a sender to the receiver that `target` names, until the sender ends; the n-th connection breaks
/// after so many bytes from the sender.
fn relay(
    sender: &ScopedJoinHandle<'_, ProgramOutput>,
    listener: &TcpListener,
    limits: &[u64],
    mut target: impl FnMut(usize) -> String,
) {
    listener.set_nonblocking(true).unwrap();
    let mut count = 0;
    while !sender.is_finished() {
        let Ok((from, _)) = listener.accept() else {
            sleep(Duration::from_millis(5));
            continue;
        };
        from.set_nonblocking(false).unwrap();
        let limit = limits.get(count).copied().unwrap_or(u64::MAX);
        let onward = TcpStream::connect(target(count)).unwrap();
        count += 1;
        let (mut back_from, mut back_to) = (onward.try_clone().unwrap(), from.try_clone().unwrap());
        // It ends with the connection.
        spawn(move || drop(std::io::copy(&mut back_from, &mut back_to)));
        drop(std::io::copy(&mut (&from).take(limit), &mut &onward));
        for stream in [&from, &onward] {
            drop(stream.shutdown(if limit == u64::MAX { Shutdown::Write } else { Shutdown::Both }));
        }
    }
}

#[test]
fn a_connection_that_breaks_is_opened_again_and_the_transfer_goes_on() {
    let (workdir, content) = workdir();
    let receiver = Receiver::start(workdir.path());
    let (listener, to) = listen();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to));
        relay(&sender, &listener, &[5_000_000, 9_000_000], |_| receiver.address.clone());
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stderr.contains("the connection: its connection broke"), "{output:?}");
    });
    assert!(!receiver.end().contains("in/big.part"), "the file is whole");
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
}

#[test]
fn a_receiver_that_is_killed_and_started_again_gets_everything() {
    let (workdir, content) = workdir();
    let mut receiver = Some(Receiver::start(workdir.path()));
    let (listener, to) = listen();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to));
        relay(&sender, &listener, &[5_000_000], |count| {
            if count == 1 {
                drop(receiver.take());
                receiver = Some(Receiver::start(workdir.path()));
            }
            receiver.as_ref().unwrap().address.clone()
        });
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    });
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
}

#[test]
fn a_receiver_that_reports_more_than_was_sent_loses_its_connection() {
    let (workdir, content) = workdir();
    let receiver = Receiver::start(workdir.path());
    let (listener, to) = listen();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to));
        let mut wire = Vec::new();
        frame::welcome(&mut wire, 7);
        frame::received(&mut wire, 1_000_000);
        let mut first = listener.accept().unwrap().0;
        first.write_all(&wire).unwrap();
        relay(&sender, &listener, &[], |_| receiver.address.clone());
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(
            output.stderr.contains("its connection broke: the peer reports more pieces than were sent"),
            "{output:?}"
        );
    });
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
}

/// Passes a connection on to the receiver, until the sender has sent so many bytes.
fn pass_on(mut from: TcpStream, begin: &[u8], receiver: &str, limit: u64) -> io::Result<()> {
    let mut onward = TcpStream::connect(receiver)?;
    onward.write_all(begin)?;
    let (mut back_from, mut back_to) = (onward.try_clone()?, from.try_clone()?);
    spawn(move || drop(io::copy(&mut back_from, &mut back_to)));
    io::copy(&mut (&mut from).take(limit), &mut onward)?;
    drop(from.shutdown(Shutdown::Both));
    onward.shutdown(Shutdown::Both)
}

/// Answers in the place of the receiver, and ends.
fn answer(mut from: TcpStream, bytes: &[u8]) -> io::Result<()> {
    from.write_all(bytes)?;
    from.shutdown(Shutdown::Write)?;
    io::copy(&mut from, &mut io::sink()).map(drop)
}

/// Answers on the first path as the portal of a Wi-Fi network does.
fn portal(mut from: TcpStream, receiver: &str) -> io::Result<()> {
    let mut greeting = [0; GREETING_BYTES];
    from.read_exact(&mut greeting)?;
    match greeting[GREETING_BYTES - 1] {
        0 => answer(from, b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\n\r\n"),
        _ => pass_on(from, &greeting, receiver, u64::MAX),
    }
}

#[test]
fn a_path_on_which_something_else_answers_holds_up_no_other() {
    let (workdir, content) = workdir();
    let receiver = Receiver::start(workdir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, address) = (listener.local_addr().unwrap(), receiver.address.clone());
    spawn(move || {
        for from in listener.incoming().flatten() {
            let address = address.clone();
            spawn(move || drop(portal(from, &address)));
        }
    });
    let clock = Clock::start();
    let deadline = Some(clock.now() + Duration::from_secs(60));
    let upload = Upload { path: workdir.path().join("big"), name: "big".into(), start: clock.now(), deadline };
    let mut down = Vec::new();
    let mut files = Files::new([upload], |news, _| {
        if let News::Down(path, why) = news {
            down.push((*path, why.clone()));
        }
    });
    let paths = [0.0, 1.0].map(|unit_cost| Way { interface: None, unit_cost });
    let how = How { targets: &[to], keys: None, beliefs: None, congestion: None, late: Late::Continue };
    sending::send(&paths, &how, &mut files, clock, &AtomicBool::new(false)).unwrap();
    assert_eq!(files.all()[0].ending, Some(Ending::Stored));
    drop(files);
    let [(0, why)] = &down[..] else { panic!("{down:?}") };
    assert!(why.contains("not a Crosslane transfer of version 4"), "{why}");
    drop(receiver.end());
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
}

#[test]
fn a_receiver_that_rejects_a_connection_for_a_moment_gets_everything() {
    let (workdir, content) = workdir();
    let receiver = Receiver::start(workdir.path());
    let ((listener, to), address) = (listen(), receiver.address.clone());
    spawn(move || {
        for (place, from) in listener.incoming().flatten().enumerate() {
            let mut welcome = Vec::new();
            frame::welcome(&mut welcome, 0);
            drop(match place {
                0 => pass_on(from, &[], &address, 5_000_000),
                1..=3 => answer(from, &connection::refusal(welcome, "it serves 8 senders of this address already")),
                _ => pass_on(from, &[], &address, u64::MAX),
            });
        }
    });
    let output = send(workdir.path(), &to);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stderr.matches("it serves 8 senders").count(), 1, "{output:?}");
    drop(receiver.end());
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
}
