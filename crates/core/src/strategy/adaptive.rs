//! The preferred path while it delivers in time, judged by what it delivers.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Entry, Strategy};
use crate::allocate::{Allocator, Mode, adaptive::Adaptive, one_of_radio};
use crate::assess::{Assessor, quality::Quality, silence, throttled::Throttled};
use crate::path::PathSpec;
use crate::time::Duration;

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new::<Params>("adaptive", "the preferred path while it delivers in time");

crate::parameters! {
    /// Parameters of the strategy `adaptive`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// A message that is delivered later than this is as bad as lost.
        late_ms: u32 = 100, "ms", 1.0 to 60000.0;
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        let late = Duration::from_millis(self.late_ms.into());
        let silence = silence::Silence::new(silence::Params::default()).with_cams_for_peer();
        // It distrusts a path for seconds after an alarm; over cellular networks each answer tells more.
        let silence = if path.rat.needs_signal() { silence } else { silence.without_unacked() };
        vec![Box::new(Quality::new(path.rat, late)), Box::new(silence), Box::new(Throttled::new(path.rat))]
    }

    fn uses_echoes(&self) -> bool {
        true
    }

    fn lacks(&self, mode: Mode) -> Option<&'static str> {
        (mode == Mode::Interactive).then_some("it judges a path by whether it delivers in time (`late_ms`)")
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        let smoothing = Duration::from_millis(100);
        let params = one_of_radio::Params { mode, threshold_dbm: -82.0, hysteresis_db: 3.0, smoothing };
        Box::new(Adaptive::new(params))
    }
}
