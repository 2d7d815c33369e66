//! Keys of `crosslane send` and `crosslane receive`: what is on the wire, and who is refused with which sentence.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use crate::program::{ProgramOutput, crosslane};
use crate::receiver::Receiver;
use tempfile::TempDir;

/// Content that no other bytes resemble.
const WORDS: &[u8] = b"the content of a secret file";

/// The keys of a sender, of a receiver and of another user.
struct World {
    workdir: TempDir,
    sender: String,
    receiver: String,
    other: String,
}

impl World {
    fn new() -> World {
        let workdir = TempDir::new().unwrap();
        let key = |name: &str| {
            let output = crosslane(workdir.path(), &["keygen", "--out", name]);
            assert_eq!(output.code, Some(0), "{output:?}");
            output.stdout.trim().to_owned()
        };
        let (sender, receiver, other) = (key("sender.key"), key("receiver.key"), key("other.key"));
        fs::write(workdir.path().join("secret"), WORDS.repeat(100_000)).unwrap();
        World { workdir, sender, receiver, other }
    }

    fn path(&self) -> &Path {
        self.workdir.path()
    }

    fn receive(&self) -> Receiver {
        let options = ["--key", "receiver.key", "--sender-key", &self.sender];
        Receiver::of(self.path(), &options, |command| command.spawn().unwrap())
    }

    fn send(&self, to: &str, options: &[&str]) -> ProgramOutput {
        crosslane(self.path(), &[&["send", "secret", "--to", to], options].concat())
    }

    /// What a sender writes to a receiver, which stores the file.
    fn recorded(&self, receiver: &Receiver) -> Vec<u8> {
        let (to, record) = relay(&receiver.address, |_, _| {});
        assert_eq!(self.send_with_keys(&to).code, Some(0));
        self.assert_stored();
        record[0].lock().unwrap().clone()
    }

    fn assert_serves(&self, receiver: &Receiver) {
        assert_eq!(self.send_with_keys(&receiver.address).code, Some(0), "it continues to serve");
        self.assert_stored();
    }

    fn send_with_keys(&self, to: &str) -> ProgramOutput {
        self.send(to, &["--key", "sender.key", "--receiver-key", &self.receiver])
    }

    fn assert_stored(&self) {
        assert!(fs::read(self.path().join("in/secret")).unwrap() == WORDS.repeat(100_000));
        assert_eq!(fs::read_dir(self.path().join("in")).unwrap().count(), 1);
        fs::remove_file(self.path().join("in/secret")).unwrap();
    }

    fn assert_nothing(&self) {
        assert_eq!(fs::read_dir(self.path().join("in")).unwrap().count(), 0);
    }
}

/// Both directions of a connection.
type Record = [Arc<Mutex<Vec<u8>>>; 2];

/// Carries connections to a receiver and records them; `change` is called with the sender's bytes and their offset.
fn relay(target: &str, change: impl Fn(usize, &mut [u8]) + Send + Clone + 'static) -> (String, Record) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (record, target) = (Record::default(), target.to_owned());
    let recorded = record.clone();
    // It ends with the test.
    spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&target).unwrap());
            for (mut from, mut to, kept, change) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap(), recorded[0].clone(), Some(change.clone())),
                (far, near, recorded[1].clone(), None),
            ] {
                spawn(move || {
                    let (mut buffer, mut offset) = ([0; 10_000], 0);
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        kept.lock().unwrap().extend_from_slice(&buffer[..count]);
                        if let Some(change) = &change {
                            change(offset, &mut buffer[..count]);
                        }
                        offset += count;
                        if to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    drop(to.shutdown(Shutdown::Write));
                });
            }
        }
    });
    (address, record)
}

