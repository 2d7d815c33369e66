//! Scenarios and strategies that only one of the two engines supports.

use crosslane_core::transfer::multipath::MAX_PATHS;

use super::base::{self, Base, Engines, catalog};
use super::{Congestion, IpVersion, Scenario, ScenarioError, Strategy, TunnelParams};

/// Engine of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel of this machine.
    Kernel,
    /// The simulator.
    Simulator,
}

/// Maximum number of endpoints of the kernel's path manager (Linux `MPTCP_PM_ADDR_MAX`).
const KERNEL_ENDPOINTS: usize = 8;

impl Scenario {
    /// Checks that this engine can run the scenario.
    ///
    /// # Errors
    /// Names the unsupported key.
    pub fn check_engine(&self, engine: Engine) -> Result<(), ScenarioError> {
        match (engine, self.only_simulated()) {
            (Engine::Kernel, Some((key, why))) => {
                let what = format!("only the simulator can run this `{key}`: {why}");
                Err(self.lines.error(key, what, "use `crosslane simulate`, or remove the key"))
            }
            (Engine::Simulator, _) => self.check_middleboxes(),
            _ => Ok(()),
        }
    }

    /// Checks that this engine supports the strategy, and that the strategy
    /// supports the mode and the traffic.
    ///
    /// # Errors
    /// Names the strategy.
    pub fn check_strategy(&self, engine: Engine, strategy: &Strategy) -> Result<(), ScenarioError> {
        let deadlines = self.traffic.kind.deadlines().is_some();
        if strategy.base.needs_deadlines() && !deadlines {
            let what = format!("strategy `{}` needs deadlines, and the traffic has none", strategy.name);
            return Err(self.lines.error("traffic", what, "make it of kind `deadline`, or choose another strategy"));
        }
        self.check_mode(strategy)?;
        self.check_transfer(strategy)?;
        if let Some((radio, _)) =
            self.tunnelled_radio().filter(|_| strategy.is_tunnel() || strategy.base.is_peer_tunnel())
        {
            let what = format!("strategy `{}` would be a tunnel inside those of radio `{}`", strategy.name, radio.name);
            return Err(self.lines.error("strategy", what, "remove `tunnel` of the radio, or choose another strategy"));
        }
        if self.ip_version == IpVersion::V6 && strategy.base.is_peer_tunnel() {
            let what = format!("strategy `{}` is driven over IPv4 only", strategy.name);
            return Err(self.lines.error("ip_version", what, "write 4, or choose another strategy"));
        }
        if self.has_slots() && strategy.is_tunnel() {
            let what =
                format!("strategy `{}` has fixed paths, and the roadside units take turns in slots", strategy.name);
            return Err(self.lines.error("strategy", what, "remove `slots` of the radio, or choose another strategy"));
        }
        let is_kernel = matches!(strategy.base, Base::Kernel | Base::KernelTuned);
        let slots: usize = {
            let separate = self.radios.iter().filter(|radio| radio.tunnel.is_none());
            separate.filter_map(|radio| radio.slots).map(usize::from).sum()
        };
        let endpoints = self.paths().len() - self.slotted_paths().len() + slots;
        if engine == Engine::Kernel
            && is_kernel
            && (slots > 0 || self.tunnelled_radio().is_some())
            && endpoints > KERNEL_ENDPOINTS
        {
            let what = format!(
                "strategy `{}` of a drive needs {endpoints} endpoints, and the kernel takes {KERNEL_ENDPOINTS}",
                strategy.name
            );
            return Err(self.lines.error("radio", what, "choose fewer `slots`, or use `crosslane simulate`"));
        }
        let Some((command, other, why)) = why_not(engine, strategy.base) else { return Ok(()) };
        let what = format!("only `crosslane {other}` can run strategy `{}`: {why}", strategy.name);
        let known = catalog().filter(|base| why_not(engine, *base).is_none());
        let known = known.map(Base::name).collect::<Vec<_>>().join(", ");
        let remedy = format!("use that command, or choose for `crosslane {command}` from {known}");
        Err(self.lines.error("strategy", what, remedy))
    }

    /// A connection for each path begins at one of the vehicle's interfaces, which exist from the start.
    fn check_transfer(&self, strategy: &Strategy) -> Result<(), ScenarioError> {
        if strategy.base != Base::Deadline {
            return Ok(());
        }
        let (name, paths) = (&strategy.name, self.paths().len());
        let (key, why) = if self.traffic.down {
            ("traffic.direction", "so the vehicle must be the sender".to_string())
        } else if self.has_slots() || self.tunnelled_radio().is_some() {
            ("radio", "which `slots` and `tunnel` of a radio change".to_string())
        } else if paths > MAX_PATHS {
            ("strategy", format!("at most {MAX_PATHS}, and the scenario has {paths}"))
        } else {
            return Ok(());
        };
        let what = format!("strategy `{name}` has a connection over each interface of the vehicle, {why}");
        Err(self.lines.error(key, what, "choose strategy `deadline-mptcp`, or change the key"))
    }

    fn check_mode(&self, strategy: &Strategy) -> Result<(), ScenarioError> {
        let entry = match strategy.base {
            Base::Agent(entry) => Some(entry),
            Base::Tunnel => base::read::<TunnelParams>(&strategy.parameters).ok().map(|tunnel| tunnel.steer.0),
            _ => None,
        };
        let mode = self.service.mode;
        let Some(why) = entry.and_then(|entry| entry.lacks(mode)) else { return Ok(()) };
        let what = format!("strategy `{}` has no mode `{}`: {why}", strategy.name, mode.name());
        Err(self.lines.error("service.mode", what, "choose another mode, or another strategy"))
    }

    fn check_middleboxes(&self) -> Result<(), ScenarioError> {
        let Some(link) = self.access.iter().find(|link| link.effects.middlebox.is_some()) else { return Ok(()) };
        let what =
            format!("the simulator cannot run the `middlebox` of `{}`: its MPTCP has no fallback to TCP", link.name);
        Err(self.lines.error(&link.key, what, "use `crosslane drive`, or remove the key"))
    }

    /// A key that only the simulator supports, and the reason.
    fn only_simulated(&self) -> Option<(&'static str, &'static str)> {
        if self.congestion == Congestion::Olia {
            return Some(("congestion", "no kernel has `olia`"));
        }
        if !self.scheduler.is_upstream() {
            return Some(("scheduler", "upstream Linux has no other packet scheduler than its default"));
        }
        if let Some(why) = self.traffic.kind.only_simulated() {
            return Some(("traffic.kind", why));
        }
        if self.traffic.kind.deadlines().is_some() && self.traffic.down {
            let why = "the agent, which uses the deadlines, runs on the vehicle, so the vehicle must be the sender";
            return Some(("traffic.direction", why));
        }
        if self.radios.iter().filter(|radio| radio.slots.is_some() || radio.tunnel.is_some()).count() > 1 {
            return Some(("radio", "an agent has one radio with `slots` or `tunnel`"));
        }
        self.fleet.map(|_| ("fleet", "the emulator drives one vehicle"))
    }
}

/// This engine's command, the command that supports the strategy, and the
/// reason why this one does not; none if it does.
fn why_not(engine: Engine, base: Base) -> Option<(&'static str, &'static str, &'static str)> {
    match (engine, base.entry().engines) {
        (Engine::Kernel, Engines::Simulate) => Some(("drive", "simulate", "no kernel knows the future")),
        (Engine::Simulator, Engines::Drive) => Some(("simulate", "drive", "the simulator has no third-party tunnels")),
        _ => None,
    }
}
