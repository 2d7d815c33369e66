//! Connects the engine with the peers, the redirector and the journal.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crosslane_core::engine::Engine;
use crosslane_core::roadside::controller::{Controller, Event, Input, Output, Peer};
use crosslane_core::roadside::messages::{Announcement, Role};
use serde_json::json;

use super::config::{self, Config, Redirect};
use super::server::{FromPeer, Id, Outbox, Server};
use super::status::{Refused, SightStatus, Status, UnitStatus, VehicleStatus};
use crate::agent::journal::Journal;
use crate::clock::Clock;
use crate::error::Result;
use crate::output;
use crate::roadside::redirector::{Outcome, Redirector, UnitPlace};
use crate::tunnel::security::{PrivateKey, PublicKey};

/// Messages of peers that are processed in a row.
const MESSAGES_IN_A_ROW: usize = 64;

/// The controller without its loop.
pub(super) struct Driver {
    pub(super) clock: Clock,
    pub(super) engine: Controller,
    pub(super) server: Server,
    /// Messages that the server has passed on.
    pub(super) arrived: Vec<FromPeer>,
    pub(super) redirector: Redirector,
    config: Config,
    public_key: PublicKey,
    redirector_answers: bool,
    connections: BTreeMap<Id, Connection>,
    by_peer: BTreeMap<Peer, Id>,
    names: BTreeMap<Peer, String>,
    homes: BTreeMap<Ipv4Addr, u32>,
    contradicting: u64,
    journal: Journal,
}

struct Connection {
    peer: Peer,
    address: String,
    outbox: Outbox,
}

impl Driver {
    pub(super) fn new(config: Config, key: PrivateKey, clock: Clock) -> Result<Driver> {
        let redirector = match (config.redirect.get_ref(), &config.openflow_socket) {
            (Redirect::OpenFlow, Some(socket)) => Redirector::openflow(socket.get_ref().clone(), clock),
            _ => Redirector::routes()?,
        };
        let public_key = key.public();
        let mut driver = Driver {
            clock,
            engine: Controller::new(),
            server: Server::listen(config.listen, key, clock)?,
            arrived: Vec::with_capacity(MESSAGES_IN_A_ROW),
            redirector,
            journal: Journal::of_controller(&config.log, clock),
            config,
            public_key,
            redirector_answers: false,
            connections: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            names: BTreeMap::new(),
            homes: BTreeMap::new(),
            contradicting: 0,
        };
        driver.use_configuration();
        driver.take_over();
        Ok(driver)
    }

    /// Passes units and vehicles of the configuration on.
    fn use_configuration(&mut self) {
        let directory = self.config.directory();
        let units = directory.units.iter().map(|unit| (Peer::Unit(unit.station), unit.name.clone()));
        let vehicles = directory.vehicles.iter().map(|of| (Peer::Vehicle(of.station), of.name.clone()));
        self.names = units.chain(vehicles).collect();
        self.homes = directory.vehicles.iter().map(|vehicle| (vehicle.home, vehicle.station)).collect();
        self.server.set_keys(self.config.keys());
        self.engine.handle(self.clock.now(), Input::Directory(directory));
    }

    /// What an earlier controller has led stays; what no vehicle of the configuration uses is withdrawn.
    fn take_over(&mut self) {
        let now = self.clock.now();
        for (home, next_hop) in self.redirector.found() {
            let unit = self.engine.directory().units.iter().find(|unit| unit.next_hop == next_hop);
            match (self.homes.get(&home), unit.map(|unit| unit.station)) {
                (Some(&vehicle), Some(unit)) => self.engine.handle(now, Input::Present { vehicle, unit }),
                (Some(_), None) => {}
                (None, _) => self.redirector.lead(home, None),
            }
        }
    }

    /// Reads the configuration again; a faulty one changes nothing.
    pub(super) fn read_again(&mut self, file: &Path) {
        let config = match config::read(file) {
            Ok(config) => config,
            Err(fault) => {
                output::message(format_args!("{fault}; the former configuration stays in use"));
                return self.journal.fault(&fault);
            }
        };
        let is_same = |new: &Config, old: &Config| {
            (new.listen, &new.key, new.redirect.get_ref()) == (old.listen, &old.key, old.redirect.get_ref())
        };
        if !is_same(&config, &self.config) {
            self.journal.note("`listen`, `key` and `redirect` change only when the controller starts again");
        }
        let former = self.config.keys();
        (self.config.units, self.config.vehicles) = (config.units, config.vehicles);
        let keys = self.config.keys();
        let counts = json!({ "units": self.config.units.len(), "vehicles": self.config.vehicles.len() });
        self.journal.write_event("configuration", counts);
        for (key, peer) in former {
            if keys.get(&key) != Some(&peer) {
                self.disconnect(peer, "it is no longer in the controller's configuration with this key");
            }
        }
        self.use_configuration();
    }

