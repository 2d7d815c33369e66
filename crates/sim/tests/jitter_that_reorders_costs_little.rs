//! Jitter that reorders is not loss: Linux's RACK waits for late segments, and undoes the recoveries that they
//! cause. The kernel's figures are of Linux 6.18, plain TCP over one path of 20 ms whose packets each take up to so
//! much longer, in both directions (`[[cellular]]` with `jitter`, drives of 12 s, one to five seeds).

use crate::pair::{Pair, Setup, Source, TestPath, median};
use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Congestion;

/// The kernel's goodput in Mbit/s, and the most of its retransmissions.
struct Driven {
    algorithm: Congestion,
    jitter_ms: u64,
    mbit_s: f64,
    goodput: f64,
    retransmitted: f64,
}

const fn driven(algorithm: Congestion, jitter_ms: u64, mbit_s: f64, goodput: f64, retransmitted: f64) -> Driven {
    Driven { algorithm, jitter_ms, mbit_s, goodput, retransmitted }
}

/// Goodput in Mbit/s and retransmissions of a bulk transfer of 11 s.
fn run(driven: &Driven, seed: u64) -> (f64, f64) {
    let path = TestPath { jitter_ms: driven.jitter_ms, ..TestPath::new(driven.mbit_s, 20) };
    let setup =
        Setup { seed, algorithm: driven.algorithm, protocol: Protocol::Tcp, ..Setup::new(&[path], Source::Bulk) };
    let mut pair = Pair::new(setup, &[]);
    pair.run_until_ms(1_000);
    let first = pair.server.delivered();
    pair.run_until_ms(11_000);
    let retransmitted = pair.subflow(0).map_or(0, |info| info.transport.retransmitted);
    ((pair.server.delivered() - first) as f64 * 8.0 / 10e6, f64::from(retransmitted))
}

/// The tolerance of goodput is that of the table of conformance. Retransmissions are few and depend on chance: most
/// are of packets that the queue drops, or of the first segments that are overtaken.
fn agree(cases: &[Driven]) {
    for case in cases {
        let goodput = median(3, |seed| run(case, seed).0);
        let retransmitted = median(5, |seed| run(case, seed).1);
        let name = format!("{:?}, {} ms, {} Mbit/s", case.algorithm, case.jitter_ms, case.mbit_s);
        println!("{name}: {goodput:.1} of {}, {retransmitted} of {}", case.goodput, case.retransmitted);
        assert!((goodput / case.goodput - 1.0).abs() < 0.1, "{name}: {goodput:.1} Mbit/s");
        assert!(retransmitted <= 2.0 * case.retransmitted + 20.0, "{name}: {retransmitted} retransmitted");
    }
}

#[test]
fn jitter_that_reorders_costs_little_with_cubic() {
    use Congestion::Cubic;
    agree(&[
        driven(Cubic, 2, 10.0, 9.65, 12.0),
        driven(Cubic, 2, 50.0, 47.9, 73.0),
        driven(Cubic, 2, 130.0, 124.0, 18.0),
        driven(Cubic, 5, 10.0, 9.64, 18.0),
        driven(Cubic, 5, 50.0, 47.8, 181.0),
        driven(Cubic, 5, 130.0, 124.0, 5.0),
        driven(Cubic, 20, 10.0, 9.61, 35.0),
        driven(Cubic, 20, 130.0, 123.0, 23.0),
    ]);
}

#[test]
fn jitter_that_reorders_costs_little_with_bbr() {
    use Congestion::Bbr;
    agree(&[
        driven(Bbr, 2, 10.0, 9.43, 0.0),
        driven(Bbr, 2, 50.0, 46.9, 0.0),
        driven(Bbr, 2, 130.0, 124.0, 0.0),
        driven(Bbr, 5, 10.0, 9.42, 0.0),
        driven(Bbr, 5, 50.0, 46.8, 1.0),
        driven(Bbr, 20, 10.0, 9.42, 5.0),
        driven(Bbr, 20, 50.0, 46.4, 69.0),
        driven(Bbr, 20, 130.0, 122.0, 130.0),
    ]);
}
