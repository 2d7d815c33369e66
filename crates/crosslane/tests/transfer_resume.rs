//! Transfers that are killed in the middle of a file go on where they were, and states of partial files that cannot be
//! right are ignored.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, UNIX_EPOCH};

use crate::program::{CROSSLANE, ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane::clock::Clock;
use crosslane_core::rng::Rng;
use crosslane_core::transfer::multipath::frame::{self, Greeting};
use crosslane_core::transfer::multipath::{extent, pieces};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

/// Size of the file, and rate of the connection in bytes/s.
const SIZE: usize = 40_000_000;
const RATE: u64 = 20_000_000;
/// A state is written after this many bytes, beside the transfer; this is what may be sent again of each break.
const STATE_BYTES: u64 = 1_000_000;
/// Bytes in socket buffers at a break, and what a sender sends before the receiver answers.
const IN_FLIGHT: u64 = 1_000_000;

fn workdir(size: usize) -> (TempDir, Vec<u8>) {
    let workdir = TempDir::new().unwrap();
    let content: Vec<u8> = (0..size).map(|place| (place * 31 + place / 251) as u8).collect();
    fs::write(workdir.path().join("big"), &content).unwrap();
    (workdir, content)
}

/// Carries connections to a receiver, at a limited rate, and counts the sender's bytes.
struct Relay {
    address: String,
    target: Arc<Mutex<String>>,
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    fn start(target: &str) -> Relay {
        Relay::with_rate(target, RATE)
    }

    fn with_rate(target: &str, rate: u64) -> Relay {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // What waits in a relay is lost at a break.
        listener.set_recv_buffer_size(64 * 1024).unwrap();
        listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        listener.listen(8).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap().to_string();
        let relay = Relay {
            address,
            target: Arc::new(Mutex::new(target.into())),
            bytes: Arc::default(),
            is_over: Arc::default(),
        };
        let (target, bytes, is_over) = (relay.target.clone(), relay.bytes.clone(), relay.is_over.clone());
        spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((from, _)) => {
                        from.set_nonblocking(false).unwrap();
                        let Ok(to) = TcpStream::connect(target.lock().unwrap().as_str()) else { continue };
                        let bytes = bytes.clone();
                        spawn(move || forward(from.into(), &to, &bytes, rate));
                    }
                    Err(_) => sleep(Duration::from_millis(5)),
                }
            }
        });
        relay
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until the sender has sent this many bytes.
    fn await_bytes(&self, bytes: u64) {
        for _ in 0..6000 {
            if self.bytes() >= bytes {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{} of {bytes} bytes were sent", self.bytes());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn forward(mut from: TcpStream, mut to: &TcpStream, bytes: &AtomicU64, rate: u64) {
    let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    spawn(move || {
        drop(std::io::copy(&mut back_from, &mut back_to));
        drop(back_to.shutdown(Shutdown::Both));
    });
    let mut buffer = [0; 20_000];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        bytes.fetch_add(count as u64, Ordering::Relaxed);
        sleep(Duration::from_micros(count as u64 * 1_000_000 / rate));
    }
    drop(to.shutdown(Shutdown::Write));
}

fn start_sender(workdir: &Path, to: &str) -> Child {
    let mut command = Command::new(CROSSLANE);
    command.args(["send", "--encryption", "none", "--json", "--to", to, "big"]).current_dir(workdir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(workdir: &Path, to: &str) -> ProgramOutput {
    crosslane(workdir, &["send", "--encryption", "none", "--json", "--to", to, "big"])
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn names(workdir: &Path) -> Vec<String> {
    let files = fs::read_dir(workdir.join("in")).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes that the receiver had, and bytes of pieces that were sent.
fn resumed_and_sent(output: &ProgramOutput) -> (u64, u64) {
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let bytes = |value: &Value| value.as_u64().unwrap();
    (bytes(&document["files"][0]["resumed_bytes"]), bytes(&document["paths"][0]["bytes"]))
}

fn check_stored(workdir: &Path, content: &[u8], relay: &Relay, breaks: u64) {
    assert!(fs::read(workdir.join("in/big")).unwrap() == content, "the file is right");
    assert_eq!(names(workdir), ["big"]);
    let twice = relay.bytes().saturating_sub(SIZE as u64);
    let most = SIZE as u64 / 100 + breaks * (STATE_BYTES + IN_FLIGHT);
    assert!(twice <= most, "{twice} bytes were sent twice in {breaks} breaks, at most {most} may be");
    eprintln!("{twice} bytes were sent twice in {breaks} breaks");
}

#[test]
fn a_sender_that_is_killed_and_started_again_sends_the_rest() {
    let (workdir, content) = workdir(SIZE);
    let receiver = Receiver::start(workdir.path());
    let relay = Relay::start(&receiver.address);
    for bytes in [300_000, 8_000_000, 20_000_000, 36_000_000] {
        let sender = start_sender(workdir.path(), &relay.address);
        relay.await_bytes(bytes);
        kill(sender);
    }
    let started = Clock::start();
    let output = send(workdir.path(), &relay.address);
    assert_eq!(output.code, Some(0), "{output:?}");
    // It does not wait until the receiver gives up the killed one.
    assert!(started.now().as_secs_f64() < 5.0, "{}", started.now().as_secs_f64());
    assert!(output.stderr.contains("big goes on: 3"), "{output:?}");
    check_stored(workdir.path(), &content, &relay, 4);
    assert!(receiver.end().contains("it goes on: "), "the receiver reports it");
}

#[test]
fn a_receiver_that_is_killed_and_started_again_gets_the_rest() {
    let (workdir, content) = workdir(SIZE);
    let mut receiver = Receiver::start(workdir.path());
    let relay = Relay::start(&receiver.address);
    let sender = start_sender(workdir.path(), &relay.address);
    for bytes in [8_000_000, 20_000_000, 36_000_000] {
        relay.await_bytes(bytes);
        drop(receiver);
        receiver = Receiver::start(workdir.path());
        *relay.target.lock().unwrap() = receiver.address.clone();
    }
    let output = ProgramOutput::from(sender.wait_with_output().unwrap());
    assert_eq!(output.code, Some(0), "{output:?}");
    check_stored(workdir.path(), &content, &relay, 3);
}

#[test]
fn both_killed_go_on() {
    let (workdir, content) = workdir(SIZE);
    let mut receiver = Receiver::start(workdir.path());
    let relay = Relay::start(&receiver.address);
    for bytes in [8_000_000, 20_000_000] {
        let sender = start_sender(workdir.path(), &relay.address);
        relay.await_bytes(bytes);
        kill(sender);
        drop(receiver);
        receiver = Receiver::start(workdir.path());
        *relay.target.lock().unwrap() = receiver.address.clone();
    }
    let output = send(workdir.path(), &relay.address);
    assert_eq!(output.code, Some(0), "{output:?}");
    check_stored(workdir.path(), &content, &relay, 2);
}

/// Kills either end at random moments. `CROSSLANE_KILLED_MB=10000` in the environment: with a file of 10 GB.
#[test]
fn ends_that_are_killed_at_random_moments_go_on_and_the_file_is_right() {
    let megabytes = std::env::var("CROSSLANE_KILLED_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let (size, seed) = (megabytes * 1_000_000, u64::from(std::process::id()));
    let (workdir, mut rng) = (TempDir::new().unwrap(), Rng::new(seed, "kills"));
    let mut file = File::create(workdir.path().join("big")).unwrap();
    for place in 0..megabytes {
        let block: Vec<u8> = (0..1_000_000_u64).map(|byte| (byte * 31 + byte / 251 + place * 7) as u8).collect();
        file.write_all(&block).unwrap();
    }
    let mut receiver = Receiver::start(workdir.path());
    let relay = Relay::with_rate(&receiver.address, RATE.max(size / 50));
    let mut sender = start_sender(workdir.path(), &relay.address);
    let (mut kills, mut bytes) = (0, 0.0);
    loop {
        bytes += size as f64 * (0.02 + 0.2 * rng.uniform());
        if bytes > 0.9 * size as f64 {
            break;
        }
        relay.await_bytes(bytes as u64);
        kills += 1;
        if rng.uniform() < 0.5 {
            kill(sender);
            sender = start_sender(workdir.path(), &relay.address);
        } else {
            drop(receiver);
            receiver = Receiver::start(workdir.path());
            *relay.target.lock().unwrap() = receiver.address.clone();
        }
    }
    let output = ProgramOutput::from(sender.wait_with_output().unwrap());
    assert_eq!(output.code, Some(0), "seed {seed}: {output:?}");
    let same = Command::new("cmp").args(["big", "in/big"]).current_dir(workdir.path()).status().unwrap();
    assert!(same.success() && names(workdir.path()) == ["big"], "seed {seed}: the file is right");
    let twice = relay.bytes().saturating_sub(size);
    let most = size / 100 + kills * (STATE_BYTES.max(size / 500) + IN_FLIGHT);
    eprintln!("seed {seed}: {twice} of {size} bytes were sent twice in {kills} kills, at most {most} may be");
    assert!(twice <= most);
}

/// Size of a file of which a receiver that was stopped has the first half.
const PARTIAL: usize = 3_000_000;

/// Leaves the first half of `big`, received and with its state.
fn leave_half(workdir: &Path, content: &[u8]) {
    let receiver = Receiver::start(workdir);
    let modified = fs::metadata(workdir.join("big")).unwrap().modified().unwrap();
    let modified_ns = modified.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut wire = Greeting { transfer: [9; 16], path: 0 }.emit().to_vec();
    frame::offer(&mut wire, 0, content.len() as u64, modified_ns, 0, "big");
    let half = pieces(content.len() as u64) / 2;
    for index in 0..half {
        let (offset, length) = extent(content.len() as u64, index);
        frame::piece(&mut wire, 0, index, length);
        wire.extend(&content[offset as usize..][..length as usize]);
    }
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    stream.write_all(&wire).unwrap();
    let part = workdir.join("in/big.part");
    while !fs::metadata(&part).is_ok_and(|part| part.len() >= extent(u64::MAX, half).0) {
        sleep(Duration::from_millis(10));
    }
    receiver.end();
    assert_eq!(names(workdir), ["big.part", "big.part.state"]);
}

#[test]
fn a_receiver_that_was_stopped_has_all_that_it_received() {
    let (workdir, content) = workdir(PARTIAL);
    leave_half(workdir.path(), &content);
    let receiver = Receiver::start(workdir.path());
    let output = send(workdir.path(), &receiver.address);
    assert_eq!(output.code, Some(0), "{output:?}");
    let half = extent(u64::MAX, pieces(PARTIAL as u64) / 2).0;
    let (resumed, sent) = resumed_and_sent(&output);
    // A hundredth is sent before the receiver answers.
    assert_eq!((resumed, sent), (half, PARTIAL as u64 - half + 2 * 16_384));
    assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
    assert_eq!(names(workdir.path()), ["big"]);
}

/// Changes a partial file and its state.
type Change = fn(&Path, &Path);

/// Changes what is left of `big`, sends it again, and returns what both ends print.
fn send_after(change: impl FnOnce(&Path, &Path)) -> (ProgramOutput, String, Vec<String>) {
    let (workdir, content) = workdir(PARTIAL);
    leave_half(workdir.path(), &content);
    change(&workdir.path().join("in/big.part"), &workdir.path().join("in/big.part.state"));
    let receiver = Receiver::start(workdir.path());
    let output = send(workdir.path(), &receiver.address);
    if output.code == Some(0) {
        assert!(fs::read(workdir.path().join("in/big")).unwrap() == fs::read(workdir.path().join("big")).unwrap());
        assert_eq!(resumed_and_sent(&output), (0, PARTIAL as u64), "{output:?}");
    } else {
        // Once more, from nothing.
        let again = send(workdir.path(), &receiver.address);
        assert_eq!((again.code, resumed_and_sent(&again)), (Some(0), (0, PARTIAL as u64)), "{again:?}");
        assert!(fs::read(workdir.path().join("in/big")).unwrap() == content);
    }
    (output, receiver.end(), names(workdir.path()))
}

fn replace(state: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(state).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(state, text.replace(from, to)).unwrap();
}

#[test]
fn a_state_that_cannot_be_right_is_ignored_with_one_sentence() {
    let cut = |_: &Path, state: &Path| File::options().write(true).open(state).unwrap().set_len(40).unwrap();
    let version = |_: &Path, state: &Path| replace(state, "\"version\":1", "\"version\":9");
    let pieces = |_: &Path, state: &Path| replace(state, "[0,92]", "[0,900]");
    let inverted = |_: &Path, state: &Path| replace(state, "[0,92]", "[0,92],[7,80]");
    let garbage = |_: &Path, state: &Path| fs::write(state, [0xff; 100_000]).unwrap();
    let short = |part: &Path, _: &Path| File::options().write(true).open(part).unwrap().set_len(1_000_000).unwrap();
    let cases: [(Change, &str); 6] = [
        (cut, "is ignored, since it is damaged ("),
        (version, "is ignored, since it has version 9, where this program has version 1"),
        (pieces, "is ignored, since it claims pieces that the file does not have"),
        (inverted, "is ignored, since it claims pieces that the file does not have"),
        (garbage, "is ignored, since it is damaged ("),
        (short, "is ignored, since it claims more than the partial file has"),
    ];
    for (change, sentence) in cases {
        let (output, log, left) = send_after(change);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(log.contains("it begins from nothing: in/big.part.state ") && log.contains(sentence), "{log}");
        assert_eq!(log.lines().count(), 2, "{log}");
        assert_eq!(left, ["big", "big.part"], "the state is gone, the part is kept");
    }
}

/// The digest over all pieces detects it, and the next attempt begins from nothing.
#[test]
fn a_forged_state_does_not_pass_the_digest() {
    let forge = |part: &Path, state: &Path| {
        File::options().write(true).open(part).unwrap().set_len(PARTIAL as u64).unwrap();
        replace(state, "[0,92]", "[0,150]");
    };
    let (output, log, left) = send_after(forge);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("\"outcome\": \"differs\""), "{output:?}");
    assert!(log.contains("the received bytes differ from those sent"), "{log}");
    assert_eq!(left, ["big", "big.part"]);
}

#[test]
fn a_file_that_has_changed_begins_from_nothing() {
    let change = |part: &Path, _: &Path| {
        fs::write(part.parent().unwrap().with_file_name("big"), vec![9; PARTIAL]).unwrap();
    };
    let (output, log, left) = send_after(change);
    assert_eq!(output.code, Some(0), "{output:?}");
    let sentence = "it begins from nothing: in/big.part is of another version of it, by size or time of modification";
    assert!(log.contains(sentence), "{log}");
    // The former version may be sent again.
    assert_eq!(left, ["big", "big.part", "big.part.state"]);
}

#[test]
fn a_state_without_its_part_is_removed() {
    let (output, log, left) = send_after(|part, _| fs::remove_file(part).unwrap());
    assert_eq!((output.code, log.lines().count()), (Some(0), 1), "{output:?} {log}");
    assert_eq!(left, ["big"]);
}
