//! TCP and UDP traffic between two TUN devices with offload, connected by segmentation (GSO)
//! and coalescing (GRO) of their packets.

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
use crosslane::tunnel::socket::{PathSocket, ReceiveBuffers};
use crosslane_core::packet::gro::Coalescer;
use crosslane_core::packet::gso::{FRAME_BYTES, split};
use crosslane_core::packet::icmp_too_big::too_big;
use crosslane_core::packet::ip::IpView;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sha2::{Digest, Sha256};

const MTU: u32 = 1400;
const BYTES: usize = 200_000_000;

/// False, after printing the reason, where namespaces cannot be created.
fn privileged() -> bool {
    let Err(error) = prepare_privileges() else {
        return true;
    };
    assert!(env::var_os("CI").is_none(), "e2e NOT RUN: {error}");
    eprintln!("e2e NOT RUN: {error}");
    false
}

/// Two namespaces with a device each, and threads that carry packets between them.
struct World {
    namespaces: [Namespace; 2],
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    packets: AtomicU64,
    writes: AtomicU64,
    write_errors: AtomicU64,
}

impl World {
    fn new() -> World {
        let namespaces = [Namespace::new().unwrap(), Namespace::new().unwrap()];
        let open = |place: usize| {
            let addresses = [(format!("10.77.0.{}", place + 1), 24), (format!("fd77::{}", place + 1), 64)];
            let addresses = addresses.map(|(address, bits)| (address.parse().unwrap(), bits)).to_vec();
            let plan = Plan { name: "crosslane0".into(), mtu: MTU, addresses };
            Arc::new(namespaces[place].enter(|| Device::open(&plan)).unwrap().unwrap())
        };
        let devices = [open(0), open(1)];
        eprintln!("offload: {:?}", devices[0].offload());
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let mut threads = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = sync_channel(4096);
            let (from, to) = (devices[from].clone(), devices[to].clone());
            let [(stop, read_counts), (_, write_counts)] =
                [(stop.clone(), counts.clone()), (stop.clone(), counts.clone())];
            threads.push(thread::spawn(move || read_packets(&from, &sender, &stop, &read_counts)));
            threads.push(thread::spawn(move || write_packets(&to, &receiver, &write_counts)));
        }
        World { namespaces, stop, counts, threads }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Reads GSO packets from the device and passes on their segments; a full channel drops them.
fn read_packets(device: &Device, packets: &SyncSender<Vec<u8>>, stop: &AtomicBool, counts: &Counts) {
    let mut frame = vec![0; FRAME_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match device.receive(&mut frame) {
            Ok(len) => {
                counts.reads.fetch_add(1, Ordering::Relaxed);
                let each = |packet: &mut [u8]| {
                    assert!(packet.len() <= MTU as usize && IpView::parse(&*packet).is_some());
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

/// Coalesces received packets and writes them to the device.
fn write_packets(device: &Device, packets: &Receiver<Vec<u8>>, counts: &Counts) {
    let mut coalescer = Coalescer::new(device.offload().udp);
    while let Ok(first) = packets.recv() {
        for packet in std::iter::once(first).chain(packets.try_iter().take(200)) {
            assert!(coalescer.push(&IpView::parse(&packet).unwrap()));
        }
        let written = coalescer.flush(|parts| {
            counts.writes.fetch_add(1, Ordering::Relaxed);
            device.send(parts)
        });
        counts.write_errors.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
    }
}

/// Content of block `number`.
fn content(number: usize) -> Vec<u8> {
    (0..1_000_000_usize).map(|at| (at ^ at >> 8 ^ number.wrapping_mul(31)) as u8).collect()
}

fn transfer(world: &World, address: IpAddr) {
    let at = SocketAddr::new(address, 7000);
    let listener = world.namespaces[1].enter(|| TcpListener::bind(at)).unwrap().unwrap();
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
    let mut stream = world.namespaces[0].enter(|| TcpStream::connect(at)).unwrap().unwrap();
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
fn tcp_data_arrives_intact_in_few_reads_and_writes() {
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
    assert_eq!(count(&counts.write_errors), 0);
    // The data alone is 2 × 148,000 packets, and acknowledgements are not coalesced.
    assert!(count(&counts.packets) > 290_000, "{counts:?}");
    assert!(count(&counts.reads) < count(&counts.packets) / 3, "{counts:?}");
    assert!(count(&counts.writes) < count(&counts.packets) / 2, "{counts:?}");
}

#[test]
fn datagrams_arrive_intact_with_and_without_segmentation_by_the_device() {
    if !privileged() {
        return;
    }
    let world = World::new();
    for (from, to) in [("10.77.0.1", "10.77.0.2"), ("fd77::1", "fd77::2")] {
        let [from, to] = [from, to].map(|address| SocketAddr::new(address.parse().unwrap(), 6000));
        let receiver = world.namespaces[1].enter(|| UdpSocket::bind(to)).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The socket of a path sends GSO packets through the tunnel.
        let sender = world.namespaces[0].enter(|| PathSocket::bind(from, Some("crosslane0"))).unwrap().unwrap();
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
        let error = sender.send((None, to), 0, 1401, &[0; 4000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert!(sender.cuts(), "a datagram that is too big does not disable segmentation by the kernel");
    }
    assert_eq!(world.counts.write_errors.load(Ordering::Relaxed), 0);
    eprintln!("udp: {:?}", world.counts);
}

/// The TUN devices of the emulator have no offload, like a plain interface.
#[test]
fn a_path_without_offload_carries_all_datagrams_of_one_call() {
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
    eprintln!("the kernel segments for a plain TUN device: {}", vehicle.cuts());
    let mut packet = [0; 2000];
    for _ in 0..40 {
        let len = devices.vehicle.receive(&mut packet).unwrap();
        assert_eq!((len, IpView::parse(&packet[..len]).unwrap().must_stay_whole()), (1228, true));
        devices.server.send(&packet[..len]).unwrap();
    }
    let mut buffers = ReceiveBuffers::default();
    let mut received = Vec::new();
    while received.len() < 40 * 1200 {
        server.receive(&mut buffers).unwrap();
        for datagram in buffers.datagrams() {
            assert_eq!((datagram.from, datagram.tos), (at, 0xb9));
            received.extend_from_slice(datagram.bytes);
        }
    }
    assert_eq!(received, content(1)[..40 * 1200]);
}

/// The test forges the ICMP error of a router.
#[test]
fn a_forged_icmp_error_does_not_change_what_a_socket_sends() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let addresses = vec![("10.77.0.1".parse().unwrap(), 24), ("fd77::1".parse().unwrap(), 64)];
    let plan = Plan { name: "wide0".into(), mtu: 1500, addresses };
    let device = namespace.enter(|| Device::open(&plan)).unwrap().unwrap();
    for (local, to, router) in [("10.77.0.1", "10.77.0.2", "10.77.0.9"), ("fd77::1", "fd77::2", "fd77::9")] {
        let [local, to] = [local, to].map(|address| SocketAddr::new(address.parse().unwrap(), 6000));
        let socket = namespace.enter(|| PathSocket::bind(local, None)).unwrap().unwrap();
        // While IPv6 is still being configured on the interface, the kernel may discard ICMP errors.
        for _ in 0..10 {
            socket.send((None, to), 0, 1400, &[5; 1400]).unwrap();
            let icmp = outgoing(&device, |packet| too_big(&IpView::parse(packet)?, 1280, router.parse().unwrap()));
            device.send_packet(&icmp).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        let longest = 1500 - if local.is_ipv4() { 28 } else { 48 };
        assert_eq!(socket.send((None, to), 0, longest, &vec![5; longest]).unwrap(), 1);
        let sent = outgoing(&device, |packet| (packet.len() == 1500).then(|| packet.to_vec()));
        assert_eq!(sent.len(), 1500, "unfragmented, in spite of the ICMP error");
        assert!(IpView::parse(&sent).unwrap().must_stay_whole());
        assert_eq!(socket.send((None, to), 0, 1400, &[5; 5600]).unwrap(), 4);
        let error = socket.send((None, to), 0, longest + 1, &vec![5; longest + 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}

#[test]
fn fragmentable_datagrams_are_fragmented_by_the_kernel_over_ipv6_and_by_routers_over_ipv4() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let addresses = vec![("10.77.0.1".parse().unwrap(), 24), ("fd77::1".parse().unwrap(), 64)];
    let plan = Plan { name: "wide0".into(), mtu: 1500, addresses };
    let device = namespace.enter(|| Device::open(&plan)).unwrap().unwrap();
    let length = |length: usize| move |packet: &[u8]| (packet.len() == length).then(|| packet.to_vec());
    let socket = |local: &str| namespace.enter(|| PathSocket::bind(local.parse().unwrap(), None)).unwrap().unwrap();
    let (v4, v6) = (socket("10.77.0.1:6000"), socket("[fd77::1]:6000"));
    let (to, to_v6) = ("10.77.0.2:6000".parse().unwrap(), "[fd77::2]:6000".parse().unwrap());
    assert_eq!(v4.send_in_fragments((None, to), 0, 1400, &[5; 2800]).unwrap(), 2);
    let sent = outgoing(&device, length(1428));
    assert!(!IpView::parse(&sent).unwrap().must_stay_whole());
    // While IPv6 is still being configured on the interface, the kernel may discard ICMP errors.
    for _ in 0..10 {
        v6.send((None, to_v6), 0, 1400, &[5; 1400]).unwrap();
        let icmp = outgoing(&device, |packet| too_big(&IpView::parse(packet)?, 1280, "fd77::9".parse().unwrap()));
        device.send_packet(&icmp).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(v6.send_in_fragments((None, to_v6), 0, 1400, &[5; 2800]).unwrap(), 2);
    assert!(v4.cuts() && v6.cuts(), "this does not disable segmentation by the kernel");
    let first = outgoing(&device, |packet| (packet[0] >> 4 == 6 && packet[6] == 44).then(|| packet.to_vec()));
    assert!((1232..=1280).contains(&first.len()), "{}", first.len());
    // Later datagrams are not fragmented.
    v4.send((None, to), 0, 1300, &[5; 1300]).unwrap();
    assert!(IpView::parse(&outgoing(&device, length(1328))).unwrap().must_stay_whole());
    v6.send((None, to_v6), 0, 1400, &[5; 1400]).unwrap();
    assert_eq!(outgoing(&device, length(1448))[6], 17);
}

/// The result of `select` for the first packet for which it has one; the kernel also
/// sends unrelated packets.
fn outgoing(device: &Device, select: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        let len = device.receive(&mut frame).unwrap();
        let mut selected = None;
        split(&mut frame[..len], |packet| selected = select(packet)).unwrap();
        if let Some(selected) = selected {
            return selected;
        }
    }
}

#[test]
fn a_device_name_in_use_is_reported_in_one_message() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let plan = Plan { name: "crosslane0".into(), mtu: MTU, addresses: Vec::new() };
    let device = namespace.enter(|| Device::open(&plan)).unwrap().unwrap();
    let error = namespace.enter(|| Device::open(&plan)).unwrap().unwrap_err();
    let expected =
        "while making the TUN device \"crosslane0\": an interface has this name already; choose another name";
    assert_eq!((error.to_string().as_str(), error.exit_code()), (expected, 2));
    drop(device);
    let table = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert!(!table.contains("crosslane0"), "the device exists as long as its descriptor");
}
