//! Requests at the control socket: demands of senders, and the tunnel's status and mode.

use crosslane_core::agent::Input;

use super::Driver;
use crate::control::server::{TunnelRequest, Update};
use crate::control::status::Tunnels;
use crate::error::Error;

impl Driver {
    /// Acknowledged bytes are considered at the next poll of the transport.
    pub(super) fn control(&mut self, update: &Update) {
        update.faults.iter().for_each(|fault| self.journal.fault(fault));
        if update.demand_changed {
            self.pass_demand();
        }
        update.requests.iter().for_each(|request| self.answer(request));
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
