//! One run.
use std::process::ExitCode;
use crate::error::Result;
/// Runs.
pub fn run_one(_plan: &str) -> Result<ExitCode> { Ok(ExitCode::SUCCESS) }
