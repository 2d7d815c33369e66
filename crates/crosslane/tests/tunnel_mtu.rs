//! What a path carries is found out by probes inside the tunnel, whatever routers, or others in their name, say by ICMP.

#![allow(clippy::unwrap_used)]

mod program;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use crosslane::control::tunnel::Status;
use crosslane::testbed::{Namespace, SERVER, Wiring, vehicle_address};
use crosslane::tunnel::ip::too_big;
use etherparse::PacketBuilder;
use program::agent::Agent;
use program::tunnelled::{INNER, INNER_V6, World};
use program::{CROSSLANE, can_drive};
use socket2::{Domain, Protocol, Socket, Type};

const PORT: u16 = 7003;
/// A router that a forger speaks in the name of.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// Inner MTU of an encrypted tunnel over IPv4 with `mtu` 1500.
const WHOLE: u32 = 1432;

/// Numbered datagrams of so many bytes of IP that must not be cut, one each 2 ms; how many arrive.
fn carried((from, source): (&Namespace, IpAddr), (to, sink): (&Namespace, IpAddr), bytes: usize, count: u32) -> u32 {
    let receiver = to.enter(|| UdpSocket::bind((sink, PORT))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    let sender = from.enter(|| whole(source)).unwrap();
    let payload = bytes - if source.is_ipv4() { 28 } else { 48 };
    let counting = thread::spawn(move || {
        let mut came = 0;
        while receiver.recv(&mut [0; 2000]).is_ok_and(|length| length == payload) {
            came += 1;
        }
        came
    });
    for _ in 0..count {
        // What the interface refuses counts as lost.
        drop(sender.send_to(&vec![7; payload], (sink, PORT)));
        sleep(Duration::from_millis(2));
    }
    counting.join().unwrap()
}

/// A socket whose datagrams nobody cuts.
fn whole(source: IpAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address((source, 0).into()), Type::DGRAM, None).unwrap();
    let (level, name, value) = match source {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
    };
    // SAFETY: the value is an integer that outlives the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    assert_eq!(done, 0);
    socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
    socket.into()
}

/// "Fragmentation needed" in the name of a router, for what the gateway sends to that address.
fn forged(about: Ipv4Addr, mtu: u16) -> Vec<u8> {
    let sent = PacketBuilder::ipv4(SERVER.octets(), about.octets(), 60).udp(4760, 40_000);
    let mut packet = vec![0; sent.size(1400)];
    sent.write_to_slice(&mut packet, &[0; 1400]).unwrap();
    // Not to be cut.
    packet[6] = 0x40;
    too_big(&packet, mtu, ROUTER.into()).unwrap()
}

fn forge(from: &Namespace, about: Ipv4Addr) {
    let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW))).unwrap();
    let raw = from.enter(raw).unwrap();
    for _ in 0..20 {
        raw.send_to(&forged(about, 576), &SocketAddr::from((SERVER, 0)).into()).unwrap();
        sleep(Duration::from_millis(10));
    }
}

fn status(namespace: &Namespace, interface: &str) -> Status {
    let mut command = Command::new(CROSSLANE);
    command.args(["tunnel", "status", "--json", "--interface", interface]).stdin(Stdio::null()).stdout(Stdio::piped());
    let said = namespace.spawn(&mut command).unwrap().wait_with_output().unwrap();
    serde_json::from_slice(&said.stdout).unwrap()
}

fn inner(vehicle: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, vehicle + 1).into()
}

