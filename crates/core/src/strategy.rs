//! A strategy: a choice of assessors and an allocator, by name and parameters.
//!
//! Strategies from papers have the papers' names, ours are named after what they do. To
//! add one: an assessor or an allocator in a separate file, and a line in each function
//! here.

use crate::path::{OnFade, PathSpec};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use serde::Deserialize;

use crate::allocate::deadline::{self, Deadline};
use crate::allocate::mp_dpa::{self, MpDpa};
use crate::allocate::{Allocator, Mode, aggregate::Aggregate, backup::Backup};
use crate::assess::Assessor;
use crate::assess::hapanchak::{self, Hapanchak};
use crate::assess::silence::{self, Silence};
use crate::assess::threshold::{self, Threshold};
use crate::assess::throughput::Rate;

/// The names that [`Strategy::read`] knows.
pub const NAMES: [&str; 4] = ["hapanchak", "threshold", "mp-dpa", "deadline"];

/// A strategy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// Hapanchak & Costa 2023, Algorithm 1.
    Hapanchak(hapanchak::Params),
    /// Signal with hysteresis and time to trigger, and detection of sudden loss.
    Threshold(ThresholdParams),
    /// Nota 2020, Algorithm 1.
    MpDpa(mp_dpa::Params),
    /// Objects before their deadlines at minimum cost.
    Deadline(deadline::Params),
}

/// Parameters of the strategy `threshold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdParams {
    /// Parameters of the signal's assessment.
    pub signal: threshold::Params,
    /// Parameters of the detection of sudden loss.
    pub silence: silence::Params,
}

impl Strategy {
    /// Reads the parameters of the strategy `name`; `None` if no strategy has this
    /// name.
    pub fn read<'de, D>(name: &str, parameters: D) -> Option<Result<Strategy, D::Error>>
    where
        D: serde::Deserializer<'de>,
    {
        match name {
            "hapanchak" => Some(hapanchak::Params::deserialize(parameters).map(Strategy::Hapanchak)),
            "threshold" => Some(ThresholdParams::deserialize(parameters).map(Strategy::Threshold)),
            "mp-dpa" => Some(mp_dpa::Params::deserialize(parameters).map(Strategy::MpDpa)),
            "deadline" => Some(deadline::Params::deserialize(parameters).map(Strategy::Deadline)),
            _ => None,
        }
    }

    /// Assessors for one path; the greatest of their beliefs applies.
    pub fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        let pick = |others: f64, cellular: Option<f64>| {
            if path.rat.is_cellular() { cellular } else { Some(others) }
        };
        match self {
            Strategy::Hapanchak(params) => {
                let threshold_dbm = pick(params.threshold_dbm, params.cellular_threshold_dbm);
                vec![Box::new(Hapanchak::new(params.alpha, threshold_dbm))]
            }
            Strategy::Threshold(params) => {
                let signal = params.signal;
                let threshold_dbm = pick(signal.threshold_dbm, signal.cellular_threshold_dbm);
                vec![Box::new(Threshold::new(signal, threshold_dbm)), Box::new(Silence::new(params.silence))]
            }
            Strategy::MpDpa(_) | Strategy::Deadline(_) => vec![Box::new(Rate::default())],
        }
    }

    /// The allocator for a mode of use.
    pub fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        let on_fade = match self {
            Strategy::Hapanchak(params) => params.on_fade,
            Strategy::Threshold(_) => OnFade::Backup,
            Strategy::MpDpa(params) => return Box::new(MpDpa::new(*params)),
            Strategy::Deadline(params) => return Box::new(Deadline::new(*params)),
        };
        match mode {
            Mode::Aggregate => Box::new(Aggregate { on_fade }),
            Mode::Backup => Box::new(Backup { on_fade }),
        }
    }
}
