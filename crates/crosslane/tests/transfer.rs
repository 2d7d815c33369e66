//! `crosslane send` and `crosslane receive`, over loopback and over two paths:
//! what arrives, what the user is told, and what stays when things go wrong.

#![allow(clippy::unwrap_used)]

mod program;
mod receiver;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::{scope, sleep};
use std::time::Duration;

use crosslane::clock::{Clock, monotonic_ns};
use crosslane::transfer::folder::{Folder, Kept};
use crosslane::transfer::receiving::{self, Incomplete};
use crosslane_core::transfer::{Abandoned, frame};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use program::{CROSSLANE, Said, crosslane};
use receiver::Receiver;
use serde_json::Value;
use socket2::Socket;
use tempfile::TempDir;

/// More than the socket buffers of both ends hold.
const BIG: usize = 40_000_000;

/// A desk with files of so many bytes.
fn desk(files: &[(&str, usize)]) -> TempDir {
    let desk = TempDir::new().unwrap();
    for (name, size) in files {
        fs::write(desk.path().join(name), content(name, *size)).unwrap();
    }
    desk
}

fn content(name: &str, size: usize) -> Vec<u8> {
    let seed = name.bytes().map(usize::from).sum::<usize>();
    (0..size).map(|place| (place * 31 + place / 251 + seed) as u8).collect()
}

fn send(desk: &Path, to: &str, files: &[&str], options: &[&str]) -> Said {
    crosslane(desk, &[&["send", "--to", to], options, files].concat())
}

/// Outcome of each file, from `--json`.
fn outcomes(said: &Said) -> Vec<String> {
    let document: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let files = document["files"].as_array().unwrap();
    files.iter().map(|file| file["outcome"].as_str().unwrap().to_owned()).collect()
}

