//! Bulk over 2 × 10 Mbit/s uses the whole capacity of both paths, less headers
//! (1424 of 1500 bytes; tolerance 5 %).

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_sim::transport::congestion::Congestion;

#[test]
fn two_paths_together_carry_their_sum() {
    for algorithm in [Congestion::Reno, Congestion::Cubic, Congestion::Bbr] {
        let test_paths = [TestPath::new(10.0, 15), TestPath::new(10.0, 25)];
        let plan = [(200, Action::Create { path: 1, backup: false })];
        let mut pair = Pair::new(Setup { algorithm, ..Setup::new(&test_paths, Source::Bulk) }, &plan);
        pair.run_until_ms(5_000);
        let before = pair.server.delivered();
        pair.run_until_ms(25_000);
        let mbit_s = (pair.server.delivered() - before) as f64 * 8.0 / 20e6;
        let max = 20.0 * 1424.0 / 1500.0;
        println!("{algorithm:?}: {mbit_s:.2} Mbit/s");
        assert!((0.95 * max..=1.01 * max).contains(&mbit_s), "{algorithm:?}: {mbit_s:.2} of {max:.2} Mbit/s");
    }
}
