//! From interfaces and addresses to paths.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crosslane_core::agent::Input;
use crosslane_core::path::{PathId, Sample, SampleKind};

use super::config::Config;
use crate::netlink::links::Notice;

/// Addresses remembered per interface.
const MAX_ADDRESSES: usize = 32;

/// What is known of the interfaces that the configuration names.
pub struct Interfaces {
    wanted: Vec<Wanted>,
    present: BTreeMap<u32, Interface>,
}

struct Wanted {
    name: String,
    address: Option<IpAddr>,
}

#[derive(Default)]
struct Interface {
    path: Option<PathId>,
    addresses: Vec<IpAddr>,
}

impl Interfaces {
    /// The interfaces of a configuration, none of them there yet.
    pub fn new(config: &Config) -> Interfaces {
        let wanted = |path: &super::config::PathConfig| Wanted { name: path.interface().into(), address: path.address };
        let wanted = config.paths.iter().map(|path| wanted(path.get_ref())).collect();
        Interfaces { wanted, present: BTreeMap::new() }
    }

    /// What the engine is to be told of a notice.
    pub fn notice(&mut self, notice: &Notice) -> Vec<Input> {
        match notice {
            Notice::Link(link) => {
                let place = self.wanted.iter().position(|wanted| wanted.name == link.name);
                let Some(path) = place.map(|place| PathId(place as u8)) else { return Vec::new() };
                if link.present {
                    self.present.entry(link.if_index).or_default().path = Some(path);
                } else {
                    self.present.remove(&link.if_index);
                }
                let up = link.present && link.up;
                let sample = Input::Sample(Sample { path, kind: SampleKind::Link { up } });
                [self.address(link.if_index), Some(sample)].into_iter().flatten().collect()
            }
            Notice::Address(event) => {
                let Some(interface) = self.present.get_mut(&event.if_index) else { return Vec::new() };
                let known = interface.addresses.contains(&event.address);
                if event.usable && !known && interface.addresses.len() < MAX_ADDRESSES {
                    interface.addresses.push(event.address);
                } else if !event.usable {
                    interface.addresses.retain(|address| *address != event.address);
                }
                self.address(event.if_index).into_iter().collect()
            }
        }
    }

    /// The address of each path that is there.
    pub fn addresses(&self) -> Vec<(PathId, Option<IpAddr>)> {
        let of = |if_index: &u32| match self.address(*if_index)? {
            Input::Address { path, local, .. } => Some((path, local)),
            _ => None,
        };
        self.present.keys().filter_map(of).collect()
    }

    /// The address to use: the configured one if it is there, else the first
    /// IPv4 one, else the first that is not of the link alone.
    fn address(&self, if_index: u32) -> Option<Input> {
        let interface = self.present.get(&if_index)?;
        let path = interface.path?;
        let wanted = self.wanted.get(usize::from(path.0))?;
        let usable = |address: &&IpAddr| wanted.address.is_none_or(|only| only == **address) && !link_local(address);
        let mut candidates = interface.addresses.iter().filter(usable);
        let first_v4 = candidates.clone().find(|address| address.is_ipv4());
        let local = first_v4.or_else(|| candidates.next()).copied();
        Some(Input::Address { path, local, if_index })
    }
}

fn link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
