//! The vehicle's agent, as it is started, ended, killed and watched.

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

/// An agent that has written more than this is stopped, or it would fill the disk.
pub const FLOOD_BYTES: u64 = 24_000_000;
/// How long an agent may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an agent may take to end once it is told to; then it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// All agents of a run, one after the other.
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
    /// None runs yet. `origin_ns` is when the run began.
    pub fn new(plan: &Plan, folder: &Path, origin_ns: u64) -> Agents {
        Agents {
            folder: folder.to_owned(),
            configuration: configuration(plan),
            origin_ns,
            running: None,
            facts: AgentFacts::default(),
        }
    }

    /// Starts one in the vehicle's namespace and waits until it is ready.
    pub fn start(&mut self, vehicle: &Namespace) {
        let number = self.facts.starts;
        self.facts.starts += 1;
        let of = |ending: &str| self.folder.join(format!("agent-{number}.{ending}"));
        let (file, events, ready) = (of("toml"), of("jsonl"), of("ready"));
        fs::write(&file, self.configuration.replace("EVENTS", events.to_str().unwrap())).unwrap();
        let news = UnixDatagram::bind(&ready).unwrap();
        news.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
        command.arg("agent").arg("--config").arg(&file).env("NOTIFY_SOCKET", &ready);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(of("log")).unwrap());
        let began_ns = monotonic_ns();
        let child = vehicle.spawn(&mut command).unwrap();
        self.running = Some(Running { child, began_ns, events });
        if news.recv(&mut [0; 64]).is_err() {
            self.facts.faults.push(format!("agent {number} was not ready within {} s", PATIENCE.as_secs()));
        }
    }

    /// Sees that it has neither ended by itself nor written without end.
    pub fn watch(&mut self) {
        let Some(running) = &mut self.running else { return };
        let ended = running.child.try_wait().ok().flatten();
        let bytes = written(&running.events);
        if let Some(status) = ended {
            let log = fs::read_to_string(running.events.with_extension("log")).unwrap_or_default();
            self.facts.faults.push(format!("the agent ended by itself: {status}: {}", log.trim()));
            self.settle(Duration::ZERO);
        } else if bytes > FLOOD_BYTES {
            self.facts.faults.push(format!("the agent wrote {} MB and was killed", bytes / 1_000_000));
            self.end(false);
        }
    }

    /// Ends it, by SIGTERM if politely, else by SIGKILL.
    pub fn end(&mut self, politely: bool) {
        let Some(running) = &mut self.running else { return };
        let pid = Pid::from_raw(running.child.id() as i32);
        let begun_ns = monotonic_ns();
        kill(pid, if politely { Signal::SIGTERM } else { Signal::SIGKILL }).unwrap();
        let mut used = used_by(pid);
        while politely && !has_ended(pid) {
            if monotonic_ns() - begun_ns > GRACE.as_nanos() as u64 {
                self.facts.faults.push(format!("SIGTERM was not obeyed within {} s", GRACE.as_secs()));
                kill(pid, Signal::SIGKILL).unwrap();
                break;
            }
            used = used.max(used_by(pid));
            std::thread::sleep(Duration::from_millis(1));
        }
        if politely {
            let took_ms = (monotonic_ns() - begun_ns) / 1_000_000;
            self.facts.longest_end_ms = self.facts.longest_end_ms.max(took_ms);
        }
        let code = running.child.wait().unwrap().code();
        if politely && code != Some(0) {
            self.facts.faults.push(format!("ended by SIGTERM it said {code:?}, not 0"));
        }
        self.settle(used);
    }

    /// What is known of all of them; the last one is ended.
    pub fn finish(mut self) -> AgentFacts {
        self.end(true);
        self.facts
    }

    fn settle(&mut self, used: Duration) {
        let Some(running) = self.running.take() else { return };
        self.facts.alive_s += (monotonic_ns() - running.began_ns) as f64 / 1e9;
        self.facts.cpu_s += used.as_secs_f64();
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

/// Paths without signal, as `lte`: up is good until it is silent.
fn configuration(plan: &Plan) -> String {
    let path = |place| format!("[[path]]\nname = \"{}\"\nrat = \"lte\"\n", topology::name(place));
    let paths: String = (0..plan.paths.len()).map(path).collect();
    let mode = if plan.backup { "backup" } else { "aggregate" };
    format!("{paths}[service]\nmode = \"{mode}\"\n[strategy]\nname = \"threshold\"\n[log]\nevents = \"EVENTS\"\n")
}

/// The file of events, and those that rotation has put beside it.
fn files(events: &Path) -> Vec<PathBuf> {
    let name = events.file_name().unwrap().to_string_lossy().into_owned();
    let beside = fs::read_dir(events.parent().unwrap()).into_iter().flatten().flatten().map(|entry| entry.path());
    beside.filter(|file| file.file_name().is_some_and(|own| own.to_string_lossy().starts_with(&name))).collect()
}

fn written(events: &Path) -> u64 {
    files(events).iter().map(|file| size(file)).sum()
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

/// Processor time of a process that is not waited for yet. Its number is of
/// our PID namespace, which /proc need not show.
fn used_by(pid: Pid) -> Duration {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write what they are given.
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
    // SAFETY: what waitid wrote, or zeros.
    read != 0 || unsafe { info.si_pid() } != 0
}
