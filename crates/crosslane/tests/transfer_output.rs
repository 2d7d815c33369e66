//! What `crosslane send` and `crosslane receive` print, where it cannot be written.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::{CROSSLANE, ProgramOutput, crosslane};
use crate::receiver::Receiver;
use tempfile::TempDir;

#[test]
fn a_full_disk_on_standard_output_loses_no_file_and_is_reported_once() {
    let workdir = TempDir::new().unwrap();
    let files = [("a.bin", [1; 1000]), ("b.bin", [2; 1000])];
    files.iter().for_each(|(name, bytes)| fs::write(workdir.path().join(name), bytes).unwrap());
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let receiver = Receiver::with(workdir.path(), |command| command.stdout(full()).spawn().unwrap());
    let mut command = Command::new(CROSSLANE);
    command.args(["send", "--encryption", "none", "--to", &receiver.address, "a.bin", "b.bin"]);
    command.current_dir(workdir.path()).stdin(Stdio::null()).stdout(full()).stderr(Stdio::piped());
    let output: ProgramOutput = command.spawn().unwrap().wait_with_output().unwrap().into();
    assert!(output.sentence().starts_with("crosslane: while printing the result: No space left"), "{output:?}");
    assert_eq!(output.code, Some(1));
    for (name, bytes) in files {
        assert_eq!(fs::read(workdir.path().join("in").join(name)).unwrap(), bytes);
    }
    let printed = receiver.await_message("No space left on device (os error 28); the receiver continues");
    assert!(printed.contains("while printing the result"), "{printed}");
}

#[test]
fn a_receiver_whose_messages_cannot_be_written_stores_files() {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("a.bin"), [1; 1000]).unwrap();
    fs::create_dir(workdir.path().join("in")).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new(CROSSLANE);
    command.args(["receive", "--into", "in", "--encryption", "none", "--once", "--listen", &address]);
    command.current_dir(workdir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut receiver = command.stderr(File::options().write(true).open("/dev/full").unwrap()).spawn().unwrap();
    let send = || crosslane(workdir.path(), &["send", "--encryption", "none", "--to", &address, "a.bin"]).code;
    while send() != Some(0) {
        assert_eq!(receiver.try_wait().unwrap(), None, "it has ended");
        sleep(Duration::from_millis(20));
    }
    assert_eq!(receiver.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read(workdir.path().join("in/a.bin")).unwrap(), [1; 1000]);
}

#[test]
fn results_that_are_not_read_hold_up_no_sender_and_no_end() {
    let workdir = TempDir::new().unwrap();
    let long = "n".repeat(200);
    // Their results are more than a pipe of 64 KiB holds.
    let names: Vec<String> = (0..150).map(|number| format!("{long}{number}")).collect();
    names.iter().for_each(|name| fs::write(workdir.path().join(name), [1]).unwrap());
    let (unread, results) = std::io::pipe().unwrap();
    let options = ["--encryption", "none", "--json"];
    let receiver = Receiver::of(workdir.path(), &options, |command| command.stdout(results).spawn().unwrap());
    let mut arguments = vec!["send", "--encryption", "none", "--to", &receiver.address];
    arguments.extend(names.iter().map(String::as_str));
    let output = crosslane(workdir.path(), &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    receiver.await_message("while printing the result: its reader does not read; the receiver continues");
    drop(receiver.end());
    drop(unread);
}

#[test]
fn a_sender_whose_results_are_not_read_goes_on_and_prints_them_at_its_end() {
    let workdir = TempDir::new().unwrap();
    let long = "n".repeat(200);
    fs::create_dir(workdir.path().join("many")).unwrap();
    let count = 2000;
    (0..count).for_each(|number| fs::write(workdir.path().join(format!("many/{long}{number}")), [1]).unwrap());
    let receiver = Receiver::start(workdir.path());
    let mut command = Command::new(CROSSLANE);
    command.args(["send", "--encryption", "none", "--to", &receiver.address, "many"]).current_dir(workdir.path());
    let sender = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stored = || fs::read_dir(workdir.path().join("in/many")).map_or(0, Iterator::count);
    for _ in 0..2000 {
        if stored() == count {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    assert_eq!(stored(), count);
    let output: ProgramOutput = sender.wait_with_output().unwrap().into();
    assert_eq!((output.code, output.stdout.lines().count()), (Some(0), count), "{}", output.stderr);
}
