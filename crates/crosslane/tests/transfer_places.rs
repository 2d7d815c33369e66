//! Limits on the number of senders that `crosslane receive` serves, and its reply beyond them.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::program::{ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane_core::transfer::multipath::frame::{self, Greeting};
use socket2::Socket;
use tempfile::TempDir;

fn send(workdir: &Path, to: &str) -> ProgramOutput {
    crosslane(workdir, &["send", "--encryption", "none", "--to", to, "a"])
}

/// Connections from this loopback address that send nothing.
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
fn silent_senders_hold_few_permits_for_a_limited_time() {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("a"), [7; 1000]).unwrap();
    let receiver = Receiver::start(workdir.path());
    let other_senders = silent([127, 0, 0, 2], &receiver.address, 40);
    let output = send(workdir.path(), &receiver.address);
    assert_eq!(output.code, Some(0), "one address holds all permits: {output:?}");
    // Until the permit of the previous sender is free again.
    sleep(Duration::from_secs(1));
    let own_senders = silent([127, 0, 0, 1], &receiver.address, 8);
    receiver.await_message("is rejected: it serves 8 senders of this address already; try again in a minute");
    // Until the limit on rejection replies permits another one.
    sleep(Duration::from_millis(1500));
    let output = send(workdir.path(), &receiver.address);
    assert_eq!(output.code, Some(1), "{output:?}");
    let message = "while sending: the receiver rejects the connection: it serves 8 senders of this address already; try \
                   again in a";
    assert!(output.stderr.contains(message), "{output:?}");
    for socket in own_senders.iter().chain(&other_senders) {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The receiver closes them, with or without a reply.
        let ended = (&*socket).read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(|cause| cause.kind() == ErrorKind::WouldBlock), "a silent sender keeps its permit");
    }
    assert_eq!(send(workdir.path(), &receiver.address).code, Some(0));
    let log = receiver.end();
    assert!(log.lines().count() < 40, "{log}");
}

#[test]
fn a_flood_of_connections_that_greet_wrongly_has_few_messages() {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("a"), [7; 1000]).unwrap();
    let receiver = Receiver::start(workdir.path());
    for _ in 0..200 {
        let mut socket = TcpStream::connect(&receiver.address).unwrap();
        socket.write_all(b"x").unwrap();
        // The receiver closes it, perhaps with a reset.
        drop(socket.read_to_end(&mut Vec::new()));
    }
    assert_eq!(send(workdir.path(), &receiver.address).code, Some(0));
    let log = receiver.end();
    assert!(log.contains("crosslane: from 127.0.0.1:"), "{log}");
    assert!(log.lines().count() < 40, "{log}");
}

fn greet(to: &str, path: u8) -> TcpStream {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.write_all(&Greeting { transfer: [7; 16], path }.emit()).unwrap();
    socket
}

/// Offers files over the first connection that are all refused, and reads the receipts there.
fn offer_refused(first: &TcpStream, count: u32) {
    let mut reader = first.try_clone().unwrap();
    let reading = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let mut offers = Vec::new();
    (0..count).for_each(|number| frame::offer(&mut offers, number, 10, 0, 0, "a.part"));
    let mut writer = first;
    writer.write_all(&offers).unwrap();
    first.shutdown(std::net::Shutdown::Write).unwrap();
    drop(reading.join());
}

#[test]
fn a_sender_that_reads_no_replies_on_a_connection_loses_it_and_one_with_many_refused_files_has_few_messages() {
    let workdir = TempDir::new().unwrap();
    let receiver = Receiver::start(workdir.path());
    let first = greet(&receiver.address, 0);
    sleep(Duration::from_millis(300));
    let unread = greet(&receiver.address, 1);
    sleep(Duration::from_millis(300));
    // 131 bytes of receipt for each: more than sockets hold.
    offer_refused(&first, 100_000);
    unread.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
    let ended = loop {
        match (&unread).read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(count) => read += count,
            Err(cause) => break Err(cause.kind()),
        }
    };
    assert!(ended != Err(ErrorKind::WouldBlock) && read < 10_000_000, "{ended:?} after {read} bytes");
    let log = receiver.end();
    assert!(log.contains("names that end in .part are reserved") && log.lines().count() < 200, "{} bytes", log.len());
}
