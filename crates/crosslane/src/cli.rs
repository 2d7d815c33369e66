//! The command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::drive::Options;
use crate::error::{Error, Result};
use crate::{agent, check, drive, import};

/// Keeps a vehicle's connections alive over every network it can reach.
#[derive(Parser)]
#[command(name = "crosslane", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Manage the paths of this host's MPTCP connections.
    Agent {
        /// Configuration file (TOML).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Emulate a drive with the network stack of this machine's kernel.
    Drive(Options),
    /// Validate a scenario or an agent's configuration.
    Check {
        /// Scenario or configuration (TOML).
        file: PathBuf,
        /// Folder of the data that the scenario names as `data:…`.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Turn a public recording into a trace.
    Import(import::Options),
    /// Print a shell completion script.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(hide = true)]
    Man,
    /// Carry out one run of a drive; `drive` starts it.
    #[command(hide = true)]
    DriveRun {
        /// What to run, as JSON.
        plan: String,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crosslane: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Agent { config } => agent::run(&config).map(|()| ExitCode::SUCCESS),
        Command::Drive(options) => drive::run(&options),
        Command::Check { file, data, json } => check::run(&file, data.as_deref(), json),
        Command::Import(options) => import::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "crosslane", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => man().map(|()| ExitCode::SUCCESS),
        Command::DriveRun { plan } => drive::run_one(&plan),
    }
}

fn man() -> Result<()> {
    let mut page = Vec::new();
    let print = |cause| Error::failure("printing the manual page", cause);
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(print)?;
    std::io::stdout().write_all(&page).map_err(print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
