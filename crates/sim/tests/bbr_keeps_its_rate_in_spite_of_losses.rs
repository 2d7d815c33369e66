//! BBR does not treat a loss as congestion. Linux 6.18 carries 13.97 Mbit/s over
//! two paths of 8 Mbit/s and 50 ms with 3 % loss in each direction; here only data
//! is lost.

use crate::pair::{Action, Pair, Setup, Source, TestPath, median};
use crosslane_sim::transport::congestion::Congestion;

/// Rate in Mbit/s and number of retransmissions, over two paths for 31 s.
fn run(algorithm: Congestion, test_path: TestPath, seed: u64) -> (f64, f64) {
    let setup = Setup { seed, algorithm, ..Setup::new(&[test_path, test_path], Source::Bulk) };
    let mut pair = Pair::new(setup, &[(500, Action::Create { path: 1, backup: false })]);
    pair.run_until_ms(31_000);
    let retransmitted: u32 = pair.client.subflows().map(|info| info.transport.retransmitted).sum();
    (pair.server.delivered() as f64 * 8.0 / 31e6, f64::from(retransmitted))
}

#[test]
fn bbr_keeps_its_rate_in_spite_of_losses() {
    let test_path = TestPath { queue_bytes: 2_000_000, loss: 0.03, ..TestPath::new(8.0, 50) };
    let [bbr, cubic] =
        [Congestion::Bbr, Congestion::Cubic].map(|algorithm| median(5, |seed| run(algorithm, test_path, seed).0));
    assert!((13.2..=14.4).contains(&bbr) && cubic < bbr / 3.0, "{bbr:.2} and {cubic:.2} Mbit/s");
}

/// With queues of 60 kB the kernel carries 14.58 Mbit/s with 1570
/// retransmissions.
#[test]
fn a_short_queue_costs_bbr_what_it_costs_the_kernel() {
    let test_path = TestPath { queue_bytes: 60_000, ..TestPath::new(8.0, 50) };
    let (rate, retransmitted) = run(Congestion::Bbr, test_path, 1);
    println!("{rate:.2} Mbit/s, {retransmitted} retransmitted");
    assert!((14.2..=14.8).contains(&rate), "{rate:.2} Mbit/s");
    assert!((1300.0..=1850.0).contains(&retransmitted), "{retransmitted}");
}
