//! The engine that an agent runs: samples in, commands out.
//!
//! sample → assessors of its path → belief → allocator → wanted states → actuators → commands. Data flows in one
//! direction. The result of a command returns as an event of the kernel or as a sample.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::actuator::{self, Actuator, Command, Event};
use crate::allocate::learned::trial::Trial;
use crate::allocate::{Allocator, Latest, Mode};
use crate::assess::arrivals::Arrivals;
use crate::assess::rates::Rates;
use crate::assess::{Alarm, Assessor, Belief, Finding};
use crate::demand::{Admission, Object};
use crate::echo::Echoes;
use crate::engine::Engine;
use crate::mptcp::Notice;
use crate::path::{Carried, PathId, PathSpec, PathState, Sample, SampleKind, VehicleState};
use crate::reason::Reason;
use crate::strategy::Strategy;
use crate::time::Instant;
use crate::volume::Volume;
use crate::wanted::{ConnectionClass, Order, Wanted};
use allocation::Class;
use path::{Path, Reports, is_only_network, reason_for};

mod allocation;
mod changes;
mod echo;
mod path;
mod preference;
mod view;

pub use crate::path::MAX_PATHS;
pub use crate::wanted::MAX_CLASSES;
pub use changes::{Change, Changed};
pub use preference::Preferred;
pub use view::{Argument, PathView};

/// Inputs of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An observation.
    Sample(Sample),
    /// Position, heading and speed of the vehicle; what is not known any more is absent.
    Vehicle(VehicleState),
    /// Objects with deadlines, for strategies that use them.
    Demand(Vec<Object>),
    /// An event for the actuators.
    Event(Event),
    /// A further path, of this rank in the user's preference. It takes the place of a
    /// removed one, if there is any; beyond [`MAX_PATHS`] it is ignored.
    AddPath(PathSpec, u8),
    /// A path is used no more.
    RemovePath(PathId),
    /// A path carries alone while it is good, whatever the strategy wants; `None`: the
    /// strategy decides again.
    Prefer(Option<Preferred>),
    /// The answer to the echo request of this number over this path.
    EchoAnswer(PathId, u16),
    /// What is left of a path's data volume, and why.
    Volume(PathId, Volume, Reason),
}

impl From<Sample> for Input {
    fn from(sample: Sample) -> Input {
        Input::Sample(sample)
    }
}

impl From<Event> for Input {
    fn from(event: Event) -> Input {
        Input::Event(event)
    }
}

/// Outputs of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A command to execute.
    Command(Command),
    /// The belief about a path changed.
    Belief {
        /// The path.
        path: PathId,
        /// The new belief.
        belief: Belief,
        /// The reason.
        reason: Reason,
    },
    /// The wanted state of a path changed, for the default class of connections.
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
    /// The wanted state of a path changed, for another class of connections.
    ClassDecision {
        /// The class.
        class: ConnectionClass,
        /// The path.
        path: PathId,
        /// The new state.
        state: PathState,
        /// The previous state.
        was: PathState,
        /// The reason.
        reason: Reason,
    },
    /// The strategy's order of the paths changed.
    Order {
        /// The order.
        order: Order,
        /// The reason.
        reason: Reason,
    },
    /// What a trial of another order of two paths showed.
    Trial(Trial),
    /// An echo request with this number is to be sent over this path.
    Echo(PathId, u16),
    /// The address of the echo requests has never answered over this path.
    EchoUnanswered {
        /// The path.
        path: PathId,
        /// What follows from it.
        reason: Reason,
    },
    /// A notice of an actuator to the user.
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

/// Creates the assessors of a path.
pub type Assessors = Box<dyn Fn(PathId, &PathSpec) -> Vec<Box<dyn Assessor + Send>> + Send>;

/// The engine.
pub struct Agent {
    paths: Vec<Path>,
    assessors: Assessors,
    allocator: Box<dyn Allocator + Send>,
    /// The classes of connections after the default one.
    classes: Vec<Class>,
    actuators: Vec<Box<dyn Actuator>>,
    wanted: Wanted,
    /// Price of a byte over each path, in the order of their ids; further paths have none.
    unit_costs: Vec<f64>,
    arrivals: Arrivals,
    rates: Rates,
    echoes: Echoes,
    preferred: Option<Preferred>,
    /// When an input last had everything assessed, if the agent was not polled to the end since.
    assessed: Option<Instant>,
    reports: Reports,
}

