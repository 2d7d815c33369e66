//! What an agent believes of the paths of a transfer: it sees the radio, and so a path that fades before it fails.

use std::time::Duration;

use crosslane_core::assess::Belief;
use crosslane_core::path::Transport;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Late;
use crosslane_core::transfer::multipath::sender::{Sender, Write};

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A sender over a preferred and an expensive path, which both stand, with an object due in a minute.
fn sender(beliefs: [Belief; 2]) -> Sender {
    let mut sender = Sender::new(Late::GiveUp, &[0.1, 0.5]);
    for (path, belief) in beliefs.into_iter().enumerate() {
        sender.open(at(0), path);
        sender.on_belief(path, belief);
    }
    sender.submit(40_000, 0, at(0), Some(at(60_000))).unwrap();
    sender.review(at(0));
    sender
}

fn carrying(sender: &mut Sender) -> Vec<usize> {
    (0..2).filter(|path| sender.poll(at(0), *path).is_some()).collect()
}

#[test]
fn a_doubted_path_gets_no_piece_while_another_is_good() {
    for (belief, path) in
        [(Belief::Unknown, 0), (Belief::Good, 0), (Belief::Fading, 1), (Belief::Lost, 1), (Belief::Stalled, 1)]
    {
        assert_eq!(carrying(&mut sender([belief, Belief::Good])), [path], "{belief:?}");
        // A belief that comes later, and goes again.
        let mut later = sender([Belief::Good; 2]);
        later.on_belief(0, belief);
        later.review(at(0));
        assert_eq!(carrying(&mut later), [path], "{belief:?}");
        let mut again = sender([belief, Belief::Good]);
        again.on_belief(0, Belief::Good);
        again.review(at(0));
        assert_eq!(carrying(&mut again), [0], "{belief:?}");
    }
}

#[test]
fn the_least_doubted_paths_carry_where_none_is_good() {
    assert_eq!(carrying(&mut sender([Belief::Fading; 2])), [0, 1]);
    assert_eq!(carrying(&mut sender([Belief::Lost; 2])), [0, 1]);
    assert_eq!(carrying(&mut sender([Belief::Lost, Belief::Fading])), [1]);
}

/// Its pieces go over another one at once, not when nothing has come over it for 300 ms.
#[test]
fn what_is_in_flight_on_a_path_believed_lost_is_sent_over_another_soon() {
    let repeated_after = |belief: Belief| {
        let mut sender = sender([Belief::Good; 2]);
        while sender.poll(at(0), 0).is_some() {}
        sender.on_belief(0, belief);
        let transport = Transport { unacked: 28, rtt: Duration::from_millis(10), ..Transport::IDLE };
        (10..500).step_by(10).find(|ms| {
            sender.on_transport(at(*ms), 0, &transport);
            sender.review(at(*ms));
            std::iter::from_fn(|| sender.poll(at(*ms), 1)).any(|write| matches!(write, Write::Piece { .. }))
        })
    };
    assert_eq!(repeated_after(Belief::Lost), Some(60));
    assert!(repeated_after(Belief::Fading) >= Some(300));
}
