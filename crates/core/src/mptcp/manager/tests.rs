use super::super::{AddressId, Subflow};
use super::*;
use crate::path::Rat;
use PathState::{Active, Backup, Closed};
use proptest::prelude::*;

mod duplicates;
mod limit;
mod lost;
mod network;

const TOKEN: Token = Token(7);
const OVERLAP_MS: u64 = 20;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn local(path: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, path + 1, 0, 2], port))
}

fn server() -> SocketAddr {
    SocketAddr::from(([10, 255, 0, 1], 80))
}

fn subflow(path: u8, local_id: u8, backup: bool) -> Subflow {
    Subflow {
        local: local(path, 1000 + u16::from(path)),
        remote: server(),
        local_id: AddressId(local_id),
        remote_id: AddressId(0),
        backup,
    }
}

fn wanted(states: [PathState; 2]) -> Wanted {
    states.into_iter().collect()
}

fn manager() -> Manager {
    let spec = |path: u8, rat| PathSpec {
        name: "path".into(),
        rat,
        local: Some(local(path, 0).ip()),
        if_index: 0,
        radio: None,
    };
    let paths = Vec::from([spec(0, Rat::Ieee80211p), spec(1, Rat::Lte)]);
    Manager::new(paths, Duration::from_millis(OVERLAP_MS))
}

fn drain(manager: &mut Manager, now: Instant) -> Vec<Command> {
    core::iter::from_fn(|| manager.poll(now)).map(|(_, command)| command).collect()
}

/// A connection over path 0.
fn with_one_subflow(states: [PathState; 2]) -> Manager {
    let mut manager = manager();
    manager.set_wanted(&wanted(states));
    manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
    manager
}

/// A connection over path 0, and a second subflow over path 1.
fn with_two_subflows(states: [PathState; 2]) -> Manager {
    let mut manager = with_one_subflow(states);
    drain(&mut manager, at(0));
    let second = subflow(1, 2, false);
    manager.handle(at(1), &Event::SubflowEstablished { token: TOKEN, subflow: second });
    drain(&mut manager, at(1));
    manager
}

fn create(path: u8, local_id: u8, backup: bool) -> Command {
    let (local, remote) = (local(path, 0).ip(), server());
    Command::CreateSubflow { token: TOKEN, local_id: AddressId(local_id), local, if_index: 0, remote, backup }
}

fn cancel(path: u8) -> Command {
    Command::CancelJoin { token: TOKEN, local: local(path, 0).ip(), remote: server() }
}

fn destroy(path: u8) -> Command {
    Command::DestroySubflow { token: TOKEN, local: subflow(path, 0, false).local, remote: server(), lost: false }
}

/// Of a path that is lost.
fn destroy_lost(path: u8) -> Command {
    Command::DestroySubflow { token: TOKEN, local: subflow(path, 0, false).local, remote: server(), lost: true }
}

fn set_backup(path: u8, backup: bool) -> Command {
    Command::SetBackup { token: TOKEN, local: subflow(path, 0, false).local, remote: server(), backup }
}

fn withdraw(id: u8) -> Command {
    Command::Withdraw { token: TOKEN, local_id: AddressId(id) }
}

fn closed(path: u8, error: u8) -> Event {
    Event::SubflowClosed { token: TOKEN, subflow: subflow(path, 2, false), error }
}

fn opened(path: u8) -> Event {
    Event::SubflowEstablished { token: TOKEN, subflow: subflow(path, 2, false) }
}

fn snapshot(token: Token, subflows: &[Subflow]) -> ConnectionSnapshot {
    let (local, remote) = (local(0, 1000), server());
    ConnectionSnapshot { token, local, remote, server_side: false, subflows: subflows.to_vec(), opening: Vec::new() }
}

/// Number of commands within `ms` milliseconds, each handled by `answer`.
fn commands_within(
    manager: &mut Manager,
    from: u64,
    ms: u64,
    answer: impl Fn(&mut Manager, Instant, Command),
) -> usize {
    let mut count = 0;
    for now in (from..from + ms).map(at) {
        // More than a thousand in a millisecond is an endless loop.
        for _ in 0..1000 {
            let Some((_, command)) = manager.poll(now) else { break };
            count += usize::from(!matches!(command, Command::CancelJoin { .. }));
            answer(manager, now, command);
        }
    }
    count
}

