//! Packets over emulated links between real namespaces.
#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::fs::MetadataExt;
use std::time::Duration;
use std::{env, fs, io::Read, io::Write, thread};

use crosslane::clock::Clock;
use crosslane::testbed::emulator::{EmulatedLink, Emulator, PacketSink, packet_channel};
use crosslane::testbed::{
    IpVersion, Namespace, PathPlan, SERVER, Testbed, TestbedPlan, prepare_privileges, vehicle_address,
};
use crosslane_core::link::{Bottleneck, Direction, DirectionParams, DropReason, Link, Loss, QueueLimit};
use nix::sys::socket::sockopt::Ipv4RecvTtl;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};

/// False, after printing the reason, where namespaces cannot be created.
fn privileged() -> bool {
    let Err(error) = prepare_privileges() else {
        return true;
    };
    assert!(env::var_os("CI").is_none(), "e2e NOT RUN: {error}");
    eprintln!("e2e NOT RUN: {error}");
    false
}

fn params(bit_s: f64, delay_ms: u64) -> DirectionParams {
    DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s },
        delay: Duration::from_millis(delay_ms),
        loss: Loss::NONE,
        queue: QueueLimit::Packets(100),
        codel: None,
    }
}

fn testbed(paths: &[&str]) -> Testbed {
    let plan = |(metric, name): (usize, &&str)| PathPlan { name: (*name).to_owned(), metric: metric as u32 };
    Testbed::new(&paths.iter().enumerate().map(plan).collect::<Vec<_>>()).unwrap()
}

fn emulate(testbed: &mut Testbed, params: &DirectionParams, sink: Option<PacketSink>) -> Emulator {
    let links = testbed.take_devices().into_iter().map(|devices| {
        let link = Link::new(1, &devices.name, params.clone(), params.clone());
        EmulatedLink { devices: vec![devices], link }
    });
    Emulator::start(Clock::start(), links.collect(), sink).unwrap()
}

