//! Drives whose traffic uses a third-party tunnel: the packets on the wire, and no
//! process or socket left.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use crate::program::busy::decide;
use crate::program::drive::Drive;
use crate::program::{CROSSLANE, ProgramOutput, can_drive, crosslane, not_run};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
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
    addresses: [Ipv4Addr; 2],
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
            addresses: [address(12)?, address(16)?],
            port: u16::from_be_bytes([header[2], header[3]]),
            has_checksum: header[6..] != [0, 0],
            payload: *payload.first_chunk()?,
        })
    }
}

/// The datagrams to `port` captured in all namespaces of a drive during one second.
fn capture_all(drive: &Drive, port: u16) -> Vec<Datagram> {
    let namespaces: Vec<File> = drive.namespaces().values().filter_map(|link| File::open(link).ok()).collect();
    let stop = AtomicBool::new(false);
    let capture = |namespace: &File| {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let mut socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(every)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mut captured, mut packet) = (Vec::new(), [0; 64]);
        while !stop.load(Ordering::Relaxed) {
            let length = socket.read(&mut packet).unwrap_or(0);
            captured.extend(Datagram::parse(&packet[..length]).filter(|datagram| datagram.port == port));
        }
        captured
    };
    thread::scope(|scope| {
        let captures: Vec<_> = namespaces.iter().map(|namespace| scope.spawn(|| capture(namespace))).collect();
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        captures.into_iter().flat_map(|capture| capture.join().unwrap()).collect()
    })
}

/// Runs a drive with a strategy, checks the datagrams to `port` and returns its metrics.
fn captured_drive(strategy: &str, port: u16, check: impl Fn(&Datagram) -> bool) -> Value {
    let mut drive = Drive::start(WIRES, strategy, |_, _| {});
    if nix::unistd::geteuid().is_root() {
        // The traffic begins after 1 s.
        drive.until(|drive| drive.namespaces().len() == 4);
        thread::sleep(Duration::from_millis(1500));
        let captured = capture_all(&drive, port);
        assert!(captured.len() > 500, "{} datagrams", captured.len());
        for datagram in captured {
            assert!([[VEHICLE, SERVER], [SERVER, VEHICLE]].contains(&datagram.addresses), "{:?}", datagram.addresses);
            assert!(datagram.has_checksum && check(&datagram), "{:?}", datagram.payload);
        }
    } else {
        not_run("capturing in the namespaces of a drive needs root");
    }
    let (_workdir, output) = drive.end();
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    serde_json::from_str::<Value>(&output.stdout).unwrap()["runs"][0]["metrics"].take()
}

/// Fails unless a drive carries nearly the 20 Mbit/s of its path, with an overhead in this range.
fn check_carried(drive: impl Fn() -> Value, overhead: Range<f64>) {
    decide(|| {
        let metrics = drive();
        let metric = |name: &str| metrics[name].as_f64().unwrap();
        assert_eq!((metric("path.a.share"), metric("path.b.share")), (0.0, 1.0));
        let is_good = (17.0..19.4).contains(&metric("goodput_mbit_s")) && overhead.contains(&metric("overhead_share"));
        if is_good { Ok(()) } else { Err(metrics.to_string()) }
    });
}

#[test]
fn vxlan_carries_nearly_the_rate_of_its_path_in_vxlan_packets() {
    if !can_drive() || !has("vxlan") {
        return;
    }
    // The I flag of RFC 7348 (valid VNI), and VNI 1.
    let drive = || {
        let metrics = captured_drive("ethernet", 4789, |datagram| datagram.payload == [8, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(metrics["tunnel.cpu_s_per_gb"], Value::Null, "VXLAN has no separate process");
        metrics
    };
    // 102 bytes of headers in 1500 are 0.073; a TCP connection without a tunnel has 0.036.
    check_carried(drive, 0.06..0.085);
}

#[test]
fn wireguard_carries_nearly_the_rate_of_its_path_and_its_processor_time_is_reported() {
    if !can_drive() || !has(PROGRAM) {
        return;
    }
    // Handshakes and data (whitepaper, section 5.4), each with three reserved bytes.
    let drive = || {
        let metrics = captured_drive("go", 51820, |datagram| matches!(datagram.payload, [1..=4, 0, 0, 0, ..]));
        let cpu = metrics["tunnel.cpu_s_per_gb"].as_f64().unwrap();
        assert!((1.0..300.0).contains(&cpu), "{cpu} s per GB");
        metrics
    };
    // 20, 8, 32 and 52 bytes of headers for 1368 bytes: 0.082.
    check_carried(drive, 0.07..0.1);
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
    let (_workdir, output) = drive.end();
    assert_ne!(output.code, Some(0));
    assert_eq!(sockets(), before);
}

#[test]
fn a_wireguard_process_that_is_killed_ends_the_drive_with_one_message() {
    if !can_drive() || !has(PROGRAM) {
        return;
    }
    let mut drive = Drive::start(WIRES, "go", |_, _| {});
    drive.until(|drive| drive.programs(0, PROGRAM).len() == 2);
    kill(drive.programs(0, PROGRAM)[1], Signal::SIGKILL).unwrap();
    let (_workdir, output) = drive.end();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.sentence().contains("while driving with wireguard-go: it exited early"), "{output:?}");
}

#[test]
fn without_the_program_no_drive_starts_and_the_message_names_the_package() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), WIRES).unwrap();
    let arguments = ["drive", "s.toml", "--strategy", "single,wireguard-go", "--out", "out"];
    let mut command = Command::new(CROSSLANE);
    let output: ProgramOutput =
        command.args(arguments).current_dir(workdir.path()).env("PATH", "").output().unwrap().into();
    assert_eq!(output.code, Some(2), "{output:?}");
    let remedy = "it is not on PATH; `apt-get install wireguard-go`, or omit the strategy of this name";
    assert!(output.sentence().ends_with(remedy), "{output:?}");
    assert!(!workdir.path().join("out").exists());
}

/// Names of the control sockets of WireGuard.
fn sockets() -> Vec<std::ffi::OsString> {
    let found = fs::read_dir("/var/run/wireguard").into_iter().flatten().flatten();
    found.map(|entry| entry.file_name()).collect()
}

/// True if this machine has what the base strategy needs; otherwise prints the reason.
fn has(base: &str) -> bool {
    let output = crosslane(&env::temp_dir(), &["drive-probe", base]);
    if output.code != Some(0) {
        drop(writeln!(std::io::stderr(), "interop NOT RUN: {}", output.stderr.trim()));
    }
    output.code == Some(0)
}
