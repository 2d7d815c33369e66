//! `crosslane send` and `crosslane receive` over loopback: the files that arrive, the
//! messages to users, and the result of failures.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::{scope, sleep};
use std::time::{Duration, UNIX_EPOCH};

use crate::program::{CROSSLANE, ProgramOutput, crosslane};
use crate::receiver::Receiver;
use crosslane::clock::Clock;
use crosslane::transfer::folder::{Folder, Kept, Notice, Parts};
use crosslane::transfer::multipath::receiving;
use crosslane::transfer::receiving::Incomplete;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame as former;
use crosslane_core::transfer::multipath::frame::{self, Greeting};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use serde_json::Value;
use socket2::Socket;
use tempfile::TempDir;

/// More than the socket buffers of both endpoints hold.
const BIG: usize = 40_000_000;

/// A working directory with files of these sizes in bytes.
fn workdir(files: &[(&str, usize)]) -> TempDir {
    let workdir = TempDir::new().unwrap();
    for (name, size) in files {
        fs::write(workdir.path().join(name), content(name, *size)).unwrap();
    }
    workdir
}

fn content(name: &str, size: usize) -> Vec<u8> {
    let seed = name.bytes().map(usize::from).sum::<usize>();
    (0..size).map(|place| (place * 31 + place / 251 + seed) as u8).collect()
}

fn send(workdir: &Path, to: &str, files: &[&str], options: &[&str]) -> ProgramOutput {
    crosslane(workdir, &[&["send", "--encryption", "none", "--to", to], options, files].concat())
}

/// Outcome of each file, from `--json`.
fn outcomes(output: &ProgramOutput) -> Vec<String> {
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let files = document["files"].as_array().unwrap();
    files.iter().map(|file| file["outcome"].as_str().unwrap().to_owned()).collect()
}

