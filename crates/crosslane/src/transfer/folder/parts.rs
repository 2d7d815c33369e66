//! Partial files, and what is on the disk of each: `NAME.part` and `NAME.part.state`.
//!
//! The state claims only pieces that are on the disk, and is replaced in one step. It is a claim, not a proof: the
//! digest of the whole file is. A state that cannot be right is ignored.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crosslane_core::transfer::multipath::frame::MAX_RANGES;
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::{MAX_OBJECT_BYTES, bytes, extent, pieces};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::durable_file::{replace, sync_folder, with_suffix};

/// Suffix of the name of a partial file.
const PART: &str = ".part";
/// Suffixes of the names that no object may have.
pub(super) const RESERVED: [&str; 3] = [PART, ".part.state", ".part.state.new"];
/// Maximum number of partial files of one name.
const MAX_PARTS: u32 = 100;
/// Version of the state.
const VERSION: u32 = 1;
/// Maximum length of a state.
const MAX_STATE_BYTES: u64 = 64 * 1024;
/// Longest wait for an earlier transfer of the same file to end, in steps.
const HANDOVER_STEPS: u32 = 100;
const HANDOVER_STEP: Duration = Duration::from_millis(10);

/// What tells the contents of two files apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Content {
    pub name: String,
    pub size_bytes: u64,
    /// When it was last modified, in ns since 1970.
    pub modified_ns: u64,
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u32,
    #[serde(flatten)]
    content: Content,
    /// First piece and end of each range.
    pieces: Vec<(u32, u32)>,
    /// Of a file that grows: its bytes from the beginning on.
    #[serde(default)]
    bytes: u64,
}

/// The partial files of a folder, shared by its senders.
pub struct Parts {
    pub(super) folder: PathBuf,
    /// Files that are received and can be resumed; set: another transfer is to go on with it.
    held: Mutex<BTreeMap<Content, Arc<AtomicBool>>>,
}

/// A partial file, which no other transfer writes to.
pub(super) struct Part {
    pub file: Arc<Flock<File>>,
    pub path: PathBuf,
    /// The pieces that are there.
    pub pieces: Ranges,
    /// Of a file that grows: its bytes from the beginning on.
    pub bytes: u64,
}

/// A file that this transfer receives, until this is dropped.
pub(super) struct Held<'a> {
    parts: &'a Parts,
    pub content: Content,
}

impl Parts {
    /// The partial files of this folder.
    pub fn new(folder: &Path) -> Parts {
        Parts { folder: folder.to_owned(), held: Mutex::default() }
    }

    /// Creates the folders of a name below the folder. A symbolic link among them could lead out of it.
    pub(super) fn prepare(&self, name: &str) -> io::Result<()> {
        let mut path = self.folder.clone();
        for folder in name.rsplit_once('/').map_or("", |(folders, _)| folders).split_terminator('/') {
            path.push(folder);
            match fs::create_dir(&path) {
                Ok(()) => sync_folder(&path)?,
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(cause),
            }
            if !fs::symlink_metadata(&path)?.is_dir() {
                let text = format!("{} is a file or a symbolic link", path.display());
                return Err(io::Error::new(ErrorKind::NotADirectory, text));
            }
        }
        Ok(())
    }

    /// A new partial file. No two objects share one, even if other programs write into the folder.
    pub(super) fn create(&self, name: &str) -> io::Result<Part> {
        for path in self.paths(name) {
            match File::create_new(&path) {
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(cause),
                Ok(file) => {
                    forget(&path);
                    let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
                    return Ok(Part { file: Arc::new(file), path, pieces: Ranges::default(), bytes: 0 });
                }
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("{MAX_PARTS} partial files of its name exist")))
    }

    /// A partial file of this content, and a sentence about what was found. `wanted` is set when a later transfer is to
    /// go on with it; an earlier one is asked to end.
    pub(super) fn resume(
        &self,
        content: &Content,
        wanted: &Arc<AtomicBool>,
    ) -> io::Result<(Part, Option<Held<'_>>, Option<String>)> {
        let mut held = self.take_over(content, wanted);
        let mut found = Ok(None);
        for path in self.paths(&content.name) {
            match existing(&path, content) {
                Ok(None) => {}
                Err(why) => found = Err(why),
                Ok(part) => {
                    found = Ok(part);
                    break;
                }
            }
        }
        let (part, text) = match found {
            Ok(Some(part)) => {
                let there = match content.size_bytes {
                    MAX_OBJECT_BYTES => format!("{} bytes", part.bytes),
                    size_bytes => format!("{} of {size_bytes} bytes", bytes(size_bytes, &part.pieces)),
                };
                (part, Some(format!("it goes on: {there} are there")))
            }
            Ok(None) => (self.create(&content.name)?, None),
            Err(why) => (self.create(&content.name)?, Some(format!("it begins from nothing: {why}"))),
        };
        let is_ours = !held.contains_key(content);
        if is_ours {
            held.insert(content.clone(), wanted.clone());
        }
        drop(held);
        Ok((part, is_ours.then(|| Held { parts: self, content: content.clone() }), text))
    }

