//! The section `[log]`: where the agent writes what it observes and does.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// Where the agent writes.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// File for events, one JSON object a line; standard output if unset.
    pub events: Option<PathBuf>,
    /// Size of the file beyond which it is renamed to `NAME.1` and a new one begun,
    /// in MB (1 to 10,000).
    pub events_max_mb: Spanned<u32>,
}

impl Default for Log {
    fn default() -> Log {
        Log { events: None, events_max_mb: Spanned::new(0..0, 16) }
    }
}
