//! Mode `cost-first` through the agent: every strategy that has the mode spills and returns.

use std::sync::Arc;
use std::time::Duration;

use crosslane_core::agent::{Agent, Input, Preferred};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathSpec, PathState, Rat, Sample, SampleKind, Transport};
use crosslane_core::strategy::{CATALOG, Strategy, threshold};
use crosslane_core::time::Instant;

use PathState::{Active, Backup};

const CHEAP: PathId = PathId(0);
const EXPENSIVE: PathId = PathId(1);
const HAVE_IT: [&str; 4] = ["hapanchak", "threshold", "adaptive", "torrinhas"];

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Two cellular paths that are good.
fn agent(strategy: Arc<dyn Strategy>) -> Agent {
    let spec = |name: &str| PathSpec { name: name.into(), rat: Rat::Lte, local: None, if_index: 0, radio: None };
    let paths = [spec("cheap"), spec("expensive")];
    let mut agent = Agent::new(&paths, &[0, 1], Mode::CostFirst, strategy, Vec::new());
    for path in [CHEAP, EXPENSIVE] {
        agent.handle(at(0), Sample { path, kind: SampleKind::Link { up: true } }.into());
    }
    agent
}

fn states(agent: &Agent) -> [PathState; 2] {
    let states: Vec<PathState> = agent.views().map(|view| view.state).collect();
    states.try_into().expect("two paths")
}

/// A sample every 10 ms of a subflow over the cheap path that delivers all it has, with a full
/// window or not.
fn send(agent: &mut Agent, from_ms: u64, until_ms: u64, unacked: u32) {
    for ms in (from_ms..until_ms).step_by(10) {
        let delivered = ms as u32;
        let transport = Transport {
            token: 1,
            peer: Transport::NO_PEER,
            accepted: false,
            backup: false,
            rtt: Duration::from_millis(20),
            rttvar: Duration::from_millis(2),
            unacked,
            delivered,
            bytes_acked: u64::from(delivered) * 1000,
            notsent_bytes: 0,
            bytes_received: 0,
            segments_received: 0,
            out_of_order: 0,
            receive_rtt: None,
            lost: 0,
            sacked: 0,
            retransmitted: 0,
            cwnd: 10,
            min_rtt: Some(Duration::from_millis(20)),
            delivery_bit_s: None,
        };
        agent.handle(at(ms), Sample { path: CHEAP, kind: SampleKind::Transport(transport) }.into());
        while agent.poll(at(ms)).is_some() {}
    }
}

fn rule(agent: &Agent) -> &'static str {
    agent.views().nth(1).expect("two paths").state_reason.rule
}

#[test]
fn every_strategy_that_has_the_mode_spills_while_the_cheap_path_is_full_and_returns_after_it() {
    for entry in CATALOG.iter().filter(|entry| entry.lacks(Mode::CostFirst).is_none()) {
        let strategy = entry.read(Default::default()).expect("defaults");
        let mut agent = agent(strategy);
        send(&mut agent, 10, 1000, 5);
        assert_eq!(states(&agent), [Active, Backup], "{entry:?}");
        send(&mut agent, 1000, 2000, 10);
        assert_eq!((states(&agent), rule(&agent)), ([Active, Active], "cost-first.spill"), "{entry:?}");
        send(&mut agent, 2000, 3900, 5);
        assert_eq!(states(&agent), [Active, Active], "{entry:?}");
        send(&mut agent, 3900, 4000, 5);
        assert_eq!((states(&agent), rule(&agent)), ([Active, Backup], "cost-first.return"), "{entry:?}");
    }
}

#[test]
fn without_a_sample_the_path_returns_when_the_hold_time_is_over() {
    let mut agent = agent(Arc::new(threshold::Params::default()));
    send(&mut agent, 10, 1000, 10);
    assert_eq!(states(&agent), [Active, Active]);
    // Nothing is in flight any more.
    send(&mut agent, 1000, 1010, 0);
    while let Some(due) = agent.next_wakeup().filter(|due| *due < at(2990)) {
        while agent.poll(due).is_some() {}
    }
    assert_eq!((states(&agent), agent.next_wakeup()), ([Active, Active], Some(at(990) + Duration::from_secs(2))));
    while agent.poll(at(2990)).is_some() {}
    assert_eq!(states(&agent), [Active, Backup]);
}

#[test]
fn a_path_that_the_user_prefers_carries_alone_though_it_is_full() {
    let mut agent = agent(Arc::new(threshold::Params::default()));
    agent.handle(at(1), Input::Prefer(Some(Preferred { path: CHEAP, until: None })));
    send(&mut agent, 10, 1000, 10);
    assert_eq!(states(&agent), [Active, Backup]);
}

#[test]
fn strategies_that_order_the_paths_themselves_lack_the_mode() {
    let have_it: Vec<&str> =
        CATALOG.iter().filter(|entry| entry.lacks(Mode::CostFirst).is_none()).map(|entry| entry.name).collect();
    assert_eq!(have_it, HAVE_IT);
    assert!(CATALOG.iter().all(|entry| entry.lacks(Mode::Backup).is_none()));
}

#[test]
fn a_mode_is_found_by_its_name_and_redundant_is_the_tunnel_s() {
    for mode in Mode::ALL {
        assert_eq!(mode.name().parse(), Ok(mode));
    }
    assert_eq!("handover".parse(), Ok(Mode::Backup));
    assert_eq!(
        "cost".parse::<Mode>(),
        Err("unknown variant `cost`, expected one of `aggregate`, `backup`, `cost-first`, `interactive`".into())
    );
    assert!("redundant".parse::<Mode>().is_err_and(|error| error.contains("a mode of the tunnel")));
}
