//! This machine as a roadside unit: it ends the tunnels of vehicles, routes their home addresses
//! into them, and tells the controller which vehicles it receives and whose tunnels deliver.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crosslane_core::engine::Engine;
use crosslane_core::path::Signal;
use crosslane_core::roadside::connection_manager::Cam;
use crosslane_core::roadside::messages::{Announcement, VehicleEntry};
use crosslane_core::roadside::reception::{Input, Output, Reception};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::overhead::VXLAN_BYTES;
use ipnet::Ipv4Net;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use toml::Spanned;

use super::Driver;
use super::config::Config;
use super::config::roadside::TunnelKind;
use super::config::unit::UnitSection;
use super::home_address::{HELLO, HELLO_PORT};
use super::later::Part;
use super::or_pending;
use super::unit_tunnel::{self, MARK, QUEUE_PACKETS};
use crate::error::{Error, Result};
use crate::netlink::Wiring;
use crate::netlink::home::{HomeRoute, Hop, Owner};
use crate::observe::vanetza::Rejected;
use crate::roadside::link::{Link, LinkEvent};

/// Interface of the VXLAN to all vehicles.
const VXLAN_INTERFACE: &str = "vehicles";
/// Note of a unit that does not forward.
pub const NO_FORWARDING: &str = "[unit]: net.ipv4.ip_forward is 0, so nothing passes between vehicles and the \
                                 backhaul; run `sysctl -w net.ipv4.ip_forward=1`";

/// The unit.
pub struct Unit {
    config: Arc<Config>,
    net: Ipv4Net,
    reception: Reception,
    vehicles: Vec<VehicleEntry>,
    wiring: Wiring,
    link: Option<Link>,
    /// Index of the tunnels' interface, and the socket of hellos there.
    inside: Option<(u32, UdpSocket)>,
    /// The vehicles whose home addresses have a route into their tunnels.
    routed: BTreeMap<Ipv4Addr, VehicleEntry>,
    forwards: Option<bool>,
}

/// What arrives at a unit.
pub enum Arrived {
    /// A hello from this address through a tunnel.
    Hello(Ipv4Addr),
    /// From the controller.
    Link(LinkEvent),
}

/// Whether this kernel forwards IPv4 packets; `None`: unknown.
pub fn forwards() -> Option<bool> {
    let value = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").ok()?;
    Some(value.trim() != "0")
}

impl Unit {
    /// The unit of the configuration, if it is one; it follows its controller from now on.
    ///
    /// # Errors
    /// A key cannot be read, or the kernel has no netlink.
    pub fn new(config: &Arc<Config>) -> Result<Option<Unit>> {
        let Some((section, net)) = section(config) else { return Ok(None) };
        Ok(Some(Unit {
            config: config.clone(),
            net,
            reception: Reception::default(),
            vehicles: Vec::new(),
            wiring: Wiring::open()?,
            link: section.follower()?.map(Link::start),
            inside: None,
            routed: BTreeMap::new(),
            forwards: None,
        }))
    }

    /// Sets the configuration that was read again: the vehicles of an encrypted unit can have changed.
    pub fn set_config(&mut self, config: &Arc<Config>) {
        self.config = config.clone();
    }

