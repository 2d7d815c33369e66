//! Scenarios and strategies that only one of the two engines supports.

use super::base::{Base, Engines, catalog};
use super::{Congestion, Scenario, ScenarioError, Scheduler, Strategy};

/// Engine of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel of this machine.
    Kernel,
    /// The simulator.
    Simulator,
}

/// A key that only one engine supports, and the reason.
struct Only {
    key: String,
    what: String,
}

impl Scenario {
    /// Checks that this engine can run the scenario.
    ///
    /// # Errors
    /// Names the unsupported key.
    pub fn check_engine(&self, engine: Engine) -> Result<(), ScenarioError> {
        match (engine, self.only_simulated()) {
            (Engine::Kernel, Some(only)) => {
                let remedy = "use `crosslane simulate`, or remove the key";
                let what = format!("only the simulator can run this `{}`: {}", only.key, only.what);
                Err(self.lines.error(&only.key, what, remedy))
            }
            _ => Ok(()),
        }
    }

    /// Checks that this engine supports the strategy, and that the strategy
    /// supports the traffic.
    ///
    /// # Errors
    /// Names the strategy.
    pub fn check_strategy(&self, engine: Engine, strategy: &Strategy) -> Result<(), ScenarioError> {
        let deadlines = self.traffic.kind.deadlines().is_some();
        if strategy.base.needs_deadlines() && !deadlines {
            let what = format!("strategy `{}` needs deadlines, and the traffic has none", strategy.name);
            return Err(self.lines.error("traffic", what, "make it of kind `deadline`, or choose another strategy"));
        }
        let Some((command, other, why)) = why_not(engine, strategy.base) else { return Ok(()) };
        let what = format!("only `crosslane {other}` can run strategy `{}`: {why}", strategy.name);
        let known = catalog().filter(|base| why_not(engine, *base).is_none());
        let known = known.map(Base::name).collect::<Vec<_>>().join(", ");
        let remedy = format!("use that command, or choose for `crosslane {command}` from {known}");
        Err(self.lines.error("strategy", what, remedy))
    }

    fn only_simulated(&self) -> Option<Only> {
        let only = |key: &str, what: &str| Some(Only { key: key.into(), what: what.into() });
        if self.congestion == Congestion::Olia {
            return only("congestion", "no kernel has `olia`");
        }
        if !Scheduler::is_upstream(self.scheduler) {
            return only("scheduler", "upstream Linux has no other packet scheduler than its default");
        }
        if let Some(why) = self.traffic.kind.only_simulated() {
            return only("traffic.kind", why);
        }
        if self.traffic.kind.deadlines().is_some() && self.traffic.down {
            return only(
                "traffic.direction",
                "the agent, which uses the deadlines, runs on the vehicle, so the vehicle must be the sender",
            );
        }
        self.fleet.as_ref().and_then(|_| only("fleet", "the emulator drives one vehicle"))
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
