//! Drives whose traffic goes through a tunnel of others, with what is on the
//! wire meanwhile and that nothing of it is left.
#![allow(missing_docs, clippy::unwrap_used)]

mod program;

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use program::drive::Drive;
use program::{CROSSLANE, Said, can_drive, crosslane, not_run};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

/// A drive of 5 s over two wires; the tunnels take the second one.
const WIRES: &str = r#"name = "wires"
duration_s = 5
[vehicle]
route = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }
[[wire]]
name = "a"
rate_mbit_s = 20
[[wire]]
name = "b"
rate_mbit_s = 20
[traffic]
kind = "bulk"
[[strategy]]
name = "ethernet"
base = "vxlan"
path = "b"
[[strategy]]
name = "go"
base = "wireguard-go"
path = "b"
"#;
const VEHICLE: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const PROGRAM: &str = "wireguard-go";

/// A UDP datagram over IPv4.
struct Datagram {
    ends: [Ipv4Addr; 2],
    port: u16,
    has_checksum: bool,
    payload: [u8; 8],
}

impl Datagram {
    fn parse(packet: &[u8]) -> Option<Datagram> {
        let (ip, udp) = packet.split_first_chunk::<20>()?;
        let (header, payload) = udp.split_first_chunk::<8>()?;
        if ip[0] != 0x45 || ip[9] != 17 {
            return None;
        }
        let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).ok().map(Ipv4Addr::from);
        Some(Datagram {
            ends: [address(12)?, address(16)?],
            port: u16::from_be_bytes([header[2], header[3]]),
            has_checksum: header[6..] != [0, 0],
            payload: *payload.first_chunk()?,
        })
    }
}

/// The datagrams to `port` that are seen anywhere in a drive, for a second.
fn listen(drive: &Drive, port: u16) -> Vec<Datagram> {
    let places: Vec<File> = drive.namespaces().values().filter_map(|link| File::open(link).ok()).collect();
    let over = AtomicBool::new(false);
    let capture = |place: &File| {
        setns(place, CloneFlags::CLONE_NEWNET).unwrap();
        let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let mut socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(every)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mut seen, mut packet) = (Vec::new(), [0; 64]);
        while !over.load(Ordering::Relaxed) {
            let length = socket.read(&mut packet).unwrap_or(0);
            seen.extend(Datagram::parse(&packet[..length]).filter(|datagram| datagram.port == port));
        }
        seen
    };
    thread::scope(|scope| {
        let captures: Vec<_> = places.iter().map(|place| scope.spawn(|| capture(place))).collect();
        thread::sleep(Duration::from_secs(1));
        over.store(true, Ordering::Relaxed);
        captures.into_iter().flat_map(|capture| capture.join().unwrap()).collect()
    })
}

/// Drives a strategy to its end while the datagrams to `port` are looked at.
fn watched(strategy: &str, port: u16, check: impl Fn(&Datagram) -> bool) -> Value {
    let mut drive = Drive::start(WIRES, strategy, |_, _| {});
    if nix::unistd::geteuid().is_root() {
        // The traffic begins after 1 s.
        drive.until(|drive| drive.namespaces().len() == 4);
        thread::sleep(Duration::from_millis(1500));
        let seen = listen(&drive, port);
        assert!(seen.len() > 500, "{} datagrams", seen.len());
        for datagram in seen {
            assert!([[VEHICLE, SERVER], [SERVER, VEHICLE]].contains(&datagram.ends), "{:?}", datagram.ends);
            assert!(datagram.has_checksum && check(&datagram), "{:?}", datagram.payload);
        }
    } else {
        not_run("to look into the namespaces of a drive needs root");
    }
    let (_desk, said) = drive.end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    serde_json::from_str::<Value>(&said.stdout).unwrap()["runs"][0]["metrics"].take()
}

fn check_carried(metrics: &Value, overhead: [f64; 2]) {
    let metric = |name: &str| metrics[name].as_f64().unwrap();
    let goodput = metric("goodput_mbit_s");
    assert!((17.0..19.4).contains(&goodput), "{goodput} of 20 Mbit/s");
    assert_eq!((metric("path.a.share"), metric("path.b.share")), (0.0, 1.0));
    let [least, most] = overhead;
    let overhead = metric("overhead_share");
    assert!((least..most).contains(&overhead), "{overhead}");
}

