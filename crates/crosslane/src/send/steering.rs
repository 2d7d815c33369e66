//! Who decides which path carries what.

use std::io::ErrorKind;

use toml::{Table, Value};

use super::Options;
use super::plan::paths;
use crate::agent::config::{self, Config};
use crate::agent::embedded::Embedded;
use crate::control::demand::client::Agent;
use crate::error::{Error, Result};
use crate::netlink::{PathManager, select_path_manager, selected_path_manager};

/// Where an agent listens as it comes (`packaging`).
const SOCKET: &str = "/run/crosslane/demands.sock";
const BY_HAND: &str = "run `sysctl -w net.mptcp.path_manager=userspace` (before Linux 6.15: net.mptcp.pm_type=1)";

/// The agent of this transfer, if any.
#[derive(Default)]
pub(super) struct Steering {
    agent: Option<Agent>,
    /// Runs as long as this is there.
    _own: Option<Embedded>,
    selected: Option<Selected>,
    /// Where the connection begins.
    pub interface: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Steering {
    /// The agent that answers, else one of our own where paths are named, else
    /// none.
    ///
    /// # Errors
    /// The agent named does not answer, or ours cannot run here.
    pub(super) fn choose(options: &Options) -> Result<Steering> {
        let name = options.agent.as_deref().unwrap_or(SOCKET);
        let paths = paths(options);
        match Agent::connect(name) {
            Ok(agent) => Ok(Steering { agent: Some(agent), notes: beside(name, &paths), ..Steering::default() }),
            Err(cause) if options.agent.is_some() => {
                let remedy = "start the agent with service.demands set to it, or leave --agent out";
                Err(Error::usage(format!("reaching the agent at {name}"), cause, remedy))
            }
            Err(_) if !paths.is_empty() => Steering::own(options, &paths),
            Err(cause) => {
                let denied = cause.kind() == ErrorKind::PermissionDenied;
                let why = if denied {
                    format!("the agent at {name} may not be told")
                } else {
                    format!("no agent takes demands at {name}")
                };
                let what = match selected_path_manager() {
                    Ok(PathManager::UserSpace) => {
                        "net.mptcp.path_manager is `userspace`: a second path is opened only if an agent without \
                         service.demands runs here, and then by its strategy alone"
                    }
                    _ => "no --prefer or --cost: the kernel's path manager decides what goes where",
                };
                let note = format!("{why} and {what}");
                Ok(Steering { notes: vec![note], ..Steering::default() })
            }
        }
    }

    /// To be called once the connection is there, which keeps its path manager.
    pub(super) fn connected(&mut self) -> Option<Agent> {
        drop(self.selected.take());
        self.agent.take()
    }

    fn own(options: &Options, paths: &[String]) -> Result<Steering> {
        let name = format!("@crosslane-send-{}", std::process::id());
        let own = Embedded::start(configuration(options, paths, &name)?)?;
        let agent = Agent::connect(&name).map_err(|cause| Error::failure("reaching our own agent", cause))?;
        Ok(Steering {
            agent: Some(agent),
            _own: Some(own),
            selected: Selected::user_space()?,
            interface: paths.first().cloned(),
            notes: Vec::new(),
        })
    }
}

/// What stands in the way of an agent that runs already.
fn beside(name: &str, paths: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if !paths.is_empty() {
        notes.push(format!("the agent at {name} has prices of its own: --prefer and --cost are not heeded"));
    }
    if let Ok(PathManager::Kernel) = selected_path_manager() {
        notes
            .push(format!("net.mptcp.path_manager is `kernel`, so that no agent can manage the connection; {BY_HAND}"));
    }
    notes
}

/// What an agent's file would say.
fn configuration(options: &Options, paths: &[String], demands: &str) -> Result<Config> {
    let text = |text: &str| Value::String(text.to_owned());
    let table = |entries: Vec<(&str, Value)>| {
        Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Table>())
    };
    // `deadline` does not ask which radio it is.
    let path = |name: &String| table(vec![("name", text(name)), ("rat", text("lte"))]);
    let cost: Table = options.cost.iter().map(|price| (price.path.clone(), Value::Float(price.per_gb))).collect();
    let service = vec![
        ("demands", text(demands)),
        ("prefer", Value::Array(paths.iter().map(|name| text(name)).collect())),
        ("cost_per_gb", Value::Table(cost)),
    ];
    let configuration = table(vec![
        ("path", Value::Array(paths.iter().map(path).collect())),
        ("service", table(service)),
        ("strategy", table(vec![("name", text("deadline"))])),
        ("log", table(vec![("events", text("/dev/null"))])),
    ]);
    match configuration {
        Value::Table(table) => config::from_table("reading the command line", &table),
        _ => Err(Error::failure("reading the command line", "no configuration came of it")),
    }
}

/// The user-space path manager, for the connections that begin while this is
/// there.
struct Selected;

impl Selected {
    /// `None` if it is selected anyhow.
    fn user_space() -> Result<Option<Selected>> {
        if let Ok(PathManager::UserSpace) = selected_path_manager() {
            return Ok(None);
        }
        let unable = |cause| Error::usage("choosing the path manager", cause, BY_HAND);
        select_path_manager(PathManager::UserSpace).map_err(unable)?;
        Ok(Some(Selected))
    }
}

impl Drop for Selected {
    fn drop(&mut self) {
        if let Err(cause) = select_path_manager(PathManager::Kernel) {
            eprintln!("crosslane: {cause}");
        }
    }
}
