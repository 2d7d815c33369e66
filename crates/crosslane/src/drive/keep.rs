//! `--keep`: the namespaces and links stay up after the run.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

use crate::error::{Error, Result};
use crate::output;
use crate::testbed::Testbed;

/// Makes the process of `drive` ignore Ctrl-C, which the run handles.
pub fn ignore_interrupt() -> Result<()> {
    // SAFETY: no handler is installed, the signal is only ignored.
    let ignored = unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) };
    ignored.map(drop).map_err(|cause| Error::failure("setting up --keep", cause))
}

/// Blocks the ending signals in this process and its later threads until
/// [`wait_for_signal`]. Call it before any thread exists.
pub fn prepare() -> Result<()> {
    // SAFETY: the default action is restored, no handler is installed.
    let restored = unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) };
    let blocked = restored.and_then(|_| ending_signals().thread_block());
    blocked.map_err(|cause| Error::failure("setting up --keep", cause))
}

/// Prints how to enter the namespaces and waits for Ctrl-C, SIGTERM or SIGHUP.
pub fn wait_for_signal(testbed: &Testbed) -> Result<()> {
    let text = format!(
        "The run is over; its namespaces and links stay up. To enter:\n  vehicle: {}\n  server:  {}\nCtrl-C removes \
         them and writes the records.\n",
        testbed.vehicle.how_to_enter(),
        testbed.server.how_to_enter()
    );
    output::print("printing how to enter the namespaces", text)?;
    ending_signals().wait().map(drop).map_err(|cause| Error::failure("waiting for Ctrl-C", cause))
}

fn ending_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
