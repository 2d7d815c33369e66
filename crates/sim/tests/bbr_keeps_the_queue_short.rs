//! BBR queues at most about one bandwidth-delay product; CUBIC fills the whole
//! queue (Cardwell et al. 2016, figure 5).

use crate::pair::{Pair, Setup, Source, TestPath};
use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Congestion;

/// Median RTT of the samples, in ms, and rate, in Mbit/s.
fn run(algorithm: Congestion) -> (f64, f64) {
    let test_paths = [TestPath { queue_bytes: 500_000, ..TestPath::new(10.0, 20) }];
    let setup = Setup { algorithm, protocol: Protocol::Tcp, ..Setup::new(&test_paths, Source::Bulk) };
    let mut pair = Pair::new(setup, &[]);
    let mut rtts = Vec::new();
    for second in 3..30 {
        pair.run_until_ms(second * 1000);
        rtts.extend(pair.subflow(0).map(|info| info.transport.rtt.as_secs_f64() * 1e3));
    }
    rtts.sort_by(f64::total_cmp);
    (rtts[rtts.len() / 2], pair.server.delivered() as f64 * 8.0 / 29e6)
}

#[test]
fn bbr_keeps_the_queue_short() {
    let (bbr, cubic) = (run(Congestion::Bbr), run(Congestion::Cubic));
    println!("RTT and rate: BBR {bbr:.1?}, CUBIC {cubic:.1?}");
    assert!(bbr.0 < 2.2 * 40.0 && cubic.0 > 4.0 * 40.0);
    assert!(bbr.1 > 8.5 && cubic.1 > 8.5);
}
