//! Parameters of the strategies that are not the agent's.

use crosslane_core::parameters::Choice;
use crosslane_core::path::OnFade;
use crosslane_core::strategy;
use crosslane_core::time::Duration;
use crosslane_core::tunnel::{Copies, Encryption, Mode};

crosslane_core::parameters! {
    /// Parameters of a strategy that has none.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct NoParams {}
}

crosslane_core::parameters! {
    /// Parameters of a strategy over one path.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SinglePathParams {
        /// The path; unset: the preferred one.
        path: Option<String> = None;
    }
}

crosslane_core::parameters! {
    /// Parameters of the base `oracle`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct OracleParams {
        /// Minimum remaining time of a path to be used: it is good until this before it no longer is, then it is
        /// fading, and after that lost.
        lookahead_ms: f64 = 100.0, "ms", 0.0 to 10000.0;
        /// Maximum duration of an interruption that is ignored.
        ride_out_ms: f64 = 200.0, "ms", 0.0 to 60000.0;
        /// What happens to the subflow of a fading path.
        on_fade: OnFade = OnFade::Close;
        /// Minimum rate of a usable path.
        floor_mbit_s: f64 = 0.5, "Mbit/s", 0.0 to 100000.0;
        /// Maximum loss of a usable path.
        loss: f64 = 0.05, "0–1", 0.0 to 1.0;
    }
}

crosslane_core::parameters! {
    /// Parameters of the base `tunnel`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TunnelParams {
        /// Mode of use of the paths: over all by what each can carry, each packet over every path, over the most
        /// preferred one, over it and what it cannot carry over the next, or each flow over one path.
        mode: Mode = Mode::Aggregate;
        /// A packet that is later than this is as bad as lost to mode `adaptive`.
        late_ms: u32 = 100, "ms", 1.0 to 60000.0;
        /// Bytes that mode `adaptive` may send twice, as a share of the bytes of packets in any 10 s (0: none).
        extra_bytes: f64 = 0.1, "", 0.0 to 1.0;
        /// Protection of what the tunnel carries; `none`: GRE-in-UDP in the clear (RFC 8086).
        encryption: Encryption = Encryption::Noise;
        /// The agent's strategy that selects the paths, with its default parameters.
        steer: Steer = Steer(&strategy::threshold::ENTRY);
        /// Name of the tree's file for that strategy, relative to the scenario.
        tree: Option<String> = None;
        /// Greatest share of the windows in which that strategy tries another order than its tree's; 0: never.
        trials: Option<f64> = None, "", 0.0 to 0.1;
    }
}

impl TunnelParams {
    /// What mode `adaptive` counts as late, and may send twice.
    pub fn copies(&self) -> Copies {
        Copies { late: Duration::from_millis(self.late_ms.into()), extra_bytes: self.extra_bytes }
    }
}

/// A strategy of the agent that a tunnel can follow: one that needs no deadlines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steer(pub &'static strategy::Entry);

impl Choice for Steer {
    fn choices() -> Vec<(&'static str, Steer)> {
        strategy::CATALOG
            .iter()
            .filter(|entry| !entry.needs_deadlines())
            .map(|entry| (entry.name, Steer(entry)))
            .collect()
    }
}