#[test]
fn a_subflow_that_is_older_than_the_address_of_its_path_is_managed_as_any_other() {
    let mut manager = manager();
    manager.set_address(at(0), PathId(0), None, 0);
    manager.paths.former.clear();
    let mut manager_after = |gone: bool| {
        manager.set_wanted(&wanted([Active, Active]));
        manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
        if gone {
            manager.handle(at(0), &Event::SubflowClosed { token: TOKEN, subflow: subflow(0, 0, false), error: 0 });
        }
        manager.set_address(at(1), PathId(0), Some(local(0, 0).ip()), 0);
        let created = drain(&mut manager, at(1));
        manager.set_wanted(&wanted([Backup, Active]));
        manager.handle(at(3), &opened(1));
        let demoted = drain(&mut manager, at(3 + OVERLAP_MS));
        manager.handle(at(4), &Event::Closed { token: TOKEN });
        manager.set_address(at(5), PathId(0), None, 0);
        manager.paths.former.clear();
        (created, demoted)
    };
    assert_eq!(manager_after(false), ([create(1, 2, false)].into(), [set_backup(0, true)].into()));
    let closed = manager_after(true).0;
    assert!(
        closed
            .iter()
            .any(|command| matches!(command, Command::CreateSubflow { local: from, .. } if *from == local(0, 0).ip())),
        "{closed:?}"
    );
}

#[test]
fn a_refused_demotion_is_abandoned_after_some_attempts() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Backup, Active]));
    let refuse = |manager: &mut Manager, now, command| manager.refused(now, &command, Refusal::Other(22));
    let tries = commands_within(&mut manager, 1000, 60_000, refuse);
    assert!((2..=10).contains(&tries), "{tries} commands");
    assert_eq!(manager.next_wakeup(), None);
    manager.set_wanted(&wanted([Active, Active]));
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(100_001)), [set_backup(0, true)], "wanted again, it is retried");
}

#[test]
fn a_subflow_that_is_reset_at_once_is_a_failed_attempt() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.handle(at(5000), &closed(1, 104));
    let reset = |manager: &mut Manager, now: Instant, command| {
        if matches!(command, Command::CreateSubflow { .. }) {
            manager.handle(now, &opened(1));
            manager.handle(now + Duration::from_millis(1), &closed(1, 104));
        }
    };
    let tries = commands_within(&mut manager, 5000, 60_000, reset);
    assert!((3..=12).contains(&tries), "{tries} commands in a minute");
}

#[test]
fn the_limit_of_a_peer_is_detected_and_reported_once() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.handle(at(5000), &closed(1, 104));
    let reset = |manager: &mut Manager, now: Instant, command| {
        if matches!(command, Command::CreateSubflow { .. }) {
            manager.handle(now, &opened(1));
            manager.handle(now, &closed(1, 104));
        }
    };
    let tries = commands_within(&mut manager, 5000, 50_000, reset);
    assert!((3..=7).contains(&tries), "{tries} commands");
    assert_eq!(manager.poll_notice(), Some(Notice::PeerLimit { peer: server().ip(), subflows: 0 }));
    assert_eq!(manager.poll_notice(), None);
    assert!(commands_within(&mut manager, 55_000, 600_000, reset) <= 12, "retried, rarely");
    assert_eq!(manager.poll_notice(), None);
}

#[test]
fn a_connection_that_the_kernel_does_not_know_is_forgotten() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Closed, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [destroy(0)]);
    manager.refused(at(1000), &destroy(0), Refusal::UnknownConnection);
    assert_eq!((manager.connections(), manager.next_wakeup()), (0, None));
}

#[test]
fn a_connection_of_the_in_kernel_path_manager_is_ignored_and_reported_once() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Backup, Active]));
    let refuse = |manager: &mut Manager, now, command| manager.refused(now, &command, Refusal::NotOurs);
    assert_eq!(commands_within(&mut manager, 1000, 1000, refuse), 1);
    manager.set_wanted(&wanted([Active, Backup]));
    manager.resync(at(4000), &[snapshot(TOKEN, &[subflow(0, 0, false)])]);
    assert_eq!(commands_within(&mut manager, 4000, 1000, refuse), 0);
    assert_eq!(manager.poll_notice(), Some(Notice::NotOurs { token: TOKEN }));
    assert_eq!(manager.poll_notice(), None);
}

