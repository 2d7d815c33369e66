//! The paths of a scenario, the links below them, and their order of preference.

use std::collections::BTreeSet;
use std::ops::Range;

use crosslane_core::path::PathId;

use super::{PathEntry, Radio, RadioPaths, RadioTunnel, RoadsideUnit, Scenario, Strategy};

/// A link of the vehicle, with a path to each of its stations.
#[derive(Clone, Debug)]
pub struct LinkEntry<'a> {
    /// Name of the radio or the access link.
    pub name: &'a str,
    /// Indices of its paths.
    pub paths: Range<usize>,
    /// How many of them may stand at the same time; none: all do from the start.
    pub slots: Option<u8>,
}

impl LinkEntry<'_> {
    /// True if the path of this index is one of several over the link.
    pub fn is_shared_by(&self, path: usize) -> bool {
        self.paths.len() > 1 && self.paths.contains(&path)
    }
}

impl Scenario {
    /// The paths, in order of their id.
    pub fn paths(&self) -> Vec<PathEntry<'_>> {
        let radios = self.radios.iter().flat_map(|radio| {
            let names: Vec<&String> = match radio.paths {
                RadioPaths::Radio => vec![&radio.name],
                RadioPaths::Units => self.units_of(radio).map(|unit| &unit.name).collect(),
            };
            names.into_iter().map(|name| (name, radio.rat))
        });
        let access = self.access.iter().map(|link| (&link.name, link.rat));
        radios.chain(access).zip(0..).map(|((name, rat), id)| PathEntry { id: PathId(id), name, rat }).collect()
    }

    /// The links: the radios, then the others, in file order.
    pub fn links(&self) -> Vec<LinkEntry<'_>> {
        let radios = self.radios.iter().map(|radio| match radio.paths {
            RadioPaths::Radio => (&radio.name, 1, None),
            RadioPaths::Units => (&radio.name, self.units_of(radio).count(), radio.slots),
        });
        let mut next = 0;
        let links = radios.chain(self.access.iter().map(|link| (&link.name, 1, None)));
        links
            .map(|(name, count, slots)| {
                next += count;
                LinkEntry { name, paths: next - count..next, slots }
            })
            .collect()
    }

    /// Names of the paths without a tunnel that stand only while their RSU has a slot.
    pub fn slotted_paths(&self) -> BTreeSet<&str> {
        let paths = self.paths();
        let links = self.radios.iter().zip(self.links());
        let slotted = links.filter(|(radio, _)| radio.slots.is_some() && radio.tunnel.is_none());
        slotted.flat_map(|(_, link)| paths[link.paths].iter().map(|path| path.name).collect::<Vec<_>>()).collect()
    }

    /// True if RSUs take turns in the slots of a radio.
    pub fn has_slots(&self) -> bool {
        self.radios.iter().any(|radio| radio.slots.is_some())
    }

    /// The RSUs of a radio, in file order.
    pub fn units_of<'a>(&'a self, radio: &'a Radio) -> impl Iterator<Item = &'a RoadsideUnit> {
        self.units.iter().filter(|unit| unit.radio == radio.name)
    }

    /// The RSUs that a path reaches.
    pub fn units_on<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a RoadsideUnit> {
        let of_radio = self.radio_of(path).into_iter();
        of_radio.flat_map(move |(radio, only)| {
            let units = self.units_of(radio).enumerate();
            units.filter(move |(unit, _)| only.is_none_or(|only| only == *unit)).map(|(_, unit)| unit)
        })
    }

    /// The radio of a path, with the index of the path's RSU among the radio's if the
    /// path is one RSU.
    pub fn radio_of(&self, path: &str) -> Option<(&Radio, Option<usize>)> {
        self.radios.iter().find_map(|radio| match radio.paths {
            RadioPaths::Radio => (radio.name == path).then_some((radio, None)),
            RadioPaths::Units => {
                let unit = self.units_of(radio).position(|unit| unit.name == path);
                unit.map(|unit| (radio, Some(unit)))
            }
        })
    }

    /// The radio whose RSUs are reached through tunnels, if there is one.
    pub fn tunnelled_radio(&self) -> Option<(&Radio, RadioTunnel)> {
        self.radios.iter().find_map(|radio| Some((radio, radio.tunnel?)))
    }

    /// The tunnel of a path to an RSU.
    pub fn tunnel_of(&self, path: &str) -> Option<RadioTunnel> {
        self.radio_of(path).and_then(|(radio, _)| radio.tunnel)
    }

    /// Id of the path with this name.
    pub fn path_id(&self, name: &str) -> Option<PathId> {
        self.paths().into_iter().find(|path| path.name == name).map(|path| path.id)
    }

    /// Rank of each path in the user's preference, 0 first, in order of path id;
    /// paths that are not named follow by price, and those of one price in that order. RSUs that take turns in slots all have
    /// the rank of the most preferred one.
    pub fn ranks(&self) -> Vec<u8> {
        let named = |name: &str| self.service.prefer.iter().position(|other| other == name);
        let after = self.service.prefer.len();
        let paths = self.paths().into_iter();
        let by_price = self.by_price();
        let place = |path: &PathEntry<'_>| by_price.iter().position(|id| *id == path.id).unwrap_or_default();
        let rank = |path: PathEntry<'_>| named(path.name).unwrap_or_else(|| after + place(&path));
        let mut ranks: Vec<u8> = paths.map(|path| u8::try_from(rank(path)).unwrap_or(u8::MAX)).collect();
        for link in self.links().into_iter().filter(|link| link.slots.is_some()) {
            let ranks = &mut ranks[link.paths];
            let first = ranks.iter().copied().min().unwrap_or_default();
            ranks.fill(first);
        }
        ranks
    }

    /// The paths, the cheapest first; those of one price in order of path id.
    fn by_price(&self) -> Vec<PathId> {
        let mut ids: Vec<PathId> = self.paths().iter().map(|path| path.id).collect();
        if let Some(prices) = self.prices() {
            ids.sort_by(|one, other| prices[usize::from(one.0)].total_cmp(&prices[usize::from(other.0)]));
        }
        ids
    }

    /// The path that the user prefers; if none is named, the cheapest, and without prices path 0.
    pub fn preferred_path(&self) -> PathId {
        let named = self.service.prefer.first().and_then(|name| self.path_id(name));
        named.or_else(|| self.by_price().first().copied()).unwrap_or(PathId(0))
    }

    /// The path of the first subflow.
    pub fn first_path(&self) -> PathId {
        let named = self.traffic.over.as_ref().and_then(|name| self.path_id(name));
        named.unwrap_or_else(|| self.preferred_path())
    }

    /// The path of strategy `single` and of third-party tunnels.
    pub fn single_path(&self, strategy: &Strategy) -> PathId {
        strategy.path().and_then(|name| self.path_id(name)).unwrap_or_else(|| self.preferred_path())
    }
}

impl Strategy {
    /// The path that a strategy over one path names.
    pub(super) fn path(&self) -> Option<&str> {
        self.parameters.get("path").filter(|_| self.keeps_to_one_path())?.as_str()
    }
}
