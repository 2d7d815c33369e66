//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::control::tunnel;
use crate::error::{Error, Result};
use crate::{agent, catalog, check, drive, import, keygen, output, receive, send, simulate};

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
    /// Send files over all paths, each by its deadline, as cheaply as can be.
    Send(send::Options),
    /// Receive what `send` sends.
    Receive(receive::Options),
    /// Emulate a drive with the network stack of this machine's kernel.
    Drive(drive::Options),
    /// The same in simulated time: many runs in seconds, without privileges.
    Simulate(simulate::Options),
    /// Validate a scenario or an agent's configuration.
    Check {
        /// Scenario or configuration (TOML).
        file: PathBuf,
        /// Folder of the data that the scenario names as `data:…`.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Replace former names of keys in the file by the present ones first.
        #[arg(long)]
        fix: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the strategies and metrics, with units and meanings.
    Catalog {
        /// Print the catalogue as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Turn a public recording into a trace.
    Import(import::Options),
    /// Make a key for the tunnel.
    Keygen(keygen::Options),
    /// Look at the tunnel of a running agent, and steer it.
    #[command(subcommand)]
    Tunnel(tunnel::command::Command),
    /// Print a shell completion script.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(hide = true)]
    Man,
    /// See whether this machine can carry out runs; `drive` starts it.
    #[command(hide = true)]
    DriveProbe {
        /// What the strategies to be driven are based on.
        bases: Vec<String>,
    },
    /// Carry out one run of a drive; `drive` starts it.
    #[command(hide = true)]
    DriveRun {
        /// What to run, as JSON.
        plan: String,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => Ok(cli.command),
        Err(misread) if is_help(&misread) => misread.exit(),
        Err(misread) => Err(in_one_sentence(&misread)),
    };
    match command.and_then(run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("crosslane: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn is_help(misread: &clap::Error) -> bool {
    !misread.use_stderr() || misread.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What clap tells in paragraphs: the fault, then perhaps a tip.
fn in_one_sentence(misread: &clap::Error) -> Error {
    let text = misread.to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let fault = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| Some(paragraph.strip_prefix("tip: ")?.to_string()));
    let remedy = tip.unwrap_or_else(|| "add --help to see what it takes".into());
    Error::usage("reading the command line", fault.trim_start_matches("error: "), remedy)
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Agent { config } => agent::run(&config).map(|()| ExitCode::SUCCESS),
        Command::Send(options) => send::run(&options),
        Command::Receive(options) => receive::run(&options),
        Command::Drive(options) => drive::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Check { file, data, fix, json } => check::run(&file, data.as_deref(), fix, json),
        Command::Catalog { json } => catalog::run(json).map(|()| ExitCode::SUCCESS),
        Command::Import(options) => import::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Keygen(options) => keygen::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Tunnel(command) => tunnel::command::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "crosslane", &mut script);
            output::print("printing the completion script", script).map(|()| ExitCode::SUCCESS)
        }
        Command::Man => man().map(|()| ExitCode::SUCCESS),
        Command::DriveProbe { bases } => drive::probe(&bases).map(|()| ExitCode::SUCCESS),
        Command::DriveRun { plan } => drive::run_one(&plan),
    }
}

fn man() -> Result<()> {
    let attempt = "printing the manual page";
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(|cause| Error::failure(attempt, cause))?;
    output::print(attempt, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