#[test]
fn the_last_subflow_keeps_an_address_that_is_gone_until_another_exists() {
    let mut manager = with_one_subflow([Active, Closed]);
    manager.set_address(at(1000), PathId(0), None, 5);
    assert_eq!(drain(&mut manager, at(1000)), []);
    let address = IpAddr::from([10, 9, 0, 2]);
    manager.set_address(at(2000), PathId(0), Some(address), 5);
    let (remote, local_id) = (server(), AddressId(1));
    let reopened =
        Command::CreateSubflow { token: TOKEN, local_id, local: address, if_index: 5, remote, backup: false };
    assert_eq!(drain(&mut manager, at(2000)), [reopened]);
    let other = Subflow { local: SocketAddr::new(address, 9), local_id, ..subflow(0, 0, false) };
    manager.handle(at(2001), &Event::SubflowEstablished { token: TOKEN, subflow: other });
    assert_eq!(drain(&mut manager, at(2001)), [], "not before the peer has confirmed the other");
    assert_eq!(manager.next_wakeup(), Some(at(2021)));
    assert_eq!(drain(&mut manager, at(2021)), [withdraw(0), destroy(0)]);
}

#[test]
fn if_several_addresses_are_gone_no_withdrawal_is_sent_over_them() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_address(at(1000), PathId(0), None, 5);
    manager.set_address(at(1000), PathId(1), Some(IpAddr::from([10, 9, 0, 2])), 5);
    let created = drain(&mut manager, at(1000));
    assert!(matches!(created[..], [Command::CreateSubflow { local_id: AddressId(3), .. }]), "{created:?}");
    let other = Subflow { local: SocketAddr::from(([10, 9, 0, 2], 9)), ..subflow(1, 3, false) };
    manager.handle(at(1040), &Event::SubflowEstablished { token: TOKEN, subflow: other });
    assert_eq!(drain(&mut manager, at(1119)), [], "two RTTs");
    let announce = Command::Announce { token: TOKEN, local_id: AddressId(2), local: local(1, 0) };
    assert_eq!(
        drain(&mut manager, at(1120)),
        [destroy(1), withdraw(0), destroy(0), announce, withdraw(2)],
        "the kernel sends it over the first subflow that is not of that address"
    );
}

#[test]
fn an_address_of_a_failed_attempt_is_withdrawn_too() {
    let mut manager = with_one_subflow([Active, Active]);
    assert_eq!(drain(&mut manager, at(0)), [create(1, 2, false)]);
    manager.handle(at(10), &closed(1, 111));
    manager.set_address(at(20), PathId(1), None, 5);
    assert_eq!(drain(&mut manager, at(20)), [withdraw(2)], "the kernel would remember the pair");
}

#[test]
fn an_address_that_the_kernel_has_under_another_id_gets_a_subflow() {
    let mut manager = with_one_subflow([Active, Active]);
    assert_eq!(drain(&mut manager, at(0)), [create(1, 2, false)]);
    manager.refused(at(1), &create(1, 2, false), Refusal::IdTaken);
    let swept = drain(&mut manager, at(1));
    assert!(swept.contains(&withdraw(2)) && swept.contains(&withdraw(5)) && !swept.contains(&withdraw(0)), "{swept:?}");
    assert_eq!(drain(&mut manager, at(200)), [create(1, 3, false)]);
}

#[test]
fn connections_from_inside_a_tunnel_and_to_this_machine_are_ignored() {
    let mut manager = manager();
    manager.leave_alone(Vec::from([IpAddr::from([10, 99, 0, 2])]));
    manager.set_wanted(&wanted([Active, Active]));
    let inside = Subflow { local: SocketAddr::from(([10, 99, 0, 2], 1)), ..subflow(0, 0, false) };
    manager.handle(at(0), &Event::Established { token: TOKEN, subflow: inside, server_side: false });
    let here = Subflow { remote: SocketAddr::from(([127, 0, 0, 1], 1)), ..subflow(0, 0, false) };
    manager.handle(at(0), &Event::Established { token: Token(8), subflow: here, server_side: false });
    assert_eq!((manager.connections(), drain(&mut manager, at(0))), (0, Vec::new()));
}

