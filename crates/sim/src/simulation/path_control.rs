//! Control of the vehicle's paths: none, the kernel's path manager, or an agent.
//! The agent is that of `core`, driven as `crosslane agent` drives it.

use crosslane_core::actuator::{Command, Event as ActuatorEvent};
use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::{Event, Refusal};
use crosslane_core::path::{PathId, Sample, SampleKind};
use crosslane_core::time::Instant;

use crate::transport::{Endpoint, KernelPathManager};

pub(super) enum PathControl {
    /// Plain TCP: there are no paths to manage.
    None,
    Kernel(KernelPathManager),
    Agent(AgentDriver),
}

/// An agent, and its state at the last poll.
pub(super) struct AgentDriver {
    agent: Box<Agent>,
    due: Option<Instant>,
    queries_subflows: bool,
}

impl AgentDriver {
    /// Passes an input to the agent, and schedules a poll now.
    fn handle(&mut self, now: Instant, input: Input) {
        self.agent.handle(now, input);
        self.due = Some(now);
    }
}

impl PathControl {
    /// An agent that starts with the interfaces of all paths up.
    pub(super) fn with_agent(agent: Agent, paths: usize) -> PathControl {
        let mut driver = AgentDriver { agent: Box::new(agent), due: None, queries_subflows: false };
        for path in (0..paths).map(|place| PathId(place as u8)) {
            driver.handle(Instant::ZERO, Input::Sample(Sample { path, kind: SampleKind::Link { up: true } }));
        }
        PathControl::Agent(driver)
    }

    fn driver(&self) -> Option<&AgentDriver> {
        if let PathControl::Agent(driver) = self { Some(driver) } else { None }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.driver()?.due
    }

    /// True if it needs the statistics of subflows.
    pub(super) fn queries_subflows(&self) -> bool {
        self.driver().is_some_and(|driver| driver.queries_subflows)
    }

    /// Passes an input to the agent, if there is one.
    pub(super) fn handle(&mut self, now: Instant, input: Input) {
        if let PathControl::Agent(driver) = self {
            driver.handle(now, input);
        }
    }

    pub(super) fn observe_transport(&mut self, now: Instant, vehicle: &Endpoint) {
        for info in vehicle.subflows() {
            self.handle(now, Input::Sample(Sample { path: info.path, kind: SampleKind::Transport(info.transport) }));
        }
    }

    /// Limit of the bytes that the sender has written and not acknowledged, if any.
    pub(super) fn backlog_bytes(&self) -> Option<u64> {
        self.driver()?.agent.backlog_bytes()
    }

    pub(super) fn on_event(&mut self, now: Instant, event: &Event, vehicle: &mut Endpoint) {
        match self {
            PathControl::None => {}
            PathControl::Kernel(manager) => {
                for command in manager.on_event(event) {
                    vehicle.command(now, &command);
                }
            }
            PathControl::Agent(driver) => driver.handle(now, ActuatorEvent::Mptcp(*event).into()),
        }
    }

    /// The agent's next output. A command to the path manager is applied to the
    /// vehicle's connection.
    pub(super) fn apply_next(&mut self, now: Instant, vehicle: &mut Endpoint) -> Option<Output> {
        let PathControl::Agent(driver) = self else { return None };
        driver.due.filter(|due| *due <= now)?;
        let Some(output) = driver.agent.poll(now) else {
            driver.due = driver.agent.next_wakeup();
            driver.queries_subflows = driver.agent.subflows().next().is_some();
            return None;
        };
        if let Output::Command(Command::Mptcp(_, command)) = &output
            && !vehicle.command(now, command)
        {
            driver.handle(now, ActuatorEvent::Refused(*command, Refusal::Other(0)).into());
        }
        Some(output)
    }
}
