//! A vehicle's home address is led from one roadside unit to the other while datagrams flow: none is
//! lost, and nothing is left of agents that end or are killed.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::program::can_drive;
use crate::program::units::{AIR_DELAY, HOME, World, backhaul, carries, name, wait_until};
use crosslane::netlink::home::Owner;
use crosslane::netlink::links::{self, Notice};
use crosslane::roadside::redirector::{Redirector, UnitPlace};
use crosslane::testbed::{Namespace, SERVER, Wiring};
use socket2::{Domain, Protocol, Socket, Type};

const PORT: u16 = 5400;
/// Interval of the datagrams.
const INTERVAL: Duration = Duration::from_millis(10);
/// Number of redirects that are measured.
const REDIRECTS: usize = 40;

/// Sockets at the home address, one for what arrives from each unit.
fn receivers(world: &World) -> [UdpSocket; 2] {
    let bind = |unit: usize| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind_device(Some(name(unit).as_bytes())).unwrap();
        socket.bind(&SocketAddrV4::new(HOME, PORT).into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.into()
    };
    world.testbed.vehicle.enter(|| [bind(0), bind(1)]).unwrap()
}

/// Arrivals from each unit: the datagram's number and when it arrived.
type Arrivals = [Vec<(u32, Instant)>; 2];

