//! Maps interfaces and addresses to paths.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crosslane_core::actuator::Event;
use crosslane_core::agent::Input;
use crosslane_core::path::{PathId, Sample, SampleKind};
use toml::Spanned;

use super::Driver;
use super::config::Config;
use crate::error::{Error, Result};
use crate::netlink::EventError;
use crate::netlink::links::{self, Notice};
use crate::netlink::path_routes::RoutedPath;

/// Maximum number of addresses stored per interface.
const MAX_ADDRESSES: usize = 32;

/// Maximum number of interfaces whose state is stored; further ones are stored only if they belong to a path.
const MAX_INTERFACES: usize = 4096;

/// State of the interfaces: any may get a name that the configuration has, with the addresses that it has.
pub struct Interfaces {
    wanted: Vec<Wanted>,
    present: BTreeMap<u32, Interface>,
}

/// What a path is to be; a removed one has no name.
#[derive(Default)]
struct Wanted {
    name: String,
    address: Option<IpAddr>,
    /// Its interface is being created: until it is up for the first time, it is not one that went down.
    is_created: bool,
}

#[derive(Default)]
struct Interface {
    path: Option<PathId>,
    up: bool,
    addresses: Vec<IpAddr>,
}

impl Interfaces {
    pub fn new(config: &Config) -> Interfaces {
        let paths = config.paths.iter().map(Spanned::get_ref);
        let wanted =
            paths.map(|path| Wanted { name: path.interface().into(), address: path.address, ..Wanted::default() });
        Interfaces { wanted: wanted.collect(), present: BTreeMap::new() }
    }

    /// Gives a path this interface and address, which no other path has; `None`: the path was removed.
    pub fn assign(&mut self, path: PathId, to: Option<(&str, IpAddr)>) {
        let place = usize::from(path.0);
        if self.wanted.len() <= place {
            self.wanted.resize_with(place + 1, Wanted::default);
        }
        let created =
            |(name, address): (&str, _)| Wanted { name: name.into(), address: Some(address), is_created: true };
        let assigned = to.map(created);
        self.wanted[place] = assigned.unwrap_or_default();
        self.present.retain(|_, interface| interface.path != Some(path));
    }

    /// The engine's inputs for a notice.
    pub fn notice(&mut self, notice: &Notice) -> Vec<Input> {
        let paths = self.update(notice).into_iter().flatten();
        let inputs = paths.flat_map(|path| match notice {
            Notice::Link(_) if self.wanted[usize::from(path.0)].is_created => Vec::new(),
            Notice::Link(_) => Vec::from([self.address(path), self.link(path)]),
            Notice::Address(_) => Vec::from([self.address(path)]),
        });
        inputs.collect()
    }

    /// The engine's inputs after notices were lost: what `present` lacks is gone.
    pub fn resync(&mut self, present: &[Notice]) -> Vec<Input> {
        self.present.clear();
        for notice in present {
            self.update(notice);
        }
        let paths = (0..self.wanted.len()).map(|place| PathId(place as u8));
        paths.flat_map(|path| [self.address(path), self.link(path)]).collect()
    }

    /// The paths' addresses among `subflows` (local address, index of the interface
    /// that it is bound to) that are not usable now. If the interface is down, the
    /// address belongs to its path. An address that no interface has any more belongs
    /// to the path whose interface the subflow is bound to. A first subflow is bound to
    /// none, and its path is unknown: it counts for the first path.
    pub fn former(&self, present: &[Notice], subflows: impl Iterator<Item = (IpAddr, u32)>) -> Vec<Input> {
        let of = |notice: &Notice| match notice {
            Notice::Address(event) => Some(event.address),
            Notice::Link(_) => None,
        };
        let present: BTreeSet<IpAddr> = present.iter().filter_map(of).collect();
        let paths = || (0..self.wanted.len()).map(|place| PathId(place as u8));
        let path_of = |local, if_index| match present.contains(&local) {
            true => paths().find(|path| self.configured(*path) == Some(local)),
            false => self.present.get(&if_index).and_then(|interface| interface.path).or(paths().next()),
        };
        let is_unusable = |(local, _): &(IpAddr, u32)| !paths().any(|path| self.usable(path).1 == Some(*local));
        let unusable: BTreeSet<(IpAddr, u32)> = subflows.filter(is_unusable).collect();
        let former = unusable.into_iter().filter_map(|(local, if_index)| Some((path_of(local, if_index)?, local)));
        former.map(|(path, local)| Event::FormerAddress { path, local }.into()).collect()
    }

