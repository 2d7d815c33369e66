use std::net::Ipv4Addr;

use crosslane_core::roadside::messages::VehicleEntry;

use super::*;
use crate::roadside::link::{Follower, Link, LinkEvent};

const LEFT: Report = Report::Left { station: 7 };

struct Pair {
    server: Server,
    link: Link,
}

/// A vehicle follows a server, which knows its key. Loopback needs no privileges.
fn pair() -> Pair {
    let (controller, own) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let server = Server::listen("127.0.0.1:0".parse().unwrap(), controller.clone(), Clock::start()).unwrap();
    server.set_keys(BTreeMap::from([(own.public(), Peer::Vehicle(7))]));
    let (controller, controller_key) = (server.address.to_string(), controller.public());
    let link = Link::start(Follower { controller, controller_key, key: own, role: Role::Vehicle });
    Pair { server, link }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

impl Pair {
    async fn message(&mut self) -> FromPeer {
        let mut arrived = Vec::with_capacity(1);
        timeout(Duration::from_secs(20), self.server.next(&mut arrived)).await.expect("a message arrives");
        arrived.remove(0)
    }

    async fn hello(&mut self) -> (Id, Outbox) {
        match self.message().await {
            FromPeer::Hello { id, peer: Peer::Vehicle(7), role: Role::Vehicle, announcements, .. } => {
                (id, announcements)
            }
            _ => panic!("no hello"),
        }
    }

    async fn event(&mut self) -> LinkEvent {
        timeout(Duration::from_secs(20), self.link.next()).await.expect("an event arrives")
    }
}

#[test]
fn reports_and_announcements_arrive_in_order_however_long() {
    block_on(async {
        let mut pair = pair();
        let (id, outbox) = pair.hello().await;
        let vehicle = VehicleEntry { station: 1, host: 2, home: Ipv4Addr::LOCALHOST };
        let long = Announcement::Vehicles(vec![vehicle; 10_000]);
        assert!(outbox.send(long.clone()) && outbox.send(Announcement::Serving { station: 7, serves: true }));
        assert!(matches!(pair.event().await, LinkEvent::Up));
        assert!(matches!(pair.event().await, LinkEvent::Announcement(of) if of == long));
        assert!(matches!(pair.event().await, LinkEvent::Announcement(Announcement::Serving { .. })));
        (0..100).for_each(|_| pair.link.send(LEFT));
        let mut received = Vec::new();
        while received.len() < 100 {
            let FromPeer::Reports { id: of, reports } = pair.message().await else { panic!("no reports") };
            assert_eq!(of, id);
            received.extend(reports);
        }
        assert_eq!(received, vec![LEFT; 100]);
    });
}

#[test]
fn a_link_connects_again_and_what_was_sent_before_is_dropped() {
    block_on(async {
        let mut pair = pair();
        let (_, outbox) = pair.hello().await;
        assert!(matches!(pair.event().await, LinkEvent::Up));
        drop(outbox);
        let LinkEvent::Down(error) = pair.event().await else { panic!("still up") };
        assert!(
            error.to_string().contains("it closed the connection; see that `crosslane controller` runs"),
            "{error}"
        );
        pair.link.send(LEFT);
        let (_, _outbox) = pair.hello().await;
        assert!(matches!(pair.event().await, LinkEvent::Up));
        pair.link.send(Report::Left { station: 8 });
        let FromPeer::Reports { reports, .. } = pair.message().await else { panic!("no reports") };
        assert_eq!(reports, [Report::Left { station: 8 }]);
    });
}

#[test]
fn a_refusal_is_passed_on_with_its_reason() {
    block_on(async {
        let mut pair = pair();
        let (_, outbox) = pair.hello().await;
        outbox.send(Announcement::Refused { reason: "no room; try again".into() });
        drop(outbox);
        let LinkEvent::Down(error) = pair.event().await else { panic!("it is up") };
        assert!(error.to_string().ends_with("it refuses: no room; try again"), "{error}");
    });
}

#[test]
fn a_peer_that_reads_nothing_cannot_fill_the_memory() {
    block_on(async {
        let mut pair = pair();
        let (_, outbox) = pair.hello().await;
        let sent = (0..MAX_ANNOUNCEMENTS + 10).filter(|_| outbox.send(Announcement::Keepalive)).count();
        assert_eq!(sent, MAX_ANNOUNCEMENTS);
    });
}
