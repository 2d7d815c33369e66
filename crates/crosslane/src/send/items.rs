//! The files that the arguments name: a file, or all files of a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crosslane_core::transfer::frame::MAX_NAME_BYTES;

use crate::error::{Error, Result};
use crate::transfer::files::FileContent;

/// Maximum number of files of one call.
const MAX_FILES: usize = 100_000;

/// A file to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub path: PathBuf,
    /// Its name at the receiver: of a folder's file, with the folders.
    pub name: String,
    /// The argument that names it.
    pub argument: usize,
}

/// The files of all arguments, and a sentence for each entry of a folder that is left out.
pub(super) fn items(arguments: &[PathBuf]) -> Result<(Vec<Item>, Vec<String>)> {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for (argument, path) in arguments.iter().enumerate() {
        let before = all.len();
        // The files of `.` have no folder before their names.
        let name = path.file_name().map(|_| name_of(path)).transpose()?;
        if path.is_dir() {
            walk(path, name.unwrap_or(""), argument, &mut all, &mut left_out)?;
            if all.len() == before {
                let attempt = format!("reading the folder {}", path.display());
                return Err(Error::usage(attempt, "it has no files", "name one that has files"));
            }
        } else {
            all.push(Item { path: path.clone(), name: name.unwrap_or_default().to_owned(), argument });
        }
    }
    let mut names = BTreeSet::new();
    for item in &all {
        check(item)?;
        if !names.insert(item.name.as_str()) {
            let cause = format!("two files are named {}, and one would replace the other", item.name);
            return Err(Error::usage("reading the command line", cause, "rename one"));
        }
    }
    Ok((all, left_out))
}

fn check(item: &Item) -> Result<()> {
    let attempt = || format!("opening {}", item.path.display());
    let opened = FileContent::open(&item.path);
    opened.map_err(|cause| Error::usage(attempt(), cause, "name files that exist and can be read"))?;
    if item.name.len() > MAX_NAME_BYTES {
        let cause = format!("its name with its folders has {} bytes, more than {MAX_NAME_BYTES}", item.name.len());
        return Err(Error::usage(attempt(), cause, "send a folder further in"));
    }
    Ok(())
}

/// Adds all files of a folder and those in it, by name. Symbolic links could lead anywhere, and in a circle.
fn walk(folder: &Path, prefix: &str, argument: usize, all: &mut Vec<Item>, left_out: &mut Vec<String>) -> Result<()> {
    let attempt = || format!("reading the folder {}", folder.display());
    let failed = |cause| Error::usage(attempt(), cause, "make it readable, or move it away");
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        let own = name_of(&path)?;
        let name = if prefix.is_empty() { own.to_owned() } else { format!("{prefix}/{own}") };
        if kind.is_dir() {
            walk(&path, &name, argument, all, left_out)?;
        } else if kind.is_file() {
            if all.len() >= MAX_FILES {
                let cause = format!("there are more than {MAX_FILES} files");
                return Err(Error::usage(attempt(), cause, "send it in several calls"));
            }
            all.push(Item { path, name, argument });
        } else {
            let what = if kind.is_symlink() { "a symbolic link" } else { "not a file" };
            left_out.push(format!("{} is left out, since it is {what}", path.display()));
        }
    }
    Ok(())
}

fn name_of(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        let cause = format!("the name of {} is not UTF-8", path.display());
        Error::usage("reading the command line", cause, "rename it")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(arguments: &[PathBuf]) -> Result<Vec<String>> {
        Ok(items(arguments)?.0.into_iter().map(|item| item.name).collect())
    }

    #[test]
    fn a_folder_stands_for_its_files_with_its_name_before_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("drive");
        fs::create_dir_all(root.join("b/c")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        for file in ["a", "b/z", "b/c/x", "b.txt"] {
            fs::write(root.join(file), file).unwrap();
        }
        symlink("/etc/passwd", root.join("link")).unwrap();
        symlink("..", root.join("circle")).unwrap();
        assert_eq!(names(std::slice::from_ref(&root)).unwrap(), ["drive/a", "drive/b/c/x", "drive/b/z", "drive/b.txt"]);
        assert_eq!(names(&[root.join("."), root.join("b")]).unwrap().len(), 6);
        assert_eq!(names(&[root.join("b/..")]).unwrap(), ["a", "b/c/x", "b/z", "b.txt"]);
        let (_, left_out) = items(std::slice::from_ref(&root)).unwrap();
        assert_eq!(left_out.len(), 2);
        assert!(left_out[1].ends_with("drive/link is left out, since it is a symbolic link"), "{left_out:?}");
        let message = |arguments: &[PathBuf]| names(arguments).unwrap_err().to_string();
        assert!(message(&[root.join("empty")]).ends_with("it has no files; name one that has files"));
        assert!(message(&[root.join("a"), root.join("b"), root.join("./a")]).contains("two files are named a"));
    }
}
