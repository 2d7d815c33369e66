//! The routers between the vehicle and the server: one thread on TUN devices, with a
//! separate rate, delay and behaviour for each path.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crosslane::clock::monotonic_ns;
use crosslane::tun::Tun;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::hardships::Behaviour;
use super::packet::{self, Side};
use super::plan::PathPlan;

/// Maximum queueing delay of a router.
const QUEUE_NS: u64 = 150_000_000;
/// First port that a NAT router assigns.
const FIRST_PORT: u16 = 20_000;

/// Settings of a router.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    behaviour: Behaviour,
    forgets: u64,
}

/// The routers; dropping this stops them.
pub struct Routers {
    settings: Arc<Mutex<Vec<Settings>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Routers {
    /// Connects the devices of the vehicle, one for each path, with the single device of the server.
    pub fn start(vehicle: Vec<Tun>, server: Tun, plans: &[PathPlan]) -> Routers {
        let settings = Arc::new(Mutex::new(vec![Settings::default(); plans.len()]));
        let stop = Arc::new(AtomicBool::new(false));
        let paths = vehicle.into_iter().zip(plans).enumerate().map(|(place, (tun, plan))| Path::new(place, tun, plan));
        let mut work = Work { paths: paths.collect(), server, settings: settings.clone(), stop: stop.clone() };
        let thread = std::thread::Builder::new().name("routers".into()).spawn(move || work.run()).unwrap();
        Routers { settings, stop, thread: Some(thread) }
    }

    /// Sets the behaviour of the router of a path.
    pub fn behave(&self, path: usize, behaviour: Behaviour) {
        self.settings.lock().unwrap()[path].behaviour = behaviour;
    }

    /// Clears the address translations of the router of a path.
    pub fn forget(&self, path: usize) {
        self.settings.lock().unwrap()[path].forgets += 1;
    }
}

impl Drop for Routers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Work {
    paths: Vec<Path>,
    server: Tun,
    settings: Arc<Mutex<Vec<Settings>>>,
    stop: Arc<AtomicBool>,
}

struct Path {
    place: usize,
    tun: Tun,
    up: Direction,
    down: Direction,
    translation: Option<Translation>,
    settings: Settings,
}

/// Packets in flight in one direction, in the order of their delivery.
struct Direction {
    ns_per_byte: u64,
    delay_ns: u64,
    free_at_ns: u64,
    queue: VecDeque<(u64, Vec<u8>)>,
}

/// Source network address translation with ports.
#[derive(Default)]
struct Translation {
    assigned: BTreeMap<(IpAddr, u16), u16>,
    owners: BTreeMap<u16, (IpAddr, u16)>,
    next: u16,
}

impl Work {
    fn run(&mut self) {
        let mut buffer = vec![0; 2048];
        while !self.stop.load(Ordering::Relaxed) {
            self.wait();
            self.apply_settings();
            for place in 0..self.paths.len() {
                while let Ok(length) = self.paths[place].tun.receive(&mut buffer) {
                    self.paths[place].carry_up(buffer[..length].to_vec());
                }
            }
            while let Ok(length) = self.server.receive(&mut buffer) {
                self.carry_down(buffer[..length].to_vec());
            }
            let now_ns = monotonic_ns();
            for path in &mut self.paths {
                path.up.release(now_ns, |packet| drop(self.server.send(packet)));
                path.down.release(now_ns, |packet| drop(path.tun.send(packet)));
            }
        }
    }

    fn wait(&self) {
        let due =
            self.paths.iter().flat_map(|path| [&path.up, &path.down]).filter_map(|direction| direction.queue.front());
        let wait_ns = due.map(|(at_ns, _)| at_ns.saturating_sub(monotonic_ns())).min().unwrap_or(20_000_000);
        let wait = PollTimeout::from((wait_ns.div_ceil(1_000_000) as u16).min(20));
        let tuns = self.paths.iter().map(|path| &path.tun).chain([&self.server]);
        let mut ready: Vec<PollFd> = tuns.map(|tun| PollFd::new(tun.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut ready, wait).unwrap();
    }

    fn apply_settings(&mut self) {
        for (path, settings) in self.paths.iter_mut().zip(self.settings.lock().unwrap().iter()) {
            if settings.forgets != path.settings.forgets
                && let Some(translation) = &mut path.translation
            {
                translation.assigned.clear();
                translation.owners.clear();
            }
            path.settings = *settings;
        }
    }

    fn carry_down(&mut self, packet: Vec<u8>) {
        let Some(to) = packet::address(&packet, Side::Destination) else { return };
        let Some(path) = self.paths.iter_mut().find(|path| path.is_behind(to)) else { return };
        path.carry_down(packet, &self.server);
    }
}

impl Path {
    fn new(place: usize, tun: Tun, plan: &PathPlan) -> Path {
        let direction = || Direction {
            ns_per_byte: 8_000 / plan.rate_mbit_s,
            delay_ns: plan.delay_ms * 1_000_000,
            free_at_ns: 0,
            queue: VecDeque::new(),
        };
        let translation = plan.nat.then(|| Translation { next: FIRST_PORT, ..Translation::default() });
        Path { place, tun, up: direction(), down: direction(), translation, settings: Settings::default() }
    }