    fn paths(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        let suffix = |number| if number == 1 { String::new() } else { format!(".{number}") };
        (1..=MAX_PARTS).map(move |number| self.folder.join(format!("{name}{}{PART}", suffix(number))))
    }

    /// Waits until no earlier transfer receives this.
    fn take_over(
        &self,
        content: &Content,
        wanted: &Arc<AtomicBool>,
    ) -> MutexGuard<'_, BTreeMap<Content, Arc<AtomicBool>>> {
        for _ in 0..HANDOVER_STEPS {
            let held = self.lock();
            match held.get(content) {
                Some(other) if !Arc::ptr_eq(other, wanted) => other.store(true, Ordering::Relaxed),
                _ => return held,
            }
            drop(held);
            std::thread::sleep(HANDOVER_STEP);
        }
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Content, Arc<AtomicBool>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.parts.lock().remove(&self.content);
    }
}

/// The partial file with this path if it is of this content and not in use.
///
/// # Errors
/// Why it is not continued.
fn existing(path: &Path, content: &Content) -> Result<Option<Part>, String> {
    let state = with_suffix(path, ".state");
    if !state.exists() {
        return Ok(None);
    }
    // A symbolic link may lead out of the folder.
    let Ok(file) = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path) else {
        if !path.exists() {
            forget(path);
        }
        return Ok(None);
    };
    let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    let inode = |of: io::Result<fs::Metadata>| of.map(|of| of.ino()).ok();
    if inode(file.metadata()) != inode(fs::metadata(path)) {
        return Ok(None);
    }
    let claimed = match read(&state) {
        Ok(found) if found.content == *content => claimed(&found, &file).map(|pieces| (pieces, found.bytes)),
        Ok(found) if found.content.name == content.name => {
            return Err(format!("{} is of another version of it, by size or time of modification", path.display()));
        }
        Ok(_) => return Ok(None),
        Err(why) => Err(why),
    };
    match claimed {
        Ok((pieces, bytes)) => Ok(Some(Part { file: Arc::new(file), path: path.to_owned(), pieces, bytes })),
        Err(why) => {
            forget(path);
            Err(format!("{} is ignored, since {why}", state.display()))
        }
    }
}

/// The pieces that a state claims.
///
/// # Errors
/// Why it cannot be right.
fn claimed(state: &State, file: &File) -> Result<Ranges, String> {
    let size_bytes = state.content.size_bytes;
    let end = state.pieces.last().map_or(0, |(_, end)| *end);
    let ranges = Ranges::ascending(state.pieces.iter().map(|(start, end)| *start..*end));
    let Some(claimed) = ranges.filter(|_| end <= pieces(size_bytes)) else {
        return Err("it claims pieces that the file does not have".into());
    };
    let length = file.metadata().map_or(0, |found| found.len());
    match length < size_bytes.min(extent(u64::MAX, end).0).max(state.bytes) {
        true => Err("it claims more than the partial file has".into()),
        false => Ok(claimed),
    }
}

fn read(path: &Path) -> Result<State, String> {
    let mut text = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(MAX_STATE_BYTES).read_to_end(&mut text));
    opened.map_err(|cause| cause.to_string())?;
    let state: State = serde_json::from_slice(&text).map_err(|cause| format!("it is damaged ({cause})"))?;
    match state.version {
        VERSION => Ok(state),
        other => Err(format!("it has version {other}, where this program has version {VERSION}")),
    }
}

/// Writes the state of a partial file that has these pieces, once they are on the disk.
pub(super) fn save(file: &File, path: &Path, content: Content, ranges: Vec<(u32, u32)>) -> io::Result<()> {
    let pieces = ranges.into_iter().take(MAX_RANGES).collect();
    write(file, path, &State { version: VERSION, content, pieces, bytes: 0 })
}

/// The same of a file that grows, which has this many bytes.
pub(super) fn save_bytes(file: &File, path: &Path, content: Content, bytes: u64) -> io::Result<()> {
    write(file, path, &State { version: VERSION, content, pieces: Vec::new(), bytes })
}

fn write(file: &File, path: &Path, state: &State) -> io::Result<()> {
    file.sync_data()?;
    replace(&with_suffix(path, ".state"), &serde_json::to_vec(state)?)
}

/// Removes the state of a partial file.
pub(super) fn forget(path: &Path) {
    for suffix in [".state", ".state.new"] {
        drop(fs::remove_file(with_suffix(path, suffix)));
    }
}
