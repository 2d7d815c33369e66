//! Networks that do not let MPTCP pass.

use super::*;
use crate::mptcp::{HandshakeCounters, PlainConnection};

/// Answers each request for a subflow over path 1 as a network that removes MP_JOIN does.
fn strip(manager: &mut Manager, now: Instant, command: Command) {
    if let Command::CreateSubflow { token, local, local_id, remote, .. } = command {
        let subflow =
            Subflow { local: SocketAddr::new(local, 4000), remote, local_id, remote_id: AddressId(0), backup: false };
        manager.handle(now, &Event::SubflowClosed { token, subflow, error: 0 });
    }
}

/// No request is answered.
fn drop_silently(_: &mut Manager, _: Instant, _: Command) {}

fn rules(manager: &mut Manager) -> Vec<&'static str> {
    core::iter::from_fn(|| manager.poll_notice()).map(|notice| notice.name()).collect()
}

fn faults(manager: &Manager, now: u64) -> Vec<&'static str> {
    manager.network_faults(at(now)).into_iter().map(|(_, reason)| reason.rule).collect()
}

#[test]
fn a_network_that_removes_mp_join_is_named_and_asked_rarely() {
    let mut manager = with_one_subflow([Active, Active]);
    let soon = commands_within(&mut manager, 0, 1000, strip);
    assert_eq!(soon, 3, "failures until it counts as the network's");
    assert_eq!(rules(&mut manager), ["network.strips-mp-join"]);
    assert_eq!(faults(&manager, 1000), ["network.strips-mp-join"]);
    let uses = manager.path_uses(at(1000), TOKEN).unwrap();
    assert_eq!(uses[1].reason.rule, "subflow.network");
    let later = commands_within(&mut manager, 1000, 600_000, strip);
    assert!((5..=7).contains(&later), "{later} attempts in ten minutes: after 10, 20, 40, 80, 160 and 320 s");
    assert_eq!(rules(&mut manager), [""; 0], "it is reported once");
}

#[test]
fn one_connection_tries_for_all_to_a_peer() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    for token in 0..100 {
        let first = Subflow { local: local(0, 2000 + token), ..subflow(0, 0, false) };
        manager.handle(at(0), &Event::Established { token: Token(token.into()), subflow: first, server_side: false });
    }
    commands_within(&mut manager, 0, 5000, drop_silently);
    assert_eq!(rules(&mut manager), ["network.no-answer"]);
    let next = commands_within(&mut manager, 5000, 60_000, drop_silently);
    assert!((5..=7).contains(&next), "{next}: after pauses of 1, 2, 4, 8, 10, 10 s, each SYN for 3.5 s");
}

/// Every network may have been out of reach: what waits must not wait much longer.
#[test]
fn joins_without_an_answer_are_repeated_soon() {
    let mut manager = with_one_subflow([Active, Backup]);
    commands_within(&mut manager, 0, 15_000, drop_silently);
    assert_eq!(rules(&mut manager), ["network.no-answer"]);
    for from in [15_000, 120_000] {
        let attempts = commands_within(&mut manager, from, 60_000, drop_silently);
        assert!(attempts >= 4, "{attempts} in a minute: each lasts for 3.5 s, pauses for 10 s at most");
        commands_within(&mut manager, from + 60_000, 45_000, drop_silently);
    }
}

#[test]
fn a_join_that_succeeds_ends_it() {
    let mut manager = with_one_subflow([Active, Active]);
    commands_within(&mut manager, 0, 1000, strip);
    rules(&mut manager);
    let open = |manager: &mut Manager, now: Instant, command: Command| {
        if matches!(command, Command::CreateSubflow { .. }) {
            manager.handle(now, &opened(1));
        }
    };
    assert_eq!(commands_within(&mut manager, 1000, 20_000, open), 1);
    assert_eq!(rules(&mut manager), ["network.passes"]);
    assert_eq!(faults(&manager, 21_000), [""; 0]);
}

