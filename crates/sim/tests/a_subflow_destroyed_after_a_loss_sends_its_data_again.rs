//! The subflow of a silently failed path is closed: its data is re-injected over
//! the other subflow at once. Worst delay on Linux 6.18: 72 to 128 ms if the
//! subflow is closed 50 ms after the failure, 121 to 241 ms if 200 ms after, 23 to
//! 76 ms if 50 to 200 ms before. Tolerance here: a factor 1.5 or 20 ms.

use crate::pair::{Action, agrees_ms, median, silent_failure};

fn worst(after_ms: i64) -> f64 {
    median(15, |seed| silent_failure(seed, 4, true, &[(after_ms, Action::Destroy { path: 0 })]))
}

#[test]
fn a_subflow_destroyed_after_a_failure_is_reinjected() {
    assert!(agrees_ms(worst(50), 72.0, 128.0), "50 ms after");
    assert!(agrees_ms(worst(200), 121.0, 241.0), "200 ms after");
}

#[test]
fn a_subflow_destroyed_before_a_failure_loses_no_data() {
    for before_ms in [50, 200] {
        assert!(agrees_ms(worst(-before_ms), 23.0, 76.0), "{before_ms} ms before");
    }
}