    /// When the unit has something to report without an input.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.reception.next_wakeup()
    }

    /// What arrives next. Safe to cancel.
    pub async fn next(&mut self) -> Arrived {
        let (link, inside) = (&mut self.link, &self.inside);
        tokio::select! {
            event = or_pending(link.as_mut().map(Link::next)) => Arrived::Link(event),
            from = or_pending(inside.as_ref().map(|(_, socket)| hello(socket))) => Arrived::Hello(from),
        }
    }

    /// Opens what vehicles reach: the end of the tunnels, and the socket of hellos.
    fn open(&mut self) -> Result<()> {
        let config = self.config.clone();
        let Some((section, net)) = section(&config) else { return Ok(()) };
        let interface = match &section.interface {
            Some(radio) => {
                self.open_vxlan(section, radio.get_ref(), net)?;
                VXLAN_INTERFACE
            }
            None => config.tunnel.as_ref().map_or("", |tunnel| &tunnel.get_ref().interface),
        };
        let index = self.wiring.index(interface)?;
        let own = section.own().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let socket = hello_socket(interface, own)
            .map_err(|cause| Error::failure(format!("listening for hellos on {own}:{HELLO_PORT}"), cause))?;
        self.inside = Some((index, socket));
        Ok(())
    }

    fn open_vxlan(&mut self, section: &UnitSection, radio: &str, net: Ipv4Net) -> Result<()> {
        let attempt = "creating the VXLAN to vehicles";
        let found = unit_tunnel::find_address(radio).0;
        let radio_ends = found.ok_or_else(|| {
            let cause = format!("the radio {radio:?} is not up, or has no IPv4 address");
            Error::failure(attempt, cause).with_remedy("bring it up with one")
        })?;
        self.wiring.remove_marked(MARK)?;
        let network = section.station & 0x00ff_ffff;
        self.wiring.add_learning_vxlan(VXLAN_INTERFACE, network, radio_ends.address, radio_ends.if_index)?;
        self.wiring.mark(VXLAN_INTERFACE, MARK)?;
        let own = section.own().unwrap_or(Ipv4Addr::UNSPECIFIED);
        unit_tunnel::settle(&mut self.wiring, VXLAN_INTERFACE, own)?;
        let mtu = self.wiring.mtu(radio)?.saturating_sub(VXLAN_BYTES);
        self.wiring.bring_up(VXLAN_INTERFACE, mtu, QUEUE_PACKETS)?;
        let index = self.wiring.index(VXLAN_INTERFACE)?;
        self.wiring.add_address(index, own, net.prefix_len())
    }

    /// Sets or removes the route of a home address into the vehicle's tunnel.
    fn route(&mut self, vehicle: VehicleEntry, stands: bool) -> Result<()> {
        let via = Ipv4Addr::from_bits(self.net.network().to_bits().wrapping_add(vehicle.host));
        let interface = self.inside.as_ref().map(|(interface, _)| *interface);
        let route = HomeRoute { to: Ipv4Net::from(vehicle.home), hop: Some(Hop { via, interface }), table: None };
        match stands {
            true => self.wiring.replace_home_route(Owner::Agent, &route),
            false => self.wiring.remove_home_route(Owner::Agent, &route).map(drop),
        }
    }

    /// While the unit serves a vehicle whose tunnel is gone, its home address is unreachable: by the default
    /// route, packets to it would return to the gateway, and come back.
    /// False if it was not and is not.
    fn end_at(&mut self, home: Ipv4Addr, serves: bool) -> Result<bool> {
        let route = HomeRoute { to: Ipv4Net::from(home), hop: None, table: None };
        match serves {
            true => self.wiring.replace_home_route(Owner::Agent, &route).map(|()| true),
            false => self.wiring.remove_home_route(Owner::Agent, &route),
        }
    }

    /// The home addresses of this list that the encrypted tunnel would not carry.
    fn unknown_homes(&self, vehicles: &[VehicleEntry]) -> Vec<Ipv4Addr> {
        let Some(tunnel) = self.config.tunnel.as_ref().map(Spanned::get_ref) else { return Vec::new() };
        let holds = |home: IpAddr| {
            let mut prefixes = tunnel.vehicles.iter().flat_map(|vehicle| &vehicle.get_ref().address);
            prefixes.any(|prefix| prefix.get_ref().0.contains(&home))
        };
        let new = vehicles.iter().filter(|vehicle| !self.vehicles.contains(vehicle));
        new.map(|vehicle| vehicle.home).filter(|home| !holds((*home).into())).collect()
    }

    /// Forgets what was received, as after the tunnels' interface was removed with its routes.
    fn forget(&mut self, now: Instant) {
        self.inside = None;
        self.routed.clear();
        self.reception = Reception::default();
        self.reception.handle(now, Input::Vehicles(self.vehicles.clone()));
    }

    /// The host number of an address of the unit's prefix.
    fn host(&self, address: Ipv4Addr) -> Option<u32> {
        self.net.contains(&address).then(|| address.to_bits() - self.net.network().to_bits())
    }
}

