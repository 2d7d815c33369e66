//! `crosslane controller`: leads the home addresses of vehicles to the roadside units that serve them
//! (`docs/reference/controller.md`). The decisions are in `core/roadside/controller.rs`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crosslane_core::engine::Engine;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::agent::{or_pending, ready};
use crate::clock::Clock;
use crate::control::status_server::{StatusRequest, StatusServer, is_ours};
use crate::error::{Error, Result};

pub mod admission;
pub mod config;
mod driver;
pub mod server;
pub mod status;

use driver::Driver;

/// Period of checks.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Open files: a connection of each unit and vehicle, and others.
const MAX_FILES: u64 = 16_384;

/// What it means that a program of another user has the name of the control socket.
const NAME_TAKEN: &str = "a program of another user listens at @crosslane-controller; the controller works without \
                          `crosslane controller status` until it ends";

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Options {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The subcommand.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the status of the controller that runs in this network namespace.
    Status {
        /// Print the status as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong, another controller runs here (exit code 2), or the system refuses.
pub fn run(options: &Options) -> Result<()> {
    match (&options.command, &options.config) {
        (Some(Command::Status { json }), _) => status::run(*json),
        (None, Some(file)) => control(file),
        (None, None) => Err(Error::usage("starting the controller", "no configuration is named", "add --config FILE")),
    }
}

/// Signals of the service manager and the terminal.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

fn control(file: &Path) -> Result<()> {
    let config = config::read(file)?;
    let key = config::private_key(&config)?;
    raise_file_limit();
    let starting = |cause| Error::failure("starting the controller", cause);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(starting)?;
    runtime.block_on(async {
        let mut signals = Signals {
            terminate: signal(SignalKind::terminate()).map_err(starting)?,
            interrupt: signal(SignalKind::interrupt()).map_err(starting)?,
            hangup: signal(SignalKind::hangup()).map_err(starting)?,
        };
        // Before any route is touched: units follow one controller.
        let control = listen()?;
        let mut driver = Driver::new(config, key, Clock::start())?;
        if control.is_none() {
            driver.note(NAME_TAKEN);
        }
        ready::notify(ready::READY);
        serve(file, &mut driver, control, &mut signals).await;
        driver.finish();
        Ok(())
    })
}

async fn serve(file: &Path, driver: &mut Driver, mut control: Option<StatusServer>, signals: &mut Signals) {
    let mut watchdog = ready::watchdog();
    let mut checks = interval(CHECK_PERIOD);
    checks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut request: Option<StatusRequest> = None;
    loop {
        driver.act();
        if let Some(request) = request.take() {
            request.answer(&driver.status());
        }
        let wait = driver.engine.next_wakeup().map(|at| at.since(driver.clock.now()));
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hangup.recv() => driver.read_again(file),
            _ = or_pending(watchdog.as_mut().map(Interval::tick)) => ready::notify(ready::ALIVE),
            outcome = driver.redirector.next() => driver.redirected(outcome),
            () = sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {}
            _ = checks.tick() => {
                driver.check();
                if control.is_none() {
                    control = StatusServer::listen(status::SOCKET).ok();
                    control.iter().for_each(|_| driver.note("`crosslane controller status` works now"));
                }
            }
            () = driver.server.next(&mut driver.arrived) => driver.receive(),
            asked = or_pending(control.as_mut().map(StatusServer::next)) => request = Some(asked),
        }
    }
}

/// Listens for requests of the status; `None`: a program of another user has the name.
///
/// # Errors
/// Another controller runs in this network namespace, and names itself.
fn listen() -> Result<Option<StatusServer>> {
    let attempt = "starting the controller";
    match StatusServer::listen(status::SOCKET) {
        Ok(control) => return Ok(Some(control)),
        Err(cause) if cause.kind() != io::ErrorKind::AddrInUse => return Err(Error::failure(attempt, cause)),
        Err(_) if !is_ours(status::SOCKET) => return Ok(None),
        Err(_) => {}
    }
    let first = match status::query_controller() {
        Ok(first) => format!("units follow the one that runs here and listens on {}", first.listen),
        Err(_) => "another program has the name of its control socket".into(),
    };
    Err(Error::usage(attempt, first, "end that one first, or start this one in another network namespace"))
}

/// Each connection is a file. A lower limit of the system admits fewer peers.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = MAX_FILES.clamp(soft, hard.max(soft));
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
    }
}