    fn disconnect(&mut self, peer: Peer, reason: &str) {
        if let Some(connection) = self.by_peer.remove(&peer).and_then(|id| self.connections.remove(&id)) {
            connection.outbox.send(Announcement::Refused { reason: reason.into() });
            self.engine.handle(self.clock.now(), Input::Disconnected(peer));
            self.connection_event("disconnected", peer, &connection.address, reason);
        }
    }

    /// Processes what the server has passed on.
    pub(super) fn receive(&mut self) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for message in arrived.drain(..) {
            match message {
                FromPeer::Hello { id, peer, role, address, announcements } => {
                    self.connected(id, peer, role, address.to_string(), announcements);
                }
                FromPeer::Reports { id, reports } => {
                    let Some(Peer::Unit(unit)) = self.connections.get(&id).map(|of| of.peer) else { continue };
                    let now = self.clock.now();
                    for report in reports {
                        self.engine.handle(now, Input::Report { unit, report });
                    }
                }
                FromPeer::Gone { id, fault } => {
                    let Some(connection) = self.connections.remove(&id) else { continue };
                    self.by_peer.remove(&connection.peer);
                    self.engine.handle(self.clock.now(), Input::Disconnected(connection.peer));
                    self.connection_event("disconnected", connection.peer, &connection.address, &fault.to_string());
                }
                FromPeer::Rejected { address, reason } => {
                    self.journal.rejected(&format!("while serving a peer at {address}: {reason}"));
                }
            }
        }
        self.arrived = arrived;
    }

    fn connected(&mut self, id: Id, peer: Peer, role: Role, address: String, outbox: Outbox) {
        if let Err(difference) = self.engine.directory().admit(peer, &role) {
            self.contradicting += 1;
            self.journal.rejected(&format!("while serving {} at {address}: {difference}", self.name(peer)));
            outbox.send(Announcement::Refused { reason: difference });
            return;
        }
        // A peer that lost its connection is back before the silence is noticed.
        self.disconnect(peer, "another connection with this key replaced it; give each unit and vehicle its own key");
        self.connection_event("connected", peer, &address, "its key is in the configuration");
        self.connections.insert(id, Connection { peer, address, outbox });
        self.by_peer.insert(peer, id);
        self.engine.handle(self.clock.now(), Input::Connected(peer));
    }

    fn connection_event(&mut self, event: &str, peer: Peer, address: &str, reason: &str) {
        let (kind, station) = match peer {
            Peer::Unit(station) => ("unit", station),
            Peer::Vehicle(station) => ("vehicle", station),
        };
        let name = self.name(peer).to_owned();
        let fields = json!({ kind: name, "station": station, "peer": address, "reason": reason });
        self.journal.write_event(event, fields);
    }

    fn name(&self, peer: Peer) -> &str {
        self.names.get(&peer).map_or("a former one", String::as_str)
    }

    /// Takes an outcome of the redirector.
    pub(super) fn redirected(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Led { home, unit } => self.answered(home, unit.as_deref(), None),
            Outcome::Failed { home, fault } => self.answered(home, None, Some(fault.to_string())),
            Outcome::Lost(fault) => {
                self.redirector_answers = false;
                self.journal.fault(&fault);
            }
            Outcome::Ready => {
                self.redirector_answers = true;
                self.journal.note("the redirector is ready");
            }
        }
    }

    fn answered(&mut self, home: Ipv4Addr, unit: Option<&str>, fault: Option<String>) {
        let Some(&vehicle) = self.homes.get(&home) else { return };
        let units = &self.engine.directory().units;
        let station = unit.and_then(|name| units.iter().find(|unit| unit.name == name)).map(|unit| unit.station);
        let unit = match fault {
            // A failure names no unit; one request is open.
            Some(_) => self.engine.requested(vehicle).unwrap_or(station),
            None => station,
        };
        self.engine.handle(self.clock.now(), Input::Redirected { vehicle, unit, fault });
    }

    /// Carries out the engine's outputs.
    pub(super) fn act(&mut self) {
        while let Some(output) = self.engine.poll(self.clock.now()) {
            match output {
                Output::Redirect { home, unit, .. } => {
                    let units = &self.engine.directory().units;
                    let unit = unit.and_then(|station| units.iter().find(|unit| unit.station == station));
                    let place = unit.map(|unit| UnitPlace { name: unit.name.clone(), next_hop: unit.next_hop });
                    self.redirector.lead(home, place.as_ref());
                }
                Output::Announce { to, announcement } => {
                    let connection = self.by_peer.get(&to).and_then(|id| self.connections.get(id));
                    if connection.is_some_and(|connection| !connection.outbox.send(announcement)) {
                        self.disconnect(to, "it reads announcements too slowly");
                    }
                }
                Output::Event(event) => self.event(&event),
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let unit = |unit: &Option<u32>| unit.map(|unit| self.name(Peer::Unit(unit)).to_owned());
        let name = |vehicle: &u32| self.name(Peer::Vehicle(*vehicle)).to_owned();
        let (event, fields) = match event {
            Event::Decided { vehicle, from, to, reason } => {
                let inputs: serde_json::Map<_, _> =
                    reason.inputs.iter().map(|(key, of)| ((*key).into(), json!(of))).collect();
                let (from, to) = (unit(from), unit(to));
                let fields = json!({ "vehicle": name(vehicle), "from": from, "to": to, "rule": reason.rule, "reason": reason.text(),
                                     "inputs": inputs });
                ("redirect", fields)
            }
            Event::Confirmed { vehicle, unit: of, after } => {
                let after_ms = after.as_secs_f64() * 1e3;
                ("redirected", json!({ "vehicle": name(vehicle), "unit": unit(of), "after_ms": after_ms }))
            }
            Event::Failed { vehicle, unit: of, cause } => {
                let fields = json!({ "vehicle": name(vehicle), "unit": unit(of), "rule": "redirect", "reason": cause });
                ("fault", fields)
            }
        };
        self.journal.write_event(event, fields);
    }

    /// A note to the user.
    pub(super) fn note(&mut self, sentence: &str) {
        self.journal.note(sentence);
        output::message(sentence);
    }

    pub(super) fn check(&mut self) {
        self.redirector.restore();
        self.journal.report_suppressed(false);
    }

    /// Writes the last events. Routes and flows stay, so that traffic does.
    pub(super) fn finish(&mut self) {
        let refused = self.refused();
        self.journal.write_event("refused", json!(refused));
        self.journal.finish_controller();
    }

    fn refused(&self) -> Refused {
        let counts = self.server.counts();
        let count = |count: &AtomicU64| count.load(Relaxed);
        Refused {
            limited: count(&counts.limited),
            forged: count(&counts.forged),
            unknown_key: count(&counts.unknown_key),
            version: count(&counts.version),
            contradicting: self.contradicting,
            malformed: count(&counts.malformed),
            reports: self.engine.ignored(),
        }
    }

    pub(super) fn status(&self) -> Status {
        let now = self.clock.now();
        let mut serves: BTreeMap<u32, usize> = BTreeMap::new();
        let unit_name = |unit: u32| self.name(Peer::Unit(unit)).to_owned();
        let mut vehicles = Vec::new();
        for (station, vehicle) in self.engine.vehicles() {
            let serving = vehicle.serving();
            serving.iter().for_each(|(unit, _)| *serves.entry(*unit).or_default() += 1);
            let sight = |(unit, sight): (u32, &crosslane_core::roadside::controller::Sight)| SightStatus {
                unit: unit_name(unit),
                ago_s: now.since(sight.at).as_secs_f64(),
                rssi_dbm: sight.rssi_dbm,
                position_deg: sight.position.map(|at| (at.latitude_deg, at.longitude_deg)),
                has_tunnel: sight.has_tunnel,
                carries: sight.carries,
            };
            vehicles.push(VehicleStatus {
                name: self.name(Peer::Vehicle(station)).to_owned(),
                station,
                home: vehicle.home().to_string(),
                connected: self.by_peer.contains_key(&Peer::Vehicle(station)),
                serving: serving.map(|(unit, _)| unit_name(unit)),
                serving_s: serving.map(|(_, since)| now.since(since).as_secs_f64()),
                units: vehicle.sights().map(sight).collect(),
            });
        }
        let unit = |name: &str, station: u32| {
            let connection = self.by_peer.get(&Peer::Unit(station)).and_then(|id| self.connections.get(id));
            let peer = connection.map(|connection| connection.address.clone());
            let serves = serves.get(&station).copied().unwrap_or(0);
            UnitStatus { name: name.into(), station, connected: peer.is_some(), peer, serves }
        };
        Status {
            listen: self.server.address.to_string(),
            public_key: self.public_key.to_string(),
            up_s: now.as_secs_f64(),
            redirect: match self.config.redirect.get_ref() {
                Redirect::Routes => "routes".into(),
                Redirect::OpenFlow => "openflow".into(),
            },
            redirector_answers: self.redirector_answers,
            units: self.engine.directory().units.iter().map(|of| unit(&of.name, of.station)).collect(),
            vehicles,
            refused: self.refused(),
        }
    }
}
