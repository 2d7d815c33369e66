//! A receiver as a process of its own.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::CROSSLANE;

/// A running `crosslane receive` into the folder `in` of a desk.
pub struct Receiver {
    pub child: Child,
    pub address: String,
    stderr: PathBuf,
}

impl Receiver {
    pub fn start(desk: &Path) -> Receiver {
        Receiver::with(desk, |command| command.spawn().unwrap())
    }

    pub fn with(desk: &Path, spawn: impl FnOnce(&mut Command) -> Child) -> Receiver {
        fs::create_dir_all(desk.join("in")).unwrap();
        let stderr = desk.join("receiver");
        let mut command = Command::new(CROSSLANE);
        command.args(["receive", "--into", "in", "--listen", "127.0.0.1:0"]).current_dir(desk);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr).unwrap());
        let child = spawn(&mut command);
        let mut receiver = Receiver { child, address: String::new(), stderr };
        let said = receiver.await_words("listening on ");
        receiver.address = said.split("listening on ").nth(1).unwrap().lines().next().unwrap().to_owned();
        receiver
    }

    /// What it has said on standard error, once these words are in it.
    pub fn await_words(&self, words: &str) -> String {
        for _ in 0..200 {
            let said = fs::read_to_string(&self.stderr).unwrap();
            if said.contains(words) && said.ends_with('\n') {
                return said;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("{words} is not in {}", fs::read_to_string(&self.stderr).unwrap());
    }

    /// Ends it and returns what it said.
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