/// A receiver in this process, which starts to read after `first`.
fn receive_one(listener: &TcpListener, folder: &Path, first: impl FnOnce(&Socket)) -> Vec<Kept> {
    let socket = Socket::from(listener.accept().unwrap().0);
    first(&socket);
    let mut all = Vec::new();
    let parts = Parts::new(folder);
    let mut sink = Folder::new(&parts, |notice| match notice {
        Notice::Resumed(..) => {}
        Notice::Ended(kept) => all.push(kept),
    });
    let (clock, stop) = (Clock::start(), AtomicBool::new(false));
    let (_, joined) = receiving::greet(socket, None, clock, &stop).unwrap();
    let (_more, join) = std::sync::mpsc::channel();
    receiving::receive(joined, &join, &mut sink, clock, &stop).unwrap();
    all
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_arrive_unchanged_and_replace_files_of_the_same_name() {
    let workdir = workdir(&[("a.bin", 3_000_000), ("empty", 0), ("two words ü", 70_000)]);
    let receiver = Receiver::start(workdir.path());
    fs::write(workdir.path().join("in/a.bin"), "old").unwrap();
    let files = ["a.bin", "empty", "two words ü"];
    let output = send(workdir.path(), &receiver.address, &files, &["--deadline", "20s"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout.lines().count(), 3, "{output:?}");
    let good = |line: &str| line.contains("bytes  stored in") && line.ends_with("before its deadline");
    assert!(output.stdout.lines().all(good), "{output:?}");
    assert_eq!(names(&workdir.path().join("in")), files);
    for name in files {
        assert!(
            fs::read(workdir.path().join("in").join(name)).unwrap() == fs::read(workdir.path().join(name)).unwrap()
        );
    }
    assert_eq!(receiver.end().lines().count(), 1, "no fault was reported");
}

#[test]
fn once_serves_one_sender_and_its_exit_code_reports_whether_all_files_are_stored() {
    let workdir = workdir(&[("a", 10), ("x.part", 10)]);
    for (file, code) in [("a", 0), ("x.part", 1)] {
        let spawn = |command: &mut Command| command.args(["--once", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut receiver = Receiver::with(workdir.path(), spawn);
        assert_eq!(send(workdir.path(), &receiver.address, &[file], &[]).code, Some(code));
        assert_eq!(receiver.child.wait().unwrap().code(), Some(code));
        let line: Value = serde_json::from_reader(receiver.child.stdout.take().unwrap()).unwrap();
        assert_eq!(line["name"], file);
        assert_eq!(line["outcome"], if code == 0 { "stored" } else { "partial" });
    }
}

#[test]
fn files_of_the_same_name_from_several_senders_do_not_mix_and_existing_parts_are_kept() {
    let workdir = workdir(&[]);
    let receiver = Receiver::start(workdir.path());
    fs::write(workdir.path().join("in/same.part"), "from yesterday").unwrap();
    let folders: Vec<PathBuf> = (0..4).map(|number| workdir.path().join(number.to_string())).collect();
    for (number, folder) in folders.iter().enumerate() {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("same"), vec![number as u8; 5_000_000]).unwrap();
        // Written within one tick of the clock, they would have the same time.
        let file = File::options().write(true).open(folder.join("same")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1 + number as u64)).unwrap();
    }
    scope(|scope| {
        for folder in &folders {
            let address = &receiver.address;
            scope.spawn(move || assert_eq!(send(folder, address, &["same"], &[]).code, Some(0)));
        }
    });
    let stored = fs::read(workdir.path().join("in/same")).unwrap();
    assert_eq!(stored.len(), 5_000_000);
    assert!(stored.iter().all(|byte| *byte == stored[0]));
    assert_eq!(fs::read(workdir.path().join("in/same.part")).unwrap(), b"from yesterday");
    assert_eq!(names(&workdir.path().join("in")), ["same", "same.part"]);
}

#[test]
fn files_become_due_one_after_another() {
    let workdir = workdir(&[("a", 1000), ("b", 1000), ("c", 1000)]);
    let receiver = Receiver::start(workdir.path());
    let started = Clock::start();
    let options = ["--every", "300ms", "--deadline", "5s", "--json"];
    let output = send(workdir.path(), &receiver.address, &["a", "b", "c"], &options);
    assert!(started.now().as_secs_f64() >= 0.6);
    assert_eq!((output.code, outcomes(&output)), (Some(0), vec!["stored".to_owned(); 3]), "{output:?}");
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    let took_s = |place: usize| document["files"][place]["completion_s"].as_f64().unwrap();
    assert!((0..3).all(|place| took_s(place) < 0.3), "the time of each file starts when it is due: {output:?}");
}

#[test]
fn a_file_that_is_deleted_before_it_is_due_affects_no_other_file() {
    let workdir = workdir(&[("a", 1000), ("gone", 1000), ("c", 1000)]);
    let receiver = Receiver::start(workdir.path());
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &receiver.address, &["a", "gone", "c"], &["--every", "1s"]));
        while !workdir.path().join("in/a").exists() {
            sleep(Duration::from_millis(10));
        }
        fs::remove_file(workdir.path().join("gone")).unwrap();
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(1));
        assert!(
            output.stdout.contains("gone  0 bytes  abandoned after 0 bytes: it cannot be read any more"),
            "{output:?}"
        );
    });
    assert_eq!(names(&workdir.path().join("in")), ["a", "c"]);
}

