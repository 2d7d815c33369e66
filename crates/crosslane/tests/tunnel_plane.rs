//! A TCP and a UDP program at both ends of two TUN devices with offload, joined
//! by what cuts and joins their packets.
#![allow(clippy::unwrap_used)] // It is how a test fails.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fs};

use crosslane::testbed::{Namespace, PathPlan, SERVER, Testbed, prepare_privileges, vehicle_address};
use crosslane::tunnel::device::{Device, Plan};
use crosslane::tunnel::gro::Coalescer;
use crosslane::tunnel::gso::{FRAME_BYTES, split};
use crosslane::tunnel::ip::{Inner, too_big};
use crosslane::tunnel::socket::{PathSocket, ReceiveBuffers, is_too_big};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sha2::{Digest, Sha256};

const MTU: u32 = 1400;
const BYTES: usize = 200_000_000;

/// False, with the reason printed, where namespaces cannot be made.
fn privileged() -> bool {
    let Err(error) = prepare_privileges() else {
        return true;
    };
    assert!(env::var_os("CI").is_none(), "e2e NOT RUN: {error}");
    eprintln!("e2e NOT RUN: {error}");
    false
}

/// Two namespaces with a device each, and what carries packets between them.
struct World {
    ends: [Namespace; 2],
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    packets: AtomicU64,
    writes: AtomicU64,
    refused: AtomicU64,
}

impl World {
    fn new() -> World {
        let ends = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        let open = |end: usize| {
            let addresses = [(format!("10.77.0.{}", end + 1), 24), (format!("fd77::{}", end + 1), 64)];
            let addresses = addresses.map(|(address, bits)| (address.parse().unwrap(), bits)).to_vec();
            let plan = Plan { name: "crosslane0".into(), mtu: MTU, addresses };
            Arc::new(ends[end].enter(|| Device::open(&plan)).unwrap().unwrap())
        };
        let devices = [open(0), open(1)];
        eprintln!("offload: {:?}", devices[0].offload());
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let mut threads = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = sync_channel(4096);
            let (from, to) = (devices[from].clone(), devices[to].clone());
            let [(stop, taken), (_, given)] = [(stop.clone(), counts.clone()), (stop.clone(), counts.clone())];
            threads.push(thread::spawn(move || take(&from, &sender, &stop, &taken)));
            threads.push(thread::spawn(move || give(&to, &receiver, &given)));
        }
        World { ends, stop, counts, threads }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Takes super-packets and sends on their packets; a full channel loses them.
fn take(device: &Device, packets: &SyncSender<Vec<u8>>, stop: &AtomicBool, counts: &Counts) {
    let mut frame = vec![0; FRAME_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match device.receive(&mut frame) {
            Ok(len) => {
                counts.reads.fetch_add(1, Ordering::Relaxed);
                let each = |packet: &mut [u8]| {
                    assert!(packet.len() <= MTU as usize && Inner::parse(packet).is_some());
                    counts.packets.fetch_add(1, Ordering::Relaxed);
                    let _ = packets.try_send(packet.to_vec());
                };
                split(&mut frame[..len], each).unwrap();
            }
            Err(cause) => {
                assert_eq!(cause.kind(), ErrorKind::WouldBlock);
                let mut ready = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
                poll(&mut ready, PollTimeout::from(50_u8)).unwrap();
            }
        }
    }
}

/// Gives what has come to the device, joined.
fn give(device: &Device, packets: &Receiver<Vec<u8>>, counts: &Counts) {
    let mut coalescer = Coalescer::new(device.offload().udp);
    while let Ok(first) = packets.recv() {
        for packet in std::iter::once(first).chain(packets.try_iter().take(200)) {
            assert!(coalescer.push(&packet));
        }
        let written = coalescer.flush(|parts| {
            counts.writes.fetch_add(1, Ordering::Relaxed);
            device.send(parts)
        });
        counts.refused.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
    }
}

/// Bytes that a hash tells from any others.
fn content(number: usize) -> Vec<u8> {
    (0..1_000_000_usize).map(|at| (at ^ at >> 8 ^ number.wrapping_mul(31)) as u8).collect()
}

fn transfer(world: &World, address: IpAddr) {
    let at = SocketAddr::new(address, 7000);
    let listener = world.ends[1].enter(|| TcpListener::bind(at)).unwrap().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut hash, mut total, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 18]);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return (total, hash.finalize()),
                len => {
                    hash.update(&buffer[..len]);
                    total += len;
                }
            }
        }
    });
    let mut stream = world.ends[0].enter(|| TcpStream::connect(at)).unwrap().unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut hash = Sha256::new();
    for number in 0..BYTES / 1_000_000 {
        let content = content(number);
        hash.update(&content);
        stream.write_all(&content).unwrap();
    }
    drop(stream);
    assert_eq!(receiver.join().unwrap(), (BYTES, hash.finalize()));
}

