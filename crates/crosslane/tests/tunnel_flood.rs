//! What others send must not hold up a vehicle, nor fill a gateway.

#![allow(clippy::unwrap_used)]

mod program;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use crosslane::clock::{Clock, unix_ns};
use crosslane::testbed::SERVER;
use crosslane::tunnel::security::{PrivateKey, Security};
use crosslane::tunnel::socket::PathSocket;
use crosslane_core::time::Instant;
use program::agent::Agent;
use program::can_drive;
use program::tunnelled::{INNER, World};

const PORT: u16 = 7005;

/// Initiations of the vehicle from hours ago, as somebody recorded them.
fn recorded(world: &World, count: u64) -> Vec<Vec<u8>> {
    let hour = Duration::from_secs(3600).as_nanos() as u64;
    let of = |n: u64| {
        let mut vehicle = Security::new(world.keys[1].clone(), vec![world.keys[0].public()]);
        vehicle.initiate(Instant::ZERO, unix_ns() - (n + 1) * hour, 0).unwrap()
    };
    (0..count).map(of).collect()
}

#[test]
fn ten_thousand_replayed_initiations_a_second_do_not_hold_up_a_vehicle_that_starts_again() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let (gateway, vehicle) = world.start();
    sleep(Duration::from_secs(1));
    vehicle.kill();
    let replays = recorded(&world, 8);
    let stop = Arc::new(AtomicBool::new(false));
    let socket = world.testbed.server.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let ended = stop.clone();
    let attacker = thread::spawn(move || {
        let clock = Clock::start();
        let mut sent = 0u64;
        while !ended.load(Relaxed) {
            // As many as are due, whatever the machine does in between.
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
    let hears = world.testbed.server.enter(bind(PORT)).unwrap().unwrap();
    let asks = world.testbed.vehicle.enter(bind(0)).unwrap().unwrap();
    hears.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let came = (0..1000).any(|_| {
        drop(asks.send_to(b"here", (INNER, PORT)));
        hears.recv(&mut [0; 10]).is_ok()
    });
    let took = clock.now();
    stop.store(true, Relaxed);
    let sent = attacker.join().unwrap();
    eprintln!("{sent} replays; traffic after {took}");
    assert!(came && took < Instant::from_millis(1500), "traffic came after {took}");
    drop((gateway, vehicle));
}

#[test]
fn a_gateway_keeps_little_for_vehicles_that_are_away_and_gives_it_back() {
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
        // The interface holds 500 super-packets: it is to take all of them.
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
    eprintln!("{before} KiB, {full} while packets wait, {after} afterwards");
    assert!(full < before + 130_000, "{before} KiB became {full}");
    assert!(after < before + 16_000, "{before} KiB became {full}, and then {after}");
}
