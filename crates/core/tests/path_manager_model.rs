//! The path manager with a model of the kernel that refuses commands, and delays and
//! loses events: commands stay bounded, no subflow is opened twice, no id stands for
//! two addresses, and the wanted states are reached within 10 s of calm.
//!
//! `CROSSLANE_MODEL_SEEDS` runs more seeds than the usual two hundred.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane_core::mptcp::manager::Manager;
use crosslane_core::mptcp::{AddressId, Command, ConnectionSnapshot, Event, Refusal, Subflow, Token};
use crosslane_core::path::PathState::{self, Active, Backup, Closed};
use crosslane_core::path::{PathId, PathSpec, Rat};
use crosslane_core::time::Instant;

const PATHS: usize = 3;
const STORM_MS: u64 = 20_000;
/// Maximum number of consecutive refusals of one connection; a command refused more
/// often is abandoned.
const MAX_REFUSALS: u32 = 5;
/// Consecutive resets that a connection may take for the peer's limit.
const LIMIT_RESETS: u32 = 3;
/// A subflow that lives this long proves that the peer has room.
const PROVEN_MS: u64 = 1_000;
/// Maximum time from lost events to the next list of all connections.
const LIST_MS: u64 = 500;
/// Maximum time for which commands of a connection wait.
const TURN_MS: u64 = 1_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    subflow: Subflow,
    /// False while the SYN has no answer.
    is_open: bool,
    is_first: bool,
    opened_ms: u64,
    /// The kernel refused to destroy it.
    stays: bool,
}

/// A connection, in the kernel and at the peer.
#[derive(Debug)]
struct Connection {
    is_ours: bool,
    flows: Vec<Flow>,
    /// Pairs of address and id that the kernel remembers.
    pairs: BTreeMap<IpAddr, AddressId>,
    /// The peer's subflows: address, id, and whether it counts as additional.
    held: Vec<(SocketAddr, AddressId, bool)>,
    /// Subflows whose address is gone, possibly while the command to close them waited.
    waited: BTreeSet<SocketAddr>,
    limit: usize,
    refusals: u32,
    /// Resets since a subflow has proven that the peer has room.
    resets: u32,
    /// When a subflow was last reset.
    reset_ms: u64,
}

/// A scheduled action.
#[derive(Clone, Copy, Debug)]
enum Later {
    Deliver(Event),
    Answer(Token, SocketAddr),
}

struct Kernel {
    random: Random,
    connections: BTreeMap<Token, Connection>,
    addresses: [Option<IpAddr>; PATHS],
    /// When each path last lost an address.
    lost_ms: [u64; PATHS],
    later: BTreeMap<(u64, u64), Later>,
    number: u64,
    now_ms: u64,
    last_event_ms: u64,
    is_calm: bool,
    /// True while events are lost, until the next list of all connections.
    lost: bool,
    listed_ms: u64,
    next_token: u32,
    /// When each connection began.
    begun_ms: Vec<u64>,
    next_port: u16,
    refuses_one_in: u64,
    resets_one_in: u64,
}

fn remote() -> SocketAddr {
    SocketAddr::from(([10, 255, 0, 1], 80))
}

