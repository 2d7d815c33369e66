//! The vehicle's own CAMs: when one is due, it goes to the on-board unit, which encodes and
//! transmits it.

use std::net::SocketAddr;

use crosslane_core::agent;
use crosslane_core::engine::Engine;
use crosslane_core::path::VehicleState;
use crosslane_core::roadside::cam_generation::{CamGeneration, Input};
use crosslane_core::time::Instant;
use toml::Spanned;

use super::Driver;
use crate::observe::Fix;

pub mod message;
mod publisher;

use publisher::{Notes, Publisher};

/// The generation rules, and the connection to the on-board unit's MQTT broker.
pub struct OwnCams {
    generation: CamGeneration,
    fix: Fix,
    station_type: u8,
    publisher: Publisher,
}

impl OwnCams {
    fn new(broker: SocketAddr, station_type: u8, now: Instant) -> (OwnCams, Notes) {
        let (publisher, notes) = Publisher::connect(broker);
        let fix = Fix { state: VehicleState::default(), unix_ms: None };
        (OwnCams { generation: CamGeneration::new(now), fix, station_type, publisher }, notes)
    }

    /// When the next check is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.generation.next_wakeup()
    }

    fn on_fix(&mut self, fix: Fix) {
        self.fix = fix;
    }

    /// Checks whether a CAM is due, and sends it. Without a broker none is.
    fn send_due(&mut self, now: Instant) {
        let state = if self.publisher.is_connected() { self.fix.state } else { VehicleState::default() };
        self.generation.handle(now, Input::State(state));
        if let Some(due) = self.generation.poll(now)
            && let Some(message) = message::cam(&self.fix, self.station_type, due.low_frequency)
        {
            self.publisher.publish(&message);
        }
    }
}

impl Driver {
    /// Starts sending CAMs, if the configuration asks for it.
    pub(super) fn start_own_cams(&mut self) {
        let Some(section) = self.config.cam.as_ref().map(Spanned::get_ref) else { return };
        let (broker, station_type) = (*section.broker.get_ref(), *section.station_type.get_ref());
        let (own_cams, notes) = OwnCams::new(broker, station_type, self.clock.now());
        self.own_cams = Some(own_cams);
        self.observers.push(Box::new(notes));
    }

    /// The engine receives what is known, for strategies that use it.
    pub(super) fn on_fix(&mut self, fix: Fix) {
        self.handle(agent::Input::Vehicle(fix.state));
        self.own_cams.iter_mut().for_each(|own_cams| own_cams.on_fix(fix));
    }

    pub(super) fn send_own_cams(&mut self) {
        let now = self.clock.now();
        let due = |own_cams: &&mut OwnCams| own_cams.next_wakeup().is_some_and(|at| at <= now);
        self.own_cams.iter_mut().filter(due).for_each(|own_cams| own_cams.send_due(now));
    }
}
