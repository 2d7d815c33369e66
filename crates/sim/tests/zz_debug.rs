#![allow(missing_docs)]
mod pair;
use crosslane_sim::transport::congestion::Algorithm;
use pair::*;
#[test]
fn dbg() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
    let ways = [Way::new(8.0, 20), Way::new(8.0, 20)];
    let plan = [(500, Action::Create { path: 1, backup: true })];
    let mut pair = Pair::new(Setup { algorithm, ..Setup::new(&ways, Source::Bulk) }, &plan);
    for ms in (500..8000).step_by(500) {
        pair.run_until_ms(ms);
        let s = pair.subflow(0).unwrap();
        let sent = pair.carried.iter().rev().find(|x| x.first).unwrap();
        println!("{ms} cwnd {} infl {} notsent {} rtt {:?} written {} delivered {} outstanding {} handed-ahead {} edge-ahead {}", s.window, s.in_flight, s.notsent_bytes, s.rtt, pair.written(), pair.server.delivered(), pair.client.outstanding(), s.bytes_sent + s.notsent_bytes as u64 - pair.server.delivered(), pair.watch.edges[0].saturating_sub(pair.server.delivered()));
        let _ = sent;
    }
    }
}
