//! `crosslane cc`: coupled congestion control of MPTCP in the kernel.

use serde::Serialize;

use super::LIA;
use super::registration::{self, Registration};
use crate::error::{Error, Result};
use crate::output;

/// The subcommand.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Register the congestion control `lia` in this kernel, until `unload` or the next boot.
    Load(Options),
    /// Show whether `lia` is registered, and by what.
    Status(Options),
    /// Remove `lia`; sockets that use it keep it until they close.
    Unload(Options),
}

/// The output format.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What the command prints.
#[derive(Debug, Serialize)]
struct Status {
    name: &'static str,
    registered: bool,
    registered_by: Option<&'static str>,
    map_id: Option<u32>,
}

/// Does it and prints the state afterwards.
///
/// # Errors
/// What kernel, BTF, verifier or privileges refuse, with a remedy.
pub fn run(command: &Command) -> Result<()> {
    let (registration, options) = match command {
        Command::Load(options) => (registration::load()?, options),
        Command::Status(options) => (registration::status()?, options),
        Command::Unload(options) => {
            registration::unload()?;
            (registration::status()?, options)
        }
    };
    let attempt = "printing the state of the congestion control";
    let shown = match options.json {
        true => serde_json::to_string(&status(registration)).map_err(|cause| Error::failure(attempt, cause))? + "\n",
        false => text(registration),
    };
    output::print(attempt, shown)
}

fn status(registration: Registration) -> Status {
    let (registered_by, map_id) = match registration {
        Registration::None => (None, None),
        Registration::Map { id } => (Some("map"), Some(id)),
        Registration::Other => (Some("other"), None),
        Registration::Unknown => (Some("unknown"), None),
    };
    Status { name: LIA, registered: registration != Registration::None, registered_by, map_id }
}

fn text(registration: Registration) -> String {
    let state = match registration {
        Registration::None => "not registered".into(),
        Registration::Map { id } => format!("registered by BPF map {id}; `crosslane cc unload` removes it"),
        Registration::Other => "registered by a BPF link or a kernel module, not by `crosslane cc load`".into(),
        Registration::Unknown => "registered; only root sees by what".into(),
    };
    format!("{LIA}: {state}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_names_what_registered_it() {
        let json = |registration| serde_json::to_string(&status(registration)).unwrap();
        let expected = r#"{"name":"lia","registered":true,"registered_by":"map","map_id":7}"#;
        assert_eq!(json(Registration::Map { id: 7 }), expected);
        let expected = r#"{"name":"lia","registered":false,"registered_by":null,"map_id":null}"#;
        assert_eq!(json(Registration::None), expected);
        assert!(text(Registration::Map { id: 7 }).contains("BPF map 7"));
        assert!(text(Registration::Other).contains("not by `crosslane cc load`"));
    }
}
