//! The roadside units that a vehicle may use: those of its configuration, and those that the
//! controller announces.

use std::collections::BTreeMap;
use std::sync::Arc;

use crosslane_core::roadside::connection_manager::Station;
use crosslane_core::roadside::messages::UnitEntry;
use ipnet::{IpNet, Ipv4Net};
use toml::Spanned;

use super::config::Config;
use super::config::roadside::{self, TunnelKind, UnitConfig};
use crate::tunnel::config::Prefix;
use crate::tunnel::security::PublicKey;

/// The units, by station id.
pub struct UnitDirectory {
    config: Arc<Config>,
    units: BTreeMap<u32, UnitConfig>,
    /// Why announced units are not used, as the user was informed.
    refusals: BTreeMap<u32, String>,
}

impl UnitDirectory {
    /// The units of the configuration.
    pub fn new(config: &Arc<Config>) -> UnitDirectory {
        let units = configured(config).map(|unit| (unit.station, unit.clone())).collect();
        UnitDirectory { config: config.clone(), units, refusals: BTreeMap::new() }
    }

    /// The unit with this station id.
    pub fn unit(&self, station: u32) -> Option<&UnitConfig> {
        self.units.get(&station)
    }

    /// All units.
    pub fn units(&self) -> impl Iterator<Item = &UnitConfig> {
        self.units.values()
    }

    /// Replaces the announced units. The configuration wins over an announced unit that has
    /// the station id, the name, the address or the prefix of one of its units. Returns why
    /// units are not used, a sentence each, once while it stays so.
    pub fn announce(&mut self, entries: &[UnitEntry]) -> Vec<String> {
        self.units = configured(&self.config).map(|unit| (unit.station, unit.clone())).collect();
        let former = std::mem::take(&mut self.refusals);
        let kind = self.config.roadside.as_ref().map(|section| section.get_ref().tunnel);
        for entry in entries {
            let unit = kind.map(|kind| unit(kind, entry)).ok_or_else(|| "there is no [roadside]".to_owned());
            let unit =
                unit.and_then(|unit| unit.ok_or_else(|| format!("{}/{} is no address", entry.inner.0, entry.inner.1)));
            let refusal = match unit {
                // Announced as it is configured.
                Ok(unit) if self.units.get(&unit.station).is_some_and(|known| known.is_same(&unit)) => None,
                Ok(unit) => match roadside::refusal(&self.config, self.units.values(), &unit) {
                    None => self.units.insert(unit.station, unit).and(None),
                    refusal => refusal,
                },
                Err(cause) => Some(cause),
            };
            if let Some(cause) = refusal {
                let name = &entry.name;
                let sentence = format!(
                    "while using the unit {name:?} that the controller announces: {cause}; correct it at the \
                     controller or in this configuration, which precedes"
                );
                self.refusals.insert(entry.station, sentence);
            }
        }
        let is_new = |(station, sentence): &(&u32, &String)| former.get(station) != Some(sentence);
        self.refusals.iter().filter(is_new).map(|(_, sentence)| sentence.clone()).collect()
    }
}

fn configured(config: &Config) -> impl Iterator<Item = &UnitConfig> {
    let section = config.roadside.as_ref().map(Spanned::get_ref);
    section.into_iter().flat_map(|section| section.units.iter().map(Spanned::get_ref))
}

/// A station of the connection manager.
pub fn station(unit: &UnitConfig) -> Station {
    Station { id: unit.station, name: unit.name.clone() }
}