#[test]
fn another_address_or_the_return_of_a_lost_path_is_another_chance() {
    let mut manager = with_one_subflow([Active, Active]);
    commands_within(&mut manager, 0, 1000, strip);
    manager.set_address(at(1000), PathId(1), Some(IpAddr::from([10, 9, 0, 2])), 0);
    assert_eq!(commands_within(&mut manager, 1000, 10, drop_silently), 2, "the former id is withdrawn, too");
    assert_eq!(faults(&manager, 1010), [""; 0]);

    let mut manager = with_one_subflow([Active, Active]);
    commands_within(&mut manager, 0, 1000, strip);
    manager.set_lost(Vec::from([false, true]));
    manager.set_wanted(&wanted([Active, Closed]));
    manager.set_lost(Vec::from([false, false]));
    manager.set_wanted(&wanted([Active, Active]));
    assert_eq!(commands_within(&mut manager, 3000, 10, drop_silently), 1);
}

#[test]
fn a_path_that_is_to_carry_has_another_chance_if_there_was_no_answer() {
    let mut manager = with_one_subflow([Active, Backup]);
    assert_eq!(commands_within(&mut manager, 0, 61_000, drop_silently), 8);
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(commands_within(&mut manager, 61_000, 10, drop_silently), 1);
    assert_eq!(commands_within(&mut manager, 61_010, 8000, drop_silently), 0);
    manager.set_wanted(&wanted([Active, Backup]));
    assert_eq!(commands_within(&mut manager, 69_010, 3000, drop_silently), 0, "a backup has none");
}

#[test]
fn a_connection_without_a_subflow_does_not_wait() {
    let mut manager = with_one_subflow([Active, Active]);
    commands_within(&mut manager, 0, 1000, strip);
    manager.handle(at(1000), &Event::SubflowClosed { token: TOKEN, subflow: subflow(0, 0, false), error: 104 });
    assert!(commands_within(&mut manager, 1000, 5000, strip) >= 5, "it would end after a minute");
}

#[test]
fn a_lost_path_says_nothing_of_its_network() {
    let mut manager = with_one_subflow([Active, Active]);
    manager.set_lost(Vec::from([false, true]));
    commands_within(&mut manager, 0, 60_000, drop_silently);
    assert_eq!(faults(&manager, 60_000), [""; 0]);
}

#[test]
fn other_peers_over_the_path_are_not_concerned() {
    let mut manager = with_one_subflow([Active, Active]);
    commands_within(&mut manager, 0, 1000, strip);
    let other = Subflow { remote: SocketAddr::from(([10, 255, 0, 9], 80)), ..subflow(0, 0, false) };
    manager.handle(at(1000), &Event::Established { token: Token(9), subflow: other, server_side: false });
    assert_eq!(commands_within(&mut manager, 1000, 10, drop_silently), 1);
}

fn counters(answered: u64, fallbacks: u64, blackholes: u64, disabled: u64) -> HandshakeCounters {
    HandshakeCounters { answered, fallbacks, blackholes, disabled }
}

const PLAIN: PlainConnection =
    PlainConnection { path: PathId(1), peer: IpAddr::V4(core::net::Ipv4Addr::new(10, 255, 0, 1)) };

#[test]
fn a_peer_with_mptcp_that_is_plain_tcp_over_a_path_shows_a_middlebox() {
    let mut manager = with_one_subflow([Active, Active]);
    manager.observe_handshakes(counters(1, 0, 0, 0), &[]);
    manager.observe_handshakes(counters(1, 1, 0, 0), &[PLAIN]);
    manager.observe_handshakes(counters(1, 2, 0, 0), &[PLAIN]);
    assert_eq!(rules(&mut manager), ["network.strips-mp-capable"], "once");
    let again = Subflow { local: local(1, 3000), ..subflow(1, 0, false) };
    manager.handle(at(5), &Event::Established { token: Token(8), subflow: again, server_side: false });
    assert_eq!(rules(&mut manager), ["network.passes"]);
    assert_eq!(faults(&manager, 5), [""; 0]);
}

