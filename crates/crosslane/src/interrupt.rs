//! Ctrl-C: what is complete is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Error, Result};

/// Turns SIGINT, SIGTERM and SIGHUP into a flag; whoever is impatient and sends
/// a second one ends the process at once. Call it before the threads that are
/// not to be disturbed exist.
///
/// # Errors
/// The system's.
pub fn listen() -> Result<Arc<AtomicBool>> {
    let failure = |cause: &dyn std::fmt::Display| Error::failure("preparing for Ctrl-C", cause);
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|cause| failure(&cause))?;
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let wait = move || {
        if signals.wait().is_ok() {
            tell.store(true, Ordering::Relaxed);
        }
        if let Ok(signal) = signals.wait() {
            std::process::exit(128 + signal as i32);
        }
    };
    std::thread::Builder::new().spawn(wait).map_err(|cause| failure(&cause))?;
    Ok(told)
}