#[test]
fn a_forged_complaint_takes_nothing_from_any_vehicle() {
    if !can_drive() {
        return;
    }
    let world = World::wired(100.0);
    let gateway = world.start_gateway();
    let start = |place, path| Agent::start(&world.testbed.vehicle, &world.vehicle(place, &[path]));
    let vehicles = [start(1, "lte"), start(2, "its-g5")];
    let (server, vehicle) = (&world.testbed.server, &world.testbed.vehicle);
    // The gateway knows where its vehicles are once it has heard them.
    sleep(Duration::from_millis(500));
    for place in 0..2 {
        forge(world.testbed.wires[0].router(), vehicle_address(place));
    }
    for number in [1, 2] {
        for bytes in [1000, 1400] {
            let came = carried((server, INNER.into()), (vehicle, inner(number)), bytes, 100);
            assert!(came >= 95, "{came} of 100 with {bytes} bytes came to vehicle {number}");
        }
        let v6: IpAddr = format!("fd77::{}", number + 1).parse().unwrap();
        let came = carried((server, INNER_V6.into()), (vehicle, v6), 1280, 100);
        assert!(came >= 95, "{came} of 100 came to vehicle {number} over IPv6");
    }
    let told = status(server, "crosslane0");
    let known: Vec<u32> = told.peers.iter().map(|peer| peer.mtu_bytes).collect();
    assert_eq!((told.mtu_bytes, known), (WHOLE, vec![WHOLE; 2]));
    drop((gateway, vehicles));
}

/// The router takes less from now on; with an address it says so.
fn narrow(world: &World, mtu: u32, says_so: bool) {
    let change = || {
        let mut wiring = Wiring::open().unwrap();
        if says_so {
            let interface = wiring.index("vehicle").unwrap();
            wiring.add_address(interface, ROUTER, 32).unwrap();
        }
        wiring.bring_up("server", mtu, 1000).unwrap();
    };
    world.testbed.wires[0].router().enter(change).unwrap();
}

#[test]
fn a_router_that_takes_less_from_now_on_is_found_out_within_seconds_whether_it_says_so_or_not() {
    if !can_drive() {
        return;
    }
    for (mtu, says_so) in [(1400, true), (1400, false), (1300, false)] {
        let world = World::wired(20.0);
        let gateway = world.start_gateway();
        let vehicle = Agent::start(&world.testbed.vehicle, &world.vehicle(1, &["lte"]));
        let to = SocketAddr::from((INNER, PORT));
        let listener = world.testbed.server.enter(|| TcpListener::bind(to)).unwrap().unwrap();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5));
        let mut near = world.testbed.vehicle.enter(connect).unwrap().unwrap();
        let mut far = listener.accept().unwrap().0;
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        thread::spawn(move || while near.write_all(&[7; 65_536]).is_ok() {});
        thread::spawn(move || {
            let mut block = vec![0; 65_536];
            while let Ok(length @ 1..) = far.read(&mut block) {
                counted.fetch_add(length, Relaxed);
            }
        });
        sleep(Duration::from_secs(1));
        assert_eq!(status(&world.testbed.vehicle, "crosslane1").mtu_bytes, WHOLE);
        narrow(&world, mtu, says_so);
        let mut known = WHOLE;
        for _ in 0..40 {
            sleep(Duration::from_millis(100));
            known = status(&world.testbed.vehicle, "crosslane1").mtu_bytes;
            if known < WHOLE {
                break;
            }
        }
        let expected = (mtu - 68).max(1280);
        assert!((expected.saturating_sub(8).max(1280)..=expected).contains(&known), "{known} of {mtu}, {says_so}");
        let before = count.load(Relaxed);
        sleep(Duration::from_secs(3));
        let grown = count.load(Relaxed) - before;
        eprintln!("{grown} bytes in 3 s over {mtu}, {says_so}, with {known} inside");
        assert!(grown > 1_000_000, "{grown} bytes in 3 s over {mtu}, {says_so}");
        let (vehicle_ns, server) = (&world.testbed.vehicle, &world.testbed.server);
        let v6 = "fd77::2".parse().unwrap();
        let came = carried((vehicle_ns, v6), (server, INNER_V6.into()), 1280, 50);
        assert!(came >= 40, "{came} of 50 of what IPv6 needs came over {mtu}");
        drop((gateway, vehicle));
    }
}
