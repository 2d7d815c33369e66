//! Links that the kernel shapes, on a testbed and in drives.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::program::{can_drive, crosslane, not_run};
use crosslane::clock::Clock;
use crosslane::testbed::wire::{Shape, WirePlan};
use crosslane::testbed::{Namespace, PathPlan, SERVER, Testbed, TestbedPlan, prepare_privileges, vehicle_address};
use serde_json::Value;

fn privileged() -> bool {
    prepare_privileges().map_or_else(|error| not_run(&error.to_string()), |_| true)
}

/// A testbed with wires of these rates in Mbit/s; `None` is unshaped.
fn wired(rates: &[Option<f64>]) -> Testbed {
    let names: Vec<String> = (0..rates.len()).map(|place| format!("w{place}")).collect();
    let paths = names.iter().zip(0..).map(|(name, metric)| PathPlan { name: name.clone(), metric });
    let plan =
        |rate: &Option<f64>| WirePlan { shape: rate.map(|mbit_s| Shape { bit_s: mbit_s * 1e6, queue_ms: 50.0 }) };
    let wires: BTreeMap<String, WirePlan> = names.iter().cloned().zip(rates.iter().map(plan)).collect();
    Testbed::with(&paths.collect::<Vec<_>>(), &TestbedPlan { wires, ..TestbedPlan::default() }).unwrap()
}

/// Rate in Mbit/s of a TCP connection from one namespace to the other.
fn tcp_mbit_s(from: &Namespace, to: &Namespace, address: Ipv4Addr, bytes: usize) -> f64 {
    let listener = to.enter(|| TcpListener::bind((address, 5001))).unwrap().unwrap();
    let sender = from.enter(|| TcpStream::connect((address, 5001))).unwrap().unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let writer = thread::spawn(move || (&sender).write_all(&vec![7; bytes]));
    let clock = Clock::start();
    let (mut received, mut buffer) = (0, vec![0; 65536]);
    while received < bytes {
        received += receiver.read(&mut buffer).unwrap();
    }
    let took_s = clock.now().as_secs_f64();
    writer.join().unwrap().unwrap();
    bytes as f64 * 8.0 / 1e6 / took_s
}

#[test]
fn a_tcp_connection_gets_the_rate_of_the_wire_in_each_direction() {
    if !privileged() {
        return;
    }
    let testbed = wired(&[Some(60.0)]);
    let up = tcp_mbit_s(&testbed.vehicle, &testbed.server, SERVER, 12_000_000);
    assert!((54.0..58.0).contains(&up), "{up} Mbit/s up");
    let down = tcp_mbit_s(&testbed.server, &testbed.vehicle, vehicle_address(0), 12_000_000);
    assert!((54.0..58.0).contains(&down), "{down} Mbit/s down");
    let [up, down] = testbed.wires[0].counts().unwrap();
    for count in [up, down] {
        assert!((12_400_000..13_400_000).contains(&count.delivered_bytes), "{count:?}");
    }
}

#[test]
fn packets_that_find_the_queue_full_are_dropped_and_counted() {
    if !privileged() {
        return;
    }
    // The queue holds 50 ms at 2 Mbit/s and a burst: about 27 kB.
    let testbed = wired(&[Some(2.0)]);
    let server = testbed.server.enter(|| UdpSocket::bind((SERVER, 5000))).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let vehicle = testbed.vehicle.enter(|| UdpSocket::bind((vehicle_address(0), 5000))).unwrap().unwrap();
    for _ in 0..100 {
        vehicle.send_to(&[7; 1000], (SERVER, 5000)).unwrap();
    }
    let mut received = 0;
    while server.recv(&mut [0; 2000]).is_ok() {
        received += 1;
    }
    let [up, down] = testbed.wires[0].counts().unwrap();
    assert!((25..60).contains(&received), "{received} received");
    assert_eq!((up.dropped_packets, up.delivered_bytes), (100 - received, received * 1028));
    assert_eq!(up.sent_bytes, 100 * 1028);
    assert_eq!(down.delivered_bytes, 0);
}

#[test]
fn an_unshaped_wire_carries_more_than_the_emulator() {
    if !privileged() {
        return;
    }
    let testbed = wired(&[None, Some(5.0)]);
    let mbit_s = tcp_mbit_s(&testbed.vehicle, &testbed.server, SERVER, 200_000_000);
    assert!(mbit_s > 1000.0, "{mbit_s} Mbit/s");
    let [first, second] = [0, 1].map(|wire: usize| testbed.wires[wire].counts().unwrap()[0].delivered_bytes);
    assert!(first >= 200_000_000 && second == 0, "{first} and {second} bytes");
}

/// A drive of 3 s over a wire and an emulated link.
const MIXED: &str = r#"name = "mixed"
duration_s = 3
[vehicle]
route = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 2 }
[[cellular]]
name = "slow"
rat = "lte"
rate_mbit_s = 20
delay_ms = 40
loss = 0.1
[[wire]]
name = "fast"
rate_mbit_s = 30
[traffic]
kind = "stream"
size_bytes = 1000
rate_mbit_s = 4
[[strategy]]
name = "wired"
base = "single"
path = "fast"
"#;

#[test]
fn a_drive_over_a_wire_and_an_emulated_link_reports_share_and_loss_of_each() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), MIXED).unwrap();
    let output =
        crosslane(workdir.path(), &["drive", "s.toml", "--strategy", "single,wired", "--json", "--out", "out"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    let metric = |run: usize, name: &str| summary["runs"][run]["metrics"][name].as_f64().unwrap();
    for (run, path, [min_lost, max_lost], [min_ms, max_ms]) in
        [(0, "slow", [0.03, 0.2], [40.0, 50.0]), (1, "fast", [0.0, 0.0], [0.0, 15.0])]
    {
        assert_eq!(metric(run, &format!("path.{path}.share")), 1.0);
        assert_eq!(metric(run, "messages.sent"), 500.0, "from 1 s to 2 s");
        let lost = metric(run, "lost_share");
        assert!((min_lost..=max_lost).contains(&lost), "{path} lost {lost}");
        let delay_ms = metric(run, "delivery_delay_ms.p50");
        assert!((min_ms..=max_ms).contains(&delay_ms), "{path}: {delay_ms} ms");
        assert_eq!((metric(run, "reordered_share"), metric(run, "duplicated_share")), (0.0, 0.0));
    }
    let overhead = metric(1, "overhead_share");
    assert!((0.02..0.04).contains(&overhead), "28 bytes in 1000, and {overhead}");
}
