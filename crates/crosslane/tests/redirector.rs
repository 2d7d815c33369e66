//! Home addresses are led by routes of the kernel or by the OpenFlow process, and found again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crosslane::clock::Clock;
use crosslane::netlink::home::{HomeRoute, Owner};
use crosslane::roadside::redirector::{Outcome, Redirector, UnitPlace};
use crosslane::testbed::{Namespace, Route, Wiring};
use crosslane::tun::Tun;
use serde_json::{Value, json};
use tempfile::TempDir;

const HOME: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

fn unit(number: u8) -> UnitPlace {
    UnitPlace { name: format!("rsu{number}"), next_hop: Ipv4Addr::new(10, 90, 0, 10 + number) }
}

thread_local! {
    /// One runtime for each test: a connection belongs to the runtime in which it was made.
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
}

/// Awaits the next outcome.
fn next(redirector: &mut Redirector) -> Outcome {
    RUNTIME.with(|runtime| runtime.block_on(redirector.next()))
}

fn next_hops() -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let routes: Vec<HomeRoute> = Wiring::open().unwrap().home_routes(Owner::Controller).unwrap();
    routes.into_iter().map(|route| (route.to.addr(), route.hop.unwrap().via)).collect()
}

/// Runs in a namespace with a network 10.90.0.0/24, the backhaul.
fn at_the_gateway(test: impl FnOnce() + Send) {
    if !crate::program::can_drive() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let gateway = || {
        let _backhaul = Tun::open("backhaul").unwrap();
        let mut wiring = Wiring::open().unwrap();
        wiring.bring_up("backhaul", 1500, 100).unwrap();
        let index = wiring.index("backhaul").unwrap();
        wiring.add_address(index, Ipv4Addr::new(10, 90, 0, 1), 24).unwrap();
        test();
    };
    namespace.enter(gateway).unwrap();
}

#[test]
fn a_route_that_the_kernel_removed_with_its_interface_is_set_again() {
    at_the_gateway(|| {
        let mut redirector = Redirector::routes().unwrap();
        redirector.lead(HOME, Some(&unit(1)));
        let mut wiring = Wiring::open().unwrap();
        wiring.set_up("backhaul", false).unwrap();
        assert_eq!(next_hops(), []);
        redirector.restore();
        wiring.set_up("backhaul", true).unwrap();
        redirector.restore();
        assert_eq!(next_hops(), [(HOME, unit(1).next_hop)]);
        redirector.lead(HOME, None);
        redirector.restore();
        assert_eq!(next_hops(), []);
    });
}

#[test]
fn a_route_is_replaced_in_place_and_found_by_the_next_controller() {
    at_the_gateway(|| {
        let mut redirector = Redirector::routes().unwrap();
        assert!(matches!(next(&mut redirector), Outcome::Ready));
        assert!(redirector.found().is_empty());
        for number in [1, 2] {
            redirector.lead(HOME, Some(&unit(number)));
            let Outcome::Led { home: HOME, unit: Some(name) } = next(&mut redirector) else { panic!("not led") };
            assert_eq!((name, next_hops()), (unit(number).name, vec![(HOME, unit(number).next_hop)]));
        }
        drop(redirector);
        let mut redirector = Redirector::routes().unwrap();
        assert_eq!(redirector.found(), BTreeMap::from([(HOME, unit(2).next_hop)]));
        for _ in 0..2 {
            redirector.lead(HOME, None);
        }
        assert!(matches!(next(&mut redirector), Outcome::Ready));
        assert!(matches!(next(&mut redirector), Outcome::Led { home: HOME, unit: None }));
        assert!(
            matches!(next(&mut redirector), Outcome::Led { home: HOME, unit: None }),
            "nothing to withdraw is fine"
        );
        assert_eq!(next_hops(), []);
    });
}

#[test]
fn a_route_of_the_administrator_stays() {
    at_the_gateway(|| {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index("backhaul").unwrap();
        let own = Route { to: Some(HOME.into()), interface, via: None, source: None, table: None, metric: 0 };
        wiring.add_route(own).unwrap();
        let mut redirector = Redirector::routes().unwrap();
        redirector.lead(HOME, Some(&unit(1)));
        assert_eq!(next_hops(), [(HOME, unit(1).next_hop)]);
        redirector.lead(HOME, None);
        assert_eq!(next_hops(), []);
        assert!(wiring.add_route(own).is_err(), "it was replaced or removed");
    });
}

#[test]
fn a_next_hop_on_no_network_is_a_fault_and_the_former_way_stays() {
    at_the_gateway(|| {
        let mut redirector = Redirector::routes().unwrap();
        redirector.lead(HOME, Some(&unit(1)));
        let lost = UnitPlace { name: "rsu9".into(), next_hop: Ipv4Addr::new(192, 0, 2, 9) };
        redirector.lead(HOME, Some(&lost));
        assert!(matches!(next(&mut redirector), Outcome::Ready));
        assert!(matches!(next(&mut redirector), Outcome::Led { .. }));
        let Outcome::Failed { home: HOME, fault } = next(&mut redirector) else { panic!("not refused") };
        let sentence = fault.to_string();
        assert!(sentence.starts_with("while setting the route to 10.99.0.7/32 over 192.0.2.9: "), "{sentence}");
        assert!(sentence.ends_with("; check the `next_hop` of unit \"rsu9\""), "{sentence}");
        assert_eq!(next_hops(), [(HOME, unit(1).next_hop)]);
    });
}

/// The OpenFlow process, as far as the socket shows it.
struct Process {
    listener: UnixListener,
    connection: Option<(BufReader<UnixStream>, UnixStream)>,
}