#[test]
fn tcp_arrives_intact_in_few_reads_and_writes() {
    if !privileged() {
        return;
    }
    let world = World::new();
    for address in ["10.77.0.2", "fd77::2"] {
        transfer(&world, address.parse().unwrap());
        eprintln!("{address}: {:?}", world.counts);
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &world.counts;
    assert_eq!(count(&counts.refused), 0);
    // The data alone is 2 × 148,000 packets, and acknowledgements come one by one.
    assert!(count(&counts.packets) > 290_000, "{counts:?}");
    assert!(count(&counts.reads) < count(&counts.packets) / 3, "{counts:?}");
    assert!(count(&counts.writes) < count(&counts.packets) / 2, "{counts:?}");
}

#[test]
fn datagrams_arrive_intact_cut_by_the_device_or_not() {
    if !privileged() {
        return;
    }
    let world = World::new();
    for (from, to) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let [from, to] = [from, to].map(|address| SocketAddr::new(address.parse().unwrap(), 6000));
        let receiver = world.ends[1].enter(|| UdpSocket::bind(to)).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The tunnel's own socket sends super-packets through the tunnel.
        let sender = world.ends[0].enter(|| PathSocket::bind(from, Some("crosslane0"))).unwrap().unwrap();
        assert_eq!(sender.interface(), Some("crosslane0"));
        for round in 0..100 {
            let sent = content(round)[..20 * 1200 + 33].to_vec();
            assert_eq!(sender.send((None, to), 0, 1200, &sent).unwrap(), 21);
            for expected in sent.chunks(1200) {
                let mut buffer = [0; 2000];
                let len = receiver.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..len], expected);
            }
        }
        let said = sender.send((None, to), 0, 1401, &[0; 4000]).unwrap_err();
        assert!(is_too_big(&said), "{said}");
        assert!(sender.cuts(), "what is too big is not held against the kernel");
    }
    assert_eq!(world.counts.refused.load(Ordering::Relaxed), 0);
    eprintln!("udp: {:?}", world.counts);
}

/// Devices of the emulator are told of no offload: the way of a plain interface.
#[test]
fn a_path_without_offload_carries_what_is_sent_in_one_call() {
    if !privileged() {
        return;
    }
    let mut world = Testbed::new(&[PathPlan { name: "lte".into(), metric: 0 }]).unwrap();
    let devices = world.take_devices().remove(0);
    let at = SocketAddr::new(vehicle_address(0).into(), 4000);
    let to = SocketAddr::new(SERVER.into(), 4000);
    let vehicle = world.vehicle.enter(|| PathSocket::bind(at, Some("lte"))).unwrap().unwrap();
    let server = world.server.enter(|| PathSocket::bind(to, None)).unwrap().unwrap();
    assert_eq!(vehicle.send((None, to), 0xb9, 1200, &content(1)[..40 * 1200]).unwrap(), 40);
    eprintln!("the kernel cuts for a plain TUN device: {}", vehicle.cuts());
    let mut packet = [0; 2000];
    for _ in 0..40 {
        let len = devices.vehicle.receive(&mut packet).unwrap();
        assert_eq!((len, Inner::parse(&packet[..len]).unwrap().must_stay_whole()), (1228, true));
        devices.server.send(&packet[..len]).unwrap();
    }
    let mut buffers = ReceiveBuffers::default();
    let mut got = Vec::new();
    while got.len() < 40 * 1200 {
        server.receive(&mut buffers).unwrap();
        for datagram in buffers.datagrams() {
            assert_eq!((datagram.from, datagram.tos), (at, 0xb9));
            got.extend_from_slice(datagram.bytes);
        }
    }
    assert_eq!(got, content(1)[..40 * 1200]);
}

