//! An agent as a process in a namespace.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crosslane::control::report::AgentStatus;
use crosslane::control::status::UnitStatus;
use crosslane::testbed::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{CROSSLANE, ProgramOutput};

/// A running agent; dropping it kills the process.
pub struct Agent {
    pub workdir: TempDir,
    pub child: Child,
}

impl Agent {
    /// Starts an agent and waits for its readiness notification. `EVENTS` in the
    /// configuration is replaced by the path of the events file.
    pub fn start(namespace: &Namespace, configuration: &str) -> Agent {
        let workdir = TempDir::new().unwrap();
        let events = workdir.path().join("events.jsonl");
        Agent::with_events(namespace, workdir, configuration, &events)
    }

    pub fn with_events(namespace: &Namespace, workdir: TempDir, configuration: &str, events: &Path) -> Agent {
        Agent::spawn(namespace, workdir, |workdir, ready| command(workdir, configuration, events, ready))
    }

    /// The same with another command, made from the working directory and the socket of the readiness notification.
    pub fn spawn(namespace: &Namespace, workdir: TempDir, command: impl FnOnce(&Path, &Path) -> Command) -> Agent {
        let ready = workdir.path().join("ready");
        let notify_socket = UnixDatagram::bind(&ready).unwrap();
        notify_socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let child = namespace.spawn(&mut command(workdir.path(), &ready)).unwrap();
        let agent = Agent { workdir, child };
        let mut buffer = [0; 20];
        let length =
            notify_socket.recv(&mut buffer).unwrap_or_else(|_| panic!("it is not ready: {}", agent.read("stderr")));
        assert_eq!(&buffer[..length], b"READY=1");
        agent
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Kills it with SIGKILL and waits for it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with SIGTERM; returns its events and its standard error.
    pub fn end(self) -> (String, String) {
        self.end_by(Signal::SIGTERM)
    }

    pub fn end_by(mut self, signal: Signal) -> (String, String) {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.read("stderr"));
        (self.read("events.jsonl"), self.read("stderr"))
    }

    /// Current content of a file in its working directory; empty if there is none.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.workdir.path().join(name)).unwrap_or_default()
    }

    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn command(workdir: &Path, configuration: &str, events: &Path, ready: &Path) -> Command {
    let file: PathBuf = workdir.join("agent.toml");
    fs::write(&file, configuration.replace("EVENTS", events.to_str().unwrap())).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.arg("agent").arg("--config").arg(file).env("NOTIFY_SOCKET", ready);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(workdir.join("stderr")).unwrap());
    command
}

/// Runs the program in a namespace and a folder.
pub fn run(namespace: &Namespace, folder: &Path, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(CROSSLANE);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap().wait_with_output().unwrap().into()
}

/// Waits until the agent's two paths have these states.
pub fn await_states(namespace: &Namespace, expected: [&str; 2]) -> AgentStatus {
    let began = Instant::now();
    loop {
        let output = run(namespace, Path::new("/"), &["status", "--json"]);
        let status: AgentStatus = serde_json::from_str(&output.stdout).unwrap();
        let states: Vec<&str> = status.paths.iter().map(|path| path.state.as_str()).collect();
        if states == expected {
            return status;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{states:?} instead of {expected:?}");
        sleep(Duration::from_millis(20));
    }
}

/// What `crosslane tunnel status` shows of the units in a slot.
pub fn units_in_slots(vehicle: &Namespace) -> Vec<UnitStatus> {
    let mut command = Command::new(CROSSLANE);
    command.args(["tunnel", "status", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output: ProgramOutput = vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap().into();
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let units: Vec<UnitStatus> = serde_json::from_value(status["units"].clone()).unwrap();
    units.into_iter().filter(|unit| unit.slot.is_some()).collect()
}

/// Sets an interface down.
pub fn take_down(namespace: &Namespace, interface: &str) {
    let down = async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let message = rtnetlink::LinkUnspec::new_with_name(interface).down().build();
        handle.link().set(message).execute().await.unwrap();
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    namespace.enter(|| runtime().block_on(down)).unwrap();
}
