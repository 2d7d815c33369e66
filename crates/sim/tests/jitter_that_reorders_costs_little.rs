#![allow(missing_docs)]

mod pair;

use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Congestion;
use pair::{Pair, Setup, Source, TestPath};

#[test]
fn explore() {
    for algorithm in [Congestion::Cubic, Congestion::Bbr] {
        for jitter_ms in [2, 5, 20] {
            for mbit_s in [10.0, 50.0, 130.0] {
                let mut line = String::new();
                for seed in 1..=5 {
                    let path = TestPath { jitter_ms, ..TestPath::new(mbit_s, 20) };
                    let setup =
                        Setup { seed, algorithm, protocol: Protocol::Tcp, ..Setup::new(&[path], Source::Bulk) };
                    let mut pair = Pair::new(setup, &[]);
                    pair.run_until_ms(11_000);
                    let rate = pair.server.delivered() as f64 * 8.0 / 11e6;
                    let info = pair.subflow(0).unwrap();
                    line += &format!(" {rate:.1}/{}", info.transport.retransmitted);
                }
                println!("{algorithm:?} {jitter_ms} ms {mbit_s}:{line}");
            }
        }
    }
}
