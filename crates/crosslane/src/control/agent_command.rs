//! `crosslane status`, `links`, `connections`, `watch` and `explain` show a running agent; `prefer`, `mode` and
//! `reload` change it.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use crosslane_core::allocate::Mode;
use serde::Serialize;

use super::protocol::AgentRequest;
use super::report_text;
use super::running_agent::RunningAgent;
use super::watch;
use crate::durations::duration;
use crate::error::{Error, Result};
use crate::output;

/// Selects the agent and the output format.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Process id of the agent, if several run in this network namespace.
    #[arg(long, value_name = "PID")]
    agent: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is to be explained.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// A path's name, or a connection's token as `crosslane connections` prints it.
    #[arg(value_name = "PATH|CONNECTION")]
    what: String,
    #[command(flatten)]
    options: Options,
}

/// Which path is preferred.
#[derive(Debug, clap::Args)]
pub struct Prefer {
    /// The path.
    #[arg(required_unless_present = "end")]
    path: Option<String>,
    /// For how long, as 10m; default: until another request, or the agent's end.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    period: Option<Duration>,
    /// Leave the decision to the strategy again.
    #[arg(long, conflicts_with_all = ["path", "period"])]
    end: bool,
    #[command(flatten)]
    options: Options,
}

/// Which mode is used.
#[derive(Debug, clap::Args)]
pub struct UseMode {
    /// `aggregate`: all good paths carry; `backup`: the most preferred one, with the others in reserve;
    /// `cost-first`: the same, and the next one too while that one is full; `interactive`: the path of the least delay,
    /// with the others in reserve.
    #[arg(value_parser = modes())]
    mode: Mode,
    #[command(flatten)]
    options: Options,
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    let named = |name: String| Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or("there is no such mode");
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(named)
}

impl Options {
    fn agent(&self) -> Result<RunningAgent> {
        RunningAgent::find(self.agent)
    }

    fn print<T: Serialize>(&self, what: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let attempt = "printing the agent's answer";
        let shown = match self.json {
            true => serde_json::to_string(what).map_err(|cause| Error::failure(attempt, cause))? + "\n",
            false => text(what),
        };
        output::print(attempt, shown)
    }

    fn change(&self, request: &AgentRequest) -> Result<()> {
        self.print(&self.agent()?.change(request)?, report_text::done)
    }
}

/// Shows the agent on one screen.
///
/// # Errors
/// No agent runs (exit code 3), several do, or it rejects the request, as of the next functions.
pub fn status(options: &Options) -> Result<()> {
    options.print(&options.agent()?.status()?, report_text::status)
}

/// Shows the paths.
///
/// # Errors
/// As of [`status`].
pub fn links(options: &Options) -> Result<()> {
    let status = options.agent()?.status()?;
    match options.json {
        true => options.print(&status.paths, |_| String::new()),
        false => options.print(&status, report_text::links),
    }
}

/// Shows the connections.
///
/// # Errors
/// As of [`status`].
pub fn connections(options: &Options) -> Result<()> {
    options.print(&options.agent()?.connections()?, |all| report_text::connections(all))
}

/// Shows the agent until it ends, or until Ctrl-C.
///
/// # Errors
/// As of [`status`].
pub fn watch(options: &Options) -> Result<()> {
    watch::run(&options.agent()?, options.json)
}

/// Shows why a path or a connection is as it is.
///
/// # Errors
/// As of [`status`], and there is none of this name.
pub fn explain(explain: &Explain) -> Result<()> {
    let Explain { what, options } = explain;
    options.print(&options.agent()?.explain(what)?, report_text::explanation)
}

/// Lets a path carry alone while it is good.
///
/// # Errors
/// As of [`status`], and only root and the agent's own user may.
pub fn prefer(prefer: &Prefer) -> Result<()> {
    let for_s = prefer.period.map(|period| period.as_secs_f64());
    prefer.options.change(&AgentRequest::Prefer { path: prefer.path.clone(), for_s })
}

/// Changes how the paths are used together.
///
/// # Errors
/// As of [`prefer`].
pub fn use_mode(mode: &UseMode) -> Result<()> {
    mode.options.change(&AgentRequest::Mode(mode.mode))
}

/// Lets the agent read its configuration again.
///
/// # Errors
/// As of [`prefer`], and the configuration is wrong.
pub fn reload(options: &Options) -> Result<()> {
    options.change(&AgentRequest::Reload)
}
