//! Requests at the control socket: demands of senders, and the tunnel's status and mode. Views of the page's clients.

use crosslane_core::agent::{Input, PathView};
use crosslane_core::time::Duration;

use super::Driver;
use crate::clock::processor_time;
use crate::control::protocol::AgentRequest;
use crate::control::report::Report;
use crate::control::server::{TunnelRequest, Update};
use crate::control::status::Tunnels;
use crate::error::{Error, Result};
use crate::http::View;

impl Driver {
    /// Acknowledged bytes are considered at the next poll of the transport.
    pub(super) fn control(&mut self, update: &Update) {
        update.faults.iter().for_each(|fault| self.journal.fault(fault));
        if update.demand_changed {
            self.pass_demand();
        }
        let began = processor_time();
        update.requests.iter().for_each(|request| self.answer(request));
        for question in &update.questions {
            let report = self.report(&question.request);
            self.control.answer_agent(question, report);
        }
        self.note_answer(began);
    }

    fn note_answer(&mut self, began: Duration) {
        self.longest_answer = self.longest_answer.max(processor_time().saturating_sub(began));
    }

    /// An agent in another program is that program's.
    pub(super) fn listen_as_agent(&mut self) {
        if self.file.is_some()
            && let Err(fault) = self.control.listen_as_agent()
        {
            self.journal.fault(&fault);
        }
    }

    /// Sends a client of the page what it views. The client may have gone.
    pub(super) fn view(&mut self, view: View) {
        let began = processor_time();
        match view {
            View::Status(to) => drop(to.send(self.agent_status())),
            View::Connections(after, to) => drop(to.send(self.connection_page(after))),
            View::Signals(to) => {
                let now = self.clock.now();
                let of = |path: PathView| (path.name.to_owned(), self.signals.of(now, path.id));
                drop(to.send(self.engine.views().map(of).collect()));
            }
        }
        self.note_answer(began);
    }

    fn report(&mut self, request: &AgentRequest) -> Result<Report> {
        Ok(match request {
            AgentRequest::Status => Report::Status(Box::new(self.agent_status())),
            AgentRequest::Connections { after } => Report::Connections(self.connection_page(*after)),
            AgentRequest::Explain(what) => Report::Explanation(self.explain(what)?),
            AgentRequest::Prefer { path, for_s } => Report::Done(self.prefer(path.as_deref(), *for_s)?),
            AgentRequest::Mode(mode) => Report::Done(self.use_mode(*mode)?),
            AgentRequest::Reload => Report::Done(self.reload()?),
        })
    }

    fn answer(&mut self, request: &TunnelRequest) {
        let now = self.clock.now();
        let units = self.roadside.as_ref().map(|roadside| roadside.status(now, &self.counters.bytes()));
        let Some(tunnel) = &self.tunnel else {
            if let (Some(units), None) = (units, request.mode) {
                return self.control.answer(request, Ok(Tunnels { tunnel: None, units }));
            }
            let rejection = Error::usage("requesting from the agent", "it has no tunnel", "query another agent");
            return self.control.answer(request, Err(rejection));
        };
        let used = request.mode.map(|mode| Ok((mode, tunnel.data_plane.use_mode(mode)?))).transpose();
        if let Ok(Some((mode, previous))) = used
            && mode != previous
        {
            self.journal.tunnel_mode(mode, previous);
        }
        let units = units.unwrap_or_default();
        let status = used.map(|_| Tunnels { tunnel: Some(tunnel.status()), units });
        self.control.answer(request, status);
    }

    pub(super) fn pass_demand(&mut self) {
        if let Some(demand) = self.control.demand() {
            self.handle(Input::Demand(demand));
        }
    }
}
