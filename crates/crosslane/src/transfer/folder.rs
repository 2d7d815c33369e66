//! A folder into which objects are received.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crosslane_core::time::Instant;
use nix::sys::statvfs::statvfs;

use super::receiving::{Left, Offer, Sink};

/// What the name of a file in part ends in.
const PART: &str = ".part";
/// Files in part that may lie about under one name.
const MAX_PARTS: u32 = 100;
/// Files of one sender open at once, as many as a sender of ours has open.
pub const MAX_OPEN: usize = 64;

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its size as the sender said it.
    pub size_bytes: u64,
    /// Bytes of it written.
    pub bytes: u64,
    /// Where they lie; `None`: nothing was kept.
    pub file: Option<PathBuf>,
    /// Why it is not complete; `None`: it is.
    pub left: Option<Left>,
    /// What it was refused for.
    pub text: String,
}

/// Writes each object into a file of its own, `NAME.part`, which becomes `NAME`
/// once it is complete, its digest is right and it is on the disk. A file that
/// has the name is replaced; one in part stays.
pub struct Folder<Tell> {
    folder: PathBuf,
    open: BTreeMap<u32, Incoming>,
    tell: Tell,
}

struct Incoming {
    kept: Kept,
    file: Option<File>,
}

impl<Tell: FnMut(Kept)> Folder<Tell> {
    /// `tell` hears of each object what became of it.
    pub fn new(folder: &Path, tell: Tell) -> Folder<Tell> {
        Folder { folder: folder.to_owned(), open: BTreeMap::new(), tell }
    }

    /// A new file for an object in part. No two objects share one, whoever
    /// writes into the folder.
    fn part(&self, name: &str) -> io::Result<(File, PathBuf)> {
        for number in 1..=MAX_PARTS {
            let number = if number == 1 { String::new() } else { format!(".{number}") };
            let path = self.folder.join(format!("{name}{number}{PART}"));
            match File::create_new(&path) {
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(cause),
                Ok(file) => return Ok((file, path)),
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("{MAX_PARTS} of its name lie there in part")))
    }

    fn has_room(&self, bytes: u64) -> io::Result<bool> {
        let disk = statvfs(&self.folder)?;
        Ok(bytes <= disk.blocks_available() as u64 * disk.fragment_size() as u64)
    }

    fn create(&self, offer: &Offer) -> Result<(File, PathBuf), String> {
        if self.open.values().filter(|incoming| incoming.file.is_some()).count() >= MAX_OPEN {
            return Err(format!("{MAX_OPEN} files of this sender are open; send it again when they are whole"));
        }
        if offer.name.ends_with(PART) {
            return Err(format!("names that end in {PART} are those of files in part; rename it"));
        }
        // What finds no place is better refused before it has come over a dear path.
        if !self.has_room(offer.size_bytes).map_err(unkept)? {
            return Err(unkept(ErrorKind::StorageFull.into()));
        }
        self.part(&offer.name).map_err(unkept)
    }

    fn store(&self, incoming: &mut Incoming) -> io::Result<()> {
        let (Some(file), Some(part)) = (incoming.file.take(), &incoming.kept.file) else { return Ok(()) };
        file.sync_all()?;
        let whole = self.folder.join(&incoming.kept.name);
        fs::rename(part, &whole)?;
        incoming.kept.file = Some(whole);
        // The name is on the disk only when the folder is.
        File::open(&self.folder)?.sync_all()
    }
}

impl<Tell: FnMut(Kept)> Sink for Folder<Tell> {
    fn begin(&mut self, offer: &Offer) -> Result<(), String> {
        let (name, size_bytes) = (offer.name.clone(), offer.size_bytes);
        let mut kept = Kept { name, size_bytes, bytes: 0, file: None, left: None, text: String::new() };
        let created = self.create(offer);
        let (file, result) = match created {
            Ok((file, path)) => {
                kept.file = Some(path);
                (Some(file), Ok(()))
            }
            Err(why) => {
                kept.text.clone_from(&why);
                (None, Err(why))
            }
        };
        self.open.insert(offer.number, Incoming { kept, file });
        result
    }

    fn put(&mut self, number: u32, bytes: &[u8]) -> Result<(), String> {
        let Some(Incoming { kept, file: Some(file) }) = self.open.get_mut(&number) else { return Ok(()) };
        let mut rest = bytes;
        // What fits before the disk is full stays usable, so it is counted.
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err(refused(kept, ErrorKind::StorageFull.into())),
                Ok(count) => {
                    kept.bytes += count as u64;
                    rest = &rest[count..];
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(refused(kept, cause)),
            }
        }
        Ok(())
    }

    fn complete(&mut self, number: u32, _: Instant) -> Result<(), String> {
        let Some(mut incoming) = self.open.remove(&number) else { return Ok(()) };
        match self.store(&mut incoming) {
            Ok(()) => {
                (self.tell)(incoming.kept);
                Ok(())
            }
            Err(cause) => {
                let why = refused(&mut incoming.kept, cause);
                self.open.insert(number, incoming);
                Err(why)
            }
        }
    }

    fn leave(&mut self, number: u32, why: Left) {
        let Some(Incoming { mut kept, .. }) = self.open.remove(&number) else { return };
        // A file of no bytes is of no use.
        if kept.bytes == 0
            && let Some(part) = kept.file.take()
        {
            drop(fs::remove_file(part));
        }
        kept.left = Some(why);
        (self.tell)(kept);
    }
}

fn refused(kept: &mut Kept, cause: io::Error) -> String {
    kept.text = unkept(cause);
    kept.text.clone()
}

/// What the sender is told.
fn unkept(cause: io::Error) -> String {
    let remedy = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "make room there",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "let the receiver write into its folder",
        ErrorKind::NotFound | ErrorKind::NotADirectory => "make the receiver's folder anew",
        ErrorKind::AlreadyExists => "move those away at the receiver",
        ErrorKind::IsADirectory => "rename it, for a folder has its name there",
        ErrorKind::InvalidFilename => "give it a shorter name",
        _ => "look at the receiver's disk",
    };
    format!("{cause}; {remedy} and send it again")
}