#[test]
fn a_peer_that_never_had_mptcp_may_have_none() {
    let mut manager = manager();
    manager.observe_handshakes(counters(0, 0, 0, 0), &[]);
    manager.observe_handshakes(counters(0, 1, 0, 0), &[PLAIN]);
    assert_eq!(rules(&mut manager), ["network.no-mptcp"]);
    assert_eq!(faults(&manager, 0), ["network.no-mptcp"]);
    // Over another path it has.
    manager.handle(at(1), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: false });
    assert_eq!(faults(&manager, 1), ["network.strips-mp-capable"]);
}

#[test]
fn a_blackhole_is_reported_until_connections_begin_with_mptcp_again() {
    let mut manager = manager();
    manager.observe_handshakes(counters(1, 0, 3, 5), &[]);
    assert_eq!(faults(&manager, 0), [""; 0], "what was before the agent may be over");
    manager.observe_handshakes(counters(1, 0, 3, 6), &[PLAIN]);
    manager.observe_handshakes(counters(1, 0, 4, 6), &[PLAIN]);
    assert_eq!(rules(&mut manager), ["network.blackhole"]);
    assert_eq!(faults(&manager, 0), ["network.blackhole"]);
    manager.observe_handshakes(counters(2, 0, 4, 7), &[]);
    assert_eq!(rules(&mut manager), ["network.passes"], "the last one without, and then one with MPTCP");
    assert_eq!(faults(&manager, 0), [""; 0]);
}

#[test]
fn a_join_without_an_answer_is_ended_before_the_next_one() {
    let mut manager = with_one_subflow([Active, Active]);
    assert_eq!(drain(&mut manager, at(0)), [create(1, 2, false)]);
    assert_eq!(manager.next_wakeup(), Some(at(3500)));
    assert_eq!(drain(&mut manager, at(3500)), [cancel(1)]);
    // The kernel reports the end of the former one, which is not that of the next one.
    let next = manager.next_wakeup().unwrap();
    assert_eq!(drain(&mut manager, next), [create(1, 2, false)]);
    manager.handle(next, &closed(1, 103));
    assert_eq!(drain(&mut manager, next), []);
    assert_eq!(manager.path_uses(next, TOKEN).unwrap()[1].reason.rule, "subflow.opening");
}

/// Path 1, whose join took this time, was closed, and at 3 s it is wanted in this state again.
fn joins_again(second: PathState, took_ms: u64) -> Manager {
    let mut manager = with_one_subflow([Active, second]);
    drain(&mut manager, at(0));
    manager.handle(at(took_ms), &opened(1));
    manager.set_wanted(&wanted([Active, Closed]));
    drain(&mut manager, at(2000));
    manager.handle(at(2001), &closed(1, 0));
    manager.set_wanted(&wanted([Active, second]));
    manager
}

#[test]
fn where_the_last_join_was_quick_a_lost_syn_is_repeated_sooner_and_at_most_three_times() {
    for (backup, took_ms, expected) in [
        (false, 10, [0, 210, 620, 1430].as_slice()),
        (false, 100, &[0, 410, 1220, 2830]),
        (false, 1000, &[0, 3600]),
        (true, 10, &[0, 3600]),
    ] {
        let second = if backup { Backup } else { Active };
        let mut manager = joins_again(second, took_ms);
        let mut created = Vec::new();
        for ms in 3000..7000 {
            let is_create = |command: &Command| matches!(command, Command::CreateSubflow { .. });
            created.extend(drain(&mut manager, at(ms)).into_iter().filter(is_create).map(|_| ms - 3000));
        }
        assert_eq!(created, expected, "{backup} {took_ms}");
        assert_eq!(faults(&manager, 7000), [""; 0]);
    }
}

#[test]
fn a_join_that_can_not_be_ended_has_been_answered() {
    let mut manager = joins_again(Active, 10);
    drain(&mut manager, at(3000));
    assert_eq!(drain(&mut manager, at(3200)), [cancel(1)]);
    manager.refused(at(3200), &cancel(1), Refusal::UnknownSubflow);
    assert_eq!(drain(&mut manager, at(3300)), []);
    manager.handle(at(3300), &opened(1));
    assert_eq!(drain(&mut manager, at(4000)), []);
}
