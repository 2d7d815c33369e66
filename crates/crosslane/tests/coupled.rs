//! Coupled congestion control (LIA) in this kernel: `crosslane cc`, and two MPTCP subflows against TCP flows through one
//! bottleneck with random loss.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::program::{crosslane, not_run};
use crosslane::clock::Clock;
use crosslane::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::{EmulatedLink, Emulator};
use crosslane::testbed::{PathPlan, Route, SERVER, Testbed, Wiring, prepare_privileges, vehicle_address};
use crosslane_core::link::{Bottleneck, DirectionParams, Link, Loss, QueueLimit};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections of each kind: more make the ratio steadier.
const CONNECTIONS: usize = 3;
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(10);

/// Keeps LIA registered; removes it if it was not registered before.
struct Registered {
    before: bool,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Registered {
    /// None, after printing the reason, where the kernel refuses.
    fn new() -> Option<Registered> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = status()["registered"] == true;
        let loaded = cc("load");
        if loaded.code != Some(0) {
            let refusal = loaded.sentence();
            assert!(!refusal.contains("verifier rejects"), "{refusal}");
            // Not the harness's output, which it captures: BPF needs root of the machine, in CI too.
            drop(writeln!(std::io::stderr(), "NOT RUN: {refusal}"));
            return None;
        }
        Some(Registered { before, _one_at_a_time: one_at_a_time })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.before {
            cc("unload");
        }
    }
}

fn cc(command: &str) -> crate::program::ProgramOutput {
    crosslane(Path::new("/"), &["cc", command])
}

fn status() -> Value {
    serde_json::from_str(&crosslane(Path::new("/"), &["cc", "status", "--json"]).stdout).unwrap()
}

#[test]
fn lia_stays_registered_after_load_until_unload() {
    let Some(registered) = Registered::new() else { return };
    let offered = || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let shown = status();
    assert_eq!(
        (&shown["name"], &shown["registered"], &shown["registered_by"]),
        (&"lia".into(), &true.into(), &"map".into())
    );
    assert!(offered().split_whitespace().any(|name| name == "lia"));
    let again = cc("load");
    assert_eq!((again.code, status()), (Some(0), shown), "a second load changes nothing");
    if registered.before {
        return;
    }
    assert_eq!(cc("unload").stdout, "lia: not registered\n");
    assert!(!offered().split_whitespace().any(|name| name == "lia"));
    assert_eq!(cc("unload").code, Some(0), "a second unload changes nothing");
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("s.toml"),
        crate::program::SCENARIO.replacen("duration_s", "congestion = \"lia\"\nduration_s", 1),
    )
    .unwrap();
    assert_eq!(crosslane(folder.path(), &["check", "s.toml"]).code, Some(0), "a check needs no kernel");
    let refused = crosslane(folder.path(), &["drive", "s.toml", "--strategy", "kernel"]);
    let expected = "this kernel has no congestion control `lia`; run `crosslane cc load` as root first";
    assert_eq!((refused.code, refused.sentence().contains(expected)), (Some(2), true), "{refused:?}");
}

#[test]
fn two_coupled_subflows_take_about_what_one_tcp_flow_takes() {
    let Some((_registered, mut testbed)) = prepare(&["shared"]) else { return };
    let _emulator = emulate(&mut testbed, &[0.003]);
    let kinds = [(Protocol::MPTCP, "lia"), (Protocol::MPTCP, "reno"), (Protocol::TCP, "lia"), (Protocol::TCP, "reno")];
    assert!(in_three_attempts(|| {
        let [lia, uncoupled, alone, reno] = carried(&testbed, kinds);
        let [lia, uncoupled, alone] = [lia, uncoupled, alone].map(|bytes| bytes / reno);
        println!("two subflows, LIA: {lia:.2} of a Reno flow; Reno: {uncoupled:.2}; TCP with LIA: {alone:.2}");
        lia < 0.8 * uncoupled && (0.6..1.5).contains(&lia) && (0.6..1.5).contains(&alone)
    }));
}

#[test]
fn the_path_with_less_loss_carries_most_and_the_sum_is_not_far_below_it() {
    let Some((_registered, mut testbed)) = prepare(&["good", "bad"]) else { return };
    let emulator = emulate(&mut testbed, &[0.001, 0.01]);
    let [lia, best] = carried(&testbed, [(Protocol::MPTCP, "lia"), (Protocol::TCP, "reno")]);
    let report = emulator.stop(&testbed).unwrap();
    // Only the subflows of MPTCP use it, from the beginning on.
    let bad = report.links[1].up.delivered_bytes as f64 * MEASURED.as_secs_f64() / (WARM_UP + MEASURED).as_secs_f64();
    let (share, total) = (bad / lia, lia / best);
    println!(
        "two subflows, LIA, 0.1 and 1 % loss: {total:.2} of a Reno flow on the better path; worse path {share:.2}"
    );
    assert!((0.02..0.4).contains(&share), "the path with more loss carried {share:.2}");
    assert!((0.5..1.7).contains(&total), "LIA took {total:.2} of a Reno flow on the better path");
}

