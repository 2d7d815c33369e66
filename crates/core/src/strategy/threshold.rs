//! Signal with hysteresis and time to trigger, and detection of sudden loss.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Entry, Strategy, threshold_of};
use crate::allocate::{
    Allocator, Mode,
    one_of_radio::{self, OneOfRadio},
};
use crate::assess::{Assessor, silence, threshold, throttled::Throttled};
use crate::path::PathSpec;
use crate::time::Duration;

/// Its entry in the catalogue.
pub const ENTRY: Entry =
    Entry::new::<Params>("threshold", "signal with hysteresis and time to trigger, and sudden loss");

crate::parameters! {
    /// Parameters of the strategy `threshold`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Parameters of the signal's assessment.
        signal: threshold::Params = threshold::Params::default();
        /// Parameters of the detection of sudden loss.
        silence: silence::Params = silence::Params::default();
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        let signal = self.signal;
        let dbm = threshold_of(path, signal.threshold_dbm, signal.wifi_threshold_dbm, signal.cellular_threshold_dbm);
        vec![
            Box::new(threshold::Threshold::new(signal, dbm)),
            Box::new(silence::Silence::new(self.silence)),
            Box::new(Throttled::new(path.rat)),
        ]
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        Box::new(OneOfRadio::new(self.one_of_radio(mode)))
    }
}

impl Params {
    /// The parameters of its allocator.
    pub(super) fn one_of_radio(&self, mode: Mode) -> one_of_radio::Params {
        let smoothing = Duration::from_millis(self.signal.smoothing_ms.into());
        let threshold::Params { threshold_dbm, hysteresis_db, .. } = self.signal;
        one_of_radio::Params { mode, threshold_dbm, hysteresis_db, smoothing }
    }
}
