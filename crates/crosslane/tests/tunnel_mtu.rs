//! The path MTU is determined by probes inside the tunnel, independently of genuine or forged ICMP messages.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::tunnelled::{INNER, INNER_V6, World};
use crate::program::{CROSSLANE, can_drive};
use crosslane::control::status::Status;
use crosslane::testbed::{Namespace, SERVER, Wiring, vehicle_address};
use crosslane_core::packet::icmp_too_big::too_big;
use crosslane_core::packet::ip::IpView;
use etherparse::PacketBuilder;
use socket2::{Domain, Protocol, Socket, Type};

const PORT: u16 = 7003;
/// Source address of forged and genuine ICMP messages.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// Inner MTU of an encrypted tunnel over IPv4 with `mtu` 1500.
const FULL_MTU: u32 = 1441;

/// Sends `count` unfragmentable datagrams of `bytes` bytes (with IP header), one every 2 ms; returns how many arrive.
fn delivered((from, source): (&Namespace, IpAddr), (to, sink): (&Namespace, IpAddr), bytes: usize, count: u32) -> u32 {
    let receiver = to.enter(|| UdpSocket::bind((sink, PORT))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    let sender = from.enter(|| unfragmented_socket(source)).unwrap();
    let payload = bytes - if source.is_ipv4() { 28 } else { 48 };
    let counting = thread::spawn(move || {
        let mut received = 0;
        while receiver.recv(&mut [0; 2000]).is_ok_and(|length| length == payload) {
            received += 1;
        }
        received
    });
    for _ in 0..count {
        // Datagrams that the interface rejects count as lost.
        drop(sender.send_to(&vec![7; payload], (sink, PORT)));
        sleep(Duration::from_millis(2));
    }
    counting.join().unwrap()
}

/// A socket whose datagrams are never fragmented.
fn unfragmented_socket(source: IpAddr) -> UdpSocket {
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

/// A forged "fragmentation needed" message of a router about a packet of the gateway to this address.
fn forged(about: Ipv4Addr, mtu: u16) -> Vec<u8> {
    let sent = PacketBuilder::ipv4(SERVER.octets(), about.octets(), 60).udp(4760, 40_000);
    let mut packet = vec![0; sent.size(1400)];
    sent.write_to_slice(&mut packet, &[0; 1400]).unwrap();
    // Don't Fragment.
    packet[6] = 0x40;
    too_big(&IpView::parse(packet).unwrap(), mtu, ROUTER.into()).unwrap()
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
    let output = namespace.spawn(&mut command).unwrap().wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn inner(vehicle: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, vehicle + 1).into()
}

#[test]
fn forged_icmp_reduces_the_mtu_of_no_vehicle() {
    if !can_drive() {
        return;
    }
    let world = World::wired(100.0);
    let gateway = world.start_gateway();
    let start = |place, path| Agent::start(&world.testbed.vehicle, &world.vehicle(place, &[path]));
    let vehicles = [start(1, "lte"), start(2, "its-g5")];
    let (server, vehicle) = (&world.testbed.server, &world.testbed.vehicle);
    // The gateway learns the addresses of its vehicles from their packets.
    sleep(Duration::from_millis(500));
    for place in 0..2 {
        forge(world.testbed.wires[0].router(), vehicle_address(place));
    }
    for number in [1, 2] {
        for bytes in [1000, 1400] {
            let received = delivered((server, INNER.into()), (vehicle, inner(number)), bytes, 100);
            assert!(received >= 95, "{received} of 100 with {bytes} bytes arrived at vehicle {number}");
        }
        let v6: IpAddr = format!("fd77::{}", number + 1).parse().unwrap();
        let received = delivered((server, INNER_V6.into()), (vehicle, v6), 1280, 100);
        assert!(received >= 95, "{received} of 100 arrived at vehicle {number} over IPv6");
    }
    let gateway_status = status(server, "crosslane0");
    let mtus: Vec<u32> = gateway_status.peers.iter().map(|peer| peer.mtu_bytes).collect();
    assert_eq!((gateway_status.mtu_bytes, mtus), (FULL_MTU, vec![FULL_MTU; 2]));
    drop((gateway, vehicles));
}

/// Reduces the MTU of the router. With `sends_icmp` it gets an address, so it can send ICMP errors.
fn reduce_mtu(world: &World, mtu: u32, sends_icmp: bool) {
    let change = || {
        let mut wiring = Wiring::open().unwrap();
        if sends_icmp {
            let interface = wiring.index("vehicle").unwrap();
            wiring.add_address(interface, ROUTER, 32).unwrap();
        }
        wiring.bring_up("server", mtu, 1000).unwrap();
    };
    world.testbed.wires[0].router().enter(change).unwrap();
}

#[test]
fn a_reduced_path_mtu_is_detected_within_seconds_with_or_without_icmp() {
    if !can_drive() {
        return;
    }
    for (mtu, sends_icmp) in [(1400, true), (1400, false), (1300, false)] {
        let world = World::wired(20.0);
        let gateway = world.start_gateway();
        let vehicle = Agent::start(&world.testbed.vehicle, &world.vehicle(1, &["lte"]));
        let to = SocketAddr::from((INNER, PORT));
        let listener = world.testbed.server.enter(|| TcpListener::bind(to)).unwrap().unwrap();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5));
        let mut client = world.testbed.vehicle.enter(connect).unwrap().unwrap();
        let mut server = listener.accept().unwrap().0;
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        thread::spawn(move || while client.write_all(&[7; 65_536]).is_ok() {});
        thread::spawn(move || {
            let mut block = vec![0; 65_536];
            while let Ok(length @ 1..) = server.read(&mut block) {
                counted.fetch_add(length, Relaxed);
            }
        });
        sleep(Duration::from_secs(1));
        assert_eq!(status(&world.testbed.vehicle, "crosslane1").mtu_bytes, FULL_MTU);
        reduce_mtu(&world, mtu, sends_icmp);
        let mut known = FULL_MTU;
        for _ in 0..40 {
            sleep(Duration::from_millis(100));
            known = status(&world.testbed.vehicle, "crosslane1").mtu_bytes;
            if known < FULL_MTU {
                break;
            }
        }
        let expected = (mtu - 59).max(1280);
        assert!((expected.saturating_sub(8).max(1280)..=expected).contains(&known), "{known} of {mtu}, {sends_icmp}");
        let before = count.load(Relaxed);
        let grown = || count.load(Relaxed) - before;
        // The retransmission timeout of TCP may have been doubled meanwhile.
        for _ in 0..100 {
            sleep(Duration::from_millis(100));
            if grown() > 1_000_000 {
                break;
            }
        }
        assert!(grown() > 1_000_000, "{} bytes in 10 s over {mtu}, {sends_icmp}", grown());
        let (vehicle_ns, server) = (&world.testbed.vehicle, &world.testbed.server);
        let v6 = "fd77::2".parse().unwrap();
        let received = delivered((vehicle_ns, v6), (server, INNER_V6.into()), 1280, 50);
        assert!(received >= 40, "{received} of 50 packets with the minimum IPv6 MTU arrived over {mtu}");
        drop((gateway, vehicle));
    }
}