fn section(config: &Config) -> Option<(&UnitSection, Ipv4Net)> {
    let section = config.unit.as_ref()?.get_ref();
    Some((section, section.net()?))
}

/// The home addresses of vehicles that a new list lacks. A vehicle with another host number stays: the controller goes on
/// leading its home address here.
fn gone(former: &[VehicleEntry], new: &[VehicleEntry]) -> Vec<Ipv4Addr> {
    let stays = |known: &VehicleEntry| new.iter().any(|of| (of.station, of.home) == (known.station, known.home));
    former.iter().filter(|known| !stays(known)).map(|known| known.home).collect()
}

/// Only what arrives through the tunnels' interface: elsewhere anybody could send a hello.
fn hello_socket(interface: &str, own: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.bind(&SocketAddrV4::new(own, HELLO_PORT).into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

/// The vehicle of the next hello.
async fn hello(socket: &UdpSocket) -> Ipv4Addr {
    let mut bytes = [0; HELLO.len() + 1];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut bytes).await else { continue };
        if &bytes[..length] == HELLO
            && let IpAddr::V4(from) = from.ip()
        {
            return from;
        }
    }
}

impl Driver {
    /// Removes what a killed agent left, and opens what vehicles reach.
    pub(super) fn start_unit(&mut self) {
        let Some(unit) = &mut self.unit else { return };
        let former = unit.wiring.remove_home_routes(Owner::Agent).and_then(|_| unit.wiring.remove_marked(MARK));
        former.err().iter().for_each(|fault| self.journal.fault(fault));
        if unit.config.unit.as_ref().is_some_and(|unit| *unit.get_ref().tunnel.get_ref() == TunnelKind::Vxlan) {
            self.note_to_user(
                "the tunnels to vehicles are VXLAN, which neither encrypts nor authenticates: anybody on the air can \
                 read and forge what they carry, and pose as a vehicle; use it only in closed networks, or set \
                 unit.tunnel = \"crosslane\"",
            );
        }
    }

    pub(super) fn open_unit(&mut self) -> Result<()> {
        self.unit.as_mut().map_or(Ok(()), Unit::open)
    }

    /// A CAM of a station, if it is a vehicle of this unit.
    pub(super) fn on_vehicle(&mut self, signal: Signal) {
        let now = self.clock.now();
        let Some(unit) = &mut self.unit else { return };
        let station = signal.station.unwrap_or_default();
        if !unit.vehicles.iter().any(|vehicle| vehicle.station == station) {
            return self.journal.rejected(&Rejected::UnknownStation(signal));
        }
        let cam = Cam { station, rssi_dbm: signal.rssi_dbm, position: signal.sender };
        unit.reception.handle(now, Input::Cam(cam));
    }

    pub(super) fn on_unit(&mut self, arrived: Arrived) {
        let now = self.clock.now();
        let Some(unit) = &mut self.unit else { return };
        match arrived {
            Arrived::Hello(from) => {
                if let Some(host) = unit.host(from) {
                    unit.reception.handle(now, Input::Hello(host));
                }
            }
            Arrived::Link(LinkEvent::Up) => {
                unit.reception.handle(now, Input::Forgotten);
                self.journal.note("the controller accepts this unit");
            }
            Arrived::Link(LinkEvent::Down(fault)) => {
                self.note_to_user(&format!("{fault}; what flows goes on"));
            }
            Arrived::Link(LinkEvent::Announcement(announcement)) => self.on_announcement(announcement),
        }
    }

