//! More connections than there is room for.

use super::*;

/// One more than there is room for, by events.
fn begin(manager: &mut Manager, number: u32) {
    let (token, subflow) = (Token(number), subflow(0, 0, false));
    manager.handle(at(0), &Event::Created { token, subflow, server_side: false });
    manager.handle(at(0), &Event::Established { token, subflow, server_side: false });
}

fn listed(connections: u32) -> Vec<ConnectionSnapshot> {
    (0..connections).map(|number| seen(Token(number), &[])).collect()
}

#[test]
fn connections_beyond_the_limit_are_said_once_and_counted() {
    let mut manager = manager();
    manager.want(at(0), &[Active, Closed]);
    let most = MAX_CONNECTIONS as u32;
    (0..most).for_each(|number| begin(&mut manager, number));
    assert_eq!((manager.poll_notice(), manager.left_out()), (None, 0));
    (most..most + 100).for_each(|number| begin(&mut manager, number));
    assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 100));
    // Others come and go.
    for number in 0..50 {
        manager.handle(at(0), &Event::Closed { token: Token(number) });
        begin(&mut manager, 2 * most + 2 * number);
        begin(&mut manager, 2 * most + 2 * number + 1);
    }
    assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 150));
    assert_eq!((manager.poll_notice(), manager.poll_notice()), (Some(Notice::TooMany), None));
}

#[test]
fn a_list_counts_no_connection_again() {
    let mut manager = manager();
    manager.want(at(0), &[Active, Closed]);
    for now in 0..3 {
        manager.resync(at(now), &listed(5000));
        assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 5000 - MAX_CONNECTIONS as u64));
    }
    assert_eq!((manager.poll_notice(), manager.poll_notice()), (Some(Notice::TooMany), None));
}
