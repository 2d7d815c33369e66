//! Interoperability of the unencrypted tunnel with third-party programs: tshark decodes the
//! packets on the wire; a peer in scapy implements only GRE-in-UDP (scapy is GPL, so it runs
//! in a separate process).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::{allow_ipv6, two_links};
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::emulator::Emulator;
use crosslane::testbed::{Namespace, SERVER, Testbed, vehicle_address};
use socket2::{Domain, Protocol, Socket, Type};

const GATEWAY: [&str; 2] = ["10.77.0.1", "fd77::1"];
const VEHICLE: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// A peer at an address and port. It prints each received packet: key and sequence
/// number, or `None`, and a summary of the inner packet. It answers pings, and datagrams
/// in capitals. With more arguments it first sends a datagram between two inner addresses.
const SCAPY: &str = r#"
import socket, sys
from scapy.all import GRE, IP, IPv6, UDP, ICMP, Raw
own, begin = (sys.argv[1], int(sys.argv[2])), sys.argv[3:]
wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
wire.bind(own)
if begin:
    address, port, source, destination = begin
    first = GRE() / IP(src=source, dst=destination) / UDP(sport=9, dport=9000) / Raw(b'from scapy')
    wire.sendto(bytes(first), (address, int(port)))
print('ready', flush=True)
while True:
    datagram, sender = wire.recvfrom(65535)
    packet = GRE(datagram)
    key = packet.key if packet.key_present else None
    number = packet.sequence_number if packet.seqnum_present else None
    print(key, number, hex(packet.proto), packet.payload.summary(), flush=True)
    inner = packet.getlayer(IP) or packet.getlayer(IPv6)
    if inner is None:
        continue
    back = type(inner)(src=inner.dst, dst=inner.src)
    if inner.haslayer(ICMP):
        back = back / ICMP(type=0, id=inner[ICMP].id, seq=inner[ICMP].seq) / inner[ICMP].payload
    elif inner.haslayer(UDP) and inner.haslayer(Raw):
        back = back / UDP(sport=inner[UDP].dport, dport=inner[UDP].sport) / Raw(inner[Raw].load.upper())
    else:
        continue
    wire.sendto(bytes(GRE() / back), sender)
"#;

struct World {
    testbed: Testbed,
    _emulator: Emulator,
}

impl World {
    fn new() -> World {
        let (testbed, emulator) = two_links(["lte", "its-g5"], 20.0, 5);
        allow_ipv6(&testbed);
        testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
        World { testbed, _emulator: emulator }
    }

    fn vehicle(&self, more: &str) -> Agent {
        let configuration = format!(
            "[[path]]\nname = \"lte\"\nrat = \"lte\"\n[[path]]\nname = \"its-g5\"\nrat = \"80211p\"\n\
             [strategy]\nname = \"threshold\"\n[log]\nevents = \"EVENTS\"\n[tunnel]\n\
             address = [\"{}/24\", \"{}/64\"]\ngateway = \"{SERVER}:4754\"\nencryption = \"none\"\n{more}",
            VEHICLE[0], VEHICLE[1]
        );
        Agent::start(&self.testbed.vehicle, &configuration)
    }

    fn gateway(&self, more: &str) -> Agent {
        let configuration = format!(
            "[log]\nevents = \"EVENTS\"\n[tunnel]\naddress = [\"{}/24\", \"{}/64\"]\nlisten = \"{SERVER}:4754\"\n\
             encryption = \"none\"\n{more}[[tunnel.vehicle]]\nname = \"car\"\naddress = [\"{}/32\", \"{}/128\"]\n",
            GATEWAY[0], GATEWAY[1], VEHICLE[0], VEHICLE[1]
        );
        Agent::start(&self.testbed.server, &configuration)
    }
}

/// A process; dropping this kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn skip(why: &str) -> bool {
    drop(writeln!(std::io::stderr(), "interop NOT RUN: {why}"));
    false
}

