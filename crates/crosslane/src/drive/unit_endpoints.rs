//! Roadside units in slots, for the kernel's path manager: what an agent does with its paths,
//! with interfaces and endpoints. An interface is up, and its address an endpoint, while its
//! unit has a slot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::mptcp::AddressId;
use crosslane_core::path::PathId;
use crosslane_core::reason::Reason;
use crosslane_core::roadside::connection_manager::{Cam, ConnectionManager, Input, Output, Params, Station};
use crosslane_core::time::Instant;
use crosslane_sim::scenario::{Base, Mode, Scenario, Strategy};
use crosslane_sim::simulation::SlotChange;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::endpoints::{Endpoint, EndpointSocket};
use crate::run_folder::events::RunEvent;
use crate::testbed::{Testbed, vehicle_address};

/// Longest time until an order to stop is obeyed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// True if the kernel's path manager uses units in slots.
pub fn are_used(scenario: &Scenario, strategy: &Strategy) -> bool {
    !scenario.slotted_paths().is_empty() && matches!(strategy.base, Base::Kernel | Base::KernelTuned)
}

/// Sets the interfaces of all units in slots down.
///
/// # Errors
/// The kernel rejects it.
pub fn prepare(scenario: &Scenario, testbed: &Testbed) -> Result<()> {
    let slotted = scenario.slotted_paths();
    let paths = scenario.paths().into_iter().filter(|path| slotted.contains(path.name));
    paths.into_iter().try_for_each(|path| testbed.set_up(usize::from(path.id.0), false))
}

/// Follows the CAMs that the vehicle receives until the run is stopped, from a thread in the
/// vehicle's namespace; returns the changes.
///
/// # Errors
/// The kernel rejects a change.
pub fn apply(
    scenario: &Scenario,
    testbed: &Testbed,
    clock: Clock,
    cams: &Receiver<Cam>,
    stop: &AtomicBool,
) -> Result<Vec<(Instant, RunEvent)>> {
    let mut events = Vec::new();
    let Some((radio, slots)) =
        scenario.radios.iter().find_map(|radio| Some((radio, radio.slots.filter(|_| radio.tunnel.is_none())?)))
    else {
        return Ok(events);
    };
    let paths: BTreeMap<u32, PathId> =
        scenario.units_of(radio).filter_map(|unit| Some((unit.station_id, scenario.path_id(&unit.name)?))).collect();
    let mut manager = ConnectionManager::new(Params { slots, ..Params::default() });
    let directory = scenario.units_of(radio).map(|unit| Station { id: unit.station_id, name: unit.name.clone() });
    manager.handle(clock.now(), Input::Directory(directory.collect()));
    let mut endpoints = Endpoints { scenario, testbed, socket: EndpointSocket::open().map_err(Error::reported)? };
    while !stop.load(Ordering::Relaxed) {
        let due = manager.next_wakeup().map_or(POLL_INTERVAL, |at| at.since(clock.now()));
        if let Ok(cam) = cams.recv_timeout(due.min(POLL_INTERVAL)) {
            manager.handle(clock.now(), Input::Cam(cam));
        }
        while let Some(output) = manager.poll(clock.now()) {
            let Some((opened, slot, station, reason)) = change(output) else { continue };
            let Some(&path) = paths.get(&station) else { continue };
            endpoints.change(path, opened)?;
            events.push((clock.now(), RunEvent::Slot(SlotChange { path, station, slot, opened, reason })));
        }
    }
    Ok(events)
}

/// A change of a slot; the kernel's path manager does not ask whether a unit answers.
fn change(output: Output) -> Option<(bool, u8, u32, Reason)> {
    match output {
        Output::Open { slot, station, reason } => Some((true, slot, station, reason)),
        Output::Close { slot, station, reason } => Some((false, slot, station, reason)),
        Output::Probe { .. } | Output::Answers { .. } => None,
    }
}

struct Endpoints<'a> {
    scenario: &'a Scenario,
    testbed: &'a Testbed,
    socket: EndpointSocket,
}

impl Endpoints<'_> {
    /// The kernel opens the subflows of an endpoint that is added, and closes those of one that is removed.
    fn change(&mut self, path: PathId, opened: bool) -> Result<()> {
        let (place, id) = (usize::from(path.0), AddressId(path.0 + 1));
        if !opened {
            self.socket.remove(id).map_err(Error::reported)?;
            return self.testbed.set_up(place, false);
        }
        self.testbed.set_up(place, true)?;
        let backup = self.scenario.service.mode != Mode::Aggregate && path != self.scenario.preferred_path();
        let endpoint = Endpoint { id: Some(id), backup, ..Endpoint::subflow(vehicle_address(place).into()) };
        self.socket.add(&endpoint).map_err(Error::reported)
    }
}
