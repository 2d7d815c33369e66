use super::*;
use alloc::vec::Vec;

const RTT: Duration = Duration::from_millis(10);
const MARGIN: Duration = Duration::from_millis(20);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn peer(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

fn sample(token: u32, host: u8, unacked: u32, delivered: u32) -> Transport {
    Transport {
        token,
        peer: peer(host),
        rtt: RTT,
        rttvar: Duration::from_millis(2),
        unacked,
        delivered,
        ..Transport::IDLE
    }
}

/// Connections that each send a message every 20 ms, sampled every 10 ms; data of some
/// peers' subflows stops at some time.
struct Traffic {
    stalls: Stalls,
    connections: Vec<(u32, u8, u32)>,
    acked: Vec<u32>,
}

impl Traffic {
    fn of(connections: impl Iterator<Item = (u32, u8)>) -> Traffic {
        let connections: Vec<_> = connections.map(|(token, host)| (token, host, token % 20)).collect();
        Traffic { stalls: Stalls::default(), acked: alloc::vec![0; connections.len()], connections }
    }

    /// When the path was first reported as stalled in this time, in ms.
    fn run(&mut self, from: u64, to: u64, carries: impl Fn(u32, u8, u64) -> bool) -> Option<u64> {
        let mut stalled_at = None;
        for ms in (from..to).step_by(10) {
            for (place, &(token, host, phase)) in self.connections.iter().enumerate() {
                let sent = |until: u64| (until.saturating_sub(u64::from(phase)) / 20) as u32;
                if carries(token, host, ms) {
                    self.acked[place] = sent(ms.saturating_sub(7));
                }
                let transport = sample(token, host, sent(ms) - self.acked[place].min(sent(ms)), self.acked[place]);
                if let Some(Verdict::Stalled { .. }) = self.stalls.watch(at(ms), &transport, MARGIN) {
                    stalled_at = stalled_at.or(Some(ms));
                }
            }
        }
        stalled_at
    }
}

#[test]
fn sudden_loss_is_detected_with_any_number_of_connections() {
    for connections in [1, 2, 64, 65, 200, 1024] {
        let mut traffic = Traffic::of((0..connections).map(|token| (token, 1)));
        assert_eq!(traffic.run(100, 1000, |_, _, _| true), None, "{connections} connections without loss");
        let stalled_at = traffic.run(1000, 1200, |_, _, _| false).unwrap_or(u64::MAX);
        assert!(stalled_at <= 1100, "{connections} connections: {stalled_at} ms");
        assert_eq!(traffic.stalls.subflows.len(), connections as usize);
    }
}

#[test]
fn one_dead_server_does_not_stall_the_path() {
    for of_it in [1, 7, 50] {
        let mut traffic = Traffic::of((0..of_it).map(|token| (token, 1)).chain([(900, 2)]));
        assert_eq!(traffic.run(100, 1000, |_, _, _| true), None);
        assert_eq!(traffic.run(1000, 60_000, |_, host, _| host == 2), None, "{of_it} connections to it");
        let stalled: Vec<u32> =
            core::iter::from_fn(|| traffic.stalls.poll_stalled()).map(|stalled| stalled.token).collect();
        assert_eq!(stalled.len() as u32, of_it, "each of its subflows is reported once, no other");
        assert!(!stalled.contains(&900));
        let stalled_at = traffic.run(60_000, 60_400, |_, _, _| false);
        assert!(stalled_at.is_some(), "the loss of the path is still detected");
    }
}

#[test]
fn one_stalled_connection_of_many_to_one_server_does_not_stall_the_path() {
    let mut traffic = Traffic::of((0..5).map(|token| (token, 1)));
    assert_eq!(traffic.run(100, 1000, |_, _, _| true), None);
    assert_eq!(traffic.run(1000, 10_000, |token, _, _| token != 3), None);
    assert_eq!(traffic.stalls.poll_stalled().map(|stalled| stalled.token), Some(3));
}

#[test]
fn an_accepted_connection_is_assessed_separately_and_only_with_another_subflow() {
    let mut stalls = Stalls::default();
    let accepted = |host, unacked, delivered| Transport { accepted: true, ..sample(5, host, unacked, delivered) };
    for ms in (0..300).step_by(10) {
        assert!(!matches!(stalls.watch(at(ms), &accepted(1, 3, 50), MARGIN), Some(Verdict::Stalled { .. })));
    }
    assert_eq!(stalls.poll_stalled(), None, "it has no other subflow");
    for ms in (300..350).step_by(10) {
        stalls.watch(at(ms), &accepted(2, 0, 7), MARGIN);
        stalls.watch(at(ms), &accepted(1, 3, 50), MARGIN);
    }
    assert_eq!(stalls.poll_stalled(), Some(StalledSubflow { token: 5, peer: peer(1) }));
    assert_eq!(stalls.poll_stalled(), None, "reported once");
}

#[test]
fn subflows_that_are_gone_are_removed() {
    let mut stalls = Stalls::default();
    for token in 0..MAX_SUBFLOWS as u32 + 3 {
        stalls.watch(at(0), &sample(token, 1, 0, 0), MARGIN);
    }
    assert_eq!(stalls.subflows.len(), MAX_SUBFLOWS);
    stalls.watch(at(6000), &sample(0, 1, 0, 0), MARGIN);
    assert_eq!(stalls.subflows.len(), 1);
}
