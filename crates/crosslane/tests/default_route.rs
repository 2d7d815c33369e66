//! The default route that follows the strategy: where connections of programs begin that choose no address, as the
//! kernel decides it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::{self, allow_ipv6};
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::netlink::Wiring;
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::{Route, SERVER, Testbed, vehicle_address};
use rtnetlink::RouteMessageBuilder;

const CONFIGURATION: &str = r#"
[service]
mode = "backup"
prefer = ["nr", "lte"]
KEYS
[[path]]
name = "lte"
rat = "lte"
[[path]]
name = "nr"
rat = "nr"
[strategy]
name = "threshold"
[log]
events = "EVENTS"
"#;
/// Longer than the agent takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, 1);
const LTE: &str = "lte";
const NR: &str = "nr";
const VPN: &str = "vpn0";

/// A vehicle with two paths. The main table prefers `lte`, the agent's configuration `nr`; `vpn0` is no path of the
/// agent, and down.
struct World {
    testbed: Testbed,
    _emulator: crosslane::testbed::emulator::Emulator,
}

impl World {
    fn new() -> World {
        let names = [VPN, LTE, NR];
        let (testbed, emulator) = links::links(&names, &[10.0; 3], 5);
        allow_ipv6(&testbed);
        testbed.set_up(0, false).unwrap();
        let wire = || {
            select_path_manager(PathManager::UserSpace).unwrap();
            let mut wiring = Wiring::open().unwrap();
            for place in [1, 2] {
                let interface = wiring.index(names[place]).unwrap();
                wiring.add_address(interface, vehicle_v6(place), 64).unwrap();
                add_default_v6(interface, 10 + place as u32);
            }
        };
        testbed.vehicle.enter(wire).unwrap();
        World { testbed, _emulator: emulator }
    }

    fn agent(&self, keys: &str) -> Agent {
        Agent::start(&self.testbed.vehicle, &CONFIGURATION.replace("KEYS", keys))
    }

    /// The path over which a packet to this address leaves, by the source address that the kernel chooses.
    fn leaves_over(&self, to: impl Into<IpAddr>) -> &'static str {
        let to = to.into();
        let source = || {
            let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { [0; 4].into() };
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.connect((to, 9)).unwrap();
            socket.local_addr().unwrap().ip()
        };
        let source = self.testbed.vehicle.enter(source).unwrap();
        let has = |place: &usize| source == IpAddr::from(vehicle_address(*place)) || source == vehicle_v6(*place);
        [VPN, LTE, NR][(0..3).find(has).unwrap()]
    }

    fn await_path(&self, agent: &Agent, expected: &str) {
        self.await_path_to(agent, SERVER.into(), expected);
        self.await_path_to(agent, SERVER_V6.into(), expected);
    }

    fn await_path_to(&self, agent: &Agent, to: IpAddr, expected: &str) {
        let began = Instant::now();
        while self.leaves_over(to) != expected {
            let found = self.leaves_over(to);
            assert!(began.elapsed() < LIMIT, "to {to} over {found}, not {expected}: {}", agent.read("events.jsonl"));
            sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(CROSSLANE);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.testbed.vehicle.spawn(&mut command).unwrap();
        let output = ProgramOutput::from(child.wait_with_output().unwrap());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }

    /// Removes our rules and routes; returns how many there were.
    fn remaining(&self) -> usize {
        self.testbed.vehicle.enter(|| Wiring::open().unwrap().set_path_routes(&[], None).unwrap()).unwrap()
    }
}

fn vehicle_v6(place: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, place as u16, 0, 0, 0, 0, 0, 2)
}

fn add_default_v6(interface: u32, metric: u32) {
    let add = async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let route = RouteMessageBuilder::<Ipv6Addr>::new().output_interface(interface).priority(metric).build();
        handle.route().add(route).execute().await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(add);
}

/// The vehicle's address of the first subflow of a new connection.
fn first_subflow(world: &World, listener: &socket2::Socket) -> SocketAddr {
    let (client, _server) = links::connect(&world.testbed, listener);
    client.local_addr().unwrap().as_socket().unwrap()
}

#[test]
fn a_connection_begins_on_the_path_that_the_strategy_prefers_and_the_next_one_after_a_change_on_the_other() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let listener = links::listen(&world.testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    assert_eq!(world.leaves_over(SERVER), LTE, "without an agent");
    let agent = world.agent("");
    world.await_path(&agent, NR);
    assert_eq!(first_subflow(&world, &listener).ip(), vehicle_address(2));
    world.run(&["prefer", "lte"]);
    world.await_path(&agent, LTE);
    assert_eq!(first_subflow(&world, &listener).ip(), vehicle_address(1));
    world.run(&["prefer", "--end"]);
    world.await_path(&agent, NR);
    world.testbed.set_up(2, false).unwrap();
    world.await_path_to(&agent, SERVER.into(), LTE);
    world.testbed.set_up(2, true).unwrap();
    world.await_path_to(&agent, SERVER.into(), NR);
    assert_eq!(first_subflow(&world, &listener).ip(), vehicle_address(2));
    drop(agent.end());
    assert_eq!(world.leaves_over(SERVER), LTE);
    assert_eq!(world.remaining(), 0);
}

#[test]
fn what_a_killed_agent_left_is_removed_by_the_next_one_and_either_key_leaves_the_default_route_alone() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    for keys in ["routes = false", "default_route = false"] {
        let killed = world.agent("");
        world.await_path(&killed, NR);
        killed.kill();
        assert_eq!(world.leaves_over(SERVER), NR);
        let next = world.agent(keys);
        world.await_path(&next, LTE);
        drop(next.end());
        assert_eq!(world.remaining(), 0, "{keys}");
    }
}

#[test]
fn closer_routes_and_a_default_route_over_another_interface_stay() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let closer: IpAddr = [10, 200, 0, 1].into();
    let route = || {
        let mut wiring = Wiring::open().unwrap();
        let interface = wiring.index(LTE).unwrap();
        let source = Some(vehicle_address(1).into());
        wiring.add_route(Route { to: Some(closer), interface, via: None, source, table: None, metric: 0 }).unwrap();
    };
    world.testbed.vehicle.enter(route).unwrap();
    let agent = world.agent("");
    world.await_path(&agent, NR);
    assert_eq!(world.leaves_over(closer), LTE);
    // A new address of a path gets its rule behind those of the default route, which are set again.
    let further: IpAddr = [10, 9, 0, 2].into();
    let bound = |to: IpAddr| {
        let source = move || crosslane::netlink::interface_towards(further, to).unwrap();
        let (over, lte) = (world.testbed.vehicle.enter(source).unwrap(), world.testbed.vehicle.enter(index_of_lte));
        over == Some(lte.unwrap())
    };
    let add = || Wiring::open().and_then(|mut wiring| wiring.add_address(index_of_lte(), further, 32)).unwrap();
    world.testbed.vehicle.enter(add).unwrap();
    let began = Instant::now();
    while !bound(SERVER.into()) {
        assert!(began.elapsed() < LIMIT, "{}", agent.read("events.jsonl"));
        sleep(Duration::from_millis(50));
    }
    world.await_path(&agent, NR);
    world.testbed.set_up(0, true).unwrap();
    world.await_path_to(&agent, SERVER.into(), VPN);
    world.testbed.set_up(0, false).unwrap();
    world.await_path_to(&agent, SERVER.into(), NR);
    drop(agent.end());
    assert_eq!(world.remaining(), 0);
}

fn index_of_lte() -> u32 {
    Wiring::open().unwrap().index(LTE).unwrap()
}
