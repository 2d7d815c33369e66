//! A strategy outside the crate, through the agent: what a new file in `core/src/strategy/` holds.
//! In the crate it needs one more line, its entry in `strategy::CATALOG`.

use std::sync::Arc;

use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::{Allocator, Mode, by_belief::ByBelief};
use crosslane_core::assess::{Assessor, Belief};
use crosslane_core::engine::Engine;
use crosslane_core::parameters::{Table, Value, list};
use crosslane_core::path::{OnFade, PathId, PathSpec, PathState, Rat, Sample, SampleKind, Signal};
use crosslane_core::reason::Reason;
use crosslane_core::strategy::{Entry, Strategy};
use crosslane_core::time::Instant;

const ENTRY: Entry = Entry::new::<Params>("last-sample", "the last sample against a threshold");

crosslane_core::parameters! {
    /// Parameters of the strategy.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Signal at which a path is left.
        threshold_dbm: f64 = -80.0, "dBm", -120.0 to 0.0;
    }
}

impl Strategy for Params {
    fn assessors(&self, _: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        vec![Box::new(LastSample {
            threshold_dbm: self.threshold_dbm,
            belief: Belief::Unknown,
            reason: Reason::default(),
        })]
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        Box::new(ByBelief::new(mode, OnFade::Backup))
    }
}

struct LastSample {
    threshold_dbm: f64,
    belief: Belief,
    reason: Reason,
}

impl Assessor for LastSample {
    fn observe(&mut self, _: Instant, sample: &Sample) {
        if let SampleKind::Signal(Signal { rssi_dbm, .. }) = sample.kind {
            self.belief = if f64::from(rssi_dbm) > self.threshold_dbm { Belief::Good } else { Belief::Fading };
            self.reason = Reason::plain("last-sample", format!("{rssi_dbm} dBm"));
        }
    }

    fn advance(&mut self, _: Instant) {}

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }
}

fn agent(strategy: Arc<dyn Strategy>) -> Agent {
    let path = |name: &str| PathSpec { name: name.into(), rat: Rat::Lte, local: None, if_index: 0, radio: None };
    Agent::new(&[path("a"), path("b")], &[0, 1], Mode::Aggregate, strategy, Vec::new())
}

#[test]
fn a_strategy_is_one_file() {
    let described: Vec<String> = list::<Params>().into_iter().map(|parameter| parameter.name).collect();
    assert_eq!(
        (ENTRY.name, &*described, ENTRY.needs_deadlines()),
        ("last-sample", &["threshold_dbm".into()][..], false)
    );
    let parameters = Table::from([("threshold_dbm".into(), Value::Number(-70.0))]);
    let mut agent = agent(ENTRY.read(parameters).expect("valid parameters"));
    let mut states = Vec::new();
    for (path, rssi_dbm) in [(0, -60.0), (1, -60.0), (0, -75.0)] {
        let kind = SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() });
        agent.handle(Instant::ZERO, Input::Sample(Sample { path: PathId(path), kind }));
        while let Some(output) = agent.poll(Instant::ZERO) {
            if let Output::Decision { path, state, reason, .. } = output {
                states.push((path.0, state, reason.rule));
            }
        }
    }
    let expected = [(0, PathState::Active), (1, PathState::Active), (0, PathState::Backup)];
    assert_eq!(states, expected.map(|(path, state)| (path, state, "last-sample")));
    assert!(ENTRY.read(Table::from([("threshold_dbm".into(), Value::Number(5.0))])).is_err());
}
