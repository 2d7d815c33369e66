//! Starts this program again, for what needs a separate process: a run, an agent, a new key, a supervisor. And which other
//! programs run.

use std::fs;
use std::io;
use std::process::Command;

/// This program, to be started with arguments: the same one also if its file was replaced since, as by a build.
#[expect(clippy::disallowed_methods, reason = "the program itself, not another one")]
pub fn this_program() -> io::Result<Command> {
    let file = std::env::current_exe()?;
    Ok(if file.exists() { Command::new(file) } else { Command::new("/proc/self/exe") })
}

/// Programs that set endpoints of MPTCP by themselves.
const SET_ENDPOINTS: [&str; 2] = ["NetworkManager", "mptcpd"];
/// Processes that are looked at.
const MAX_PROCESSES: usize = 100_000;

/// Who has probably set an endpoint that is not ours. The kernel does not tell: those that run here and do so, or else all.
pub fn endpoint_owner() -> String {
    let runs = |name: &&str| Some(format!("{name} (process {})", process_named(name)?));
    let running: Vec<String> = SET_ENDPOINTS.iter().filter_map(runs).collect();
    match running.is_empty() {
        true => "another program (NetworkManager, mptcpd or `ip mptcp`)".into(),
        false => format!("another program, probably {},", running.join(" or ")),
    }
}

/// Process id of a program of this name, as far as processes of others are visible.
pub fn process_named(name: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten().take(MAX_PROCESSES);
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name))
}
