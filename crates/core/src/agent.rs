//! The engine that an agent runs: samples in, MPTCP commands out.
//!
//! sample → assessors of its path → belief → allocator → wanted states → path manager →
//! commands. Data flows in one direction. The result of a command returns as an event
//! of the kernel or as a sample.

use crate::path::{PathId, PathSpec, PathState, Sample, SampleKind};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::allocate::{Allocator, Mode, PathInput, PathSupply};
use crate::assess::arrivals::Arrivals;
use crate::assess::{Alarm, Assessor, Belief, Reason, StalledSubflow};
use crate::demand::{Admission, Demand};
use crate::engine::Engine;
use crate::mptcp::manager::Manager;
use crate::mptcp::{Command, ConnectionSnapshot, Event, Notice, Refusal, Token};
use crate::strategy::Strategy;
use crate::time::{Duration, Instant};

/// Inputs of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An observation.
    Sample(Sample),
    /// Objects with deadlines, for strategies that use them.
    Demand(Demand),
    /// An event of the kernel.
    Mptcp(Event),
    /// The list of all connections, after a start or after events were lost.
    Resync(Vec<ConnectionSnapshot>),
    /// The kernel refused a command, for this reason.
    Refused(Command, Refusal),
    /// The address of a path changed or was removed.
    Address {
        /// The path.
        path: PathId,
        /// Local address on it.
        local: Option<IpAddr>,
        /// Index of its interface.
        if_index: u32,
    },
    /// An address that a path had before the agent started; subflows from it may
    /// remain.
    FormerAddress {
        /// The path.
        path: PathId,
        /// The address.
        local: IpAddr,
    },
}

impl From<Sample> for Input {
    fn from(sample: Sample) -> Input {
        Input::Sample(sample)
    }
}

/// Outputs of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A command to execute.
    Command {
        /// The path.
        path: PathId,
        /// The command.
        command: Command,
    },
    /// The belief about a path changed.
    Belief {
        /// The path.
        path: PathId,
        /// The new belief.
        belief: Belief,
        /// The reason.
        reason: Reason,
    },
    /// The wanted state of a path changed.
    Decision {
        /// The path.
        path: PathId,
        /// The new state.
        state: PathState,
        /// The previous state.
        was: PathState,
        /// The reason.
        reason: Reason,
    },
    /// A notice of the path manager to the user.
    Notice(Notice),
    /// The prediction whether an object meets its deadline.
    Admission(Admission),
    /// An alarm of sudden loss, raised or settled.
    Alarm {
        /// The path.
        path: PathId,
        /// The alarm.
        alarm: Alarm,
    },
}

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The paths (at most 16).
    pub paths: Vec<PathSpec>,
    /// Rank of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// How the paths are used together.
    pub mode: Mode,
    /// How long two subflows carry data together before one is demoted.
    pub overlap: Duration,
    /// The strategy.
    pub strategy: Arc<dyn Strategy>,
}

/// The engine.
pub struct Agent {
    paths: Vec<Path>,
    allocator: Box<dyn Allocator + Send>,
    manager: Manager,
    arrivals: Arrivals,
    outputs: VecDeque<Output>,
}

struct Path {
    name: String,
    rank: u8,
    assessors: Vec<Box<dyn Assessor + Send>>,
    belief: Belief,
    reason: Reason,
    state: PathState,
}

impl Agent {
    /// An agent without connections and samples.
    pub fn new(setup: Setup) -> Agent {
        let assessors = setup.paths.iter().map(|spec| setup.strategy.assessors(spec)).collect();
        let allocator = setup.strategy.allocator(setup.mode);
        Agent::of(setup.paths, &setup.ranks, setup.overlap, assessors, allocator)
    }

