//! A folder into which objects are received.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::{PIECE_BYTES, bytes, extent, is_resumable, pieces};
use nix::sys::statvfs::statvfs;

use super::receiving::{Incomplete, Offer, Sink};
use crate::durable_file::sync_folder;

mod growing;
mod parts;

use growing::{Growing, OpenPart};
pub use parts::Parts;
use parts::{Content, Held, Part, RESERVED};

/// A state of a partial file is written after so many new bytes, or this part of the file.
const STATE_BYTES: u64 = 1_000_000;
const STATE_SHARE: u64 = 500;
/// Longest name of a file that leaves room for the suffixes of a state.
const MAX_RESUMED_NAME: usize = 255 - ".100.part.state.new".len();
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

/// What happens to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An object with this name was received in part before: why it goes on, or why not.
    Resumed(String, String),
    /// It ends.
    Ended(Kept),
}

/// Writes each object into a separate file, `NAME.part`, which is renamed to
/// `NAME` once it is complete, its digest is right and it is on the disk. An
/// existing `NAME` is replaced; a partial file is kept, and continued when the
/// same content is offered again.
pub struct Folder<'a, Report> {
    parts: &'a Parts,
    open: BTreeMap<u32, Incoming<'a>>,
    /// Files that grow, by name, and their open parts.
    growing: BTreeMap<String, Growing<'a>>,
    open_parts: BTreeMap<u32, OpenPart>,
    /// A later transfer is to go on with an object of this one.
    wanted: Arc<AtomicBool>,
    report: Report,
}

struct Incoming<'a> {
    kept: Kept,
    part: Option<Part>,
    /// Of an object that can be resumed.
    held: Option<Held<'a>>,
    /// Bytes written after a gap: the end of each range by its start.
    after_gap: BTreeMap<u64, u64>,
    /// Bytes written that no state claims.
    unsaved: u64,
    saving: Option<JoinHandle<io::Result<()>>>,
}

impl<'a, Report: FnMut(Notice)> Folder<'a, Report> {
    /// `report` receives what happens to each object.
    pub fn new(parts: &'a Parts, report: Report) -> Folder<'a, Report> {
        let (growing, open_parts) = (BTreeMap::new(), BTreeMap::new());
        Folder { parts, open: BTreeMap::new(), growing, open_parts, wanted: Arc::default(), report }
    }

    fn check(&self, offer: &Offer) -> Result<(), String> {
        let open = self.open.values().filter(|incoming| incoming.part.is_some()).count() + self.growing.len();
        if open >= MAX_OPEN {
            return Err(format!("{MAX_OPEN} files of this sender are open; send it again when they are complete"));
        }
        if let Some(suffix) = RESERVED.into_iter().find(|suffix| offer.name.ends_with(suffix)) {
            return Err(format!("names that end in {suffix} are reserved for partial files; rename it"));
        }
        self.parts.prepare(&offer.name).map_err(refusal)
    }

    /// Refused before it is sent, since it may use an expensive path.
    fn check_space(&self, bytes: u64) -> Result<(), String> {
        let disk = statvfs(&self.parts.folder).map_err(|errno| refusal(errno.into()))?;
        let free = disk.blocks_available() as u64 * disk.fragment_size() as u64;
        if bytes > free { Err(refusal(ErrorKind::StorageFull.into())) } else { Ok(()) }
    }

    fn create(&mut self, offer: &Offer, incoming: &mut Incoming<'a>) -> Result<Ranges, String> {
        self.check(offer)?;
        let Offer { size_bytes, modified_ns, .. } = *offer;
        let part = if is_resumable(size_bytes, modified_ns) && has_room_for_state(&offer.name) {
            let content = Content { name: offer.name.clone(), size_bytes, modified_ns };
            let (part, held, text) = self.parts.resume(&content, &self.wanted).map_err(refusal)?;
            incoming.held = held;
            if let Some(text) = text {
                (self.report)(Notice::Resumed(offer.name.clone(), text));
            }
            part
        } else {
            self.parts.create(&offer.name).map_err(refusal)?
        };
        let there = part.pieces.clone();
        incoming.begin(part);
        self.check_space(size_bytes - bytes(size_bytes, &there)).map(|()| there)
    }

    /// Writes the state of an object whose new bytes are many enough, while no other one is being written.
    fn save_some(&mut self, number: u32) -> io::Result<()> {
        let is_busy = |incoming: &Incoming<'_>| incoming.saving.as_ref().is_some_and(|saving| !saving.is_finished());
        let is_due = |incoming: &Incoming<'_>| {
            incoming.unsaved >= STATE_BYTES.max(incoming.kept.size_bytes / STATE_SHARE) && incoming.held.is_some()
        };
        if !self.open.get(&number).is_some_and(is_due) || self.open.values().any(is_busy) {
            return Ok(());
        }
        self.open.get_mut(&number).map_or(Ok(()), Incoming::save)
    }

