//! The program `crosslane`.

use std::process::ExitCode;

fn main() -> ExitCode {
    crosslane::cli::main(option_env!("CROSSLANE_COMMIT"))
}
