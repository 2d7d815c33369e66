//! From what a run left to its records and metrics.

use std::collections::BTreeMap;

use crosslane_core::allocate::PathState;
use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::assess::threshold;
use crosslane_sim::check::prove;
use crosslane_sim::metrics::{Context, Recovery, metrics, throughput};
use crosslane_sim::records::{AlarmRow, DecisionRow, MessageRow, PacketRow, RunRecords};
use crosslane_sim::scenario::{Expectation, Scenario, TrafficKind};
use serde_json::{Value, json};

use super::Plan;
use super::monitor::Heard;
use super::stage::Staged;
use crate::error::Result;
use crate::summary::Outcome;

/// What a run left.
pub struct Raw {
    /// What both kernels said, and the vehicle's subflows.
    pub kernel: Heard,
    /// The messages.
    pub messages: Vec<MessageRow>,
    /// Messages that were due and never written.
    pub skipped: u64,
    /// World and links.
    pub staged: Staged,
    /// The agent's events, if there was one.
    pub agent: Option<Vec<Value>>,
    /// Resident memory of the agent, in MB.
    pub resident_mb: Option<f64>,
}
