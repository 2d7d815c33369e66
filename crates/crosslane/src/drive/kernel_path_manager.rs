//! Sets up the kernel of each namespace for a strategy.

use crosslane_sim::scenario::{Base, Mode, Scenario, Strategy};
use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::netlink::endpoints::{Endpoint, EndpointSocket, Limits};
use crate::netlink::{PathManager, select_path_manager};

/// Subflows and announced addresses that either side accepts: the maximum of
/// the in-kernel path manager.
const LIMITS: Limits = Limits { subflows: 8, add_addr_accepted: 8 };

/// Sets up the vehicle's kernel, from a thread in its namespace. `addresses`
/// are those of the paths, in the order of their ids.
pub fn prepare_vehicle(scenario: &Scenario, strategy: &Strategy, addresses: &[IpAddr]) -> Result<()> {
    match strategy.base {
        Base::Single | Base::Deadline | Base::Vxlan | Base::WireguardGo => Ok(()),
        Base::Kernel | Base::KernelTuned => {
            let mut socket = select_kernel()?;
            if strategy.base == Base::KernelTuned {
                let setting = "net/mptcp/stale_loss_cnt";
                std::fs::write(format!("/proc/sys/{setting}"), "1")
                    .map_err(|cause| Error::failure(format!("setting {setting} to 1"), cause))?;
            }
            let preferred = usize::from(scenario.preferred_path().0);
            let slotted = scenario.slotted_paths();
            let paths = scenario.paths().into_iter().zip(addresses).enumerate();
            for (place, (_, &address)) in paths.filter(|(_, (path, _))| !slotted.contains(path.name)) {
                let backup = scenario.service.mode != Mode::Aggregate && place != preferred;
                let endpoint = Endpoint { backup, ..Endpoint::subflow(address) };
                socket.add(&endpoint).map_err(Error::reported)?;
            }
            Ok(())
        }
        _ => select_path_manager(PathManager::UserSpace).map_err(Error::reported),
    }
}

/// Sets up the server's kernel: the in-kernel path manager, for every strategy.
pub fn prepare_server() -> Result<()> {
    select_kernel().map(drop)
}

fn select_kernel() -> Result<EndpointSocket> {
    select_path_manager(PathManager::Kernel).map_err(Error::reported)?;
    let mut socket = EndpointSocket::open().map_err(Error::reported)?;
    socket.set_limits(LIMITS).map_err(Error::reported)?;
    Ok(socket)
}
