//! Selects the agent that decides which path carries which data.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde_json::json;
use toml::Table;

use super::Options;
use super::plan::paths;
use crate::agent::config::{self, Config};
use crate::agent::embedded::Embedded;
use crate::control::client::Agent;
use crate::error::{Error, Result};
use crate::netlink::{PathManager, select_path_manager, selected_path_manager};

/// Default demand socket of an agent (`packaging`).
const SOCKET: &str = "/run/crosslane/demands.sock";
const SELECT_USER_SPACE: &str =
    "run `sysctl -w net.mptcp.path_manager=userspace` (before Linux 6.15: net.mptcp.pm_type=1)";

/// The agent of this transfer, if any.
#[derive(Default)]
pub(super) struct Steering {
    agent: Option<Agent>,
    /// Our own agent, which runs until this is dropped.
    _own: Option<Embedded>,
    selected: Option<Selected>,
    /// Interface of the first subflow.
    pub interface: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Steering {
    /// The agent that answers, else our own agent if paths are given, else none.
    ///
    /// # Errors
    /// The given agent does not answer, or our own cannot run here.
    pub(super) fn choose(options: &Options) -> Result<Steering> {
        let name = options.agent.as_deref().unwrap_or(SOCKET);
        let paths = paths(options);
        match Agent::connect(name) {
            Ok(agent) => Ok(Steering { agent: Some(agent), notes: conflicts(name, &paths), ..Steering::default() }),
            Err(cause) if options.agent.is_some() => {
                let remedy = "start the agent with service.demands set to it, or omit --agent";
                Err(Error::usage(format!("reaching the agent at {name}"), cause, remedy))
            }
            Err(_) if !paths.is_empty() => Steering::own(options, &paths),
            Err(cause) => {
                let why = match cause.kind() {
                    ErrorKind::PermissionDenied => format!("access to the agent at {name} is denied"),
                    _ => format!("no agent accepts demands at {name}"),
                };
                let what = match selected_path_manager() {
                    Ok(PathManager::UserSpace) => {
                        "net.mptcp.path_manager is `userspace`: a second path is opened only if an agent without \
                         service.demands runs here, according to its strategy"
                    }
                    _ => "no --prefer or --cost is given: the kernel's path manager selects the paths",
                };
                Ok(Steering { notes: vec![format!("{why} and {what}")], ..Steering::default() })
            }
        }
    }

    /// Call it once the connection is established, which keeps its path manager.
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

/// Notes on conflicts with an agent that runs already.
fn conflicts(name: &str, paths: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if !paths.is_empty() {
        notes.push(format!("the agent at {name} has its own prices: --prefer and --cost are ignored"));
    }
    if let Ok(PathManager::Kernel) = selected_path_manager() {
        notes.push(format!(
            "net.mptcp.path_manager is `kernel`, so no agent can manage the connection; {SELECT_USER_SPACE}"
        ));
    }
    notes
}

/// The configuration of our own agent.
fn configuration(options: &Options, paths: &[String], demands: &str) -> Result<Config> {
    let attempt = "reading the command line";
    let costs: BTreeMap<&str, f64> = options.cost.iter().map(|price| (price.path.as_str(), price.per_gb)).collect();
    // `deadline` ignores the radio technology.
    let path = |name: &String| json!({ "name": name, "rat": "lte" });
    let table = Table::try_from(json!({
        "path": paths.iter().map(path).collect::<Vec<_>>(),
        "service": { "demands": demands, "prefer": paths, "cost_per_gb": costs },
        "strategy": { "name": "deadline" },
        "log": { "events": "/dev/null" },
    }));
    config::from_table(attempt, &table.map_err(|cause| Error::failure(attempt, cause))?)
}

/// Selects the user-space path manager for connections that begin before this
/// is dropped.
struct Selected;

impl Selected {
    /// `None` if it is already selected.
    fn user_space() -> Result<Option<Selected>> {
        if let Ok(PathManager::UserSpace) = selected_path_manager() {
            return Ok(None);
        }
        let unable = |cause| Error::usage("choosing the path manager", cause, SELECT_USER_SPACE);
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