#[test]
fn an_event_reconciles_its_own_connection_only() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    for number in 0..1000 {
        let (subflow, second) = (subflow(0, 0, false), subflow(1, 2, false));
        manager.handle(at(0), &Event::Established { token: Token(number), subflow, server_side: false });
        manager.handle(at(0), &Event::SubflowEstablished { token: Token(number), subflow: second });
    }
    assert_eq!((drain(&mut manager, at(0)), manager.queue.len()), (Vec::new(), 0));
    manager.handle(at(1000), &Event::SubflowEstablished { token: Token(500), subflow: subflow(1, 2, false) });
    assert_eq!(manager.queue, [Token(500)]);
}

#[test]
fn each_wanted_path_gets_one_subflow_and_never_two() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    manager.handle(at(0), &Event::Created { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
    assert_eq!(drain(&mut manager, at(0)), [], "not before the connection can take it");
    manager.handle(at(1), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
    assert_eq!(drain(&mut manager, at(1)), [create(1, 2, false)]);
    manager.set_wanted(&wanted([Active, Active]));
    assert_eq!(drain(&mut manager, at(2)), []);
    manager.handle(at(3), &Event::SubflowEstablished { token: TOKEN, subflow: subflow(1, 2, false) });
    assert_eq!(drain(&mut manager, at(3)), []);
    assert_eq!(manager.next_wakeup(), None);
}

#[test]
fn a_swap_promotes_first_and_demotes_after_the_overlap() {
    let mut manager = with_two_subflows([Active, Backup]);
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [set_backup(1, false)]);
    assert_eq!(manager.next_wakeup(), Some(at(1000 + OVERLAP_MS)));
    assert_eq!(drain(&mut manager, at(1000 + OVERLAP_MS)), [set_backup(0, true)]);
    assert_eq!(manager.next_wakeup(), None);
}

#[test]
fn if_another_has_carried_for_the_overlap_the_demotion_is_immediate() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [set_backup(0, true)]);
}

#[test]
fn nothing_is_demoted_before_the_new_subflow_is_established() {
    let mut manager = with_one_subflow([Active, Closed]);
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [create(1, 2, false)]);
    assert_eq!(drain(&mut manager, at(2000)), []);
    manager.handle(at(2050), &Event::SubflowEstablished { token: TOKEN, subflow: subflow(1, 2, false) });
    assert_eq!(drain(&mut manager, at(2050 + OVERLAP_MS)), [set_backup(0, true)]);
}

#[test]
fn a_closed_path_loses_its_subflow_at_once_but_never_the_last_one() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Closed, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [destroy(0)]);
    manager.handle(at(1001), &Event::SubflowClosed { token: TOKEN, subflow: subflow(0, 0, false), error: 0 });
    manager.set_wanted(&wanted([Closed, Closed]));
    assert_eq!(drain(&mut manager, at(2000)), []);
}

#[test]
fn the_first_subflow_is_reopened_with_the_same_id() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Closed, Active]));
    drain(&mut manager, at(1000));
    manager.set_wanted(&wanted([Active, Active]));
    assert_eq!(drain(&mut manager, at(1001)), [], "not while the old one is closing");
    manager.handle(at(1002), &Event::SubflowClosed { token: TOKEN, subflow: subflow(0, 0, false), error: 0 });
    assert_eq!(drain(&mut manager, at(1002)), [create(0, 0, false)]);
}

#[test]
fn a_failed_attempt_is_repeated_after_pauses_that_double() {
    let mut manager = with_one_subflow([Active, Active]);
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(drain(&mut manager, now), [create(1, 2, false)]);
        let failed = Event::SubflowClosed { token: TOKEN, subflow: subflow(1, 2, false), error: 111 };
        manager.handle(now, &failed);
        assert_eq!(drain(&mut manager, now), [], "a pause first");
        let retry = manager.next_wakeup().expect("a retry is planned");
        pauses.push(retry.since(now).as_millis());
        now = retry;
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000]);
}

#[test]
fn an_attempt_without_an_answer_times_out() {
    let mut manager = with_one_subflow([Active, Active]);
    drain(&mut manager, at(0));
    assert_eq!(drain(&mut manager, at(3499)), []);
    assert_eq!(drain(&mut manager, at(3500)), [cancel(1)], "a pause first");
    assert_eq!(drain(&mut manager, at(3600)), [create(1, 2, false)]);
}

