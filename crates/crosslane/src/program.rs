//! Starts this program again, for what needs a separate process: a run, an agent, a new key, a supervisor.

use std::io;
use std::process::Command;

/// This program, to be started with arguments.
#[expect(clippy::disallowed_methods, reason = "the program itself, not another one")]
pub fn this_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}
