//! Privileges of a testbed, and the cleanup of its processes when it ends.

use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid, getpid, getppid, setpgid};

use crate::error::{Error, Result};
use crate::tun::open_device;

/// Lets this process create network namespaces and TUN devices: as root, else
/// in a new user namespace. Call it before any thread exists, and before
/// [`contain`].
///
/// # Errors
/// What is missing, with a remedy.
pub fn prepare_privileges() -> Result<()> {
    if !has_capabilities() {
        enter_user_namespace()?;
    }
    open_device().map(drop)
}

/// True if this process's root is not the machine's.
pub(super) fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// True if the process has CAP_NET_ADMIN and CAP_SYS_ADMIN.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & NEEDED == NEEDED)
}

fn enter_user_namespace() -> Result<()> {
    let attempt = "making a user namespace";
    refuse_threads(attempt)?;
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|cause| {
        let remedy = "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, \
                      kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)";
        Error::usage(attempt, cause, remedy)
    })?;
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    for (file, map) in maps {
        fs::write(file, map).map_err(|cause| Error::failure(format!("writing {file}"), cause))?;
    }
    Ok(())
}

fn refuse_threads(attempt: &str) -> Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    match threads {
        1 => Ok(()),
        _ => {
            let cause = format!("this process already has {threads} threads");
            Err(Error::failure(attempt, cause).with_remedy("run it as root or by `unshare -Ur`"))
        }
    }
}

/// Lets SIGKILL end this process when `parent`, which started it, ends. Call it
/// after [`prepare_privileges`], since new credentials cancel it, and before
/// [`contain`].
///
/// # Errors
/// The kernel rejects it, or the parent has already ended.
pub fn end_with(parent: i32) -> Result<()> {
    let attempt = "tying a run to its parent";
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|cause| Error::failure(attempt, cause))?;
    if getppid().as_raw() == parent { Ok(()) } else { Err(Error::failure(attempt, "it has ended")) }
}

/// Moves the rest of the program into a PID namespace, so that any end of this
/// process (SIGKILL included) ends all processes that it has started. Call it
/// before any thread exists.
///
/// It returns in a grandchild. This process forwards SIGINT, SIGTERM and SIGHUP
/// and exits as the grandchild does; between them the namespace's first process
/// reaps orphans and is killed with this one.
///
/// # Errors
/// The kernel denies it; then nothing has changed.
pub fn contain() -> Result<()> {
    let attempt = "moving into a PID namespace";
    refuse_threads(attempt)?;
    let failure = |cause: Errno| Error::failure(attempt, cause);
    let outer = pidfd(getpid()).map_err(failure)?;
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|cause| Error::usage(attempt, cause, "run as root, or allow user namespaces"))?;
    let forwarded = forwarded_signals();
    let mut previous_mask = forwarded.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).map_err(failure)?;
    // SAFETY: this process has one thread, so the child may call any function.
    match unsafe { fork() }.map_err(failure)? {
        ForkResult::Parent { child } => end_as(forward_and_reap(child)),
        ForkResult::Child => {
            // Leaves the terminal's foreground group: Ctrl-C reaches only the
            // outer process, which forwards it once.
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            die_with(&outer);
            drop(outer);
        }
    }
    // SAFETY: as above.
    match unsafe { fork() }.map_err(failure)? {
        ForkResult::Parent { child } => end_as(forward_and_reap(child)),
        ForkResult::Child => {
            previous_mask.remove(Signal::SIGCHLD);
            previous_mask.thread_set_mask().map_err(failure)
        }
    }
}

fn forwarded_signals() -> SigSet {
    [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// Requests SIGKILL at the parent's death, and exits if it has already died. A
/// pidfd is used because `getppid` does not work across PID namespaces.
fn die_with(parent: &OwnedFd) {
    let requested = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut ended = [PollFd::new(parent.as_fd(), PollFlags::POLLIN)];
    let alive = poll(&mut ended, PollTimeout::ZERO) == Ok(0);
    if requested.is_err() || !alive {
        exit_now(1);
    }
}

/// Forwards signals to `child` and reaps ended processes until `child` ends;
/// returns its status.
fn forward_and_reap(child: Pid) -> WaitStatus {
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(status) if status.pid() == Some(child) && is_end(status) => return status,
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        match forwarded_signals().wait() {
            Ok(Signal::SIGCHLD) | Err(_) => {}
            Ok(signal) => {
                let _ = kill(child, signal);
            }
        }
    }
}

fn is_end(status: WaitStatus) -> bool {
    matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..))
}

fn end_as(status: WaitStatus) -> ! {
    exit_now(match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        _ => 1,
    })
}

/// Exits without the cleanup of `exit`, which belongs to the forked process.
fn exit_now(code: i32) -> ! {
    // SAFETY: always.
    unsafe { libc::_exit(code) }
}

fn pidfd(process: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor, which is ours.
    unsafe {
        let descriptor = Errno::result(libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0))?;
        Ok(OwnedFd::from_raw_fd(descriptor as i32))
    }
}
