//! Files to be sent.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crosslane_core::demand::Admission;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::Outcome;

use super::printable;
use super::source::{Content, News, Object, Source};

/// A file to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Its path.
    pub path: PathBuf,
    /// Its name at the receiver.
    pub name: String,
    /// When it is generated.
    pub start: Instant,
    /// Its deadline.
    pub deadline: Option<Instant>,
}

/// Result of a file's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is stored at the receiver and its digest is right.
    Stored,
    /// The received bytes differ from those sent.
    Differs,
    /// The receiver cannot store it.
    Refused,
    /// The sender abandoned it.
    Abandoned(Abandoned),
}

/// State of a file's transfer.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The file.
    pub upload: Upload,
    /// Its size when it was generated.
    pub size_bytes: u64,
    /// Bytes of it that have arrived.
    pub acked_bytes: u64,
    /// Of these, bytes that the receiver had before.
    pub resumed_bytes: u64,
    /// Its result; `None` while unknown.
    pub ending: Option<Ending>,
    /// When the result arrived, minus the time that the receiver needed to store it.
    pub ended: Option<Instant>,
    /// The receiver's message about it.
    pub text: String,
    /// The prediction for its deadline.
    pub admission: Option<Admission>,
    /// Of a file that grows: the number of its parts that are stored.
    pub parts: Option<u32>,
    /// Of these, the parts that were late. The deadline is that of the last one.
    pub late_parts: u32,
}

impl Sent {
    pub(super) fn new(upload: Upload) -> Sent {
        Sent {
            upload,
            size_bytes: 0,
            acked_bytes: 0,
            resumed_bytes: 0,
            ending: None,
            ended: None,
            text: String::new(),
            admission: None,
            parts: None,
            late_parts: 0,
        }
    }

    /// Time from its generation to its last byte at the receiver: an upper bound,
    /// which includes the receipt's delay. Only for stored files.
    pub fn completion(&self) -> Option<Duration> {
        let stored = self.ending == Some(Ending::Stored);
        self.ended.filter(|_| stored).map(|ended| ended.since(self.upload.start))
    }

    /// Whether it arrived in time; `None` without a deadline.
    pub fn in_time(&self) -> Option<bool> {
        let stored = self.ending == Some(Ending::Stored);
        let before = |deadline| stored && self.late_parts == 0 && self.ended.is_some_and(|ended| ended <= deadline);
        self.upload.deadline.map(before)
    }
}

/// A source of files, which are generated in the order given.
pub struct Files<Report> {
    all: Vec<Sent>,
    next: usize,
    /// Index of each object's file.
    places: BTreeMap<u32, usize>,
    report: Report,
}

impl<Report: FnMut(&News, Option<&Sent>)> Files<Report> {
    /// `report` receives all news, with the file that they refer to, if any.
    pub fn new(uploads: impl IntoIterator<Item = Upload>, report: Report) -> Files<Report> {
        Files { all: uploads.into_iter().map(Sent::new).collect(), next: 0, places: BTreeMap::new(), report }
    }

    /// All files, in the order given.
    pub fn all(&self) -> &[Sent] {
        &self.all
    }

    fn place(&self, news: &News) -> Option<usize> {
        let number = match news {
            News::Numbered(_) => return self.next.checked_sub(1),
            News::Acknowledged(number, _) | News::Resumed(number, _) => *number,
            News::Written(number) | News::Abandoned(number, _) => *number,
            News::Receipt(receipt) => receipt.number,
            News::Admission(admission) => u32::try_from(admission.number).ok()?,
            News::Down(..) | News::Up(_) | News::Belief(..) | News::Carried(..) | News::Decision(_) => return None,
        };
        self.places.get(&number).copied()
    }
}

impl<Report: FnMut(&News, Option<&Sent>)> Source for Files<Report> {
    fn next_due(&self) -> Option<Instant> {
        self.all.get(self.next).map(|sent| sent.upload.start)
    }

    fn take(&mut self) -> Option<Object> {
        let sent = self.all.get_mut(self.next)?;
        self.next += 1;
        let Upload { path, name, start, deadline } = sent.upload.clone();
        let content = FileContent::open(&path).ok();
        sent.size_bytes = content.size_bytes();
        Some(Object { name, start, deadline, content: Box::new(content), part: None, is_droppable: false })
    }

    fn on_news(&mut self, now: Instant, news: News) {
        let place = self.place(&news);
        if let (News::Numbered(number), Some(place)) = (&news, place) {
            self.places.insert(*number, place);
        }
        if let Some(sent) = place.and_then(|place| self.all.get_mut(place)) {
            sent.update(now, &news);
        }
        (self.report)(&news, place.and_then(|place| self.all.get(place)));
    }
}

impl Sent {
    fn update(&mut self, now: Instant, news: &News) {
        match news {
            News::Acknowledged(_, bytes) => self.acked_bytes = *bytes,
            News::Resumed(_, bytes) => self.resumed_bytes = *bytes,
            News::Admission(admission) => self.admission = Some(*admission),
            News::Abandoned(_, why) => self.end(now, Ending::Abandoned(*why)),
            // A receipt for an abandoned file adds nothing.
            News::Receipt(receipt) if self.ending.is_none() => {
                let ending = match receipt.outcome {
                    Outcome::Stored => {
                        self.acked_bytes = self.size_bytes;
                        Ending::Stored
                    }
                    Outcome::Differs => Ending::Differs,
                    Outcome::Refused | Outcome::Partial => Ending::Refused,
                };
                self.text = printable(&receipt.text);
                let last = now.as_nanos().saturating_sub(receipt.waited.as_nanos() as u64);
                self.end(Instant::from_nanos(last), ending);
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Instant, ending: Ending) {
        (self.ending, self.ended) = (Some(ending), Some(at));
    }
}

/// The bytes of a file that does not change.
#[derive(Debug)]
pub struct FileContent {
    file: File,
    opened: Metadata,
}

impl FileContent {
    /// Opens a file.
    ///
    /// # Errors
    /// It does not exist, is not readable, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<FileContent> {
        // Opening a pipe without a writer would block.
        match std::fs::metadata(path)?.file_type() {
            kind if kind.is_file() => {}
            kind if kind.is_dir() => return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
            _ => return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file")),
        }
        let file = File::open(path)?;
        let opened = file.metadata()?;
        Ok(FileContent { file, opened })
    }

    fn has_changed(&self) -> io::Result<bool> {
        let now = self.file.metadata()?;
        let when = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
        Ok(when(&now) != when(&self.opened))
    }
}

/// `None`: the file no longer exists when it is generated.
impl Content for Option<FileContent> {
    fn size_bytes(&self) -> u64 {
        self.as_ref().map_or(0, |content| content.opened.len())
    }

    fn modified_ns(&self) -> u64 {
        let modified = self.as_ref().and_then(|content| content.opened.modified().ok());
        let since = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(0)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), Abandoned> {
        let content = self.as_mut().ok_or(Abandoned::Unreadable)?;
        content.file.read_exact_at(buffer, offset).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => Abandoned::Changed,
            _ => Abandoned::Unreadable,
        })?;
        let is_last = offset + buffer.len() as u64 == content.opened.len();
        match is_last && content.has_changed().map_err(|_| Abandoned::Unreadable)? {
            true => Err(Abandoned::Changed),
            false => Ok(()),
        }
    }
}