#[test]
fn a_file_past_its_deadline_is_abandoned_or_completed_as_requested() {
    for (late, outcome, left) in
        [("give-up", "late", Some(Incomplete::Abandoned(Abandoned::Late))), ("continue", "stored", None)]
    {
        let workdir = workdir(&[("big", BIG)]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let folder = TempDir::new().unwrap();
        let options = ["--deadline", "500ms", "--late", late, "--json"];
        scope(|scope| {
            let sender = scope.spawn(|| send(workdir.path(), &to, &["big"], &options));
            let kept = receive_one(&listener, folder.path(), |_| sleep(Duration::from_millis(800)));
            let output = sender.join().unwrap();
            assert_eq!((output.code, outcomes(&output)), (Some(1), vec![outcome.to_owned()]), "{output:?}");
            assert!(output.stdout.contains("\"in_time\": false"), "{output:?}");
            assert_eq!(kept[0].incomplete, left);
            // The part that arrived stays usable.
            let stored = fs::read(kept[0].file.as_ref().unwrap()).unwrap();
            assert!(!stored.is_empty() && stored == content("big", BIG)[..stored.len()]);
        });
    }
}

#[test]
fn a_sender_does_not_wait_forever_for_a_silent_receiver() {
    let workdir = workdir(&[("a", 1000)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let started = Clock::start();
    let output = send(workdir.path(), &to, &["a"], &["--deadline", "200ms"]);
    assert!(started.now().as_secs_f64() < 10.0);
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.contains("a  1000 bytes  abandoned after 0 bytes: its deadline is past"), "{output:?}");
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_not_stored() {
    let workdir = workdir(&[("big", BIG), ("small", 10)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to, &["big", "small"], &["--json"]));
        let kept = receive_one(&listener, folder.path(), |_| {
            sleep(Duration::from_millis(300));
            fs::OpenOptions::new().append(true).open(workdir.path().join("big")).unwrap().write_all(b"more").unwrap();
        });
        let output = sender.join().unwrap();
        assert_eq!((output.code, outcomes(&output)), (Some(1), vec!["changed".to_owned(), "stored".to_owned()]));
        assert!(output.stdout.contains("it changed while it was sent"), "{output:?}");
        assert_eq!(kept[0].incomplete, Some(Incomplete::Abandoned(Abandoned::Changed)));
    });
}

#[test]
fn a_full_disk_affects_only_the_file_that_fills_it() {
    let workdir = workdir(&[("big", 500_000), ("small", 1000)]);
    // A sparse file here, but larger than any disk of a receiver.
    let huge = File::create(workdir.path().join("huge")).unwrap().set_len(1 << 43).is_ok();
    let receiver = Receiver::with(workdir.path(), |command| {
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(|| {
                // Makes the kernel reject writes beyond this size, without a full disk.
                signal(Signal::SIGXFSZ, SigHandler::SigIgn)?;
                Ok(setrlimit(Resource::RLIMIT_FSIZE, 100_000, 100_000)?)
            });
        }
        command.spawn().unwrap()
    });
    let files = if huge { vec!["big", "small", "huge"] } else { vec!["big", "small"] };
    let output = send(workdir.path(), &receiver.address, &files, &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let line_of = |name: &str| output.stdout.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line_of("big").contains("not stored: File too large (os error 27); make room there and send it again"));
    assert!(line_of("small").contains("stored in"), "{output:?}");
    assert!(!huge || line_of("huge").contains("make room there and send it again"), "{output:?}");
    assert_eq!(fs::read(workdir.path().join("in/big.part")).unwrap(), content("big", 500_000)[..100_000]);
    let log = receiver.await_message("the received part is in in/big.part");
    assert!(log.contains("while receiving big from 127.0.0.1:"), "{log}");
    assert_eq!(names(&workdir.path().join("in")), ["big.part", "small"]);
}

#[test]
fn a_deleted_folder_is_reported_to_the_sender() {
    let workdir = workdir(&[("a", 1000)]);
    let receiver = Receiver::start(workdir.path());
    fs::remove_dir(workdir.path().join("in")).unwrap();
    let output = send(workdir.path(), &receiver.address, &["a"], &[]);
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.contains("create the receiver's folder again and send it again"), "{output:?}");
    fs::create_dir(workdir.path().join("in")).unwrap();
    assert_eq!(send(workdir.path(), &receiver.address, &["a"], &[]).code, Some(0), "it continues to serve");
}

#[test]
fn a_sender_that_is_killed_leaves_a_partial_file_and_affects_no_other_sender() {
    let workdir = workdir(&[("a", 1000)]);
    let receiver = Receiver::start(workdir.path());
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    let mut wire = Greeting { transfer: [9; 16], path: 0 }.emit().to_vec();
    frame::offer(&mut wire, 0, 50_000, 0, 0, "torn");
    // The first piece, and one after a gap.
    for index in [0, 2] {
        frame::piece(&mut wire, 0, index, 16_384);
        wire.extend([7; 16_384]);
    }
    stream.write_all(&wire).unwrap();
    let mut unknown_client = TcpStream::connect(&receiver.address).unwrap();
    unknown_client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    drop((stream, unknown_client));
    let log = receiver.await_message("the received part is in in/torn.part");
    assert!(log.contains("while receiving torn from") && log.contains("the connection ended before it was complete"));
    receiver.await_message("not a Crosslane transfer of version 4 at byte 0 of the stream; check that both sides run");
    assert_eq!(fs::read(workdir.path().join("in/torn.part")).unwrap(), [7; 16_384]);
    assert_eq!(send(workdir.path(), &receiver.address, &["a"], &[]).code, Some(0), "it continues to serve");
}