impl Kernel {
    fn new(seed: u64) -> Kernel {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..10).for_each(|_| _ = random.below(2));
        let (refuses_one_in, resets_one_in) = (2 + random.below(20), 2 + random.below(20));
        Kernel {
            random,
            connections: BTreeMap::new(),
            addresses: std::array::from_fn(|path| Some(address(path, 0))),
            lost_ms: [0; PATHS],
            later: BTreeMap::new(),
            number: 0,
            now_ms: 0,
            last_event_ms: 0,
            is_calm: false,
            lost: false,
            listed_ms: 0,
            next_token: 1,
            begun_ms: Vec::new(),
            next_port: 1000,
            refuses_one_in,
            resets_one_in,
        }
    }

    fn at(&mut self, ms: u64, later: Later) {
        self.number += 1;
        self.later.insert((ms, self.number), later);
    }

    /// Schedules an event with a delay, in the order of events.
    fn emit(&mut self, event: Event) {
        let delay = if self.random.one_in(20) { 30 } else { self.random.below(2) };
        self.last_event_ms = self.last_event_ms.max(self.now_ms + delay);
        self.at(self.last_event_ms, Later::Deliver(event));
    }

    fn connect(&mut self) {
        let Some(local) = self.addresses.iter().flatten().next().copied() else { return };
        let token = Token(self.next_token);
        (self.next_token, self.next_port) = (self.next_token + 1, self.next_port.wrapping_add(1));
        let local = SocketAddr::new(local, self.next_port);
        let (local_id, remote_id) = (AddressId(0), AddressId(0));
        let subflow = Subflow { local, remote: remote(), local_id, remote_id, backup: false };
        let connection = Connection {
            is_ours: !self.random.one_in(5),
            flows: vec![Flow { subflow, is_open: true, is_first: true, opened_ms: self.now_ms, stays: false }],
            pairs: BTreeMap::new(),
            held: vec![(local, local_id, false)],
            limit: if self.random.one_in(3) { PATHS - 1 } else { 8 },
            waited: BTreeSet::new(),
            refusals: 0,
            resets: 0,
            reset_ms: 0,
        };
        self.connections.insert(token, connection);
        self.begun_ms.push(self.now_ms);
        self.emit(Event::Created { token, subflow, server_side: false });
        self.emit(Event::Established { token, subflow, server_side: false });
    }

    fn command(&mut self, command: &Command) -> Result<(), Refusal> {
        let token = command.token();
        let (is_calm, one_in) = (self.is_calm, self.refuses_one_in);
        // Withdrawals and announcements are refused only for the reasons modelled
        // below, as in Linux.
        let is_announcement = matches!(command, Command::Withdraw { .. } | Command::Announce { .. });
        let refuses = !is_calm && !is_announcement && self.random.one_in(one_in);
        let errno = [1, 11, 12, 22, 105][self.random.below(5) as usize];
        let (addresses, now_ms, lost_ms) = (self.addresses, self.now_ms, self.lost_ms);
        let connection = self.connections.get_mut(&token).ok_or(Refusal::UnknownConnection)?;
        if !connection.is_ours {
            return Err(Refusal::NotOurs);
        }
        if refuses && connection.refusals < MAX_REFUSALS {
            connection.refusals += 1;
            if let Command::DestroySubflow { local, .. } = *command {
                connection.flows.iter_mut().for_each(|flow| flow.stays |= flow.subflow.local == local);
            }
            return Err(Refusal::Other(errno));
        }
        connection.refusals = 0;
        match *command {
            Command::CreateSubflow { local, local_id, backup, remote, .. } => {
                let twice = connection.flows.iter().any(|flow| flow.subflow.local.ip() == local);
                assert!(!twice, "a second subflow from {local}: {connection:?}");
                let known = connection.pairs.get(&local);
                let is_taken = connection.pairs.iter().any(|(ip, id)| *id == local_id && *ip != local);
                if is_taken || known.is_some_and(|known| *known != local_id) {
                    return Err(Refusal::IdTaken);
                }
                if !addresses.contains(&Some(local)) {
                    return Err(Refusal::Other(99));
                }
                connection.pairs.insert(local, local_id);
                self.next_port = self.next_port.wrapping_add(1);
                let local = SocketAddr::new(local, self.next_port);
                let subflow = Subflow { local, remote, local_id, remote_id: AddressId(0), backup };
                connection.flows.push(Flow { subflow, is_open: false, is_first: false, opened_ms: 0, stays: false });
                let delay = 1 + self.random.below(80);
                self.at(self.now_ms + delay, Later::Answer(token, local));
            }
            Command::CancelJoin { local, .. } => {
                let is_it = |flow: &&Flow| !flow.is_open && flow.subflow.local.ip() == local;
                let flow = connection.flows.iter().find(is_it).ok_or(Refusal::UnknownSubflow)?.subflow;
                connection.take(flow.local);
                self.emit(Event::SubflowClosed { token, subflow: flow, error: 103 });
            }
            Command::DestroySubflow { local, .. } => {
                let flow = connection.take(local).ok_or(Refusal::UnknownSubflow)?;
                connection.pairs.remove(&local.ip());
                // A FIN arrives only from an address that still exists.
                if addresses.contains(&Some(local.ip())) {
                    connection.held.retain(|(held, _, _)| *held != local);
                } else if now_ms < lost_ms[path_of(local)] + TURN_MS {
                    connection.waited.insert(local);
                }
                self.emit(Event::SubflowClosed { token, subflow: flow.subflow, error: 0 });
            }
            Command::SetBackup { local, backup, .. } => {
                let flow = connection.flows.iter_mut().find(|flow| flow.subflow.local == local);
                flow.ok_or(Refusal::UnknownSubflow)?.subflow.backup = backup;
            }
            Command::Withdraw { local_id, .. } => {
                let is_here = |local: SocketAddr| addresses.contains(&Some(local.ip()));
                let is_late = |local| now_ms < lost_ms[path_of(local)] + TURN_MS;
                let is_right = |flow: &Flow| flow.stays || is_here(flow.subflow.local) || is_late(flow.subflow.local);
                let is_unknown = self.lost || now_ms < connection.reset_ms + LIST_MS + TURN_MS;
                connection.withdraw(local_id, |carrier| carrier.map_or(is_unknown, is_right))?;
            }
            Command::Announce { local, local_id, .. } => {
                connection.pairs.insert(local.ip(), local_id);
            }
        }
        Ok(())
    }

    /// The peer's answer to the SYN of a subflow.
    fn answer(&mut self, token: Token, local: SocketAddr) {
        let is_reset = !self.is_calm && self.random.one_in(self.resets_one_in);
        let is_lost = !self.is_calm && self.random.one_in(10);
        let is_there = self.addresses.contains(&Some(local.ip()));
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(flow) = connection.flows.iter_mut().find(|flow| flow.subflow.local == local) else { return };
        (flow.is_open, flow.opened_ms) = (true, self.now_ms);
        let subflow = Subflow { backup: false, ..flow.subflow };
        if is_lost || !is_there {
            connection.take(local);
            return self.emit(Event::SubflowClosed { token, subflow, error: 110 });
        }
        let id = subflow.local_id;
        let clash = connection.held.iter().any(|(held, other, _)| *other == id && held.ip() != local.ip());
        assert!(!clash, "{id:?} means two addresses: {connection:?}");
        let is_full = connection.held.iter().filter(|(_, _, additional)| *additional).count() >= connection.limit;
        if is_full || is_reset {
            connection.was_reset(self.now_ms);
            connection.take(local);
            self.emit(Event::SubflowEstablished { token, subflow });
            return self.emit(Event::SubflowClosed { token, subflow, error: 104 });
        }
        connection.held.push((local, id, true));
        self.emit(Event::SubflowEstablished { token, subflow });
    }

    /// Runs the actions due by now; returns the events for the path manager.
    fn advance(&mut self, now_ms: u64) -> Vec<Event> {
        self.now_ms = now_ms;
        let mut events = Vec::new();
        while let Some((&(at, number), _)) = self.later.first_key_value()
            && at <= now_ms
        {
            match self.later.remove(&(at, number)).unwrap() {
                Later::Deliver(event) if !self.lost => events.push(event),
                Later::Deliver(_) => {}
                Later::Answer(token, local) => self.answer(token, local),
            }
        }
        events
    }

    /// The list of all connections; later events are delivered again.
    fn list(&mut self) -> Vec<ConnectionSnapshot> {
        self.lost = false;
        self.later.retain(|_, later| matches!(later, Later::Answer(..)));
        let snapshots = self.connections.iter().map(|(&token, connection)| ConnectionSnapshot {
            token,
            local: connection.flows.first().map_or(remote(), |flow| flow.subflow.local),
            remote: remote(),
            server_side: false,
            subflows: connection.flows_that(|flow| flow.is_open),
            opening: connection.flows_that(|flow| !flow.is_open),
        });
        snapshots.collect()
    }

    fn some_token(&mut self) -> Option<Token> {
        let count = self.connections.len() as u64;
        let place = if count == 0 { return None } else { self.random.below(count) };
        self.connections.keys().nth(place as usize).copied()
    }

    /// A random disturbance.
    fn disturb(&mut self, driver: &mut Driver) {
        match self.random.below(11) {
            0..=2 if self.connections.len() < 40 => self.connect(),
            3 => {
                if let Some(token) = self.some_token() {
                    self.connections.remove(&token);
                    // Sometimes without an event.
                    if !self.random.one_in(4) {
                        self.emit(Event::Closed { token });
                    }
                }
            }
            4 | 5 => {
                let path = self.random.below(PATHS as u64) as usize;
                driver.changes += 1;
                let gone = self.addresses[path].is_some() && self.random.one_in(2);
                self.lost_ms[path] = self.now_ms;
                self.addresses[path] = (!gone).then(|| address(path, driver.changes % 200));
                driver.manager.set_address(driver.now, PathId(path as u8), self.addresses[path], 1);
            }
            6 | 7 => {
                let states = std::array::from_fn(|_| [Closed, Backup, Active][self.random.below(3) as usize]);
                driver.set_wanted(states);
            }
            8 | 9 => {
                let Some(token) = self.some_token() else { return };
                let connection = self.connections.get_mut(&token).unwrap();
                let Some(flow) = connection.flows.iter().rfind(|flow| flow.is_open).copied() else { return };
                connection.was_reset(self.now_ms);
                connection.take(flow.subflow.local);
                connection.held.retain(|(held, _, _)| *held != flow.subflow.local);
                self.emit(Event::SubflowClosed { token, subflow: flow.subflow, error: 104 });
            }
            10 => {
                self.lost = true;
                self.listed_ms = self.now_ms + self.random.below(LIST_MS);
            }
            _ => {}
        }
    }
}

