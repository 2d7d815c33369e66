//! How many senders `crosslane receive` serves, and what it tells the others.

#![allow(clippy::unwrap_used)]

mod program;
mod receiver;

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use program::{Said, crosslane};
use receiver::Receiver;
use socket2::Socket;
use tempfile::TempDir;

fn send(desk: &Path, to: &str) -> Said {
    crosslane(desk, &["send", "--to", to, "a"])
}

/// Connections from this address of the loopback interface that say nothing.
fn silent(from: [u8; 4], to: &str, count: usize) -> Vec<Socket> {
    let connect = |_| {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&to.parse::<SocketAddr>().unwrap().into()).unwrap();
        socket
    };
    (0..count).map(connect).collect()
}

#[test]
fn silent_senders_hold_few_places_and_not_for_long() {
    let desk = TempDir::new().unwrap();
    fs::write(desk.path().join("a"), [7; 1000]).unwrap();
    let receiver = Receiver::start(desk.path());
    let of_another = silent([127, 0, 0, 2], &receiver.address, 40);
    let said = send(desk.path(), &receiver.address);
    assert_eq!(said.code, Some(0), "one address has taken all places: {said:?}");
    // Until its place is free again.
    sleep(Duration::from_secs(1));
    let of_our_own = silent([127, 0, 0, 1], &receiver.address, 8);
    receiver.await_words("is rejected: it serves 8 senders of this address already; try again in a minute");
    // Until there is room to tell one more.
    sleep(Duration::from_millis(1500));
    let said = send(desk.path(), &receiver.address);
    assert_eq!(said.code, Some(1), "{said:?}");
    let sentence = "while sending: the receiver rejects the connection: it serves 8 senders of this address already; try again in a";
    assert!(said.stderr.contains(sentence), "{said:?}");
    for socket in of_our_own.iter().chain(&of_another) {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // They are hung up on, with or without words.
        let ended = (&*socket).read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|cause| cause.kind() == ErrorKind::WouldBlock), "a silent sender keeps its place");
    }
    assert_eq!(send(desk.path(), &receiver.address).code, Some(0));
    let told = receiver.end();
    assert!(told.lines().count() < 40, "{told}");
}
