//! More connections than the limit.

use super::*;

/// Opens a connection, by events.
fn begin(manager: &mut Manager, number: u32) {
    let (token, subflow) = (Token(number), subflow(0, 0, false));
    manager.handle(at(0), &Event::Created { token, subflow, server_side: false });
    manager.handle(at(0), &Event::Established { token, subflow, server_side: false });
}

fn listed(connections: u32) -> Vec<ConnectionSnapshot> {
    (0..connections).map(|number| snapshot(Token(number), &[])).collect()
}

#[test]
fn connections_beyond_the_limit_are_reported_once_and_counted() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Closed]));
    let max = MAX_CONNECTIONS as u32;
    (0..max).for_each(|number| begin(&mut manager, number));
    assert_eq!((manager.poll_notice(), manager.left_out()), (None, 0));
    (max..max + 100).for_each(|number| begin(&mut manager, number));
    assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 100));
    // Some close and others open.
    for number in 0..50 {
        manager.handle(at(0), &Event::Closed { token: Token(number) });
        begin(&mut manager, 2 * max + 2 * number);
        begin(&mut manager, 2 * max + 2 * number + 1);
    }
    assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 150));
    assert_eq!((manager.poll_notice(), manager.poll_notice()), (Some(Notice::TooMany), None));
}

#[test]
fn a_list_counts_no_connection_twice() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Closed]));
    for now in 0..3 {
        manager.resync(at(now), &listed(5000));
        assert_eq!((manager.connections(), manager.left_out()), (MAX_CONNECTIONS, 5000 - MAX_CONNECTIONS as u64));
    }
    assert_eq!((manager.poll_notice(), manager.poll_notice()), (Some(Notice::TooMany), None));
}
