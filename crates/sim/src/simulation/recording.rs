//! What a run records at regular times: the subflows, and the windows that a tree learns from.

use std::net::SocketAddr;

use crosslane_core::allocate::learned::features::Meter;
use crosslane_core::allocate::learned::window_end;
use crosslane_core::time::{Duration, Instant};

use super::Simulation;
use super::agent_driver::AgentDriver;
use super::transfer::Transfer;
use crate::addresses::vehicle_address;
use crate::record::rows::{TcpInfoRow, WindowRow};

/// Period of the `tcp_info` record.
const RECORD_PERIOD: Duration = Duration::from_millis(50);

impl Simulation {
    /// Records what is due.
    pub(super) fn record(&mut self) {
        if self.records_subflows() && self.record_at <= self.now {
            self.record_at = self.now + RECORD_PERIOD;
            self.record_subflows();
        }
        if self.records_windows() && self.windows.end() <= self.now {
            let delivered_bytes = self.traffic.delivered((&self.vehicle, &self.server));
            let rows = self.path_control.windows(self.now, &mut self.windows, delivered_bytes);
            self.recording.windows.extend(rows);
        }
    }

    /// Without an agent, no tree is asked.
    pub(super) fn records_windows(&self) -> bool {
        self.detail.windows && self.path_control.has_agent()
    }

    /// A connection inside the tunnel has no path.
    pub(super) fn records_subflows(&self) -> bool {
        self.detail.tcp_info && self.tunnel.is_none()
    }

    fn record_subflows(&mut self) {
        let t_ns = self.now.as_nanos();
        let of_transfer = self.transfer.iter().flat_map(Transfer::subflows);
        let rows = self.vehicle.subflows().chain(of_transfer).map(|subflow| {
            let local = SocketAddr::from((vehicle_address(usize::from(subflow.path.0)), subflow.port));
            TcpInfoRow::new(t_ns, subflow.path, Some(subflow.number), local, &subflow.transport)
        });
        self.recording.tcp_info.extend(rows);
    }
}

/// What the agent's strategy may see of each path, window by window, measured as the strategies `smartps` and
/// `learned` do.
#[derive(Debug, Default)]
pub(super) struct Windows {
    end: Instant,
    meters: Vec<Meter>,
}

impl Windows {
    /// End of the present window.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Ends the present window: a row for each path of the agent; `delivered_bytes` is what the traffic has
    /// delivered since the start.
    pub(super) fn note(&mut self, now: Instant, driver: &AgentDriver, delivered_bytes: u64) -> Vec<WindowRow> {
        self.end = window_end(now);
        let views = driver.agent.views().map(|view| {
            let place = usize::from(view.id.0);
            self.meters.resize_with(self.meters.len().max(place + 1), Meter::default);
            let values = self.meters[place].end_window(now, view.latest);
            WindowRow { t_ns: now.as_nanos(), path: driver.of_scenario(view.id), values, delivered_bytes }
        });
        views.collect()
    }
}
