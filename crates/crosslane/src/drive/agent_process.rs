//! An agent of a drive: a separate process in the vehicle's or the server's
//! namespace, with a configuration like a real vehicle's or gateway's.

use std::fs::File;
use std::io::BufReader;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use toml::Table;

use crate::agent::ready;
use crate::error::{Error, Result};
use crate::program::this_program;
use crate::run_folder::agent_file::{AgentFile, Reader};

const START_TIMEOUT: Duration = Duration::from_secs(10);

pub struct AgentProcess {
    child: Child,
    events: PathBuf,
    log: PathBuf,
}

impl AgentProcess {
    /// Writes the configuration into `folder` and starts the agent in this
    /// thread's network namespace; returns when it is ready. Its files are named
    /// after `name`.
    pub fn start(name: &str, mut configuration: Table, folder: &Path) -> Result<AgentProcess> {
        let failure = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        let (config, events, log) = (file("toml"), file("jsonl"), file("log"));
        let log_config = Table::from_iter([("events".to_string(), events.display().to_string().into())]);
        configuration.insert("log".into(), log_config.into());
        let text = toml::to_string(&configuration).map_err(|cause| failure(&cause))?;
        std::fs::write(&config, text).map_err(|cause| failure(&cause))?;
        let name = format!("crosslane-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).map_err(|cause| failure(&cause))?;
        let ready_socket = UnixDatagram::bind_addr(&address).map_err(|cause| failure(&cause))?;
        ready_socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(|cause| failure(&cause))?;
        // The agent appends.
        drop(std::fs::remove_file(&events));
        let stderr = File::create(&log).map_err(|cause| failure(&cause))?;
        let child = this_program()
            .map_err(|cause| failure(&cause))?
            .arg("agent")
            .arg("--config")
            .arg(&config)
            .env(ready::VARIABLE, format!("@{name}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|cause| failure(&cause))?;
        let mut agent = AgentProcess { child, events, log };
        agent.wait_until_ready(&ready_socket)?;
        Ok(agent)
    }

    fn wait_until_ready(&mut self, ready_socket: &UnixDatagram) -> Result<()> {
        let mut buffer = [0; 64];
        for _ in 0..START_TIMEOUT.as_millis() / 50 {
            if ready_socket.recv(&mut buffer).is_ok_and(|length| &buffer[..length] == ready::READY) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().ok().flatten() {
                return Err(Error::failure("starting the agent", self.exit_message(status)));
            }
        }
        Err(Error::failure("starting the agent", format!("it was not ready within {} s", START_TIMEOUT.as_secs())))
    }

    /// The agent's error message, else its exit status.
    fn exit_message(&self, status: ExitStatus) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        match log.trim().trim_start_matches("crosslane: ") {
            "" => status.to_string(),
            message => message.to_string(),
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Ends the agent and returns its events and its CPU time.
    pub fn finish(mut self, reader: Reader) -> Result<(AgentFile, Duration)> {
        if let Some(status) = self.child.try_wait().ok().flatten() {
            return Err(Error::failure("driving", format!("the agent exited early: {}", self.exit_message(status))));
        }
        let failure = |cause: &dyn std::fmt::Display| Error::failure("ending the agent", cause);
        let cpu_time = end(&mut self.child, Signal::SIGTERM).map_err(|cause| failure(&cause))?;
        let file = File::open(&self.events).map_err(|cause| failure(&cause))?;
        let events = reader.read(BufReader::new(file)).map_err(|cause| failure(&cause))?;
        drop(std::fs::remove_file(&self.events));
        Ok((events, cpu_time))
    }
}

/// Ends a child process by a signal; returns its CPU time.
pub fn end(child: &mut Child, signal: Signal) -> std::io::Result<Duration> {
    kill(Pid::from_raw(child.id() as i32), signal)?;
    let before = cpu_time(UsageWho::RUSAGE_CHILDREN);
    child.wait()?;
    Ok(cpu_time(UsageWho::RUSAGE_CHILDREN).saturating_sub(before))
}

/// CPU time of this process, or of its children that have been waited for.
pub fn cpu_time(who: UsageWho) -> Duration {
    let of = |time: TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    getrusage(who).map_or(Duration::ZERO, |usage| of(usage.user_time()) + of(usage.system_time()))
}