/// Datagrams flow from the server to the home address during `work`. Returns its result, how many
/// were sent, and what arrived.
fn during_flow<T>(world: &World, work: impl FnOnce() -> T) -> (T, u32, Arrivals) {
    let receivers = receivers(world);
    let sender = world.testbed.server.enter(|| UdpSocket::bind((SERVER, 0)).unwrap()).unwrap();
    let (is_over, is_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let receive = |socket: UdpSocket| {
            let (mut arrivals, mut bytes, is_sent) = (Vec::new(), [0; 64], &is_sent);
            move || loop {
                match socket.recv(&mut bytes) {
                    Ok(4) => arrivals.push((u32::from_be_bytes(bytes[..4].try_into().unwrap()), Instant::now())),
                    Ok(_) => panic!("another datagram"),
                    Err(_) if is_sent.load(Ordering::Relaxed) => return std::mem::take(&mut arrivals),
                    Err(_) => {}
                }
            }
        };
        let threads = receivers.map(|socket| scope.spawn(receive(socket)));
        let send = scope.spawn(|| {
            let mut next = Instant::now();
            for number in 0_u32.. {
                if is_over.load(Ordering::Relaxed) {
                    return number;
                }
                sender.send_to(&number.to_be_bytes(), (HOME, PORT)).unwrap();
                next += INTERVAL;
                sleep(next.saturating_duration_since(Instant::now()));
            }
            0
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        let sent = send.join().unwrap();
        sleep(Duration::from_millis(300));
        is_sent.store(true, Ordering::Relaxed);
        (result, sent, threads.map(|thread| thread.join().unwrap()))
    })
}

/// Numbers of datagrams that arrived, in order.
fn numbers(arrivals: &Arrivals) -> Vec<u32> {
    let mut numbers: Vec<u32> = arrivals.iter().flatten().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers
}

fn lead(world: &World, redirector: &mut Redirector, unit: usize) -> [Instant; 2] {
    let place = UnitPlace { name: name(unit), next_hop: backhaul(unit) };
    let lead = || {
        let decided = Instant::now();
        redirector.lead(HOME, Some(&place));
        [decided, Instant::now()]
    };
    world.gateway().enter(lead).unwrap()
}

/// The answer from the server to a datagram with the home address as its source.
fn ask_the_server(world: &World) -> std::io::Result<()> {
    let server = world.testbed.server.enter(|| UdpSocket::bind((SERVER, 5300))).unwrap()?;
    let vehicle = world.testbed.vehicle.enter(|| UdpSocket::bind((HOME, 0))).unwrap()?;
    for socket in [&server, &vehicle] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    vehicle.send_to(b"ask", (SERVER, 5300))?;
    let from = server.recv_from(&mut [0; 8])?.1;
    assert_eq!(from.ip(), HOME);
    server.send_to(b"answer", from)?;
    vehicle.recv(&mut [0; 8]).map(drop)
}

/// How many home addresses, routes of the agent and rules a vehicle has.
fn left(namespace: &Namespace) -> [usize; 3] {
    let count = || {
        let present = links::snapshot().unwrap();
        let is_home = |notice: &&Notice| matches!(notice, Notice::Address(event) if event.address == HOME);
        let mut wiring = Wiring::open().unwrap();
        let routes = wiring.home_routes(Owner::Agent).unwrap().len();
        [present.iter().filter(is_home).count(), routes, wiring.rules(0x4352_5310..=0x4352_5310).unwrap().len()]
    };
    namespace.enter(count).unwrap()
}

fn redirected_over(kind: &str) {
    let world = World::new();
    let controller = world.controller();
    let units = [0, 1].map(|unit| world.start_unit(unit, kind));
    let vehicle = world.start_vehicle(kind);
    let radio = world.radio();
    (0..2).for_each(|unit| controller.wait(unit, "the tunnel carries", carries));
    let mut redirector = world.gateway().enter(|| Redirector::routes().unwrap()).unwrap();
    lead(&world, &mut redirector, 0);
    ask_the_server(&world).unwrap();

    let redirect = || {
        sleep(Duration::from_millis(200));
        let decide = |count: usize| {
            let decided = lead(&world, &mut redirector, (count + 1) % 2);
            // Different phases of the interval of the datagrams.
            sleep(Duration::from_millis(50) + Duration::from_micros(370 * count as u64));
            decided
        };
        (0..REDIRECTS).map(decide).collect::<Vec<_>>()
    };
    let (decisions, sent, arrivals) = during_flow(&world, redirect);
    report(kind, &decisions, &arrivals);
    assert_eq!(numbers(&arrivals), (0..sent).collect::<Vec<_>>(), "each datagram arrives once");
    assert!(arrivals.iter().all(|of_unit| of_unit.len() > REDIRECTS), "both units carry");

    drop(controller);
    let ((), sent, arrivals) = during_flow(&world, || sleep(Duration::from_secs(4)));
    assert_eq!(numbers(&arrivals).len(), sent as usize, "without a controller");
    let says = |unit: &crate::program::agent::Agent| unit.read("stderr").matches("what flows goes on").count();
    assert!(units.iter().all(|unit| says(unit) >= 1), "{}", units[0].read("stderr"));

    vehicle.kill();
    assert_eq!(left(&world.testbed.vehicle)[0], 1, "a killed agent leaves the address");
    let vehicle = world.start_vehicle(kind);
    wait_until(|| ask_the_server(&world).is_ok(), || "no answer after a restart".into());
    assert_eq!(left(&world.testbed.vehicle), [1, 2, 1], "once, unreachable and over a unit");
    vehicle.end();
    assert_eq!(left(&world.testbed.vehicle), [0; 3], "an agent that ends leaves nothing");
    drop(radio);
    units.into_iter().for_each(|unit| drop(unit.end()));
    (0..2).for_each(|unit| assert_eq!(left(world.unit(unit)), [0; 3]));
}

/// Prints how long the old way carries after the decision, without the delay of the air.
fn report(kind: &str, decisions: &[[Instant; 2]], arrivals: &Arrivals) {
    let (mut silent, mut done) = (Vec::new(), Vec::new());
    for (count, &[decided, confirmed]) in decisions.iter().enumerate() {
        let until = decisions.get(count + 1).map(|[next, _]| *next);
        let old = arrivals[count % 2].iter().map(|(_, at)| *at);
        let last = old.filter(|at| *at > decided && until.is_none_or(|until| *at < until)).max();
        let after = last.map_or(Duration::ZERO, |last| (last - decided).saturating_sub(AIR_DELAY));
        silent.push(after.as_secs_f64() * 1e3);
        done.push((confirmed - decided).as_secs_f64() * 1e3);
    }
    silent.sort_by(f64::total_cmp);
    done.sort_by(f64::total_cmp);
    let middle = silent.len() / 2;
    eprintln!(
        "{kind}: {} redirects: the old way carries for at most {:.2} ms after the decision (median {:.2} ms); the \
         kernel confirms within {:.2} ms (median {:.2} ms)",
        decisions.len(),
        silent[silent.len() - 1],
        silent[middle],
        done[done.len() - 1],
        done[middle]
    );
}

#[test]
fn a_redirect_between_encrypted_tunnels_loses_nothing() {
    if can_drive() {
        redirected_over("crosslane");
    }
}

#[test]
fn a_redirect_between_vxlan_tunnels_loses_nothing() {
    if can_drive() {
        redirected_over("vxlan");
    }
}

/// The next hop of the home address at the gateway.
fn next_hop(world: &World) -> Option<Ipv4Addr> {
    let routes = || Wiring::open().unwrap().home_routes(Owner::Controller).unwrap();
    world.gateway().enter(routes).unwrap().first().map(|route| route.hop.unwrap().via)
}

#[test]
fn the_controller_leads_the_home_address_to_the_stronger_unit_and_nothing_is_lost() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let controller = world.start_controller();
    let units = [0, 1].map(|unit| world.start_unit(unit, "crosslane"));
    let vehicle = world.start_vehicle("crosslane");
    let radio = world.radio();
    let receive = |signals: [i32; 2]| *radio.signals.lock().unwrap() = signals.map(Some);
    let leads_to = |unit: usize| {
        let events = || std::fs::read_to_string(world.keys.file("controller.jsonl")).unwrap_or_default();
        wait_until(|| next_hop(&world) == Some(backhaul(unit)), events);
    };
    receive([-60, -80]);
    leads_to(0);
    wait_until(|| ask_the_server(&world).is_ok(), || "no answer from the server".into());
    let drive = || {
        receive([-80, -60]);
        leads_to(1);
        sleep(Duration::from_millis(500));
    };
    let ((), sent, arrivals) = during_flow(&world, drive);
    assert_eq!(numbers(&arrivals), (0..sent).collect::<Vec<_>>(), "each datagram arrives once");
    let ends = |unit: usize| {
        let routes = world.unit(unit).enter(|| Wiring::open().unwrap().home_routes(Owner::Agent).unwrap()).unwrap();
        routes.iter().filter(|route| route.hop.is_none()).count()
    };
    assert_eq!([ends(0), ends(1)], [0, 1], "only the serving unit sends nothing back to the gateway");
    controller.kill();
    let ((), sent, arrivals) = during_flow(&world, || sleep(Duration::from_secs(1)));
    assert_eq!(numbers(&arrivals).len(), sent as usize, "without a controller");
    assert!(units[1].read("events.jsonl").contains("\"serves\":true"), "{}", units[1].read("events.jsonl"));
    vehicle.end();
}

