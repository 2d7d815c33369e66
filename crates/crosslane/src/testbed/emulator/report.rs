//! The emulator's timing and packet counters.

use crosslane_core::link::DropReason;
use crosslane_core::time::{Duration, Instant};

use super::cpu_pause::{Pause, machine_paused};

/// Lateness at the 99th percentile beyond which a run is invalid.
const MAX_LATENESS_US: u32 = 1000;

/// Stall of the loop beyond which a run is invalid.
const MAX_STALL_US: u32 = 2000;

/// Pause of a processor beyond which a run is invalid: it adds to delays; the
/// measured values are above 60 ms.
const MAX_PAUSE_US: u32 = 20_000;

/// Maximum number of recorded stalls; one makes a run invalid.
const MAX_STALLS: usize = 4096;

/// Packet counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered the link.
    pub entered: u64,
    /// Their bytes of IP.
    pub entered_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Their bytes of IP.
    pub delivered_bytes: u64,
    /// Packets dropped, by `DropReason as usize`. Those of the device include
    /// packets dropped before they entered the link.
    pub dropped: [u64; DropReason::ALL.len()],
    /// Packets in flight when the emulator ended.
    pub unfinished: u64,
}

/// One link's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Name of the path.
    pub name: String,
    /// From the vehicle.
    pub up: Counters,
    /// To the vehicle.
    pub down: Counters,
}

/// Report of an emulator.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorReport {
    /// Median lateness of packet releases, in µs.
    pub lateness_us_p50: u32,
    /// 99th percentile of the same.
    pub lateness_us_p99: u32,
    /// The longest time that the loop woke up late or did not poll its devices,
    /// in µs.
    pub stall_us_max: u32,
    /// When that stall ended.
    pub stalled_at: Instant,
    /// The longest pause of a processor, in µs; not counted as a stall.
    pub pause_us_max: u32,
    /// Packets read in a wake-up that was 1 ms late or more: their timestamps are
    /// too late.
    pub late_reads: u64,
    /// Packet records dropped because the queue was full.
    pub records_lost: u64,
    /// CPU time of the emulator's thread.
    pub cpu: Duration,
    /// True if the thread ran with SCHED_FIFO.
    pub realtime: bool,
    /// Counters, in the order of the links.
    pub links: Vec<LinkReport>,
}

impl EmulatorReport {
    /// True if the run may be used: p99 of lateness ≤ 1 ms, stall ≤ 2 ms, pause
    /// of a processor ≤ 20 ms, no record lost.
    pub fn valid(&self) -> bool {
        self.invalid_reason().is_none()
    }

    /// Why the run is invalid; `None` if it is valid.
    pub fn invalid_reason(&self) -> Option<String> {
        if self.lateness_us_p99 > MAX_LATENESS_US {
            let late_us = self.lateness_us_p99;
            return Some(format!("1 % of packets were released {late_us} µs late or more (limit {MAX_LATENESS_US})"));
        }
        if self.stall_us_max > MAX_STALL_US {
            let (stall_us, at) = (self.stall_us_max, self.stalled_at);
            return Some(format!("the emulator stalled for {stall_us} µs at {at} (limit {MAX_STALL_US})"));
        }
        if self.pause_us_max > MAX_PAUSE_US {
            let pause_us = self.pause_us_max;
            return Some(format!("a processor paused for {pause_us} µs (limit {MAX_PAUSE_US})"));
        }
        (self.records_lost > 0).then(|| format!("the records of {} packets were lost", self.records_lost))
    }

    /// Packets that all links dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let both = |link: &LinkReport| link.up.dropped[reason as usize] + link.down.dropped[reason as usize];
        self.links.iter().map(both).sum()
    }
}

/// Stalls and late reads.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// End and length of each stall of 1 ms or more.
    long: Vec<(Instant, Duration)>,
    /// The longest of the shorter stalls.
    short: Duration,
    /// True if the current wake-up is late.
    late: bool,
    pub(super) late_reads: u64,
}

impl Stalls {
    /// The loop woke up at `now`; it was due at `due` at the latest.
    pub(super) fn woke(&mut self, now: Instant, due: Instant) {
        let late = now.since(due);
        self.late = late >= Duration::from_millis(1);
        self.stalled(now, late);
    }

    /// The loop has not polled its devices for `time`.
    pub(super) fn stalled(&mut self, now: Instant, time: Duration) {
        if time >= Duration::from_millis(1) && self.long.len() < MAX_STALLS {
            self.long.push((now, time));
        } else {
            self.short = self.short.max(time);
        }
    }

    /// Packets were read in this wake-up.
    pub(super) fn read(&mut self, packets: usize) {
        if self.late {
            self.late_reads += packets as u64;
        }
    }

    /// The longest stall (in µs) with its end, and the longest pause of a processor
    /// (in µs).
    pub(super) fn longest(&self, pauses: &[Vec<Pause>]) -> (u32, Instant, u32) {
        let (mut stall, mut at, mut pause) = (self.short, Instant::ZERO, Duration::ZERO);
        for &(end, length) in &self.long {
            if machine_paused(pauses, end, length) {
                pause = pause.max(length);
            } else if length > stall {
                (stall, at) = (length, end);
            }
        }
        (micros(stall), at, micros(pause))
    }
}

/// Whole µs; at most an hour and eleven minutes.
pub(super) fn micros(value: Duration) -> u32 {
    u32::try_from(value.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_which_records_were_lost_is_invalid() {
        let mut report = EmulatorReport {
            lateness_us_p50: 1,
            lateness_us_p99: 10,
            stall_us_max: 100,
            stalled_at: Instant::ZERO,
            pause_us_max: 0,
            late_reads: 0,
            records_lost: 0,
            cpu: Duration::ZERO,
            realtime: true,
            links: Vec::new(),
        };
        assert_eq!(report.invalid_reason(), None);
        report.records_lost = 3;
        assert_eq!(report.invalid_reason().as_deref(), Some("the records of 3 packets were lost"));
    }
}
