//! The section `[unit]`: this machine is a roadside unit.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crosslane_core::roadside::messages::Role;
use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use toml::Spanned;

use super::Config;
use super::checks::Complaint;
use super::roadside::{PREFIX_LENGTHS, TunnelKind};
use crate::error::{Error, Result};
use crate::roadside::link::Follower;
use crate::tunnel::config::Prefix;
use crate::tunnel::security::{PrivateKey, PublicKey};

/// Remedy for an invalid public key of the controller.
const KEY_REMEDY: &str = "give what `crosslane keygen --public FILE` prints for the controller's key";

/// The section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitSection {
    /// Its C-ITS station id.
    pub station: u32,
    /// Its prefix. The first address is the unit's; a vehicle has the same host number in the
    /// prefix of every unit.
    pub prefix: Spanned<Prefix>,
    /// Its address on the backhaul, by which the gateway reaches it.
    pub address: Ipv4Addr,
    /// Kind of the tunnels to vehicles.
    pub tunnel: Spanned<TunnelKind>,
    /// Interface of the radio, for `tunnel = "vxlan"`.
    pub interface: Option<Spanned<String>>,
    /// The controller's host and port, if there is one.
    pub controller: Option<Spanned<String>>,
    /// The controller's public key.
    pub controller_key: Option<Spanned<String>>,
    /// File of our private key, for the controller.
    pub key: Option<Spanned<PathBuf>>,
}

impl UnitSection {
    /// The prefix; checked to be IPv4.
    pub fn net(&self) -> Option<Ipv4Net> {
        match self.prefix.get_ref().0 {
            IpNet::V4(net) => Some(net.trunc()),
            IpNet::V6(_) => None,
        }
    }

    /// The unit's address in its prefix, the first one.
    pub fn own(&self) -> Option<Ipv4Addr> {
        self.net()?.hosts().next()
    }

    /// Whom it follows and as what, if there is a controller.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn follower(&self) -> Result<Option<Follower>> {
        let (Some(controller), Some(controller_key), Some(key), Some(net)) =
            (&self.controller, &self.controller_key, &self.key, self.net())
        else {
            return Ok(None);
        };
        let controller_key = controller_key.get_ref().parse().map_err(|cause| {
            Error::usage(format!("reading the public key {:?}", controller_key.get_ref()), cause, KEY_REMEDY)
        })?;
        let role = Role::Unit { prefix: (net.network(), net.prefix_len()), address: self.address };
        let (controller, key) = (controller.get_ref().clone(), PrivateKey::read(key.get_ref())?);
        Ok(Some(Follower { controller, controller_key, key, role }))
    }
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let Some(section) = &config.unit else { return Ok(()) };
    let (place, unit) = (section.span().start, section.get_ref());
    if config.roadside.is_some() {
        return Err((place, "[unit] and [roadside] in one file".into(), "a unit has [unit], a vehicle [roadside]"));
    }
    if config.observe.vanetza.is_none() {
        let cause = "[unit] without `observe.vanetza`: no CAM of a vehicle would arrive".into();
        return Err((place, cause, "set observe.vanetza, as \"127.0.0.1:5051\""));
    }
    check_net(unit)?;
    check_tunnel(config, place, unit)?;
    check_controller(place, unit)
}

fn check_net(unit: &UnitSection) -> Result<(), Complaint> {
    let (place, prefix) = (unit.prefix.span().start, unit.prefix.get_ref().0);
    let Some(net) = unit.net().filter(|net| PREFIX_LENGTHS.contains(&net.prefix_len())) else {
        let cause = format!("the unit's prefix {prefix} is no IPv4 prefix of at most 30 bits");
        return Err((place, cause, "give one, as \"10.81.0.0/24\""));
    };
    if net.contains(&unit.address) || unit.address.is_unspecified() {
        let cause = format!("the unit's `address` {} is none of the backhaul", unit.address);
        return Err((place, cause, "give the address by which the gateway reaches it, outside its prefix"));
    }
    Ok(())
}

fn check_tunnel(config: &Config, place: usize, unit: &UnitSection) -> Result<(), Complaint> {
    let tunnel = config.tunnel.as_ref().map(Spanned::get_ref);
    let at = unit.tunnel.span().start;
    match (unit.tunnel.get_ref(), tunnel) {
        (TunnelKind::Crosslane, Some(tunnel)) if tunnel.listen.is_some() => {
            let own = unit.own().map(IpAddr::from);
            let has_own = tunnel.address.iter().any(|prefix| Some(prefix.get_ref().0.addr()) == own);
            if !has_own {
                let own = own.map(|own| own.to_string()).unwrap_or_default();
                let cause = format!("tunnel.address lacks {own}, the first address of the unit's prefix");
                return Err((place, cause, "give [tunnel] this address, with the length of the prefix"));
            }
        }
        (TunnelKind::Crosslane, _) => {
            let remedy = "add [tunnel] with `listen`, `key` and a [[tunnel.vehicle]] for each vehicle";
            return Err((at, "a unit with encrypted tunnels has no [tunnel] that listens".into(), remedy));
        }
        (TunnelKind::Vxlan, None) => {}
        (TunnelKind::Vxlan, Some(_)) => {
            let remedy = "leave it out, or set unit.tunnel = \"crosslane\"";
            return Err((at, "a [tunnel], which a unit with VXLAN does not use".into(), remedy));
        }
        (TunnelKind::Gre | TunnelKind::None, _) => {
            let cause = "a unit's end of this kind of tunnel does not learn where vehicles are".into();
            return Err((at, cause, "set unit.tunnel = \"crosslane\", or \"vxlan\" in a closed network"));
        }
    }
    let is_name = |name: &Spanned<String>| (1..=15).contains(&name.get_ref().len());
    match (&unit.interface, *unit.tunnel.get_ref() == TunnelKind::Vxlan) {
        (Some(name), true) if is_name(name) => Ok(()),
        (None, false) => Ok(()),
        (Some(name), false) => {
            let remedy = "leave it out: [tunnel] listens at an address";
            Err((name.span().start, "`interface`, which only tunnels of kind vxlan use".into(), remedy))
        }
        (_, true) => Err((place, "[unit] has no `interface` of 1 to 15 bytes".into(), "name that of the radio")),
    }
}