#[test]
fn packets_from_the_home_address_follow_the_strategy_and_take_no_other_way() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let controller = world.controller();
    let _units = [0, 1].map(|unit| world.start_unit(unit, "vxlan"));
    let vehicle = world.start_vehicle("vxlan");
    let bind = || UdpSocket::bind((HOME, 0)).unwrap();
    let socket = world.testbed.vehicle.enter(bind).unwrap();
    assert!(socket.send_to(b"lost", (SERVER, 5300)).is_err(), "no unit is in reach");
    let radio = world.radio();
    (0..2).for_each(|unit| controller.wait(unit, "the tunnel carries", carries));
    let mut redirector = world.gateway().enter(|| Redirector::routes().unwrap()).unwrap();
    lead(&world, &mut redirector, 0);
    ask_the_server(&world).unwrap();
    let present = || {
        let events = vehicle.read("events.jsonl");
        let last = events.lines().rev().find(|line| line.contains("\"event\":\"home\"")).unwrap_or_default().to_owned();
        (0..2).find(|unit| last.contains(&name(*unit)))
    };
    wait_until(|| present().is_some(), || vehicle.read("events.jsonl"));
    let first = present().unwrap();
    radio.signals.lock().unwrap()[first] = Some(-95);
    wait_until(|| present() == Some(1 - first), || vehicle.read("events.jsonl"));
    lead(&world, &mut redirector, 1 - first);
    ask_the_server(&world).unwrap();
    let nowhere = || socket.send_to(b"lost", (SERVER, 5300)).is_err();
    world.testbed.vehicle.enter(|| Wiring::open().unwrap().set_up("its-g5", false).unwrap()).unwrap();
    wait_until(nowhere, || "it still leaves".into());
}

#[test]
fn routes_that_the_kernel_removes_with_an_interface_are_set_again() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let _controller = world.start_controller();
    let _unit = world.start_unit(0, "crosslane");
    let vehicle = world.start_vehicle("crosslane");
    let radio = world.radio();
    *radio.signals.lock().unwrap() = [Some(-60), None];
    let answers = || wait_until(|| ask_the_server(&world).is_ok(), || vehicle.read("events.jsonl"));
    wait_until(|| next_hop(&world) == Some(backhaul(0)), || vehicle.read("events.jsonl"));
    answers();
    for (namespace, interface) in [(world.unit(0), "crosslane0"), (&world.testbed.vehicle, "rsu1")] {
        let bounce = || {
            let mut wiring = Wiring::open().unwrap();
            wiring.set_up(interface, false).unwrap();
            wiring.set_up(interface, true).unwrap();
        };
        namespace.enter(bounce).unwrap();
        answers();
    }
}
