//! The in-kernel path manager as an actuator: an endpoint for each wanted path, a backup or not.
//!
//! It acts while the kernel's path manager is selected. An endpoint concerns all connections alike. First it adds and
//! promotes, and when that had time to take effect it demotes and removes, as long as one path carries. It removes only
//! endpoints with its own ids; of those of others it changes the backup flag, if it may.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Actuator, Command, Event, Output, Verdict, Wanted};
use crate::mptcp::AddressId;
use crate::path::{MAX_PATHS, PathId, PathState};
use crate::time::{Duration, Instant};

/// Id of the endpoint of the first path; that of the last one is 215.
pub const FIRST_ID: u8 = 200;
/// Time from an endpoint that is to carry until others are demoted: a join needs an RTT.
const OVERLAP: Duration = Duration::from_millis(250);
/// Maximum number of times in a row that the flag of a path is repeated: a subflow that it never reaches stays as it is.
const MAX_REPEATS: u8 = 10;

/// An endpoint of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: AddressId,
    /// Its address.
    pub address: IpAddr,
    /// True if its subflows are backups.
    pub backup: bool,
}

/// A command to the kernel's path manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointCommand {
    /// Add an endpoint, from which all connections open a subflow.
    Add {
        /// Its id.
        id: AddressId,
        /// Its address.
        address: IpAddr,
        /// Index of its interface.
        if_index: u32,
        /// Whether its subflows are backups.
        backup: bool,
    },
    /// Set or clear the backup flag, also of its subflows.
    SetBackup {
        /// Its address.
        address: IpAddr,
        /// The flag.
        backup: bool,
    },
    /// Set the backup flag once more of its subflows, which the last change did not reach: the kernel passes on changes
    /// only, and none to a subflow that the peer has not confirmed (decision 81).
    RepeatBackup {
        /// Its address.
        address: IpAddr,
        /// The flag, which it has.
        backup: bool,
    },
    /// Remove it; its subflows are closed.
    Remove {
        /// Its id.
        id: AddressId,
    },
}

/// Which endpoints it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointPolicy {
    /// Its own, and those of others with the address of a path.
    #[default]
    Adopt,
    /// Its own only.
    Own,
    /// None.
    Off,
}

/// The state machine.
#[derive(Debug)]
pub struct KernelEndpoints {
    policy: EndpointPolicy,
    addresses: Vec<(Option<IpAddr>, u32)>,
    wanted: Vec<PathState>,
    /// The endpoints; `None` while the kernel does not manage, or they are unknown.
    present: Option<Vec<Endpoint>>,
    promoted: Option<Instant>,
    /// Addresses whose flag is to be repeated.
    missed: Vec<IpAddr>,
    /// How often it was repeated in a row, of each path.
    repeats: Vec<u8>,
}

impl KernelEndpoints {
    /// An actuator of that many paths, all closed at first.
    pub fn new(paths: usize, policy: EndpointPolicy) -> KernelEndpoints {
        let addresses = alloc::vec![(None, 0); paths.min(MAX_PATHS)];
        let (wanted, repeats) = (alloc::vec![PathState::Closed; addresses.len()], alloc::vec![0; addresses.len()]);
        KernelEndpoints { policy, addresses, wanted, present: None, promoted: None, missed: Vec::new(), repeats }
    }

    /// The next command for the difference from the wanted states. It waits for the next list of endpoints after it.
    fn next_command(&mut self, now: Instant) -> Option<EndpointCommand> {
        if self.policy == EndpointPolicy::Off {
            return None;
        }
        let present = self.present.as_ref()?;
        let find = |command: &dyn Fn(usize, &[Endpoint]) -> Option<EndpointCommand>| {
            (0..self.wanted.len()).find_map(|path| command(path, present))
        };
        let stale = find(&|path, present| self.replace(path, present));
        let promotion = stale.or_else(|| find(&|path, present| self.promote(path, present)));
        if promotion.is_some() {
            self.promoted = Some(now);
        }
        promotion.or_else(|| {
            let carries = self.carries(present);
            let waits = self.promoted.is_some_and(|at| now < at + OVERLAP);
            if waits || !carries { None } else { find(&|path, present| self.demote(path, present)) }
        })
    }

