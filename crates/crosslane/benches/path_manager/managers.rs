//! The compared path managers.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use crosslane::agent::ready;
use crosslane::error::{Error, Result};
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket};
use crosslane::netlink::path_manager::{self, CommandSocket};
use crosslane_core::mptcp::Command::CreateSubflow;
use crosslane_core::mptcp::{AddressId, Event};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::wires::Wires;
use super::{PATHS, failure};

const MPTCPD: &str = "/usr/libexec/mptcpd";
const MPTCPD_HEADERS: &str = "/usr/include/mptcpd";
const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/path_manager/mptcpd_plugin.c");
/// Longest time until a path manager is ready.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for mptcpd, which does not report that it is ready.
const MPTCPD_START: Duration = Duration::from_secs(1);

/// A path manager that is a process. It is ended on drop.
pub struct Daemon {
    child: Child,
}

/// The agent, over both paths.
pub fn crosslane(wires: &Wires, scratch: &Path) -> Result<Daemon> {
    let (config, events, socket) = (scratch.join("agent.toml"), scratch.join("agent.jsonl"), scratch.join("ready"));
    let paths: String = PATHS.iter().map(|(name, _)| format!("[[path]]\nname = \"{name}\"\nrat = \"lte\"\n")).collect();
    let text = format!("{paths}[strategy]\nname = \"threshold\"\n[log]\nevents = {events:?}\n");
    fs::write(&config, text).map_err(failure)?;
    let _ = fs::remove_file(&socket);
    let ready = UnixDatagram::bind(&socket).map_err(failure)?;
    ready.set_read_timeout(Some(START_TIMEOUT)).map_err(failure)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosslane"));
    command.arg("agent").arg("--config").arg(config).env(ready::VARIABLE, &socket);
    let daemon = Daemon::start(wires, &mut command)?;
    ready.recv(&mut [0; 16]).map_err(|cause| failure(format!("the agent is not ready: {cause}")))?;
    Ok(daemon)
}

/// mptcpd's name and version; `None` if it or its headers are not installed.
pub fn mptcpd_version() -> Option<String> {
    if !Path::new(MPTCPD_HEADERS).exists() {
        return None;
    }
    let output = Command::new(MPTCPD).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|version| !version.is_empty())
}

/// mptcpd with a plugin that opens a subflow from the second path.
pub fn mptcpd(wires: &Wires, scratch: &Path) -> Result<Daemon> {
    let folder = scratch.join("mptcpd");
    fs::create_dir_all(&folder).map_err(failure)?;
    let library: PathBuf = folder.join("second_path.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-Wall", "-o"]).arg(library).arg(PLUGIN);
    if !compiler.status().map_err(failure)?.success() {
        return Err(failure("the plugin for mptcpd does not compile"));
    }
    let mut command = Command::new(MPTCPD);
    command
        .arg("--plugin-dir")
        .arg(folder)
        .arg("--path-manager=second_path")
        .env("SECOND_PATH", PATHS[1].1.to_string());
    let mut daemon = Daemon::start(wires, &mut command)?;
    thread::sleep(MPTCPD_START);
    match daemon.child.try_wait().map_err(failure)? {
        Some(status) => Err(failure(format!("mptcpd ended at once: {status}"))),
        None => Ok(daemon),
    }
}

/// A minimal program: a thread that responds to the event with the command and
/// has no other function. It runs until the process ends.
pub fn minimal(wires: &Wires) -> Result<()> {
    let sockets = wires.vehicle.enter(|| {
        let events = path_manager::events().map_err(failure)?;
        Ok::<_, Error>((events, CommandSocket::open().map_err(failure)?))
    })?;
    let (mut events, mut commands) = sockets?;
    thread::spawn(move || {
        loop {
            if let Ok(Some(Event::Established { token, subflow, .. })) = events.recv(Duration::from_secs(60)) {
                let local = PATHS[1].1.into();
                let (local_id, remote) = (AddressId(1), subflow.remote);
                let open = CreateSubflow { token, local_id, local, if_index: 0, remote, backup: false };
                // A failed command is missing in the capture.
                let _ = commands.send(&open);
            }
        }
    });
    Ok(())
}

/// The in-kernel path manager, with an endpoint on the second path.
pub fn kernel(wires: &Wires) -> Result<()> {
    let added = wires.vehicle.enter(|| {
        let mut endpoints = EndpointSocket::open().map_err(failure)?;
        endpoints.add(&Endpoint::subflow(PATHS[1].1.into())).map_err(failure)
    });
    added?
}

impl Daemon {
    fn start(wires: &Wires, command: &mut Command) -> Result<Daemon> {
        // SAFETY: prctl is async-signal-safe and affects only the new process.
        unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = wires.vehicle.spawn(command).map_err(failure)?;
        Ok(Daemon { child })
    }

    /// Memory in MB (10^6 bytes), by its name in `/proc/PID/status`.
    pub fn memory_mb(&self, name: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).map_err(failure)?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(failure)?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// CPU time of all its threads so far.
    pub fn cpu(&self) -> Result<Duration> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id() as i32)).map_err(failure)?;
        Ok(clock_gettime(clock).map_err(failure)?.into())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
