//! Cost of the tunnel's data plane: `cargo bench --bench tunnel_plane`.
//!
//! In memory: GSO packets of 64 KiB segmented into packets of 1400 bytes, and
//! coalesced again. Over loopback: UDP sent with GSO and received with GRO, in
//! CPU time of both endpoints including the kernel's.

use std::convert::Infallible;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crosslane::clock::monotonic_ns;
use crosslane::tunnel::socket::{PathSocket, ReceiveBuffers};
use crosslane_core::packet::checksum::Sum;
use crosslane_core::packet::gro::Coalescer;
use crosslane_core::packet::gso::{FRAME_BYTES, Header, split};
use crosslane_core::packet::ip::IpView;
use nix::sys::resource::{UsageWho, getrusage};

const PACKET: usize = 1400;
const HEADERS: usize = 52;
const SEGMENTS: usize = 46;
const ROUNDS: usize = 5000;

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let machine = nix::sys::utsname::uname();
    let release = machine.as_ref().map_or("?".into(), |uname| uname.release().to_string_lossy());
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("tunnel plane, crosslane {}, Linux {release}, {cores} cores", env!("CARGO_PKG_VERSION"));
    let frame = gso_packet();
    println!("{:<52} {:>8.1} ns a packet", "reading: a copy of the GSO packet", best(|| copy(&frame)));
    println!("{:<52} {:>8.1} ns a packet", "segmenting it, including the copy", best(|| segment(&frame)));
    let packets = packets(&frame);
    for (what, batch) in
        [("coalescing one flow", packets.clone()), ("coalescing eight interleaved flows", interleaved(&packets))]
    {
        println!("{what:<52} {:>8.1} ns a packet", best(|| coalesce(&batch)));
    }
    println!("{:<52} {:>8.1} ns a packet", "the checksum of 1400 bytes", best(|| checksum_all(&packets)));
    if let Err(cause) = over_loopback() {
        eprintln!("UDP over loopback: {cause}");
        std::process::exit(1);
    }
}

/// A GSO packet of TCP over IPv4, as from Linux, with pseudo-random payload.
fn gso_packet() -> Vec<u8> {
    let len = HEADERS + SEGMENTS * (PACKET - HEADERS);
    let mut packet: Vec<u8> = (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[32..36].copy_from_slice(&[0x80, 0x10, 1, 0]);
    let header = Header {
        flags: 1,
        gso_type: 1,
        headers: HEADERS as u16,
        segment: (PACKET - HEADERS) as u16,
        checksum_start: 20,
        checksum_offset: 16,
    };
    [&header.emit()[..], &packet].concat()
}

fn packets(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let done = split(&mut frame.to_vec(), |packet| packets.push(packet.to_vec()));
    assert_eq!(done, Ok(()));
    packets
}

/// The same packets in eight flows, with correct checksums.
fn interleaved(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let with_port = |packet: &Vec<u8>, port: u8| {
        let mut packet = packet.clone();
        packet[20] = port;
        packet[36..38].fill(0);
        let (ip, tcp) = packet.split_at(20);
        let sum = Sum::default().with_pseudo_header(&ip[12..20], 6, tcp.len()).with(tcp).checksum();
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    packets.iter().flat_map(|packet| (0..8).map(move |port| with_port(packet, port))).collect()
}

/// Nanoseconds per packet, the best of five; `round` returns its number of
/// packets.
fn best(mut round: impl FnMut() -> usize) -> f64 {
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = monotonic_ns();
        let count = round();
        times.push((monotonic_ns() - start) as f64 / count as f64);
    }
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn copy(frame: &[u8]) -> usize {
    let mut buffer = vec![0; FRAME_BYTES];
    for _ in 0..ROUNDS {
        buffer[..frame.len()].copy_from_slice(frame);
        black_box(&mut buffer);
    }
    ROUNDS * SEGMENTS
}

fn segment(frame: &[u8]) -> usize {
    let mut buffer = vec![0; FRAME_BYTES];
    let mut count = 0;
    for _ in 0..ROUNDS {
        buffer[..frame.len()].copy_from_slice(frame);
        let done = split(&mut buffer[..frame.len()], |packet| {
            black_box(packet);
            count += 1;
        });
        assert_eq!(done, Ok(()));
    }
    count
}

fn coalesce(packets: &[Vec<u8>]) -> usize {
    let mut coalescer = Coalescer::new(true);
    let mut writes = 0;
    let rounds = ROUNDS * SEGMENTS / packets.len();
    for _ in 0..rounds {
        for packet in packets {
            assert!(IpView::parse(packet).is_some_and(|packet| coalescer.push(&packet)));
        }
        let done = coalescer.flush(|parts| {
            black_box(parts);
            writes += 1;
            Ok::<(), Infallible>(())
        });
        assert!(done.is_ok());
    }
    assert_eq!(writes, rounds * (packets.len() / SEGMENTS), "one write per flow");
    rounds * packets.len()
}

fn checksum_all(packets: &[Vec<u8>]) -> usize {
    for _ in 0..ROUNDS {
        for packet in packets {
            black_box(Sum::default().with(black_box(packet)).checksum());
        }
    }
    ROUNDS * packets.len()
}

/// Sends 4 GB as fast as the receiver accepts it.
fn over_loopback() -> Result<(), Box<dyn std::error::Error>> {
    const BYTES: usize = 4_000_000_000;
    for (what, segments) in [("UDP in GSO packets of 46 × 1400", SEGMENTS), ("UDP in single datagrams", 1)] {
        let bytes = BYTES / if segments == 1 { 10 } else { 1 };
        let local: SocketAddr = "127.0.0.1:0".parse()?;
        let (from, to) = (PathSocket::bind(local, None)?, PathSocket::bind(local, None)?);
        let start = (monotonic_ns(), cpu_s()?);
        let buffer = vec![7; segments * PACKET];
        let (mut sent, mut received, mut messages) = (0, 0, 0);
        let mut buffers = ReceiveBuffers::default();
        while sent < bytes {
            for _ in 0..16_usize.min(4 * SEGMENTS / segments) {
                sent += from.send((None, to.local()), 0, PACKET, &buffer)? * PACKET;
            }
            loop {
                match to.receive(&mut buffers) {
                    Ok(count) => messages += count,
                    Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => break,
                    Err(cause) => return Err(cause.into()),
                }
                received += buffers.datagrams().map(|datagram| black_box(datagram).bytes.len()).sum::<usize>();
            }
        }
        thread::sleep(Duration::from_millis(1));
        let (elapsed, cpu) = ((monotonic_ns() - start.0) as f64 / 1e9, cpu_s()? - start.1);
        let gigabytes = received as f64 / 1e9;
        println!(
            "{what:<52} {:>8.3} CPU-s a GB, {:.1} Gbit/s, {:.0} datagrams a message, {:.2} % lost",
            cpu / gigabytes,
            gigabytes * 8.0 / elapsed,
            received as f64 / PACKET as f64 / messages as f64,
            (sent - received) as f64 / sent as f64 * 100.0,
        );
    }
    Ok(())
}

/// CPU time of this process, in user and kernel.
fn cpu_s() -> nix::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
