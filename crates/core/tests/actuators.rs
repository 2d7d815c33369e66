//! An agent with several actuators, and with assessors, allocators and actuators that the
//! crate does not have: what a new one must implement.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crosslane_core::actuator::{
    Actuator, Command, Event, Output as ActuatorOutput, PacketScheduler, Steering, Verdict,
};
use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::allocate::by_belief::ByBelief;
use crosslane_core::allocate::{Allocator, Mode, PathInput, PathSupply};
use crosslane_core::assess::{Assessor, Belief};
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::manager::Manager;
use crosslane_core::mptcp::{self, AddressId, ConnectionSnapshot, Subflow, Token};
use crosslane_core::path::{
    OnFade, PathId, PathSpec, PathState, Position, Rat, Sample, SampleKind, Signal, VehicleState,
};
use crosslane_core::reason::Reason;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::wanted::{ConnectionClass, Order, Wanted};

/// An assessor: a path is good while its interface is up.
#[derive(Default)]
struct LinkState(Belief, Reason);

impl Assessor for LinkState {
    fn observe(&mut self, _now: Instant, sample: &Sample) {
        if let SampleKind::Link { up } = sample.kind {
            self.0 = if up { Belief::Good } else { Belief::Lost };
            self.1 = Reason::plain("link", format!("the interface is up: {up}"));
        }
    }

    fn advance(&mut self, _now: Instant) {}

    fn belief(&self) -> (Belief, &Reason) {
        (self.0, &self.1)
    }
}

/// An allocator: all good paths are active, or only the preferred one; those of greater SINR are preferred.
#[derive(Default)]
struct BySinr {
    order: Order,
    is_single: bool,
}

impl Allocator for BySinr {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let first = self.order.paths().first().copied();
        let state = |(path, place): (&PathInput, u8)| {
            let carries = path.belief == Belief::Good && (!self.is_single || first == Some(PathId(place)));
            if carries { PathState::Active } else { PathState::Closed }
        };
        paths.iter().zip(0..).map(state).collect::<Wanted>().with_order(self.order.clone())
    }

    fn review(&mut self, _now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        let sinr = |path: &PathId| {
            let signal = paths[usize::from(path.0)].latest.signal;
            signal.and_then(|(_, signal)| signal.sinr_db).unwrap_or(f32::NEG_INFINITY)
        };
        let mut order: Vec<PathId> = (0..paths.len()).map(|place| PathId(place as u8)).collect();
        order.sort_by(|a, b| sinr(b).total_cmp(&sinr(a)));
        let order = Order::Paths(order);
        let changed = order != self.order;
        self.order = order;
        changed.then(|| Reason::plain("sinr", "another path has the best SINR"))
    }
}

/// An actuator: keeps what it is to apply.
#[derive(Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Actuator for Log {
    fn apply(&mut self, wanted: &Wanted, verdicts: &[Verdict]) {
        let line = |(state, verdict): (&PathState, &Verdict)| format!("{}: {}", state.name(), verdict.reason.text());
        self.0.lock().unwrap().push(wanted.states().iter().zip(verdicts).map(line).collect::<Vec<_>>().join("; "));
    }

    fn handle(&mut self, _now: Instant, event: &Event) {
        if let Event::PathAdded(path, spec) = event {
            self.0.lock().unwrap().push(format!("added {} as {}", spec.name, path.0));
        }
    }

    fn poll(&mut self, _now: Instant) -> Option<ActuatorOutput> {
        None
    }
}

fn spec(place: u8, name: &str) -> PathSpec {
    PathSpec {
        name: name.into(),
        rat: Rat::Lte,
        local: Some([10, 0, place, 2].into()),
        if_index: 1 + u32::from(place),
        radio: None,
    }
}