/// The complaint is ours, in the name of a router, as anybody's could be.
#[test]
fn a_complaint_in_the_name_of_a_router_changes_nothing_of_what_a_socket_sends() {
    if !privileged() {
        return;
    }
    let end = Namespace::new().unwrap();
    let addresses = vec![("10.77.0.1".parse().unwrap(), 24), ("fd77::1".parse().unwrap(), 64)];
    let plan = Plan { name: "wide0".into(), mtu: 1500, addresses };
    let device = end.enter(|| Device::open(&plan)).unwrap().unwrap();
    for (local, to, router) in [("10.77.0.1", "10.77.0.2", "10.77.0.9"), ("fd77::1", "fd77::2", "fd77::9")] {
        let [local, to] = [local, to].map(|address| SocketAddr::new(address.parse().unwrap(), 6000));
        let socket = end.enter(|| PathSocket::bind(local, None)).unwrap().unwrap();
        // While IPv6 is still being set up on the interface, the kernel may forget what it was told.
        for _ in 0..10 {
            socket.send((None, to), 0, 1400, &[5; 1400]).unwrap();
            let answer = outgoing(&device, |packet| too_big(packet, 1280, router.parse().unwrap()));
            device.send_packet(&answer).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        let longest = 1500 - if local.is_ipv4() { 28 } else { 48 };
        assert_eq!(socket.send((None, to), 0, longest, &vec![5; longest]).unwrap(), 1);
        let sent = outgoing(&device, |packet| (packet.len() == 1500).then(|| packet.to_vec()));
        assert_eq!(sent.len(), 1500, "whole, whatever the router said");
        assert!(Inner::parse(&sent).unwrap().must_stay_whole());
        assert_eq!(socket.send((None, to), 0, 1400, &[5; 5600]).unwrap(), 4);
        assert!(is_too_big(&socket.send((None, to), 0, longest + 1, &vec![5; longest + 1]).unwrap_err()));
    }
}

#[test]
fn what_may_be_cut_is_cut_by_the_kernel_over_ipv6_and_left_to_routers_over_ipv4() {
    if !privileged() {
        return;
    }
    let end = Namespace::new().unwrap();
    let addresses = vec![("10.77.0.1".parse().unwrap(), 24), ("fd77::1".parse().unwrap(), 64)];
    let plan = Plan { name: "wide0".into(), mtu: 1500, addresses };
    let device = end.enter(|| Device::open(&plan)).unwrap().unwrap();
    let length = |length: usize| move |packet: &[u8]| (packet.len() == length).then(|| packet.to_vec());
    let socket = |local: &str| end.enter(|| PathSocket::bind(local.parse().unwrap(), None)).unwrap().unwrap();
    let (v4, v6) = (socket("10.77.0.1:6000"), socket("[fd77::1]:6000"));
    let (to, to_v6) = ("10.77.0.2:6000".parse().unwrap(), "[fd77::2]:6000".parse().unwrap());
    assert_eq!(v4.send_in_fragments((None, to), 0, 1400, &[5; 2800]).unwrap(), 2);
    let sent = outgoing(&device, length(1428));
    assert!(!Inner::parse(&sent).unwrap().must_stay_whole());
    // While IPv6 is still being set up on the interface, the kernel may forget what it was told.
    for _ in 0..10 {
        v6.send((None, to_v6), 0, 1400, &[5; 1400]).unwrap();
        let answer = outgoing(&device, |packet| too_big(packet, 1280, "fd77::9".parse().unwrap()));
        device.send_packet(&answer).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(v6.send_in_fragments((None, to_v6), 0, 1400, &[5; 2800]).unwrap(), 2);
    assert!(v4.cuts() && v6.cuts(), "that is not held against the kernel");
    let first = outgoing(&device, |packet| (packet[0] >> 4 == 6 && packet[6] == 44).then(|| packet.to_vec()));
    assert!((1232..=1280).contains(&first.len()), "{}", first.len());
    // What comes next stays whole again.
    v4.send((None, to), 0, 1300, &[5; 1300]).unwrap();
    assert!(Inner::parse(&outgoing(&device, length(1328))).unwrap().must_stay_whole());
    v6.send((None, to_v6), 0, 1400, &[5; 1400]).unwrap();
    assert_eq!(outgoing(&device, length(1448))[6], 17);
}

/// What `answer` says to the first packet to which it says something; the kernel
/// also sends what nobody asked for.
fn outgoing(device: &Device, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        let len = device.receive(&mut frame).unwrap();
        let mut said = None;
        split(&mut frame[..len], |packet| said = answer(packet)).unwrap();
        if let Some(said) = said {
            return said;
        }
    }
}

#[test]
fn a_name_that_is_taken_is_told_in_a_sentence() {
    if !privileged() {
        return;
    }
    let end = Namespace::new().unwrap();
    let plan = Plan { name: "crosslane0".into(), mtu: MTU, addresses: Vec::new() };
    let device = end.enter(|| Device::open(&plan)).unwrap().unwrap();
    let said = end.enter(|| Device::open(&plan)).unwrap().unwrap_err();
    let expected =
        "while making the TUN device \"crosslane0\": an interface has this name already; choose another name";
    assert_eq!((said.to_string().as_str(), said.exit_code()), (expected, 2));
    drop(device);
    let table = end.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert!(!table.contains("crosslane0"), "it goes with its descriptor");
}