    /// True for addresses of the network of the path, or for the outside address of its NAT.
    fn is_behind(&self, address: IpAddr) -> bool {
        match self.translation {
            Some(_) => address == outside(self.place, address.is_ipv6()),
            None => place_of(address) == Some(self.place + 1),
        }
    }

    fn carry_up(&mut self, mut packet: Vec<u8>) {
        match self.settings.behaviour {
            Behaviour::Drop { up: true, .. } => return,
            Behaviour::Refuse => {
                return packet::unreachable(&packet).iter().for_each(|reply| drop(self.tun.send(reply)));
            }
            Behaviour::Reset => return packet::reset(&packet).iter().for_each(|reply| drop(self.tun.send(reply))),
            Behaviour::Strip => packet::strip(&mut packet),
            Behaviour::Drop { .. } | Behaviour::Forward => {}
        }
        let source = packet::address(&packet, Side::Source).filter(|source| place_of(*source) == Some(self.place + 1));
        let Some(source) = source else { return };
        if self.translation.is_some() {
            let outside = outside(self.place, source.is_ipv6());
            let (Some(translation), Some(port)) = (&mut self.translation, packet::port(&packet, Side::Source)) else {
                return;
            };
            let assigned = translation.assign((source, port));
            packet::rewrite(&mut packet, Side::Source, outside, assigned);
        }
        self.up.enqueue(packet);
    }

    fn carry_down(&mut self, mut packet: Vec<u8>, server: &Tun) {
        match self.settings.behaviour {
            Behaviour::Drop { down: true, .. } => return,
            Behaviour::Refuse => return packet::unreachable(&packet).iter().for_each(|reply| drop(server.send(reply))),
            Behaviour::Reset => return packet::reset(&packet).iter().for_each(|reply| drop(server.send(reply))),
            Behaviour::Strip => packet::strip(&mut packet),
            Behaviour::Drop { .. } | Behaviour::Forward => {}
        }
        if let Some(translation) = &self.translation {
            let port = packet::port(&packet, Side::Destination);
            let Some(&(address, port)) = port.and_then(|port| translation.owners.get(&port)) else { return };
            packet::rewrite(&mut packet, Side::Destination, address, port);
        }
        self.down.enqueue(packet);
    }
}

/// Outside address of the NAT router of a path.
pub fn outside(place: usize, v6: bool) -> IpAddr {
    let number = place as u16 + 101;
    match v6 {
        false => Ipv4Addr::new(10, number as u8, 0, 1).into(),
        true => Ipv6Addr::new(0xfd00, number, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Number of the network of an address of this test.
fn place_of(address: IpAddr) -> Option<usize> {
    match address {
        IpAddr::V4(address) if address.octets()[0] == 10 => Some(usize::from(address.octets()[1])),
        IpAddr::V6(address) if address.segments()[0] == 0xfd00 => Some(usize::from(address.segments()[1])),
        _ => None,
    }
}

impl Direction {
    fn enqueue(&mut self, packet: Vec<u8>) {
        let now_ns = monotonic_ns();
        let start_ns = self.free_at_ns.max(now_ns);
        if start_ns - now_ns > QUEUE_NS {
            return;
        }
        self.free_at_ns = start_ns + packet.len() as u64 * self.ns_per_byte;
        self.queue.push_back((self.free_at_ns + self.delay_ns, packet));
    }

    fn release(&mut self, now_ns: u64, mut deliver: impl FnMut(&[u8])) {
        while self.queue.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
            self.queue.pop_front().iter().for_each(|(_, packet)| deliver(packet));
        }
    }
}

impl Translation {
    fn assign(&mut self, owner: (IpAddr, u16)) -> u16 {
        if let Some(&assigned) = self.assigned.get(&owner) {
            return assigned;
        }
        let port = self.next;
        self.next = self.next.checked_add(1).unwrap_or(FIRST_PORT);
        self.assigned.insert(owner, port);
        self.owners.insert(port, owner);
        port
    }
}
