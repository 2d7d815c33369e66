//! The controller as a process at a gateway, with units and vehicles that report to it, and strangers that attack it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::program::controller::{CAR, Gateway, HOME, LISTEN, next_hop, report, role, runtime, unit};
use crate::program::{can_drive, crosslane, squat};
use crosslane::clock::Clock;
use crosslane::controller::admission::BURST_EACH;
use crosslane::controller::status::{Refused, Status};
use crosslane::roadside::channel::{INITIATION_BYTES, RESPONSE_BYTES, initiate};
use crosslane::roadside::link::{Link, LinkEvent};
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::roadside::messages::{Announcement, MAX_ANNOUNCEMENT_BYTES, Report, Role, VERSION};
use nix::sys::signal::Signal;

/// Waits for an event that `wanted` accepts.
async fn until<T>(link: &mut Link, mut wanted: impl FnMut(LinkEvent) -> Option<T>) -> T {
    let mut seen = Vec::new();
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let event = link.next().await;
            seen.push(format!("{event:?}"));
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    });
    let found = found.await.ok();
    found.unwrap_or_else(|| panic!("only {seen:?}"))
}

/// Waits without blocking the links.
async fn until_true(what: &str, is: impl Fn() -> bool) {
    for _ in 0..500 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} never");
}

async fn up(link: &mut Link) {
    until(link, |event| matches!(event, LinkEvent::Up).then_some(())).await;
}

async fn serving(link: &mut Link, wanted: bool) {
    let is = |event| match event {
        LinkEvent::Announcement(Announcement::Serving { station: CAR, serves }) => (serves == wanted).then_some(()),
        _ => None,
    };
    until(link, is).await;
}

/// The connection of unit 1, which serves the vehicle.
async fn first_unit(gateway: &Gateway) -> Link {
    let mut one = gateway.unit_link(1);
    up(&mut one).await;
    one.send(report(true, true));
    serving(&mut one, true).await;
    one
}

async fn down(link: &mut Link) -> String {
    until(link, |event| if let LinkEvent::Down(error) = event { Some(error.to_string()) } else { None }).await
}

fn is_served_by(status: &Status, unit: &str) -> bool {
    status.vehicles[0].serving.as_deref() == Some(unit)
}

#[test]
fn a_home_address_follows_the_unit_that_carries_and_stays_there_when_the_controller_is_gone() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let controller = gateway.start();
    gateway.inside(|| {
        runtime().block_on(async {
            let (mut one, mut two) = (gateway.unit_link(1), gateway.unit_link(2));
            up(&mut one).await;
            up(&mut two).await;
            one.send(report(true, true));
            serving(&mut one, true).await;
            assert_eq!(gateway.next_hop(), Some(next_hop(1)));
            two.send(report(true, true));
            // The old unit serves until the route has changed.
            one.send(report(false, false));
            serving(&mut two, true).await;
            serving(&mut one, false).await;
            assert_eq!(gateway.next_hop(), Some(next_hop(2)));

            drop(controller);
            assert!(down(&mut two).await.contains("following the controller at 127.0.0.1:4761"));
            assert_eq!(gateway.next_hop(), Some(next_hop(2)));

            // The next controller has nothing but what it finds and what units report.
            let clock = Clock::start();
            let next = gateway.start();
            let found = gateway.status().unwrap();
            assert!(is_served_by(&found, "rsu2"), "{found:#?}");
            up(&mut one).await;
            up(&mut two).await;
            one.send(report(true, true));
            two.send(report(true, true));
            serving(&mut two, true).await;
            until_true("both units report", || gateway.status().unwrap().vehicles[0].units.len() == 2).await;
            println!("after its start a controller knew all in {:.3} s", clock.now().as_secs_f64());
            assert_eq!(gateway.next_hop(), Some(next_hop(2)));
            next.end();
            assert_eq!(gateway.next_hop(), Some(next_hop(2)), "an end in order leaves the routes, too");
        });
    });
}

/// Prints when each redirect began and was done (ns since 1970), and to which unit.
#[test]
#[ignore = "needs a switch; `make e2e-openflow` runs it"]
fn a_home_address_is_led_through_a_switch() {
    let socket = std::env::var("CROSSLANE_OPENFLOW_SOCKET").unwrap();
    let gateway = Gateway::new();
    let keys = format!("redirect = \"openflow\"\nopenflow_socket = {socket:?}\n[log]");
    gateway.write(&gateway.configuration.replace("[log]", &keys));
    let controller = gateway.start();
    gateway.inside(|| {
        runtime().block_on(async {
            let mut links = [gateway.unit_link(1), gateway.unit_link(2)];
            for link in &mut links {
                up(link).await;
            }
            links[0].send(report(true, true));
            serving(&mut links[0], true).await;
            for turn in 0..40 {
                tokio::time::sleep(Duration::from_micros(250_000 + 3_700 * (turn % 3))).await;
                links.swap(0, 1);
                let begin = nanos();
                links[0].send(report(true, true));
                links[1].send(report(false, false));
                serving(&mut links[0], true).await;
                println!("redirect {begin} {} rsu{}", nanos(), 2 - turn % 2);
            }
            until_true("the first unit serves", || is_served_by(&gateway.status().unwrap(), "rsu1")).await;
            assert_eq!(gateway.next_hop(), None, "no route of the kernel");
        });
    });
    controller.end();
}

