//! Threads with real-time scheduling.

/// Gives this thread a real-time priority (SCHED_FIFO, 1 to 99) and a timer
/// slack of 1 ns; false if the priority is not permitted.
pub fn become_realtime(priority: i32) -> bool {
    let _ = nix::sys::prctl::set_timerslack(1);
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: `priority` outlives the call; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) == 0 }
}
