//! What only one of the two engines can run.

use super::{BASES, Congestion, Scenario, ScenarioError, Scheduler, Strategy, TrafficKind};

/// What carries out a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel of this machine.
    Kernel,
    /// The simulator.
    Simulator,
}

/// A key that only the simulator can follow, and why.
struct Only {
    key: String,
    what: String,
}

impl Scenario {
    /// Whether this engine can run the scenario.
    ///
    /// # Errors
    /// Names the key that it cannot.
    pub fn check_engine(&self, engine: Engine) -> Result<(), ScenarioError> {
        match (engine, self.only_simulated()) {
            (Engine::Kernel, Some(only)) => {
                let remedy = "use `crosslane simulate`, or take the key out";
                let what = format!("only the simulator can run this `{}`: {}", only.key, only.what);
                Err(self.lines.error(&only.key, what, remedy))
            }
            _ => Ok(()),
        }
    }

    /// Whether this engine knows the strategy.
    ///
    /// # Errors
    /// Names the strategy.
    pub fn check_strategy(&self, engine: Engine, strategy: &Strategy) -> Result<(), ScenarioError> {
        if engine == Engine::Kernel && strategy.base == "oracle" {
            let what = format!("only the simulator can run strategy `{}`: no kernel knows the future", strategy.name);
            let known = BASES.into_iter().filter(|base| *base != "oracle").collect::<Vec<_>>().join(", ");
            return Err(self.lines.error(
                "strategy",
                what,
                format!("use `crosslane simulate`, or choose from {known}"),
            ));
        }
        Ok(())
    }

    fn only_simulated(&self) -> Option<Only> {
        let only = |key: &str, what: &str| Some(Only { key: key.into(), what: what.into() });
        if matches!(self.congestion, Congestion::Lia | Congestion::Olia) {
            return only("congestion", "upstream Linux has no coupled congestion control");
        }
        if !Scheduler::is_upstream(self.scheduler) {
            return only("scheduler", "upstream Linux has no packet scheduler but its own");
        }
        if matches!(self.traffic.kind, TrafficKind::Uploads { .. }) {
            return only("traffic.kind", "the emulator's traffic has no uploads");
        }
        self.fleet.as_ref().and_then(|_| only("fleet", "the emulator drives one vehicle"))
    }
}
