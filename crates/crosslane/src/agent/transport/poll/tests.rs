use std::net::SocketAddr;
use std::sync::Arc;

use crosslane_core::actuator;
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::manager::Manager;
use crosslane_core::mptcp::{AddressId, Event, Subflow};
use crosslane_core::path::{PathId, PathSpec, Rat, SampleKind};
use crosslane_core::strategy::{adaptive, threshold};

use super::*;
use crate::netlink::diag::{MptcpInfo, Owner};
use crate::netlink::{TcpInfo, TcpState};

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn subflow(token: u32) -> Subflow {
    let local = SocketAddr::from(([10, 1, 0, 2], 1000 + token as u16));
    let remote = SocketAddr::from(([10, 9, 0, 1], 80));
    Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false }
}

fn begin(engine: &mut Agent, token: u32) {
    let event = Event::Established { token: Token(token), subflow: subflow(token), server_side: false };
    engine.handle(at(0), actuator::Event::Mptcp(event).into());
}

/// An engine with one path and connections of these tokens.
fn engine(tokens: std::ops::Range<u32>) -> Agent {
    let local = Some(subflow(0).local.ip());
    let specs = [PathSpec { name: "lte".into(), rat: Rat::Lte, local, if_index: 0, radio: None }];
    let manager = Box::new(Manager::new(specs.to_vec(), Duration::ZERO));
    let mut engine = Agent::new(&specs, &[0], Mode::Aggregate, Arc::new(threshold::Params::default()), vec![manager]);
    tokens.for_each(|token| begin(&mut engine, token));
    engine
}

fn socket(token: u32, delivered: u32) -> SocketInfo {
    let Subflow { local, remote, .. } = subflow(token);
    let tcp = TcpInfo { state: TcpState::Established, rtt: Duration::from_millis(20), delivered, ..TcpInfo::default() };
    let mptcp = Some(MptcpInfo { token_local: token, ..Default::default() });
    SocketInfo { local, remote, if_index: 0, owner: Owner::default(), tcp, mptcp }
}

/// The tokens of the subflows that have a sample.
fn tokens(samples: &[Sample]) -> Vec<u32> {
    let token = |sample: &Sample| match &sample.kind {
        SampleKind::Transport(transport) => transport.token,
        other => panic!("{other:?}"),
    };
    samples.iter().map(token).collect()
}

#[test]
fn what_ended_since_a_poll_began_has_no_sample_and_what_opened_has_one() {
    let (mut poller, mut engine) = (SubflowPoller::new(Duration::from_millis(10)), engine(1..3));
    let mut listed = |engine: &Agent, ms| {
        let (sockets, mut samples) = ([1, 2, 3].map(|token| socket(token, 0)), Vec::new());
        let found = poller.take_all(at(ms), &sockets, true, engine, &mut samples);
        assert_eq!(found, samples.len());
        tokens(&samples)
    };
    assert_eq!(listed(&engine, 10), [1, 2]);
    engine.handle(at(11), actuator::Event::Mptcp(Event::Closed { token: Token(1) }).into());
    begin(&mut engine, 3);
    assert_eq!(listed(&engine, 12), [2, 3]);
}

#[test]
fn of_idle_subflows_that_are_listed_by_the_way_only_what_changed_has_a_sample() {
    let (mut poller, engine) = (SubflowPoller::new(Duration::from_millis(10)), engine(1..4));
    let mut listed = |ms, delivered: [u32; 3], with_idle| {
        let sockets = [1, 2, 3].map(|token| socket(token, delivered[token as usize - 1]));
        let mut samples = Vec::new();
        assert_eq!(poller.take_all(at(ms), &sockets, with_idle, &engine, &mut samples), 3);
        tokens(&samples)
    };
    assert_eq!(listed(0, [0, 0, 0], false), [1, 2, 3], "not known yet");
    assert_eq!(listed(500, [0, 0, 0], false), [1, 2, 3], "not idle yet");
    assert_eq!(listed(1400, [0, 1, 0], false), [2]);
    assert_eq!(listed(1410, [0, 1, 0], true), [1, 2, 3]);
    assert_eq!(listed(2500, [0, 1, 0], false), [1, 2, 3], "repeated after a second");
}

#[test]
fn a_poll_of_many_subflows_takes_several_parts_and_ends() {
    let (mut poller, engine) = (SubflowPoller::new(Duration::from_millis(10)), engine(1..1001));
    let mut diag = Diag::open().unwrap();
    for query in [Duration::ZERO, Duration::from_secs(1)] {
        (poller.costs.query, poller.poll) = (query, None);
        poller.begin(at(10));
        let mut parts = 0;
        while poller.is_polling() {
            assert_eq!(poller.next_part(at(10), &engine, &mut diag), [], "the kernel has no such sockets");
            poller.finish_part(Duration::from_micros(100));
            parts += 1;
            assert!(parts < 10_000);
        }
        assert!(parts > 5, "{parts} parts");
        assert_eq!((poller.busy, poller.known.len()), (1000, 0));
        assert!(poller.next > at(10));
    }
}

#[test]
fn a_byte_that_is_late_before_the_next_poll_is_queried_then_once_and_within_the_processor_time() {
    let specs = [PathSpec { name: "lte".into(), rat: Rat::Lte, local: None, if_index: 0, radio: None }];
    let mut engine = Agent::new(&specs, &[0], Mode::Backup, Arc::new(adaptive::Params::default()), Vec::new());
    let sample = |kind| Sample { path: PathId(0), kind };
    engine.handle(at(0), sample(SampleKind::Link { up: true }).into());
    let (mut now_ms, mut transport) = (0, Transport::IDLE);
    for unacked in [0, 1].into_iter().cycle().take(400) {
        now_ms += 10;
        transport.unacked = unacked;
        (transport.delivered, transport.bytes_acked) = (now_ms as u32 / 20, now_ms / 20 * 1000);
        engine.handle(at(now_ms), sample(SampleKind::Transport(transport)).into());
    }
    let late = engine.query_at(at(now_ms)).unwrap();
    let mut poller = SubflowPoller::new(Duration::from_millis(10));
    (poller.next, poller.polled) = (late + Duration::from_millis(5), at(now_ms));
    assert_eq!(poller.due(&engine), late);
    poller.allowed = late + Duration::from_millis(2);
    assert_eq!(poller.due(&engine), poller.allowed, "the last poll took long");
    poller.polled = late;
    assert_eq!(poller.due(&engine), poller.next, "it has been queried");
}
