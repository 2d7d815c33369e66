//! `crosslane refit`: fits the tree of a strategy to what the agent's trials have shown, and lets it take the place of the
//! running one if it does better on rows that neither has seen. A process for itself, so that the agent does nothing else
//! meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::config;
use crate::control::client::NO_AGENT;
use crate::control::protocol::AgentRequest;
use crate::control::running_agent::RunningAgent;
use crate::durable_file::{replace, with_suffix};
use crate::error::{Error, Result};
use crate::trials::{self, Rows};
use crate::{output, text_file};
use judge::Verdict;

mod fit;
mod judge;
mod samples;

/// Suffix of the tree that ran before.
const FORMER_SUFFIX: &str = ".former";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The agent's configuration file, which names the tree and the store of the trials.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Process id of the agent, if several run in this network namespace.
    #[arg(long, value_name = "PID")]
    agent: Option<u32>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Fits a tree, and says whether it runs now.
///
/// # Errors
/// The configuration, the tree or the store cannot be used (exit code 2), the tree cannot be written, or the agent does not
/// read it (exit code 1).
pub fn run(options: &Options) -> Result<()> {
    let attempt = format!("fitting the tree of {}", options.config.display());
    let config = config::read(&options.config)?;
    let strategy = config.strategy.as_ref();
    let found = strategy.and_then(|strategy| Some((strategy.refitting()?, strategy.tree()?)));
    let Some((refitting, running)) = found else {
        let remedy = "give `tree` and `store` of strategy `learned` or `smartps` a file each";
        return Err(Error::usage(attempt, "[strategy] names no tree and store", remedy));
    };
    let folder = options.config.parent().unwrap_or(Path::new(""));
    let [tree_file, store_file] = [&refitting.tree_file, &refitting.store_file].map(|name| folder.join(name));
    let rows = rows(&store_file, refitting.strategy)?;
    let verdict = judge::judge(&refitting, &running, seen(&tree_file), &rows.rows);
    let verdict = verdict.map_err(|cause| Error::failure(attempt, cause))?;
    let promotion = match &verdict {
        Verdict::Compared(compared) if compared.is_better() => {
            promote(&compared.file, &tree_file)?;
            Some(let_run(options))
        }
        _ => None,
    };
    print(options.json, &rows, &verdict, promotion.as_ref())?;
    promotion.map_or(Ok(()), |promotion| promotion.map(|_| ()))
}

fn rows(file: &Path, strategy: &str) -> Result<Rows> {
    let attempt = || format!("reading trials {}", file.display());
    let rows = trials::read(file, strategy).map_err(|cause| {
        Error::usage(attempt(), cause, "correct `store` of [strategy], or run as the user of the agent")
    })?;
    match rows.other_version {
        Some(version) => {
            let cause = format!("it has rows of version {version}, and this program knows another one");
            Err(Error::usage(attempt(), cause, "fit the tree with the program that wrote them, or remove the file"))
        }
        None => Ok(rows),
    }
}

/// The number of the last row that a tree has seen, as its file says.
fn seen(file: &Path) -> u64 {
    let text = text_file::read(file).unwrap_or_default();
    let file: Value = serde_json::from_str(&text).unwrap_or_default();
    file["trained"]["seen"].as_u64().unwrap_or_default()
}

/// Writes the tree over the running one, which is kept beside it.
fn promote(tree: &Value, file: &Path) -> Result<()> {
    let write = || -> io::Result<()> {
        replace(&with_suffix(file, FORMER_SUFFIX), &fs::read(file)?)?;
        replace(file, format!("{tree}\n").as_bytes())
    };
    write().map_err(|cause| {
        let remedy = "the running tree stays; name a file in a folder that this user can write, as /var/lib/crosslane";
        Error::failure(format!("writing tree {}", file.display()), cause).with_remedy(remedy)
    })
}

/// Lets the agent with this configuration read the tree; false: none runs.
fn let_run(options: &Options) -> Result<bool> {
    let agent = match RunningAgent::find(options.agent) {
        Err(fault) if fault.exit_code() == NO_AGENT && options.agent.is_none() => return Ok(false),
        found => found?,
    };
    let configuration = agent.status()?.configuration;
    let is_same = fs::canonicalize(&configuration).ok() == fs::canonicalize(&options.config).ok();
    if !is_same {
        let cause = format!("the agent runs with {configuration:?}, and does not use the tree that is better");
        let remedy = "name its configuration, or the agent to ask with --agent";
        return Err(Error::failure("reading the tree again", cause).with_remedy(remedy));
    }
    agent.change(&AgentRequest::Reload).map(|_| true)
}

fn print(json: bool, rows: &Rows, verdict: &Verdict, promotion: Option<&Result<bool>>) -> Result<()> {
    let compared = match verdict {
        Verdict::Compared(compared) => Some(compared),
        _ => None,
    };
    let reason = verdict.to_string();
    let shown = if json {
        json!({
            "promoted": promotion.is_some(), "reason": reason, "running": matches!(promotion, Some(Ok(true))),
            "rows": rows.rows.len(), "skipped_lines": rows.skipped, "rows_of_other_strategies": rows.others,
            "fitted_to": compared.map(|compared| compared.rows[0]), "held_out": compared.map(|compared| compared.rows[1]),
            "accuracy": compared.map(|compared| compared.accuracy[0]),
            "running_accuracy": compared.map(|compared| compared.accuracy[1]),
            "chance": compared.map(|compared| compared.chance), "nodes": compared.map(|compared| compared.nodes),
        })
        .to_string()
    } else {
        let outcome = match promotion {
            None => "the tree stays",
            Some(Ok(true)) => "a new tree orders the paths",
            Some(Ok(false)) => "a new tree will order the paths when the agent starts",
            Some(Err(_)) => "a new tree is written, and the agent has not read it",
        };
        let skipped = match rows.skipped {
            0 => String::new(),
            1 => "\n1 line is no row and was skipped".into(),
            lines => format!("\n{lines} lines are no rows and were skipped"),
        };
        format!("{outcome}: {reason}{skipped}")
    };
    output::print("printing the result", format!("{shown}\n"))
}
