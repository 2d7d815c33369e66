//! `--keep`: the namespaces and their links stay up after the run.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

use crate::error::{Error, Result};
use crate::testbed::Testbed;

/// Has the process of `drive` leave Ctrl-C to the run that it waits for.
///
/// # Errors
/// The system's.
pub fn leave_to_run() -> Result<()> {
    // SAFETY: no handler is installed, the signal is only ignored.
    let ignored = unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) };
    ignored.map(drop).map_err(|cause| Error::failure("setting up --keep", cause))
}

/// Has this process and its threads to come wait with Ctrl-C until
/// [`until_told`]. Call it before any thread exists.
///
/// # Errors
/// The system's.
pub fn prepare() -> Result<()> {
    // SAFETY: the default action is restored, no handler is installed.
    let restored = unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) };
    let blocked = restored.and_then(|_| told().thread_block());
    blocked.map_err(|cause| Error::failure("setting up --keep", cause))
}

/// Says how to enter the namespaces and waits for Ctrl-C, SIGTERM or SIGHUP.
///
/// # Errors
/// The system's.
pub fn until_told(testbed: &Testbed) -> Result<()> {
    println!("The run is over; its namespaces and links stay up. To enter:");
    println!("  vehicle: {}", testbed.vehicle.how_to_enter());
    println!("  server:  {}", testbed.server.how_to_enter());
    println!("Ctrl-C takes them down and writes the records.");
    told().wait().map(drop).map_err(|cause| Error::failure("waiting for Ctrl-C", cause))
}

fn told() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
