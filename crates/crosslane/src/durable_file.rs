//! Files that survive a loss of power: a failure at any time leaves the former or the new contents whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces a file's contents, by a file with the suffix `.new` beside it.
///
/// # Errors
/// It cannot be written; the former contents remain, and nothing else, since the disk may be full.
pub fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let new = with_suffix(file, ".new");
    let written = write_synced(&new, contents).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        drop(fs::remove_file(&new));
    }
    written?;
    sync_folder(file)
}

fn write_synced(file: &Path, contents: &[u8]) -> io::Result<()> {
    let mut written = File::create(file)?;
    written.write_all(contents)?;
    written.sync_all()
}

/// A new name is durable only after the folder is synced.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The path with text after its name.
pub fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
