//! A drive that runs, and all that it has started.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{CROSSLANE, Said};

/// All that a drive starts inherits this variable; its value tells whose it is.
const MARK: &str = "CROSSLANE_STORY";

/// A drive of one strategy.
pub struct Drive {
    desk: TempDir,
    child: Child,
    mark: String,
}

impl Drive {
    /// Begins a drive, once its command and the folder of its records are prepared.
    pub fn start(scenario: &str, strategy: &str, prepare: impl FnOnce(&mut Command, &Path)) -> Drive {
        let desk = TempDir::new().unwrap();
        fs::write(desk.path().join("s.toml"), scenario).unwrap();
        let out = desk.path().join("out");
        fs::create_dir(&out).unwrap();
        let mark = desk.path().display().to_string();
        let mut command = Command::new(CROSSLANE);
        command.args(["drive", "s.toml", "--strategy", strategy, "--json", "--out", "out"]);
        command.current_dir(desk.path()).env(MARK, &mark);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command, &out);
        let child = command.spawn().unwrap();
        Drive { desk, child, mark }
    }

    /// Waits until it is under way, and a little longer.
    pub fn until(&mut self, is_under_way: impl Fn(&Drive) -> bool) {
        self.until_within(Duration::from_secs(5), is_under_way);
    }

    /// The same with more patience: runs on a busy machine are repeated.
    pub fn until_within(&mut self, patience: Duration, is_under_way: impl Fn(&Drive) -> bool) {
        for _ in 0..patience.as_millis() / 10 {
            if is_under_way(self) {
                return sleep(Duration::from_millis(300));
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            sleep(Duration::from_millis(10));
        }
        panic!("it did not get under way");
    }

    /// The folder that it works in.
    pub fn folder(&self) -> &Path {
        self.desk.path()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn processes(&self) -> Vec<PathBuf> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let is_ours = |process: &PathBuf| {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        };
        fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_ours).collect()
    }

    /// Its processes in whose command line `word` ends what stands at `place`.
    pub fn programs(&self, place: usize, word: &str) -> Vec<Pid> {
        let fits = |process: &PathBuf| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(place).is_some_and(|argument| argument.ends_with(word.as_bytes()))
        };
        let number = |process: PathBuf| process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw);
        self.processes().into_iter().filter(fits).filter_map(number).collect()
    }

    /// Network namespaces, other than this process's own, that a process of the
    /// drive is in or holds, and where it does.
    pub fn namespaces(&self) -> BTreeMap<PathBuf, PathBuf> {
        let read = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let of_process = |process: PathBuf| {
            read(process.join("task")).map(|task| task.join("ns/net")).chain(read(process.join("fd")))
        };
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let links = self.processes().into_iter().flat_map(of_process);
        let named = links.filter_map(|link| Some((fs::read_link(&link).ok()?, link)));
        named.filter(|(name, _)| name.to_string_lossy().starts_with("net:[") && *name != own).collect()
    }

    /// Waits for its end; then nothing of it may be left after 2 s.
    pub fn end(mut self) -> (TempDir, Said) {
        let (stdout, stderr) = (self.child.stdout.take().unwrap(), self.child.stderr.take().unwrap());
        let code = self.child.wait().unwrap().code();
        for _ in 0..200 {
            if self.processes().is_empty() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        assert_eq!(self.processes(), [] as [PathBuf; 0], "processes are left");
        assert_eq!(self.namespaces(), BTreeMap::new(), "namespaces are left");
        let said = Said {
            code,
            stdout: std::io::read_to_string(stdout).unwrap(),
            stderr: std::io::read_to_string(stderr).unwrap(),
        };
        (self.desk, said)
    }
}
