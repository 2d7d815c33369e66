//! Records the events of each kernel and the state of the vehicle's subflows,
//! for every strategy.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::path::{PathId, Transport};
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::TcpInfoRow;
use crosslane_sim::simulation::Side;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::diag::{Diag, SocketInfo};
use crate::netlink::path_manager;
use crate::netlink::{EventError, TcpState};
use crate::run_folder::events::RunEvent;

const PERIOD: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct MonitorRecord {
    pub events: Vec<(Instant, RunEvent)>,
    pub subflows: Vec<TcpInfoRow>,
}

/// Records until `stop` is set, from a thread in the namespace of this side; `addresses` are those of
/// the vehicle's paths in the order of their ids.
pub fn monitor(side: Side, clock: Clock, addresses: &[IpAddr], stop: &AtomicBool) -> Result<MonitorRecord> {
    let mut events = path_manager::events().map_err(Error::reported)?;
    let mut diag = Diag::open().map_err(Error::reported)?;
    let mut record = MonitorRecord::default();
    let mut next_record = clock.now();
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if now >= next_record {
            next_record = now + PERIOD;
            if side == Side::Vehicle {
                let sockets = diag.sockets().unwrap_or_default();
                let open = sockets.iter().filter(|socket| socket.tcp.state == TcpState::Established);
                record.subflows.extend(open.filter_map(|socket| row(now, socket, addresses)));
            }
        }
        match events.recv(next_record.since(now)) {
            Ok(Some(event)) => record.events.push((clock.now(), RunEvent::Kernel(side, event))),
            Ok(None) => {}
            Err(EventError::Io(_)) => break,
            Err(fault) => record.events.push((clock.now(), RunEvent::KernelFault(side, fault.to_string()))),
        }
    }
    Ok(record)
}

fn row(now: Instant, socket: &SocketInfo, addresses: &[IpAddr]) -> Option<TcpInfoRow> {
    let path = addresses.iter().position(|known| *known == socket.local.ip().to_canonical())?;
    let token = socket.mptcp.map_or(0, |mptcp| mptcp.token_local);
    let transport = Transport { token, peer: socket.remote, backup: socket.is_backup(), ..socket.tcp.transport() };
    Some(TcpInfoRow::new(now.as_nanos(), PathId(path as u8), None, socket.local, &transport))
}