    /// Name of the interface of a path.
    pub fn name(&self, path: PathId) -> &str {
        self.wanted.get(usize::from(path.0)).map_or("", |wanted| &wanted.name)
    }

    /// Index of the interface of a path, if it is present.
    pub fn index(&self, path: PathId) -> Option<u32> {
        self.of(path).map(|(if_index, _)| if_index)
    }

    /// The address of a path, also while its interface is down.
    pub fn configured(&self, path: PathId) -> Option<IpAddr> {
        let (_, interface) = self.of(path)?;
        let mut candidates = self.candidates(path, interface);
        let first_v4 = candidates.clone().find(|address| address.is_ipv4());
        first_v4.or_else(|| candidates.next()).copied()
    }

    /// The address of a path from which it sends to another of the same version, if it has one.
    pub fn towards(&self, path: PathId, address: IpAddr) -> Option<IpAddr> {
        let (_, interface) = self.of(path)?;
        self.candidates(path, interface).find(|own| own.is_ipv4() == address.is_ipv4()).copied()
    }

    /// The interfaces of the first `count` paths that are up, with the addresses that belong to the path.
    pub fn routed(&self, count: usize) -> Vec<RoutedPath> {
        let paths = (0..count).map(|place| PathId(place as u8));
        let routed = paths.filter_map(|path| {
            let (interface, found) = self.of(path).filter(|(_, interface)| interface.up)?;
            let addresses = self.candidates(path, found).copied().collect();
            Some(RoutedPath { place: path.0, interface, addresses })
        });
        routed.collect()
    }

    /// The addresses of an interface that a path may use: the configured one, or all that are not link-local.
    fn candidates<'a>(&self, path: PathId, interface: &'a Interface) -> impl Iterator<Item = &'a IpAddr> + Clone {
        let only = self.wanted.get(usize::from(path.0)).and_then(|wanted| wanted.address);
        let is_usable = move |address: &&IpAddr| only.is_none_or(|only| only == **address) && !link_local(address);
        interface.addresses.iter().filter(is_usable)
    }

    /// Applies a notice; returns the path that its interface had under another name, and the one that it has.
    fn update(&mut self, notice: &Notice) -> [Option<PathId>; 2] {
        match notice {
            Notice::Link(link) => {
                let place = self.wanted.iter().position(|wanted| wanted.name == link.name);
                place.into_iter().for_each(|place| self.wanted[place].is_created &= !link.up);
                let path = place.map(|place| PathId(place as u8));
                let mut former = self.present.get(&link.if_index).and_then(|interface| interface.path);
                if !link.present {
                    self.present.remove(&link.if_index);
                } else if path.or(former).is_some() || self.present.len() < MAX_INTERFACES {
                    let interface = self.present.entry(link.if_index).or_default();
                    (interface.path, interface.up) = (path, link.up);
                }
                [former.take_if(|former| Some(*former) != path), path]
            }
            Notice::Address(event) => {
                let Some(interface) = self.present.get_mut(&event.if_index) else { return [None; 2] };
                let known = interface.addresses.contains(&event.address);
                if event.usable && !known && interface.addresses.len() < MAX_ADDRESSES {
                    interface.addresses.push(event.address);
                } else if !event.usable {
                    interface.addresses.retain(|address| *address != event.address);
                }
                [None, interface.path]
            }
        }
    }

    fn of(&self, path: PathId) -> Option<(u32, &Interface)> {
        let mut interfaces = self.present.iter().map(|(&if_index, interface)| (if_index, interface));
        interfaces.find(|(_, interface)| interface.path == Some(path))
    }

    fn address(&self, path: PathId) -> Input {
        let (if_index, local) = self.usable(path);
        Event::Address { path, local, if_index }.into()
    }

    /// The address to use, and its interface: the configured one if it is present,
    /// else the first IPv4 address, else the first that is not link-local. An
    /// interface that is down has none: it sends nothing.
    fn usable(&self, path: PathId) -> (u32, Option<IpAddr>) {
        let (if_index, up) = self.of(path).map_or((0, false), |(if_index, interface)| (if_index, interface.up));
        (if_index, if up { self.configured(path) } else { None })
    }

    fn link(&self, path: PathId) -> Input {
        let up = self.of(path).is_some_and(|(_, interface)| interface.up);
        Input::Sample(Sample { path, kind: SampleKind::Link { up } })
    }
}

