//! What a configuration asks for and this machine lacks: `check` reports all
//! of it; `agent` exits for faults of the file and notes the rest.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use nix::unistd::{AccessFlags, Group, User, access, geteuid};
use toml::Spanned;

use super::config::roadside::TunnelKind;
use super::config::{Config, PathConfig};
use super::unit::{NO_FORWARDING, forwards};
use super::{unit_tunnel, volumes};
use crate::control::listener;
use crate::control::server::Groups;
use crate::error::Error;
use crate::netlink::links::{self, Notice};
use crate::netlink::wireless::Wireless;
use crate::netlink::{self, PathManager, selected_path_manager};
use crate::observe::modem_manager;
use crate::tun;
use crate::tunnel::security::PrivateKey;

/// Note of an agent where the kernel manages the paths.
pub const KERNEL_MANAGES: &str = "net.mptcp.path_manager is `kernel`: connections that begin now remain managed by the \
                                  kernel, of which this agent steers the endpoints, for all connections alike, without \
                                  classes, and without new subflows in the place of those that end; run \
                                  `sysctl -w net.mptcp.path_manager=userspace` (before Linux 6.15: \
                                  net.mptcp.pm_type=1) and restart them";

/// Longest attempt of `check` to connect to a program.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A fault of the file that shows only together with other files: the agent does
/// not start with it.
pub fn refusal(config: &Config) -> Option<Error> {
    let tunnel = config.tunnel.as_ref().and_then(|tunnel| tunnel.get_ref().keys().err());
    let unit = || config.unit.as_ref()?.get_ref().follower().err();
    tunnel.or_else(unit).or_else(|| unknown_user(config)).or_else(|| {
        let roadside = config.roadside.as_ref()?.get_ref();
        if let (Some(_), Some(key)) = (&roadside.controller, &roadside.key)
            && let Err(fault) = PrivateKey::read(key.get_ref())
        {
            return Some(fault);
        }
        let unit = roadside.units.iter().map(|unit| roadside.encrypted(unit.get_ref(), 1500));
        unit.filter(|_| roadside.tunnel == TunnelKind::Crosslane).find_map(|tunnel| tunnel.keys().err())
    })
}

/// A class would match nothing.
fn unknown_user(config: &Config) -> Option<Error> {
    let mut classes = config.classes.iter().map(Spanned::get_ref);
    classes.find_map(|class| {
        let name = class.user.as_deref().filter(|name| user(name).is_none())?;
        let cause = format!("class {:?} names {name:?}, which is no user", class.name);
        Some(Error::usage("reading the classes of the configuration", cause, "name a user of this machine"))
    })
}

/// What is missing at present, a sentence each. The agent works without it, and
/// uses it when it becomes available.
pub fn lacks(config: &Config) -> Vec<String> {
    let mut lacks = missing_interfaces(config);
    if !config.paths.is_empty() && matches!(selected_path_manager(), Ok(PathManager::Kernel)) {
        lacks.push(KERNEL_MANAGES.into());
    }
    let (_, unknown) = trusted(&config.observe.vanetza_users);
    lacks.extend(unknown.into_iter().map(|user| format!("observe.vanetza_users names {user:?}, which is no user")));
    let service = &config.service;
    for (key, name) in [("demands_group", &service.demands_group), ("view_group", &service.view_group)] {
        let name = name.as_ref().map(|name| name.get_ref().as_str());
        if let Some(name) = name.filter(|name| group(name).is_none()) {
            lacks.push(format!("service.{key} names {name:?}, which is no group"));
        }
    }
    let observe = &config.observe;
    let has_source = observe.vanetza.is_some() || *observe.nl80211.get_ref() || observe.replay.is_some();
    let has_signal = |path: &PathConfig| has_source || observe.radiotap.is_some() && !path.stations.is_empty();
    let of_radio =
        config.paths.iter().map(Spanned::get_ref).filter(|path| path.rat.needs_signal() && !has_signal(path));
    lacks.extend(of_radio.map(|path| {
        let name = &path.name;
        format!("path {name:?} waits for a signal, which nothing reports; set observe.nl80211 = true or observe.vanetza, or rat = \"other\"")
    }));
    if config.unit.is_some() && forwards() == Some(false) {
        lacks.push(NO_FORWARDING.into());
    }
    lacks.extend(config.missing_groups());
    lacks.extend(config.rare_keepalives());
    lacks.extend(unwritable_events(config));
    if config.paths.iter().any(|path| path.get_ref().volume.is_some()) {
        lacks.extend(unwritable("service.volume_file", &config.service.volume_file));
    }
    lacks
}