impl Connection {
    /// The first subflow of another id carries the withdrawal, which may not arrive: if
    /// that subflow's address was lost while the command waited, if it was to be closed
    /// before, or if all were reset and the path manager does not know that or the
    /// command waited.
    fn withdraw(&mut self, local_id: AddressId, is_right: impl Fn(Option<&Flow>) -> bool) -> Result<(), Refusal> {
        let is_first = local_id == AddressId(0) && self.flows.iter().any(|flow| flow.is_first);
        let address = self.pairs.iter().find(|(_, id)| **id == local_id).map(|(ip, _)| *ip);
        if address.and_then(|address| self.pairs.remove(&address)).is_none() && !is_first {
            return Err(Refusal::UnknownSubflow);
        }
        let carrier = self.flows.iter().find(|flow| flow.is_open && flow.subflow.local_id != local_id);
        let is_held = self.held.iter().any(|(_, id, _)| *id == local_id);
        assert!(is_right(carrier) || !is_held, "the withdrawal of {local_id:?} does not arrive: {self:?}");
        self.held.retain(|(_, id, _)| *id != local_id);
        Ok(())
    }

    fn was_reset(&mut self, now_ms: u64) {
        let is_proof =
            |flow: &Flow| flow.is_open && flow.opened_ms > self.reset_ms && now_ms >= flow.opened_ms + PROVEN_MS;
        self.resets = if self.flows.iter().any(is_proof) { 1 } else { self.resets + 1 };
        self.reset_ms = now_ms;
    }