fn nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// Sends bytes on a new connection, and reads until the controller closes it.
fn send_raw(bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(LISTEN) else { return };
    drop(stream.write_all(bytes));
    drop(stream.set_read_timeout(Some(Duration::from_secs(10))));
    drop(stream.read_to_end(&mut Vec::new()));
}

/// An authenticated connection on which `messages` are sent, and then `raw`; the announcements that arrive.
fn converse(gateway: &Gateway, key: &PrivateKey, messages: &[&[u8]], raw: &[u8]) -> Vec<Announcement> {
    let mut stream = TcpStream::connect(LISTEN).unwrap();
    let (initiation, frame) = initiate(key, &gateway.controller.public()).unwrap();
    stream.write_all(&frame).unwrap();
    let mut answer = [0; RESPONSE_BYTES];
    stream.read_exact(&mut answer).unwrap();
    let (mut sealer, mut opener) = initiation.finish(&answer, MAX_ANNOUNCEMENT_BYTES).unwrap();
    let mut frames = Vec::new();
    messages.iter().for_each(|message| sealer.seal(message, &mut frames).unwrap());
    frames.extend(raw);
    stream.write_all(&frames).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut received = Vec::new();
    drop(stream.read_to_end(&mut received));
    opener.push(&received);
    let mut announcements = Vec::new();
    while let Ok(Some(message)) = opener.next() {
        announcements.push(Announcement::decode(message).unwrap());
    }
    announcements
}

fn encoded(report: &Report) -> Vec<u8> {
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    bytes
}

fn refusal(announcements: &[Announcement]) -> &str {
    match announcements {
        [Announcement::Refused { reason }] => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn forged_garbled_and_unknown_messages_are_refused_and_counted_and_the_others_go_on() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let controller = gateway.start();
    gateway.inside(|| {
        runtime().block_on(async {
            first_unit(&gateway).await;
        });
        send_raw(
            b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n0123456789012345678901234567890123456789012345678901234567890",
        );
        send_raw(&[0xff; 1000]);
        let hello = encoded(&Report::Hello { version: VERSION, role: role(2) });
        let (two, unknown) = (&gateway.units[1], PrivateKey::generate().unwrap());
        let of_unknown = converse(&gateway, &unknown, &[&hello], &[]);
        assert!(refusal(&of_unknown).contains("is not in its configuration; add"), "{of_unknown:?}");
        let of_version = converse(&gateway, two, &[&[1, VERSION + 1, 0]], &[]);
        assert!(refusal(&of_version).contains("version 2, and its own 1; install"), "{of_version:?}");
        // A first message that is none, a frame that no key made, and one after the other the wrong lengths.
        assert_eq!(converse(&gateway, two, &[b"\x07nonsense"], &[]), []);
        for raw in [
            &[
                0, 40, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
                9, 9, 9, 9, 9, 9, 9, 9,
            ][..],
            &[0xff, 0xff],
            &[0, 0],
        ] {
            let announced = converse(&gateway, two, &[&hello], raw);
            assert!(!announced.iter().any(|of| matches!(of, Announcement::Refused { .. })), "{announced:?}");
        }
        // A recorded handshake, sent again, does not authenticate.
        let (_, recorded) = initiate(two, &gateway.controller.public()).unwrap();
        assert_eq!(recorded.len(), INITIATION_BYTES);
        let mut replayed = recorded.clone();
        replayed.extend([0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
        send_raw(&replayed);
    });
    let status = gateway.await_status("all is counted", |status| {
        let Refused { forged, unknown_key, version, malformed, .. } = status.refused;
        (forged, unknown_key, version, malformed) == (3, 1, 1, 4)
    });
    assert!(is_served_by(&status, "rsu1"), "{status:#?}");
    assert_eq!(gateway.next_hop(), Some(next_hop(1)));
    assert!(gateway.events().contains("while serving a peer at 127.0.0.1: the key"), "{}", gateway.events());
    controller.end();
}

#[test]
fn a_flood_of_connections_is_limited_and_does_not_end_those_that_stand() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let _controller = gateway.start();
    gateway.inside(|| {
        runtime().block_on(async {
            let mut one = first_unit(&gateway).await;
            let flood: Vec<_> = (0..400).filter_map(|_| TcpStream::connect(LISTEN).ok()).collect();
            assert!(flood.len() > BURST_EACH as usize);
            // Not a keepalive of the standing connection is missed: it would be down after 3 s.
            let quiet = tokio::time::timeout(Duration::from_secs(5), down(&mut one));
            assert!(quiet.await.is_err(), "the flood ended a connection");
        });
    });
    let status = gateway.await_status("the flood is counted", |status| status.refused.forged >= 16);
    assert!(status.refused.limited >= 400 - u64::from(BURST_EACH) - 60, "{:?}", status.refused);
}

#[test]
fn a_second_controller_is_refused_with_a_sentence_that_names_the_first() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let _controller = gateway.start();
    let file = gateway.folder.path().join("controller.toml");
    let run = || crosslane(gateway.folder.path(), &["controller", "--config", file.to_str().unwrap()]);
    let second = gateway.inside(run);
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(second.sentence().contains("listens on 127.0.0.1:4761; end that one first"), "{second:?}");
    // Without a controller, the status says so.
    let elsewhere = crosslane(gateway.folder.path(), &["controller", "status"]);
    assert!(elsewhere.sentence().contains("none runs in this network namespace; start `crosslane controller"));
    let shown = gateway.inside(|| crosslane(gateway.folder.path(), &["controller", "status"]));
    assert!(shown.stdout.contains(&HOME.to_string()) && shown.stdout.contains("rsu2"), "{shown:?}");
    let shown = gateway.inside(|| crosslane(gateway.folder.path(), &["controller", "status", "--json"]));
    assert_eq!(serde_json::from_str::<Status>(&shown.stdout).unwrap().units.len(), 2);
}

#[test]
fn a_new_unit_of_the_configuration_is_announced_to_the_vehicles_and_a_faulty_file_changes_nothing() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let controller = gateway.start();
    gateway.inside(|| {
        runtime().block_on(async {
            let mut car = Link::start(gateway.follower(&gateway.car, Role::Vehicle));
            let units = |event| match event {
                LinkEvent::Announcement(Announcement::Units(units)) => Some(units),
                _ => None,
            };
            let before = until(&mut car, units).await;
            assert_eq!(before.iter().map(|unit| unit.name.as_str()).collect::<Vec<_>>(), ["rsu1", "rsu2"]);
            assert_eq!(before[1].inner.0.to_string(), "10.82.0.7");
            gateway.write(&gateway.configuration.replace("host = 7", "host = 1"));
            controller.signal(Signal::SIGHUP);
            until_true("the fault", || gateway.events().contains("has no host 1")).await;
            gateway.write(&(gateway.configuration.clone() + &unit(3, &PrivateKey::generate().unwrap())));
            controller.signal(Signal::SIGHUP);
            let after = until(&mut car, units).await;
            assert_eq!(after.iter().map(|unit| unit.name.as_str()).collect::<Vec<_>>(), ["rsu1", "rsu2", "rsu3"]);
        });
    });
}

