//! Limits that hold for any input, and for any report of the peer.

use super::*;
use crate::tunnel::retransmit_queue::MAX_RETRANSMISSIONS;
use crate::tunnel::send_path::MAX_CWND_BYTES;
use crate::tunnel::wire::control_message::PathReport;

const PATH: PathId = PathId(0);
const OWN_EPOCH: u32 = 7;
const PEER_EPOCH: u32 = 70;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn endpoint(is_initiator: bool) -> Tunnel<u32> {
    let mut endpoint = Tunnel::new(Setup {
        copies: Copies::default(),
        mode: Mode::Aggregate,
        is_initiator,
        ranks: vec![],
        epoch: OWN_EPOCH,
        overhead: HEADERS,
    });
    endpoint.handle(at(1), Input::Present(PATH, true));
    endpoint
}

fn message(body: Body) -> Message {
    Message {
        epoch: PEER_EPOCH,
        mode: Mode::Standby,
        retransmits: true,
        is_initiator: false,
        reads_feedback: false,
        body,
    }
}

/// A report that all packets up to `highest` arrived except the missing ones.
fn report(highest: u32, missing: &[(u32, u16)], arrival_us: u32, bytes: u32) -> Body {
    let report = PathReport {
        path: PATH,
        wanted_state: PathState::Active,
        rank: 0,
        is_overdue: false,
        highest,
        arrival_us,
        held_us: 0,
        packets: 0,
        bytes,
        missing: missing.to_vec(),
    };
    Body::Report { peer_epoch: OWN_EPOCH, paths: vec![report] }
}

fn receive(endpoint: &mut Tunnel<u32>, now: Instant, message: Message) {
    endpoint.handle(now, Input::Message { path: PATH, number: None, message });
}

fn offer(endpoint: &mut Tunnel<u32>, now: Instant, packet: u32) {
    endpoint.handle(now, Input::Packet { flow: (packet % 64) as u8, bytes: BYTES, bulk: false, packet });
}

/// The packets sent now with their path sequence numbers, and the newest sequence number of all.
fn transmitted(endpoint: &mut Tunnel<u32>, now: Instant) -> (Vec<(u32, u32)>, Option<u32>) {
    let (mut packets, mut newest) = (Vec::new(), None);
    while let Some(output) = endpoint.poll(now) {
        match output {
            Output::Send { number, packet, .. } => {
                packets.push((number, packet));
                newest = Some(number);
            }
            Output::Message { number: Some(number), .. } => newest = Some(number),
            _ => {}
        }
    }
    (packets, newest)
}

/// An endpoint whose path is up, with an RTT of 10 ms.
fn working(is_initiator: bool) -> Tunnel<u32> {
    let mut endpoint = endpoint(is_initiator);
    let (_, probe) = transmitted(&mut endpoint, at(1));
    receive(&mut endpoint, at(11), message(report(probe.expect("a probe was sent"), &[], 6_000, 100)));
    assert_eq!(endpoint.paths.get(PATH).map(|path| path.sender.liveness()), Some(Liveness::Up));
    endpoint
}

#[test]
fn before_any_feedback_a_few_packets_are_in_flight() {
    let mut endpoint = endpoint(true);
    (0..1000).for_each(|packet| offer(&mut endpoint, at(1), packet));
    let bytes =
        (0..20).map(|ms| transmitted(&mut endpoint, at(1 + ms)).0.len() as u32 * (BYTES + OVERHEAD)).sum::<u32>();
    assert!((20_000..27_000).contains(&bytes), "{bytes}");
}

/// The peer reports 100 Gbit/s and then acknowledges only a few packets.
#[test]
fn bytes_in_flight_are_limited_for_any_reported_rate() {
    let mut endpoint = working(true);
    let (mut packet, mut max_in_flight) = (0, 0);
    let (mut claimed_us, mut claimed_bytes) = (0u32, 0u32);
    for ms in 20..300 {
        for _ in 0..1000 {
            offer(&mut endpoint, at(ms), packet);
            packet += 1;
        }
        let (sent, newest) = transmitted(&mut endpoint, at(ms));
        max_in_flight = max_in_flight.max(endpoint.paths.get(PATH).map_or(0, |path| path.sender.bytes_in_flight()));
        claimed_us += 10_000;
        claimed_bytes = claimed_bytes.wrapping_add(4_000_000_000);
        if let Some(newest) = newest.filter(|_| !sent.is_empty()) {
            let behind =
                if ms < 60 { 0 } else { endpoint.paths.get(PATH).map_or(0, |path| path.sender.in_flight()) as u32 - 1 };
            receive(
                &mut endpoint,
                at(ms),
                message(report(newest.wrapping_sub(behind), &[], claimed_us, claimed_bytes)),
            );
        }
    }
    assert!(max_in_flight > 32 << 20, "only {max_in_flight} bytes: the limit was not reached");
    assert!(max_in_flight <= MAX_CWND_BYTES as u64 + 1500, "{max_in_flight} bytes");
}

