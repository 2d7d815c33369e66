//! The beginning of a connection to a receiver of files: arbitrary bytes, in the clear and with keys, and those of senders
//! that have a key.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crosslane::clock::Clock;
use crosslane::transfer::multipath::keys::ReceiverKeys;
use crosslane::transfer::multipath::receiving::{Sender, greet};
use crosslane::tunnel::security::initiator;
use crosslane_core::transfer::multipath::frame::{ENCRYPTED_PREFACE, GREETING_BYTES, Greeting};
use socket2::SockRef;

#[path = "gateway.rs"]
#[allow(dead_code)]
mod gateway;

const PROLOGUE: &[u8] = b"crosslane transfer 4";
const NOISE_BYTES: [usize; 2] = [96, 48];
/// More would fill the socket's buffer before the receiver reads.
const MAX_BYTES: usize = 4096;

/// Runs one input; its first byte selects the sender.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let rest = &rest[..rest.len().min(MAX_BYTES)];
    let greeting = Greeting::parse(rest).ok().flatten();
    match kind % 4 {
        0 => assert_eq!(receive(false, |client| begin(client, rest)), greeting.map(|found| (None, found))),
        // A sender without a key is never accepted.
        1 => assert_eq!(receive(true, |client| begin(client, rest)), None),
        // The sender's first record is its greeting, and nothing else.
        2 => {
            let known = Some(gateway::key(1).public());
            let expected = greeting.filter(|_| rest.len() == GREETING_BYTES).map(|found| (known, found));
            assert_eq!(receive(true, |client| agree(client, 1, rest, true)), expected);
        }
        _ => {
            assert_eq!(receive(true, |client| agree(client, 1, rest, false)), None);
            assert_eq!(receive(true, |client| agree(client, 2, rest, true)), None, "its key is not known");
        }
    }
}

type Found = (Option<crosslane::tunnel::security::PublicKey>, Greeting);

/// What a receiver, with keys or without, finds on the connection of this sender.
fn receive(has_keys: bool, send: impl FnOnce(&mut TcpStream) + Send) -> Option<Found> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    // Else its port is taken for a minute.
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("an option of TCP");
    let keys = ReceiverKeys { own: gateway::key(0), senders: [gateway::key(1).public()].into() };
    let keys = Some(&keys).filter(|_| has_keys);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            send(&mut client);
            client
        });
        let greeted = greet(server.into(), keys, Clock::start(), &AtomicBool::new(false));
        let found = match greeted {
            Ok((Sender { key, transfer }, joined)) => Some((key, Greeting { transfer, path: joined.path })),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                None
            }
        };
        assert!(sender.join().is_ok(), "the sender failed");
        found
    })
}

/// A receiver that has found a fault may have closed the connection.
fn begin(client: &mut TcpStream, bytes: &[u8]) {
    drop(client.write_all(bytes).and_then(|()| client.shutdown(Shutdown::Write)));
}

/// Agrees on keys with the receiver, and then sends these bytes, in a record if `is_sealed`.
fn agree(client: &mut TcpStream, own: usize, bytes: &[u8], is_sealed: bool) {
    let mut noise = initiator(&gateway::key(own), &gateway::key(0).public(), PROLOGUE).expect("valid keys");
    let mut wire = ENCRYPTED_PREFACE.to_vec();
    wire.resize(ENCRYPTED_PREFACE.len() + NOISE_BYTES[0], 0);
    noise.write_message(&[], &mut wire[ENCRYPTED_PREFACE.len()..]).expect("a first message");
    client.write_all(&wire).expect("an open connection");
    let mut answer = vec![0; ENCRYPTED_PREFACE.len() + NOISE_BYTES[1]];
    client.read_exact(&mut answer).expect("an answer");
    noise.read_message(&answer[ENCRYPTED_PREFACE.len()..], &mut []).expect("the answer of the receiver");
    let mut noise = noise.into_transport_mode().expect("a complete handshake");
    let mut sealed = vec![0; bytes.len() + 16];
    noise.write_message(bytes, &mut sealed).expect("a record");
    let record = [&(sealed.len() as u16).to_be_bytes()[..], &sealed].concat();
    begin(client, if is_sealed { &record } else { bytes });
}
