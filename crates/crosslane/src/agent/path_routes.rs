//! Source routing for the configured paths: a rule and a table for each. Connections of programs that choose no
//! address begin on the path that the strategy prefers.

use std::future::pending;
use std::time::Duration;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;

use super::{Driver, unit_tunnel};
use crate::control::running_agent;
use crate::error::{Error, Result};
use crate::netlink::path_routes::{self, RoutedPath, Unbound};
use crate::netlink::{EventError, Stream, Wiring};

/// Shortest time between two times at which rules and routes are set, however many events there are.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// The rules and routes, and what changes them.
pub struct PathRoutes {
    wiring: Wiring,
    events: Stream<()>,
    /// Whether they are to be set; else they are only removed, at the start.
    is_on: bool,
    due: Option<Instant>,
    last: Option<Instant>,
    /// Whether the default route follows the strategy.
    follows: bool,
    /// The path on which connections begin; `None`: that of the main table.
    first: Option<PathId>,
    /// Paths over which joins or MPTCP fail: connections begin there only if no other path is good.
    avoided: Vec<PathId>,
    /// Why they could not be set last.
    fault: Option<String>,
}

impl PathRoutes {
    /// Opens the sockets; nothing is set yet.
    ///
    /// # Errors
    /// The kernel can open no netlink socket.
    pub fn open(is_on: bool, follows: bool) -> Result<PathRoutes> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting to set routes of paths", cause);
        let events = path_routes::events().map_err(|cause| starting(&cause))?;
        let events = events.into_stream().map_err(|cause| starting(&cause))?;
        let (due, follows, wiring) = (Some(Instant::ZERO), is_on && follows, Wiring::open()?);
        Ok(PathRoutes {
            wiring,
            events,
            is_on,
            due,
            last: None,
            follows,
            first: None,
            avoided: Vec::new(),
            fault: None,
        })
    }

    /// Waits for an event that requires to set them again.
    pub async fn changed(&mut self) {
        loop {
            match self.events.next().await {
                Ok(()) | Err(EventError::Overrun) => return,
                Err(EventError::Malformed(_)) => {}
                // Links and addresses still tell most of it.
                Err(EventError::Io(_)) => pending().await,
            }
        }
    }

    /// Sets them soon.
    pub fn set_soon(&mut self, now: Instant) {
        if self.is_on {
            self.due = self.due.or(Some(self.last.map_or(now, |last| now.max(last + MIN_PERIOD))));
        }
    }

    /// Why they could not be set.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Sets them; returns a new fault.
    fn set(&mut self, now: Instant, paths: &[RoutedPath], unbound: Option<&Unbound>) -> Option<String> {
        (self.due, self.last) = (None, Some(now));
        let paths = if self.is_on { paths } else { &[] };
        let fault = self.wiring.set_path_routes(paths, unbound).err().map(|fault| {
            let remedy = "give the agent CAP_NET_ADMIN, or set service.routes = false and route by other means";
            fault.with_remedy(remedy).to_string()
        });
        let was = std::mem::replace(&mut self.fault, fault);
        self.fault.clone().filter(|_| was.is_none())
    }
}

impl Driver {
    /// Begins to set them, unless another agent of this network namespace does.
    ///
    /// # Errors
    /// The kernel can open no netlink socket.
    pub(super) fn start_path_routes(&mut self) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        if let Some(pid) = running_agent::other() {
            let note = format!(
                "the agent {pid} of this network namespace sets rules and routes of paths, this one none until that one \
                 ends"
            );
            self.journal.note(&note);
            return Ok(());
        }
        self.path_routes = Some(PathRoutes::open(self.config.service.routes, self.config.service.default_route)?);
        self.set_path_routes();
        Ok(())
    }

    /// Links, addresses or routes changed.
    pub(super) fn routes_changed(&mut self) {
        let now = self.clock.now();
        self.path_routes.iter_mut().for_each(|routes| routes.set_soon(now));
    }

    /// When they are to be set next: at once if another path was chosen.
    pub(super) fn routes_wakeup(&self) -> Option<Instant> {
        let routes = self.path_routes.as_ref()?;
        let is_other = routes.due.is_none() && self.first_path() != routes.first;
        routes.due.or(is_other.then_some(Instant::ZERO))
    }

    /// The path on which connections are to begin; `None`: that of the main table.
    fn first_path(&self) -> Option<PathId> {
        let routes = self.path_routes.as_ref().filter(|routes| routes.follows)?;
        self.engine.first_path(routes.first, &routes.avoided)
    }

    /// Finds the paths over which connections should not begin, though their signal is good.
    pub(super) fn check_first_path(&mut self) {
        let Some(routes) = self.path_routes.as_mut().filter(|routes| routes.follows) else { return };
        let faults = self.engine.network_faults(self.clock.now()).into_iter();
        routes.avoided = faults.filter_map(|(path, _)| path).collect();
    }

    /// What leads packets without an address of a path over this path.
    fn unbound(&self, path: PathId) -> Option<Unbound> {
        let is_unit = usize::from(path.0) >= self.config.paths.len();
        let table = if is_unit { unit_tunnel::table_of(path) } else { path_routes::table_of(path.0) };
        let paths = self.engine.views().filter_map(|view| self.interfaces.index(view.id)).collect();
        Some(Unbound { interface: self.interfaces.index(path)?, table, paths })
    }

    /// Sets the rules and routes of the configured paths if it is time; an agent within another program sets none.
    pub(super) fn set_path_routes(&mut self) {
        let (now, first) = (self.clock.now(), self.first_path());
        let Some(routes) = &mut self.path_routes else { return };
        if routes.first != first {
            routes.first = first;
            routes.set_soon(now);
        }
        if routes.due.is_none_or(|due| due > now) {
            return;
        }
        let paths = self.interfaces.routed(self.config.paths.len());
        let unbound = first.and_then(|path| self.unbound(path));
        let fault = self.path_routes.as_mut().and_then(|routes| routes.set(now, &paths, unbound.as_ref()));
        if let Some(fault) = fault {
            self.note_to_user(&fault);
        }
    }

    /// Removes them.
    pub(super) fn finish_path_routes(&mut self) {
        let Some(mut routes) = self.path_routes.take() else { return };
        if let Err(fault) = routes.wiring.set_path_routes(&[], None) {
            self.journal.fault(&fault);
        }
    }
}