/// What an agent started now would have to wait for, a sentence each; every
/// attempt is undone.
pub fn waits(config: &Config) -> Vec<String> {
    let mut tries: Vec<Result<(), String>> = Vec::new();
    if (config.tunnel.is_none() && config.unit.is_none()) || !config.paths.is_empty() {
        tries.push(netlink::probe().map_err(|cause| cause.to_string()));
    }
    let bind = |what: &str, address: &SocketAddr| {
        UdpSocket::bind(address).map(drop).map_err(|cause| format!("{what} on {address} now: {cause}"))
    };
    if let Some(address) = &config.observe.vanetza {
        tries.push(bind("CAMs cannot be received", address.get_ref()));
    }
    let connect = |what: &str, address: SocketAddr| {
        let tried = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        tried.map(drop).map_err(|cause| format!("{what} at {address} now: {cause}"))
    };
    if let Some(gpsd) = &config.observe.gpsd {
        tries.push(connect("the position cannot be received from gpsd", *gpsd.get_ref()));
    }
    if *config.observe.nl80211.get_ref() {
        let tried = Wireless::open().map(drop);
        tries.push(tried.map_err(|cause| format!("signals of Wi-Fi and 802.11p cannot be read now: {cause}")));
    }
    if *config.observe.modem_manager.get_ref() {
        tries.push(modem_manager::probe().map_err(|cause| format!("signals of modems cannot be read now: {cause}")));
    }
    if let Some(cam) = &config.cam {
        tries.push(connect("CAMs cannot be sent to the MQTT broker", *cam.get_ref().broker.get_ref()));
    }
    if let Some(address) = config.http.as_ref().map(|http| http.listen.get_ref()) {
        let tried = TcpListener::bind(address);
        tries.push(tried.map(drop).map_err(|cause| format!("the page cannot be served on {address} now: {cause}")));
    }
    if let Some(name) = config.service.demands.as_ref().map(Spanned::get_ref) {
        let tried = listener::try_name(name);
        tries.push(tried.map_err(|cause| format!("demands cannot be received on {name} now: {cause}")));
    }
    if let Some(tunnel) = config.tunnel.as_ref().map(Spanned::get_ref) {
        tries.push(tun::open_device().map(drop).map_err(|cause| cause.to_string()));
        tries.push(tunnel.gateway_address().map(drop).map_err(|cause| cause.to_string()));
        if let Some(address) = &tunnel.listen {
            tries.push(bind("the gateway cannot listen", address.get_ref()));
        }
    }
    if let Some(roadside) = &config.roadside {
        tries.push(unit_tunnel::probe(roadside.get_ref().tunnel).map_err(|cause| cause.to_string()));
    }
    if let Some(unit) = &config.unit {
        let kind = *unit.get_ref().tunnel.get_ref();
        tries.push(unit_tunnel::probe(kind).map_err(|cause| cause.to_string()));
    }
    tries.into_iter().filter_map(Result::err).chain(volumes::used_up(config)).collect()
}

/// User ids of root, of this process and of `names`; and the names that are no user.
pub fn trusted(names: &[Spanned<String>]) -> (Vec<u32>, Vec<&str>) {
    let (mut users, mut unknown) = (vec![0, geteuid().as_raw()], Vec::new());
    for name in names.iter().map(Spanned::get_ref) {
        match user(name) {
            Some(user) => users.push(user),
            None => unknown.push(name.as_str()),
        }
    }
    (users, unknown)
}

/// The id of a user given by name or number.
pub fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(User::from_name(name).ok()??.uid.as_raw()))
}

/// The groups of the configuration that exist.
pub fn groups(config: &Config) -> Groups {
    let id = |name: &Option<Spanned<String>>| name.as_ref().and_then(|name| group(name.get_ref()));
    Groups { senders: id(&config.service.demands_group), viewers: id(&config.service.view_group) }
}

/// The id of a group given by name or number.
fn group(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(Group::from_name(name).ok()??.gid.as_raw()))
}

fn missing_interfaces(config: &Config) -> Vec<String> {
    let Ok(notices) = links::snapshot() else { return Vec::new() };
    let (mut interfaces, mut addresses) = (BTreeMap::new(), BTreeMap::<u32, Vec<IpAddr>>::new());
    for notice in notices {
        match notice {
            Notice::Link(link) => drop(interfaces.insert(link.name, (link.if_index, link.up))),
            Notice::Address(event) => addresses.entry(event.if_index).or_default().push(event.address),
        }
    }
    let lack = |path: &PathConfig| {
        let interface = path.interface();
        let known = interfaces.get(interface);
        let present = known.and_then(|(index, _)| addresses.get(index)).map_or(&[][..], Vec::as_slice);
        let cause = match (known, path.address) {
            (None, _) => format!("there is no interface {interface:?} now"),
            (Some((_, false)), _) => format!("the interface {interface:?} is down"),
            (_, Some(address)) if !present.contains(&address) => {
                format!("the interface {interface:?} has no address {address} now")
            }
            (_, None) if present.is_empty() => format!("the interface {interface:?} has no address now"),
            _ => return None,
        };
        Some(format!("path {:?}: {cause}", path.name))
    };
    let radio = config.roadside.as_ref().map(|roadside| roadside.get_ref().interface.as_str());
    let radio = radio.filter(|radio| !radio.is_empty() && !interfaces.contains_key(*radio));
    let radio = radio.map(|radio| format!("[roadside]: there is no interface {radio:?} now"));
    config.paths.iter().filter_map(|path| lack(path.get_ref())).chain(radio).collect()
}

/// Why this user could not write events.
pub fn unwritable_events(config: &Config) -> Option<String> {
    config.log.events.as_deref().and_then(|file| unwritable("log.events", file))
}

/// The same of the file that a key names.
fn unwritable(key: &str, file: &Path) -> Option<String> {
    let (place, needed) = match fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => return Some(format!("{key}: {} is a folder", file.display())),
        Ok(_) => (file, AccessFlags::W_OK),
        Err(_) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (folder, AccessFlags::W_OK | AccessFlags::X_OK)
        }
    };
    let cause = access(place, needed).err()?;
    Some(format!("{key}: {} is not writable: {}", place.display(), cause.desc()))
}