fn udp(namespace: &Namespace, address: &str, port: u16) -> UdpSocket {
    let address: IpAddr = address.parse().unwrap();
    let socket = namespace.enter(|| UdpSocket::bind((address, port))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket
}

fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    found || skip("tshark is not installed (apt-get install tshark)")
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark").arg("-r").arg(file).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends `count` datagrams from the vehicle for each IP version; the gateway echoes them.
fn echo(world: &World, count: usize) {
    for (own, other) in VEHICLE.into_iter().zip(GATEWAY) {
        let client = udp(&world.testbed.vehicle, own, 9000);
        let server = udp(&world.testbed.server, other, 9000);
        let to = SocketAddr::new(other.parse().unwrap(), 9000);
        let mut bytes = [0; 2000];
        for length in (0..count).map(|number| 1 + number * 11 % 1300) {
            client.send_to(&vec![b'x'; length], to).unwrap();
            let (received, from) = server.recv_from(&mut bytes).unwrap();
            server.send_to(&bytes[..received], from).unwrap();
            assert_eq!(client.recv(&mut bytes).unwrap(), length);
        }
    }
}

#[test]
fn tshark_decodes_every_packet_of_an_unencrypted_tunnel() {
    if !can_drive() || !has_tshark() {
        return;
    }
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.pcapng");
    let mut command = Command::new("tshark");
    command.args(["-q", "-i", "lte", "-i", "its-g5", "-w"]).arg(&file).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut capture = Running(world.testbed.vehicle.spawn(&mut command).unwrap());
    let mut stderr = BufReader::new(capture.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("Capturing on") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "tshark does not capture");
    }
    sleep(Duration::from_millis(1000));
    let (gateway, vehicle) = (world.gateway(""), world.vehicle(""));
    echo(&world, 50);
    sleep(Duration::from_millis(700));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(capture.0.id() as i32), nix::sys::signal::Signal::SIGINT)
        .unwrap();
    capture.0.wait().unwrap();
    drop((gateway, vehicle));

    let filter = "udp.port == 4754";
    let bad = tshark(&file, &["-Y", &format!("{filter} && (_ws.malformed || _ws.expert.severity >= 0x600000)")]);
    assert_eq!(bad, "");
    let fields =
        ["-T", "fields", "-e", "frame.protocols", "-e", "gre.key", "-e", "gre.sequence_number", "-e", "gre.proto"];
    let text = tshark(&file, &[&["-Y", filter], &fields[..]].concat());
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert!(rows.iter().all(|row| row[0].contains("udp:gre") && row[1].starts_with("0x")), "{text}");
    let of = |kind: &str| rows.iter().filter(|row| row[3] == kind).collect::<Vec<_>>();
    let (v4, v6, control, riding) = (of("0x0800"), of("0x86dd"), of("0x88b5"), of("0x88b6"));
    // Requests and replies, all with a sequence number; feedback rides on some of them.
    let packets = v4.len() + v6.len() + riding.len();
    assert!(
        packets >= 200 && !riding.is_empty() && !control.is_empty(),
        "{packets} {} {}",
        riding.len(),
        control.len()
    );
    assert_eq!(rows.len(), packets + control.len());
    assert!(v4.iter().chain(&v6).chain(&riding).all(|row| !row[2].is_empty()));
    let nested = |rows: &[&Vec<&str>], within: &str| rows.iter().filter(|row| row[0].contains(within)).count();
    assert!(nested(&v4, "gre:ip:") == v4.len() && nested(&v6, "gre:ipv6:") == v6.len(), "{text}");
}