fn agent(log: &Log) -> Agent {
    let paths = [spec(0, "lte"), spec(1, "nr")];
    let actuators: Vec<Box<dyn Actuator>> = vec![
        Box::new(Manager::new(paths.to_vec(), Duration::ZERO)),
        Box::new(PacketScheduler::new(paths.len())),
        Box::new(Log(log.0.clone())),
    ];
    let assessors = |_: PathId, _: &PathSpec| -> Vec<Box<dyn Assessor + Send>> { vec![Box::<LinkState>::default()] };
    let agent = Agent::of(&paths, &[0, 1], Box::new(assessors), Box::<BySinr>::default(), actuators);
    agent.with_classes(vec![Box::new(BySinr { is_single: true, ..BySinr::default() })])
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn link(agent: &mut Agent, ms: u64, path: u8, up: bool) {
    agent.handle(at(ms), Sample { path: PathId(path), kind: SampleKind::Link { up } }.into());
}

fn signal(agent: &mut Agent, ms: u64, path: u8, sinr_db: f32) {
    let signal = Signal { rssi_dbm: -90.0, sinr_db: Some(sinr_db), ..Signal::default() };
    agent.handle(at(ms), Sample { path: PathId(path), kind: SampleKind::Signal(signal) }.into());
}

fn connect(agent: &mut Agent, ms: u64, token: u32) {
    let local = SocketAddr::from(([10, 0, 0, 2], 40_000 + token as u16));
    let remote = SocketAddr::from(([10, 9, 0, 1], 443));
    let subflow = Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false };
    let event = mptcp::Event::Established { token: Token(token), subflow, server_side: false };
    agent.handle(at(ms), Event::Mptcp(event).into());
}

fn commands(agent: &mut Agent, ms: u64) -> Vec<Command> {
    let command = |output| match output {
        Output::Command(command) => Some(command),
        _ => None,
    };
    std::iter::from_fn(|| agent.poll(at(ms))).filter_map(command).collect()
}

fn steering(commands: &[Command]) -> Option<&Steering> {
    let of = |command: &'_ Command| matches!(command, Command::Steer(_));
    match commands.iter().rfind(|command| of(command)) {
        Some(Command::Steer(steering)) => Some(steering),
        _ => None,
    }
}

fn opened(commands: &[Command]) -> Vec<(u32, u8)> {
    let of = |command: &Command| match command {
        Command::Mptcp(path, mptcp::Command::CreateSubflow { token, .. }) => Some((token.0, path.0)),
        _ => None,
    };
    commands.iter().filter_map(of).collect()
}

#[test]
fn a_decision_reaches_every_actuator_with_its_reason() {
    let log = Log::default();
    let mut agent = agent(&log);
    connect(&mut agent, 0, 1);
    link(&mut agent, 1, 0, true);
    link(&mut agent, 2, 1, true);
    let commands = commands(&mut agent, 3);
    assert_eq!(opened(&commands), [(1, 1)], "MPTCP opens a subflow over the second path");
    let steering = steering(&commands).unwrap();
    assert_eq!(steering.states, [PathState::Active, PathState::Active]);
    assert_eq!(steering.reasons[0], "the interface is up: true");
    let log = log.0.lock().unwrap();
    assert_eq!(log.last().unwrap(), "active: the interface is up: true; active: the interface is up: true");
}

#[test]
fn a_change_of_what_the_allocator_reads_changes_the_order_though_no_belief_changes() {
    let mut agent = agent(&Log::default());
    link(&mut agent, 0, 0, true);
    link(&mut agent, 0, 1, true);
    signal(&mut agent, 1, 0, 12.0);
    signal(&mut agent, 1, 1, 3.0);
    assert_eq!(steering(&commands(&mut agent, 2)).unwrap().order.paths(), [PathId(0), PathId(1)]);
    signal(&mut agent, 3, 1, 20.0);
    let changed = commands(&mut agent, 4);
    assert_eq!(steering(&changed).unwrap().order.paths(), [PathId(1), PathId(0)]);
    signal(&mut agent, 5, 1, 21.0);
    assert_eq!(commands(&mut agent, 6), [], "the order is the same");
}

#[test]
fn a_list_of_all_connections_changes_neither_order_nor_classes() {
    let mut agent = agent(&Log::default());
    link(&mut agent, 0, 0, true);
    link(&mut agent, 0, 1, true);
    signal(&mut agent, 1, 1, 20.0);
    assert_eq!(steering(&commands(&mut agent, 2)).unwrap().order.paths(), [PathId(1), PathId(0)]);
    let (local, remote) = (SocketAddr::from(([10, 0, 0, 2], 40_000)), SocketAddr::from(([10, 9, 0, 1], 443)));
    let subflow = Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false };
    let (subflows, opening) = (vec![subflow], Vec::new());
    let listed = ConnectionSnapshot { token: Token(1), local, remote, server_side: false, subflows, opening };
    agent.handle(at(3), Event::Resync(vec![listed]).into());
    assert_eq!(steering(&commands(&mut agent, 4)), None);
}

