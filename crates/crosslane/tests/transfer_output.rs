//! What `crosslane send` and `crosslane receive` print, where it cannot be written.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::program::{CROSSLANE, ProgramOutput};
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
