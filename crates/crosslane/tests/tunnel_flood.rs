//! Replayed or unsolicited traffic neither delays a vehicle nor exhausts the memory of a gateway.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::tunnelled::{INNER, World};
use crosslane::clock::{Clock, unix_ns};
use crosslane::testbed::SERVER;
use crosslane::tunnel::security::{PrivateKey, Security};
use crosslane::tunnel::socket::PathSocket;
use crosslane_core::time::Instant;

const PORT: u16 = 7005;

/// Handshake initiations of the vehicle from earlier hours, as an attacker may have recorded them.
fn recorded_initiations(world: &World, count: u64) -> Vec<Vec<u8>> {
    let hour = Duration::from_secs(3600).as_nanos() as u64;
    let of = |n: u64| {
        let mut vehicle = Security::new(world.keys[1].clone(), vec![world.keys[0].public()]);
        vehicle.initiate(Instant::ZERO, unix_ns() - (n + 1) * hour, 0).unwrap()
    };
    (0..count).map(of).collect()
}

#[test]
fn ten_thousand_replayed_initiations_a_second_do_not_delay_a_restarted_vehicle() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    sleep(Duration::from_secs(1));
    vehicle.kill();
    let replays = recorded_initiations(&world, 8);
    let stop = Arc::new(AtomicBool::new(false));
    let socket = world.testbed.server.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let ended = stop.clone();
    let attacker = thread::spawn(move || {
        let clock = Clock::start();
        let mut sent = 0u64;
        while !ended.load(Relaxed) {
            // As many as are due, also after a pause of this thread.
            while sent < clock.now().as_nanos() / 100_000 {
                drop(socket.send_to(&replays[sent as usize % replays.len()], (SERVER, 4760)));
                sent += 1;
            }
            sleep(Duration::from_millis(1));
        }
        sent
    });
    sleep(Duration::from_millis(1500));
    let clock = Clock::start();
    let vehicle = world.start_vehicle();
    let bind = |port: u16| move || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let receiver = world.testbed.server.enter(bind(PORT)).unwrap().unwrap();
    let sender = world.testbed.vehicle.enter(bind(0)).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let arrived = (0..1000).any(|_| {
        drop(sender.send_to(b"here", (INNER, PORT)));
        receiver.recv(&mut [0; 10]).is_ok()
    });
    let took = clock.now();
    stop.store(true, Relaxed);
    let sent = attacker.join().unwrap();
    eprintln!("{sent} replays; traffic after {took}");
    assert!(arrived && took < Instant::from_millis(1500), "traffic flows after {took}");
    drop((gateway, vehicle));
}

#[test]
fn a_gateway_buffers_little_for_absent_vehicles_and_releases_the_memory() {
    if !can_drive() {
        return;
    }
    const VEHICLES: u8 = 30;
    let world = World::new();
    let mut configuration = world.gateway();
    for vehicle in 3..=VEHICLES {
        let key = PrivateKey::generate().unwrap().public();
        configuration += &format!(
            "[[tunnel.vehicle]]\nname = \"v{vehicle}\"\nkey = \"{key}\"\naddress = [\"10.77.0.{}/32\"]\n",
            vehicle + 1
        );
    }
    let gateway = Agent::start(&world.testbed.server, &configuration);
    let before = gateway.resident_kib();
    let socket = world.testbed.server.enter(|| PathSocket::bind((INNER, 0).into(), None)).unwrap().unwrap();
    let sent = vec![7; 40 * 1200];
    for _ in 0..8500 / 40 {
        for vehicle in 1..=VEHICLES {
            let to = SocketAddr::from((Ipv4Addr::new(10, 77, 0, vehicle + 1), 9));
            for _ in 0..100 {
                match socket.send((None, to), 0, 1200, &sent) {
                    Ok(_) => break,
                    Err(_) => sleep(Duration::from_millis(1)),
                }
            }
        }
        // The queue of the interface holds 500 GSO packets; none may be dropped there.
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(200));
    let full = gateway.resident_kib();
    let mut after = full;
    for _ in 0..150 {
        sleep(Duration::from_millis(100));
        after = gateway.resident_kib();
        if after < before + 16_000 {
            break;
        }
    }
    eprintln!("{before} KiB, {full} while packets are queued, {after} afterwards");
    assert!(full < before + 130_000, "{before} KiB became {full}");
    assert!(after < before + 16_000, "{before} KiB became {full}, then {after}");
}
