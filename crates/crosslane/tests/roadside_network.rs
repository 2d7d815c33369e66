//! The whole roadside network, every part a process: a vehicle, two units and a controller that leads its home address.

use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::program::can_drive;
use crate::program::controller::{Running, start};
use crate::program::units::{HOME, STATIONS, VEHICLE, World, backhaul, inner, name, wait_until};
use crosslane::controller::status::{Status, query_controller};
use crosslane::testbed::SERVER;
use tempfile::TempDir;

const PORT: u16 = 5400;
/// Interval of the datagrams.
const INTERVAL: Duration = Duration::from_millis(10);

fn start_controller(world: &World, folder: &TempDir) -> Running {
    let mut text = format!(
        "listen = \"10.90.0.1:4761\"\nkey = \"{}\"\n[log]\nevents = \"events.jsonl\"\n",
        world.keys.file("controller")
    );
    for (unit, station) in STATIONS.into_iter().enumerate() {
        let (name, prefix, next_hop) = (name(unit), inner(unit, 0), backhaul(unit));
        let (key, address) = (world.keys.public(&name), crosslane::testbed::unit_address(unit));
        write!(
            text,
            "[[unit]]\nname = \"{name}\"\nstation = {station}\nkey = \"{key}\"\naddress = \"{address}\"\nprefix = \
             \"{prefix}/24\"\nnext_hop = \"{next_hop}\"\n"
        )
        .unwrap();
    }
    let (station, host, key) = (VEHICLE.station, VEHICLE.host, world.keys.public("vehicle"));
    write!(
        text,
        "[[vehicle]]\nname = \"car\"\nstation = {station}\nkey = \"{key}\"\nhost = {host}\nhome = \"{HOME}\"\n"
    )
    .unwrap();
    fs::write(folder.path().join("controller.toml"), text).unwrap();
    start(world.gateway(), folder.path())
}

fn status(world: &World) -> Option<Status> {
    world.gateway().enter(|| query_controller().ok()).unwrap()
}

fn serving(world: &World) -> Option<String> {
    status(world)?.vehicles.first()?.serving.clone()
}

fn wait_for(world: &World, folder: &TempDir, unit: usize) {
    let events = || fs::read_to_string(folder.path().join("events.jsonl")).unwrap_or_default();
    let is_so = || serving(world) == Some(name(unit));
    wait_until(is_so, || format!("{} does not serve: {:#?}\n{}", name(unit), status(world), events()));
}

/// Datagrams to the home address, and how many of them arrived.
struct Flow {
    sent: AtomicU32,
    received: AtomicU32,
    is_over: AtomicBool,
}

impl Flow {
    fn wait_for_more(&self, count: u32) {
        let before = self.received.load(Ordering::Relaxed);
        wait_until(
            || self.received.load(Ordering::Relaxed) >= before + count,
            || format!("{before} of {} datagrams, and then none", self.sent.load(Ordering::Relaxed)),
        );
    }
}

/// Ends the flow, also after a failed assertion.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn during_flow(world: &World, work: impl FnOnce(&Flow)) -> (u32, u32) {
    let flow = Flow { sent: AtomicU32::new(0), received: AtomicU32::new(0), is_over: AtomicBool::new(false) };
    let server = world.testbed.server.enter(|| UdpSocket::bind((SERVER, 0)).unwrap()).unwrap();
    let vehicle = world.testbed.vehicle.enter(|| UdpSocket::bind((HOME, PORT)).unwrap()).unwrap();
    vehicle.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !flow.is_over.load(Ordering::Relaxed) {
                server.send_to(b"datagram", (HOME, PORT)).unwrap();
                flow.sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(INTERVAL);
            }
        });
        scope.spawn(|| {
            loop {
                match vehicle.recv(&mut [0; 16]) {
                    Ok(_) => drop(flow.received.fetch_add(1, Ordering::Relaxed)),
                    Err(_) if flow.is_over.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        let _end = End(&flow.is_over);
        work(&flow);
    });
    (flow.sent.into_inner(), flow.received.into_inner())
}

#[test]
fn a_home_address_follows_the_vehicle_from_unit_to_unit_and_stays_reachable_without_the_controller() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let folder = TempDir::new().unwrap();
    let controller = start_controller(&world, &folder);
    let [first, _second] = [0, 1].map(|unit| world.start_unit(unit, "crosslane"));
    let _vehicle = world.start_vehicle("crosslane");
    let radio = world.radio();
    *radio.signals.lock().unwrap() = [Some(-60), Some(-75)];
    wait_for(&world, &folder, 0);
    // Both tunnels stand: the vehicle moves, and nothing is lost.
    let (sent, received) = during_flow(&world, |flow| {
        flow.wait_for_more(20);
        wait_until(|| status(&world).is_some_and(|of| of.vehicles[0].units.len() == 2), || "one unit reports".into());
        *radio.signals.lock().unwrap() = [Some(-80), Some(-60)];
        wait_for(&world, &folder, 1);
        flow.wait_for_more(20);
        *radio.signals.lock().unwrap() = [Some(-60), Some(-80)];
        wait_for(&world, &folder, 0);
        flow.wait_for_more(20);
    });
    assert_eq!(sent, received, "datagrams were lost while both units carried");
    // The serving unit dies.
    during_flow(&world, |flow| {
        flow.wait_for_more(20);
        first.kill();
        wait_for(&world, &folder, 1);
        flow.wait_for_more(20);
        // Without the controller, everything goes on.
        drop(controller);
        flow.wait_for_more(100);
    });
    let _next = start_controller(&world, &folder);
    assert_eq!(serving(&world), Some(name(1)), "the next controller finds the route");
    let is_known = |of: &Status| of.units[1].connected && of.vehicles[0].units.len() == 1;
    wait_until(|| status(&world).as_ref().is_some_and(is_known), || format!("{:#?}", status(&world)));
}
