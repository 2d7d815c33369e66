//! Source routing that an agent sets for its paths, as the kernel applies it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use crate::program::agent::Agent;
use crate::program::can_drive;
use crate::program::links::{allow_ipv6, two_links};
use crosslane::netlink::{Wiring, interface_towards};
use crosslane::testbed::{Namespace, SERVER, Testbed, vehicle_address};
use nix::net::if_::if_nametoindex;
use rtnetlink::RouteMessageBuilder;
use socket2::{Domain, Protocol, Socket, Type};

const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[service]
routes = ROUTES
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
/// Longer than the agent takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);
/// The testbed's routing tables for packets with a source address.
const TABLES_OF_TESTBED: std::ops::RangeInclusive<u32> = 100..=163;
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, 1);

fn vehicle_v6(path: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, path, 0, 0, 0, 0, 0, 2)
}

fn configuration(routes: bool) -> String {
    CONFIGURATION.replace("ROUTES", &routes.to_string())
}

/// The vehicle's interface over which a packet from this address leaves for the server.
fn leaves_over(vehicle: &Namespace, source: impl Into<IpAddr>) -> String {
    let (source, destination) = match source.into() {
        source @ IpAddr::V4(_) => (source, SERVER.into()),
        source @ IpAddr::V6(_) => (source, SERVER_V6.into()),
    };
    let over = move || {
        let index = interface_towards(source, destination).unwrap();
        let name = |name: &&str| if_nametoindex(*name).ok() == index;
        ["lte", "nr"].into_iter().find(name).unwrap_or("nothing").to_owned()
    };
    vehicle.enter(over).unwrap()
}

fn await_path(vehicle: &Namespace, source: impl Into<IpAddr> + Copy, expected: &str) {
    let is_there = || leaves_over(vehicle, source) == expected;
    let waited = (0..LIMIT.as_millis() / 50).any(|_| {
        is_there() || {
            sleep(Duration::from_millis(50));
            false
        }
    });
    assert!(waited, "from {} over {}, not {expected}", source.into(), leaves_over(vehicle, source));
}

/// A default route of IPv6, which the lower metric makes the preferred one.
fn add_default_v6(interface: u32, metric: u32) {
    let add = async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let route = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(interface).priority(metric).build();
        handle.route().add(route).execute().await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(add);
}

/// Two links of both address families, of which the first is preferred; nothing routes by the source address.
fn without_rules() -> (Testbed, crosslane::testbed::emulator::Emulator) {
    let (testbed, emulator) = two_links(["lte", "nr"], 10.0, 5);
    allow_ipv6(&testbed);
    let wire = || {
        let mut wiring = Wiring::open().unwrap();
        wiring.remove_rules(TABLES_OF_TESTBED).unwrap();
        for (place, name) in ["lte", "nr"].into_iter().enumerate() {
            let interface = wiring.index(name).unwrap();
            wiring.add_address(interface, vehicle_v6(place as u16), 64).unwrap();
            add_default_v6(interface, 10 + place as u32);
        }
    };
    testbed.vehicle.enter(wire).unwrap();
    (testbed, emulator)
}

/// Whether a program that binds to the second path's address reaches the server.
fn reaches_over_nr(testbed: &Testbed, listener: &Socket) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&SocketAddr::from((vehicle_address(1), 0)).into()).unwrap();
        let server = SocketAddr::from((SERVER, 5002)).into();
        socket.connect_timeout(&server, Duration::from_millis(1500)).is_ok()
    };
    let is_connected = testbed.vehicle.enter(connect).unwrap();
    is_connected && listener.accept().is_ok()
}

/// Removes our rules and routes; returns how many there were.
fn remaining(vehicle: &Namespace) -> usize {
    vehicle.enter(|| Wiring::open().unwrap().set_path_routes(&[], None).unwrap()).unwrap()
}

