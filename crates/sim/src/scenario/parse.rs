//! Parsing of a scenario file.

use super::keys::Keys;
use super::source_map::Lines;
use super::{Scenario, ScenarioError};

impl Scenario {
    /// Reads a scenario; errors name `file_name`. Everything is checked except
    /// the files that it names, its [strategies'
    /// parameters](Scenario::check_strategies) and its
    /// [crossings](crate::bounds::feasibility::prove).
    pub fn parse(text: &str, file_name: &str) -> Result<Scenario, ScenarioError> {
        let lines = Lines::new(text, file_name)?;
        let keys: Keys = toml::from_str(text).map_err(|error| lines.explain(text, &error))?;
        let scenario = keys.build(lines)?;
        scenario.validate()?;
        Ok(scenario)
    }
}