#[test]
fn vxlan_carries_nearly_the_rate_of_its_path_in_its_own_packets() {
    if !can_drive() || !has("vxlan") {
        return;
    }
    // The flag of RFC 7348 for a valid number of the network, and number 1.
    let metrics = watched("ethernet", 4789, |datagram| datagram.payload == [8, 0, 0, 0, 0, 0, 1, 0]);
    // 102 bytes of headers in 1500 are 0.073; one TCP connection without a tunnel has 0.036.
    check_carried(&metrics, [0.06, 0.085]);
    assert_eq!(metrics["tunnel.cpu_s_per_gb"], Value::Null, "no process of its own");
}

#[test]
fn wireguard_carries_nearly_the_rate_of_its_path_and_its_processor_time_is_told() {
    if !can_drive() || !has(PROGRAM) {
        return;
    }
    // Handshakes and data (whitepaper, section 5.4), each with three reserved bytes.
    let metrics = watched("go", 51820, |datagram| matches!(datagram.payload, [1..=4, 0, 0, 0, ..]));
    // 20, 8, 32 and 52 bytes around 1368: 0.082.
    check_carried(&metrics, [0.07, 0.1]);
    let cpu = metrics["tunnel.cpu_s_per_gb"].as_f64().unwrap();
    assert!((1.0..300.0).contains(&cpu), "{cpu} s per GB");
}

#[test]
fn ctrl_c_ends_wireguard_too_and_leaves_no_socket() {
    if !can_drive() || !has(PROGRAM) {
        return;
    }
    let before = sockets();
    let mut drive = Drive::start(WIRES, "go", |_, _| {});
    drive.until(|drive| drive.programs(0, PROGRAM).len() == 2);
    drive.signal(Signal::SIGINT);
    let (_desk, said) = drive.end();
    assert_ne!(said.code, Some(0));
    assert_eq!(sockets(), before);
}

#[test]
fn a_wireguard_that_dies_ends_the_drive_with_one_sentence() {
    if !can_drive() || !has(PROGRAM) {
        return;
    }
    let mut drive = Drive::start(WIRES, "go", |_, _| {});
    drive.until(|drive| drive.programs(0, PROGRAM).len() == 2);
    kill(drive.programs(0, PROGRAM)[1], Signal::SIGKILL).unwrap();
    let (_desk, said) = drive.end();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.sentence().contains("while driving with wireguard-go: it exited early"), "{said:?}");
}

#[test]
fn without_the_program_nothing_is_driven_and_one_sentence_says_how_to_get_it() {
    if !can_drive() {
        return;
    }
    let desk = tempfile::TempDir::new().unwrap();
    fs::write(desk.path().join("s.toml"), WIRES).unwrap();
    let arguments = ["drive", "s.toml", "--strategy", "single,wireguard-go", "--out", "out"];
    let mut command = Command::new(CROSSLANE);
    let said: Said = command.args(arguments).current_dir(desk.path()).env("PATH", "").output().unwrap().into();
    assert_eq!(said.code, Some(2), "{said:?}");
    let remedy = "it is not on PATH; `apt-get install wireguard-go`, or omit the strategy of this name";
    assert!(said.sentence().ends_with(remedy), "{said:?}");
    assert!(!desk.path().join("out").exists());
}

/// Names of sockets where WireGuard has them.
fn sockets() -> Vec<std::ffi::OsString> {
    let found = fs::read_dir("/var/run/wireguard").into_iter().flatten().flatten();
    found.map(|entry| entry.file_name()).collect()
}

/// True if this machine has what the base needs; else it is told.
fn has(base: &str) -> bool {
    let said = crosslane(&env::temp_dir(), &["drive-probe", base]);
    if said.code != Some(0) {
        drop(writeln!(std::io::stderr(), "interop NOT RUN: {}", said.stderr.trim()));
    }
    said.code == Some(0)
}
