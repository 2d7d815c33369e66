//! A running drive and the processes that it started.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{CROSSLANE, ProgramOutput};

/// All processes of a drive inherit this variable; its value identifies the drive.
const MARK: &str = "CROSSLANE_TEST_RUN";

/// A running drive with one strategy.
pub struct Drive {
    workdir: TempDir,
    child: Child,
    mark: String,
}

impl Drive {
    /// Starts a drive; `prepare` may change its command and its output folder first.
    pub fn start(scenario: &str, strategy: &str, prepare: impl FnOnce(&mut Command, &Path)) -> Drive {
        let workdir = TempDir::new().unwrap();
        fs::write(workdir.path().join("s.toml"), scenario).unwrap();
        let out = workdir.path().join("out");
        fs::create_dir(&out).unwrap();
        let mark = workdir.path().display().to_string();
        let mut command = Command::new(CROSSLANE);
        command.args(["drive", "s.toml", "--strategy", strategy, "--json", "--out", "out"]);
        command.current_dir(workdir.path()).env(MARK, &mark);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command, &out);
        let child = command.spawn().unwrap();
        Drive { workdir, child, mark }
    }

    /// Waits up to 5 s for the condition, and 300 ms more.
    pub fn until(&mut self, condition: impl Fn(&Drive) -> bool) {
        self.until_within(Duration::from_secs(5), condition);
    }

    /// The same with a timeout: on a busy machine runs are repeated.
    pub fn until_within(&mut self, timeout: Duration, condition: impl Fn(&Drive) -> bool) {
        for _ in 0..timeout.as_millis() / 10 {
            if condition(self) {
                return sleep(Duration::from_millis(300));
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the drive has ended");
            sleep(Duration::from_millis(10));
        }
        panic!("the condition did not hold in time");
    }

    /// Its working directory.
    pub fn folder(&self) -> &Path {
        self.workdir.path()
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

    /// Its processes whose argument at index `place` of the command line ends with `word`.
    pub fn programs(&self, place: usize, word: &str) -> Vec<Pid> {
        let fits = |process: &PathBuf| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(place).is_some_and(|argument| argument.ends_with(word.as_bytes()))
        };
        let pid = |process: PathBuf| process.file_name()?.to_str()?.parse().ok().map(Pid::from_raw);
        self.processes().into_iter().filter(fits).filter_map(pid).collect()
    }

    /// Network namespaces, other than this process's own, that a process of the drive
    /// is in or holds open, each with a link to it in /proc.
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

    /// Waits for its exit; fails if a process or namespace of it is left 2 s later.
    pub fn end(mut self) -> (TempDir, ProgramOutput) {
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
        let output = ProgramOutput {
            code,
            stdout: std::io::read_to_string(stdout).unwrap(),
            stderr: std::io::read_to_string(stderr).unwrap(),
        };
        (self.workdir, output)
    }
}
