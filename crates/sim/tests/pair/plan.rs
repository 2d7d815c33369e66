//! What a pair of ends is tried with.

use crosslane_core::link::{Bottleneck, DirectionParams, Loss, QueueLimit};
use crosslane_core::rng::Rng;
use crosslane_core::time::Duration;
use crosslane_sim::transport::congestion::Algorithm;
use crosslane_sim::transport::scheduler::Scheduler;
use crosslane_sim::transport::segment::MTU_BYTES;
use crosslane_sim::transport::{Protocol, Settings, Ticks};

/// One path, the same both ways; loss only in the direction of the data.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub mbit_s: f64,
    pub delay_ms: u64,
    pub loss: f64,
    pub queue_bytes: u32,
}

impl Way {
    /// A path that loses nothing and can queue 200 ms.
    pub fn new(mbit_s: f64, delay_ms: u64) -> Way {
        Way { mbit_s, delay_ms, loss: 0.0, queue_bytes: (mbit_s * 1e6 / 8.0 * 0.2) as u32 }
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

/// What is sent from the vehicle.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// As much as the socket takes.
    Bulk,
    /// A message of so many bytes each so many milliseconds.
    Messages { bytes: u64, every_ms: u64 },
}

/// What somebody does at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The path carries nothing, silently; or does again.
    Carry { path: u8, on: bool },
    /// The path manager of the vehicle opens a subflow.
    Create { path: u8, backup: bool },
    /// It closes the first open subflow of the path, unless that is the last.
    Destroy { path: u8 },
    /// It sets or clears the flag of the first open subflow of the path.
    Flag { path: u8, backup: bool },
    /// The source begins, or ends.
    Talk { on: bool },
    /// All links lose nothing and have at least this rate.
    Mend { mbit_s: f64 },
}

/// How the pair is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub ways: Vec<Way>,
    pub source: Source,
    pub protocol: Protocol,
    pub algorithm: Algorithm,
    pub scheduler: Scheduler,
    pub send_buffer_bytes: u32,
    pub stale_loss_count: u32,
    pub seed: u64,
}

impl Setup {
    /// MPTCP with the kernel's defaults and CUBIC.
    pub fn new(ways: &[Way], source: Source) -> Setup {
        Setup {
            ways: ways.to_vec(),
            source,
            protocol: Protocol::Mptcp,
            algorithm: Algorithm::Cubic,
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
            ranks: (0..self.ways.len() as u8).collect(),
            mtu_bytes: MTU_BYTES,
            ticks: Ticks::new(Rng::new(self.seed, &format!("ticks {side}")).uniform()),
        }
    }
}
