//! `crosslane doctor`: what on this machine keeps Crosslane from its work, each with the reason why it matters and the
//! command that mends it. Changes nothing; sends nothing but the first message of a handshake to the gateway over each path, and with
//! `--server` a connection over each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::config;
use crate::error::Result;
use crate::output;

mod configuration;
mod firewall;
mod host;
mod reachability;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Configuration of the agent (TOML); without it, only what every agent needs is examined.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of a server with MPTCP, to which each path opens a connection.
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: Option<SocketAddr>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// It works, but not as it could.
    Warning,
    /// It does not work.
    Broken,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
struct Finding {
    /// Its name, for scripts.
    name: &'static str,
    level: Level,
    what: String,
    why: &'static str,
    /// The command that mends it, or what to do.
    fix: String,
}

impl Finding {
    fn broken(name: &'static str, what: impl ToString, why: &'static str, fix: impl ToString) -> Finding {
        Finding { name, level: Level::Broken, what: what.to_string(), why, fix: fix.to_string() }
    }

    fn warning(name: &'static str, what: impl ToString, why: &'static str, fix: impl ToString) -> Finding {
        Finding { level: Level::Warning, ..Finding::broken(name, what, why, fix) }
    }
}

/// Examines the machine and prints the findings, the worst first; the exit code is 0 if there are none, 1 for warnings,
/// 2 if something is broken.
///
/// # Errors
/// The findings cannot be printed.
pub fn run(options: &Options) -> Result<ExitCode> {
    let findings = examine(options.config.as_deref(), options.server);
    let shown = match options.json {
        true => as_json(&findings).to_string() + "\n",
        false if findings.is_empty() => "nothing is wrong\n".into(),
        false => findings.iter().map(text).collect(),
    };
    output::print("printing the findings", shown)?;
    Ok(ExitCode::from(verdict(&findings).1))
}

/// What the command prints with `--json`.
pub fn report(config: Option<&Path>) -> Value {
    as_json(&examine(config, None))
}

/// The findings, the worst first.
fn examine(config: Option<&Path>, server: Option<SocketAddr>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = match config.map(config::read).transpose() {
        Ok(config) => config,
        Err(fault) => {
            let why = "`crosslane agent` exits with this sentence";
            findings.push(Finding::broken(
                "configuration.invalid",
                fault,
                why,
                "correct the file; `crosslane check` reads it too",
            ));
            None
        }
    };
    findings.extend(host::examine(config.as_ref()));
    if let Some(config) = &config {
        findings.extend(configuration::examine(config));
        findings.extend(firewall::examine(config));
        findings.extend(reachability::of_gateway(config));
    }
    findings.extend(server.into_iter().flat_map(|server| reachability::of_server(config.as_ref(), server)));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// The verdict on them, the worst first, and the exit code.
fn verdict(findings: &[Finding]) -> (&'static str, u8) {
    match findings.first().map(|finding| finding.level) {
        None => ("good", 0),
        Some(Level::Warning) => ("warning", 1),
        Some(Level::Broken) => ("broken", 2),
    }
}

fn as_json(findings: &[Finding]) -> Value {
    json!({ "verdict": verdict(findings).0, "findings": findings })
}

fn text(finding: &Finding) -> String {
    let level = if finding.level == Level::Broken { "broken" } else { "warning" };
    format!("{level}: {} ({})\n  why: {}\n  fix: {}\n", finding.what, finding.name, finding.why, finding.fix)
}
