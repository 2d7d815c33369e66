//! The backup flags are swapped 50 to 200 ms before a path fails silently: the
//! worst delay on Linux 6.18 is 26 to 28 ms (20 without any event). Tolerance
//! here: 20 ms.

use crate::pair::{Action, agrees_ms, median, silent_failure};

#[test]
fn a_swap_before_a_loss_costs_nothing() {
    for before_ms in [50, 100, 200] {
        let swap = [
            (-before_ms, Action::Flag { path: 1, backup: false }),
            (-before_ms, Action::Flag { path: 0, backup: true }),
        ];
        let worst = median(15, |seed| silent_failure(seed, 4, true, &swap));
        assert!(agrees_ms(worst, 26.0, 28.0), "{before_ms} ms before");
    }
}
