//! What a decision of `adaptive` costs with 16 paths: `cargo bench --bench decision`.
//!
//! A path carries, samples of all paths arrive each 10 ms; now and then the path that carries stalls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::parameters::Table;
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::strategy::adaptive;
use crosslane_core::time::{Duration, Instant};

const PATHS: u8 = 16;
const SAMPLE_PERIOD: Duration = Duration::from_millis(10);

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Time, allocations and number of samples.
#[derive(Default)]
struct Cost {
    time: std::time::Duration,
    allocations: usize,
    samples: u32,
}

impl Cost {
    fn row(&self, what: &str) -> String {
        let samples = self.samples.max(1);
        let each_us = self.time.as_secs_f64() * 1e6 / f64::from(samples);
        let allocations = self.allocations as f64 / f64::from(samples);
        format!("{what:<36} {each_us:>8.2} µs {allocations:>8.2} allocations ({samples} samples)")
    }
}

struct Vehicle {
    agent: Agent,
    now: Instant,
    transport: Transport,
}

impl Vehicle {
    /// Handles a sample with all that follows; returns the number of decisions.
    fn handle(&mut self, cost: &mut Cost, path: u8, kind: SampleKind) -> usize {
        let (began, before) = (std::time::Instant::now(), ALLOCATIONS.load(Relaxed));
        self.agent.handle(self.now, Input::Sample(Sample { path: PathId(path), kind }));
        let outputs = std::iter::from_fn(|| self.agent.poll(self.now));
        let decisions = outputs.filter(|output| matches!(output, Output::Decision { .. })).count();
        cost.time += began.elapsed();
        cost.allocations += ALLOCATIONS.load(Relaxed) - before;
        cost.samples += 1;
        decisions
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let spec = |place: u8| PathSpec {
        name: format!("path-{place}"),
        rat: if place < PATHS / 2 { Rat::Ieee80211p } else { Rat::Lte },
        local: None,
        if_index: 0,
        radio: None,
    };
    let paths: Vec<PathSpec> = (0..PATHS).map(spec).collect();
    let ranks: Vec<u8> = (0..PATHS).collect();
    let agent = Agent::new(&paths, &ranks, Mode::Backup, adaptive::ENTRY.read(Table::new())?, Vec::new());
    let mut vehicle = Vehicle { agent, now: Instant::ZERO, transport: Transport::IDLE };
    let [mut warm_up, mut steady, mut change] = [Cost::default(), Cost::default(), Cost::default()];
    for path in 0..PATHS {
        vehicle.handle(&mut warm_up, path, SampleKind::Link { up: true });
    }
    for step in 0..100_000_u64 {
        vehicle.now = vehicle.now + SAMPLE_PERIOD;
        // Each 10 s the first path waits for 0.1 s.
        let waits = step % 1000 > 990;
        vehicle.transport.unacked = u32::from(waits);
        vehicle.transport.delivered += u32::from(!waits);
        for path in 0..PATHS {
            if step % 10 == 0 && path < PATHS / 2 {
                let signal = SampleKind::Signal(Signal { rssi_dbm: -60.0, ..Signal::default() });
                vehicle.handle(&mut warm_up, path, signal);
            }
            let transport = if path == 0 { vehicle.transport } else { Transport { backup: true, ..Transport::IDLE } };
            let mut cost = Cost::default();
            let decisions = vehicle.handle(&mut cost, path, SampleKind::Transport(transport));
            let sum = if step < 1000 {
                &mut warm_up
            } else if decisions == 0 {
                &mut steady
            } else {
                &mut change
            };
            sum.time += cost.time;
            sum.allocations += cost.allocations;
            sum.samples += 1;
        }
    }
    println!("adaptive with {PATHS} paths, crosslane {}", env!("CARGO_PKG_VERSION"));
    println!("{}", steady.row("a sample that changes nothing"));
    println!("{}", change.row("a sample after which paths change"));
    Ok(())
}
