//! The command line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_mangen::Man;

use crate::congestion_control::command as congestion_control;
use crate::control::{agent_command, tunnel_command};
use crate::error::{Error, Result};
use crate::{
    agent, bugreport, catalog, check, controller, doctor, drive, http, import, keygen, mptcp, output, receive, refit,
    run, send, simulate, version,
};

mod examples;

/// Keeps a vehicle's connections alive over all networks in reach.
#[derive(Parser)]
#[command(name = "crosslane", version = version::version())]
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
    /// Show a running agent: its paths with their states and why, connections, tunnel, problems.
    Status(agent_command::Options),
    /// Show the paths of a running agent with what is measured of each.
    Links(agent_command::Options),
    /// Show the connections that a running agent manages, with their subflows.
    Connections(agent_command::Options),
    /// Show a running agent until Ctrl-C: live on a terminal, else a line for each change.
    Watch(agent_command::Options),
    /// Show why a path or a connection is as it is: what speaks for it and against it, what happened last.
    Explain(agent_command::Explain),
    /// Let one path carry alone while it is good, with the others in reserve, whatever the strategy decides.
    Prefer(agent_command::Prefer),
    /// Change how a running agent uses its paths, until it restarts or reads its configuration again.
    Mode(agent_command::UseMode),
    /// Let a running agent read its configuration again; what flows is not interrupted.
    Reload(agent_command::Options),
    /// Fit the tree of a strategy to what the agent's trials have shown, and let it run if it does better on newer ones.
    Refit(refit::Options),
    /// Lead the home addresses of vehicles to the roadside units that serve them.
    Controller(controller::Options),
    /// Send files over all paths, each by its deadline, at minimum cost.
    Send(send::Options),
    /// Receive files from `crosslane send`.
    Receive(receive::Options),
    /// Emulate a drive with the network stack of this machine's kernel.
    Drive(drive::Options),
    /// Simulate a drive: many runs in seconds, without privileges.
    Simulate(simulate::Options),
    /// Show a recorded run on a page in the browser: a map, and what the agent's page shows, at every moment.
    View(http::ViewOptions),
    /// Validate a scenario or an agent's configuration.
    Check {
        /// Scenario or configuration (TOML).
        file: PathBuf,
        /// Folder of the data that the scenario refers to as `data:…`.
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
    /// Convert a public recording into a trace.
    Import(import::Options),
    /// Create a key: of a tunnel, a transfer of files, a roadside unit or a controller.
    Keygen(keygen::Options),
    /// Show and control the tunnel of a running agent.
    #[command(subcommand)]
    Tunnel(tunnel_command::Command),
    /// Coupled congestion control of MPTCP (LIA, RFC 6356) in this kernel.
    #[command(subcommand)]
    Cc(congestion_control::Command),
    /// Find what on this machine keeps the agent from its work, and the command that mends it; exit code 0 good,
    /// 1 warnings, 2 broken.
    Doctor(doctor::Options),
    /// Pack what a maintainer needs to understand a fault: status, findings of `doctor`, configuration, events. Never
    /// keys; addresses and host names only with --addresses.
    Bugreport(bugreport::Options),
    /// The kernel's path managers, without an agent: announce, withdraw, subflows, priorities, listeners, events,
    /// endpoints, limits.
    Mptcp(mptcp::Options),
    /// Run a program whose TCP connections are to be MPTCP, whatever it is written in and linked with.
    Run(run::Options),
    /// Print a shell completion script.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program or of a command.
    Man {
        /// The command.
        command: Option<String>,
        /// Write the pages of the program and all commands into this folder.
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
    /// Answer the socket calls of a program; started by `run`.
    #[command(hide = true)]
    RunSupervisor {
        /// In the background.
        #[arg(long)]
        detached: bool,
    },
    /// Check that this machine can execute runs; started by `drive`.
    #[command(hide = true)]
    DriveProbe {
        /// Bases of the strategies.
        bases: Vec<String>,
    },
    /// Execute one run of a drive; started by `drive`.
    #[command(hide = true)]
    DriveRun {
        /// Plan of the run (JSON).
        plan: String,
    },
}

/// Runs the program, which was built from this commit as far as known.
pub fn main(commit: Option<&str>) -> ExitCode {
    version::set_commit(commit);
    let parsed = program().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let command = match parsed.map_err(|error| error.format(&mut program())) {
        Ok(cli) => Ok(cli.command),
        Err(error) if is_help(&error) => {
            let code = ExitCode::from(error.exit_code() as u8);
            let attempt = "printing the help";
            let printed = match error.print() {
                Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => Err(Error::failure(attempt, cause)),
                _ => output::print(attempt, ""),
            };
            return printed.map_or_else(failed, |()| code);
        }
        Err(error) => Err(usage_error(&error)),
    };
    command.and_then(execute).unwrap_or_else(failed)
}

fn failed(error: Error) -> ExitCode {
    output::message(&error);
    ExitCode::from(error.exit_code())
}

/// The command line, with examples.
fn program() -> clap::Command {
    examples::added_to(Cli::command())
}

fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Joins clap's paragraphs (the fault, and a tip if there is one) into one
/// sentence.
fn usage_error(error: &clap::Error) -> Error {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let fault = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| Some(paragraph.strip_prefix("tip: ")?.to_string()));
    // `-- -1` would make the value of an option another argument.
    let tip = tip.filter(|tip| !tip.starts_with("to pass '-"));
    let remedy = tip.unwrap_or_else(|| "add --help to list the options".into());
    Error::usage("reading the command line", fault.trim_start_matches("error: "), remedy)
}

fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Agent { config } => agent::run(&config).map(|()| ExitCode::SUCCESS),
        Command::Status(options) => agent_command::status(&options).map(|()| ExitCode::SUCCESS),
        Command::Links(options) => agent_command::links(&options).map(|()| ExitCode::SUCCESS),
        Command::Connections(options) => agent_command::connections(&options).map(|()| ExitCode::SUCCESS),
        Command::Watch(options) => agent_command::watch(&options).map(|()| ExitCode::SUCCESS),
        Command::Explain(explain) => agent_command::explain(&explain).map(|()| ExitCode::SUCCESS),
        Command::Prefer(prefer) => agent_command::prefer(&prefer).map(|()| ExitCode::SUCCESS),
        Command::Mode(mode) => agent_command::use_mode(&mode).map(|()| ExitCode::SUCCESS),
        Command::Reload(options) => agent_command::reload(&options).map(|()| ExitCode::SUCCESS),
        Command::Refit(options) => refit::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Controller(options) => controller::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Send(options) => send::run(&options),
        Command::Receive(options) => receive::run(&options),
        Command::Drive(options) => drive::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::View(options) => http::view(&options).map(|()| ExitCode::SUCCESS),
        Command::Check { file, data, fix, json } => check::run(&file, data.as_deref(), fix, json),
        Command::Catalog { json } => catalog::run(json).map(|()| ExitCode::SUCCESS),
        Command::Import(options) => import::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Keygen(options) => keygen::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Tunnel(command) => tunnel_command::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Cc(command) => congestion_control::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Doctor(options) => doctor::run(&options),
        Command::Bugreport(options) => bugreport::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Mptcp(options) => mptcp::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Run(options) => match run::run(&options)? {},
        Command::RunSupervisor { detached } => run::supervise(detached).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program(), "crosslane", &mut script);
            output::print("printing the completion script", script).map(|()| ExitCode::SUCCESS)
        }
        Command::Man { out: Some(folder), .. } => man_pages(&folder).map(|()| ExitCode::SUCCESS),
        Command::Man { command, .. } => man(command.as_deref()).map(|()| ExitCode::SUCCESS),
        Command::DriveProbe { bases } => drive::probe(&bases).map(|()| ExitCode::SUCCESS),
        Command::DriveRun { plan } => drive::run_one(&plan),
    }
}

fn man(command: Option<&str>) -> Result<()> {
    let attempt = "printing the manual page";
    let mut program = program();
    program.build();
    let described = match command {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
            Error::usage(attempt, format!("there is no command {name:?}"), "`crosslane --help` lists them")
        })?,
    };
    let mut page = Vec::new();
    manual(described).render(&mut page).map_err(|cause| Error::failure(attempt, cause))?;
    output::print(attempt, page)
}

/// The manual page of the program or a command, at whose foot is the program's version.
fn manual(described: clap::Command) -> Man {
    Man::new(described).source(format!("crosslane {}", version::version()))
}

fn man_pages(folder: &Path) -> Result<()> {
    let attempt = || format!("writing manual pages into {}", folder.display());
    let failed = |cause| Error::failure(attempt(), cause).with_remedy("name a folder that exists and can be written");
    let mut program = program().disable_help_subcommand(true);
    program.build();
    write_pages(&program, folder).map_err(failed)
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let mut shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.try_for_each(|subcommand| write_pages(subcommand, folder))?;
    manual(command.clone()).generate_to(folder).map(drop)
}

#[cfg(test)]
mod tests;
