//! Progress bar on a terminal, shown after two seconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crosslane_core::time::{Duration, Instant};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::clock::Clock;

const SHOW_AFTER: Duration = Duration::from_secs(2);

/// Progress of all runs, updated by any thread.
pub struct Progress {
    clock: Clock,
    bar: ProgressBar,
    shown: AtomicBool,
    runs: AtomicU64,
    planned: usize,
}

impl Progress {
    /// A bar for `planned` runs of `duration_s` seconds each.
    pub fn new(planned: usize, duration_s: f64) -> Progress {
        let seconds = planned as u64 * duration_s.ceil() as u64;
        let style = ProgressStyle::with_template("{bar:30} {percent}% {msg}  {eta} left");
        let bar = ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::hidden())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(format!("0/{planned} runs"));
        Progress { clock: Clock::start(), bar, shown: AtomicBool::new(false), runs: AtomicU64::new(0), planned }
    }

    /// A second of a run was simulated.
    pub fn second(&self) {
        self.bar.inc(1);
        let due = self.clock.now() >= Instant::ZERO + SHOW_AFTER;
        if due && !self.shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// A run is complete.
    pub fn run(&self) {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(format!("{runs}/{} runs", self.planned));
    }

    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
