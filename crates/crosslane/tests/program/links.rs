//! A vehicle and a server, connected by two links.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crosslane::clock::Clock;
use crosslane::netlink::endpoints::{EndpointSocket, Limits};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::{EmulatedLink, Emulator};
use crosslane::testbed::wire::{Shape, WirePlan};
use crosslane::testbed::{PathPlan, SERVER, Testbed, TestbedPlan};
use crosslane_core::link::{Bottleneck, DirectionParams, Link, Loss, Middlebox, QueueLimit};
use socket2::{Domain, Protocol, Socket, Type};

/// Two emulated links of the same rate and one-way delay; traffic without a source address uses the first.
pub fn two_links(names: [&str; 2], mbit_s: f64, delay_ms: u64) -> (Testbed, Emulator) {
    unequal_links(names, [mbit_s; 2], delay_ms)
}

/// The same with a rate for each.
pub fn unequal_links(names: [&str; 2], mbit_s: [f64; 2], delay_ms: u64) -> (Testbed, Emulator) {
    links(&names, &mbit_s, delay_ms)
}

/// The same with any number of links.
pub fn links(names: &[&str], mbit_s: &[f64], delay_ms: u64) -> (Testbed, Emulator) {
    links_through(names, mbit_s, delay_ms, &[])
}

/// The same, the first links through these middleboxes.
pub fn links_through(
    names: &[&str],
    mbit_s: &[f64],
    delay_ms: u64,
    middleboxes: &[Option<Middlebox>],
) -> (Testbed, Emulator) {
    let of = |&mbit_s| (mbit_s, delay_ms);
    links_of(names, &mbit_s.iter().map(of).collect::<Vec<_>>(), middleboxes)
}

/// Emulated links, each with its rate in Mbit/s and its one-way delay in ms.
pub fn links_of(names: &[&str], links: &[(f64, u64)], middleboxes: &[Option<Middlebox>]) -> (Testbed, Emulator) {
    let plan = |(metric, name): (usize, &&str)| PathPlan { name: (*name).to_owned(), metric: metric as u32 };
    let plans: Vec<_> = names.iter().enumerate().map(plan).collect();
    let mut testbed = Testbed::new(&plans).unwrap();
    let params = |(mbit_s, delay_ms): (f64, u64)| DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s: mbit_s * 1e6 },
        delay: Duration::from_millis(delay_ms),
        loss: Loss::NONE,
        queue: QueueLimit::Packets(1000),
        codel: None,
    };
    let middleboxes = middleboxes.iter().copied().chain(std::iter::repeat(None));
    let links = testbed.take_devices().into_iter().zip(links).zip(middleboxes);
    let links = links.map(|((devices, &of), middlebox)| {
        let mut link = Link::new(1, &devices.name, params(of), params(of));
        middlebox.into_iter().for_each(|middlebox| link.set_middlebox(middlebox));
        EmulatedLink { devices: vec![devices], link }
    });
    let emulator = Emulator::start(Clock::start(), links.collect(), None).unwrap();
    (testbed, emulator)
}

/// Two shaped veth links, each through a router, with this rate in each direction.
pub fn two_wires(names: [&str; 2], mbit_s: f64) -> Testbed {
    let plan = |(metric, name): (usize, &str)| PathPlan { name: name.to_owned(), metric: metric as u32 };
    let plans: Vec<_> = names.into_iter().enumerate().map(plan).collect();
    let wire = WirePlan { shape: Some(Shape { bit_s: mbit_s * 1e6, queue_ms: 50.0 }) };
    let wires = names.into_iter().map(|name| (name.to_owned(), wire)).collect();
    Testbed::with(&plans, &TestbedPlan { wires, ..TestbedPlan::default() }).unwrap()
}

/// Enables IPv6 in both namespaces.
pub fn allow_ipv6(testbed: &Testbed) {
    for namespace in [&testbed.vehicle, &testbed.server] {
        for conf in ["all", "default"] {
            namespace.set_sysctl(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "0").unwrap();
        }
    }
}

/// An MPTCP connection of the vehicle to port 5001 of the server: its two ends, with a read timeout of 20 s.
pub fn connect(testbed: &Testbed, listener: &Socket) -> (Socket, Socket) {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.connect(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
        socket
    };
    let client = testbed.vehicle.enter(connect).unwrap();
    let server = listener.accept().unwrap().0;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    exchange(&client, &server);
    (client, server)
}

/// The socket on which the server accepts MPTCP connections to port 5001. Its kernel manages the paths.
pub fn listen(testbed: &Testbed, limits: Limits) -> Socket {
    let listen = || {
        select_path_manager(PathManager::Kernel).unwrap();
        EndpointSocket::open().unwrap().set_limits(limits).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.bind(&SocketAddr::from((SERVER, 5001)).into()).unwrap();
        socket.listen(2048).unwrap();
        socket
    };
    testbed.server.enter(listen).unwrap()
}

/// Sends five bytes in each direction.
pub fn exchange(client: &Socket, server: &Socket) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        from.write_all(b"hello").unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
    }
}
