//! Control of the vehicle's paths: none, the kernel's path manager, or an agent.
//! The agent is that of `core`, driven as `crosslane agent` drives it.

use std::collections::BTreeSet;

use crosslane_core::actuator::{Command, Event as ActuatorEvent};
use crosslane_core::agent::{Input, Output};
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::{self, Event, RESET_AFTER, Refusal};
use crosslane_core::path::{PathId, Sample, SampleKind};
use crosslane_core::time::Instant;

use super::agent_driver::AgentDriver;
use super::recording::Windows;
use super::slots::{SlotChange, SlotOutput, Slots};
use crate::record::rows::WindowRow;
use crate::transport::{Endpoint, KernelPathManager};

pub(super) struct PathControl {
    controller: Controller,
    slots: Slots,
}

pub(super) enum Controller {
    /// Plain TCP: there are no paths to manage.
    None,
    Kernel(KernelPathManager),
    Agent(AgentDriver),
}

/// What was applied to the vehicle.
pub(super) enum Applied {
    /// An output of the agent; its paths are those of the scenario.
    Agent(Output),
    /// A change of a slot.
    Slot(SlotChange),
    /// Something that is not recorded.
    Nothing,
    /// A probe with this UDP payload, in bytes, is to be sent to the unit of this path.
    Probe(PathId, u16),
}

impl PathControl {
    pub(super) fn new(controller: Controller, slots: Slots) -> PathControl {
        PathControl { controller, slots }
    }

    fn driver(&self) -> Option<&AgentDriver> {
        if let Controller::Agent(driver) = &self.controller { Some(driver) } else { None }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.driver().and_then(|driver| driver.due).into_iter().chain(self.slots.next_wakeup()).min()
    }

    /// True if it needs the statistics of subflows.
    pub(super) fn queries_subflows(&self) -> bool {
        self.driver().is_some_and(|driver| driver.queries_subflows)
    }

    /// When the agent wants to query its subflows, if before the regular time.
    pub(super) fn query_at(&self, regular: Instant) -> Instant {
        self.driver().and_then(|driver| driver.query_at).map_or(regular, |at| at.min(regular))
    }

    /// Whether packets can take a path.
    pub(super) fn stands(&self, path: PathId) -> bool {
        self.slots.stands(path)
    }

    /// The path on which an agent lets new connections begin, if it has chosen one.
    pub(super) fn first_path(&self) -> Option<PathId> {
        let driver = self.driver()?;
        driver.agent.first_path(None, &[]).map(|path| driver.of_scenario(path))
    }

    /// This path if packets can take it, else the most preferred one that they can take.
    pub(super) fn standing(&self, now: Instant, path: PathId, tried: &BTreeSet<PathId>) -> Option<PathId> {
        self.slots.standing(now, path, tried)
    }

    /// Whether a path stands only while its unit has a slot.
    pub(super) fn is_slotted(&self, path: PathId) -> bool {
        self.slots.is_slotted(path)
    }

    /// Processes an observation; its path is one of the scenario. Without an agent only signals matter, to the slots.
    pub(super) fn observe(&mut self, now: Instant, input: Input) {
        let Input::Sample(Sample { path, kind }) = input else { return self.handle(now, input) };
        let in_slots = match kind {
            SampleKind::Signal(signal) => self.slots.on_signal(now, path, signal),
            _ => None,
        };
        let Controller::Agent(driver) = &mut self.controller else { return };
        match in_slots {
            Some(sample) => sample.into_iter().for_each(|sample| driver.handle(now, sample.into())),
            None => driver.observe(now, path, kind),
        }
    }

    /// Passes an input that names no path to the agent, if there is one.
    pub(super) fn handle(&mut self, now: Instant, input: Input) {
        if let Controller::Agent(driver) = &mut self.controller {
            driver.handle(now, input);
        }
    }

    pub(super) fn observe_transport(&mut self, now: Instant, vehicle: &Endpoint) {
        let Controller::Agent(driver) = &mut self.controller else { return };
        driver.on_query(now);
        for info in vehicle.subflows() {
            driver.observe(now, info.path, SampleKind::Transport(info.transport));
            let path = driver.of_agent(info.path);
            path.into_iter().for_each(|path| self.slots.on_subflow(now, path, &info.transport));
        }
    }

    /// Passes what the tunnel has measured of its paths.
    pub(super) fn observe_tunnel(&mut self, now: Instant, samples: impl Iterator<Item = Sample>) {
        let Controller::Agent(driver) = &mut self.controller else { return };
        driver.on_query(now);
        samples.for_each(|Sample { path, kind }| driver.observe(now, path, kind));
    }

