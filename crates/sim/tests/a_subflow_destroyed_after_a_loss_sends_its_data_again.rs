//! The subflow of a path that has died silently is closed: its data goes out
//! over the other at once. Linux 6.18: 72 to 128 ms if that is done 50 ms
//! after the loss, 121 to 241 ms if 200 ms after; done 50 to 200 ms before, 23
//! to 76 ms. A factor 1.5 or 20 ms here.
#![allow(missing_docs)]

mod pair;

use pair::{Action, agrees_ms, median, silent_death};

fn worst(after_ms: i64) -> f64 {
    median(15, |seed| silent_death(seed, 4, true, &[(after_ms, Action::Destroy { path: 0 })]))
}

#[test]
fn a_subflow_destroyed_after_a_loss_sends_its_data_again() {
    assert!(agrees_ms(worst(50), 72.0, 128.0), "50 ms after");
    assert!(agrees_ms(worst(200), 121.0, 241.0), "200 ms after");
}

#[test]
fn a_subflow_destroyed_before_a_loss_takes_nothing_with_it() {
    for before_ms in [50, 200] {
        assert!(agrees_ms(worst(-before_ms), 23.0, 76.0), "{before_ms} ms before");
    }
}