    /// Repeats the flag of an endpoint that is as wanted.
    fn repeat(&mut self) -> Option<EndpointCommand> {
        while let Some(address) = self.missed.pop() {
            let present = self.present.as_ref()?;
            let of_path = |path: &usize| self.addresses[*path].0 == Some(address);
            let Some(path) = (0..self.addresses.len()).find(of_path) else { continue };
            let Some(endpoint) = self.endpoint(path, present) else { continue };
            if self.repeats[path] < MAX_REPEATS {
                self.repeats[path] += 1;
                return Some(EndpointCommand::RepeatBackup { address, backup: endpoint.backup });
            }
        }
        None
    }

    fn set_missed(&mut self, missed: &[IpAddr]) {
        let repeats = self.repeats.iter_mut().zip(&self.addresses);
        let reached = repeats.filter(|(_, (address, _))| address.is_none_or(|address| !missed.contains(&address)));
        reached.for_each(|(repeats, _)| *repeats = 0);
        self.missed = missed.to_vec();
    }

    /// Removes an endpoint of ours with a former address of its path.
    fn replace(&self, path: usize, present: &[Endpoint]) -> Option<EndpointCommand> {
        let id = own_id(path);
        let own = present.iter().find(|endpoint| endpoint.id == id)?;
        (self.addresses[path].0 != Some(own.address)).then_some(EndpointCommand::Remove { id })
    }

    fn promote(&self, path: usize, present: &[Endpoint]) -> Option<EndpointCommand> {
        let (address, if_index) = (self.addresses[path].0?, self.addresses[path].1);
        let backup = match self.wanted[path] {
            PathState::Closed => return None,
            state => state == PathState::Backup,
        };
        match self.endpoint(path, present) {
            None if self.is_free(address, present) => {
                Some(EndpointCommand::Add { id: own_id(path), address, if_index, backup })
            }
            Some(endpoint) if endpoint.backup && !backup => Some(EndpointCommand::SetBackup { address, backup }),
            _ => None,
        }
    }

    fn demote(&self, path: usize, present: &[Endpoint]) -> Option<EndpointCommand> {
        let endpoint = self.endpoint(path, present)?;
        let set = EndpointCommand::SetBackup { address: endpoint.address, backup: true };
        match self.wanted[path] {
            PathState::Closed if endpoint.id == own_id(path) => Some(EndpointCommand::Remove { id: endpoint.id }),
            PathState::Active => None,
            PathState::Backup | PathState::Closed => (!endpoint.backup).then_some(set),
        }
    }

    /// True if an endpoint is there for a path that is to carry.
    fn carries(&self, present: &[Endpoint]) -> bool {
        let is_active = |path: usize| self.wanted[path] == PathState::Active;
        (0..self.wanted.len()).any(|path| is_active(path) && self.endpoint(path, present).is_some())
    }

    /// The endpoint of a path that may be changed.
    fn endpoint(&self, path: usize, present: &[Endpoint]) -> Option<Endpoint> {
        let address = self.addresses[path].0?;
        let of_path = present.iter().find(|endpoint| endpoint.address == address)?;
        let may_change = of_path.id == own_id(path) || self.policy == EndpointPolicy::Adopt;
        may_change.then_some(*of_path)
    }

    fn is_free(&self, address: IpAddr, present: &[Endpoint]) -> bool {
        !present.iter().any(|endpoint| endpoint.address == address)
    }
}

fn own_id(path: usize) -> AddressId {
    AddressId(FIRST_ID + path as u8)
}