#[test]
fn a_unit_unlike_the_configuration_is_refused_with_the_difference() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let _controller = gateway.start();
    let refusal = |key: &PrivateKey, role: Role| {
        gateway.inside(|| runtime().block_on(async { down(&mut Link::start(gateway.follower(key, role))).await }))
    };
    let prefix = refusal(&gateway.units[0], role(2));
    assert!(prefix.contains("it refuses: its prefix is 10.82.0.0/24, and that of unit \"rsu1\""), "{prefix}");
    let vehicle = refusal(&gateway.car, role(1));
    assert!(vehicle.contains("its key is that of a vehicle"), "{vehicle}");
    let unknown = refusal(&PrivateKey::generate().unwrap(), role(1));
    assert!(unknown.contains("is not in its configuration; add a [[unit]]"), "{unknown}");
    let mut other = gateway.follower(&gateway.units[0], role(1));
    other.controller_key = PrivateKey::generate().unwrap().public();
    let key = gateway.inside(|| runtime().block_on(async { down(&mut Link::start(other)).await }));
    assert!(key.contains("compare `controller_key`"), "{key}");
    assert_eq!(gateway.status().unwrap().refused.contradicting, 2);
}

#[test]
fn a_controller_works_while_another_user_s_program_has_the_name_of_its_socket() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let squatter = squat(&gateway.namespace, "crosslane-controller");
    let controller = gateway.start();
    assert!(gateway.events().contains("a program of another user listens at @crosslane-controller"));
    drop(squatter);
    gateway.await_status("the name is free", |_| true);
    controller.end();
}

#[test]
fn a_controller_answers_again_after_it_had_no_descriptor_for_a_connection() {
    if !can_drive() {
        return;
    }
    let gateway = Gateway::new();
    let controller = gateway.start();
    gateway.await_status("it answers", |_| true);
    let limit = |soft: &str| {
        let pid = controller.child.id().to_string();
        let done = std::process::Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={soft}:")]).status();
        assert!(done.unwrap().success());
    };
    limit("3");
    let waits = gateway.inside(|| {
        let name = SocketAddr::from_abstract_name("crosslane-controller").unwrap();
        let stream = UnixStream::connect_addr(&name).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        stream
    });
    limit("1024");
    assert!(gateway.status().is_some(), "it has descriptors again");
    drop(waits);
    controller.end();
}
