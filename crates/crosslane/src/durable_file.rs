//! Files that survive a loss of power: a failure at any time leaves the former or the new contents whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// Replaces a file's contents, by a file with the suffix `.new` beside it.
///
/// # Errors
/// It cannot be written; the former contents remain, and nothing else, since the disk may be full.
pub fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let new = with_suffix(file, ".new");
    let written = File::create(&new).and_then(|created| write_synced(&created, contents));
    rename_written(&new, file, written)
}

/// Replaces the contents of a user's file: it keeps its owner and permissions, and a file of the user with the suffix
/// `.new` stays.
///
/// # Errors
/// As [`replace`], and [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is a file with that suffix.
pub fn rewrite(file: &Path, contents: &[u8]) -> io::Result<()> {
    let (was, new) = (fs::metadata(file)?, with_suffix(file, ".new"));
    let created = File::create_new(&new)?;
    let written = fchown(&created, Some(was.uid()), Some(was.gid()))
        .and_then(|()| created.set_permissions(was.permissions()))
        .and_then(|()| write_synced(&created, contents));
    rename_written(&new, file, written)
}

fn write_synced(mut file: &File, contents: &[u8]) -> io::Result<()> {
    file.write_all(contents)?;
    file.sync_all()
}

fn rename_written(new: &Path, file: &Path, written: io::Result<()>) -> io::Result<()> {
    written.and_then(|()| fs::rename(new, file)).inspect_err(|_| drop(fs::remove_file(new)))?;
    sync_folder(file)
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
