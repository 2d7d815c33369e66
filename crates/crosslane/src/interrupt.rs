//! Ctrl-C: completed results are kept.

use std::io;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use nix::sys::signal::{SigSet, Signal};

use crate::error::{Error, Result};

/// Whether this program received a signal to end; dereferences to the flag.
#[derive(Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicU8>,
}

impl Interrupt {
    /// True once a signal was received.
    pub fn came(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The failure of the interrupted attempt, if a signal was received: exit code
    /// 128 plus the signal's number, as in shells.
    pub fn failure(&self, attempt: &str) -> Option<Error> {
        let code = 128 + self.signal.load(Ordering::Relaxed);
        self.came().then(|| Error::failure(attempt, "it was interrupted").with_exit_code(code))
    }

    fn note(&self, signal: Signal) {
        self.signal.store(signal as u8, Ordering::Relaxed);
        self.flag.store(true, Ordering::Relaxed);
    }
}

impl Deref for Interrupt {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.flag
    }
}

/// Turns SIGINT, SIGTERM and SIGHUP into a flag; a second one ends the process
/// at once. A signal that this process was started to ignore (`nohup`) stays
/// ignored. Must be called before any thread exists that should not receive the signals.
pub fn listen() -> Result<Interrupt> {
    let failure = |cause: &dyn std::fmt::Display| Error::failure("preparing for Ctrl-C", cause);
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let signals: SigSet = signals.into_iter().filter(|signal| !is_ignored(*signal)).collect();
    signals.thread_block().map_err(|cause| failure(&cause))?;
    let interrupt = Interrupt::default();
    let noted = interrupt.clone();
    let wait = move || {
        if let Ok(signal) = signals.wait() {
            noted.note(signal);
        }
        if let Ok(signal) = signals.wait() {
            std::process::exit(128 + signal as i32);
        }
    };
    std::thread::Builder::new().spawn(wait).map_err(|cause| failure(&cause))?;
    Ok(interrupt)
}

/// Unblocks all signals in the program that `command` starts, which would
/// otherwise inherit the blocked ones.
pub fn let_through(command: &mut Command) -> &mut Command {
    let unblock = || SigSet::empty().thread_set_mask().map_err(io::Error::from);
    // SAFETY: between fork and exec there is one system call.
    unsafe { command.pre_exec(unblock) }
}

fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all bytes 0 are a `sigaction`, into which the kernel writes the present action.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as i32, std::ptr::null(), &raw mut present) == 0 && present.sa_sigaction == libc::SIG_IGN
    }
}
