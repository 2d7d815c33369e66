//! Tells a stall of the emulator from a processor that stood still.
//!
//! A virtual machine's processors are now and then not run at all for some
//! milliseconds. What is late then is late for everything on that processor,
//! whatever its priority; the emulator could not have done better. A thread on
//! each processor (two at most), awake every millisecond before all ordinary
//! ones, witnesses it: what it missed together with the emulator was the
//! machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crosslane_core::time::{Duration, Instant};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::clock::Clock;
use crate::testbed::realtime::become_realtime;

/// How often a witness wakes.
const BEAT: Duration = Duration::from_millis(1);
/// What counts as a pause.
const NOTABLE: Duration = Duration::from_micros(500);
/// Pauses remembered: more than one in 10 ms of two minutes is no rare event.
const MAX_PAUSES: usize = 10_000;
/// Priority of a witness, that of the emulator.
const PRIORITY: i32 = 10;

/// The witnesses.
#[derive(Debug)]
pub(super) struct Witnesses {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Pause>>>,
}

/// From when to when a witness should have been awake and was not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    from: Instant,
    to: Instant,
}

impl Witnesses {
    pub(super) fn start(clock: Clock) -> Witnesses {
        let stop = Arc::new(AtomicBool::new(false));
        let own = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let processors: Vec<usize> =
            (0..CpuSet::count()).filter(|&cpu| own.is_set(cpu).unwrap_or(false)).take(2).collect();
        let watch = |&cpu: &usize| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || watch(clock, cpu, &stop))
        };
        let threads = processors.iter().map(watch).collect();
        Witnesses { stop, threads }
    }

    /// What each witness saw; nothing where it could not be punctual.
    pub(super) fn stop(self) -> Vec<Vec<Pause>> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

/// True if a witness was away as long as the stall that ended at `end`.
pub(super) fn machine_paused(seen: &[Vec<Pause>], end: Instant, length: Duration) -> bool {
    let begin = end - length;
    let covers = |pause: &Pause| pause.from <= begin + BEAT + NOTABLE && pause.to + NOTABLE >= end;
    seen.iter().flatten().any(covers)
}

fn watch(clock: Clock, cpu: usize, stop: &AtomicBool) -> Vec<Pause> {
    let mut only = CpuSet::new();
    let pinned = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let mut pauses = Vec::new();
    if pinned.is_err() || !become_realtime(PRIORITY) {
        return pauses;
    }
    while !stop.load(Ordering::Relaxed) && pauses.len() < MAX_PAUSES {
        let due = clock.now() + BEAT;
        std::thread::sleep(BEAT);
        let now = clock.now();
        if now.since(due) >= NOTABLE {
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
    fn only_what_a_witness_missed_from_beginning_to_end_is_the_machine() {
        let end = Instant::from_millis(20);
        let length = Duration::from_millis(10);
        let one = [vec![pause(10_300, 20_010)], vec![]];
        assert!(machine_paused(&one, end, length));
        let short = [vec![pause(15_000, 20_000)], vec![pause(10_300, 15_000)]];
        assert!(!machine_paused(&short, end, length));
        assert!(!machine_paused(&[vec![], vec![]], end, length), "no witness, no excuse");
    }
}
