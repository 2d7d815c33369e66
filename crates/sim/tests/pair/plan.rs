//! Setup and planned actions of a pair of endpoints.

use crosslane_core::link::{Bottleneck, DirectionParams, Loss, QueueLimit};
use crosslane_core::rng::Rng;
use crosslane_core::time::Duration;
use crosslane_sim::transport::congestion::Congestion;
use crosslane_sim::transport::scheduler::Scheduler;
use crosslane_sim::transport::segment::MTU_BYTES;
use crosslane_sim::transport::{Protocol, Settings, Ticks};

/// A path with equal directions; only the direction of the data has loss.
#[derive(Clone, Copy, Debug)]
pub struct TestPath {
    pub mbit_s: f64,
    pub delay_ms: u64,
    pub loss: f64,
    pub queue_bytes: u32,
    /// Jitter that reorders, in both directions.
    pub jitter_ms: u64,
}

impl TestPath {
    /// A path without loss and with a queue of 200 ms.
    pub fn new(mbit_s: f64, delay_ms: u64) -> TestPath {
        TestPath { mbit_s, delay_ms, loss: 0.0, queue_bytes: (mbit_s * 1e6 / 8.0 * 0.2) as u32, jitter_ms: 0 }
    }

    pub fn params(&self, loss: f64) -> DirectionParams {
        DirectionParams {
            bottleneck: Bottleneck::Rate { bit_s: self.mbit_s * 1e6 },
            delay: Duration::from_millis(self.delay_ms),
            loss: Loss::Independent(loss),
            queue: QueueLimit::Bytes(self.queue_bytes.max(3000)),
            codel: None,
        }
    }
}

/// Traffic of the vehicle.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// As much as the socket accepts.
    Bulk,
    /// A message of `bytes` every `every_ms`.
    Messages { bytes: u64, every_ms: u64 },
}

/// A planned action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Switches a path silently off or on.
    Carry { path: u8, on: bool },
    /// The vehicle's path manager creates a subflow.
    Create { path: u8, backup: bool },
    /// It closes the first open subflow of the path unless it is the last one.
    Destroy { path: u8 },
    /// It sets or clears the flag of the first open subflow of the path.
    Flag { path: u8, backup: bool },
    /// Starts or stops the source.
    Write { on: bool },
    /// Removes all loss, and sets at least this rate on all links.
    Restore { mbit_s: f64 },
}

/// Settings of the pair.
#[derive(Clone, Debug)]
pub struct Setup {
    pub test_paths: Vec<TestPath>,
    pub source: Source,
    pub protocol: Protocol,
    pub algorithm: Congestion,
    pub scheduler: Scheduler,
    pub send_buffer_bytes: u32,
    pub stale_loss_count: u32,
    pub seed: u64,
}

impl Setup {
    /// MPTCP with the kernel's defaults and CUBIC.
    pub fn new(test_paths: &[TestPath], source: Source) -> Setup {
        Setup {
            test_paths: test_paths.to_vec(),
            source,
            protocol: Protocol::Mptcp,
            algorithm: Congestion::Cubic,
            scheduler: Scheduler::Default,
            send_buffer_bytes: 0,
            stale_loss_count: 4,
            seed: 1,
        }
    }

    pub fn settings(&self, side: &str) -> Settings {
        Settings {
            protocol: self.protocol,
            algorithm: self.algorithm,
            scheduler: self.scheduler,
            send_buffer_bytes: self.send_buffer_bytes,
            stale_loss_count: self.stale_loss_count,
            ranks: (0..self.test_paths.len() as u8).collect(),
            mtu_bytes: MTU_BYTES,
            ticks: Ticks::new(Rng::new(self.seed, &format!("ticks {side}")).uniform()),
        }
    }
}