fn check_controller(place: usize, unit: &UnitSection) -> Result<(), Complaint> {
    let given = [unit.controller.is_some(), unit.controller_key.is_some(), unit.key.is_some()];
    if given == [false; 3] {
        return Ok(());
    }
    let keys = ["controller", "controller_key", "key"];
    if let Some((name, _)) = keys.iter().zip(given).find(|(_, is_given)| !is_given) {
        let remedy = "give `controller`, `controller_key` and `key` (made by `crosslane keygen --out FILE`), or none";
        return Err((place, format!("[unit] has no `{name}`, which a unit with a controller needs"), remedy));
    }
    if let Some(name) = &unit.controller
        && !name
            .get_ref()
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    {
        let cause = format!("the controller {:?} has no port", name.get_ref());
        return Err((name.span().start, cause, "give an address or a name, and a port, as \"192.0.2.1:4761\""));
    }
    if let Some(key) = &unit.controller_key
        && let Err(fault) = key.get_ref().parse::<PublicKey>()
    {
        let cause = format!("{:?} is no public key: {fault}", key.get_ref());
        return Err((key.span().start, cause, KEY_REMEDY));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const KEY: &str = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=";
    const GOOD: &str = r#"
[observe]
vanetza = "127.0.0.1:5051"
[unit]
station = 1001
prefix = "10.81.0.0/24"
address = "10.90.0.11"
tunnel = "vxlan"
interface = "its-g5"
controller = "10.90.0.1:4761"
controller_key = "KEY"
key = "unit.key"
"#;

    #[test]
    fn a_unit_needs_neither_paths_nor_a_strategy_nor_a_controller() {
        let text = GOOD.replace("KEY", KEY);
        let config = parse(&text).unwrap_or_else(|fault| panic!("line {}: {}", fault.line, fault.cause));
        let unit = config.unit.expect("a unit").into_inner();
        assert_eq!(unit.own(), Some([10, 81, 0, 1].into()));
        let keys = ["controller", "key"];
        let alone: String = text
            .lines()
            .filter(|line| !keys.iter().any(|key| line.starts_with(key)))
            .fold(String::new(), |text, line| text + line + "\n");
        assert!(parse(&alone).is_ok());
    }

    #[test]
    fn a_fault_of_the_unit_names_its_line_and_what_to_do() {
        let tunnel = "[tunnel]\naddress = [\"10.82.0.1/24\"]\nlisten = \"0.0.0.0:4760\"\nkey = \"unit.key\"\n\
                      [[tunnel.vehicle]]\nname = \"car\"\naddress = [\"10.82.0.2/32\"]\nkey = \"KEY\"\n[unit]";
        let cases = [
            ("[unit]", "[roadside]\ninterface = \"a\"\ntunnel = \"vxlan\"\n[unit]", "[unit] and [roadside]"),
            ("vanetza = \"127.0.0.1:5051\"", "", "no CAM of a vehicle would arrive"),
            ("10.81.0.0/24", "10.81.0.0/31", "no IPv4 prefix of at most 30 bits"),
            ("10.81.0.0/24", "fd81::/64", "no IPv4 prefix"),
            ("10.90.0.11", "10.81.0.1", "is none of the backhaul"),
            ("\"vxlan\"\ninterface = \"its-g5\"", "\"crosslane\"", "has no [tunnel] that listens"),
            ("tunnel = \"vxlan\"", "tunnel = \"gre\"", "does not learn where vehicles are"),
            ("tunnel = \"vxlan\"", "tunnel = \"none\"", "does not learn where vehicles are"),
            ("interface = \"its-g5\"", "", "has no `interface`"),
            ("key = \"unit.key\"", "", "has no `key`"),
            ("controller_key = \"KEY\"", "", "has no `controller_key`"),
            ("10.90.0.1:4761", "10.90.0.1", "has no port"),
            ("\"KEY\"", "\"KEY2\"", "is no public key"),
            ("station = 1001", "station = -1", "-1"),
            ("station = 1001", "station = 1001\nslots = 3", "unknown key `slots`"),
            ("[unit]", tunnel, "a unit with VXLAN does not use"),
        ];
        for (good, bad, expected) in cases {
            let text = GOOD.replacen(good, bad, 1).replace("KEY", KEY);
            let fault = parse(&text).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert!(fault.cause.contains(expected), "{bad}: {}", fault.cause);
            assert!(fault.line > 1 && !fault.remedy.is_empty(), "{bad}: line {}", fault.line);
        }
        let text = GOOD.replace("\"vxlan\"\ninterface = \"its-g5\"", "\"crosslane\"").replace("[unit]", tunnel);
        let fault = parse(&text.replace("KEY", KEY)).expect_err("another address");
        assert!(fault.cause.contains("tunnel.address lacks 10.81.0.1"), "{}", fault.cause);
    }
}