    fn on_announcement(&mut self, announcement: Announcement) {
        let now = self.clock.now();
        let Some(unit) = &mut self.unit else { return };
        match announcement {
            Announcement::Vehicles(vehicles) => {
                let unknown = unit.unknown_homes(&vehicles);
                let ended =
                    gone(&unit.vehicles, &vehicles).into_iter().try_for_each(|home| unit.end_at(home, false).map(drop));
                ended.err().iter().for_each(|fault| self.journal.fault(fault));
                unit.vehicles.clone_from(&vehicles);
                unit.reception.handle(now, Input::Vehicles(vehicles));
                for home in unknown {
                    self.note_to_user(&format!(
                        "the controller announces the home address {home}, which no [[tunnel.vehicle]] of this unit \
                         has: the tunnel carries nothing of it; add it to the vehicle's `address`"
                    ));
                }
            }
            Announcement::Serving { station, serves } => {
                let vehicle = unit.vehicles.iter().find(|vehicle| vehicle.station == station);
                match vehicle.map(|vehicle| vehicle.home).map_or(Ok(false), |home| unit.end_at(home, serves)) {
                    Ok(false) => {}
                    Ok(true) => self.journal.serving(station, serves),
                    Err(fault) => self.journal.fault(&fault),
                }
            }
            // Not for units.
            Announcement::Units(_) | Announcement::Refused { .. } | Announcement::Keepalive => {}
        }
    }

    /// Carries out what the reception of vehicles decides.
    pub(super) fn act_on_unit(&mut self) {
        let now = self.clock.now();
        let Some(unit) = &mut self.unit else { return };
        while let Some(output) = unit.reception.poll(now) {
            match output {
                Output::Report(report) => unit.link.iter().for_each(|link| link.send(report.clone())),
                Output::Route(vehicle, stands) => {
                    match stands {
                        true => drop(unit.routed.insert(vehicle.home, vehicle)),
                        false => drop(unit.routed.remove(&vehicle.home)),
                    }
                    let done = unit.route(vehicle, stands);
                    done.err().iter().for_each(|fault| self.journal.fault(fault));
                    self.journal.home_route(vehicle, stands);
                }
            }
        }
    }

    /// Opens again what another program removed, sets routes again that the kernel removed when the interface went down, and
    /// says when the kernel does not forward.
    pub(super) fn check_unit(&mut self) {
        let Some(unit) = &mut self.unit else { return };
        let routed: Vec<VehicleEntry> = unit.routed.values().copied().collect();
        routed.into_iter().for_each(|vehicle| drop(unit.route(vehicle, true)));
        let forwards = forwards();
        let changed = std::mem::replace(&mut unit.forwards, forwards) != forwards;
        let index = unit.inside.as_ref().map(|(index, _)| *index);
        let is_gone = index.is_some_and(|index| !unit.wiring.is_index(index));
        if is_gone {
            unit.forget(self.clock.now());
            self.set_up(Part::Unit);
        }
        if changed && forwards == Some(false) {
            self.note_to_user(NO_FORWARDING);
        }
    }

    /// Removes the routes of home addresses, and the end of the VXLAN.
    pub(super) fn finish_unit(&mut self) {
        let Some(mut unit) = self.unit.take() else { return };
        let removed = unit.wiring.remove_home_routes(Owner::Agent).and_then(|_| unit.wiring.remove_marked(MARK));
        removed.err().iter().for_each(|fault| self.journal.fault(fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vehicle_with_another_host_number_keeps_its_home_address() {
        let entry = |station: u32, host, home| VehicleEntry { station, host, home: Ipv4Addr::new(10, 99, 0, home) };
        let former = [entry(1, 2, 1), entry(2, 3, 2), entry(3, 4, 3)];
        let new = [entry(1, 9, 1), entry(2, 3, 8), entry(4, 4, 3)];
        assert_eq!(gone(&former, &new), [former[1].home, former[2].home]);
    }
}