    /// The unit of a path answered a probe.
    pub(super) fn on_answer(&mut self, now: Instant, path: PathId) {
        self.slots.on_answer(now, path);
    }

    /// The server answered an echo request over a path.
    pub(super) fn on_echo(&mut self, now: Instant, path: PathId, number: u16) {
        let Controller::Agent(driver) = &mut self.controller else { return };
        if let Some(path) = driver.of_agent(path) {
            driver.handle(now, Input::EchoAnswer(path, number));
        }
    }

    pub(super) fn has_agent(&self) -> bool {
        self.driver().is_some()
    }

    /// Ends a window of the agent's paths; none without an agent.
    pub(super) fn windows(&self, now: Instant, windows: &mut Windows, delivered_bytes: u64) -> Vec<WindowRow> {
        let rows = |driver: &AgentDriver| windows.note(now, driver, delivered_bytes);
        self.driver().map(rows).unwrap_or_default()
    }

    /// Limit of the bytes that the sender has written and not acknowledged, if any.
    pub(super) fn backlog_bytes(&self) -> Option<u64> {
        self.driver()?.agent.backlog_bytes()
    }

    pub(super) fn on_event(&mut self, now: Instant, event: &Event, vehicle: &mut Endpoint) {
        match &mut self.controller {
            Controller::None => {}
            Controller::Kernel(manager) => {
                for command in manager.on_event(event) {
                    vehicle.command(now, &command);
                }
            }
            Controller::Agent(driver) => driver.handle(now, ActuatorEvent::Mptcp(*event).into()),
        }
    }

    /// Applies the agent's next output, or else the next change of a slot. A command to the
    /// path manager is applied to the vehicle's connection.
    pub(super) fn apply_next(&mut self, now: Instant, vehicle: &mut Endpoint) -> Option<Applied> {
        if let Some(output) = self.apply_output(now, vehicle) {
            return Some(Applied::Agent(output));
        }
        match self.slots.poll(now)? {
            SlotOutput::Change(change) => {
                self.change_slot(now, &change, vehicle);
                Some(Applied::Slot(change))
            }
            SlotOutput::Probe(path, bytes) if self.driver().is_some() => Some(Applied::Probe(path, bytes)),
            SlotOutput::Probe(..) => Some(Applied::Nothing),
            SlotOutput::Sample(sample) => {
                if let Controller::Agent(driver) = &mut self.controller {
                    sample.into_iter().for_each(|sample| driver.handle(now, sample.into()));
                }
                Some(Applied::Nothing)
            }
        }
    }

    fn apply_output(&mut self, now: Instant, vehicle: &mut Endpoint) -> Option<Output> {
        let Controller::Agent(driver) = &mut self.controller else { return None };
        driver.due.filter(|due| *due <= now)?;
        let Some(output) = driver.agent.poll(now) else {
            driver.schedule();
            return None;
        };
        match &output {
            Output::Command(Command::Mptcp(_, command)) if !vehicle.command(now, command) => {
                let is_new = matches!(command, mptcp::Command::CreateSubflow { .. });
                let why = if is_new { Refusal::Other(0) } else { Refusal::UnknownSubflow };
                driver.handle(now, ActuatorEvent::Refused(*command, why).into());
            }
            Output::Command(Command::Mptcp(_, mptcp::Command::DestroySubflow { local, .. })) => {
                vehicle.reset_at(now + RESET_AFTER, *local);
            }
            Output::Belief { path, belief, .. } => self.slots.on_belief(now, *path, *belief),
            _ => {}
        }
        Some(driver.in_scenario(output))
    }

    fn change_slot(&mut self, now: Instant, change: &SlotChange, vehicle: &mut Endpoint) {
        match &mut self.controller {
            Controller::None => {}
            Controller::Kernel(manager) => {
                let commands = manager.set_endpoint(change.path, change.opened, vehicle.subflows());
                for command in commands {
                    vehicle.command(now, &command);
                }
            }
            Controller::Agent(driver) if change.opened => {
                if let Some(path) = driver.add(now, change.path) {
                    let first = self.slots.add(change, path);
                    let up = Sample { path, kind: SampleKind::Link { up: true } };
                    [up].into_iter().chain(first).for_each(|sample| driver.handle(now, sample.into()));
                }
            }
            Controller::Agent(driver) => {
                if let Some(path) = self.slots.remove(change) {
                    driver.remove(now, path);
                }
            }
        }
    }
}
