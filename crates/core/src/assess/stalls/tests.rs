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
        accepted: false,
        backup: false,
        rtt: RTT,
        rttvar: Duration::from_millis(2),
        unacked,
        delivered,
        bytes_acked: 0,
        notsent_bytes: 0,
        bytes_received: 0,
    }
}

/// Connections that each send a message every 20 ms, looked at each 10 ms; what
/// the subflows of some peers get through ends at a moment.
struct Road {
    stalls: Stalls,
    connections: Vec<(u32, u8, u32)>,
    acked: Vec<u32>,
}

impl Road {
    fn of(connections: impl Iterator<Item = (u32, u8)>) -> Road {
        let connections: Vec<_> = connections.map(|(token, host)| (token, host, token % 20)).collect();
        Road { stalls: Stalls::default(), acked: alloc::vec![0; connections.len()], connections }
    }

    /// When the path was first blamed in this time, if it was.
    fn drive(&mut self, from: u64, to: u64, carries: impl Fn(u32, u8, u64) -> bool) -> Option<u64> {
        let mut blamed = None;
        for ms in (from..to).step_by(10) {
            for (place, &(token, host, phase)) in self.connections.iter().enumerate() {
                let sent = |until: u64| (until.saturating_sub(u64::from(phase)) / 20) as u32;
                if carries(token, host, ms) {
                    self.acked[place] = sent(ms.saturating_sub(7));
                }
                let transport = sample(token, host, sent(ms) - self.acked[place].min(sent(ms)), self.acked[place]);
                if let Some(Verdict::Stuck { .. }) = self.stalls.watch(at(ms), &transport, MARGIN) {
                    blamed = blamed.or(Some(ms));
                }
            }
        }
        blamed
    }
}

#[test]
fn sudden_loss_is_seen_however_many_connections_there_are() {
    for connections in [1, 2, 64, 65, 200, 1024] {
        let mut road = Road::of((0..connections).map(|token| (token, 1)));
        assert_eq!(road.drive(100, 1000, |_, _, _| true), None, "{connections} connections in peace");
        let blamed = road.drive(1000, 1200, |_, _, _| false).unwrap_or(u64::MAX);
        assert!(blamed <= 1100, "{connections} connections: {blamed} ms");
        assert_eq!(road.stalls.subflows.len(), connections as usize);
    }
}

#[test]
fn one_dead_server_does_not_make_a_path_bad_for_all() {
    for of_it in [1, 7, 50] {
        let mut road = Road::of((0..of_it).map(|token| (token, 1)).chain([(900, 2)]));
        assert_eq!(road.drive(100, 1000, |_, _, _| true), None);
        assert_eq!(road.drive(1000, 60_000, |_, host, _| host == 2), None, "{of_it} connections to it");
        let stuck: Vec<u32> = core::iter::from_fn(|| road.stalls.poll_stuck()).map(|stuck| stuck.token).collect();
        assert_eq!(stuck.len() as u32, of_it, "each of its own subflows is told once, no other");
        assert!(!stuck.contains(&900));
        let blamed = road.drive(60_000, 60_400, |_, _, _| false);
        assert!(blamed.is_some(), "the path's own loss is still seen");
    }
}

#[test]
fn one_stalled_connection_of_many_to_one_server_is_its_own_affair() {
    let mut road = Road::of((0..5).map(|token| (token, 1)));
    assert_eq!(road.drive(100, 1000, |_, _, _| true), None);
    assert_eq!(road.drive(1000, 10_000, |token, _, _| token != 3), None);
    assert_eq!(road.stalls.poll_stuck().map(|stuck| stuck.token), Some(3));
}

#[test]
fn an_accepted_connection_is_judged_by_itself_and_only_beside_another_subflow() {
    let mut stalls = Stalls::default();
    let accepted = |host, unacked, delivered| Transport { accepted: true, ..sample(5, host, unacked, delivered) };
    for ms in (0..300).step_by(10) {
        assert!(!matches!(stalls.watch(at(ms), &accepted(1, 3, 50), MARGIN), Some(Verdict::Stuck { .. })));
    }
    assert_eq!(stalls.poll_stuck(), None, "it has no other");
    for ms in (300..350).step_by(10) {
        stalls.watch(at(ms), &accepted(2, 0, 7), MARGIN);
        stalls.watch(at(ms), &accepted(1, 3, 50), MARGIN);
    }
    assert_eq!(stalls.poll_stuck(), Some(Stuck { token: 5, peer: peer(1) }));
    assert_eq!(stalls.poll_stuck(), None, "told once");
}

#[test]
fn what_is_gone_leaves_its_place() {
    let mut stalls = Stalls::default();
    for token in 0..MAX_SUBFLOWS as u32 + 3 {
        stalls.watch(at(0), &sample(token, 1, 0, 0), MARGIN);
    }
    assert_eq!(stalls.subflows.len(), MAX_SUBFLOWS);
    stalls.watch(at(6000), &sample(0, 1, 0, 0), MARGIN);
    assert_eq!(stalls.subflows.len(), 1);
}
