//! Parsing of a scenario file.

use super::keys::Keys;
use super::source_map::Lines;
use super::{Scenario, ScenarioError};
use crate::input::renamed_keys::renew;
use crate::input::strict_toml;

impl Scenario {
    /// Reads a scenario; errors name `file_name`. Everything is checked except
    /// the files that it names and its
    /// [crossings](crate::bounds::feasibility::prove).
    pub fn parse(text: &str, file_name: &str) -> Result<Scenario, ScenarioError> {
        let (text, renamed) = renew(text);
        let lines = Lines::new(&text, file_name)?;
        let keys: Keys = strict_toml::from_str(&text).map_err(|error| lines.explain(&text, &error))?;
        let scenario = Scenario { renamed, ..keys.build(lines)? };
        scenario.validate()?;
        Ok(scenario)
    }
}
