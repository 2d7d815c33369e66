//! One model of a link, for the emulator and the simulator.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::time::Duration;

pub mod ieee80211p;

/// Way over a link, seen from the vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the vehicle.
    Up,
    /// To the vehicle.
    Down,
}

/// How one direction of a link treats packets. Every field may change while
/// packets are under way; a change holds for packets not yet in service.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionParams {
    /// What limits the rate.
    pub bottleneck: Bottleneck,
    /// One-way delay after the bottleneck.
    pub delay: Duration,
    /// Probability (0 to 1) that a packet is lost on its own, after the bottleneck.
    pub loss: f64,
    /// How much may wait for the bottleneck.
    pub queue: QueueLimit,
}

/// What limits the rate of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Bottleneck {
    /// So many bits of IP packet a second; 0 lets nothing pass, infinity everything at once.
    Rate {
        /// Rate in bit/s.
        bit_s: f64,
    },
    /// Mahimahi's trace: each entry (ms since the trace began, not falling) is
    /// one chance to send 1500 bytes; the trace repeats after its last entry.
    Opportunities(Arc<Vec<u64>>),
    /// An 802.11p unicast exchange with retries, each costing air time.
    Ieee80211p(Air),
}

/// State of the 802.11p channel between two stations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Air {
    /// PHY rate.
    pub rate: ieee80211p::PhyRate,
    /// Mean signal-to-noise ratio, in dB, before fading.
    pub mean_snr_db: f64,
    /// Nakagami m (≥ 0.3) of the fading drawn for each try; infinity for none.
    pub nakagami_m: f64,
    /// Tries before a packet is dropped (1 to 7).
    pub tries: u8,
}

/// Limit of a drop-tail queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most so many packets.
    Packets(u32),
    /// At most so many bytes of IP packet.
    Bytes(u32),
}