impl Process {
    fn start(socket: &Path) -> Process {
        drop(std::fs::remove_file(socket));
        Process { listener: UnixListener::bind(socket).unwrap(), connection: None }
    }

    /// Answers the next requests by what `answer` adds to their id; returns the requests.
    fn answer(&mut self, count: usize, answer: &Value) -> Vec<Value> {
        let accept = || {
            let stream = self.listener.accept().unwrap().0;
            (BufReader::new(stream.try_clone().unwrap()), stream)
        };
        let (reader, writer) = self.connection.get_or_insert_with(accept);
        let mut requests = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0);
            let mut request: Value = serde_json::from_str(&line).unwrap();
            let mut reply = answer.clone();
            reply["id"] = request["id"].take();
            writeln!(writer, "{reply}").unwrap();
            requests.push(request);
        }
        requests
    }
}

/// Drives the redirector on a thread until `work` is done; returns its outcomes as sentences, with the result.
fn meanwhile<T: Send>(redirector: &mut Redirector, work: impl FnOnce() -> T + Send) -> (T, Vec<String>) {
    std::thread::scope(|scope| {
        let (done, mut is_done) = tokio::sync::oneshot::channel();
        let worker = scope.spawn(|| {
            let result = work();
            // What is answered arrives.
            std::thread::sleep(std::time::Duration::from_millis(100));
            let _ = done.send(());
            result
        });
        let mut outcomes = Vec::new();
        let drive = async {
            loop {
                tokio::select! {
                    outcome = redirector.next() => outcomes.push(outcome),
                    _ = &mut is_done => break,
                }
            }
        };
        RUNTIME.with(|runtime| runtime.block_on(drive));
        (worker.join().unwrap(), outcomes.iter().map(sentence).collect())
    })
}

fn sentence(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Led { home, unit } => format!("{home} to {unit:?}"),
        Outcome::Failed { home, fault } => format!("{home}: {fault}"),
        Outcome::Lost(fault) => format!("lost: {fault}"),
        Outcome::Ready => "ready".into(),
    }
}

#[test]
fn the_openflow_process_gets_the_last_request_of_each_address_whenever_it_starts() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("openflow.sock");
    let mut redirector = Redirector::openflow(socket.clone(), Clock::start());
    redirector.lead(HOME, Some(&unit(1)));
    redirector.lead(HOME, Some(&unit(2)));
    let expected = json!({ "id": null, "home": "10.99.0.7/32", "unit": "rsu2", "next_hop": "10.90.0.12" });
    for round in 0..2 {
        let ((), outcomes) = meanwhile(&mut redirector, || std::thread::sleep(std::time::Duration::from_millis(700)));
        assert_eq!(outcomes.len(), 1, "it is reported once: {outcomes:?}");
        assert!(outcomes[0].starts_with("lost: while talking to the OpenFlow process at "), "{outcomes:?}");
        let ((process, requests), outcomes) = meanwhile(&mut redirector, || {
            let mut process = Process::start(&socket);
            let requests = process.answer(1, &json!({ "done": true }));
            (process, requests)
        });
        assert_eq!(requests, std::slice::from_ref(&expected), "round {round}");
        assert_eq!(outcomes, ["ready", "10.99.0.7 to Some(\"rsu2\")"]);
        drop((process, std::fs::remove_file(&socket)));
    }
}

#[test]
fn an_error_of_the_openflow_process_is_reported_and_a_withdrawn_address_is_forgotten() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("openflow.sock");
    let mut process = Process::start(&socket);
    let mut redirector = Redirector::openflow(socket.clone(), Clock::start());
    redirector.lead(HOME, Some(&unit(1)));
    let (_, outcomes) = meanwhile(&mut redirector, || process.answer(1, &json!({ "error": "no switch is connected" })));
    let expected = "10.99.0.7: while asking the switch about 10.99.0.7 (leading it to unit \"rsu1\"): no switch is \
                    connected";
    assert_eq!(outcomes, ["ready", expected]);
    redirector.lead(HOME, None);
    let (requests, outcomes) = meanwhile(&mut redirector, || process.answer(1, &json!({ "done": true })));
    assert_eq!(requests, [json!({ "id": null, "home": "10.99.0.7/32", "unit": null })]);
    assert_eq!(outcomes, ["10.99.0.7 to None"]);
    process.connection = None;
    redirector.lead(Ipv4Addr::new(10, 99, 0, 8), Some(&unit(1)));
    let (requests, outcomes) = meanwhile(&mut redirector, || process.answer(1, &json!({ "done": true })));
    assert_eq!(requests[0]["home"], "10.99.0.8/32", "the withdrawn one is not sent again");
    assert_eq!(outcomes.iter().filter(|outcome| outcome.starts_with("lost: ")).count(), 1, "{outcomes:?}");
}

#[test]
fn an_answer_that_is_no_json_or_belongs_to_no_request_ends_the_connection_and_nothing_else() {
    for answer in ["garbage\n".to_owned(), "{\"id\":99,\"done\":true}\n".to_owned(), "x".repeat(10_000)] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("openflow.sock");
        let mut process = Process::start(&socket);
        let mut redirector = Redirector::openflow(socket.clone(), Clock::start());
        redirector.lead(HOME, Some(&unit(1)));
        let (_, outcomes) = meanwhile(&mut redirector, || {
            let mut stream = process.listener.accept().unwrap().0;
            drop(stream.write_all(answer.as_bytes()));
            process.answer(1, &json!({ "done": true }))
        });
        let kinds: Vec<&str> = outcomes.iter().map(|outcome| &outcome[..4]).collect();
        assert_eq!(kinds, ["read", "lost", "read", "10.9"], "{outcomes:?}");
    }
}
