//! Measurements of time, which only a machine with a processor to spare decides.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Attempts at a measurement: chance fails one of them, a defect all.
const ATTEMPTS: usize = 3;
/// Interval of the wake-ups that show whether a processor is free.
const INTERVAL: Duration = Duration::from_millis(2);
/// A wake-up that is this late found no free processor.
const LATE: Duration = Duration::from_millis(5);
/// Share of such wake-ups above which the machine is too busy: on an idle one there are none.
const TOO_BUSY: f64 = 0.005;

/// Measures until an attempt succeeds. Fails with the first error of an attempt in which processors were
/// free; if there is none, prints that nothing was decided.
pub fn decide(measure: impl Fn() -> Result<(), String>) {
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        let (result, late_share) = watched(&measure);
        match result {
            Ok(()) => return,
            Err(error) => {
                drop(writeln!(std::io::stderr(), "{:.1} % of the wake-ups were late: {error}", 100.0 * late_share));
                failed = failed.or((late_share <= TOO_BUSY).then_some(error));
            }
        }
    }
    if let Some(error) = failed {
        panic!("{error}");
    }
    drop(writeln!(std::io::stderr(), "NOT DECIDED: other programs kept the processors busy"));
}

/// The result, and the share of wake-ups that were late while it was measured.
fn watched<T>(measure: impl FnOnce() -> T) -> (T, f64) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut all, mut late) = (0_u32, 0_u32);
            while !ended.load(Ordering::Relaxed) {
                let due = Instant::now() + INTERVAL;
                thread::sleep(INTERVAL);
                all += 1;
                late += u32::from(due.elapsed() > LATE);
            }
            f64::from(late) / f64::from(all.max(1))
        });
        let result = measure();
        ended.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap_or(1.0))
    })
}