    fn store(&self, incoming: &mut Incoming<'_>) -> io::Result<()> {
        incoming.await_state()?;
        let Some(part) = incoming.part.take() else { return Ok(()) };
        incoming.kept.file = Some(self.rename(&incoming.kept.name, &part)?);
        Ok(())
    }

    /// Gives a complete file its name.
    fn rename(&self, name: &str, part: &Part) -> io::Result<PathBuf> {
        part.file.sync_all()?;
        self.parts.prepare(name)?;
        let whole = self.parts.folder.join(name);
        fs::rename(&part.path, &whole)?;
        parts::forget(&part.path);
        sync_folder(&whole)?;
        Ok(whole)
    }
}

impl<Report: FnMut(Notice)> Sink for Folder<'_, Report> {
    fn begin(&mut self, offer: &Offer) -> Result<Ranges, String> {
        if let Some(place) = offer.part {
            return self.begin_part(offer, place);
        }
        let (name, size_bytes) = (offer.name.clone(), offer.size_bytes);
        let kept = Kept { name, size_bytes, bytes: 0, file: None, incomplete: None, text: String::new() };
        let (after_gap, unsaved) = (BTreeMap::new(), 0);
        let mut incoming = Incoming { kept, part: None, held: None, after_gap, unsaved, saving: None };
        let created = self.create(offer, &mut incoming);
        incoming.kept.text = created.clone().err().unwrap_or_default();
        self.open.insert(offer.number, incoming);
        created
    }

    fn put(&mut self, number: u32, offset: u64, bytes: &[u8]) -> Result<(), String> {
        if let Some((part, growing)) = self.part(number) {
            let written = growing.map_or(Ok(()), |growing| growing.write(part, offset, bytes));
            return written.map_err(|cause| self.refuse_part(number, refusal(cause)));
        }
        let Some(incoming) = self.open.get_mut(&number) else { return Ok(()) };
        let written = incoming.write(offset, bytes).and_then(|()| self.save_some(number));
        let Some(incoming) = self.open.get_mut(&number) else { return Ok(()) };
        written.map_err(|cause| refused(&mut incoming.kept, cause))
    }

    fn read(&mut self, number: u32, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        if let Some((part, Some(growing))) = self.part(number) {
            return growing.read(part, offset, buffer).map_err(|cause| self.refuse_part(number, refusal(cause)));
        }
        let Some(Incoming { kept, part: Some(part), .. }) = self.open.get_mut(&number) else { return Ok(()) };
        part.file.read_exact_at(buffer, offset).map_err(|cause| refused(kept, cause))
    }

    fn is_superseded(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    fn complete(&mut self, number: u32, _: Instant) -> Result<(), String> {
        if self.open_parts.contains_key(&number) {
            return self.complete_part(number).map_err(|text| self.refuse_part(number, text));
        }
        let Some(mut incoming) = self.open.remove(&number) else { return Ok(()) };
        if let Err(cause) = self.store(&mut incoming) {
            let why = refused(&mut incoming.kept, cause);
            self.open.insert(number, incoming);
            return Err(why);
        }
        (self.report)(Notice::Ended(incoming.kept));
        Ok(())
    }

    fn incomplete(&mut self, number: u32, why: Incomplete) {
        if let Some(part) = self.open_parts.remove(&number) {
            return self.incomplete_part(part, why, String::new());
        }
        let Some(mut incoming) = self.open.remove(&number) else { return };
        let is_wrong = matches!(why, Incomplete::Differs | Incomplete::Abandoned(Abandoned::Changed));
        if is_wrong || !incoming.keep() {
            incoming.discard();
        }
        incoming.kept.incomplete = Some(why);
        (self.report)(Notice::Ended(incoming.kept));
    }

    fn end(&mut self) {
        self.end_growing();
    }
}