/// True if one of three attempts succeeds: on a busy machine round-trip times vary, and with them all rates.
fn in_three_attempts(attempt: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(attempt).take(3).any(|succeeded| succeeded)
}

/// LIA registered, and a testbed with these paths.
fn prepare(paths: &[&str]) -> Option<(Registered, Testbed)> {
    let registered = Registered::new()?;
    if prepare_privileges().is_err_and(|error| !not_run(&error.to_string())) {
        return None;
    }
    let plan = |(metric, name): (usize, &&str)| PathPlan { name: (*name).to_owned(), metric: metric as u32 };
    let testbed = Testbed::new(&paths.iter().enumerate().map(plan).collect::<Vec<_>>()).unwrap();
    let last = *paths.last().unwrap();
    let (second, limits) = (vehicle_address(1), Limits { subflows: 8, add_addr_accepted: 8 });
    let shared = paths.len() == 1;
    let of_vehicle = || {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index(last).unwrap();
        if shared {
            wiring.add_address(interface, second, 32).unwrap();
        }
        select_path_manager(PathManager::Kernel).unwrap();
        let mut endpoints = EndpointSocket::open().unwrap();
        endpoints.set_limits(limits).unwrap();
        endpoints.add(&Endpoint::subflow(second.into())).unwrap();
    };
    let of_server = || {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index(last).unwrap();
        if shared {
            let route = Route {
                to: Some(second.into()),
                interface,
                via: None,
                source: Some(SERVER.into()),
                table: None,
                metric: 0,
            };
            wiring.add_route(route).unwrap();
        }
        select_path_manager(PathManager::Kernel).unwrap();
        EndpointSocket::open().unwrap().set_limits(limits).unwrap();
    };
    testbed.vehicle.enter(of_vehicle).unwrap();
    testbed.server.enter(of_server).unwrap();
    Some((registered, testbed))
}

/// Links with these losses and 20 ms one way, whose rate does not limit.
fn emulate(testbed: &mut Testbed, losses: &[f64]) -> Emulator {
    let links = testbed.take_devices().into_iter().zip(losses).map(|(devices, &loss)| {
        let params = DirectionParams {
            bottleneck: Bottleneck::Rate { bit_s: 200e6 },
            delay: crosslane_core::time::Duration::from_millis(20),
            loss: Loss::Independent(loss),
            queue: QueueLimit::Packets(1000),
            codel: None,
        };
        let link = Link::new(7, &devices.name, params.clone(), params);
        EmulatedLink { devices: vec![devices], link }
    });
    Emulator::start(Clock::start(), links.collect(), None).unwrap()
}

/// Bytes that the connections of each kind carry to the server at the same time.
fn carried<const N: usize>(testbed: &Testbed, kinds: [(Protocol, &str); N]) -> [f64; N] {
    let received = [const { AtomicU64::new(0) }; N];
    let done = AtomicBool::new(false);
    let counts = || received.each_ref().map(|bytes| bytes.load(Ordering::Relaxed) as f64);
    thread::scope(|scope| {
        for (number, &(protocol, congestion)) in kinds.iter().enumerate() {
            for connection in 0..CONNECTIONS {
                let port = 5001 + (number * CONNECTIONS + connection) as u16;
                let (sender, mut receiver, listener) = connect(testbed, protocol, congestion, port);
                let (received, done) = (&received[number], &done);
                scope.spawn(move || {
                    let _listener = listener;
                    let mut buffer = vec![0; 65536];
                    while !done.load(Ordering::Relaxed) {
                        let bytes = receiver.read(&mut buffer).unwrap_or(0);
                        received.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                });
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _ = (&sender).write(&[7; 65536]);
                    }
                });
            }
        }
        thread::sleep(WARM_UP);
        let begin = counts();
        thread::sleep(MEASURED);
        let end = counts();
        done.store(true, Ordering::Relaxed);
        std::array::from_fn(|number| end[number] - begin[number])
    })
}

/// A connection to the server: the sender with that congestion control, the receiver, and the listener, which joins need.
/// Calls wait 200 ms at most.
fn connect(testbed: &Testbed, protocol: Protocol, congestion: &str, port: u16) -> (Socket, Socket, Socket) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).unwrap();
    let listen = || {
        let listener = socket();
        listener.set_reuse_address(true).unwrap();
        // MPTCP accepts joins only on the wildcard address.
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into()).unwrap();
        listener.listen(1).unwrap();
        listener
    };
    let listener = testbed.server.enter(listen).unwrap();
    let dial = || {
        let sender = socket();
        sender.set_tcp_congestion(congestion.as_bytes()).unwrap();
        sender.bind(&SocketAddr::from((vehicle_address(0), 0)).into()).unwrap();
        sender.connect(&SocketAddr::from((SERVER, port)).into()).unwrap();
        sender
    };
    let sender = testbed.vehicle.enter(dial).unwrap();
    let receiver = listener.accept().unwrap().0;
    for socket in [&sender, &receiver] {
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    (sender, receiver, listener)
}