/// A Python that has scapy.
fn scapy() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let knows = |python: &PathBuf| {
        let imported = Command::new(python).args(["-c", "import scapy.all"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    let found = [root.join(".venv/bin/python"), "python3".into()].into_iter().find(knows);
    if found.is_none() {
        skip("no Python with scapy (pip install scapy)");
    }
    found
}

/// Starts the peer and waits until it is ready.
fn peer(namespace: &Namespace, python: &Path, arguments: &[&str]) -> (Running, BufReader<impl Read + use<>>) {
    let mut command = Command::new(python);
    command.args(["-c", SCAPY]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = namespace.spawn(&mut command).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (Running(child), stdout)
}

/// The next received packet that the peer prints, except for neighbour discovery of the kernel.
fn line(stdout: &mut impl BufRead) -> String {
    loop {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the peer has ended");
        if !line.contains("fe80:") && !line.contains("ff02:") {
            return line;
        }
    }
}

/// Sends an echo request (RFC 792); returns the reply without its IP header.
fn ping(namespace: &Namespace, to: Ipv4Addr) -> Vec<u8> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    let mut socket = namespace.enter(open).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let mut request = [8, 0, 0, 0, 0x12, 0x34, 0, 1, b'h', b'i'];
    let sum = !(0x0800_u16 + 0x1234 + 0x0001 + 0x6869);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    socket.send_to(&request, &SocketAddr::from((to, 0)).into()).unwrap();
    let mut bytes = [0; 200];
    loop {
        let length = socket.read(&mut bytes).unwrap();
        let head = usize::from(bytes[0] & 15) * 4;
        if bytes[12..16] == to.octets() {
            return bytes[head..length].to_vec();
        }
    }
}

#[test]
fn scapy_as_gateway_answers_an_rfc8086_only_vehicle() {
    let Some(python) = scapy().filter(|_| can_drive()) else { return };
    let world = World::new();
    let (_peer, mut stdout) = peer(&world.testbed.server, &python, &[&SERVER.to_string(), "4754"]);
    let vehicle = world.vehicle("rfc8086_only = true\n");
    for (own, other) in VEHICLE.into_iter().zip(GATEWAY) {
        let socket = udp(&world.testbed.vehicle, own, 9000);
        socket.send_to(b"hello", SocketAddr::new(other.parse().unwrap(), 9)).unwrap();
        let mut bytes = [0; 100];
        let (length, from) = socket.recv_from(&mut bytes).expect("a reply of the peer");
        assert_eq!((&bytes[..length], from.ip().to_string().as_str()), (&b"HELLO"[..], other));
    }
    let lines: Vec<String> = (0..2).map(|_| line(&mut stdout)).collect();
    assert!(lines[0].starts_with("None None 0x800 IP / UDP 10.77.0.2:9000 > 10.77.0.1:discard"), "{lines:?}");
    assert!(lines[1].starts_with("None None 0x86dd IPv6 / UDP fd77::2:9000 > fd77::1:discard"), "{lines:?}");
    assert_eq!(ping(&world.testbed.vehicle, GATEWAY[0].parse().unwrap())[4..], [0x12, 0x34, 0, 1, b'h', b'i']);
    assert_eq!(vehicle.end().1, "");
}

#[test]
fn a_gateway_delivers_packets_of_scapy_and_an_rfc8086_only_gateway_answers() {
    let Some(python) = scapy().filter(|_| can_drive()) else { return };
    for more in ["", "rfc8086_only = true\n"] {
        let world = World::new();
        let gateway = world.gateway(more);
        let program = udp(&world.testbed.server, GATEWAY[0], 9000);
        let own = vehicle_address(0).to_string();
        let arguments = [own.as_str(), "4754", &SERVER.to_string(), "4754", VEHICLE[0], GATEWAY[0]];
        let (_peer, mut stdout) = peer(&world.testbed.vehicle, &python, &arguments);
        let mut bytes = [0; 100];
        let (length, from) = program.recv_from(&mut bytes).expect("the peer's datagram");
        assert_eq!((&bytes[..length], from), (&b"from scapy"[..], SocketAddr::new(VEHICLE[0].parse().unwrap(), 9)));
        if !more.is_empty() {
            program.send_to(b"to scapy", from).unwrap();
            assert!(line(&mut stdout).starts_with("None None 0x800 IP / UDP 10.77.0.1:9000 > 10.77.0.2:discard"));
            let (length, _) = program.recv_from(&mut bytes).expect("the reply of the peer");
            assert_eq!(&bytes[..length], b"TO SCAPY");
        }
        assert_eq!(gateway.end().1, "");
    }
}

#[test]
fn scapy_reads_key_and_sequence_number_of_an_unencrypted_vehicle() {
    let Some(python) = scapy().filter(|_| can_drive()) else { return };
    let world = World::new();
    let (_peer, mut stdout) = peer(&world.testbed.server, &python, &[&SERVER.to_string(), "4754"]);
    let _vehicle = world.vehicle("");
    let socket = udp(&world.testbed.vehicle, VEHICLE[1], 9000);
    socket.send_to(b"hello", SocketAddr::new(Ipv6Addr::from_bits(0xfd77 << 112 | 1).into(), 9)).unwrap();
    for _ in 0..50 {
        let text = line(&mut stdout);
        let words: Vec<&str> = text.split(' ').collect();
        assert!(words[0].parse::<u32>().is_ok(), "{text}");
        if words[2] == "0x86dd" && text.contains("fd77::2:9000 > fd77::1:discard") {
            assert!(words[1].parse::<u32>().is_ok(), "{text}");
            return;
        }
    }
    panic!("scapy did not print the packet");
}