/// An announced unit; `None` if its prefix is none. A key is needed by encrypted tunnels only.
fn unit(kind: TunnelKind, entry: &UnitEntry) -> Option<UnitConfig> {
    let (address, length) = entry.inner;
    let net = Ipv4Net::new(address, length).ok()?;
    let key = entry.key.filter(|_| kind == TunnelKind::Crosslane);
    Some(UnitConfig {
        station: entry.station,
        name: entry.name.clone(),
        address: entry.address,
        port: entry.port,
        inner: Spanned::new(0..0, Prefix(IpNet::V4(net))),
        key: key.map(|key| Spanned::new(0..0, PublicKey::from(key).to_string())),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::config::from_table;
    use super::*;

    const CONFIGURATION: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[observe]
vanetza = "127.0.0.1:5051"
[strategy]
name = "threshold"
[roadside]
interface = "its-g5"
tunnel = "crosslane"
key = "own.key"
home = "10.99.0.7/32"
controller = "192.0.2.1:4761"
controller_key = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE="
[[roadside.unit]]
station = 1001
name = "rsu1"
address = "10.80.0.11"
inner = "10.81.0.2/24"
key = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE="
"#;

    fn directory(text: &str) -> UnitDirectory {
        let config = from_table("reading", &text.parse().expect("TOML"));
        UnitDirectory::new(&Arc::new(config.unwrap_or_else(|fault| panic!("{fault}"))))
    }

    fn announced(number: u8) -> UnitEntry {
        UnitEntry {
            station: 1000 + u32::from(number),
            name: format!("rsu{number}"),
            address: Ipv4Addr::new(10, 80, 0, 10 + number),
            port: 4760,
            key: Some([number; 32]),
            inner: (Ipv4Addr::new(10, 80 + number, 0, 2), 24),
        }
    }

    fn stations(directory: &UnitDirectory) -> Vec<u32> {
        directory.units().map(|unit| unit.station).collect()
    }

    #[test]
    fn announced_units_are_used_beside_those_of_the_configuration_until_they_vanish() {
        let mut directory = directory(CONFIGURATION);
        assert_eq!(stations(&directory), [1001]);
        assert!(directory.announce(&[announced(2), announced(3)]).is_empty());
        assert_eq!(stations(&directory), [1001, 1002, 1003]);
        let unit = directory.unit(1002).expect("announced");
        assert_eq!((unit.name.as_str(), unit.address, unit.port), ("rsu2", Ipv4Addr::new(10, 80, 0, 12), 4760));
        assert_eq!(unit.net().map(|net| net.to_string()).as_deref(), Some("10.82.0.2/24"));
        assert_eq!(unit.key.as_ref().map(|key| key.get_ref().parse()), Some(Ok(PublicKey::from([2; 32]))));
        assert!(directory.announce(&[announced(3)]).is_empty());
        assert_eq!(stations(&directory), [1001, 1003]);
        assert!(directory.announce(&[]).is_empty());
        assert_eq!(stations(&directory), [1001]);
    }

    #[test]
    fn the_configuration_wins_and_the_user_is_informed_once() {
        let mut directory = directory(CONFIGURATION);
        let same_station = UnitEntry { station: 1001, ..announced(2) };
        let same_name = UnitEntry { name: "rsu1".into(), ..announced(3) };
        let entries = [same_station, same_name, announced(4)];
        let sentences = directory.announce(&entries);
        assert_eq!((sentences.len(), stations(&directory)), (2, vec![1001, 1004]), "{sentences:?}");
        assert!(sentences[0].contains("units \"rsu1\" and \"rsu2\" have the station id 1001"), "{sentences:?}");
        assert!(sentences[1].contains("two units are named \"rsu1\""), "{sentences:?}");
        assert_eq!(directory.unit(1001).map(|unit| unit.name.as_str()), Some("rsu1"));
        assert!(directory.announce(&entries).is_empty(), "once");
        assert!(directory.announce(&[]).is_empty());
        assert_eq!(directory.announce(&entries).len(), 2, "again after it was gone");
    }

    #[test]
    fn a_unit_that_is_announced_as_it_is_configured_needs_no_words() {
        let mut directory = directory(CONFIGURATION);
        let key: PublicKey = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=".parse().expect("a key");
        assert_eq!(directory.announce(&[UnitEntry { key: Some(*key.as_bytes()), ..announced(1) }]), [""; 0]);
        assert_eq!(directory.announce(&[announced(1)]).len(), 1, "another key");
    }

    #[test]
    fn an_announced_unit_that_cannot_be_used_is_left_out_with_its_reason() {
        let mut directory = directory(CONFIGURATION);
        let cases = [
            (UnitEntry { name: "lte".into(), ..announced(2) }, "that of a path"),
            (UnitEntry { name: "a/b".into(), ..announced(2) }, "is invalid"),
            (UnitEntry { key: None, ..announced(2) }, "has no `key`"),
            (UnitEntry { inner: (Ipv4Addr::new(10, 82, 0, 2), 40), ..announced(2) }, "is no address"),
            (UnitEntry { inner: (Ipv4Addr::new(10, 82, 0, 1), 24), ..announced(2) }, "whose first address"),
            (UnitEntry { inner: (Ipv4Addr::new(10, 81, 0, 9), 16), ..announced(2) }, "prefixes that overlap"),
            (UnitEntry { address: Ipv4Addr::UNSPECIFIED, ..announced(2) }, "has no `address`"),
            (UnitEntry { inner: (Ipv4Addr::new(10, 99, 0, 2), 24), ..announced(2) }, "contains the home address"),
        ];
        for (entry, expected) in cases {
            let sentences = directory.announce(&[entry]);
            assert!(sentences.len() == 1 && sentences[0].contains(expected), "{expected}: {sentences:?}");
            assert!(sentences[0].starts_with("while using the unit ") && sentences[0].contains("; "), "{sentences:?}");
            assert_eq!(stations(&directory), [1001]);
        }
        let mut vxlan =
            self::directory(&CONFIGURATION.replace("tunnel = \"crosslane\"", "tunnel = \"vxlan\"").replace(
                "inner = \"10.81.0.2/24\"\nkey = \"wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=\"",
                "inner = \"10.81.0.2/24\"",
            ));
        assert_eq!((vxlan.announce(&[announced(2)]), stations(&vxlan)), (vec![], vec![1001, 1002]), "needs no key");
    }
}
