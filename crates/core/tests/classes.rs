//! Classes of connections: each has an allocator, and none influences another.

use std::net::SocketAddr;
use std::sync::Arc;

use crosslane_core::actuator::{Actuator, Command, Event};
use crosslane_core::agent::{Agent, Input, Output, Preferred};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::manager::{CloseCause, ConnectionEvent, Manager};
use crosslane_core::mptcp::{self, AddressId, Subflow, Token};
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::reason::Reason;
use crosslane_core::strategy::{Strategy, adaptive, threshold};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::volume::Volume;
use crosslane_core::wanted::ConnectionClass;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;

const PATHS: u8 = 3;

fn agent(strategy: &Arc<dyn Strategy>, mode: Mode, classes: &[Mode]) -> Agent {
    let spec = |place: u8| PathSpec {
        name: format!("path-{place}"),
        rat: if place == 0 { Rat::Ieee80211p } else { Rat::Lte },
        local: Some([10, 0, place, 2].into()),
        if_index: 1 + u32::from(place),
        radio: None,
    };
    let paths: Vec<PathSpec> = (0..PATHS).map(spec).collect();
    let manager: Box<dyn Actuator> = Box::new(Manager::new(paths.clone(), Duration::ZERO));
    let agent = Agent::new(&paths, &[0, 1, 2], mode, Arc::clone(strategy), vec![manager]);
    agent.with_classes(classes.iter().map(|&mode| strategy.allocator(mode)).collect())
}

fn subflow(token: u32, path: u8) -> Subflow {
    let local = SocketAddr::from(([10, 0, path, 2], 40_000 + token as u16));
    let remote = SocketAddr::from(([10, 9, 0, 1], 443));
    Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false }
}

fn connect(agent: &mut Agent, at: Instant, token: u32, class: u8) {
    let event = mptcp::Event::Established { token: Token(token), subflow: subflow(token, 0), server_side: false };
    agent.handle(at, Event::Mptcp(event).into());
    agent.handle(at, Event::Class(Token(token), ConnectionClass(class)).into());
}

fn inputs() -> impl proptest::strategy::Strategy<Value = Vec<(u64, Input)>> {
    let link = (0..PATHS, any::<bool>())
        .prop_map(|(path, up)| Input::Sample(Sample { path: PathId(path), kind: SampleKind::Link { up } }));
    let signal = (0..PATHS, -100.0f32..-60.0).prop_map(|(path, rssi_dbm)| {
        let signal = Signal { rssi_dbm, ..Signal::default() };
        Input::Sample(Sample { path: PathId(path), kind: SampleKind::Signal(signal) })
    });
    let load = (0..PATHS, 0u32..40, 0u32..2, 1u64..300).prop_map(|(path, unacked, full, rtt_ms)| {
        let (rtt, notsent_bytes) = (Duration::from_millis(rtt_ms), full * 100_000);
        let transport = Transport { rtt, unacked, notsent_bytes, cwnd: 10, ..Transport::IDLE };
        Input::Sample(Sample { path: PathId(path), kind: SampleKind::Transport(transport) })
    });
    let preferred = prop::option::of(0..PATHS)
        .prop_map(|path| Input::Prefer(path.map(|path| Preferred { path: PathId(path), until: None })));
    let volume = (0..PATHS, prop::sample::select(vec![Volume::Available, Volume::Scarce, Volume::Exhausted]))
        .prop_map(|(path, volume)| Input::Volume(PathId(path), volume, Reason::default()));
    let removed = (0..PATHS).prop_map(|path| Input::RemovePath(PathId(path)));
    let any = prop_oneof![6 => link, 12 => signal, 8 => load, 2 => preferred, 2 => volume, 1 => removed];
    prop::collection::vec((0u64..800, any), 1..60)
}

/// What an agent reports of one class; of the default one also what it believes.
fn reports(agent: &mut Agent, inputs: &[(u64, Input)], class: u8) -> Vec<(Instant, Output)> {
    let (mut now, mut reports) = (Instant::ZERO, Vec::new());
    for (wait_ms, input) in inputs {
        now = now + Duration::from_millis(*wait_ms);
        agent.handle(now, input.clone());
        while let Some(output) = agent.poll(now) {
            reports.extend(of_class(output, class).map(|output| (now, output)));
        }
    }
    reports
}

