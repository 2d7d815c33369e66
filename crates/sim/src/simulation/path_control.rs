//! Who manages the vehicle's paths: nobody, the kernel, or an agent. The agent
//! is the one of `core`, fed as the driver of `crosslane agent` feeds it.

use crosslane_core::agent::{Agent, Input, Output};
use crosslane_core::demand::Demand;
use crosslane_core::engine::Engine;
use crosslane_core::mptcp::{Event, Refusal, Token};
use crosslane_core::path::{PathId, PathState, Sample, SampleKind, Transport};
use crosslane_core::time::Instant;

use crate::transport::{Endpoint, KernelPathManager, SERVER_ADDRESS};

pub(super) enum PathControl {
    /// Plain TCP has no paths to manage.
    None,
    Kernel(KernelPathManager),
    Agent(AgentDriver),
}

/// An agent, and what it said when it was last asked.
pub(super) struct AgentDriver {
    agent: Box<Agent>,
    due: Option<Instant>,
    watches: bool,
}

impl AgentDriver {
    /// It has to be asked again at once.
    fn handle(&mut self, now: Instant, input: Input) {
        self.agent.handle(now, input);
        self.due = Some(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let output = self.agent.poll(now);
        if output.is_none() {
            self.due = self.agent.next_wakeup();
            self.watches = self.agent.manager().subflows().next().is_some();
        }
        output
    }
}

impl PathControl {
    /// An agent that finds the interfaces of all paths up.
    pub(super) fn with_agent(agent: Agent, paths: usize) -> PathControl {
        let mut fed = AgentDriver { agent: Box::new(agent), due: None, watches: false };
        for path in (0..paths).map(|place| PathId(place as u8)) {
            fed.handle(Instant::ZERO, Input::Sample(Sample { path, kind: SampleKind::Link { up: true } }));
        }
        PathControl::Agent(fed)
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            PathControl::Agent(fed) => fed.due,
            PathControl::None | PathControl::Kernel(_) => None,
        }
    }

    /// True if it wants to know how subflows fare.
    pub(super) fn watches(&self) -> bool {
        match self {
            PathControl::Agent(fed) => fed.watches,
            PathControl::None | PathControl::Kernel(_) => false,
        }
    }

    /// Token of the connection, where it is MPTCP.
    pub(super) fn token(&self) -> Option<Token> {
        (!matches!(self, PathControl::None)).then_some(Token(1))
    }

    pub(super) fn observe(&mut self, now: Instant, sample: Sample) {
        if let PathControl::Agent(fed) = self {
            fed.handle(now, Input::Sample(sample));
        }
    }

    pub(super) fn observe_transport(&mut self, now: Instant, vehicle: &Endpoint) {
        let PathControl::Agent(fed) = self else { return };
        for info in vehicle.subflows() {
            let transport = Transport {
                token: 1,
                peer: SERVER_ADDRESS,
                accepted: false,
                backup: info.backup,
                rtt: info.rtt,
                rttvar: info.rttvar,
                unacked: info.unacked,
                delivered: info.delivered,
                bytes_acked: info.bytes_acked,
                notsent_bytes: info.notsent_bytes,
                bytes_received: info.bytes_received,
            };
            fed.handle(now, Input::Sample(Sample { path: info.path, kind: SampleKind::Transport(transport) }));
        }
    }

    /// What the agent wants of each path; none without an agent.
    pub(super) fn wanted(&self) -> Option<Vec<PathState>> {
        match self {
            PathControl::Agent(fed) => Some(fed.agent.paths().map(|(_, _, state)| state).collect()),
            PathControl::None | PathControl::Kernel(_) => None,
        }
    }

    pub(super) fn demand(&mut self, now: Instant, demand: Demand) {
        if let PathControl::Agent(fed) = self {
            fed.handle(now, Input::Demand(demand));
        }
    }

    /// Most bytes that the sender should have under way, if that is limited.
    pub(super) fn backlog_bytes(&self) -> Option<u64> {
        match self {
            PathControl::Agent(fed) => fed.agent.backlog_bytes(),
            PathControl::None | PathControl::Kernel(_) => None,
        }
    }

    pub(super) fn hear(&mut self, now: Instant, event: &Event, vehicle: &mut Endpoint) {
        match self {
            PathControl::None => {}
            PathControl::Kernel(manager) => {
                for command in manager.on_event(event) {
                    vehicle.command(now, &command);
                }
            }
            PathControl::Agent(fed) => fed.handle(now, Input::Mptcp(*event)),
        }
    }

    /// Carries out the next thing that the agent says, and tells it.
    pub(super) fn act(&mut self, now: Instant, vehicle: &mut Endpoint) -> Option<Output> {
        let PathControl::Agent(fed) = self else { return None };
        let output = fed.poll(now)?;
        if let Output::Command { command, .. } = &output
            && !vehicle.command(now, command)
        {
            fed.handle(now, Input::Refused(*command, Refusal::Other(0)));
        }
        Some(output)
    }
}
