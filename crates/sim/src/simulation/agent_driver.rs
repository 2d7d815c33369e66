//! An agent, and which of its paths is which path of the scenario. They differ only where
//! roadside units take turns in slots.

use crosslane_core::actuator::{Command, Steering};
use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::learned::trial::Trial;
use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathSpec, Sample, SampleKind};
use crosslane_core::time::Instant;

/// An agent, and its state at the last poll.
pub(super) struct AgentDriver {
    pub(super) agent: Box<Agent>,
    pub(super) due: Option<Instant>,
    pub(super) queries_subflows: bool,
    /// When the subflows were last queried, and when the agent wants that again before the regular time.
    queried: Instant,
    pub(super) query_at: Option<Instant>,
    /// All paths of the scenario, with the rank of each.
    specs: Vec<(PathSpec, u8)>,
    /// The path of the agent for each path of the scenario, if it has one.
    agent_paths: Vec<Option<PathId>>,
    /// The path of the scenario for each path of the agent, the present or the last one.
    scenario_paths: Vec<PathId>,
}

impl AgentDriver {
    /// An agent that starts with these paths of the scenario, their interfaces up.
    pub(super) fn new(agent: Agent, specs: Vec<(PathSpec, u8)>, first: Vec<PathId>) -> AgentDriver {
        let mut agent_paths = vec![None; specs.len()];
        for (id, path) in first.iter().enumerate() {
            agent_paths[usize::from(path.0)] = Some(PathId(id as u8));
        }
        let count = first.len();
        let (agent, scenario_paths) = (Box::new(agent), first);
        let mut driver = AgentDriver {
            agent,
            due: None,
            queries_subflows: false,
            queried: Instant::ZERO,
            query_at: None,
            specs,
            agent_paths,
            scenario_paths,
        };
        for path in (0..count).map(|id| PathId(id as u8)) {
            driver.handle(Instant::ZERO, Input::Sample(Sample { path, kind: SampleKind::Link { up: true } }));
        }
        driver
    }

    /// Passes an input to the agent, and schedules a poll now.
    pub(super) fn handle(&mut self, now: Instant, input: Input) {
        self.agent.handle(now, input);
        self.due = Some(now);
    }

    /// Notes when the agent is to be called next, and when its subflows are to be queried.
    pub(super) fn schedule(&mut self) {
        self.due = self.agent.next_wakeup();
        self.queries_subflows = self.agent.subflows().next().is_some();
        self.query_at = self.agent.query_at(self.queried);
    }

    /// The subflows are queried now.
    pub(super) fn on_query(&mut self, now: Instant) {
        (self.queried, self.query_at) = (now, None);
    }

    /// Passes an observation of a path of the scenario, if the agent has that path.
    pub(super) fn observe(&mut self, now: Instant, path: PathId, kind: SampleKind) {
        if let Some(path) = self.of_agent(path) {
            self.handle(now, Sample { path, kind }.into());
        }
    }

    /// The agent's path for a path of the scenario, if it has one.
    pub(super) fn of_agent(&self, path: PathId) -> Option<PathId> {
        self.agent_paths.get(usize::from(path.0)).copied().flatten()
    }

    /// Adds a path of the scenario; returns the agent's path, if there is room.
    pub(super) fn add(&mut self, now: Instant, path: PathId) -> Option<PathId> {
        let (spec, rank) = self.specs.get(usize::from(path.0))?.clone();
        let id = self.agent.vacant()?;
        self.agent_paths[usize::from(path.0)] = Some(id);
        match self.scenario_paths.get_mut(usize::from(id.0)) {
            Some(former) => *former = path,
            None => self.scenario_paths.push(path),
        }
        self.handle(now, Input::AddPath(spec, rank));
        Some(id)
    }

    /// Removes a path of the agent.
    pub(super) fn remove(&mut self, now: Instant, id: PathId) {
        if let Some(path) = self.scenario_paths.get(usize::from(id.0)) {
            self.agent_paths[usize::from(path.0)] = None;
        }
        self.handle(now, Input::RemovePath(id));
    }

    /// The path of the scenario for a path of the agent.
    pub(super) fn of_scenario(&self, path: PathId) -> PathId {
        self.scenario_paths.get(usize::from(path.0)).copied().unwrap_or(path)
    }

    /// An output, with the paths of the scenario.
    pub(super) fn in_scenario(&self, output: Output) -> Output {
        let of = |path: PathId| self.of_scenario(path);
        match output {
            Output::Belief { path, belief, reason } => Output::Belief { path: of(path), belief, reason },
            Output::Decision { path, state, was, reason } => Output::Decision { path: of(path), state, was, reason },
            Output::ClassDecision { class, path, state, was, reason } => {
                Output::ClassDecision { class, path: of(path), state, was, reason }
            }
            Output::Alarm { path, alarm } => Output::Alarm { path: of(path), alarm },
            Output::Command(Command::Mptcp(path, command)) => Output::Command(Command::Mptcp(of(path), command)),
            Output::Command(Command::Steer(steering)) => {
                let order = steering.order.map(|path| Some(of(*path)));
                Output::Command(Command::Steer(Steering { order, ..steering }))
            }
            Output::Order { order, reason } => Output::Order { order: order.map(|path| Some(of(*path))), reason },
            Output::Echo(path, number) => Output::Echo(of(path), number),
            Output::EchoUnanswered { path, reason } => Output::EchoUnanswered { path: of(path), reason },
            Output::Trial(trial) => Output::Trial(Trial { paths: trial.paths.map(of), ..trial }),
            Output::Command(Command::Endpoint(_)) | Output::Notice(_) | Output::Admission(_) => output,
        }
    }
}