/// A decision of the class as that of the default one.
fn of_class(output: Output, class: u8) -> Option<Output> {
    match output {
        Output::ClassDecision { class: of, path, state, was, reason } => {
            (of == ConnectionClass(class)).then_some(Output::Decision { path, state, was, reason })
        }
        Output::Command(_) => None,
        other => (class == 0).then_some(other),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn each_class_decides_as_if_it_were_the_only_one(inputs in inputs(), adapts in any::<bool>()) {
        let strategy: Arc<dyn Strategy> =
            if adapts { Arc::new(adaptive::Params::default()) } else { Arc::new(threshold::Params::default()) };
        let modes = [Mode::Aggregate, Mode::Backup, Mode::CostFirst];
        let default = Mode::CostFirst;
        let alone = reports(&mut agent(&strategy, default, &[]), &inputs, 0);
        prop_assert_eq!(&alone, &reports(&mut agent(&strategy, default, &modes), &inputs, 0));
        for (place, mode) in modes.into_iter().enumerate() {
            let is_decision = |report: &(Instant, Output)| matches!(report.1, Output::Decision { .. });
            let mut alone = reports(&mut agent(&strategy, mode, &[]), &inputs, 0);
            alone.retain(is_decision);
            let class = (place + 1) as u8;
            prop_assert_eq!(&alone, &reports(&mut agent(&strategy, default, &modes), &inputs, class), "{:?}", mode);
        }
    }
}

/// The commands that are due: connection, path and whether as a backup.
fn due(agent: &mut Agent, at: Instant) -> Vec<(u32, u8, bool)> {
    let of = |output| match output {
        Output::Command(Command::Mptcp(path, mptcp::Command::CreateSubflow { token, backup, .. })) => {
            Some((token.0, path.0, backup))
        }
        Output::Command(Command::Mptcp(path, mptcp::Command::SetBackup { token, backup, .. })) => {
            Some((token.0, path.0, backup))
        }
        _ => None,
    };
    let mut due: Vec<_> = std::iter::from_fn(|| agent.poll(at)).filter_map(of).collect();
    due.sort_unstable();
    due
}

#[test]
fn each_connection_has_the_subflows_of_its_class_and_a_change_moves_each_as_its_mode_says() {
    let strategy: Arc<dyn Strategy> = Arc::new(threshold::Params::default());
    let mut agent = agent(&strategy, Mode::Aggregate, &[Mode::Backup]);
    let at = Instant::from_millis;
    let link = |agent: &mut Agent, ms, path, up| {
        agent.handle(at(ms), Sample { path: PathId(path), kind: SampleKind::Link { up } }.into());
    };
    let signal = |agent: &mut Agent, ms, rssi_dbm| {
        let signal = Signal { rssi_dbm, ..Signal::default() };
        agent.handle(at(ms), Sample { path: PathId(0), kind: SampleKind::Signal(signal) }.into());
    };
    link(&mut agent, 0, 1, true);
    link(&mut agent, 0, 0, true);
    (0..40).for_each(|tenth| signal(&mut agent, tenth * 100, -60.0));
    connect(&mut agent, at(4000), 1, 0);
    connect(&mut agent, at(4000), 2, 1);
    assert_eq!(due(&mut agent, at(4000)), [(1, 1, false), (2, 1, true)]);
    for token in [1, 2] {
        let subflow = Subflow { local_id: AddressId(1), backup: token == 2, ..subflow(token, 1) };
        agent.handle(at(4100), Event::Mptcp(mptcp::Event::SubflowEstablished { token: Token(token), subflow }).into());
    }
    (41..80).for_each(|tenth| signal(&mut agent, tenth * 100, -95.0));
    let moved: Vec<_> = (0..20).flat_map(|tenth| due(&mut agent, at(8000 + tenth * 100))).collect();
    assert_eq!(moved.iter().filter(|(token, ..)| *token == 2).collect::<Vec<_>>(), [&(2, 0, true), &(2, 1, false)]);
    assert_eq!(moved.iter().filter(|(token, ..)| *token == 1).collect::<Vec<_>>(), [&(1, 0, true)]);
}

#[test]
fn the_history_of_a_connection_has_the_reasons_of_its_class() {
    let strategy: Arc<dyn Strategy> = Arc::new(threshold::Params::default());
    let mut agent = agent(&strategy, Mode::Aggregate, &[Mode::Aggregate]);
    let at = Instant::from_millis;
    let link = |agent: &mut Agent, ms, path, up| {
        agent.handle(at(ms), Sample { path: PathId(path), kind: SampleKind::Link { up } }.into());
    };
    (1..3).for_each(|path| link(&mut agent, 0, path, true));
    for (token, class) in [(1, 0), (2, 1)] {
        let event = mptcp::Event::Established { token: Token(token), subflow: subflow(token, 1), server_side: false };
        agent.handle(at(10), Event::Mptcp(event).into());
        agent.handle(at(10), Event::Class(Token(token), ConnectionClass(class)).into());
        let other = Subflow { local_id: AddressId(1), ..subflow(token, 2) };
        let event = mptcp::Event::SubflowEstablished { token: Token(token), subflow: other };
        agent.handle(at(11), Event::Mptcp(event).into());
    }
    due(&mut agent, at(500));
    link(&mut agent, 1000, 2, false);
    due(&mut agent, at(2000));
    for token in [1, 2] {
        let last = agent.history(Token(token)).pop().unwrap();
        let expected = (Some(PathId(2)), ConnectionEvent::Closed(CloseCause::Unwanted));
        assert_eq!((last.path, last.what), expected, "connection {token}");
        assert_eq!(last.reason.as_deref(), Some("the interface went down"), "connection {token}");
    }
}
