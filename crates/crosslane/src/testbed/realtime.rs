//! Punctual threads.

/// Puts this thread before all ordinary ones (SCHED_FIFO, 1 to 99) and has its
/// sleeps end when they should; false where that is not permitted.
pub fn become_realtime(priority: i32) -> bool {
    let _ = nix::sys::prctl::set_timerslack(1);
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: `priority` outlives the call; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) == 0 }
}
