//! Closing of subflows on a path that carries nothing any more.

use super::*;

#[test]
fn an_address_is_withdrawn_over_another_path_before_a_lost_one_is_closed() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_lost(Vec::from([false, true]));
    manager.set_wanted(&wanted([Active, Closed]));
    assert_eq!(drain(&mut manager, at(1000)), [withdraw(2), destroy_lost(1)], "a FIN would go nowhere");
    manager.handle(at(1001), &closed(1, 0));
    manager.set_lost(Vec::from([false, false]));
    manager.set_wanted(&wanted([Active, Active]));
    assert_eq!(drain(&mut manager, at(2000)), [create(1, 3, false)], "the peer has forgotten the id");
}

#[test]
fn the_first_subflow_is_withdrawn_too() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_lost(Vec::from([true, false]));
    manager.set_wanted(&wanted([Closed, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [withdraw(0), destroy_lost(0)]);
}

#[test]
fn a_lost_subflow_is_closed_before_another_is_promoted() {
    let mut manager = with_two_subflows([Active, Backup]);
    manager.handle(at(1), &Event::SubflowPriority { token: TOKEN, subflow: subflow(1, 2, true) });
    manager.set_lost(Vec::from([true, false]));
    manager.set_wanted(&wanted([Closed, Active]));
    assert_eq!(drain(&mut manager, at(1000)), [withdraw(0), destroy_lost(0)], "meanwhile the backup carries as it is");
    manager.handle(at(1001), &Event::SubflowClosed { token: TOKEN, subflow: subflow(0, 0, false), error: 0 });
    assert_eq!(drain(&mut manager, at(1001)), [set_backup(1, false)]);
}

#[test]
fn a_subflow_that_the_peer_has_not_confirmed_is_not_promoted_yet() {
    let mut manager = with_one_subflow([Active, Backup]);
    drain(&mut manager, at(0));
    manager.handle(at(40), &opened(1));
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(119)), [], "the kernel would not find it");
    assert_eq!(manager.next_wakeup(), Some(at(120)));
    assert_eq!(drain(&mut manager, at(120)), [set_backup(1, false)]);
}

#[test]
fn one_that_the_kernel_does_not_find_is_joined_again() {
    let mut manager = with_one_subflow([Active, Backup]);
    drain(&mut manager, at(0));
    manager.handle(at(40), &opened(1));
    manager.set_wanted(&wanted([Backup, Active]));
    assert_eq!(drain(&mut manager, at(120)), [set_backup(1, false)]);
    manager.refused(at(120), &set_backup(1, false), Refusal::UnknownSubflow);
    assert_eq!(drain(&mut manager, at(120)), [destroy_lost(1)], "its last acknowledgement was lost");
    manager.handle(at(121), &closed(1, 0));
    let commands = drain(&mut manager, at(400));
    assert!(matches!(commands[..], [Command::CreateSubflow { backup: false, .. }]), "{commands:?}");
    manager.refused(at(500), &set_backup(0, false), Refusal::UnknownSubflow);
    assert_eq!(drain(&mut manager, at(500)), [], "the only one stays");
}

#[test]
fn an_endpoint_that_accepted_the_connection_withdraws_nothing() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(0, 0, false), server_side: true });
    manager.handle(at(1), &Event::SubflowEstablished { token: TOKEN, subflow: subflow(1, 2, false) });
    manager.set_lost(Vec::from([false, true]));
    manager.set_wanted(&wanted([Active, Closed]));
    assert_eq!(drain(&mut manager, at(1000)), [destroy_lost(1)], "its address is still there");
}

#[test]
fn a_path_that_is_closed_and_carries_is_not_withdrawn() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_wanted(&wanted([Active, Closed]));
    assert_eq!(drain(&mut manager, at(1000)), [destroy(1)]);
}

#[test]
fn a_stalled_subflow_is_closed_separately_if_its_path_is_good_or_backup() {
    for (lost, wanted) in [(false, Active), (false, Backup), (true, Backup)] {
        let mut manager = with_two_subflows([Active, wanted]);
        manager.set_lost(Vec::from([false, lost]));
        drain(&mut manager, at(900));
        manager.abandon(at(1000), TOKEN, PathId(1), server());
        assert_eq!(drain(&mut manager, at(1000)), [destroy_lost(1)]);
    }
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_lost(Vec::from([false, true]));
    manager.set_wanted(&wanted([Active, Closed]));
    manager.abandon(at(1000), TOKEN, PathId(1), server());
    assert_eq!(drain(&mut manager, at(1000)), [withdraw(2), destroy_lost(1)], "the address is withdrawn first");
}

#[test]
fn the_last_resort_is_not_closed() {
    let mut manager = with_two_subflows([Active, Active]);
    manager.set_lost(Vec::from([true, true]));
    manager.abandon(at(1000), TOKEN, PathId(0), server());
    manager.abandon(at(1000), TOKEN, PathId(1), server());
    assert_eq!(drain(&mut manager, at(1000)), []);
}
