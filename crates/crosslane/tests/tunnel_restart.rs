//! State that survives a killed agent, the time until its successor takes over, and the watchdog.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::thread::{self, sleep};
use std::time::Duration;

use crate::program::agent::{self, Agent};
use crate::program::can_drive;
use crate::program::tunnelled::{INNER, World};
use crosslane::testbed::{Namespace, Route, Wiring};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const PORT: u16 = 7004;
/// An address behind the gateway.
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// True if a reply of the other endpoint arrives in time; one request every 20 ms.
fn is_answered(world: &World, to: Ipv4Addr, within: Duration) -> bool {
    let bind = |address: Ipv4Addr| move || UdpSocket::bind((address, PORT));
    let server = world.testbed.server.enter(bind(Ipv4Addr::UNSPECIFIED)).unwrap().unwrap();
    let client = world.testbed.vehicle.enter(bind(Ipv4Addr::UNSPECIFIED)).unwrap().unwrap();
    client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    server.set_nonblocking(true).unwrap();
    (0..within.as_millis() / 20).any(|_| {
        drop(client.send_to(b"there?", (to, PORT)));
        let replied = client.recv(&mut [0; 10]).is_ok();
        while let Ok((_, from)) = server.recv_from(&mut [0; 10]) {
            drop(server.send_to(b"here", from));
        }
        replied
    })
}

fn table(namespace: &Namespace, name: &str) -> String {
    namespace.enter(|| fs::read_to_string(format!("/proc/thread-self/net/{name}"))).unwrap().unwrap()
}

#[test]
fn routes_over_the_interface_survive_a_killed_agent_and_are_removed_by_a_regular_exit() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let vehicle_ns = &world.testbed.vehicle;
    let gateway = world.start_gateway();
    let vehicle = world.start_vehicle();
    let route = || {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index("crosslane1").unwrap();
        wiring
            .add_route(Route { to: Some(BEHIND.into()), interface, via: None, source: None, table: None, metric: 5 })
            .unwrap();
    };
    vehicle_ns.enter(route).unwrap();
    let behind = || {
        let mut wiring = Wiring::open().unwrap();
        let lo = wiring.index("lo").unwrap();
        wiring.add_address(lo, BEHIND, 32).unwrap();
    };
    world.testbed.server.enter(behind).unwrap();
    assert!(is_answered(&world, BEHIND, Duration::from_secs(2)));
    vehicle.kill();
    let has_route = || table(vehicle_ns, "route").lines().any(|line| line.starts_with("crosslane1\t0100580A"));
    assert!(has_route(), "{}", table(vehicle_ns, "route"));
    // The next agent is configured without the IPv6 address, which must be removed.
    let v4_only = world.vehicle(1, &["lte", "its-g5"]).replace(", \"fd77::2/64\"", "");
    let vehicle = Agent::start(vehicle_ns, &v4_only);
    assert!(has_route(), "{}", table(vehicle_ns, "route"));
    assert!(is_answered(&world, BEHIND, Duration::from_secs(2)));
    assert!(
        !table(vehicle_ns, "if_inet6").contains("fd770000000000000000000000000002"),
        "an address of the previous agent is left"
    );
    vehicle.end();
    assert!(!table(vehicle_ns, "dev").contains("crosslane1"), "the interface is removed when its agent ends");
    drop(gateway);
}

#[test]
fn a_tunnel_whose_interface_another_program_removes_is_started_again() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let _agents = world.start();
    assert!(is_answered(&world, INNER, Duration::from_secs(2)));
    for (namespace, name) in [(&world.testbed.vehicle, "crosslane1"), (&world.testbed.server, "crosslane0")] {
        let remove = || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index(name).unwrap();
            wiring.remove_interface(interface).unwrap();
        };
        namespace.enter(remove).unwrap();
        assert!(is_answered(&world, INNER, Duration::from_secs(8)), "{name}");
    }
}

#[test]
fn a_gateway_killed_during_a_transfer_can_be_restarted_at_once() {
    if !can_drive() {
        return;
    }
    let world = World::wired(1000.0);
    let (mut gateway, vehicle) = world.start();
    assert!(is_answered(&world, INNER, Duration::from_secs(2)));
    for _ in 0..3 {
        let flood = || UdpSocket::bind((INNER, 0)).unwrap();
        let flood = world.testbed.server.enter(flood).unwrap();
        let sends = thread::spawn(move || {
            for _ in 0..20_000 {
                drop(flood.send_to(&[7; 1300], ("10.77.0.2", 9)));
            }
        });
        sleep(Duration::from_millis(100));
        // The successor starts before the kernel has released all resources.
        gateway.signal(Signal::SIGKILL);
        let next = world.start_gateway();
        drop(std::mem::replace(&mut gateway, next));
        assert!(is_answered(&world, INNER, Duration::from_secs(3)));
        sends.join().unwrap();
    }
    drop(vehicle);
}

/// A thread that is stopped with ptrace until this is dropped.
struct StoppedThread(libc::pid_t);

impl StoppedThread {
    fn new(process: u32, name: &str) -> StoppedThread {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap().path());
        let named =
            |task: &std::path::PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
        let task: libc::pid_t =
            tasks.into_iter().find(named).unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        // SAFETY: neither reads or writes memory of this process.
        let results =
            unsafe { [libc::ptrace(libc::PTRACE_SEIZE, task, 0, 0), libc::ptrace(libc::PTRACE_INTERRUPT, task, 0, 0)] };
        assert_eq!(results, [0, 0]);
        // SAFETY: nothing is written.
        assert_eq!(unsafe { libc::waitpid(task, std::ptr::null_mut(), libc::__WALL) }, task);
        StoppedThread(task)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

#[test]
fn the_watchdog_is_notified_only_while_every_thread_of_the_tunnel_runs() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let workdir = TempDir::new().unwrap();
    let (events, ready) = (workdir.path().join("events"), workdir.path().join("ready"));
    let notify_socket = UnixDatagram::bind(&ready).unwrap();
    notify_socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut command = agent::command(workdir.path(), &world.vehicle(1, &["lte"]), &events, &ready);
    let child = world.testbed.vehicle.spawn(command.env("WATCHDOG_USEC", "200000")).unwrap();
    let agent = Agent { workdir, child };
    let next = || {
        let mut buffer = [0; 20];
        let length = notify_socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    let notifications: Vec<_> = (0..6).map(|_| next().unwrap()).collect();
    assert!(notifications.contains(&"READY=1".to_owned()), "{notifications:?}");
    assert!(notifications.iter().filter(|text| *text == "WATCHDOG=1").count() == 5, "{notifications:?}");
    for thread in ["tunnel-send", "tunnel-receive"] {
        let stopped = StoppedThread::new(agent.child.id(), thread);
        notify_socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        let count = std::iter::from_fn(next).count();
        assert!(count < 60, "{thread} hangs, and the watchdog was still notified {count} times");
        drop(stopped);
        notify_socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(next().as_deref(), Some("WATCHDOG=1"), "{thread} runs again");
    }
    agent.end_by(Signal::SIGTERM);
}
