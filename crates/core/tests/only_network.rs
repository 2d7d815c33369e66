//! Roadside units as the only network: a delay at a good signal is no reason to leave one, and one that is removed carries no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::agent::{Agent, Input};
use crosslane_core::allocate::Mode;
use crosslane_core::assess::{Assessor, Belief};
use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathSpec, PathState, Rat, Sample, SampleKind, Signal, Transport};
use crosslane_core::reason::Reason;
use crosslane_core::strategy::{Strategy, adaptive};
use crosslane_core::time::Instant;
use crosslane_core::volume::Volume;

const LTE: PathId = PathId(0);
const UNIT: PathId = PathId(1);

/// What is believed of the unit when a byte has been waiting for 60 ms, after 5 s of messages in time. Another unit over the
/// same radio is received as well. `change` changes what the agent knows of the cellular path, which is up.
fn after_a_delay(change: impl Fn(&mut Agent)) -> Belief {
    let spec = |name: &str, rat, radio| PathSpec { name: name.into(), rat, local: None, if_index: 1, radio };
    let unit = |name| spec(name, Rat::Ieee80211p, Some(0));
    let paths = [spec("lte", Rat::Lte, None), unit("rsu1"), unit("rsu2")];
    let strategy = Arc::new(adaptive::Params::default());
    let mut agent = Agent::new(&paths, &[1, 0, 0], Mode::Backup, strategy, Vec::new());
    let mut now = Instant::ZERO;
    let observe = |agent: &mut Agent, now, path, kind| agent.handle(now, Sample { path, kind }.into());
    (0..3).for_each(|path| observe(&mut agent, now, PathId(path), SampleKind::Link { up: true }));
    change(&mut agent);
    let rtt = Duration::from_millis(10);
    let peer = SocketAddr::from(([10, 9, 0, 1], 443));
    let mut transport = Transport { token: 1, peer, rtt, rttvar: Duration::from_millis(40), ..Transport::IDLE };
    for step in 0..506_u32 {
        now = now + Duration::from_millis(10);
        if step % 10 == 0 {
            for path in [1, 2] {
                let signal = Signal { rssi_dbm: -60.0, ..Signal::default() };
                observe(&mut agent, now, PathId(path), SampleKind::Signal(signal));
            }
        }
        if step < 500 {
            (transport.delivered, transport.bytes_acked) = (step / 2, u64::from(step / 2) * 500);
        }
        transport.unacked = step.saturating_sub(500).min(1);
        observe(&mut agent, now, UNIT, SampleKind::Transport(transport));
    }
    let belief = agent.views().nth(usize::from(UNIT.0)).map(|view| view.belief);
    belief.expect("the unit is a path")
}

#[test]
fn a_delay_at_a_good_signal_counts_while_a_path_beyond_the_radio_can_carry() {
    let link = |up| {
        move |agent: &mut Agent| agent.handle(Instant::ZERO, Sample { path: LTE, kind: SampleKind::Link { up } }.into())
    };
    assert_eq!(after_a_delay(|_| ()), Belief::Stalled);
    assert_eq!(after_a_delay(link(false)), Belief::Good, "its interface is down");
    assert_eq!(after_a_delay(link(true)), Belief::Stalled, "the other unit is no other network");
    let used_up = Reason::plain("volume.exhausted", "nothing is left");
    let exhausted =
        |agent: &mut Agent| agent.handle(Instant::ZERO, Input::Volume(LTE, Volume::Exhausted, used_up.clone()));
    assert_eq!(after_a_delay(exhausted), Belief::Good, "its volume is used up");
    assert_eq!(
        after_a_delay(|agent| agent.handle(Instant::ZERO, Input::RemovePath(LTE))),
        Belief::Good,
        "it is removed"
    );
}

/// Takes a path with a signal below −70 dBm for stalled.
#[derive(Default)]
struct BySignal(Belief, Reason);

impl Assessor for BySignal {
    fn observe(&mut self, _: Instant, sample: &Sample) {
        if let SampleKind::Signal(signal) = sample.kind {
            self.0 = if signal.rssi_dbm < -70.0 { Belief::Stalled } else { Belief::Good };
        }
    }

    fn advance(&mut self, _: Instant) {}

    fn belief(&self) -> (Belief, &Reason) {
        (self.0, &self.1)
    }
}

#[test]
fn a_unit_for_which_data_waits_carries_when_the_good_one_is_removed() {
    let units = ["rsu1", "rsu2"].map(|name| PathSpec {
        name: name.into(),
        rat: Rat::Ieee80211p,
        local: None,
        if_index: 1,
        radio: Some(0),
    });
    let allocator = adaptive::Params::default().allocator(Mode::Backup);
    let assessors = Box::new(|_, _: &PathSpec| vec![Box::new(BySignal::default()) as Box<dyn Assessor + Send>]);
    let mut agent = Agent::of(&units, &[0, 0], assessors, allocator, Vec::new());
    for (path, rssi_dbm) in [(0, -50.0), (1, -80.0)] {
        let signal = SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() });
        agent.handle(Instant::from_millis(10), Sample { path: PathId(path), kind: signal }.into());
    }
    let states = |agent: &Agent| -> Vec<PathState> { agent.views().map(|view| view.state).collect() };
    assert_eq!(states(&agent)[0], PathState::Active);
    agent.handle(Instant::from_millis(20), Input::RemovePath(PathId(0)));
    agent.handle(Instant::from_millis(30), Sample { path: PathId(1), kind: SampleKind::Link { up: true } }.into());
    assert_eq!(states(&agent).last(), Some(&PathState::Active));
}