#[test]
fn a_path_that_is_wanted_again_starts_without_earlier_pauses() {
    let mut manager = with_one_subflow([Active, Active]);
    let failed = Event::SubflowClosed { token: TOKEN, subflow: subflow(1, 2, false), error: 113 };
    for _ in 0..6 {
        let now = manager.next_wakeup().expect("a retry is planned");
        drain(&mut manager, now);
        manager.handle(now, &failed);
    }
    let now = at(60_000);
    manager.set_wanted(&wanted([Active, Closed]));
    manager.set_wanted(&wanted([Active, Active]));
    assert_eq!(drain(&mut manager, now), [create(1, 2, false)]);
}

#[test]
fn the_accepting_endpoint_opens_nothing_but_may_demote_and_close() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: true });
    assert_eq!(drain(&mut manager, at(0)), []);
    manager.handle(at(1), &Event::SubflowEstablished { token: TOKEN, subflow: subflow(1, 2, false) });
    manager.set_wanted(&wanted([Closed, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [destroy(0)]);
}

#[test]
fn a_resync_finds_existing_connections_and_forgets_those_that_are_gone() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.resync(at(1000), &[snapshot(TOKEN, &[subflow(0, 0, false)])]);
    assert_eq!(drain(&mut manager, at(1000)), [create(1, 2, false)]);
    manager.resync(at(2000), &[]);
    assert_eq!(manager.connections(), 0);
}

#[test]
fn a_refused_demotion_is_not_taken_for_done() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Backup, Active]));
    drain(&mut manager, at(1000));
    manager.refused(at(1001), &set_backup(0, true), Refusal::Other(22));
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(1100)), [set_backup(0, true)]);
}

#[test]
fn an_address_that_goes_is_withdrawn_and_the_next_one_gets_another_id() {
    let mut manager = with_two_subflows([Active, Active]);
    let address = IpAddr::from([10, 9, 0, 2]);
    manager.set_address(at(1000), PathId(1), Some(address), 5);
    let (remote, local_id) = (server(), AddressId(3));
    let reopened =
        Command::CreateSubflow { token: TOKEN, local_id, local: address, if_index: 5, remote, backup: false };
    assert_eq!(drain(&mut manager, at(1000)), [withdraw(2), destroy(1), reopened]);
    manager.handle(at(1001), &Event::SubflowClosed { token: TOKEN, subflow: subflow(1, 2, false), error: 0 });
    assert_eq!(drain(&mut manager, at(1001)), []);
}

#[test]
fn a_connection_found_without_any_subflow_gets_new_ones() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Closed]));
    manager.resync(at(0), &[snapshot(TOKEN, &[])]);
    assert_eq!(drain(&mut manager, at(0)), [create(0, 1, false)]);
}

#[test]
fn a_subflow_that_the_peer_has_not_answered_is_neither_opened_twice_nor_relied_on() {
    let mut manager = with_two_subflows([Active, Active]);
    let opening = Vec::from([subflow(1, 2, false)]);
    manager.resync(at(1000), &[ConnectionSnapshot { opening, ..snapshot(TOKEN, &[subflow(0, 0, false)]) }]);
    assert_eq!(drain(&mut manager, at(1000)), []);
    manager.set_address(at(2000), PathId(0), None, 0);
    assert_eq!(drain(&mut manager, at(3000)), [], "nothing else could carry a withdrawal");
    manager.handle(at(3000), &opened(1));
    assert_eq!(drain(&mut manager, at(4000)), [withdraw(0), destroy(0)]);
}

#[test]
fn a_subflow_whose_address_is_gone_is_not_listed() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_address(at(1000), PathId(1), None, 0);
    assert_eq!(manager.subflows(None).map(|subflow| subflow.path).collect::<Vec<_>>(), [PathId(0)]);
    let found = [0, 1].map(|path| manager.subflow(TOKEN, subflow(path, 2, false).local, server()).is_some());
    assert_eq!(found, [true, false]);
}

#[test]
fn subflows_are_listed_by_the_tokens_of_their_connections() {
    let mut manager = with_two_subflows([Active, Active]);
    let next = Token(TOKEN.0 + 1);
    manager.handle(at(2), &Event::Established { token: next, subflow: subflow(0, 0, false), server_side: false });
    let after = |token| manager.subflows(token).map(|subflow| subflow.token).collect::<Vec<_>>();
    assert_eq!(after(None), [TOKEN, TOKEN, next]);
    assert_eq!(after(Some(TOKEN)), [next]);
    assert_eq!(after(Some(next)), []);
    assert_eq!(manager.subflow(next, local(1, 0), server()), None);
}

