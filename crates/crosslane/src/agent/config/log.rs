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

impl Log {
    /// Checks the size of the file.
    ///
    /// # Errors
    /// Place in the text, cause and remedy.
    pub fn check(&self) -> Result<(), (usize, String, &'static str)> {
        let megabytes = self.events_max_mb.get_ref();
        if (1..=10_000).contains(megabytes) {
            return Ok(());
        }
        Err((self.events_max_mb.span().start, format!("events_max_mb is {megabytes}"), "give 1 to 10000"))
    }
}

impl Default for Log {
    fn default() -> Log {
        Log { events: None, events_max_mb: Spanned::new(0..0, 16) }
    }
}