fn udp(namespace: &Namespace, address: impl Into<IpAddr>) -> UdpSocket {
    let address = address.into();
    let socket = namespace.enter(|| UdpSocket::bind((address, 5000))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

#[test]
fn a_datagram_arrives_unchanged_after_the_delay_in_both_directions() {
    if !privileged() {
        return;
    }
    for ip in [IpVersion::V4, IpVersion::V6] {
        exchange_datagrams(ip);
    }
}

fn exchange_datagrams(ip: IpVersion) {
    let paths = [("near", 0), ("far", 1)].map(|(name, metric)| PathPlan { name: name.into(), metric });
    let (ip_bytes, first_byte) = if ip == IpVersion::V4 { (1428, 0x45) } else { (1448, 0x60) };
    let mut testbed = Testbed::with(&paths, &TestbedPlan { ip, ..TestbedPlan::default() }).unwrap();
    let (sink, source) = packet_channel();
    let emulator = emulate(&mut testbed, &params(f64::INFINITY, 30), Some(sink));
    let server = udp(&testbed.server, ip.server());
    for place in 0..2 {
        let vehicle = udp(&testbed.vehicle, ip.vehicle(place));
        for (from, to, address) in [(&vehicle, &server, ip.server()), (&server, &vehicle, ip.vehicle(place))] {
            let sent: Vec<u8> = (0..1400).map(|byte| (byte % 251) as u8).collect();
            let clock = Clock::start();
            from.send_to(&sent, (address, 5000)).unwrap();
            let mut received = [0; 2000];
            let (len, _) = to.recv_from(&mut received).unwrap();
            let took_ms = clock.now().as_secs_f64() * 1e3;
            assert_eq!(received[..len], sent);
            assert!((29.9..45.0).contains(&took_ms), "{took_ms} ms");
        }
    }
    let report = emulator.stop(&testbed).unwrap();
    for link in &report.links {
        assert_eq!((link.up.delivered, link.down.delivered), (1, 1), "{}", link.name);
        assert_eq!(link.up.delivered_bytes, ip_bytes);
    }
    let mut records = Vec::new();
    while source.receive(|record| records.push(*record)).is_some() {}
    assert_eq!(records.len(), 4);
    let up: Vec<_> = records.iter().filter(|record| record.direction == Direction::Up).collect();
    assert_eq!(up.iter().map(|record| record.link).collect::<Vec<_>>(), [0, 1]);
    for record in up {
        assert_eq!((u64::from(record.ip_bytes), record.head()[0], record.tries), (ip_bytes, first_byte, 1));
        let took = record.delivered.unwrap().since(record.entered);
        assert!(took >= Duration::from_millis(30));
    }
}

#[test]
fn packets_to_and_from_the_address_of_a_unit_pass_that_unit_and_the_gateway() {
    if !privileged() {
        return;
    }
    let names: Vec<String> = (1..=10).map(|unit| format!("rsu{unit}")).chain(["lte".into()]).collect();
    let plan = |(metric, name): (usize, &String)| PathPlan { name: name.clone(), metric: metric as u32 };
    let units = names[..10].iter().cloned().collect();
    let paths: Vec<PathPlan> = names.iter().enumerate().map(plan).collect();
    let mut testbed = Testbed::with(&paths, &TestbedPlan { units, ..TestbedPlan::default() }).unwrap();
    let emulator = emulate(&mut testbed, &params(f64::INFINITY, 1), None);
    let server = udp(&testbed.server, SERVER);
    // Each router takes one from the time to live of 64.
    for (place, hops) in [(0, 2), (9, 2), (10, 0)] {
        let vehicle = udp(&testbed.vehicle, vehicle_address(place));
        for (from, to, address) in [(&vehicle, &server, SERVER), (&server, &vehicle, vehicle_address(place))] {
            setsockopt(to, Ipv4RecvTtl, &true).unwrap();
            from.send_to(b"hello", (address, 5000)).unwrap();
            assert_eq!(received_ttl(to), 64 - hops, "path {place}");
        }
    }
    let report = emulator.stop(&testbed).unwrap();
    let delivered = report.links.iter().map(|link| link.up.delivered + link.down.delivered);
    assert_eq!(delivered.collect::<Vec<_>>(), [2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2]);
    assert_eq!(testbed.device_drops("rsu1").ok(), None, "the device is gone");
}

/// Receives a datagram; returns its time to live.
fn received_ttl(socket: &UdpSocket) -> i32 {
    let (mut bytes, mut space) = ([0; 10], nix::cmsg_space!(i32));
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).unwrap();
    let ttl = message.cmsgs().unwrap().find_map(|control| match control {
        ControlMessageOwned::Ipv4Ttl(ttl) => Some(ttl),
        _ => None,
    });
    ttl.unwrap()
}

#[test]
fn packets_without_a_source_address_take_the_path_with_the_lowest_metric() {
    if !privileged() {
        return;
    }
    let mut testbed = testbed(&["first", "second"]);
    let emulator = emulate(&mut testbed, &params(f64::INFINITY, 1), None);
    let server = udp(&testbed.server, SERVER);
    udp(&testbed.vehicle, Ipv4Addr::UNSPECIFIED).send_to(b"x", (SERVER, 5000)).unwrap();
    let (_, from) = server.recv_from(&mut [0; 10]).unwrap();
    assert_eq!(from, SocketAddr::from((vehicle_address(0), 5000)));
    drop(emulator.stop(&testbed).unwrap());
}

#[test]
fn a_tcp_connection_gets_the_rate_of_the_link() {
    if !privileged() {
        return;
    }
    let mut testbed = testbed(&["wire"]);
    let emulator = emulate(&mut testbed, &params(20e6, 5), None);
    let listener = testbed.server.enter(|| TcpListener::bind((SERVER, 5001))).unwrap().unwrap();
    let sender = testbed.vehicle.enter(|| TcpStream::connect((SERVER, 5001))).unwrap().unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let total = 4_000_000;
    let writer = thread::spawn(move || (&sender).write_all(&vec![7; total]));
    let clock = Clock::start();
    let mut received = 0;
    let mut buffer = [0; 65536];
    while received < total {
        received += receiver.read(&mut buffer).unwrap();
    }
    let mbit_s = total as f64 * 8.0 / 1e6 / clock.now().as_secs_f64();
    writer.join().unwrap().unwrap();
    assert!((16.0..20.0).contains(&mbit_s), "{mbit_s} Mbit/s");
    let report = emulator.stop(&testbed).unwrap();
    let up = report.links[0].up;
    let accounted = up.delivered + up.dropped.iter().sum::<u64>() + up.unfinished;
    assert_eq!(up.entered, accounted, "every packet is accounted for");
}

#[test]
fn a_silent_link_drops_all_packets_until_it_is_on_again() {
    if !privileged() {
        return;
    }
    let mut testbed = testbed(&["radio"]);
    let emulator = emulate(&mut testbed, &params(f64::INFINITY, 1), None);
    let (vehicle, server) = (udp(&testbed.vehicle, vehicle_address(0)), udp(&testbed.server, SERVER));
    let control = emulator.control();
    control.set_on(0, false).unwrap();
    thread::sleep(Duration::from_millis(5));
    vehicle.send_to(b"lost", (SERVER, 5000)).unwrap();
    thread::sleep(Duration::from_millis(5));
    control.set_on(0, true).unwrap();
    control.set(0, Direction::Up, params(f64::INFINITY, 50)).unwrap();
    thread::sleep(Duration::from_millis(5));
    let clock = Clock::start();
    vehicle.send_to(b"after", (SERVER, 5000)).unwrap();
    let mut received = [0; 10];
    let (len, _) = server.recv_from(&mut received).unwrap();
    assert_eq!(&received[..len], b"after");
    assert!(clock.now().as_secs_f64() >= 0.050, "the new delay applies");
    let report = emulator.stop(&testbed).unwrap();
    assert_eq!(report.dropped(DropReason::Down), 1);
}

#[test]
fn nothing_holds_a_namespace_once_its_testbed_is_dropped() {
    if !privileged() {
        return;
    }
    let mut testbed = testbed(&["wire"]);
    let inode = |namespace: &Namespace| {
        let held = namespace.as_fd().try_clone_to_owned().unwrap();
        fs::File::from(held).metadata().unwrap().st_ino()
    };
    let inodes = [inode(&testbed.vehicle), inode(&testbed.server)];
    let emulator = emulate(&mut testbed, &params(1e6, 1), None);
    assert_ne!(holders(inodes[0]), 0, "the check finds existing holders");
    drop(emulator);
    drop(testbed);
    assert_eq!(inodes.map(holders), [0, 0]);
}

/// Number of descriptors and threads of this process that hold the namespace.
fn holders(inode: u64) -> usize {
    let name = format!("net:[{inode}]");
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("ns/net"));
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    threads
        .chain(descriptors)
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == name.as_str()))
        .count()
}

#[test]
fn the_printed_command_line_enters_the_namespace() {
    if !privileged() {
        return;
    }
    let testbed = testbed(&["wire"]);
    let line = testbed.vehicle.how_to_enter().replace("-- bash", "-- readlink /proc/self/ns/net");
    let inside = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let expected = testbed.vehicle.enter(|| fs::read_link("/proc/thread-self/ns/net")).unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&inside.stdout).trim(), expected.to_string_lossy());
}

#[test]
fn an_invalid_plan_is_reported_in_one_message() {
    if !privileged() {
        return;
    }
    let path = |name: &str| PathPlan { name: name.to_owned(), metric: 0 };
    for (paths, expected) in [
        (vec![], "while planning the testbed's paths: there are 0 paths; give 1 to 64"),
        (vec![path("a"), path("a")], "while planning the testbed's paths: two paths are named \"a\"; rename one"),
        (
            vec![path("sixteen-letters-")],
            "while making the TUN device \"sixteen-letters-\": an interface's name has 1 to 15 letters, digits, - or \
             _; choose another name",
        ),
    ] {
        let error = Testbed::new(&paths).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.exit_code(), 2);
    }
}
