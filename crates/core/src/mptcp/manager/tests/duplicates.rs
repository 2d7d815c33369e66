//! Several subflows over one path.

use super::*;

/// A further subflow over path 1, from another port.
fn again(port: u16) -> Subflow {
    Subflow { local: local(1, port), ..subflow(1, 2, false) }
}

fn destroy_port(port: u16) -> Command {
    Command::DestroySubflow { token: TOKEN, local: local(1, port), remote: server(), lost: false }
}

#[test]
fn of_subflows_that_come_late_over_one_path_the_first_stays() {
    let mut manager = with_two_subflows([Active, Active]);
    for port in [2000, 2001] {
        manager.handle(at(100), &Event::SubflowEstablished { token: TOKEN, subflow: again(port) });
    }
    assert_eq!(drain(&mut manager, at(100)), [destroy_port(2000), destroy_port(2001)]);
}

#[test]
fn an_accepted_connection_keeps_all_of_them() {
    let mut manager = manager();
    manager.set_wanted(&wanted([Active, Active]));
    manager.handle(at(0), &Event::Established { token: TOKEN, subflow: subflow(1, 0, false), server_side: true });
    manager.handle(at(1), &Event::SubflowEstablished { token: TOKEN, subflow: again(2000) });
    assert_eq!(drain(&mut manager, at(1)), []);
}
