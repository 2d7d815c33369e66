//! `crosslane send`: sends files over a connection for each path, each file by its deadline.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::transfer::Late;

use crate::clock::Clock;
use crate::durations::duration;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::output;
use crate::transfer::beliefs::Beliefs;
use crate::transfer::files::Files;
use crate::transfer::followed::Followed;
use crate::transfer::multipath::sending::{self, How};
use crate::transfer_keys::Clear;
use crate::tunnel::security::PublicKey;

mod items;
mod plan;
mod report;

use plan::{Deadline, Price};
use report::Report;

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// The files; a folder stands for all files in it.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Address of `crosslane receive`; the default port is 7411.
    #[arg(long, value_name = "HOST[:PORT]")]
    to: String,
    /// File of this sender's private key (`crosslane keygen --out FILE`); requires --receiver-key.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The receiver's public key.
    #[arg(long, value_name = "KEY")]
    receiver_key: Option<PublicKey>,
    /// `none`: without keys, so that any host on the way may read and change the files. The receiver must say so too.
    #[arg(long, value_name = "none", conflicts_with_all = ["key", "receiver_key"])]
    encryption: Option<Clear>,
    /// Deadline of a file: a time after it is generated (`10s`, `500ms`, `2m`), or a date and time
    /// (`2026-01-31T12:00:00Z`). May be repeated: the n-th applies to the n-th file, the last to all further files.
    #[arg(long, value_name = "WHEN", value_parser = plan::deadline)]
    deadline: Vec<Deadline>,
    /// Paths (interfaces) in order of preference; further paths of --cost follow. Without paths, the routing table
    /// chooses one.
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    prefer: Vec<String>,
    /// Price of 10⁹ bytes over each path: `lte-a=0.1/GB,lte-b=0.5/GB`.
    #[arg(long, value_name = "PATH=PRICE/GB,…", value_delimiter = ',', value_parser = plan::price)]
    cost: Vec<Price>,
    /// What to do with a file after its deadline.
    #[arg(long, default_value = "give-up", value_parser = plan::late())]
    late: Late,
    /// Interval at which the files are generated, one after another; without it, all at once.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    every: Option<Duration>,
    /// Send what is appended to the files as it appears, until SIGINT, SIGTERM or --idle ends them. A deadline holds for
    /// each part, from when it is seen on.
    #[arg(long, conflicts_with_all = ["every", "late"])]
    follow: bool,
    /// With --follow: a file ends when nothing was appended for this long.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "follow")]
    idle: Option<Duration>,
    /// Congestion control; default: the kernel's.
    #[arg(long, value_parser = ["cubic", "bbr"])]
    congestion: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Sends the files; success if all are stored in time.
///
/// # Errors
/// An invalid option, or why the transfer failed.
pub fn run(options: &Options) -> Result<ExitCode> {
    plan::check(options)?;
    let (items, left_out) = items::items(&options.files)?;
    let targets = plan::resolve(&options.to)?;
    let keys = plan::keys(options)?;
    left_out.iter().for_each(output::message);
    let stop = interrupt::listen()?;
    let clock = Clock::start();
    let uploads = plan::uploads(options, &items, clock.now());
    let paths = plan::paths(options);
    // A part of a file that grows is never given up: the rest would be of no use.
    let late = if options.follow { Late::Continue } else { options.late };
    let beliefs = Beliefs::follow(clock)?;
    let how = How {
        targets: &targets,
        keys: keys.as_ref(),
        beliefs: Some(&beliefs),
        congestion: options.congestion.as_deref(),
        late,
    };
    let mut report = Report::new(options, &uploads, &paths, clock);
    let (result, all) = if options.follow {
        let rules = plan::follow(options, &stop);
        let followed = Followed::new(uploads, rules, clock, |news, sent| report.update(news, sent));
        let mut followed = followed.map_err(|cause| Error::failure("opening the files", cause))?;
        let result = sending::send(&paths, &how, &mut followed, clock, &AtomicBool::new(false));
        (result, followed.all().to_vec())
    } else {
        let mut files = Files::new(uploads, |news, sent| report.update(news, sent));
        let result = sending::send(&paths, &how, &mut files, clock, &stop);
        (result, files.all().to_vec())
    };
    report.finish(&all)?;
    result.map_err(|cause| Error::message(cause.to_string(), 1))?;
    if stop.load(Ordering::Relaxed) && !options.follow {
        return Err(
            Error::failure("sending", "it was interrupted").with_remedy("send the files again that are not stored")
        );
    }
    let success = all.iter().all(report::is_success);
    Ok(if success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
