//! `crosslane bugreport`: what a maintainer needs to understand a fault, in one archive. Keys are never in it, addresses
//! and host names only on request.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::clock;
use crate::control::client::{default_name, query_tunnel};
use crate::control::report::AgentStatus;
use crate::control::running_agent::RunningAgent;
use crate::error::{Error, Result};
use crate::{doctor, output, text_file, version};

mod machine;
mod redact;

use redact::Redactor;

/// Folder of the files within the archive.
const FOLDER: &str = "crosslane-bugreport";
/// What is taken of the end of the events, in bytes: an agent writes less than that in a minute.
const MAX_EVENT_BYTES: u64 = 1_000_000;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Configuration of the agent (TOML); default: that of the running agent.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Process id of the agent, if several run in this network namespace.
    #[arg(long, value_name = "PID")]
    agent: Option<u32>,
    /// The archive; it must not exist.
    #[arg(long, value_name = "FILE", default_value = "crosslane-bugreport.tar.gz")]
    out: PathBuf,
    /// Keep addresses and host names.
    #[arg(long)]
    addresses: bool,
}

/// The files of the archive by name, and a sentence for each that is missing.
#[derive(Default)]
struct Contents {
    files: Vec<(&'static str, String)>,
    missing: Vec<String>,
}

impl Contents {
    fn add(&mut self, name: &'static str, content: Result<String>) {
        match content {
            Ok(content) => self.files.push((name, content)),
            Err(fault) => self.missing.push(format!("{name} is missing: {fault}")),
        }
    }
}

/// Writes the archive and prints what is in it.
///
/// # Errors
/// The archive exists or cannot be written. What cannot be found out is named in the archive, and is no error.
pub fn run(options: &Options) -> Result<()> {
    let attempt = format!("writing {}", options.out.display());
    let failed = |cause: io::Error| Error::failure(&attempt, cause).with_remedy("name another file by --out");
    // First, since the user may have to choose another name.
    let archive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&options.out).map_err(failed)?;
    let (contents, hosts) = collect(options);
    let mut redactor = Redactor::new(hosts, options.addresses);
    let written = write(archive, &contents, &mut redactor).inspect_err(|_| drop(fs::remove_file(&options.out)));
    written.map_err(failed)?;
    let left_out = if options.addresses { "keys" } else { "keys, addresses and host names" };
    let mut text = format!("{}: {} files, without {left_out}\n", options.out.display(), contents.files.len());
    contents.missing.iter().for_each(|sentence| text += &format!("{sentence}\n"));
    text += &format!(
        "Names of paths, vehicles and users are in it: look at it with `tar -xzf {}`.\n",
        options.out.display()
    );
    output::print("printing what is in the archive", text)
}

/// Everything as it is, and the host names in the configuration.
fn collect(options: &Options) -> (Contents, Vec<String>) {
    let mut contents = Contents::default();
    let agent = RunningAgent::find(options.agent);
    let status = agent.as_ref().ok().and_then(|agent| agent.status().ok());
    match &agent {
        Ok(agent) => add_agent(&mut contents, agent, status.as_ref()),
        Err(fault) => contents.missing.push(format!("status.json is missing: {fault}")),
    }
    let configuration = options.config.clone().or_else(|| Some(status.as_ref()?.configuration.clone().into()));
    contents.add("doctor.json", Ok(doctor::report(configuration.as_deref()).to_string()));
    let mut hosts = Vec::new();
    match configuration {
        Some(file) => {
            let table = configuration_table(&file);
            contents.add("events.jsonl", table.as_ref().map_err(Error::reported).and_then(events));
            hosts.extend(table.iter().flat_map(redact::hosts));
            contents.add("configuration.toml", table.map(|table| table.to_string()));
        }
        None => contents.missing.push("configuration.toml is missing: name the file by --config".into()),
    }
    contents.add("kernel.txt", Ok(machine::kernel()));
    contents.add("sysctls.txt", Ok(machine::sysctls()));
    contents.add("interfaces.txt", Ok(machine::interfaces()));
    let about = json!({ "version": version::version(), "unix_s": clock::unix_s(), "missing": contents.missing });
    contents.add("about.json", Ok(about.to_string()));
    (contents, hosts)
}

fn add_agent(contents: &mut Contents, agent: &RunningAgent, status: Option<&AgentStatus>) {
    contents.add("status.json", agent.status().and_then(|status| json_text(&status)));
    contents.add("connections.json", agent.connections().and_then(|all| json_text(&all)));
    if status.is_some_and(|status| status.tunnel.is_some() || !status.units.is_empty()) {
        contents.add(
            "tunnel.json",
            default_name().and_then(|name| query_tunnel(&name, None)).and_then(|tunnels| json_text(&tunnels)),
        );
    }
}

fn json_text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|cause| Error::failure("writing JSON", cause))
}

/// The tables of the file, without its comments, which may say anything.
fn configuration_table(file: &Path) -> Result<toml::Table> {
    let attempt = || format!("reading configuration {}", file.display());
    let text = text_file::read(file).map_err(|cause| Error::failure(attempt(), cause))?;
    // The parser's own message quotes the line, which may hold a key.
    text.parse().map_err(|_| Error::failure(attempt(), "it is not TOML; see doctor.json"))
}

/// The last events in the file that the configuration names, from the beginning of a line.
fn events(configuration: &toml::Table) -> Result<String> {
    let file = configuration.get("log").and_then(|log| log.get("events")?.as_str());
    let Some(file) = file else {
        let cause = "the agent writes its events to standard output";
        let remedy = "add what `journalctl -u crosslane-agent` prints, after a look at it";
        return Err(Error::usage("reading the events", cause, remedy));
    };
    let read = || {
        let mut events = File::open(file)?;
        let skipped = events.metadata()?.len().saturating_sub(MAX_EVENT_BYTES);
        events.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        events.take(MAX_EVENT_BYTES).read_to_end(&mut bytes)?;
        let begin = bytes.iter().position(|byte| *byte == b'\n').filter(|_| skipped > 0).map_or(0, |end| end + 1);
        Ok(String::from_utf8_lossy(&bytes[begin..]).into_owned())
    };
    read().map_err(|cause: io::Error| Error::failure(format!("reading the events {file}"), cause))
}

fn write(archive: File, contents: &Contents, redactor: &mut Redactor) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(archive, Compression::default()));
    for (name, content) in &contents.files {
        let content = redactor.redact(content);
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(clock::unix_s() as u64);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), content.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// A file of the kernel; empty if this kernel lacks it.
fn kernel_file(file: impl AsRef<Path>) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
