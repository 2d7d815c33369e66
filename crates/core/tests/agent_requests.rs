//! What users ask of a running agent: why it is as it is, and to prefer a path or a mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::actuator::Event;
use crosslane_core::agent::{Agent, Changed, Input, Preferred};
use crosslane_core::allocate::Mode;
use crosslane_core::assess::Belief;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::manager::{CloseCause, ConnectionEvent, Manager};
use crosslane_core::mptcp::{self, AddressId, Command, Refusal, Subflow, Token};
use crosslane_core::path::{PathId, PathSpec, PathState, Rat, Sample, SampleKind};
use crosslane_core::reason::Reason;
use crosslane_core::strategy::{Strategy, threshold};
use crosslane_core::time::Instant;
use crosslane_core::volume::Volume;

const LTE: PathId = PathId(0);
const NR: PathId = PathId(1);

fn spec(place: u8, name: &str) -> PathSpec {
    let local = Some([10, 0, place, 2].into());
    PathSpec { name: name.into(), rat: Rat::Lte, local, if_index: 1 + u32::from(place), radio: None }
}

/// Paths `lte` (preferred) and `nr`, both good.
fn agent(mode: Mode) -> Agent {
    let paths = [spec(0, "lte"), spec(1, "nr")];
    let manager = Manager::new(paths.to_vec(), Duration::ZERO);
    let mut agent = Agent::new(&paths, &[0, 1], mode, Arc::new(threshold::Params::default()), vec![Box::new(manager)]);
    link(&mut agent, 0, LTE, true);
    link(&mut agent, 0, NR, true);
    agent
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn link(agent: &mut Agent, ms: u64, path: PathId, up: bool) {
    agent.handle(at(ms), Sample { path, kind: SampleKind::Link { up } }.into());
}

/// A connection over `lte`.
fn connect(agent: &mut Agent, token: u32) {
    let local = SocketAddr::from(([10, 0, 0, 2], 40_000 + token as u16));
    let remote = SocketAddr::from(([10, 9, 0, 1], 443));
    let subflow = Subflow { local, remote, local_id: AddressId(0), remote_id: AddressId(0), backup: false };
    let event = mptcp::Event::Established { token: Token(token), subflow, server_side: false };
    agent.handle(at(1), Event::Mptcp(event).into());
}

fn states(agent: &Agent) -> [PathState; 2] {
    let states: Vec<PathState> = agent.views().map(|view| view.state).collect();
    states.try_into().expect("two paths")
}

fn poll_all(agent: &mut Agent, ms: u64) {
    while agent.poll(at(ms)).is_some() {}
}

use PathState::{Active, Backup, Closed};

#[test]
fn a_connection_begins_on_the_good_path_that_carries_and_stays_there_if_none_is_good() {
    let mut agent = agent(Mode::Aggregate);
    assert_eq!(agent.first_path(None, &[]), Some(LTE), "both carry");
    assert_eq!(agent.first_path(None, &[LTE]), Some(NR));
    assert_eq!(agent.first_path(None, &[NR, LTE]), Some(LTE));
    agent.handle(at(1000), Input::Prefer(Some(Preferred { path: NR, until: None })));
    assert_eq!(agent.first_path(Some(LTE), &[]), Some(NR));
    link(&mut agent, 2000, NR, false);
    assert_eq!(agent.first_path(Some(NR), &[]), Some(LTE), "it does not work");
    link(&mut agent, 3000, LTE, false);
    assert_eq!(agent.first_path(Some(LTE), &[]), Some(LTE), "no path is better");
    assert_eq!(agent.first_path(None, &[]), None);
    link(&mut agent, 4000, NR, true);
    let used_up = Reason::plain("volume.exhausted", "nothing is left");
    agent.handle(at(5000), Input::Volume(NR, Volume::Exhausted, used_up));
    assert_eq!(agent.first_path(Some(NR), &[]), None, "its volume is used up");
    link(&mut agent, 6000, LTE, true);
    assert_eq!(agent.first_path(Some(NR), &[]), Some(LTE));
    agent.handle(at(7000), Input::RemovePath(LTE));
    assert_eq!(agent.first_path(Some(LTE), &[]), None);
}

#[test]
fn a_preferred_path_carries_alone_while_it_is_good_and_its_time_lasts() {
    let mut agent = agent(Mode::Aggregate);
    assert_eq!(states(&agent), [Active, Active]);
    agent.handle(at(1000), Input::Prefer(Some(Preferred { path: NR, until: Some(at(9000)) })));
    assert_eq!(states(&agent), [Backup, Active]);
    link(&mut agent, 2000, NR, false);
    assert_eq!(states(&agent), [Active, Closed], "a lost path carries nothing, preferred or not");
    link(&mut agent, 8000, NR, true);
    assert_eq!(states(&agent), [Backup, Active]);
    poll_all(&mut agent, 8000);
    assert_eq!(agent.next_wakeup(), Some(at(9000)));
    poll_all(&mut agent, 9000);
    assert_eq!(states(&agent), [Active, Active], "the strategy decides again");
    assert_eq!(agent.preferred(), None);
    let last = agent.changes().next_back().expect("a change");
    assert_eq!((last.path, last.to, last.reason.rule), (LTE, Changed::State(Active), "prefer.end"));
}

#[test]
fn a_preference_for_a_removed_path_ends() {
    let mut agent = agent(Mode::Aggregate);
    agent.handle(at(1), Input::Prefer(Some(Preferred { path: PathId(7), until: None })));
    assert_eq!(agent.preferred(), None, "there is no such path");
    agent.handle(at(1), Input::Prefer(Some(Preferred { path: NR, until: None })));
    agent.handle(at(2), Input::RemovePath(NR));
    assert_eq!(agent.preferred(), None);
    assert_eq!(agent.views().map(|view| (view.name, view.state)).collect::<Vec<_>>(), [("lte", Active)]);
}

#[test]
fn mode_and_ranks_change_at_once_and_the_reason_is_named() {
    let mut agent = agent(Mode::Aggregate);
    let reason = Reason::plain("mode.request", "the mode is backup by request");
    agent.set_allocator(at(1), threshold::Params::default().allocator(Mode::Backup), &reason);
    assert_eq!(states(&agent), [Active, Backup]);
    agent.set_ranks(at(2), [1, 0].into_iter(), &Reason::plain("reload", "read again"));
    assert_eq!(states(&agent), [Backup, Active]);
    let rules: Vec<&str> = agent.views().map(|view| view.state_reason.rule).collect();
    assert_eq!(rules, ["reload", "reload"]);
}

/// Rule and side of each argument.
fn arguments(agent: &Agent, path: PathId) -> Vec<(&'static str, bool)> {
    agent.arguments(path).iter().map(|argument| (argument.reason.rule, argument.is_for)).collect()
}

#[test]
fn what_speaks_for_and_against_a_path_is_its_present_state() {
    let mut agent = agent(Mode::Backup);
    assert_eq!(arguments(&agent, LTE), [("threshold.link-up", true), ("preference", true)]);
    assert_eq!(arguments(&agent, NR), [("threshold.link-up", true), ("preference", false)]);
    link(&mut agent, 10, LTE, false);
    assert!(arguments(&agent, LTE).contains(&("threshold.link-down", false)), "{:?}", arguments(&agent, LTE));
    assert!(arguments(&agent, NR).contains(&("preference", true)));
    agent.handle(at(20), Input::Prefer(Some(Preferred { path: LTE, until: None })));
    assert!(arguments(&agent, LTE).contains(&("prefer.request", true)));
    assert!(arguments(&agent, NR).contains(&("prefer.request", false)));
    let changes: Vec<_> = agent.changes().filter(|change| change.path == LTE).map(|change| change.to).collect();
    assert_eq!(
        changes[changes.len() - 2..],
        [Changed::Belief(Belief::Lost), Changed::State(Closed)],
        "what happened last"
    );
}

/// Wanted and present state over `nr`, and the rule of their difference.
fn over_nr(agent: &Agent, ms: u64, token: u32) -> (PathState, PathState, &'static str) {
    let uses = agent.path_uses(at(ms), Token(token)).expect("a managed connection");
    let of = uses.iter().find(|one| one.path == NR).expect("the path");
    (of.wanted, of.state, of.reason.rule)
}

#[test]
fn a_connection_says_why_it_has_no_subflow_over_a_path() {
    let mut agent = agent(Mode::Aggregate);
    (1..=3).for_each(|token| connect(&mut agent, token));
    assert_eq!(over_nr(&agent, 1, 1), (Active, Closed, "subflow.due"));
    let mut create = None;
    while let Some(output) = agent.poll(at(1)) {
        if let crosslane_core::agent::Output::Command(crosslane_core::actuator::Command::Mptcp(_, command)) = output
            && command.token() == Token(1)
        {
            create = Some(command);
        }
    }
    assert_eq!(over_nr(&agent, 1, 1), (Active, Closed, "subflow.opening"));
    let create @ Some(Command::CreateSubflow { remote, .. }) = create else { panic!("{create:?}") };
    agent.handle(at(2), Event::Refused(create.expect("a command"), Refusal::Other(110)).into());
    assert_eq!(over_nr(&agent, 2, 1), (Active, Closed, "subflow.failed"));
    agent.handle(at(3), Event::Address { path: NR, local: None, if_index: 2 }.into());
    assert_eq!(over_nr(&agent, 3, 1), (Active, Closed, "subflow.address"));
    assert_eq!(agent.path_uses(at(3), Token(9)), None);
    let views = agent.connections(Some(Token(1)), 1);
    assert_eq!((views.len(), views[0].token, views[0].peer), (1, Token(2), Some(remote)));
    assert_eq!((views[0].subflows[0].path, views[0].subflows[0].state), (LTE, Active));
    assert_eq!((agent.connections(None, 9).len(), agent.connection_count()), (3, 3));
}

#[test]
fn a_connection_says_what_happened_last_to_it() {
    let mut agent = agent(Mode::Backup);
    connect(&mut agent, 1);
    poll_all(&mut agent, 1);
    let [local, remote] = [([10, 0, 1, 2], 50_000), ([10, 9, 0, 1], 443)].map(SocketAddr::from);
    let subflow = Subflow { local, remote, local_id: AddressId(1), remote_id: AddressId(0), backup: true };
    agent.handle(at(9), Event::Mptcp(mptcp::Event::SubflowEstablished { token: Token(1), subflow }).into());
    poll_all(&mut agent, 300);
    link(&mut agent, 1000, LTE, false);
    poll_all(&mut agent, 1000);
    let history = agent.history(Token(1));
    let happened: Vec<_> = history.iter().map(|one| (one.path, one.what)).collect();
    let expected = [
        (None, ConnectionEvent::Began),
        (Some(LTE), ConnectionEvent::Opened(Active)),
        (Some(NR), ConnectionEvent::Opened(Backup)),
        (Some(LTE), ConnectionEvent::Closed(CloseCause::Unwanted)),
        (Some(NR), ConnectionEvent::Set(Active)),
    ];
    let without_promotion = &expected[..4];
    assert_eq!(happened, without_promotion, "a backup carries while a subflow over a lost path is closed");
    assert_eq!(history[3].reason.as_deref(), Some("the interface went down"));
    let closed = Subflow { local: SocketAddr::from(([10, 0, 0, 2], 40_001)), local_id: AddressId(0), ..subflow };
    agent.handle(
        at(1050),
        Event::Mptcp(mptcp::Event::SubflowClosed { token: Token(1), subflow: closed, error: 0 }).into(),
    );
    poll_all(&mut agent, 1050);
    let history = agent.history(Token(1));
    assert_eq!(history.iter().map(|one| (one.path, one.what)).collect::<Vec<_>>(), expected);
    assert_eq!(history[4].reason.as_deref(), Some("lte is lost: the interface went down"));
    assert!(agent.history(Token(9)).is_empty());
}

fn volume(agent: &mut Agent, ms: u64, path: PathId, volume: Volume) {
    agent.handle(at(ms), Input::Volume(path, volume, Reason::plain("volume", "by the test")));
}

#[test]
fn a_path_with_little_volume_left_carries_only_while_no_other_is_good() {
    let mut agent = agent(Mode::Aggregate);
    volume(&mut agent, 10, LTE, Volume::Scarce);
    assert_eq!(states(&agent), [Backup, Active]);
    assert!(arguments(&agent, LTE).contains(&("volume", false)));
    link(&mut agent, 20, NR, false);
    assert_eq!(states(&agent), [Active, Closed], "no other is good");
    link(&mut agent, 30, NR, true);
    agent.handle(at(40), Input::Prefer(Some(Preferred { path: LTE, until: None })));
    assert_eq!(states(&agent), [Active, Backup], "a request precedes it");
    agent.handle(at(50), Input::Prefer(None));
    volume(&mut agent, 60, LTE, Volume::Available);
    assert_eq!(states(&agent), [Active, Active]);
}

#[test]
fn a_path_whose_volume_is_used_up_carries_nothing_whatever_happens() {
    let mut agent = agent(Mode::Backup);
    volume(&mut agent, 10, LTE, Volume::Exhausted);
    assert_eq!(states(&agent), [Closed, Active]);
    agent.handle(at(20), Input::Prefer(Some(Preferred { path: LTE, until: None })));
    assert_eq!(states(&agent), [Closed, Active], "a request changes nothing");
    link(&mut agent, 30, NR, false);
    assert_eq!(states(&agent)[0], Closed, "nor does the loss of the other");
    connect(&mut agent, 1);
    poll_all(&mut agent, 40);
    let uses = agent.path_uses(at(40), Token(1)).expect("a connection");
    assert_eq!(uses[0].wanted, Closed);
    agent.handle(at(50), Input::Prefer(None));
    link(&mut agent, 50, NR, true);
    volume(&mut agent, 60, LTE, Volume::Available);
    assert_eq!(states(&agent), [Active, Backup], "a new period begins");
}
