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

/// What a sample cost, and what followed.
struct Handled {
    nanos: u32,
    allocations: usize,
    outputs: usize,
    decisions: usize,
}

/// The same of all samples of a kind.
#[derive(Default)]
struct Cost {
    nanos: Vec<u32>,
    allocations: usize,
    outputs: usize,
    decisions: usize,
}

impl Cost {
    fn add(&mut self, handled: &Handled) {
        self.nanos.push(handled.nanos);
        self.allocations += handled.allocations;
        self.outputs += handled.outputs;
        self.decisions += handled.decisions;
    }

    /// Half of the samples take no longer, and nine of ten. A mean would be that of the few in which the machine did
    /// something else.
    fn row(mut self, what: &str) -> String {
        self.nanos.sort_unstable();
        let quantile_us = |tenths: usize| {
            let nanos = self.nanos.get(self.nanos.len() * tenths / 10).copied();
            f64::from(nanos.unwrap_or(0)) / 1e3
        };
        let each = |count: usize| count as f64 / self.nanos.len().max(1) as f64;
        format!(
            "{what:<40} {:>6.2} µs, p90 {:>6.2} µs, {:.2} allocations, {:.2} outputs, {:.2} of them decisions ({} samples)",
            quantile_us(5),
            quantile_us(9),
            each(self.allocations),
            each(self.outputs),
            each(self.decisions),
            self.nanos.len()
        )
    }
}

struct Vehicle {
    agent: Agent,
    now: Instant,
}

impl Vehicle {
    fn new() -> Result<Vehicle, Box<dyn std::error::Error>> {
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
        let mut vehicle = Vehicle { agent, now: Instant::ZERO };
        for path in 0..PATHS {
            vehicle.handle(path, SampleKind::Link { up: true });
        }
        Ok(vehicle)
    }

    /// Handles a sample with all that follows: the outputs are polled until there is none.
    fn handle(&mut self, path: u8, kind: SampleKind) -> Handled {
        let (began, before) = (std::time::Instant::now(), ALLOCATIONS.load(Relaxed));
        let (mut outputs, mut decisions) = (0, 0);
        self.agent.handle(self.now, Input::Sample(Sample { path: PathId(path), kind }));
        while let Some(output) = self.agent.poll(self.now) {
            outputs += 1;
            decisions += usize::from(matches!(output, Output::Decision { .. }));
        }
        let nanos = began.elapsed().as_nanos() as u32;
        Handled { nanos, allocations: ALLOCATIONS.load(Relaxed) - before, outputs, decisions }
    }
}

/// A drive in which the path that carries is left and entered again every 10 s.
fn drive() -> Result<(), Box<dyn std::error::Error>> {
    let (mut vehicle, mut transport) = (Vehicle::new()?, Transport::IDLE);
    let [mut steady, mut leave, mut enter] = [Cost::default(), Cost::default(), Cost::default()];
    for step in 0..100_000_u64 {
        vehicle.now = vehicle.now + SAMPLE_PERIOD;
        // Each 10 s the first path waits for 0.1 s.
        let waits = step % 1000 > 990;
        transport.unacked = u32::from(waits);
        transport.delivered += u32::from(!waits);
        for path in 0..PATHS {
            if step % 10 == 0 && path < PATHS / 2 {
                vehicle.handle(path, SampleKind::Signal(Signal { rssi_dbm: -60.0, ..Signal::default() }));
            }
            let of_path = if path == 0 { transport } else { Transport { backup: true, ..Transport::IDLE } };
            let handled = vehicle.handle(path, SampleKind::Transport(of_path));
            match (handled.decisions, waits) {
                // The first 10 s fill the buffers.
                _ if step < 1000 => {}
                (0, _) => steady.add(&handled),
                (_, true) => leave.add(&handled),
                (_, false) => enter.add(&handled),
            }
        }
    }
    println!("{}", steady.row("a sample that changes nothing"));
    println!("{}", leave.row("one after which a path is left"));
    println!("{}", enter.row("one after which it is entered again"));
    Ok(())
}

/// Changes one after another, so that what they need is in the caches: in turn a path goes down, and up again.
fn changes() -> Result<(), Box<dyn std::error::Error>> {
    let (mut vehicle, mut change) = (Vehicle::new()?, Cost::default());
    for step in 0..100_000_u64 {
        vehicle.now = vehicle.now + SAMPLE_PERIOD;
        let path = PATHS / 2 + (step / 2 % u64::from(PATHS / 2)) as u8;
        let handled = vehicle.handle(path, SampleKind::Link { up: step % 2 > 0 });
        if step >= 1000 && handled.decisions > 0 {
            change.add(&handled);
        }
    }
    println!("{}", change.row("changes, each right after another"));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("adaptive with {PATHS} paths, crosslane {}; medians", env!("CARGO_PKG_VERSION"));
    drive()?;
    changes()
}