#[test]
fn packets_of_each_path_leave_over_it_while_the_agent_runs() {
    if !can_drive() {
        return;
    }
    let (testbed, emulator) = without_rules();
    let vehicle = &testbed.vehicle;
    let listen = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&SocketAddr::from((SERVER, 5002)).into()).unwrap();
        socket.listen(16).unwrap();
        socket
    };
    let listener = testbed.server.enter(listen).unwrap();
    // The preferred path carries nothing.
    emulator.control().set_on(0, false).unwrap();
    assert_eq!(
        (leaves_over(vehicle, vehicle_address(1)), leaves_over(vehicle, vehicle_v6(1))),
        ("lte".into(), "lte".into())
    );
    assert!(!reaches_over_nr(&testbed, &listener), "without an agent");
    let agent = Agent::start(vehicle, &configuration(true));
    for place in [0, 1] {
        let name = ["lte", "nr"][place];
        await_path(vehicle, vehicle_address(place), name);
        await_path(vehicle, vehicle_v6(place as u16), name);
    }
    assert!(reaches_over_nr(&testbed, &listener));
    let (_, stderr) = agent.end();
    assert_eq!(
        (leaves_over(vehicle, vehicle_address(1)), leaves_over(vehicle, vehicle_v6(1))),
        ("lte".into(), "lte".into())
    );
    assert_eq!(remaining(vehicle), 0);
    assert!(!stderr.contains("route"), "{stderr}");
}

#[test]
fn what_a_killed_agent_left_is_removed_by_the_next_one_also_if_that_sets_nothing() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = without_rules();
    let vehicle = &testbed.vehicle;
    let killed = Agent::start(vehicle, &configuration(true));
    await_path(vehicle, vehicle_address(1), "nr");
    killed.kill();
    assert_eq!(leaves_over(vehicle, vehicle_address(1)), "nr");
    let forbidden = Agent::start(vehicle, &configuration(false));
    await_path(vehicle, vehicle_address(1), "lte");
    assert_eq!(remaining(vehicle), 0);
    drop(forbidden.end());
    let other = Agent::start(vehicle, &configuration(true));
    await_path(vehicle, vehicle_v6(1), "nr");
    other.kill();
    let next = Agent::start(
        vehicle,
        &configuration(true).replace("\"nr\"\nrat = \"nr\"", "\"5g\"\ninterface = \"nr\"\nrat = \"nr\""),
    );
    await_path(vehicle, vehicle_address(1), "nr");
    drop(next.end());
    assert_eq!(remaining(vehicle), 0);
}

#[test]
fn rules_follow_addresses_and_links_and_are_set_again_if_another_program_removes_them() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = without_rules();
    let vehicle = &testbed.vehicle;
    let agent = Agent::start(vehicle, &configuration(true));
    await_path(vehicle, vehicle_address(1), "nr");
    let further: IpAddr = [10, 9, 0, 2].into();
    let change = |add: bool| {
        let change = move || {
            let mut wiring = Wiring::open().unwrap();
            let interface = wiring.index("nr").unwrap();
            match add {
                true => wiring.add_address(interface, further, 32).unwrap(),
                false => wiring.remove_address(interface, further, 32).unwrap(),
            }
        };
        vehicle.enter(change).unwrap();
    };
    change(true);
    await_path(vehicle, further, "nr");
    change(false);
    testbed.set_up(1, false).unwrap();
    testbed.set_up(1, true).unwrap();
    await_path(vehicle, vehicle_address(1), "nr");
    assert!(remaining(vehicle) > 0);
    await_path(vehicle, vehicle_address(1), "nr");
    drop(agent.end());
    assert_eq!(remaining(vehicle), 0);
}

#[test]
fn an_agent_takes_over_when_the_one_that_set_rules_has_ended() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = without_rules();
    let vehicle = &testbed.vehicle;
    let former = Agent::start(vehicle, &configuration(true));
    await_path(vehicle, vehicle_address(1), "nr");
    let next = Agent::start(vehicle, &configuration(true));
    drop(former.end());
    await_path(vehicle, vehicle_address(1), "nr");
    drop(next.end());
    assert_eq!(remaining(vehicle), 0);
}