#[test]
fn packets_kept_for_retransmission_are_limited() {
    let mut endpoint = working(true);
    assert!(endpoint.keeps_copies());
    let path = endpoint.paths.get_mut(PATH).expect("the path is present");
    for _ in 0..MAX_KEPT_BYTES / 1000 {
        path.sender.send(at(20), 1000, None);
    }
    assert!(endpoint.keeps_copies());
    endpoint.paths.get_mut(PATH).expect("the path is present").sender.send(at(20), 1000, None);
    assert!(!endpoint.keeps_copies());
}

#[test]
fn a_report_for_an_earlier_epoch_is_ignored() {
    for (peer_epoch, delivered) in [(OWN_EPOCH, 1), (OWN_EPOCH - 1, 0), (0, 0)] {
        let mut endpoint = endpoint(true);
        let (_, probe) = transmitted(&mut endpoint, at(1));
        let Body::Report { paths, .. } = report(probe.expect("a probe was sent"), &[], 6_000, 100) else {
            unreachable!()
        };
        receive(&mut endpoint, at(11), message(Body::Report { peer_epoch, paths }));
        assert_eq!(endpoint.path(PATH).map(|path| path.delivered), Some(delivered), "epoch {peer_epoch}");
    }
}

#[test]
fn a_packet_first_sent_2_s_ago_is_not_retransmitted() {
    for (later_ms, retransmitted) in [(1990, 1), (2010, 0)] {
        let mut endpoint = working(true);
        offer(&mut endpoint, at(20), 1);
        let (sent, _) = transmitted(&mut endpoint, at(20));
        let number = sent[0].0;
        let now = at(20 + later_ms);
        // A probe sent after the packet arrives; the packet does not.
        let newest = endpoint.paths.get_mut(PATH).expect("the path is present").sender.send(at(21), 64, None);
        receive(&mut endpoint, now, message(report(newest, &[(number, 1)], 250_000, 200)));
        assert_eq!(endpoint.retransmits.packets.len(), retransmitted, "{later_ms} ms");
        assert_eq!(transmitted(&mut endpoint, now).0.len(), retransmitted, "{later_ms} ms");
    }
}

/// The peer reports each ms that what was sent last was lost, of bulk up to two transmissions.
#[test]
fn retransmissions_of_a_packet_are_limited() {
    for bulk in [false, true] {
        let mut endpoint = working(true);
        endpoint.handle(at(20), Input::Packet { flow: 1, bytes: BYTES, bulk, packet: 1 });
        let mut times = Vec::new();
        for ms in 20..260 {
            let (sent, _) = transmitted(&mut endpoint, at(ms));
            if let Some((number, _)) = sent.first() {
                times.push(sent.len());
                let newest = endpoint.paths.get_mut(PATH).expect("the path is present").sender.send(at(ms), 64, None);
                let missing = [(*number, sent.len() as u16)];
                receive(&mut endpoint, at(ms), message(report(newest, &missing, ms as u32 * 1000, 200)));
            }
        }
        assert_eq!(times.iter().sum::<usize>(), 1 + usize::from(MAX_RETRANSMISSIONS), "{times:?}");
        assert_eq!(times.iter().max(), Some(&if bulk { 2 } else { 1 }), "{times:?}");
    }
}

/// An initiator does not follow a peer that claims to be the initiator.
#[test]
fn only_a_follower_takes_mode_and_wanted_states_from_an_initiator() {
    for (reported_initiator, is_initiator, follows) in
        [(true, false, true), (false, false, false), (true, true, false), (false, true, false)]
    {
        let mut endpoint = working(is_initiator);
        let Body::Report { peer_epoch, mut paths } = report(0, &[], 0, 0) else { unreachable!() };
        (paths[0].wanted_state, paths[0].rank) = (PathState::Closed, 9);
        let message = Message { is_initiator: reported_initiator, ..message(Body::Report { peer_epoch, paths }) };
        receive(&mut endpoint, at(20), message);
        let state = (endpoint.mode, endpoint.path(PATH).map(|path| path.wanted_state), endpoint.paths.order.rank(PATH));
        let wanted = match follows {
            true => (Mode::Standby, Some(PathState::Closed), 9),
            false => (Mode::Aggregate, Some(PathState::Active), 0),
        };
        assert_eq!(state, wanted, "peer is initiator: {reported_initiator}, endpoint is initiator: {is_initiator}");
    }
}

/// Whether the second of two paths, with this loss, was ever declared too lossy.
fn is_ever_distrusted(loss: f64) -> bool {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(10.0, 10.0, 0.0), (10.0, 10.0, loss)]);
    (1..60).any(|tick| {
        testbed.stream(1, 18.0, tick * 50);
        let sender = testbed.sender(1);
        sender.liveness() == Liveness::Recovering && sender.reason().starts_with("it loses")
    })
}

#[test]
fn a_path_that_loses_more_than_a_third_is_not_up() {
    assert!(is_ever_distrusted(0.6));
    assert!(!is_ever_distrusted(0.15));
}
