//! A decision needs no memory that was not there before: neither a sample that changes nothing, nor one after which
//! paths change.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::parameters::Table;
use crosslane_core::path::{MAX_PATHS, PathId, PathSpec, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::strategy::adaptive;
use crosslane_core::time::Instant;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

/// A sample with all that follows; returns its allocations, and the number of decisions.
fn handle(agent: &mut Agent, now: Instant, path: u8, kind: SampleKind) -> [usize; 2] {
    let before = ALLOCATIONS.get();
    agent.handle(now, Input::Sample(Sample { path: PathId(path), kind }));
    let outputs = std::iter::from_fn(|| agent.poll(now));
    let decisions = outputs.filter(|output| matches!(output, Output::Decision { .. })).count();
    [ALLOCATIONS.get() - before, decisions]
}

#[test]
fn a_sample_allocates_nothing_whether_paths_change_or_not() {
    for radio in [None, Some(0)] {
        let paths: Vec<PathSpec> = (0..MAX_PATHS as u8)
            .map(|place| PathSpec {
                name: format!("path-{place}"),
                rat: if place < 8 { Rat::Ieee80211p } else { Rat::Lte },
                local: None,
                if_index: 0,
                radio: radio.filter(|_| place < 8),
            })
            .collect();
        let ranks: Vec<u8> = (0..MAX_PATHS as u8).collect();
        let strategy = adaptive::ENTRY.read(Table::new()).unwrap();
        let mut agent = Agent::new(&paths, &ranks, Mode::Aggregate, strategy, Vec::new());
        for path in 0..MAX_PATHS as u8 {
            handle(&mut agent, Instant::ZERO, path, SampleKind::Link { up: true });
        }
        let (mut transport, mut counts) = (Transport::IDLE, [[0; 2]; 2]);
        for step in 1..20_000_u64 {
            let now = Instant::from_millis(10 * step);
            // The first path waits for 0.1 s in each 2 s. The first half of the time fills the buffers.
            let waits = step % 200 > 190;
            transport.unacked = u32::from(waits);
            transport.delivered += u32::from(!waits);
            for path in 0..MAX_PATHS as u8 {
                let of_path = if path == 0 { transport } else { Transport { backup: true, ..Transport::IDLE } };
                let signal = SampleKind::Signal(Signal { rssi_dbm: -60.0, ..Signal::default() });
                let samples =
                    [Some(SampleKind::Transport(of_path)), Some(signal).filter(|_| path < 8 && step % 10 == 0)];
                for kind in samples.into_iter().flatten() {
                    let [allocations, decisions] = handle(&mut agent, now, path, kind);
                    let sum = &mut counts[usize::from(step > 10_000)];
                    *sum = [sum[0] + allocations, sum[1] + decisions];
                }
            }
        }
        assert!(counts[1][1] > 50, "paths change: {counts:?}");
        assert_eq!(counts[1][0], 0, "{counts:?}, radio {radio:?}");
    }
}
