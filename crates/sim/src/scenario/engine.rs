//! What only one of the two engines can run.

use super::{Scenario, ScenarioError};

/// What carries out a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The kernel of this machine.
    Kernel,
    /// The simulator.
    Simulator,
}

impl Scenario {
    /// Whether this engine can run the scenario.
    ///
    /// # Errors
    /// Names the key that it cannot.
    pub fn check_engine(&self, _engine: Engine) -> Result<(), ScenarioError> {
        Ok(())
    }
}
