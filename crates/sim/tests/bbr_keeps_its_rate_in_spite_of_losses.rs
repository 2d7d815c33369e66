//! BBR takes a loss for no sign of congestion: where each thirtieth packet is
//! lost it keeps the rate, and sends again little that has arrived. Linux 6.18
//! over two paths of 8 Mbit/s and 50 ms with 3 % of loss each way, 31 s of bulk:
//! 13.97 Mbit/s and 1.02 segments repeated for each one lost.
#![allow(missing_docs)]

mod pair;

use crosslane_sim::transport::congestion::Algorithm;
use pair::{Action, Pair, Setup, Source, Way, median};

/// Mbit/s, and segments repeated for each one lost.
fn run(seed: u64) -> (f64, f64) {
    let way = Way { queue_bytes: 2_000_000, loss: 0.03, ..Way::new(8.0, 50) };
    let setup = Setup { seed, algorithm: Algorithm::Bbr, ..Setup::new(&[way, way], Source::Bulk) };
    let mut pair = Pair::new(setup, &[(500, Action::Create { path: 1, backup: false })]);
    pair.run_until_ms(31_000);
    let repeated: u32 = pair.client.subflows().map(|info| info.repeated).sum();
    let sent: f64 = pair.carried.len() as f64;
    (pair.server.delivered() as f64 * 8.0 / 31e6, f64::from(repeated) / (sent * 0.03))
}

#[test]
fn bbr_keeps_its_rate_in_spite_of_losses() {
    let rate = median(5, |seed| run(seed).0);
    let repeated = median(5, |seed| run(seed).1);
    assert!((13.2..=14.4).contains(&rate), "{rate:.2} Mbit/s");
    assert!((0.95..=1.05).contains(&repeated), "{repeated:.2}");
}
