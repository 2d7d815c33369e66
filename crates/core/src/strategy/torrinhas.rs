//! Torrinhas et al. 2024, *MPTCP in Single Radio Access Networks*: a subflow to each roadside unit in reach.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Entry, Strategy};
use crate::allocate::{Allocator, Mode, by_belief::ByBelief};
use crate::assess::{Assessor, reach::Reach};
use crate::path::{OnFade, PathSpec, Rat};
use crate::time::Duration;

/// Its entry in the catalogue.
pub const ENTRY: Entry =
    Entry::new::<Params>("torrinhas", "a subflow to each roadside unit in reach (Torrinhas et al.)");

crate::parameters! {
    /// Parameters that the paper leaves open.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Time without a message of a unit after which it is out of reach.
        timeout_ms: u32 = 500, "ms", 10.0 to 60000.0;
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        let timeout = Duration::from_millis(self.timeout_ms.into());
        vec![Box::new(Reach::new(path.rat == Rat::Ieee80211p, timeout))]
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        Box::new(ByBelief::new(mode, OnFade::Close))
    }
}
