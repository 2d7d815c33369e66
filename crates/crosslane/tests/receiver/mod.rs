//! A receiver as a separate process.

#![allow(dead_code, clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::CROSSLANE;

/// A running `crosslane receive` into the folder `in` of a working directory.
pub struct Receiver {
    pub child: Child,
    pub address: String,
    stderr: PathBuf,
}

impl Receiver {
    pub fn start(workdir: &Path) -> Receiver {
        Receiver::with(workdir, |command| command.spawn().unwrap())
    }

    /// In the clear.
    pub fn with(workdir: &Path, spawn: impl FnOnce(&mut Command) -> Child) -> Receiver {
        Receiver::of(workdir, &["--encryption", "none"], spawn)
    }

    /// In the clear, at an address of a receiver before it.
    pub fn at(workdir: &Path, address: &str) -> Receiver {
        let options = ["--listen", address, "--encryption", "none"];
        Receiver::listening(workdir, &options, |command| command.spawn().unwrap())
    }

    pub fn of(workdir: &Path, options: &[&str], spawn: impl FnOnce(&mut Command) -> Child) -> Receiver {
        Receiver::listening(workdir, &[&["--listen", "127.0.0.1:0"], options].concat(), spawn)
    }

    fn listening(workdir: &Path, options: &[&str], spawn: impl FnOnce(&mut Command) -> Child) -> Receiver {
        fs::create_dir_all(workdir.join("in")).unwrap();
        let stderr = workdir.join("receiver");
        let mut command = Command::new(CROSSLANE);
        command.args(["receive", "--into", "in"]).args(options).current_dir(workdir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr).unwrap());
        let child = spawn(&mut command);
        let mut receiver = Receiver { child, address: String::new(), stderr };
        let text = receiver.await_message("listening on ");
        receiver.address = text.split("listening on ").nth(1).unwrap().lines().next().unwrap().to_owned();
        receiver
    }

    /// Waits up to 15 s until standard error contains this message; returns all of it.
    pub fn await_message(&self, message: &str) -> String {
        for _ in 0..750 {
            let text = fs::read_to_string(&self.stderr).unwrap();
            if text.contains(message) && text.ends_with('\n') {
                return text;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("{message} is not in {}", fs::read_to_string(&self.stderr).unwrap());
    }

    /// Ends it with SIGTERM and returns its standard error.
    pub fn end(mut self) -> String {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        fs::read_to_string(&self.stderr).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
