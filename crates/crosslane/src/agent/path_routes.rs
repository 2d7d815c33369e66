//! Source routing for the configured paths: a rule and a table for each.

use std::future::pending;
use std::time::Duration;

use crosslane_core::time::Instant;

use super::Driver;
use crate::control::running_agent;
use crate::error::{Error, Result};
use crate::netlink::path_routes::{self, RoutedPath};
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
    /// Why they could not be set last.
    fault: Option<String>,
}

impl PathRoutes {
    /// Opens the sockets; nothing is set yet.
    ///
    /// # Errors
    /// The kernel can open no netlink socket.
    pub fn open(is_on: bool) -> Result<PathRoutes> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting to set routes of paths", cause);
        let events = path_routes::events().map_err(|cause| starting(&cause))?;
        let events = events.into_stream().map_err(|cause| starting(&cause))?;
        Ok(PathRoutes { wiring: Wiring::open()?, events, is_on, due: Some(Instant::ZERO), last: None, fault: None })
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

    pub fn next_wakeup(&self) -> Option<Instant> {
        self.due
    }

    /// Why they could not be set.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Sets them; returns a new fault.
    fn set(&mut self, now: Instant, paths: &[RoutedPath]) -> Option<String> {
        (self.due, self.last) = (None, Some(now));
        let paths = if self.is_on { paths } else { &[] };
        let fault = self.wiring.set_path_routes(paths).err().map(|fault| {
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
            let note =
                format!("the agent {pid} of this network namespace sets rules and routes of paths, this one none");
            self.journal.note(&note);
            return Ok(());
        }
        self.path_routes = Some(PathRoutes::open(self.config.service.routes)?);
        self.set_path_routes();
        Ok(())
    }

    /// Links, addresses or routes changed.
    pub(super) fn routes_changed(&mut self) {
        let now = self.clock.now();
        self.path_routes.iter_mut().for_each(|routes| routes.set_soon(now));
    }

    /// Sets the rules and routes of the configured paths if it is time; an agent within another program sets none.
    pub(super) fn set_path_routes(&mut self) {
        let now = self.clock.now();
        let Some(routes) = self.path_routes.as_mut().filter(|routes| routes.due.is_some_and(|due| due <= now)) else {
            return;
        };
        let paths = self.interfaces.routed(self.config.paths.len());
        if let Some(fault) = routes.set(now, &paths) {
            self.note_to_user(&fault);
        }
    }

    /// Removes them.
    pub(super) fn finish_path_routes(&mut self) {
        let Some(mut routes) = self.path_routes.take() else { return };
        if let Err(fault) = routes.wiring.set_path_routes(&[]) {
            self.journal.fault(&fault);
        }
    }
}