    /// An agent from its parts, with the assessors of each path. [`Setup`] describes
    /// `paths`, `ranks` and `overlap`.
    pub fn of(
        paths: Vec<PathSpec>,
        ranks: &[u8],
        overlap: Duration,
        assessors: Vec<Vec<Box<dyn Assessor + Send>>>,
        allocator: Box<dyn Allocator + Send>,
    ) -> Agent {
        let known = paths.iter().zip(ranks).zip(assessors).map(|((spec, &rank), assessors)| Path {
            name: spec.name.clone(),
            rank,
            assessors,
            belief: Belief::Unknown,
            reason: Reason::default(),
            state: PathState::Closed,
        });
        Agent {
            paths: known.collect(),
            allocator,
            manager: Manager::new(paths, overlap),
            arrivals: Arrivals::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Excludes connections from these addresses, e.g. those inside a tunnel.
    pub fn leave_alone(&mut self, addresses: Vec<IpAddr>) {
        self.manager.leave_alone(addresses);
    }

    /// The path manager, for queries.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Name, belief and wanted state of each path.
    pub fn paths(&self) -> impl Iterator<Item = (&str, Belief, PathState)> {
        self.paths.iter().map(|path| (path.name.as_str(), path.belief, path.state))
    }

    /// Maximum number of bytes that a sender should have written and not acknowledged;
    /// `None`: only its send buffer limits it.
    pub fn backlog_bytes(&self) -> Option<u64> {
        self.allocator.backlog_bytes()
    }

    fn observe(&mut self, now: Instant, sample: &Sample) {
        if let SampleKind::Transport(transport) = &sample.kind
            && let Some(broken) = self.arrivals.observe(now, sample.path, transport)
        {
            self.assess_sample(now, &Sample { path: broken.path, kind: SampleKind::Break(broken) });
        }
        self.assess_sample(now, sample);
    }

    fn assess_sample(&mut self, now: Instant, sample: &Sample) {
        let Some(path) = self.paths.get_mut(usize::from(sample.path.0)) else {
            return;
        };
        for assessor in &mut path.assessors {
            assessor.advance(now);
            assessor.observe(now, sample);
        }
    }

    /// A subflow over a path of unknown belief sets the path's state, so that an agent
    /// that starts in the middle of a connection adopts it.
    fn adopt(&mut self, now: Instant, snapshots: &[ConnectionSnapshot]) {
        for subflow in snapshots.iter().flat_map(|connection| &connection.subflows) {
            let Some(id) = self.manager.path_of(subflow.local.ip()) else { continue };
            let Some(path) = self.paths.get_mut(usize::from(id.0)) else { continue };
            let (was, found) = (path.state, if subflow.backup { PathState::Backup } else { PathState::Active });
            if path.belief == Belief::Unknown && was < found {
                path.state = found;
                let text = "a subflow exists on it".into();
                let reason = Reason { rule: "resync", text, ..Reason::default() };
                self.outputs.push_back(Output::Decision { path: id, state: found, was, reason });
            }
        }
        let states: Vec<PathState> = self.paths.iter().map(|path| path.state).collect();
        self.manager.set_wanted(now, &states);
    }

    fn assess(&mut self, now: Instant) {
        let mut changed = None;
        for (place, path) in self.paths.iter_mut().enumerate() {
            let id = PathId(place as u8);
            for assessor in &mut path.assessors {
                assessor.advance(now);
                while let Some(alarm) = assessor.poll_alarm() {
                    self.outputs.push_back(Output::Alarm { path: id, alarm });
                }
                while let Some(StalledSubflow { token, peer }) = assessor.poll_stalled() {
                    self.manager.abandon(now, Token(token), id, peer);
                }
            }
            let Some((belief, reason)) = path.assessors.iter().map(|a| a.belief()).max_by_key(|(belief, _)| *belief)
            else {
                continue;
            };
            if belief != path.belief {
                path.belief = belief;
                path.reason = reason.clone();
                self.outputs.push_back(Output::Belief { path: id, belief, reason: reason.clone() });
                changed = Some(place);
            }
        }
        if let Some(changed) = changed {
            self.allocate(now, |agent, place| agent.reason_for(place, changed));
        }
    }

    fn assessors_wakeup(&self) -> Option<Instant> {
        let assessors = self.paths.iter().flat_map(|path| &path.assessors);
        assessors.filter_map(|assessor| assessor.next_wakeup()).min()
    }

    fn on_demand(&mut self, now: Instant, demand: &Demand) {
        let paths: Vec<PathSupply> = self.paths.iter().map(Path::supply).collect();
        let reason = self.allocator.on_demand(now, demand, &paths);
        while let Some(admission) = self.allocator.poll_admission() {
            self.outputs.push_back(Output::Admission(admission));
        }
        if let Some(reason) = reason {
            self.allocate(now, |_, _| reason.clone());
        }
    }

    fn allocate(&mut self, now: Instant, why: impl Fn(&Agent, usize) -> Reason) {
        let inputs: Vec<PathInput> = self.paths.iter().map(Path::input).collect();
        let is_lost = |path: &Path| matches!(path.belief, Belief::Lost | Belief::Stalled);
        self.manager.set_lost(self.paths.iter().map(is_lost).collect());
        let states = self.allocator.allocate(&inputs);
        for (place, &state) in states.iter().enumerate() {
            let was = self.paths[place].state;
            if was != state {
                let reason = why(self, place);
                self.outputs.push_back(Output::Decision { path: PathId(place as u8), state, was, reason });
                self.paths[place].state = state;
            }
        }
        self.manager.set_wanted(now, &states);
    }

    /// The reason for a state: the belief about the path itself, or about the path that
    /// changed.
    fn reason_for(&self, place: usize, changed: usize) -> Reason {
        let cause = &self.paths[changed];
        let mut reason = cause.reason.clone();
        if place != changed {
            reason.text = format!("{} is {}: {}", cause.name, cause.belief.name(), reason.text);
        }
        reason
    }
}

impl Path {
    fn input(&self) -> PathInput {
        PathInput { belief: self.belief, was: self.state, rank: self.rank }
    }

    fn supply(&self) -> PathSupply<'_> {
        PathSupply { input: self.input(), history: self.assessors.iter().find_map(|assessor| assessor.history()) }
    }
}

impl Engine for Agent {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Sample(sample) => {
                self.observe(now, &sample);
                self.assess(now);
            }
            Input::Demand(demand) => self.on_demand(now, &demand),
            Input::Mptcp(event) => self.manager.handle(now, &event),
            Input::Resync(snapshots) => {
                self.adopt(now, &snapshots);
                self.manager.resync(now, &snapshots);
            }
            Input::Refused(command, why) => self.manager.refused(now, &command, why),
            Input::Address { path, local, if_index } => self.manager.set_address(now, path, local, if_index),
            Input::FormerAddress { path, local } => self.manager.add_former_address(path, local),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.outputs.is_empty() {
            if self.assessors_wakeup().is_some_and(|at| now >= at) {
                self.assess(now);
            }
            if self.outputs.is_empty() {
                let command = self.manager.poll(now).map(|(path, command)| Output::Command { path, command });
                self.outputs.extend(command);
            }
            while let Some(notice) = self.manager.poll_notice() {
                self.outputs.push_back(Output::Notice(notice));
            }
        }
        self.outputs.pop_front()
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.assessors_wakeup().into_iter().chain(self.manager.next_wakeup()).min()
    }
}