fn link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl Driver {
    pub(super) fn notice_error(&mut self, error: EventError) -> Result<()> {
        self.journal.fault(&error);
        match error {
            EventError::Io(cause) => Err(Error::failure("listening to the kernel's links", cause)),
            EventError::Malformed(_) => Ok(()),
            EventError::Overrun => {
                let present = links::snapshot().map_err(|cause| Error::failure("re-reading the links", cause))?;
                let inputs = self.interfaces.resync(&present);
                self.links(inputs);
                Ok(())
            }
        }
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        let inputs = self.interfaces.notice(notice);
        self.links(inputs);
    }

    pub(super) fn links(&mut self, inputs: Vec<Input>) {
        self.routes_changed();
        for input in inputs {
            if let (Input::Event(Event::Address { path, .. }), Some(tunnel)) = (&input, &mut self.tunnel)
                && let Err(fault) = tunnel.set_path(*path, self.interfaces.configured(*path))
            {
                self.journal.fault(&fault);
            }
            self.handle(input);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::links::{AddressEvent, LinkEvent};

    fn interfaces() -> Interfaces {
        let wanted = ["lte", "wlan"].map(|name| Wanted { name: name.into(), ..Wanted::default() });
        Interfaces { wanted: wanted.into(), present: BTreeMap::new() }
    }

    fn link(if_index: u32, name: &str, up: bool) -> Notice {
        Notice::Link(LinkEvent { if_index, name: name.into(), up, present: true })
    }

    fn address(if_index: u32, last: u8) -> Notice {
        let address = IpAddr::from([10, 0, 0, last]);
        Notice::Address(AddressEvent { if_index, address, prefix_len: 24, usable: true })
    }

    /// The last address of the path in these inputs.
    fn last_address(inputs: &[Input], of: u8) -> Option<Option<IpAddr>> {
        inputs.iter().rev().find_map(|input| match input {
            Input::Event(Event::Address { path, local, .. }) if path.0 == of => Some(*local),
            _ => None,
        })
    }

    #[test]
    fn interfaces_and_addresses_missing_in_a_snapshot_are_removed() {
        let mut interfaces = interfaces();
        for notice in [link(1, "lte", true), link(2, "wlan", true), address(1, 1), address(1, 2), address(2, 3)] {
            interfaces.notice(&notice);
        }
        let inputs = interfaces.resync(&[link(1, "lte", true), address(1, 2)]);
        assert_eq!(
            last_address(&inputs, 0),
            Some(Some(IpAddr::from([10, 0, 0, 2]))),
            "another address of the interface"
        );
        assert_eq!(last_address(&inputs, 1), Some(None), "the interface is gone");
        let down = Input::Sample(Sample { path: PathId(1), kind: SampleKind::Link { up: false } });
        assert!(inputs.contains(&down));
    }

    #[test]
    fn an_address_removed_before_the_start_belongs_to_the_interface_of_its_subflow() {
        let mut interfaces = interfaces();
        let tunnel =
            Notice::Address(AddressEvent { if_index: 9, address: [10, 77, 0, 2].into(), prefix_len: 24, usable: true });
        let present =
            [link(1, "lte", true), link(2, "wlan", false), address(1, 1), address(1, 2), address(2, 3), tunnel];
        present.iter().for_each(|notice| drop(interfaces.notice(notice)));
        let former = |local: [u8; 4], if_index| interfaces.former(&present, [(local.into(), if_index)].into_iter());
        let of = |path, local: [u8; 4]| [Event::FormerAddress { path: PathId(path), local: local.into() }.into()];
        assert_eq!(former([10, 0, 0, 8], 2), of(1, [10, 0, 0, 8]));
        assert_eq!(former([10, 0, 0, 8], 0), of(0, [10, 0, 0, 8]), "a first subflow");
        assert_eq!(former([10, 0, 0, 3], 0), of(1, [10, 0, 0, 3]), "its interface is down");
        assert_eq!(former([10, 0, 0, 1], 1), [], "in use");
        assert_eq!(former([10, 0, 0, 2], 1), [], "of the interface, but not the path's");
        assert_eq!(former([10, 77, 0, 2], 0), [], "of another interface");
    }

    #[test]
    fn a_path_follows_the_name_of_its_interface() {
        let mut interfaces = interfaces();
        [link(1, "lte", true), address(1, 1)].iter().for_each(|notice| drop(interfaces.notice(notice)));
        let ours = |last| Some(Some(IpAddr::from([10, 0, 0, last])));
        let down = Input::Sample(Sample { path: PathId(0), kind: SampleKind::Link { up: false } });
        let renamed = interfaces.notice(&link(1, "other", true));
        assert_eq!((last_address(&renamed, 0), renamed.contains(&down)), (Some(None), true));
        assert_eq!(last_address(&interfaces.notice(&link(1, "wlan", true)), 1), ours(1), "it keeps its address");
        // Another interface takes the name, while the former one has it no more, and after that one is gone.
        interfaces.notice(&link(7, "wwan0", false));
        assert_eq!(interfaces.notice(&address(7, 2)), []);
        assert_eq!(last_address(&interfaces.notice(&link(7, "lte", true)), 0), ours(2));
        let gone = LinkEvent { if_index: 1, name: "third".into(), up: false, present: false };
        assert_eq!(last_address(&interfaces.notice(&Notice::Link(gone)), 1), Some(None));
        assert_eq!((interfaces.index(PathId(0)), interfaces.index(PathId(1))), (Some(7), None));
    }

    #[test]
    fn an_interface_that_is_created_did_not_go_down() {
        let mut interfaces = interfaces();
        interfaces.assign(PathId(2), Some(("rsu1", [10, 81, 0, 2].into())));
        assert_eq!(interfaces.notice(&link(9, "rsu1", false)), []);
        let link_up = |up| Input::Sample(Sample { path: PathId(2), kind: SampleKind::Link { up } });
        assert!(interfaces.notice(&link(9, "rsu1", true)).contains(&link_up(true)));
        assert!(interfaces.notice(&link(9, "rsu1", false)).contains(&link_up(false)));
    }

    #[test]
    fn an_interface_that_is_down_has_no_usable_address() {
        let mut interfaces = interfaces();
        interfaces.notice(&link(1, "lte", true));
        let here = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(last_address(&interfaces.notice(&address(1, 1)), 0), Some(here));
        assert_eq!(last_address(&interfaces.notice(&link(1, "lte", false)), 0), Some(None));
        assert_eq!(interfaces.configured(PathId(0)), here);
        assert_eq!(last_address(&interfaces.notice(&link(1, "lte", true)), 0), Some(here));
    }
}