impl Agent {
    /// An agent without connections and samples: the paths (at most [`MAX_PATHS`]), the rank
    /// of each in the user's preference (0 first), how they are used together, the
    /// strategy, and what carries out the wanted states.
    pub fn new(
        paths: &[PathSpec],
        ranks: &[u8],
        mode: Mode,
        strategy: Arc<dyn Strategy>,
        actuators: Vec<Box<dyn Actuator>>,
    ) -> Agent {
        let allocator = strategy.allocator(mode);
        Agent::of(paths, ranks, Box::new(move |_, spec| strategy.assessors(spec)), allocator, actuators)
    }

    /// An agent from the parts of a strategy; the rest as for [`new`](Self::new).
    pub fn of(
        paths: &[PathSpec],
        ranks: &[u8],
        assessors: Assessors,
        allocator: Box<dyn Allocator + Send>,
        actuators: Vec<Box<dyn Actuator>>,
    ) -> Agent {
        let wanted = paths.iter().map(|_| PathState::Closed).collect();
        let mut agent = Agent {
            paths: Vec::new(),
            assessors,
            allocator,
            classes: Vec::new(),
            actuators,
            wanted,
            unit_costs: Vec::new(),
            arrivals: Arrivals::default(),
            rates: Rates::default(),
            echoes: Echoes::default(),
            preferred: None,
            assessed: None,
            reports: Reports::default(),
        };
        for (spec, &rank) in paths.iter().zip(ranks) {
            agent.place(Instant::ZERO, spec, rank);
        }
        agent
    }

    fn observe(&mut self, now: Instant, sample: &Sample) {
        if let SampleKind::Transport(transport) = &sample.kind {
            if let Some(broken) = self.arrivals.observe(now, sample.path, transport) {
                self.assess_sample(now, &Sample { path: broken.path, kind: SampleKind::Break(broken) });
            }
            self.echoes.on_transport(now, sample.path, transport);
            if self.rates.observe(now, sample.path, transport) {
                for path in (0..MAX_PATHS as u8).map(PathId) {
                    let carried =
                        Carried { is_only_network: is_only_network(&self.paths, path), ..self.rates.carried(path) };
                    self.assess_sample(now, &Sample { path, kind: SampleKind::Carried(carried) });
                }
            }
        }
        self.assess_sample(now, sample);
    }

    fn assess_sample(&mut self, now: Instant, sample: &Sample) {
        let Some(path) = self.paths.get_mut(usize::from(sample.path.0)) else { return };
        path.latest.observe(now, &sample.kind);
        for assessor in &mut path.assessors {
            assessor.advance(now);
            assessor.observe(now, sample);
        }
    }

    /// The id that the next path gets, the first vacant one; `None` if there is no more room.
    pub fn vacant(&self) -> Option<PathId> {
        let vacant = self.paths.iter().position(|path| path.removed).unwrap_or(self.paths.len());
        (vacant < MAX_PATHS).then_some(PathId(vacant as u8))
    }

    fn place(&mut self, now: Instant, spec: &PathSpec, rank: u8) -> Option<PathId> {
        let id = self.vacant()?;
        self.reports.changes.forget(id);
        let unit_cost = self.unit_costs.get(usize::from(id.0)).copied();
        let path = Path { believed: now, decided: now, unit_cost, ..Path::new(spec, rank, (self.assessors)(id, spec)) };
        match self.paths.get_mut(usize::from(id.0)) {
            Some(removed) => *removed = path,
            None => self.paths.push(path),
        }
        Some(id)
    }

    fn add_path(&mut self, now: Instant, spec: PathSpec, rank: u8) {
        if let Some(id) = self.place(now, &spec, rank) {
            self.pass(now, &Event::PathAdded(id, spec));
            self.allocate(now, |_, _| Reason::plain("paths.add", "a path was added"));
        }
    }

    /// A removed path counts as lost, and is closed whatever the allocator wants. The allocators forget it in a review.
    fn remove_path(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.get_mut(usize::from(id.0)).filter(|path| !path.removed) else { return };
        (path.removed, path.belief, path.assessors, path.latest) = (true, Belief::Lost, Vec::new(), Latest::default());
        self.preferred.take_if(|preferred| preferred.path == id);
        let reason = Reason::plain("paths.remove", format!("{} was removed", path.name));
        self.review(now);
        self.allocate(now, |_, _| reason.clone());
        self.pass(now, &Event::Address { path: id, local: None, if_index: 0 });
    }

