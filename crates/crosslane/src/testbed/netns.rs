//! Network namespaces without names, descriptor by descriptors.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::{io, thread};

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Error, Result};

/// A network namespace. The kernel removes it when neither this nor a process,
/// thread or socket inside refers to it.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// A new, empty namespace (its loopback is down).
    ///
    /// # Errors
    /// The kernel denies it: see [`super::prepare_privileges`].
    pub fn new() -> Result<Namespace> {
        let created = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let descriptor = created.and_then(|opened| opened).map_err(|cause| {
            Error::usage("making a network namespace", cause, "run as root, or allow user namespaces")
        })?;
        Ok(Namespace { descriptor: descriptor.into() })
    }

    /// Runs `work` on a new thread inside the namespace. Sockets and files in
    /// `/proc/sys/net` that it opens belong to the namespace.
    ///
    /// # Errors
    /// The thread cannot be created or cannot enter.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_thread(|| setns(&self.descriptor, CloneFlags::CLONE_NEWNET).map(|()| work()))
            .and_then(|entered| entered.map_err(io::Error::from))
            .map_err(|cause| Error::failure("entering a network namespace", cause))
    }

    /// Starts a program inside the namespace.
    ///
    /// # Errors
    /// Errors of [`Command::spawn`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: between fork and exec only setns is called, which is
        // async-signal-safe; the descriptor is open as long as `self`.
        unsafe {
            command.pre_exec(move || {
                setns(BorrowedFd::borrow_raw(descriptor), CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
            });
        }
        command.spawn()
    }

    /// Writes a sysctl of the namespace; `name` as in `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// The sysctl does not exist, or rejects the value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<()> {
        self.enter(|| std::fs::write(format!("/proc/sys/{name}"), value))?
            .map_err(|cause| Error::failure(format!("setting the sysctl {name} to {value}"), cause))
    }

    /// A command that enters the namespace from a shell while this process runs.
    pub fn how_to_enter(&self) -> String {
        // Inside a PID namespace our process id differs from the shell's view.
        let pid = std::fs::read_link("/proc/self").map_or_else(|_| "self".into(), |pid| pid.display().to_string());
        let user = match super::privileges::in_user_namespace() {
            true => format!("--user --preserve-credentials --target {pid} "),
            false => String::new(),
        };
        format!("nsenter {user}--net=/proc/{pid}/fd/{} -- bash", self.descriptor.as_raw_fd())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Runs `work` on a new thread, whose namespaces can change safely.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread inside it panicked"))
    })
}
