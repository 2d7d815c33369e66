//! What acknowledgements tell of the network's rate.

use crosslane_core::time::{Duration, Instant};

/// How a subflow stands with losses (Linux `tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Nothing to repair.
    #[default]
    None,
    /// Recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// What the network delivered, from one acknowledgement
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// When the acknowledgement came.
    pub now: Instant,
    /// Segments delivered since the acknowledged segment was sent.
    pub delivered: u64,
    /// In what time; zero if that was shorter than any round trip, and says
    /// nothing.
    pub interval: Duration,
    /// Segments delivered in all before the acknowledged one was sent.
    pub prior_delivered: u64,
    /// Segments delivered in all.
    pub total_delivered: u64,
    /// Round-trip time, where measured.
    pub rtt: Option<Duration>,
    /// The application did not fill the window when the segment was sent.
    pub app_limited: bool,
    /// Segments in flight before the acknowledgement, and after it.
    pub in_flight: [u32; 2],
    /// Segments newly delivered.
    pub newly: u32,
    /// Segments newly found lost.
    pub losses: u32,
    /// What loss recovery does.
    pub repair: Repair,
}

impl RateSample {
    /// Segments a second.
    pub(super) fn rate(&self) -> Option<f64> {
        (!self.interval.is_zero()).then(|| self.delivered as f64 / self.interval.as_secs_f64())
    }
}