    fn take(&mut self, local: SocketAddr) -> Option<Flow> {
        let place = self.flows.iter().position(|flow| flow.subflow.local == local)?;
        Some(self.flows.remove(place))
    }

    fn flows_that(&self, is: fn(&Flow) -> bool) -> Vec<Subflow> {
        self.flows.iter().filter(|flow| is(flow)).map(|flow| flow.subflow).collect()
    }

    /// The first difference from the wanted states.
    fn difference(&self, wanted: &[PathState; PATHS], addresses: &[Option<IpAddr>; PATHS]) -> Option<String> {
        let over = |path: usize| {
            let here = |flow: &&Flow| flow.is_open && Some(flow.subflow.local.ip()) == addresses[path];
            self.flows.iter().filter(here).collect::<Vec<_>>()
        };
        let usable = |path: &usize| addresses[*path].is_some() && wanted[*path] != Closed;
        if !(0..PATHS).any(|path| usable(&path)) {
            return None;
        }
        let additional = self.held.iter().filter(|(_, _, additional)| *additional).count();
        let carries = (0..PATHS).any(|path| wanted[path] == Active && !over(path).is_empty());
        for (path, &wanted) in wanted.iter().enumerate() {
            match (&over(path)[..], usable(&path)) {
                ([], true) if additional < self.limit => return Some(format!("no subflow over {path}")),
                ([flow], true) if flow.subflow.backup != (wanted == Backup) && (carries || flow.subflow.backup) => {
                    return Some(format!("path {path} is not {wanted:?}"));
                }
                ([_], false) if carries => return Some(format!("a subflow over {path}")),
                ([_, _, ..], _) => return Some(format!("two subflows over {path}")),
                _ => {}
            }
        }
        let stranded = self.flows.iter().find(|flow| !addresses.contains(&Some(flow.subflow.local.ip())));
        let stranded = stranded.filter(|_| carries).map(|flow| format!("a subflow from {}", flow.subflow.local));
        stranded.or_else(|| self.left_at_peer().map(|local| format!("the peer holds one from {local}")))
    }

    /// A subflow that the vehicle lacks and over which the peer continues to send.
    fn left_at_peer(&self) -> Option<SocketAddr> {
        let has = |local: &SocketAddr| self.flows.iter().any(|flow| flow.subflow.local == *local);
        self.held.iter().map(|(local, _, _)| *local).find(|local| !has(local) && !self.waited.contains(local))
    }
}

