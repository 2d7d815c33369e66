//! Configurations of an agent, and scenarios. The first byte selects one.

use crosslane::agent::config;
use crosslane_sim::scenario::Scenario;

/// Reads one file.
pub fn run(bytes: &[u8]) {
    let Some((kind, text)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let fault = if kind & 1 == 0 {
        let Ok(table) = toml::from_str::<toml::Table>(&text) else { return };
        config::from_table("reading a configuration", &table).err().map(|fault| fault.to_string())
    } else {
        Scenario::parse(&text, "scenario.toml").err().map(|fault| fault.to_string())
    };
    assert!(fault.is_none_or(|fault| !fault.is_empty()));
}
