//! The priority scheduler uses the second path only for data that the preferred one
//! cannot carry (Liao et al. 2020, §IV); upstream's default uses both.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_core::path::PathId;
use crosslane_core::wanted::Order;
use crosslane_sim::transport::scheduler::Scheduler;

/// Rate over each path, in Mbit/s, with a message every 10 ms.
fn rates(scheduler: Scheduler, offered_mbit_s: f64) -> [f64; 2] {
    let test_paths = [TestPath::new(10.0, 20), TestPath::new(10.0, 10)];
    let source = Source::Messages { bytes: (offered_mbit_s * 1e6 / 8.0 * 0.01) as u64, every_ms: 10 };
    let plan = [(100, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(Setup { scheduler, ..Setup::new(&test_paths, source) }, &plan);
    pair.run_until_ms(5_000);
    let before = pair.arrived.clone();
    pair.run_until_ms(15_000);
    [0, 1].map(|path| (pair.arrived[path] - before[path]) as f64 * 8.0 / 10e6)
}

#[test]
fn without_an_order_it_selects_as_min_rtt() {
    let carried = |scheduler| {
        let test_paths = [TestPath::new(10.0, 20), TestPath::new(10.0, 10)];
        let source = Source::Messages { bytes: 5_000, every_ms: 10 };
        let plan = [(100, Action::Create { path: 1, backup: false })];
        let mut pair = Pair::new(Setup { scheduler, ..Setup::new(&test_paths, source) }, &plan);
        pair.client.set_order(&Order::Free);
        pair.run_until_ms(5_000);
        [0, 1].map(|path| pair.carried_between(path, 0, 5_000).count())
    };
    let by_rtt = carried(Scheduler::MinRtt);
    assert!(by_rtt[1] > 1_000 && by_rtt[0] < by_rtt[1], "the second path has the lower RTT: {by_rtt:?}");
    assert_eq!(carried(Scheduler::Priority), by_rtt);
}

#[test]
fn a_new_order_of_paths_moves_the_traffic() {
    let test_paths = [TestPath::new(10.0, 20), TestPath::new(10.0, 10)];
    let source = Source::Messages { bytes: 5_000, every_ms: 10 };
    let plan = [(100, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(Setup { scheduler: Scheduler::Priority, ..Setup::new(&test_paths, source) }, &plan);
    let carried_until = |pair: &mut Pair, from_ms: u64| {
        pair.run_until_ms(from_ms + 5_000);
        [0, 1].map(|path| pair.carried_between(path, from_ms, from_ms + 5_000).count())
    };
    let first = carried_until(&mut pair, 0);
    pair.client.set_order(&Order::Paths(vec![PathId(1)]));
    let second = carried_until(&mut pair, 5_000);
    pair.client.set_order(&Order::Paths(vec![PathId(0), PathId(1)]));
    let third = carried_until(&mut pair, 10_000);
    pair.client.set_order(&Order::Paths(vec![PathId(1)]));
    pair.client.set_order(&Order::Preference);
    let users = carried_until(&mut pair, 15_000);
    // While a path is in slow start the other one carries what overflows.
    assert!(first[0] > 1_000 && first[1] == 0, "{first:?}");
    assert!(second[1] > 1_000 && second[0] < 20, "{second:?}");
    assert!(third[0] > 1_000 && third[1] < 20, "{third:?}");
    assert!(users[0] > 1_000 && users[1] < 20, "without an order, the user's: {users:?}");
}

#[test]
fn the_priority_scheduler_fills_the_preferred_path_first() {
    let below = rates(Scheduler::Priority, 4.0);
    assert!(below[0] > 3.9 && below[1] < 0.05, "{below:?}");
    let beyond = rates(Scheduler::Priority, 14.0);
    assert!(beyond[0] > 8.5 && beyond[0] + beyond[1] > 13.5, "{beyond:?}");
    let fastest = rates(Scheduler::MinRtt, 4.0);
    assert!(fastest[1] > 3.9, "{fastest:?}");
}
