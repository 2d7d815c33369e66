//! BBR takes a loss for no sign of congestion. Linux 6.18 over two paths of 8
//! Mbit/s and 50 ms with 3 % of loss each way carries 13.97 Mbit/s; here only
//! data is lost.
#![allow(missing_docs)]

mod pair;

use crosslane_sim::transport::congestion::Algorithm;
use pair::{Action, Pair, Setup, Source, Way, median};

fn mbit_s(algorithm: Algorithm, seed: u64) -> f64 {
    let way = Way { queue_bytes: 2_000_000, loss: 0.03, ..Way::new(8.0, 50) };
    let setup = Setup { seed, algorithm, ..Setup::new(&[way, way], Source::Bulk) };
    let mut pair = Pair::new(setup, &[(500, Action::Create { path: 1, backup: false })]);
    pair.run_until_ms(31_000);
    pair.server.delivered() as f64 * 8.0 / 31e6
}

#[test]
fn bbr_keeps_its_rate_in_spite_of_losses() {
    let [bbr, cubic] = [Algorithm::Bbr, Algorithm::Cubic].map(|algorithm| median(5, |seed| mbit_s(algorithm, seed)));
    assert!((13.2..=14.4).contains(&bbr) && cubic < bbr / 3.0, "{bbr:.2} and {cubic:.2} Mbit/s");
}
