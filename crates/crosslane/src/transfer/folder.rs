//! A folder into which objects are received.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crosslane_core::time::Instant;
use nix::sys::statvfs::statvfs;

use super::receiving::{Incomplete, Offer, Sink};

/// Suffix of the name of a partial file.
const PART: &str = ".part";
/// Maximum number of partial files of one name.
const MAX_PARTS: u32 = 100;
/// Maximum number of open files of one sender, as many as our sender has open.
pub const MAX_OPEN: usize = 64;

/// Result of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its size as offered by the sender.
    pub size_bytes: u64,
    /// Bytes written from its beginning on, without a gap.
    pub bytes: u64,
    /// Path of the file; `None`: nothing was kept.
    pub file: Option<PathBuf>,
    /// Why it is incomplete; `None`: it is complete.
    pub incomplete: Option<Incomplete>,
    /// Why it was refused.
    pub text: String,
}

/// Writes each object into a separate file, `NAME.part`, which is renamed to
/// `NAME` once it is complete, its digest is right and it is on the disk. An
/// existing `NAME` is replaced; a partial file is kept.
pub struct Folder<Report> {
    folder: PathBuf,
    open: BTreeMap<u32, Incoming>,
    report: Report,
}

struct Incoming {
    kept: Kept,
    file: Option<File>,
    /// Bytes written after a gap: the end of each range by its start.
    after_gap: BTreeMap<u64, u64>,
}

impl<Report: FnMut(Kept)> Folder<Report> {
    /// `report` receives the result of each object.
    pub fn new(folder: &Path, report: Report) -> Folder<Report> {
        Folder { folder: folder.to_owned(), open: BTreeMap::new(), report }
    }

    /// A new partial file. No two objects share one, even if other programs write
    /// into the folder.
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
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("{MAX_PARTS} partial files of its name exist")))
    }

    fn create(&self, offer: &Offer) -> Result<(File, PathBuf), String> {
        if self.open.values().filter(|incoming| incoming.file.is_some()).count() >= MAX_OPEN {
            return Err(format!("{MAX_OPEN} files of this sender are open; send it again when they are complete"));
        }
        if offer.name.ends_with(PART) {
            return Err(format!("names that end in {PART} are reserved for partial files; rename it"));
        }
        // Refused before it is sent, since it may use an expensive path.
        let disk = statvfs(&self.folder).map_err(|errno| refusal(errno.into()))?;
        if offer.size_bytes > disk.blocks_available() as u64 * disk.fragment_size() as u64 {
            return Err(refusal(ErrorKind::StorageFull.into()));
        }
        self.part(&offer.name).map_err(refusal)
    }

    fn store(&self, incoming: &mut Incoming) -> io::Result<()> {
        let (Some(file), Some(part)) = (incoming.file.take(), &incoming.kept.file) else { return Ok(()) };
        file.sync_all()?;
        let whole = self.folder.join(&incoming.kept.name);
        fs::rename(part, &whole)?;
        incoming.kept.file = Some(whole);
        // The new name is durable only after the folder is synced.
        File::open(&self.folder)?.sync_all()
    }
}

impl<Report: FnMut(Kept)> Sink for Folder<Report> {
    fn begin(&mut self, offer: &Offer) -> Result<(), String> {
        let (name, size_bytes) = (offer.name.clone(), offer.size_bytes);
        let kept = Kept { name, size_bytes, bytes: 0, file: None, incomplete: None, text: String::new() };
        let mut incoming = Incoming { kept, file: None, after_gap: BTreeMap::new() };
        let created = self.create(offer).map(|(file, path)| {
            incoming.file = Some(file);
            incoming.kept.file = Some(path);
        });
        incoming.kept.text = created.clone().err().unwrap_or_default();
        self.open.insert(offer.number, incoming);
        created
    }

    fn put(&mut self, number: u32, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let Some(Incoming { kept, file: Some(file), after_gap }) = self.open.get_mut(&number) else { return Ok(()) };
        let mut written = 0;
        let mut fault = None;
        // The bytes written before the disk is full stay usable, so they are counted.
        while written < bytes.len() && fault.is_none() {
            match file.write_at(&bytes[written..], offset + written as u64) {
                Ok(0) => fault = Some(ErrorKind::StorageFull.into()),
                Ok(count) => written += count,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => fault = Some(cause),
            }
        }
        after_gap.insert(offset, offset + written as u64);
        while let Some(end) = after_gap.remove(&kept.bytes) {
            kept.bytes = end;
        }
        fault.map_or(Ok(()), |cause| Err(refused(kept, cause)))
    }

    fn complete(&mut self, number: u32, _: Instant) -> Result<(), String> {
        let Some(mut incoming) = self.open.remove(&number) else { return Ok(()) };
        if let Err(cause) = self.store(&mut incoming) {
            let why = refused(&mut incoming.kept, cause);
            self.open.insert(number, incoming);
            return Err(why);
        }
        (self.report)(incoming.kept);
        Ok(())
    }

    fn incomplete(&mut self, number: u32, why: Incomplete) {
        let Some(Incoming { mut kept, file, .. }) = self.open.remove(&number) else { return };
        // What follows a gap is useless, and so is an empty file.
        drop(file.map(|file| file.set_len(kept.bytes)));
        if kept.bytes == 0
            && let Some(part) = kept.file.take()
        {
            drop(fs::remove_file(part));
        }
        kept.incomplete = Some(why);
        (self.report)(kept);
    }
}

fn refused(kept: &mut Kept, cause: io::Error) -> String {
    kept.text = refusal(cause);
    kept.text.clone()
}

/// The message for the sender.
fn refusal(cause: io::Error) -> String {
    let remedy = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "make room there",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "let the receiver write into its folder",
        ErrorKind::NotFound | ErrorKind::NotADirectory => "create the receiver's folder again",
        ErrorKind::AlreadyExists => "move those away at the receiver",
        ErrorKind::IsADirectory => "rename it, since a folder has its name there",
        ErrorKind::InvalidFilename => "give it a shorter name",
        _ => "check the receiver's disk",
    };
    format!("{cause}; {remedy} and send it again")
}
