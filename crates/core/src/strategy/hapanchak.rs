//! Hapanchak & Costa 2023, Algorithm 1: RSS(t) = (1 − α)·RSS(t − 1) + α·RSS; a path is weak at RSS(t) ≤ T.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Entry, Strategy, threshold_of};
use crate::allocate::{Allocator, Mode, by_belief::ByBelief};
use crate::assess::{Assessor, hapanchak::Hapanchak};
use crate::path::{OnFade, PathSpec};

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new::<Params>("hapanchak", "Algorithm 1 of Hapanchak & Costa 2023");

crate::parameters! {
    /// Parameters that the paper leaves open.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Smoothing factor α; 1 takes each sample as it is.
        alpha: f64 = 0.5, "", 0.0 to 1.0;
        /// Threshold T for 802.11p: the receiver's sensitivity (−82 dBm at 6 Mbit/s, IEEE 802.11-2020 table 17-18).
        threshold_dbm: f64 = -82.0, "dBm", -120.0 to 0.0;
        /// The same for Wi-Fi; unset: as for 802.11p.
        wifi_threshold_dbm: Option<f64> = None, "dBm", -120.0 to 0.0;
        /// The same for cellular paths; unset: such a path is good while its interface is up.
        cellular_threshold_dbm: Option<f64> = None, "dBm", -120.0 to 0.0;
        /// What happens to a weak subflow: it becomes a backup (the algorithm and figure 8) or is closed (figures 7
        /// and 10).
        on_fade: OnFade = OnFade::Backup;
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        let dbm = threshold_of(path, self.threshold_dbm, self.wifi_threshold_dbm, self.cellular_threshold_dbm);
        vec![Box::new(Hapanchak::new(self.alpha, dbm))]
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        Box::new(ByBelief::new(mode, self.on_fade))
    }
}