impl Incoming<'_> {
    fn begin(&mut self, part: Part) {
        let size_bytes = self.kept.size_bytes;
        let offset = |index| extent(u64::MAX, index).0.min(size_bytes);
        self.after_gap = part.pieces.iter().map(|range| (offset(range.start), offset(range.end))).collect();
        self.kept.bytes = self.after_gap.remove(&0).unwrap_or(0);
        self.kept.file = Some(part.path.clone());
        self.part = Some(part);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        let mut written = 0;
        let mut fault = None;
        // The bytes written before the disk is full stay usable, so they are counted.
        while written < bytes.len() && fault.is_none() {
            match part.file.write_at(&bytes[written..], offset + written as u64) {
                Ok(0) => fault = Some(ErrorKind::StorageFull.into()),
                Ok(count) => written += count,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => fault = Some(cause),
            }
        }
        self.unsaved += written as u64;
        self.after_gap.insert(offset, offset + written as u64);
        while let Some(end) = self.after_gap.remove(&self.kept.bytes) {
            self.kept.bytes = end;
        }
        fault.map_or(Ok(()), Err)
    }

    /// The whole pieces that are there, as ranges.
    fn pieces(&self) -> Vec<(u32, u32)> {
        let size_bytes = self.kept.size_bytes;
        let piece = |bytes: u64| if bytes == size_bytes { pieces(bytes) } else { (bytes / PIECE_BYTES) as u32 };
        let mut all: Vec<(u32, u32)> = Vec::new();
        for (start, end) in std::iter::once((0, self.kept.bytes)).chain(self.after_gap.iter().map(|(a, b)| (*a, *b))) {
            match (piece(start), piece(end)) {
                (start, end) if start >= end => {}
                (start, end) => match all.last_mut() {
                    Some(last) if last.1 == start => last.1 = end,
                    _ => all.push((start, end)),
                },
            }
        }
        all
    }

    /// Begins to write its state, beside the transfer: a disk may need long.
    fn save(&mut self) -> io::Result<()> {
        self.await_state()?;
        let (Some(part), Some(held)) = (&self.part, &self.held) else { return Ok(()) };
        let (file, path, content) = (part.file.clone(), part.path.clone(), held.content.clone());
        let pieces = self.pieces();
        let save = move || parts::save(&file, &path, content, pieces);
        self.saving = Some(std::thread::Builder::new().spawn(save)?);
        self.unsaved = 0;
        Ok(())
    }

    fn await_state(&mut self) -> io::Result<()> {
        let Some(saving) = self.saving.take() else { return Ok(()) };
        saving.join().unwrap_or_else(|_| Err(io::Error::other("the state could not be written")))
    }

    /// Writes its last state; false if it cannot be resumed. On a full disk the state before is right too.
    fn keep(&mut self) -> bool {
        let is_kept = self.held.is_some() && self.part.is_some() && !self.pieces().is_empty();
        if is_kept {
            drop(self.save().and_then(|()| self.await_state()));
        }
        is_kept
    }

    /// Keeps what it has from its beginning on: what follows a gap is useless, and so is an empty file.
    fn discard(&mut self) {
        drop(self.await_state());
        let Some(part) = self.part.take() else { return };
        parts::forget(&part.path);
        drop(part.file.set_len(self.kept.bytes));
        if self.kept.bytes == 0 {
            drop(fs::remove_file(&part.path));
            self.kept.file = None;
        }
    }
}

/// Whether the name of a file leaves room for the suffixes of a state; else it is not resumed.
fn has_room_for_state(name: &str) -> bool {
    name.rsplit('/').next().unwrap_or(name).len() <= MAX_RESUMED_NAME
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
        ErrorKind::NotFound => "create the receiver's folder again",
        ErrorKind::NotADirectory => "move it away at the receiver",
        ErrorKind::AlreadyExists => "move those away at the receiver",
        ErrorKind::IsADirectory => "rename it, since a folder has its name there",
        ErrorKind::InvalidFilename => "give it a shorter name",
        _ => "check the receiver's disk",
    };
    format!("{cause}; {remedy} and send it again")
}
