//! A kind of traffic is one type: this one, which no file of the program names,
//! runs in the simulator.

use std::error::Error;
use std::sync::Arc;

use crosslane_core::time::{Duration, Instant};
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};
use crosslane_sim::traffic::{Source, Span, TrafficKind, Write};

/// Video frames: every tenth is a key frame of ten times the size.
#[derive(Debug)]
struct Video {
    frame_bytes: u64,
    period: Duration,
}

impl TrafficKind for Video {
    fn name(&self) -> &'static str {
        "video"
    }

    fn source(&self, span: Span, _seed: u64) -> Box<dyn Source> {
        let Video { frame_bytes, period } = *self;
        Box::new(Frames { frame_bytes, period, due: span.start, stop: span.stop, count: 0 })
    }
}

#[derive(Debug)]
struct Frames {
    frame_bytes: u64,
    period: Duration,
    due: Instant,
    stop: Instant,
    count: u64,
}

impl Source for Frames {
    fn next_write(&self) -> Option<Instant> {
        Some(self.due).filter(|due| *due < self.stop)
    }

    fn poll(&mut self, now: Instant) -> Option<Write> {
        self.next_write().filter(|due| *due <= now)?;
        let is_key = self.count.is_multiple_of(10);
        self.count += 1;
        self.due = self.due + self.period;
        Some(Write::Message(if is_key { 10 * self.frame_bytes } else { self.frame_bytes }))
    }
}

#[test]
fn a_new_kind_of_traffic_runs_in_the_simulator() -> Result<(), Box<dyn Error>> {
    let mut scenario = Scenario::parse(include_str!("../../../scenarios/leave-coverage.toml"), "test.toml")?;
    scenario.traffic.kind = Arc::new(Video { frame_bytes: 2000, period: Duration::from_millis(40) });
    let strategy = scenario.strategy("threshold").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    let messages = simulation.finish().messages;
    let seconds = scenario.traffic.stop_s - scenario.traffic.start_s;
    assert_eq!(messages.len() as f64, seconds * 25.0);
    assert!(messages.iter().all(|message| message.received_ns.is_some_and(|at| at > message.sent_ns)));
    let of_keys = messages.iter().filter(|message| message.size_bytes == 20_000).count();
    assert_eq!(of_keys, messages.len().div_ceil(10));
    Ok(())
}
