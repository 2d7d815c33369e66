//! The engine that an agent runs: samples in, MPTCP commands out.
//!
//! sample → assessors of its path → belief → allocator → wanted states → path
//! manager → commands. Nothing flows backwards. What came of a command returns
//! as an event of the kernel or as a sample.

use crate::path::{PathId, PathSpec, PathState, Sample, SampleKind};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::allocate::{Allocator, Mode, PathInput, PathSupply};
use crate::assess::arrivals::Arrivals;
use crate::assess::{Alarm, Assessor, Belief, Reason, Stuck};
use crate::demand::{Admission, Demand};
use crate::engine::Engine;
use crate::mptcp::manager::Manager;
use crate::mptcp::{Command, ConnectionSnapshot, Event, Notice, Refusal, Token};
use crate::strategy::Strategy;
use crate::time::{Duration, Instant};

/// What an agent is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An observation.
    Sample(Sample),
    /// What is to be carried by when; for strategies that know deadlines.
    Demand(Demand),
    /// The kernel's news.
    Mptcp(Event),
    /// All connections that there are: after a start, and when events were
    /// missed.
    Resync(Vec<ConnectionSnapshot>),
    /// The kernel refused a command, and why.
    Refused(Command, Refusal),
    /// A path has another address, or none.
    Address {
        /// The path.
        path: PathId,
        /// Our address on it.
        local: Option<IpAddr>,
        /// Index of its interface.
        if_index: u32,
    },
    /// A path had this address before the agent began: subflows may be left from it.
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

/// What an agent says.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// To be carried out.
    Command {
        /// The path it is about.
        path: PathId,
        /// The command.
        command: Command,
    },
    /// What is believed of a path has changed.
    Belief {
        /// The path.
        path: PathId,
        /// The new belief.
        belief: Belief,
        /// Why.
        reason: Reason,
    },
    /// What is wanted of a path has changed.
    Decision {
        /// The path.
        path: PathId,
        /// The new state.
        state: PathState,
        /// The state before.
        was: PathState,
        /// Why.
        reason: Reason,
    },
    /// What the user is to be told of the path manager.
    Notice(Notice),
    /// Whether an object can be had in time.
    Admission(Admission),
    /// A suspicion of sudden loss, raised or settled.
    Alarm {
        /// The path.
        path: PathId,
        /// The alarm.
        alarm: Alarm,
    },
}

/// How an agent is to work.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The paths (at most 16).
    pub paths: Vec<PathSpec>,
    /// Place of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// How the paths are used together.
    pub mode: Mode,
    /// How long two subflows carry together before one is demoted.
    pub overlap: Duration,
    /// The strategy.
    pub strategy: Strategy,
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
    /// An agent that knows of no connection and no sample yet.
    pub fn new(setup: Setup) -> Agent {
        let assessors = setup.paths.iter().map(|spec| setup.strategy.assessors(spec)).collect();
        let allocator = setup.strategy.allocator(setup.mode);
        Agent::of(setup.paths, &setup.ranks, setup.overlap, assessors, allocator)
    }

    /// An agent of given parts, with the assessors of each path. [`Setup`]
    /// tells what `paths`, `ranks` and `overlap` are.
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

    /// Leaves connections from these addresses alone, as those inside a tunnel.
    pub fn leave_alone(&mut self, addresses: Vec<IpAddr>) {
        self.manager.leave_alone(addresses);
    }

    /// The path manager, to be looked at.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Name, belief and wanted state of each path.
    pub fn paths(&self) -> impl Iterator<Item = (&str, Belief, PathState)> {
        self.paths.iter().map(|path| (path.name.as_str(), path.belief, path.state))
    }

    /// Most bytes that a sender should have written and not acknowledged; `None`:
    /// as many as its send buffer takes.
    pub fn backlog_bytes(&self) -> Option<u64> {
        self.allocator.backlog_bytes()
    }

    fn observe(&mut self, now: Instant, sample: &Sample) {
        if let SampleKind::Transport(transport) = &sample.kind
            && let Some(told) = self.arrivals.observe(now, sample.path, transport)
        {
            self.tell_path(now, &Sample { path: told.path, kind: SampleKind::Break(told) });
        }
        self.tell_path(now, sample);
    }

    fn tell_path(&mut self, now: Instant, sample: &Sample) {
        let Some(path) = self.paths.get_mut(usize::from(sample.path.0)) else {
            return;
        };
        for assessor in &mut path.assessors {
            assessor.advance(now);
            assessor.observe(now, sample);
        }
    }

    /// What is open over a path of which nothing is known yet stays as it is: an
    /// agent that starts in the middle of a connection takes it up.
    fn adopt(&mut self, now: Instant, seen: &[ConnectionSnapshot]) {
        for subflow in seen.iter().flat_map(|connection| &connection.subflows) {
            let Some(id) = self.manager.path_of(subflow.local.ip()) else { continue };
            let Some(path) = self.paths.get_mut(usize::from(id.0)) else { continue };
            let (was, found) = (path.state, if subflow.backup { PathState::Backup } else { PathState::Active });
            if path.belief == Belief::Unknown && was < found {
                path.state = found;
                let text = "a subflow was found over it".into();
                let reason = Reason { rule: "resync", text, ..Reason::default() };
                self.outputs.push_back(Output::Decision { path: id, state: found, was, reason });
            }
        }
        let states: Vec<PathState> = self.paths.iter().map(|path| path.state).collect();
        self.manager.want(now, &states);
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
                while let Some(Stuck { token, peer }) = assessor.poll_stuck() {
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

    fn meet(&mut self, now: Instant, demand: &Demand) {
        let paths: Vec<PathSupply> = self.paths.iter().map(Path::supply).collect();
        let reason = self.allocator.meet(now, demand, &paths);
        while let Some(admission) = self.allocator.poll_admission() {
            self.outputs.push_back(Output::Admission(admission));
        }
        if let Some(reason) = reason {
            self.allocate(now, |_, _| reason.clone());
        }
    }

    fn allocate(&mut self, now: Instant, why: impl Fn(&Agent, usize) -> Reason) {
        let views: Vec<PathInput> = self.paths.iter().map(Path::view).collect();
        let is_lost = |path: &Path| matches!(path.belief, Belief::Lost | Belief::Stalled);
        self.manager.set_lost(self.paths.iter().map(is_lost).collect());
        let states = self.allocator.allocate(&views);
        for (place, &state) in states.iter().enumerate() {
            let was = self.paths[place].state;
            if was != state {
                let reason = why(self, place);
                self.outputs.push_back(Output::Decision { path: PathId(place as u8), state, was, reason });
                self.paths[place].state = state;
            }
        }
        self.manager.want(now, &states);
    }

    /// A path changes state because of what is believed of it, or because of
    /// what another has just become.
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
    fn view(&self) -> PathInput {
        PathInput { belief: self.belief, was: self.state, rank: self.rank }
    }

    fn supply(&self) -> PathSupply<'_> {
        PathSupply { view: self.view(), history: self.assessors.iter().find_map(|assessor| assessor.history()) }
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
            Input::Demand(demand) => self.meet(now, &demand),
            Input::Mptcp(event) => self.manager.handle(now, &event),
            Input::Resync(seen) => {
                self.adopt(now, &seen);
                self.manager.resync(now, &seen);
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