fn has(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

#[test]
fn with_keys_neither_names_nor_contents_nor_keys_are_on_the_wire() {
    let world = World::new();
    let receiver = world.receive();
    let (to, record) = relay(&receiver.address, |_, _| {});
    let output = world.send_with_keys(&to);
    assert_eq!(output.code, Some(0), "{output:?}");
    world.assert_stored();
    let sent = record[0].lock().unwrap();
    assert!(sent.starts_with(b"XLANE\0\x01\x04") && sent.len() > 2_800_000);
    for words in [WORDS, b"secret", world.sender.as_bytes()] {
        assert!(!has(&sent, words) && !has(&record[1].lock().unwrap(), words));
    }
    drop(sent);
    // The same in the clear has both.
    let clear = Receiver::start(world.path());
    let (to, record) = relay(&clear.address, |_, _| {});
    assert_eq!(world.send(&to, &["--encryption", "none"]).code, Some(0));
    let sent = record[0].lock().unwrap();
    assert!(has(&sent, WORDS) && has(&sent, b"secret"));
}

/// A transfer that was recorded cannot be repeated, not even its beginning.
#[test]
fn a_replay_stores_nothing() {
    let world = World::new();
    let receiver = world.receive();
    let recorded = world.recorded(&receiver);
    for end in [recorded.len(), 104 + 2 + 25 + 16] {
        let mut replayed = TcpStream::connect(&receiver.address).unwrap();
        drop(replayed.write_all(&recorded[..end]));
        receiver.await_message("while agreeing on keys: a record is forged, damaged or repeated; the sender may try");
        world.assert_nothing();
    }
    world.assert_serves(&receiver);
}

#[test]
fn each_wrong_key_is_refused_with_place_and_remedy() {
    let world = World::new();
    let receiver = world.receive();
    let clear = Receiver::start(world.path());
    let known = world.receiver.as_str();
    let refused = |to: &Receiver, options: &[&str], sentence: &str, logged: &str| {
        let output = world.send(&to.address, options);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.ends_with(&format!("{sentence}\n")), "{output:?}");
        let errors = output.stderr.lines().filter(|line| line.contains("while")).count();
        assert_eq!(errors, 1, "{output:?}");
        to.await_message(logged);
        world.assert_nothing();
    };
    refused(
        &receiver,
        &["--key", "other.key", "--receiver-key", known],
        &format!(
            "while sending: the receiver rejects the connection: it does not know the key {}; add it there by --sender-key",
            world.other
        ),
        &format!(
            "while agreeing on keys: the sender's key {} is not known; add it by --sender-key if its owner may store files",
            world.other
        ),
    );
    refused(
        &receiver,
        &["--key", "sender.key", "--receiver-key", &world.other],
        "while agreeing on keys: the answer, which is not authentic, rejects the connection: --receiver-key is not its \
         key; give what `crosslane keygen --public FILE` prints there",
        "while agreeing on keys: the sender has another --receiver-key, or its first message is damaged or forged; the key",
    );
    refused(
        &receiver,
        &["--encryption", "none"],
        "while sending: the receiver rejects the connection: it takes encrypted connections only; start `crosslane send` \
         with --key and --receiver-key",
        "while agreeing on keys: the sender is in the clear, and this receiver has a key; start `crosslane send` with",
    );
    refused(
        &clear,
        &["--key", "sender.key", "--receiver-key", known],
        "while agreeing on keys: the answer, which is not authentic, rejects the connection: it was started with \
         --encryption none; start `crosslane receive` with --key and --sender-key",
        "while agreeing on keys: the sender has a key, and this receiver is in the clear; start `crosslane receive` with",
    );
    world.assert_serves(&receiver);
}

#[test]
fn a_handshake_that_is_cut_off_or_garbage_stops_no_other_sender() {
    let world = World::new();
    let receiver = world.receive();
    let recorded = world.recorded(&receiver);
    for length in 0..160 {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        stream.write_all(&recorded[..length]).unwrap();
        drop(stream.shutdown(Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    for seed in 0..50_u8 {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        let garbage: Vec<u8> = (0..500_u32).map(|place| (place * 31 + u32::from(seed) * 7) as u8).collect();
        drop(stream.write_all(b"XLANE\0\x01\x04").and_then(|()| stream.write_all(&garbage)));
        drop(stream.shutdown(Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    world.assert_serves(&receiver);
}

/// It costs the connection, and not the transfer.
#[test]
fn a_byte_changed_on_the_way_is_noticed_and_the_transfer_goes_on() {
    let world = World::new();
    let receiver = world.receive();
    let is_first = Arc::new(Mutex::new(true));
    let change = move |offset: usize, bytes: &mut [u8]| {
        if offset > 1_000_000 && std::mem::take(&mut *is_first.lock().unwrap()) {
            bytes[0] ^= 1;
        }
    };
    let (to, _) = relay(&receiver.address, change);
    let output = world.send_with_keys(&to);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("the connection: its connection broke"), "{output:?}");
    world.assert_stored();
}
