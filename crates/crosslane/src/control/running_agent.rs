//! Finds a running agent and asks it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use nix::unistd::{Uid, User, geteuid};

use super::client::{NO_AGENT, connect, exchange};
use super::protocol::{AGENTS, AgentRequest, write_agent_request};
use super::report::{AgentStatus, ConnectionReport, Done, Explanation, Report};
use super::trust::Listeners;
use crate::error::{Error, Result};

const ATTEMPT: &str = "asking the agent";

/// An agent of this network namespace.
pub struct RunningAgent {
    pid: u32,
    name: String,
}

impl RunningAgent {
    /// The agent with this process id, or the only one. Root's and this user's own agents precede those of other
    /// users, since any program may listen at such a name.
    ///
    /// # Errors
    /// There is none (exit code 3), or more than one.
    pub fn find(pid: Option<u32>) -> Result<RunningAgent> {
        let mut listeners = Listeners::default();
        let user_of = |pid: u32| Some((pid, listeners.user(&name(pid))?));
        let users: BTreeMap<u32, u32> = all().into_iter().filter_map(user_of).collect();
        choose(pid, &users, geteuid().as_raw()).map(|pid| RunningAgent { pid, name: name(pid) })
    }

    /// How it is.
    ///
    /// # Errors
    /// It has gone, it hangs, or it rejects the request, as of the next functions.
    pub fn status(&self) -> Result<AgentStatus> {
        match self.ask(&AgentRequest::Status)? {
            Report::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// All connections that it manages.
    ///
    /// # Errors
    /// As of [`status`](Self::status).
    pub fn connections(&self) -> Result<Vec<ConnectionReport>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.ask(&AgentRequest::Connections { after })? {
                Report::Connections(page) => {
                    all.extend(page.connections);
                    // Tokens ascend, so an agent that repeats one cannot hold us.
                    match page.next.filter(|next| after.is_none_or(|last| next.0 > last.0)) {
                        Some(next) => after = Some(next),
                        None => return Ok(all),
                    }
                }
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    /// Why a path or a connection is as it is.
    ///
    /// # Errors
    /// As of [`status`](Self::status), and there is none of this name.
    pub fn explain(&self, what: &str) -> Result<Explanation> {
        match self.ask(&AgentRequest::Explain(what.into()))? {
            Report::Explanation(explanation) => Ok(explanation),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Changes it.
    ///
    /// # Errors
    /// As of [`status`](Self::status), and nothing has changed.
    pub fn change(&self, request: &AgentRequest) -> Result<Done> {
        match self.ask(request)? {
            Report::Done(done) => Ok(done),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&self, request: &AgentRequest) -> Result<Report> {
        let stream = self.connect()?;
        exchange(&stream, ATTEMPT, &write_agent_request(request))
    }

    fn connect(&self) -> Result<UnixStream> {
        connect(&self.name).map_err(|cause| match cause.kind() {
            io::ErrorKind::ConnectionRefused => Error::failure(ATTEMPT, format!("the agent {} has ended", self.pid))
                .with_remedy("repeat the command if another one runs")
                .with_exit_code(NO_AGENT),
            _ => Error::failure(ATTEMPT, cause).with_remedy("check whether it hangs"),
        })
    }

    fn unexpected(&self, report: &Report) -> Error {
        let report = serde_json::to_string(report).unwrap_or_default();
        let cause = format!("the agent {} gives another answer: {report:.60}", self.pid);
        Error::failure(ATTEMPT, cause).with_remedy("restart it if it has another version")
    }
}

/// Process ids of all agents of this network namespace.
pub fn all() -> Vec<u32> {
    listening(&fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default())
}

/// Another agent than this process in this network namespace, of root or of this user.
pub fn other() -> Option<u32> {
    let users = [0, geteuid().as_raw()];
    let mut listeners = Listeners::default();
    let mut is_trusted = |pid: &u32| listeners.user(&name(*pid)).is_some_and(|user| users.contains(&user));
    all().into_iter().find(|pid| *pid != std::process::id() && is_trusted(pid))
}

fn name(pid: u32) -> String {
    format!("{AGENTS}{pid}")
}

/// The process ids in the names of agents' sockets, in a list as of `/proc/net/unix` (proc_pid_net(5)).
fn listening(sockets: &str) -> Vec<u32> {
    let pid = |line: &str| line.split_ascii_whitespace().last()?.strip_prefix(AGENTS)?.parse().ok();
    let mut found: Vec<u32> = sockets.lines().filter_map(pid).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The agent to ask; `users` has that of each.
fn choose(pid: Option<u32>, users: &BTreeMap<u32, u32>, own: u32) -> Result<u32> {
    let ours: Vec<u32> = users.iter().filter(|(_, user)| [0, own].contains(user)).map(|(pid, _)| *pid).collect();
    let all: Vec<u32> = if ours.is_empty() { users.keys().copied().collect() } else { ours };
    let said = |pid: &u32| format!("{pid} of {}", users.get(pid).map_or_else(String::new, |user| user_name(*user)));
    let list = all.iter().map(said).collect::<Vec<_>>().join(", ");
    match (pid, all.as_slice()) {
        (_, []) => {
            let remedy = "start `crosslane agent --config FILE`, or run this command where it runs (`ip netns exec`)";
            Err(Error::usage(ATTEMPT, "no agent runs in this network namespace", remedy).with_exit_code(NO_AGENT))
        }
        (Some(pid), _) if users.contains_key(&pid) => Ok(pid),
        (Some(pid), _) => {
            let cause = format!("no agent of this network namespace has the process id {pid}");
            Err(Error::usage(ATTEMPT, cause, format!("choose from {list}")).with_exit_code(NO_AGENT))
        }
        (None, [only]) => Ok(*only),
        (None, [first, ..]) => {
            let cause = format!("{} agents run in this network namespace ({list})", all.len());
            Err(Error::usage(ATTEMPT, cause, format!("name one, as --agent {first}")))
        }
    }
}

/// Name of a user, or its number.
fn user_name(user: u32) -> String {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| format!("user {user}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_found_by_their_sockets() {
        let sockets = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 100 @crosslane/agent/77
0000000000000000: 00000003 00000000 00000000 0001 03 101 @crosslane/agent/77
0000000000000000: 00000002 00000000 00010000 0001 01 102 @crosslane/agent/8
0000000000000000: 00000002 00000000 00010000 0001 01 103 @crosslane/agent/x
0000000000000000: 00000002 00000000 00010000 0001 01 104 @crosslane/crosslane0
0000000000000000: 00000002 00000000 00010000 0001 01 105
";
        assert_eq!(listening(sockets), [8, 77]);
    }

    #[test]
    fn root_s_agents_precede_others_and_one_of_several_must_be_named() {
        let users = |of: &[(u32, u32)]| of.iter().copied().collect::<BTreeMap<u32, u32>>();
        let choose = |pid, of: &[(u32, u32)]| {
            choose(pid, &users(of), 1000).map_err(|error| (error.to_string(), error.exit_code()))
        };
        assert_eq!(choose(None, &[(7, 0), (8, 2000)]), Ok(7), "another user's listener cannot stand in the way");
        assert_eq!(choose(None, &[(8, 2000)]), Ok(8), "an agent that runs as a user of its service");
        assert_eq!(choose(Some(8), &[(7, 0), (8, 2000)]), Ok(8));
        assert_eq!(
            choose(None, &[(7, 0), (8, 0)]),
            Err((
                "while asking the agent: 2 agents run in this network namespace (7 of root, 8 of root); name one, as \
                 --agent 7"
                    .into(),
                2
            ))
        );
        let absent = choose(Some(9), &[(7, 0)]).unwrap_err();
        assert_eq!(
            absent,
            (
                "while asking the agent: no agent of this network namespace has the process id 9; choose from 7 of root"
                    .into(),
                3
            )
        );
        assert_eq!(choose(None, &[]).unwrap_err().1, NO_AGENT);
    }
}