/// A receiver over plain TCP in this process, which reads nothing before
/// `first` is done.
fn receive_one(listener: &TcpListener, folder: &Path, first: impl FnOnce(&Socket)) -> Vec<Kept> {
    let socket = Socket::from(listener.accept().unwrap().0);
    first(&socket);
    let mut all = Vec::new();
    let mut sink = Folder::new(folder, |kept| all.push(kept));
    receiving::receive(&socket, &mut sink, Clock::start(), &AtomicBool::new(false)).unwrap();
    all
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_arrive_as_they_are_and_replace_what_has_their_name() {
    let desk = desk(&[("a.bin", 3_000_000), ("empty", 0), ("two words ü", 70_000)]);
    let receiver = Receiver::start(desk.path());
    fs::write(desk.path().join("in/a.bin"), "old").unwrap();
    let files = ["a.bin", "empty", "two words ü"];
    let said = send(desk.path(), &receiver.address, &files, &["--deadline", "20s"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 3, "{said:?}");
    let good = |line: &str| line.contains("bytes  stored in") && line.ends_with("before its deadline");
    assert!(said.stdout.lines().all(good), "{said:?}");
    assert!(said.stderr.contains("the kernel's path manager selects the paths"), "{said:?}");
    assert_eq!(names(&desk.path().join("in")), files);
    for name in files {
        assert!(fs::read(desk.path().join("in").join(name)).unwrap() == fs::read(desk.path().join(name)).unwrap());
    }
    assert_eq!(receiver.end().lines().count(), 1, "nothing was amiss");
}

#[test]
fn once_serves_one_sender_and_tells_whether_all_is_stored() {
    let desk = desk(&[("a", 10), ("x.part", 10)]);
    for (file, code) in [("a", 0), ("x.part", 1)] {
        let spawn = |command: &mut Command| command.args(["--once", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut receiver = Receiver::with(desk.path(), spawn);
        assert_eq!(send(desk.path(), &receiver.address, &[file], &[]).code, Some(code));
        assert_eq!(receiver.child.wait().unwrap().code(), Some(code));
        let line: Value = serde_json::from_reader(receiver.child.stdout.take().unwrap()).unwrap();
        assert_eq!(line["name"], file);
        assert_eq!(line["outcome"], if code == 0 { "stored" } else { "partial" });
    }
}

#[test]
fn two_senders_of_one_name_do_not_mix_and_what_lay_there_in_part_stays() {
    let desk = desk(&[]);
    let receiver = Receiver::start(desk.path());
    fs::write(desk.path().join("in/same.part"), "of yesterday").unwrap();
    let folders: Vec<PathBuf> = (0..4).map(|number| desk.path().join(number.to_string())).collect();
    for (number, folder) in folders.iter().enumerate() {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("same"), vec![number as u8; 5_000_000]).unwrap();
    }
    scope(|scope| {
        for folder in &folders {
            let address = &receiver.address;
            scope.spawn(move || assert_eq!(send(folder, address, &["same"], &[]).code, Some(0)));
        }
    });
    let came = fs::read(desk.path().join("in/same")).unwrap();
    assert_eq!(came.len(), 5_000_000);
    assert!(came.iter().all(|byte| *byte == came[0]));
    assert_eq!(fs::read(desk.path().join("in/same.part")).unwrap(), b"of yesterday");
    assert_eq!(names(&desk.path().join("in")), ["same", "same.part"]);
}

#[test]
fn files_come_up_one_after_another() {
    let desk = desk(&[("a", 1000), ("b", 1000), ("c", 1000)]);
    let receiver = Receiver::start(desk.path());
    let started = Clock::start();
    let options = ["--every", "300ms", "--deadline", "5s", "--json"];
    let said = send(desk.path(), &receiver.address, &["a", "b", "c"], &options);
    assert!(started.now().as_secs_f64() >= 0.6);
    assert_eq!((said.code, outcomes(&said)), (Some(0), vec!["stored".to_owned(); 3]), "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    let took_s = |place: usize| document["files"][place]["completion_s"].as_f64().unwrap();
    assert!((0..3).all(|place| took_s(place) < 0.3), "each counts from its own coming up: {said:?}");
}

#[test]
fn a_file_that_is_gone_as_it_comes_up_costs_no_other() {
    let desk = desk(&[("a", 1000), ("gone", 1000), ("c", 1000)]);
    let receiver = Receiver::start(desk.path());
    scope(|scope| {
        let sender = scope.spawn(|| send(desk.path(), &receiver.address, &["a", "gone", "c"], &["--every", "1s"]));
        while !desk.path().join("in/a").exists() {
            sleep(Duration::from_millis(10));
        }
        fs::remove_file(desk.path().join("gone")).unwrap();
        let said = sender.join().unwrap();
        assert_eq!(said.code, Some(1));
        assert!(said.stdout.contains("gone  0 bytes  abandoned after 0 bytes: it cannot be read any more"), "{said:?}");
    });
    assert_eq!(names(&desk.path().join("in")), ["a", "c"]);
}

#[test]
fn plain_tcp_goes_on_and_is_told() {
    let desk = desk(&[("a", 100_000)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let there = TempDir::new().unwrap();
    scope(|scope| {
        let sender = scope.spawn(|| send(desk.path(), &to, &["a"], &["--json"]));
        assert_eq!(receive_one(&listener, there.path(), |_| {})[0].incomplete, None);
        let said = sender.join().unwrap();
        assert_eq!((said.code, outcomes(&said)), (Some(0), vec!["stored".to_owned()]), "{said:?}");
        assert_eq!(said.stderr.matches("this is plain TCP").count(), 1, "{said:?}");
        assert!(said.stdout.contains("\"multipath\": false"), "{said:?}");
    });
}

#[test]
fn one_past_its_deadline_is_given_up_or_sent_to_its_end() {
    for (late, outcome, left) in
        [("give-up", "late", Some(Incomplete::Abandoned(Abandoned::Late))), ("continue", "stored", None)]
    {
        let desk = desk(&[("big", BIG)]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let there = TempDir::new().unwrap();
        let options = ["--deadline", "500ms", "--late", late, "--json"];
        scope(|scope| {
            let sender = scope.spawn(|| send(desk.path(), &to, &["big"], &options));
            let kept = receive_one(&listener, there.path(), |_| sleep(Duration::from_millis(800)));
            let said = sender.join().unwrap();
            assert_eq!((said.code, outcomes(&said)), (Some(1), vec![outcome.to_owned()]), "{said:?}");
            assert!(said.stdout.contains("\"in_time\": false"), "{said:?}");
            assert_eq!(kept[0].incomplete, left);
            // What arrived stays usable.
            let came = fs::read(kept[0].file.as_ref().unwrap()).unwrap();
            assert!(!came.is_empty() && came == content("big", BIG)[..came.len()]);
        });
    }
}

#[test]
fn a_receiver_that_says_nothing_is_not_waited_for_without_end() {
    let desk = desk(&[("a", 1000)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let started = Clock::start();
    let said = send(desk.path(), &to, &["a"], &["--deadline", "200ms"]);
    assert!(started.now().as_secs_f64() < 10.0);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("a  1000 bytes  not finished"), "{said:?}");
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_not_stored() {
    let desk = desk(&[("big", BIG), ("small", 10)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let there = TempDir::new().unwrap();
    scope(|scope| {
        let sender = scope.spawn(|| send(desk.path(), &to, &["big", "small"], &["--json"]));
        let kept = receive_one(&listener, there.path(), |_| {
            sleep(Duration::from_millis(300));
            fs::OpenOptions::new().append(true).open(desk.path().join("big")).unwrap().write_all(b"more").unwrap();
        });
        let said = sender.join().unwrap();
        assert_eq!((said.code, outcomes(&said)), (Some(1), vec!["changed".to_owned(), "stored".to_owned()]));
        assert!(said.stdout.contains("it changed while it was sent"), "{said:?}");
        assert_eq!(kept[0].incomplete, Some(Incomplete::Abandoned(Abandoned::Changed)));
    });
}

#[test]
fn a_full_disk_costs_the_file_that_fills_it_and_no_other() {
    let desk = desk(&[("big", 500_000), ("small", 1000)]);
    // Takes no room here, and would take more there than any disk of a vehicle has.
    let huge = File::create(desk.path().join("huge")).unwrap().set_len(1 << 43).is_ok();
    let receiver = Receiver::with(desk.path(), |command| {
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(|| {
                // The kernel's way to refuse more bytes of a file, without a disk to fill.
                signal(Signal::SIGXFSZ, SigHandler::SigIgn)?;
                Ok(setrlimit(Resource::RLIMIT_FSIZE, 100_000, 100_000)?)
            });
        }
        command.spawn().unwrap()
    });
    let files = if huge { vec!["big", "small", "huge"] } else { vec!["big", "small"] };
    let said = send(desk.path(), &receiver.address, &files, &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let about = |name: &str| said.stdout.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(about("big").contains("not stored: File too large (os error 27); make room there and send it again"));
    assert!(about("small").contains("stored in"), "{said:?}");
    assert!(!huge || about("huge").contains("make room there and send it again"), "{said:?}");
    assert_eq!(fs::read(desk.path().join("in/big.part")).unwrap(), content("big", 500_000)[..100_000]);
    let told = receiver.await_words("the received part is in in/big.part");
    assert!(told.contains("while receiving big from 127.0.0.1:"), "{told}");
    assert_eq!(names(&desk.path().join("in")), ["big.part", "small"]);
}

#[test]
fn a_folder_that_is_gone_is_told_to_the_sender() {
    let desk = desk(&[("a", 1000)]);
    let receiver = Receiver::start(desk.path());
    fs::remove_dir(desk.path().join("in")).unwrap();
    let said = send(desk.path(), &receiver.address, &["a"], &[]);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("create the receiver's folder again and send it again"), "{said:?}");
    fs::create_dir(desk.path().join("in")).unwrap();
    assert_eq!(send(desk.path(), &receiver.address, &["a"], &[]).code, Some(0), "it goes on serving");
}

#[test]
fn a_sender_that_is_killed_leaves_its_part_and_disturbs_nobody() {
    let desk = desk(&[("a", 1000)]);
    let receiver = Receiver::start(desk.path());
    let mut stream = TcpStream::connect(&receiver.address).unwrap();
    let mut wire = frame::PREFACE.to_vec();
    frame::offer(&mut wire, 0, 1000, 0, "torn");
    frame::data(&mut wire, 0, 1000);
    wire.extend([7; 400]);
    stream.write_all(&wire).unwrap();
    let mut killed = TcpStream::connect(&receiver.address).unwrap();
    killed.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    drop((stream, killed));
    let told = receiver.await_words("the received part is in in/torn.part");
    assert!(told.contains("while receiving torn from") && told.contains("the connection ended before it was complete"));
    receiver.await_words("not a Crosslane transfer of version 1 at byte 0 of the stream; check that both sides run");
    assert_eq!(fs::read(desk.path().join("in/torn.part")).unwrap(), [7; 400]);
    assert_eq!(send(desk.path(), &receiver.address, &["a"], &[]).code, Some(0), "it goes on serving");
}

#[test]
fn who_is_no_receiver_is_told_in_one_sentence() {
    let desk = desk(&[("a", 3_000_000)]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = send(desk.path(), &closed.to_string(), &["a"], &["--agent", "@nobody-at-all"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.sentence().contains("while reaching the agent at @nobody-at-all: Connection refused"), "{said:?}");
    let said = send(desk.path(), &closed.to_string(), &["a"], &[]);
    assert_eq!(said.code, Some(1));
    let expected = format!(
        "crosslane: while connecting to {closed}: Connection refused (os error 111); start `crosslane receive` there, or \
         correct the address\n"
    );
    assert!(said.stderr.ends_with(&expected), "{said:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    scope(|scope| {
        let sender = scope.spawn(|| send(desk.path(), &to, &["a"], &[]));
        let mut stranger = listener.accept().unwrap().0;
        stranger.read_exact(&mut [0; 1000]).unwrap();
        stranger.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let said = sender.join().unwrap();
        assert_eq!(said.code, Some(1));
        assert!(said.stdout.starts_with("a  3000000 bytes  not finished: "), "{said:?}");
        assert!(
            said.stderr.contains("not a Crosslane transfer of version 1 at byte 0 of the stream; look"),
            "{said:?}"
        );
    });
}

/// The test is the agent, and the receiver.
#[test]
fn an_agent_hears_the_demand_and_its_end_is_told() {
    let desk = desk(&[("big", BIG)]);
    let socket = desk.path().join("agent.sock");
    let agents = UnixListener::bind(&socket).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let there = TempDir::new().unwrap();
    let options = ["--deadline", "60s", "--agent", socket.to_str().unwrap()];
    scope(|scope| {
        let sender = scope.spawn(|| send(desk.path(), &to, &["big"], &options));
        let kept = receive_one(&listener, there.path(), |socket| {
            let mut agent = agents.accept().unwrap().0;
            let mut told = String::new();
            BufReader::new(agent.try_clone().unwrap()).read_line(&mut told).unwrap();
            let told: Value = serde_json::from_str(&told).unwrap();
            let object = &told["objects"][0];
            assert_eq!((object["number"].as_u64(), object["size_bytes"].as_u64()), (Some(0), Some(BIG as u64)));
            let start_ns = object["start_ns"].as_u64().unwrap();
            assert_eq!(object["deadline_ns"].as_u64().unwrap() - start_ns, 60_000_000_000);
            // It waits up to 50 ms for our word, unless we are too late to see.
            sleep(Duration::from_millis(20));
            let came = socket.peek(&mut [std::mem::MaybeUninit::uninit(); 100]).unwrap();
            assert!(came == frame::PREFACE.len() || monotonic_ns() > start_ns + 45_000_000, "{came} bytes");
            let predicted_ns = start_ns + 70_000_000_000;
            let admission =
                format!(r#"{{"admission": {{"number": 0, "best_ns": {predicted_ns}, "can_be_met": false}}}}"#);
            writeln!(agent, "{{\"backlog_bytes\": 200000}}\n{admission}").unwrap();
        });
        assert_eq!(kept[0].incomplete, None);
        let said = sender.join().unwrap();
        assert_eq!(said.code, Some(0), "{said:?}");
        let sentences = [
            "the deadline of big cannot be met; predicted completion: in 70.0 s\n",
            "the connection to the agent is lost; ",
        ];
        assert!(sentences.iter().all(|sentence| said.stderr.contains(sentence)), "{said:?}");
    });
}

#[test]
fn an_interrupt_is_told_with_what_is_not_finished() {
    let desk = desk(&[("big", BIG)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: SocketAddr = listener.local_addr().unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["send", "big", "--to", &to.to_string()]).current_dir(desk.path());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _silent = listener.accept().unwrap().0;
    sleep(Duration::from_millis(200));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("not finished"), "{said:?}");
    assert!(
        said.stderr.contains("while sending: it was interrupted; send the files again that are not stored"),
        "{said:?}"
    );
}