#[test]
fn an_unreachable_or_invalid_receiver_is_reported_in_one_message() {
    let workdir = workdir(&[("a", 3_000_000)]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = send(workdir.path(), &closed.to_string(), &["a"], &[]);
    assert_eq!(output.code, Some(1));
    let expected = format!(
        "crosslane: while connecting to {closed}: Connection refused (os error 111); start `crosslane receive` there, or \
         correct the address\n"
    );
    assert!(output.stderr.ends_with(&expected), "{output:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to, &["a"], &[]));
        let mut unknown_server = listener.accept().unwrap().0;
        unknown_server.read_exact(&mut [0; 1000]).unwrap();
        unknown_server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(1));
        assert!(output.stdout.starts_with("a  3000000 bytes  not finished: "), "{output:?}");
        assert!(
            output.stderr.contains("not a Crosslane transfer of version 4 at byte 0 of the stream; check"),
            "{output:?}"
        );
    });
}

#[test]
fn a_sender_of_another_version_gets_the_reason_in_its_own_format() {
    let workdir = workdir(&[]);
    let receiver = Receiver::start(workdir.path());
    // Version 1 has no instance after its preface. A receiver answers in the clear, also if the sender has keys.
    for (encrypted, version, head) in [(0, 1, 8), (0, 2, 16), (0, 3, 16), (1, 3, 16), (0, 5, 16), (1, 5, 16)] {
        let mut stream = TcpStream::connect(&receiver.address).unwrap();
        let mut wire = former::PREFACE.to_vec();
        (wire[6], wire[7]) = (encrypted, version);
        former::offer(&mut wire, 0, 1000, 0, "a");
        stream.write_all(&wire).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[..8], [b"XLANE\0\0", &[version][..]].concat());
        let receipt = [&former::PREFACE[..], &answer[head..]].concat();
        let receipt = former::Receipts::default().take(&mut receipt.as_slice()).unwrap().unwrap();
        assert_eq!((receipt.number, receipt.outcome), (former::CONNECTION, former::Outcome::Refused));
        let older = if version < 4 { "sender" } else { "receiver" };
        let text =
            format!("it has version 4 of the transfer, the sender version {version}; update Crosslane at the {older}");
        assert_eq!(receipt.text, text);
        receiver.await_message(&format!("version {version} of the transfer, where this program has version 4, at"));
    }
}

#[test]
fn a_receiver_of_another_version_is_named() {
    let workdir = workdir(&[("a", 1000)]);
    // One of version 2 or 3 ends the connection without a word.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    scope(|scope| {
        let sender = scope.spawn(|| send(workdir.path(), &to, &["a"], &[]));
        drop(listener.accept().unwrap());
        let output = sender.join().unwrap();
        assert_eq!(output.code, Some(1), "{output:?}");
        let message = "the peer ended it at once, as a receiver of an older version does, or one with too many senders";
        assert_eq!(output.stderr.matches(message).count(), 1, "{output:?}");
    });
    for version in [1, 3, 5] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        scope(|scope| {
            let sender = scope.spawn(|| send(workdir.path(), &to, &["a"], &[]));
            let mut receiver = listener.accept().unwrap().0;
            receiver.write_all(&frame::other_welcome(version)).unwrap();
            let output = sender.join().unwrap();
            assert_eq!(output.code, Some(1), "{output:?}");
            let message = format!(
                "version {version} of the transfer, where this program has version 4, at byte 0 of the stream; check that"
            );
            assert!(output.stderr.contains(&message), "{output:?}");
        });
    }
}

#[test]
fn an_interrupt_is_reported_with_the_unfinished_files() {
    let workdir = workdir(&[("big", BIG)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: SocketAddr = listener.local_addr().unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["send", "big", "--encryption", "none", "--to", &to.to_string()]).current_dir(workdir.path());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _silent = listener.accept().unwrap().0;
    sleep(Duration::from_millis(200));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = ProgramOutput::from(child.wait_with_output().unwrap());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("not finished"), "{output:?}");
    assert!(
        output.stderr.contains("while sending: it was interrupted; send the files again that are not stored"),
        "{output:?}"
    );
}
