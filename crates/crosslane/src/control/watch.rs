//! `crosslane watch`: a live view of an agent on a terminal, and else a line for each change.

use std::io::{IsTerminal, stdout};

use super::report::{AgentStatus, ChangeReport};
use super::report_text;
use super::running_agent::RunningAgent;
use crate::error::{Error, Result};
use crate::output;

/// Interval of the requests: a change is seen within it, and none is missed, since the agent keeps the last of each path.
const PERIOD_MS: u16 = 500;
/// Changes on the screen.
const CHANGES: usize = 8;
/// Home, and erase to the end of the screen (ECMA-48 CUP and ED).
const HOME: &str = "\x1b[H\x1b[J";
const ATTEMPT: &str = "watching the agent";

/// Shows the agent until it ends.
///
/// # Errors
/// It has ended (exit code 3), or it hangs.
pub fn run(agent: &RunningAgent, json: bool) -> Result<()> {
    let is_screen = stdout().is_terminal() && !json;
    let mut seen = None;
    loop {
        let status = agent.status()?;
        let shown = if is_screen { screen(&status) } else { lines(&status, &mut seen, json)? };
        if (!shown.is_empty() && !output::print_more(ATTEMPT, shown)?) || output::is_reader_gone(ATTEMPT, PERIOD_MS)? {
            return Ok(());
        }
    }
}

fn screen(status: &AgentStatus) -> String {
    let from = status.changes.len().saturating_sub(CHANGES);
    let last = status.changes[from..].iter();
    let changes: String = last.map(|one| format!("  {}\n", report_text::change(one))).collect();
    format!("{HOME}{}\nlast changes:\n{changes}", report_text::status(status))
}

/// The changes that are new; at the beginning, all that the agent still has. `seen` is the number of the last one.
fn lines(status: &AgentStatus, seen: &mut Option<u64>, json: bool) -> Result<String> {
    let is_new = |change: &&ChangeReport| seen.is_none_or(|seen| change.number > seen);
    let line = |change: &ChangeReport| {
        let at_s = status.uptime_s - change.ago_s;
        match json {
            true => serde_json::to_string(change).map_err(|cause| Error::failure(ATTEMPT, cause)),
            false => Ok(format!("{at_s:.3} s: {}", report_text::change(change))),
        }
    };
    let lines: Vec<String> = status.changes.iter().filter(is_new).map(line).collect::<Result<_>>()?;
    *seen = status.changes.iter().map(|change| change.number).max().or(*seen);
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}
