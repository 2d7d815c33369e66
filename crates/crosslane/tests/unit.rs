//! A roadside unit tells its controller which vehicles it receives and whose tunnels deliver, and
//! says what it lacks.

use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::units::{Controller, HOME, VEHICLE, World, cam, carries, inner, wait_until};
use crate::program::{can_drive, crosslane};
use crosslane::netlink::home::Owner;
use crosslane::testbed::{Route, Wiring};
use crosslane_core::roadside::messages::Report;
use tempfile::TempDir;

/// Routes of home addresses at a unit.
fn routes(world: &World, unit: usize) -> usize {
    world.unit(unit).enter(|| Wiring::open().unwrap().home_routes(Owner::Agent).unwrap().len()).unwrap()
}

fn has_no_tunnel(report: &Report) -> bool {
    matches!(report, Report::Vehicle { rssi_dbm: Some(-60.0), has_tunnel: false, carries: false, .. })
}

#[test]
fn a_forged_cam_and_a_hello_outside_the_tunnel_make_no_tunnel() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let controller = world.controller();
    let agent = world.start_unit(0, "vxlan");
    let onboard_unit = world.unit(0).enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let pose_as_the_vehicle = || {
        let mut wiring = Wiring::open().unwrap();
        let (loopback, interface) = (wiring.index("lo").unwrap(), wiring.index("rsu1").unwrap());
        wiring.add_address(loopback, inner(0, VEHICLE.host as u8), 32).unwrap();
        let to = Some(inner(0, 1).into());
        wiring.add_route(Route { to, interface, via: None, source: None, table: None, metric: 0 }).unwrap();
        UdpSocket::bind((inner(0, VEHICLE.host as u8), 0)).unwrap()
    };
    let outside = world.gateway().enter(pose_as_the_vehicle).unwrap();
    for _ in 0..20 {
        onboard_unit.send_to(cam(VEHICLE.station, -60).as_bytes(), "127.0.0.1:5051").unwrap();
        onboard_unit.send_to(cam(4711, -60).as_bytes(), "127.0.0.1:5051").unwrap();
        outside.send_to(&[1], (inner(0, 1), 4762)).unwrap();
        sleep(Duration::from_millis(50));
    }
    controller.wait(0, "the vehicle is received", has_no_tunnel);
    assert_eq!(routes(&world, 0), 0);
    controller.wait(0, "its CAMs have stopped", |report| *report == Report::Left { station: VEHICLE.station });
    assert!(controller.of(0).iter().all(|report| !carries(report)), "{:?}", controller.of(0));
    let (events, stderr) = agent.end();
    assert!(events.contains("from station 4711, which no path names"), "an unknown vehicle");
    assert_eq!(stderr.matches("neither encrypts nor authenticates").count(), 1, "{stderr}");
}

fn comes_and_goes(world: &World, controller: &Controller) {
    let radio = world.radio();
    (0..2).for_each(|unit| controller.wait(unit, "the tunnel carries", carries));
    wait_until(|| routes(world, 0) == 1, || "no route of the home address".into());
    world.air.set_on(0, false).unwrap();
    controller.wait(0, "nothing passes the air", has_no_tunnel);
    wait_until(|| routes(world, 0) == 0, || "the route stays".into());
    *radio.signals.lock().unwrap() = [None; 2];
    controller.wait(0, "nothing is received", |report| *report == Report::Left { station: VEHICLE.station });
    world.air.set_on(0, true).unwrap();
    *radio.signals.lock().unwrap() = [Some(-60); 2];
    controller.wait(0, "it is back", carries);
}

#[test]
fn a_unit_reports_a_vehicle_that_comes_and_goes_and_routes_its_home_address_meanwhile() {
    for kind in ["vxlan", "crosslane"] {
        if !can_drive() {
            return;
        }
        let world = World::new();
        let controller = world.controller();
        let [first, _second] = [0, 1].map(|unit| world.start_unit(unit, kind));
        let _vehicle = world.start_vehicle(kind);
        comes_and_goes(&world, &controller);
        drop(controller);
        let controller = world.controller();
        let radio = world.radio();
        (0..2).for_each(|unit| controller.wait(unit, "a new controller gets everything", carries));
        first.kill();
        let started = world.start_unit(0, kind);
        wait_until(|| routes(&world, 0) == 1, || started.read("stderr"));
        drop(radio);
        started.end();
        assert_eq!(routes(&world, 0), 0, "{kind}: a unit that ends leaves nothing");
    }
}

#[test]
fn a_unit_says_what_it_lacks_and_works_with_the_rest() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.unit(0).set_sysctl("net/ipv4/ip_forward", "0").unwrap();
    let configuration =
        world.unit_configuration(0, "vxlan").replace("interface = \"its-g5\"", "interface = \"its-g9\"");
    let agent = Agent::start(world.unit(0), &configuration);
    let expected = [
        "net.ipv4.ip_forward is 0, so nothing passes",
        "while creating the VXLAN to vehicles: the radio \"its-g9\" is not up, or has no IPv4 address",
        "while following the controller at 10.90.0.1:4761: ",
    ];
    let says = |sentence: &str| agent.read("stderr").contains(sentence);
    wait_until(|| expected.iter().all(|sentence| says(sentence)), || agent.read("stderr"));
    sleep(Duration::from_secs(2));
    let (_, stderr) = agent.end();
    for sentence in expected {
        assert_eq!(stderr.matches(sentence).count(), 1, "{stderr}");
    }
}

#[test]
fn a_home_address_that_the_encrypted_tunnel_would_not_carry_is_said() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let _controller = world.controller();
    let configuration = world.unit_configuration(0, "crosslane").replace(&format!(", \"{HOME}/32\""), "");
    let agent = Agent::start(world.unit(0), &configuration);
    let sentence = "announces the home address 10.99.0.7, which no [[tunnel.vehicle]] of this unit has";
    wait_until(|| agent.read("stderr").contains(sentence), || agent.read("stderr"));
}

#[test]
fn check_reports_what_a_unit_needs() {
    let folder = TempDir::new().unwrap();
    let text = "[observe]\nvanetza = \"127.0.0.1:5051\"\n[unit]\nstation = 1001\nprefix = \"10.81.0.0/24\"\naddress = \
                \"10.90.0.11\"\ntunnel = \"vxlan\"\ninterface = \"its-g5\"\n";
    std::fs::write(folder.path().join("unit.toml"), text).unwrap();
    let checked = crosslane(folder.path(), &["check", "unit.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let keys = "controller = \"10.90.0.1:4761\"\ncontroller_key = \"wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=\"\n\
                key = \"missing.key\"\n";
    std::fs::write(folder.path().join("unit.toml"), text.to_owned() + keys).unwrap();
    let checked = crosslane(folder.path(), &["check", "unit.toml"]);
    assert!(checked.code == Some(2) && format!("{checked:?}").contains("missing.key"), "{checked:?}");
    std::fs::write(folder.path().join("unit.toml"), text.replace("vxlan", "gre")).unwrap();
    let checked = crosslane(folder.path(), &["check", "unit.toml"]);
    assert!(checked.code == Some(2) && format!("{checked:?}").contains("does not learn where"), "{checked:?}");
}