    fn pass(&mut self, now: Instant, event: &Event) {
        self.actuators.iter_mut().for_each(|actuator| actuator.handle(now, event));
    }

    /// A subflow over a path of unknown belief sets the path's state, so that an agent
    /// that starts in the middle of a connection adopts it.
    fn adopt(&mut self, now: Instant, event: &Event) {
        let found: Vec<_> = self.actuators.iter().flat_map(|actuator| actuator.found(event)).collect();
        if found.is_empty() {
            return;
        }
        for (id, found) in found {
            let Some(path) = self.paths.get_mut(usize::from(id.0)) else { continue };
            if path.belief == Belief::Unknown && path.state < found && !path.is_barred() {
                path.decide(now, id, found, Reason::plain("resync", "a subflow exists on it"), &mut self.reports);
                self.adopt_state(id, found);
            }
        }
        self.apply();
    }

    fn assess(&mut self, now: Instant) {
        let mut changed = None;
        for (place, path) in self.paths.iter_mut().enumerate() {
            let id = PathId(place as u8);
            let mut worst: Option<(Belief, usize)> = None;
            for (at, assessor) in path.assessors.iter_mut().enumerate() {
                assessor.advance(now);
                while let Some(finding) = assessor.poll() {
                    match finding {
                        Finding::Alarm(alarm) => self.reports.outputs.push_back(Output::Alarm { path: id, alarm }),
                        Finding::Stalled(stalled) => {
                            let event = Event::Stalled(id, stalled);
                            self.actuators.iter_mut().for_each(|actuator| actuator.handle(now, &event));
                        }
                    }
                }
                let (belief, _) = assessor.belief();
                worst = worst.filter(|(worst, _)| *worst > belief).or(Some((belief, at)));
            }
            if let Some((belief, at)) = worst.filter(|(belief, _)| *belief != path.belief) {
                path.believe(now, id, (belief, at), &mut self.reports);
                changed = Some(place);
            }
        }
        if let Some(changed) = changed {
            self.allocate(now, |paths, place| reason_for(paths, place, changed));
        }
        self.end_preference(now);
        self.review(now);
    }

    /// When a belief or what the allocator wants may change.
    fn deciding_wakeup(&self) -> Option<Instant> {
        let mut first = self.allocator.next_wakeup();
        let mut consider = |at: Option<Instant>| {
            if at.is_some_and(|at| first.is_none_or(|first| at < first)) {
                first = at;
            }
        };
        self.paths.iter().for_each(|path| path.assessors.iter().for_each(|assessor| consider(assessor.next_wakeup())));
        self.classes.iter().for_each(|class| consider(class.next_wakeup()));
        consider(self.preference_end());
        first
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
                self.assessed = Some(now);
            }
            Input::Demand(demand) => self.on_demand(now, &demand),
            Input::Vehicle(state) => {
                for path in (0..self.paths.len()).map(|place| PathId(place as u8)) {
                    self.assess_sample(now, &Sample { path, kind: SampleKind::Vehicle(state) });
                }
                self.assess(now);
            }
            Input::Event(event) => {
                self.note_address(&event);
                self.adopt(now, &event);
                self.pass(now, &event);
            }
            Input::AddPath(spec, rank) => self.add_path(now, spec, rank),
            Input::RemovePath(path) => self.remove_path(now, path),
            Input::Prefer(preferred) => self.prefer(now, preferred),
            Input::EchoAnswer(path, number) => self.on_echo_answer(now, path, number),
            Input::Volume(path, volume, reason) => self.set_volume(now, path, volume, reason),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.reports.outputs.is_empty() {
            self.send_echoes(now);
        }
        // What an input had assessed at this time is not due.
        if self.reports.outputs.is_empty()
            && self.assessed.take() != Some(now)
            && self.deciding_wakeup().is_some_and(|at| now >= at)
        {
            self.assess(now);
        }
        self.reports.outputs.pop_front().or_else(|| {
            self.actuators.iter_mut().find_map(|actuator| actuator.poll(now)).map(|output| match output {
                actuator::Output::Command(command) => Output::Command(command),
                actuator::Output::Notice(notice) => Output::Notice(notice),
            })
        })
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let actuators = self.actuators.iter().filter_map(|actuator| actuator.next_wakeup());
        self.deciding_wakeup().into_iter().chain(self.echoes.next_wakeup()).chain(actuators).min()
    }
}
