//! `crosslane send`: files over one connection, each by its deadline.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use crosslane_core::transfer::Late;
use socket2::Socket;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::transfer::connection::{self, How};
use crate::transfer::files::Files;
use crate::transfer::{TransferError, sending};

mod plan;
mod report;
mod steering;

use plan::{Deadline, Price};
use report::Report;
use steering::Steering;

/// What the command takes.
#[derive(clap::Args)]
pub struct Options {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where `crosslane receive` listens; port 7411 unless named.
    #[arg(long, value_name = "HOST[:PORT]")]
    to: String,
    /// When a file is to be there: so long after it comes up (`10s`, `500ms`, `2m`), or a time
    /// (`2026-01-31T12:00:00Z`). May be repeated: the n-th is the n-th file's, the last all further ones'.
    #[arg(long, value_name = "WHEN", value_parser = plan::deadline)]
    deadline: Vec<Deadline>,
    /// Paths (interfaces) by preference; the others of --cost come after them.
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    prefer: Vec<String>,
    /// Price of 10⁹ bytes over each path: `lte-a=0.1/GB,lte-b=0.5/GB`.
    #[arg(long, value_name = "PATH=PRICE/GB,…", value_delimiter = ',', value_parser = plan::price)]
    cost: Vec<Price>,
    /// What becomes of a file past its deadline.
    #[arg(long, value_enum, default_value = "give-up")]
    late: WhenLate,
    /// The files come up one after another, so long apart; without it, all at once.
    #[arg(long, value_name = "TIME", value_parser = plan::duration)]
    every: Option<Duration>,
    /// Socket of the agent that manages the paths; `/run/crosslane/demands.sock` if one answers there.
    #[arg(long, value_name = "SOCKET")]
    agent: Option<String>,
    /// Congestion control; the kernel's choice unless named.
    #[arg(long, value_enum)]
    congestion: Option<Congestion>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum WhenLate {
    GiveUp,
    Continue,
}

#[derive(Clone, Copy, ValueEnum)]
enum Congestion {
    Cubic,
    Bbr,
}

impl Congestion {
    fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }
}

/// Sends the files; success if all are stored, and in time.
///
/// # Errors
/// One sentence on what cannot be used, or why the transfer failed.
pub fn run(options: &Options) -> Result<ExitCode> {
    plan::check(options)?;
    let targets = plan::resolve(&options.to)?;
    let stop = interrupt::listen()?;
    let mut steering = Steering::choose(options)?;
    steering.notes.iter().for_each(|note| eprintln!("crosslane: {note}"));
    let clock = Clock::start();
    let uploads = plan::uploads(options, clock.now());
    let how = How { congestion: options.congestion.map(Congestion::name), interface: steering.interface.as_deref() };
    let socket = connect(&targets, &how, clock, &stop)?;
    let agent = steering.connected();
    let mut report = Report::new(options, &socket, clock);
    let late = match options.late {
        WhenLate::GiveUp => Late::GiveUp,
        WhenLate::Continue => Late::Continue,
    };
    let mut files = Files::new(uploads, |news, sent| report.tell(news, sent));
    let went = sending::send(&socket, agent, &mut files, late, clock, &stop);
    let all = files.all().to_vec();
    report.finish(&all)?;
    went.map_err(told)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::failure("sending", "it was interrupted").with_remedy("send again what is not stored"));
    }
    let well = all.iter().all(report::went_well);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// To the first of these addresses that answers.
fn connect(targets: &[SocketAddr], how: &How<'_>, clock: Clock, stop: &AtomicBool) -> Result<Socket> {
    let mut fault = None;
    for target in targets {
        match connection::connect(*target, how, clock, stop) {
            Ok(socket) => return Ok(socket),
            Err(cause) => fault = Some(told(cause)),
        }
    }
    Err(fault.unwrap_or_else(|| Error::failure("connecting", "the receiver's name has no address")))
}

fn told(cause: TransferError) -> Error {
    Error::message(cause.to_string(), 1)
}
