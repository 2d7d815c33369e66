//! Converts public recordings into our trace format.
//!
//! The conversion of text is a pure function, [`import`], so that `crosslane
//! import` and a scenario that refers to a recording get the same trace. One
//! module per data set handles its columns and peculiarities ([`pam2025`],
//! [`feup`]); [`table`] reads CSV with line numbers, [`trace`] cuts and writes.

mod fault;
mod feup;
mod pam2025;
mod table;
mod trace;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use crate::error::{Error, Result};
use crate::output;

pub use fault::{Fault, ImportError, UnknownSource};
pub use trace::Cut;

/// Size limit of a recording, in bytes; the largest file of the data sets has
/// 2.2 MB.
pub const MAX_BYTES: u64 = 64 << 20;

/// `crosslane import FORMAT FILE`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    /// Two operators' TCP throughput in one car (PAM 2025, NUWiNS/pam2025-multi-carrier-dataset).
    Pam2025 {
        /// Operator of the phone.
        #[arg(long, value_enum)]
        operator: Operator,
        #[command(flatten)]
        common: Common,
    },
    /// Roadside WiFi access points (FEUP, adamiaonr/wifi-vehicles: final-exp-log.csv).
    Feup {
        /// The access point, as in the column `senderId`.
        #[arg(long)]
        ap: String,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// The recording (CSV).
    file: PathBuf,
    /// Begin at this time of the recording, in seconds; the trace's time starts there.
    #[arg(long, value_name = "SECONDS")]
    from_s: Option<f64>,
    /// End at this time of the recording, in seconds.
    #[arg(long, value_name = "SECONDS")]
    to_s: Option<f64>,
    /// Write the trace to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// One of the two operators of the PAM 2025 recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operator {
    /// AT&T, columns that end in `_x`.
    Att,
    /// Verizon, columns that end in `_y`.
    Verizon,
}

/// Data set, and the part of it that becomes the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One operator of a PAM 2025 drive.
    Pam2025(Operator),
    /// One access point of the FEUP recordings, by its `senderId`.
    Feup(String),
}

impl Source {
    /// Reads `pam2025:att`, `pam2025:verizon` or `feup:AP`, as in `feup:ap2`.
    pub fn parse(text: &str) -> Result<Source, UnknownSource> {
        match text.split_once(':') {
            Some(("pam2025", "att")) => Ok(Source::Pam2025(Operator::Att)),
            Some(("pam2025", "verizon")) => Ok(Source::Pam2025(Operator::Verizon)),
            Some(("feup", ap)) if !ap.is_empty() => Ok(Source::Feup(ap.to_owned())),
            _ => Err(UnknownSource { given: text.to_owned() }),
        }
    }
}

/// The trace that a scenario refers to as `drive.csv#pam2025:att@5`: recording,
/// part, and first second (`@5` is optional). `None` for a name without `#`,
/// which is already a trace.
pub fn import_named(name: &Path) -> Option<Result<String>> {
    let text = name.to_str()?;
    let (file, part) = text.rsplit_once('#')?;
    let (source, from_s) = match part.rsplit_once('@') {
        Some((source, from)) => (source, from.parse().map(Some).map_err(|_| UnknownSource { given: part.to_owned() })),
        None => (part, Ok(None)),
    };
    let parsed = from_s.and_then(|from_s| Ok((Source::parse(source)?, Cut { from_s, to_s: None })));
    Some(match parsed {
        Ok((source, cut)) => import_file(&source, &cut, Path::new(file)),
        Err(unknown) => Err(Error::message(format!("while reading the trace {text}: {unknown}"), 2)),
    })
}

/// Converts a recording into a trace (CSV, `docs/reference/scenario.md`).
///
/// `file_name` appears in the trace's comments and in errors. Equal arguments
/// give equal output.
pub fn import(source: &Source, cut: &Cut, text: &str, file_name: &str) -> Result<String, ImportError> {
    let traced = match source {
        Source::Pam2025(operator) => pam2025::trace(text, *operator),
        Source::Feup(ap) => feup::trace(text, ap),
    };
    let written = |whole: trace::Trace| {
        let trace = whole.cut(cut)?;
        trace.check_length()?;
        Ok(trace.to_csv(file_name))
    };
    traced.and_then(written).map_err(|at| ImportError { file: file_name.to_owned(), line: at.line, fault: at.fault })
}

/// Reads the recording at `path` and converts it into a trace.
pub fn import_file(source: &Source, cut: &Cut, path: &Path) -> Result<String> {
    let text = read(path)?;
    Ok(import(source, cut, &text, &path.to_string_lossy())?)
}

/// Runs `crosslane import`.
pub fn run(options: &Options) -> Result<()> {
    let (source, common) = match &options.format {
        Format::Pam2025 { operator, common } => (Source::Pam2025(*operator), common),
        Format::Feup { ap, common } => (Source::Feup(ap.clone()), common),
    };
    let cut = Cut { from_s: common.from_s, to_s: common.to_s };
    let trace = import_file(&source, &cut, &common.file)?;
    match &common.out {
        Some(path) => {
            std::fs::write(path, trace).map_err(|cause| Error::failure(format!("writing {}", path.display()), cause))
        }
        None => output::print("printing the trace", &trace),
    }
}

fn read(path: &Path) -> Result<String> {
    let attempt = || format!("importing {}", path.display());
    let fault = |fault| ImportError { file: path.to_string_lossy().into_owned(), line: None, fault };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(|cause| {
        Error::usage(attempt(), cause, "give a recording of the data set (docs/guide/real-data.md)")
    })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fault(Fault::TooLarge).into());
    }
    String::from_utf8(bytes).map_err(|_| fault(Fault::Binary).into())
}