#[test]
fn an_address_is_not_withdrawn_while_a_subflow_from_it_may_appear() {
    let mut manager = with_one_subflow([Active, Active]);
    assert_eq!(drain(&mut manager, at(0)), [create(1, 2, false)]);
    manager.set_address(at(1000), PathId(1), None, 0);
    assert_eq!(drain(&mut manager, at(1000)), []);
    manager.handle(at(1100), &opened(1));
    assert_eq!(drain(&mut manager, at(1100)), [withdraw(2), destroy(1)]);
}

/// A kernel with two paths that executes commands or lets them fail.
#[derive(Default)]
struct Kernel {
    open: BTreeMap<u8, bool>,
    ports: u16,
}

impl Kernel {
    fn execute(&mut self, manager: &mut Manager, now: Instant, command: Command, works: bool) {
        let path_of = |manager: &Manager, ip| manager.path_of(ip).map_or(0, |path| path.0);
        match command {
            Command::CreateSubflow { local, local_id, backup, remote, token, .. } => {
                let path = path_of(manager, local);
                assert!(!self.open.contains_key(&path), "asked twice for path {path}");
                self.ports += 1;
                let local = SocketAddr::new(local, 1000 + u16::from(path));
                // As in the kernel: the flag is the peer's, not ours.
                let subflow = Subflow { local, remote, local_id, remote_id: AddressId(0), backup: false };
                if works {
                    self.open.insert(path, backup);
                    manager.handle(now, &Event::SubflowEstablished { token, subflow });
                } else {
                    manager.handle(now, &Event::SubflowClosed { token, subflow, error: 110 });
                }
            }
            Command::DestroySubflow { local, remote, token, .. } => {
                let path = path_of(manager, local.ip());
                assert!(self.open.remove(&path).is_some(), "closed what is not there");
                assert!(!self.open.is_empty(), "closed the last subflow");
                let subflow =
                    Subflow { local, remote, local_id: AddressId(path), remote_id: AddressId(0), backup: false };
                manager.handle(now, &Event::SubflowClosed { token, subflow, error: 0 });
            }
            Command::SetBackup { local, backup, .. } => {
                let path = path_of(manager, local.ip());
                assert_ne!(self.open.insert(path, backup), Some(backup), "set what is set");
                if backup {
                    assert!(self.open.values().any(|backup| !backup), "demoted the last active subflow");
                }
            }
            Command::Announce { .. } | Command::Withdraw { .. } | Command::CancelJoin { .. } => {}
        }
    }
}

proptest! {
    #[test]
    fn every_wanted_state_is_reached_without_interruption(
        wants in proptest::collection::vec((0u8..3, 0u8..3, any::<bool>()), 1..40)
    ) {
        let state = |n| [Closed, Backup, Active][usize::from(n)];
        let mut manager = manager();
        let mut kernel = Kernel::default();
        kernel.open.insert(0, false);
        manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
        let mut now = at(0);
        let mut last = [Closed, Closed];
        for (a, b, works) in wants {
            last = [state(a), state(b)];
            manager.set_wanted(&wanted(last));
            for _ in 0..100 {
                while let Some((_, command)) = manager.poll(now) {
                    kernel.execute(&mut manager, now, command, works);
                }
                match manager.next_wakeup() {
                    Some(at) if at < now + Duration::from_secs(1) => now = at.max(now + Duration::from_millis(1)),
                    _ => break,
                }
            }
            now = now + Duration::from_secs(20);
        }
        for _ in 0..100 {
            while let Some((_, command)) = manager.poll(now) {
                kernel.execute(&mut manager, now, command, true);
            }
            match manager.next_wakeup() {
                Some(at) => now = at.max(now),
                None => break,
            }
        }
        if last.contains(&Active) {
            for (path, wanted) in last.iter().enumerate() {
                let has = kernel.open.get(&(path as u8)).map_or(Closed, |backup| if *backup { Backup } else { Active });
                prop_assert_eq!(has, *wanted, "path {}", path);
            }
        }
    }
}
