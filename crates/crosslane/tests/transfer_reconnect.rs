//! Connections of `crosslane send` that break, and receivers that are killed in the middle of a file.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread::{ScopedJoinHandle, scope, sleep, spawn};
use std::time::Duration;

use crate::program::{ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane_core::transfer::multipath::frame;
use tempfile::TempDir;

/// More than the socket buffers of both endpoints hold.
const BIG: usize = 40_000_000;

fn workdir() -> (TempDir, Vec<u8>) {
    let workdir = TempDir::new().unwrap();
    let content: Vec<u8> = (0..BIG).map(|place| (place * 31 + place / 251) as u8).collect();
    fs::write(workdir.path().join("big"), &content).unwrap();
    (workdir, content)
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
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
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
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
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
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
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
