//! `crosslane keygen`: creates the keys of the tunnel's endpoints.

use std::path::PathBuf;

use serde_json::json;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::output;
use crate::tunnel::security::PrivateKey;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Write the private key into this new file, which only its owner may read, and print the public key. Without
    /// it, the private key is printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the public key of the private key in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    public: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Creates a key, or prints the public key of an existing one.
pub fn run(options: &Options) -> Result<()> {
    let key = match &options.public {
        Some(file) => PrivateKey::read(file)?,
        None => PrivateKey::generate()?,
    };
    if let Some(file) = &options.out {
        key.write(file)?;
    }
    let is_kept = options.out.is_some() || options.public.is_some();
    let public = key.public().to_string();
    let shown = match (options.json, is_kept) {
        (true, true) => json!({ "public_key": public }).to_string(),
        (true, false) => json!({ "private_key": key.text().as_str(), "public_key": public }).to_string(),
        (false, true) => public,
        (false, false) => key.text().to_string(),
    };
    output::print("printing a key", Zeroizing::new(format!("{shown}\n")).as_bytes())
}
