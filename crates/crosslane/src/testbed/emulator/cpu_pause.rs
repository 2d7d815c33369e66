//! Distinguishes a stall of the emulator from a pause of a processor.
//!
//! The processors of a virtual machine are sometimes not scheduled for some
//! milliseconds. This delays all threads on that processor at any priority, so
//! it is not a fault of the emulator. A real-time thread on each processor (two
//! at most) wakes up every millisecond and detects such pauses: a stall during
//! which a detector thread did not run either is a pause of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crosslane_core::time::{Duration, Instant};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::clock::Clock;
use crate::testbed::realtime::become_realtime;

/// Interval of a detector thread's wake-ups.
const INTERVAL: Duration = Duration::from_millis(1);
/// Minimum length of a pause.
const MIN_PAUSE: Duration = Duration::from_micros(500);
/// Maximum number of recorded pauses: one in 10 ms of two minutes.
const MAX_PAUSES: usize = 10_000;
/// Priority of a detector thread: that of the emulator.
const PRIORITY: i32 = 10;

/// The detector threads.
#[derive(Debug)]
pub(super) struct PauseDetector {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Pause>>>,
}

/// An interval in which a detector thread should have run and did not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    from: Instant,
    to: Instant,
}

impl PauseDetector {
    pub(super) fn start(clock: Clock) -> PauseDetector {
        let stop = Arc::new(AtomicBool::new(false));
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let processors = (0..CpuSet::count()).filter(|&cpu| own.is_set(cpu).unwrap_or(false)).take(2);
        let spawn = |cpu| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || watch(clock, cpu, &stop))
        };
        let threads = processors.map(spawn).collect();
        PauseDetector { stop, threads }
    }

    /// The pauses of each thread; empty if it could not get real-time priority.
    pub(super) fn stop(self) -> Vec<Vec<Pause>> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

/// True if a pause covers the stall that ended at `end`.
pub(super) fn machine_paused(pauses: &[Vec<Pause>], end: Instant, length: Duration) -> bool {
    let begin = end - length;
    let covers = |pause: &Pause| pause.from <= begin + INTERVAL + MIN_PAUSE && pause.to + MIN_PAUSE >= end;
    pauses.iter().flatten().any(covers)
}

fn watch(clock: Clock, cpu: usize, stop: &AtomicBool) -> Vec<Pause> {
    let mut only = CpuSet::new();
    let pinned = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let mut pauses = Vec::new();
    if pinned.is_err() || !become_realtime(PRIORITY) {
        return pauses;
    }
    while !stop.load(Ordering::Relaxed) && pauses.len() < MAX_PAUSES {
        let due = clock.now() + INTERVAL;
        std::thread::sleep(INTERVAL);
        let now = clock.now();
        if now.since(due) >= MIN_PAUSE {
            pauses.push(Pause { from: due, to: now });
        }
    }
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(from_us: u64, to_us: u64) -> Pause {
        Pause { from: Instant::from_nanos(from_us * 1000), to: Instant::from_nanos(to_us * 1000) }
    }

    #[test]
    fn only_a_pause_that_covers_the_whole_stall_excuses_it() {
        let end = Instant::from_millis(20);
        let length = Duration::from_millis(10);
        let one = [vec![pause(10_300, 20_010)], vec![]];
        assert!(machine_paused(&one, end, length));
        let short = [vec![pause(15_000, 20_000)], vec![pause(10_300, 15_000)]];
        assert!(!machine_paused(&short, end, length));
        assert!(!machine_paused(&[vec![], vec![]], end, length), "no pause recorded");
    }
}