impl Actuator for KernelEndpoints {
    fn apply(&mut self, wanted: &Wanted, _verdicts: &[Verdict]) {
        let states = wanted.states();
        let paths = self.wanted.iter_mut().enumerate();
        paths.for_each(|(path, state)| *state = states.get(path).copied().unwrap_or_default());
    }

    fn handle(&mut self, _now: Instant, event: &Event) {
        match event {
            Event::Endpoints(present) => self.present.clone_from(present),
            Event::Missed(missed) => self.set_missed(missed),
            Event::Address { path, local, if_index } => self.set_address(*path, *local, *if_index),
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        let command = self.next_command(now).or_else(|| self.repeat())?;
        self.present = None;
        Some(Output::Command(Command::Endpoint(command)))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let due = self.promoted.filter(|_| self.present.is_some()).map(|at| at + OVERLAP);
        due.filter(|_| self.present.as_ref().is_some_and(|present| self.has_demotion(present)))
    }
}

impl KernelEndpoints {
    fn set_address(&mut self, path: PathId, local: Option<IpAddr>, if_index: u32) {
        if let Some(address) = self.addresses.get_mut(usize::from(path.0)) {
            *address = (local, if_index);
        }
    }

    fn has_demotion(&self, present: &[Endpoint]) -> bool {
        self.policy != EndpointPolicy::Off
            && self.carries(present)
            && (0..self.wanted.len()).any(|path| self.demote(path, present).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathState::{Active, Backup, Closed};

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn address(path: u8) -> IpAddr {
        IpAddr::from([10, path, 0, 2])
    }

    /// The kernel's list, and what the actuator makes of it.
    struct Kernel {
        actuator: KernelEndpoints,
        endpoints: Vec<Endpoint>,
    }

    impl Kernel {
        fn new(policy: EndpointPolicy, endpoints: &[(u8, u8, bool)]) -> Kernel {
            let mut actuator = KernelEndpoints::new(2, policy);
            for path in 0..2 {
                let event = Event::Address { path: PathId(path), local: Some(address(path)), if_index: 7 };
                actuator.handle(at(0), &event);
            }
            let endpoint =
                |&(id, path, backup): &(u8, u8, bool)| Endpoint { id: AddressId(id), address: address(path), backup };
            Kernel { actuator, endpoints: endpoints.iter().map(endpoint).collect() }
        }

        /// Sets the wanted states and carries out commands until there are none; returns the endpoints.
        fn steer(&mut self, now: u64, states: [PathState; 2]) -> Vec<(u8, bool)> {
            self.actuator.apply(&states.into_iter().collect(), &[]);
            self.run(now)
        }

        fn run(&mut self, now: u64) -> Vec<(u8, bool)> {
            for _ in 0..10 {
                self.actuator.handle(at(now), &Event::Endpoints(Some(self.endpoints.clone())));
                let Some(Output::Command(Command::Endpoint(command))) = self.actuator.poll(at(now)) else { break };
                assert!(self.actuator.poll(at(now)).is_none(), "it waits for the next list");
                match command {
                    EndpointCommand::Add { id, address, backup, .. } => {
                        self.endpoints.push(Endpoint { id, address, backup });
                    }
                    EndpointCommand::SetBackup { address, backup } => {
                        let of = self.endpoints.iter_mut().find(|endpoint| endpoint.address == address);
                        of.expect("an endpoint that exists").backup = backup;
                    }
                    EndpointCommand::RepeatBackup { .. } => {}
                    EndpointCommand::Remove { id } => self.endpoints.retain(|endpoint| endpoint.id != id),
                }
            }
            self.endpoints.iter().map(|endpoint| (endpoint.id.0, endpoint.backup)).collect()
        }
    }

    #[test]
    fn each_wanted_path_has_an_endpoint() {
        let mut kernel = Kernel::new(EndpointPolicy::Adopt, &[]);
        assert_eq!(kernel.steer(0, [Active, Backup]), [(200, false), (201, true)]);
    }

    #[test]
    fn another_path_carries_before_one_is_demoted_or_removed() {
        let mut kernel = Kernel::new(EndpointPolicy::Adopt, &[]);
        kernel.steer(0, [Active, Backup]);
        assert_eq!(kernel.steer(1000, [Backup, Active]), [(200, false), (201, false)]);
        assert_eq!(kernel.actuator.next_wakeup(), Some(at(1250)));
        assert_eq!(kernel.run(1250), [(200, true), (201, false)]);
        assert_eq!(kernel.steer(2000, [Closed, Active]), [(201, false)]);
    }

    #[test]
    fn the_last_endpoint_stays() {
        let mut kernel = Kernel::new(EndpointPolicy::Adopt, &[]);
        kernel.steer(0, [Active, Closed]);
        assert_eq!(kernel.steer(1000, [Closed, Closed]), [(200, false)]);
        assert_eq!(kernel.steer(2000, [Backup, Backup]), [(200, false), (201, true)]);
    }

    #[test]
    fn an_endpoint_of_others_is_adopted_and_never_removed() {
        let mut kernel = Kernel::new(EndpointPolicy::Adopt, &[(3, 0, false), (4, 9, false)]);
        assert_eq!(kernel.steer(0, [Closed, Active]), [(3, false), (4, false), (201, false)]);
        assert_eq!(kernel.run(250), [(3, true), (4, false), (201, false)], "that of no path stays as it is");
        assert_eq!(kernel.steer(1000, [Active, Active]), [(3, false), (4, false), (201, false)]);
    }

    #[test]
    fn an_endpoint_of_others_is_left_alone_if_so_configured() {
        let mut kernel = Kernel::new(EndpointPolicy::Own, &[(3, 0, true)]);
        assert_eq!(kernel.steer(0, [Active, Active]), [(3, true), (201, false)]);
        assert_eq!(Kernel::new(EndpointPolicy::Off, &[(3, 0, true)]).steer(0, [Active, Active]), [(3, true)]);
    }

    #[test]
    fn an_endpoint_that_an_earlier_agent_left_is_taken_over() {
        let mut kernel = Kernel::new(EndpointPolicy::Own, &[(200, 5, false), (201, 1, true)]);
        assert_eq!(kernel.steer(0, [Active, Active]), [(201, false), (200, false)]);
        assert_eq!(kernel.endpoints[1].address, address(0), "with the present address");
    }

    #[test]
    fn a_flag_that_missed_a_subflow_is_repeated_a_limited_number_of_times() {
        let mut kernel = Kernel::new(EndpointPolicy::Adopt, &[]);
        kernel.steer(0, [Active, Backup]);
        let check = |kernel: &mut Kernel, now: u64, missed: &[IpAddr]| {
            let actuator = &mut kernel.actuator;
            actuator.handle(at(now), &Event::Endpoints(Some(kernel.endpoints.clone())));
            actuator.handle(at(now), &Event::Missed(missed.to_vec()));
            core::iter::from_fn(|| actuator.poll(at(now))).collect::<Vec<_>>()
        };
        let repeat = EndpointCommand::RepeatBackup { address: address(1), backup: true };
        let repeat = [Output::Command(Command::Endpoint(repeat))];
        let both = [address(1), address(9)];
        let times = (1..20).filter(|second| check(&mut kernel, second * 1000, &both) == repeat).count();
        assert_eq!(times, 10, "address 9 is of no path");
        assert_eq!(check(&mut kernel, 20_000, &[]), []);
        assert_eq!(check(&mut kernel, 21_000, &both), repeat, "after a check without one it counts from zero");
    }

    #[test]
    fn nothing_happens_while_the_kernel_does_not_manage() {
        let mut actuator = KernelEndpoints::new(2, EndpointPolicy::Adopt);
        actuator.apply(&[Active, Active].into_iter().collect(), &[]);
        actuator.handle(at(0), &Event::Endpoints(None));
        assert!(actuator.poll(at(0)).is_none() && actuator.next_wakeup().is_none());
    }
}