fn path_of(local: SocketAddr) -> usize {
    let IpAddr::V4(ip) = local.ip() else { unreachable!() };
    usize::from(ip.octets()[1]) - 1
}

fn address(path: usize, number: u32) -> IpAddr {
    IpAddr::from([10, path as u8 + 1, 0, number as u8])
}

struct Driver {
    manager: Manager,
    now: Instant,
    wanted: [PathState; PATHS],
    changes: u32,
    /// Times of the commands of the last second, in ms.
    recent: VecDeque<u64>,
    commands: u64,
}

impl Driver {
    fn new() -> Driver {
        let spec = |path| PathSpec {
            name: "path".into(),
            rat: Rat::Lte,
            local: Some(address(path, 0)),
            if_index: 1,
            radio: None,
        };
        let manager = Manager::new((0..PATHS).map(spec).collect(), Duration::from_millis(20));
        let mut driver = Driver {
            manager,
            now: Instant::ZERO,
            wanted: [Closed; PATHS],
            changes: 0,
            recent: VecDeque::new(),
            commands: 0,
        };
        driver.set_wanted([Active, Active, Backup]);
        driver
    }

    fn set_wanted(&mut self, states: [PathState; PATHS]) {
        self.wanted = states;
        self.manager.set_wanted(&states.into_iter().collect());
    }

    fn step(&mut self, kernel: &mut Kernel, now_ms: u64) {
        self.now = Instant::from_millis(now_ms);
        if kernel.lost && now_ms >= kernel.listed_ms {
            let snapshots = kernel.list();
            self.manager.resync(self.now, &snapshots);
        }
        for event in kernel.advance(now_ms) {
            self.manager.handle(self.now, &event);
        }
        while let Some((_, command)) = self.manager.poll(self.now) {
            self.commands += 1;
            self.recent.push_back(now_ms);
            while self.recent.front().is_some_and(|at| at + 1000 <= now_ms) {
                self.recent.pop_front();
            }
            let new = kernel.begun_ms.iter().rev().take_while(|at| **at + 1000 > now_ms).count();
            assert!(self.recent.len() <= 500 + 2 * new, "{} commands in a second", self.recent.len());
            if let Err(why) = kernel.command(&command) {
                self.manager.refused(self.now, &command, why);
            }
        }
        let due = self.manager.next_wakeup();
        assert!(due.is_none_or(|due| due > self.now), "it spins: due at {due:?}, now {:?}", self.now);
    }
}

impl Driver {
    /// Checks that the wanted states are reached, except where the peer's limit may
    /// delay them.
    fn check(&self, kernel: &Kernel, may_wait: bool) {
        for (token, connection) in kernel.connections.iter().filter(|(_, connection)| connection.is_ours) {
            if !(may_wait && connection.resets >= LIMIT_RESETS) {
                let difference = connection.difference(&self.wanted, &kernel.addresses);
                assert_eq!(difference, None, "{token:?} {:?} {:?} {connection:#?}", self.wanted, kernel.addresses);
            }
        }
    }
}

/// Prints the seed of a run that fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn run(seed: u64) {
    let named = Named(seed);
    let (mut kernel, mut driver) = (Kernel::new(seed), Driver::new());
    let mut now_ms = 0;
    while now_ms < STORM_MS {
        now_ms += 1 + kernel.random.below(20);
        driver.step(&mut kernel, now_ms);
        if kernel.random.one_in(4) {
            kernel.disturb(&mut driver);
        }
    }
    let mean = 450 + 50 * now_ms / 1000 + 2 * u64::from(kernel.next_token);
    assert!(driver.commands <= mean, "{} commands in {now_ms} ms", driver.commands);
    kernel.is_calm = true;
    let snapshots = kernel.list();
    driver.manager.resync(driver.now, &snapshots);
    // 10 s, and time for an answer.
    for _ in 0..1050 {
        now_ms += 10;
        driver.step(&mut kernel, now_ms);
    }
    driver.check(&kernel, true);
    assert_eq!(driver.manager.connections(), kernel.connections.len(), "what is gone is forgotten");
    let before = driver.commands;
    for _ in 0..1300 {
        now_ms += 100;
        driver.step(&mut kernel, now_ms);
    }
    driver.check(&kernel, false);
    let late = driver.commands - before;
    assert!(late <= 20 * kernel.connections.len() as u64, "{late} commands in two minutes of calm");
    drop(named);
}

#[test]
fn commands_are_bounded_and_wanted_states_are_reached_whatever_the_kernel_does() {
    let seeds = std::env::var("CROSSLANE_MODEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    (0..seeds).for_each(run);
}