#[test]
fn connections_of_another_class_have_other_wanted_states() {
    let mut agent = agent(&Log::default());
    for token in [1, 2] {
        connect(&mut agent, 0, token);
    }
    agent.handle(at(0), Event::Class(Token(2), ConnectionClass(1)).into());
    link(&mut agent, 1, 0, true);
    link(&mut agent, 1, 1, true);
    let commands = commands(&mut agent, 2);
    assert_eq!(opened(&commands), [(1, 1)], "only the connection of the default class uses both paths");
}

#[test]
fn a_path_is_removed_from_and_added_to_a_running_agent() {
    let log = Log::default();
    let mut agent = agent(&log);
    connect(&mut agent, 0, 1);
    link(&mut agent, 1, 0, true);
    link(&mut agent, 1, 1, true);
    assert_eq!(opened(&commands(&mut agent, 2)), [(1, 1)]);
    agent.handle(at(3), Input::RemovePath(PathId(1)));
    let removed = commands(&mut agent, 4);
    assert_eq!(steering(&removed).unwrap().states, [PathState::Active, PathState::Closed]);
    assert!(
        agent.paths().any(|(name, belief, state)| (name, belief, state) == ("nr", Belief::Lost, PathState::Closed))
    );
    link(&mut agent, 5, 1, true);
    assert!(steering(&commands(&mut agent, 5)).is_none(), "samples of a removed path have no effect");

    agent.handle(at(6), Input::AddPath(spec(5, "nr-2"), 1));
    assert_eq!(log.0.lock().unwrap().iter().rfind(|line| line.starts_with("added")).unwrap(), "added nr-2 as 1");
    link(&mut agent, 7, 1, true);
    let added = commands(&mut agent, 8);
    assert_eq!(opened(&added), [(1, 1)], "over the new path's address");
    assert_eq!(steering(&added).unwrap().states, [PathState::Active, PathState::Active]);
}

#[test]
fn a_removed_path_stays_closed_even_if_no_other_is_left() {
    let assessors = |_: PathId, _: &PathSpec| -> Vec<Box<dyn Assessor + Send>> { vec![Box::<LinkState>::default()] };
    let paths = [spec(0, "lte"), spec(1, "nr")];
    let allocator = Box::new(ByBelief::new(Mode::Aggregate, OnFade::Backup));
    let mut agent = Agent::of(&paths, &[0, 1], Box::new(assessors), allocator, Vec::new());
    agent.handle(at(0), Input::RemovePath(PathId(1)));
    link(&mut agent, 1, 0, true);
    link(&mut agent, 2, 0, false);
    let states: Vec<PathState> = agent.paths().map(|(_, _, state)| state).collect();
    assert_eq!(states, [PathState::Active, PathState::Closed], "the last resort is what is left");
}

#[test]
fn more_paths_than_there_is_room_for_are_ignored() {
    let mut agent = agent(&Log::default());
    for place in 2..40 {
        agent.handle(at(0), Input::AddPath(spec(place, "more"), place));
    }
    assert_eq!(agent.paths().count(), crosslane_core::agent::MAX_PATHS);
}

#[test]
fn the_vehicle_s_position_and_speed_reach_the_assessors_of_every_path() {
    #[derive(Default)]
    struct Geofence(Belief, Reason);
    impl Assessor for Geofence {
        fn observe(&mut self, _now: Instant, sample: &Sample) {
            if let SampleKind::Vehicle(VehicleState { position: Some(position), speed_m_s, .. }) = sample.kind {
                let is_near = position.latitude_deg > 41.0 && speed_m_s.is_some_and(|speed| speed < 20.0);
                self.0 = if is_near { Belief::Good } else { Belief::Lost };
            }
        }
        fn advance(&mut self, _now: Instant) {}
        fn belief(&self) -> (Belief, &Reason) {
            (self.0, &self.1)
        }
    }
    let assessors = |_: PathId, _: &PathSpec| -> Vec<Box<dyn Assessor + Send>> { vec![Box::<Geofence>::default()] };
    let paths = [spec(0, "lte"), spec(1, "nr")];
    let mut agent = Agent::of(&paths, &[0, 1], Box::new(assessors), Box::<BySinr>::default(), Vec::new());
    let position = Some(Position { latitude_deg: 41.2, longitude_deg: -8.6 });
    let state = |speed_m_s| Input::Vehicle(VehicleState { position, speed_m_s: Some(speed_m_s), heading_deg: None });
    agent.handle(at(0), state(13.9));
    assert!(agent.paths().all(|(_, belief, state)| belief == Belief::Good && state == PathState::Active));
    agent.handle(at(1), state(27.0));
    assert!(agent.paths().all(|(_, belief, _)| belief == Belief::Lost));
}
