//! The agent of the vehicle: start, end, kill and supervision.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::testbed::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::plan::Plan;
use super::topology;
use super::verdict::AgentFacts;

/// An agent whose events exceed this size is killed, so that it does not fill the disk.
pub const FLOOD_BYTES: u64 = 24_000_000;
/// Maximum time until an agent is ready.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from SIGTERM to the exit of an agent; then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// All agents of a run, which run one after another.
pub struct Agents {
    folder: PathBuf,
    configuration: String,
    origin_ns: u64,
    running: Option<Running>,
    facts: AgentFacts,
}

struct Running {
    child: Child,
    began_ns: u64,
    events: PathBuf,
}

impl Agents {
    /// Starts no agent. `origin_ns` is the start of the run.
    pub fn new(plan: &Plan, folder: &Path, origin_ns: u64) -> Agents {
        Agents {
            folder: folder.to_owned(),
            configuration: configuration(plan),
            origin_ns,
            running: None,
            facts: AgentFacts::default(),
        }
    }

    /// Starts an agent in the namespace of the vehicle and waits until it is ready.
    pub fn start(&mut self, vehicle: &Namespace) {
        let number = self.facts.starts;
        self.facts.starts += 1;
        let of = |ending: &str| self.folder.join(format!("agent-{number}.{ending}"));
        let (file, events, ready) = (of("toml"), of("jsonl"), of("ready"));
        fs::write(&file, self.configuration.replace("EVENTS", events.to_str().unwrap())).unwrap();
        let notify_socket = UnixDatagram::bind(&ready).unwrap();
        notify_socket.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command.arg("agent").arg("--config").arg(&file).env("NOTIFY_SOCKET", &ready);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(of("log")).unwrap());
        let began_ns = monotonic_ns();
        let child = vehicle.spawn(&mut command).unwrap();
        self.running = Some(Running { child, began_ns, events });
        if notify_socket.recv(&mut [0; 64]).is_err() {
            self.facts.faults.push(format!("agent {number} was not ready within {} s", START_TIMEOUT.as_secs()));
        }
    }

    /// Checks that the agent has neither exited by itself nor exceeded [`FLOOD_BYTES`].
    pub fn watch(&mut self) {
        let Some(running) = &mut self.running else { return };
        let ended = running.child.try_wait().ok().flatten();
        let bytes = written(&running.events);
        if let Some(status) = ended {
            let log = fs::read_to_string(running.events.with_extension("log")).unwrap_or_default();
            self.facts.faults.push(format!("the agent ended by itself: {status}: {}", log.trim()));
            self.account(Duration::ZERO);
        } else if bytes > FLOOD_BYTES {
            self.facts.faults.push(format!("the agent wrote {} MB and was killed", bytes / 1_000_000));
            self.end(false);
        }
    }

    /// Ends the agent by SIGTERM if `gracefully`, otherwise by SIGKILL.
    pub fn end(&mut self, gracefully: bool) {
        let Some(running) = &mut self.running else { return };
        let pid = Pid::from_raw(running.child.id() as i32);
        let start_ns = monotonic_ns();
        kill(pid, if gracefully { Signal::SIGTERM } else { Signal::SIGKILL }).unwrap();
        let mut cpu = cpu_time(pid);
        while gracefully && !has_ended(pid) {
            if monotonic_ns() - start_ns > END_TIMEOUT.as_nanos() as u64 {
                self.facts.faults.push(format!("SIGTERM was not obeyed within {} s", END_TIMEOUT.as_secs()));
                kill(pid, Signal::SIGKILL).unwrap();
                break;
            }
            cpu = cpu.max(cpu_time(pid));
            std::thread::sleep(Duration::from_millis(1));
        }
        if gracefully {
            let took_ms = (monotonic_ns() - start_ns) / 1_000_000;
            self.facts.longest_end_ms = self.facts.longest_end_ms.max(took_ms);
        }
        let code = running.child.wait().unwrap().code();
        if gracefully && code != Some(0) {
            self.facts.faults.push(format!("after SIGTERM its exit code was {code:?}, not 0"));
        }
        self.account(cpu);
    }

    /// Ends the last agent; returns the facts of all agents.
    pub fn finish(mut self) -> AgentFacts {
        self.end(true);
        self.facts
    }

    fn account(&mut self, cpu: Duration) {
        let Some(running) = self.running.take() else { return };
        self.facts.alive_s += (monotonic_ns() - running.began_ns) as f64 / 1e9;
        self.facts.cpu_s += cpu.as_secs_f64();
        self.facts.log_bytes += written(&running.events) + size(&running.events.with_extension("log"));
        let mut offset_s = 0.0;
        for file in files(&running.events) {
            for line in fs::read_to_string(file).unwrap_or_default().lines() {
                let event: Value = match line.contains("\"command\"") || line.contains("\"start\"") {
                    true => serde_json::from_str(line).unwrap_or_default(),
                    false => continue,
                };
                if let Some(start_ns) = event["monotonic_ns"].as_u64() {
                    offset_s = (start_ns as f64 - self.origin_ns as f64) / 1e9;
                }
                if event["event"] == "command" {
                    self.facts.commands_at_s.push(event["t_s"].as_f64().unwrap_or(0.0) + offset_s);
                    self.facts.refused += u64::from(!event["error"].is_null());
                }
            }
        }
    }
}

/// Configuration with paths of `rat = "lte"`, without signal: a path that is up is good until it is silent.
fn configuration(plan: &Plan) -> String {
    let path = |place| format!("[[path]]\nname = \"{}\"\nrat = \"lte\"\n", topology::name(place));
    let paths: String = (0..plan.paths.len()).map(path).collect();
    let mode = if plan.backup { "backup" } else { "aggregate" };
    format!("{paths}[service]\nmode = \"{mode}\"\n[strategy]\nname = \"threshold\"\n[log]\nevents = \"EVENTS\"\n")
}

/// The events file and its rotated predecessors.
fn files(events: &Path) -> Vec<PathBuf> {
    let name = events.file_name().unwrap().to_string_lossy().into_owned();
    let siblings = fs::read_dir(events.parent().unwrap()).into_iter().flatten().flatten().map(|entry| entry.path());
    siblings.filter(|file| file.file_name().is_some_and(|own| own.to_string_lossy().starts_with(&name))).collect()
}

fn written(events: &Path) -> u64 {
    files(events).iter().map(|file| size(file)).sum()
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

/// Processor time of a process that has not been waited for. Its process ID belongs to
/// our PID namespace, which /proc may not show.
fn cpu_time(pid: Pid) -> Duration {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write only to the variables that are passed.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.as_raw(), &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    if read { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

fn has_ended(pid: Pid) -> bool {
    // SAFETY: zeros are a valid siginfo_t; the call writes it and leaves the child to be waited for.
    let (read, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        (libc::waitid(libc::P_PID, pid.as_raw() as u32, &mut info, options), info)
    };
    // SAFETY: the fields are as waitid wrote them, or zero.
    read != 0 || unsafe { info.si_pid() } != 0
}
