//! Converts public recordings into our trace format.
//!
//! The conversion of text is a pure function, [`import`], so that `crosslane
//! import` and a scenario that refers to a recording get the same trace. One
//! module per data set handles its columns and peculiarities ([`pam2025`], [`feup`],
//! [`imc23`]), [`pings`] one's own recordings; [`table`] reads CSV with line numbers, [`trace`] cuts and writes.

mod fault;
mod feup;
mod imc23;
mod pam2025;
mod pings;
mod table;
mod trace;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use crate::error::{Error, Result};
use crate::{output, text_file};

use fault::{Fault, GIVE_A_RECORDING};
pub use trace::Cut;

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
    /// Three operators' pings and signal in one car (IMC 2023, a segment of docs/guide/real-data.md).
    Imc23 {
        /// Operator of the phone.
        #[arg(long, value_enum)]
        operator: Imc23Operator,
        #[command(flatten)]
        common: Common,
    },
    /// Pings and signal of your own phones or modems: t_s,operator,rtt_ms,lost,rssi_dbm.
    Pings {
        /// The operator, as in the column `operator`.
        #[arg(long)]
        operator: String,
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

/// One of the three operators of the IMC 2023 recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Imc23Operator {
    /// Verizon.
    Verizon,
    /// AT&T.
    Att,
    /// T-Mobile.
    Tmobile,
}

/// Data set, and the part of it that becomes the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One operator of a PAM 2025 drive.
    Pam2025(Operator),
    /// One access point of the FEUP recordings, by its `senderId`.
    Feup(String),
    /// One operator of an IMC 2023 segment.
    Imc23(Imc23Operator),
    /// One operator of a recording of pings, by its name.
    Pings(String),
}

impl Source {
    /// Reads `pam2025:att`, `pam2025:verizon`, `feup:AP` (as in `feup:ap2`), `imc23:verizon`, `imc23:att`,
    /// `imc23:tmobile` or `pings:OPERATOR`.
    ///
    /// # Errors
    /// The text, and what can be written.
    pub fn parse(text: &str) -> Result<Source, String> {
        match text.split_once(':') {
            Some(("pam2025", "att")) => Ok(Source::Pam2025(Operator::Att)),
            Some(("pam2025", "verizon")) => Ok(Source::Pam2025(Operator::Verizon)),
            Some(("feup", ap)) if !ap.is_empty() => Ok(Source::Feup(ap.to_owned())),
            Some(("imc23", "verizon")) => Ok(Source::Imc23(Imc23Operator::Verizon)),
            Some(("imc23", "att")) => Ok(Source::Imc23(Imc23Operator::Att)),
            Some(("imc23", "tmobile")) => Ok(Source::Imc23(Imc23Operator::Tmobile)),
            Some(("pings", operator)) if !operator.is_empty() => Ok(Source::Pings(operator.to_owned())),
            _ => Err(unknown(text)),
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
        Some((source, from)) => (source, from.parse().map(Some).map_err(|_| unknown(part))),
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
///
/// # Errors
/// What is wrong with the recording, its line, and the remedy (exit code 2).
pub fn import(source: &Source, cut: &Cut, text: &str, file_name: &str) -> Result<String> {
    let traced = match source {
        Source::Pam2025(operator) => pam2025::trace(text, *operator),
        Source::Feup(ap) => feup::trace(text, ap),
        Source::Imc23(operator) => imc23::trace(text, *operator, cut),
        Source::Pings(operator) => pings::trace(text, operator, cut),
    };
    let written = |whole: trace::Trace| {
        let trace = whole.cut(cut)?;
        trace.check_length()?;
        trace::check_gaps(trace.gaps.iter())?;
        Ok(trace.to_csv(file_name))
    };
    traced.and_then(written).map_err(|fault| fault.of(file_name))
}

/// Reads the recording at `path` and converts it into a trace.
pub fn import_file(source: &Source, cut: &Cut, path: &Path) -> Result<String> {
    let name = path.to_string_lossy();
    let text = text_file::read(path).map_err(|cause| match cause.kind() {
        ErrorKind::FileTooLarge => {
            let cause = format!("it is larger than {} MiB", text_file::MAX_BYTES >> 20);
            Fault::new(cause, GIVE_A_RECORDING).of(&name)
        }
        ErrorKind::InvalidData => Fault::binary().of(&name),
        _ => {
            let remedy = "give a recording (docs/guide/real-data.md)";
            Error::usage(format!("importing {name}"), cause, remedy)
        }
    })?;
    import(source, cut, &text, &name)
}

/// Runs `crosslane import`.
pub fn run(options: &Options) -> Result<()> {
    let (source, common) = match &options.format {
        Format::Pam2025 { operator, common } => (Source::Pam2025(*operator), common),
        Format::Feup { ap, common } => (Source::Feup(ap.clone()), common),
        Format::Imc23 { operator, common } => (Source::Imc23(*operator), common),
        Format::Pings { operator, common } => (Source::Pings(operator.clone()), common),
    };
    let cut = Cut { from_s: common.from_s, to_s: common.to_s };
    let trace = import_file(&source, &cut, &common.file)?;
    let same = |out: &PathBuf| out.canonicalize().is_ok_and(|out| common.file.canonicalize().is_ok_and(|of| of == out));
    match &common.out {
        Some(path) if same(path) => {
            let cause = "it is the recording, which would be lost";
            Err(Error::usage(format!("writing {}", path.display()), cause, "name another file with --out"))
        }
        Some(path) => output::write(path, trace),
        None => output::print("printing the trace", &trace),
    }
}

fn unknown(part: &str) -> String {
    format!(
        "`{part}` is not a part of a recording; write pam2025:att, pam2025:verizon, feup:AP (as feup:ap2), \
         imc23:verizon, imc23:att, imc23:tmobile or pings:OPERATOR, with @SECONDS to begin later"
    )
}
