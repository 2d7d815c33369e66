//! Two subflows against one plain TCP flow, all under 0.3 % of random loss.
//! Linux 6.18: uncoupled Reno takes 2.05 and 1.74 times the plain flow, LIA
//! (RFC 6356 as BPF) 0.90 and 1.14; ±20 % of that here. OLIA has the same
//! aim; no kernel has it, so only that aim is held: no more than one flow, and more than
//! half of one.
#![allow(missing_docs)]

mod pair;

use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Algorithm;
use pair::{Action, Pair, Setup, Source, Way, median};

fn carried(algorithm: Algorithm, protocol: Protocol, seed: u64) -> f64 {
    let ways = [Way { loss: 0.003, ..Way::new(100.0, 20) }, Way { loss: 0.003, ..Way::new(100.0, 20) }];
    let plan = [(200, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(Setup { seed, algorithm, protocol, ..Setup::new(&ways, Source::Bulk) }, &plan);
    pair.run_until_ms(60_000);
    pair.server.delivered() as f64
}

fn times_plain(algorithm: Algorithm) -> f64 {
    median(5, |seed| carried(algorithm, Protocol::Mptcp, seed) / carried(Algorithm::Reno, Protocol::Tcp, seed + 100))
}

#[test]
fn coupled_increases_take_no_more_than_one_flow() {
    let uncoupled = times_plain(Algorithm::Reno);
    assert!((1.39..2.46).contains(&uncoupled), "uncoupled: {uncoupled:.2}");
    for (algorithm, least, most) in [(Algorithm::Lia, 0.72, 1.37), (Algorithm::Olia, 0.5, 1.1)] {
        let coupled = times_plain(algorithm);
        assert!((least..most).contains(&coupled), "{algorithm:?}: {coupled:.2}");
    }
}
