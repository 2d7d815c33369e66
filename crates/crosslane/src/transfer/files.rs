//! Files to be sent.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::Outcome;

use super::sending::{Content, News, Object, Source};
use crate::control::demand::{AdmissionReport, Reply};

/// A file to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Where it lies.
    pub path: PathBuf,
    /// Its name at the receiver.
    pub name: String,
    /// When it comes up.
    pub start: Instant,
    /// When it is to be there.
    pub deadline: Option<Instant>,
}

/// How it went with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It lies at the receiver, every byte as it was sent.
    Stored,
    /// What came differs from what was sent.
    Differs,
    /// The receiver cannot keep it.
    Refused,
    /// It was given up here.
    Abandoned(Abandoned),
}

/// What is known of a file.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The file.
    pub upload: Upload,
    /// Its size as it came up.
    pub size_bytes: u64,
    /// Bytes of it acknowledged by the peer's kernel.
    pub acked_bytes: u64,
    /// How it went; `None` while that is not known.
    pub ending: Option<Ending>,
    /// When it was known, less the time that the receiver needed to store it.
    pub ended: Option<Instant>,
    /// What the receiver says about it.
    pub text: String,
    /// What the agent said of its deadline.
    pub admission: Option<AdmissionReport>,
}

impl Sent {
    /// From its coming up to its last byte at the receiver: an upper bound, with
    /// the receipt's way back. Only of what was stored.
    pub fn completion(&self) -> Option<Duration> {
        let stored = self.ending == Some(Ending::Stored);
        self.ended.filter(|_| stored).map(|ended| ended.since(self.upload.start))
    }

    /// Was it there in time? `None` without a deadline.
    pub fn in_time(&self) -> Option<bool> {
        let stored = self.ending == Some(Ending::Stored);
        let before = |deadline| stored && self.ended.is_some_and(|ended| ended <= deadline);
        self.upload.deadline.map(before)
    }
}

/// A source of files, which come up in the order given.
pub struct Files<Tell> {
    all: Vec<Sent>,
    next: usize,
    /// Place of each object.
    places: BTreeMap<u32, usize>,
    tell: Tell,
}

impl<Tell: FnMut(&News, Option<&Sent>)> Files<Tell> {
    /// `tell` hears all news, with the file that they are of, if any.
    pub fn new(uploads: impl IntoIterator<Item = Upload>, tell: Tell) -> Files<Tell> {
        let sent = |upload| Sent {
            upload,
            size_bytes: 0,
            acked_bytes: 0,
            ending: None,
            ended: None,
            text: String::new(),
            admission: None,
        };
        Files { all: uploads.into_iter().map(sent).collect(), next: 0, places: BTreeMap::new(), tell }
    }

    /// All files, in the order given.
    pub fn all(&self) -> &[Sent] {
        &self.all
    }

    fn place(&self, news: &News) -> Option<usize> {
        let number = match news {
            News::Numbered(_) => return self.next.checked_sub(1),
            News::Acknowledged(number, _) | News::Written(number) | News::Abandoned(number, _) => *number,
            News::Receipt(receipt) => receipt.number,
            News::Agent(Reply::Admission(judged)) => u32::try_from(judged.number).ok()?,
            News::Agent(_) => return None,
        };
        self.places.get(&number).copied()
    }
}

impl<Tell: FnMut(&News, Option<&Sent>)> Source for Files<Tell> {
    fn next_due(&self) -> Option<Instant> {
        self.all.get(self.next).map(|sent| sent.upload.start)
    }

    fn take(&mut self) -> Option<Object> {
        let sent = self.all.get_mut(self.next)?;
        self.next += 1;
        let Upload { path, name, start, deadline } = sent.upload.clone();
        let content: Box<dyn Content> = match FileContent::open(&path) {
            Ok(content) => Box::new(content),
            Err(_) => Box::new(Nothing),
        };
        sent.size_bytes = content.size_bytes();
        Some(Object { name, start, deadline, content })
    }

    fn hear(&mut self, now: Instant, news: News) {
        let place = self.place(&news);
        if let (News::Numbered(number), Some(place)) = (&news, place) {
            self.places.insert(*number, place);
        }
        if let Some(sent) = place.and_then(|place| self.all.get_mut(place)) {
            sent.hear(now, &news);
        }
        (self.tell)(&news, place.and_then(|place| self.all.get(place)));
    }
}

impl Sent {
    fn hear(&mut self, now: Instant, news: &News) {
        match news {
            News::Acknowledged(_, bytes) => self.acked_bytes = *bytes,
            News::Agent(Reply::Admission(judged)) => self.admission = Some(*judged),
            News::Abandoned(_, why) => self.end(now, Ending::Abandoned(*why)),
            // Of what was abandoned here the receiver says no more than we know.
            News::Receipt(receipt) if self.ending.is_none() => {
                let ending = match receipt.outcome {
                    Outcome::Stored => Ending::Stored,
                    Outcome::Differs => Ending::Differs,
                    Outcome::Refused | Outcome::Partial => Ending::Refused,
                };
                if ending == Ending::Stored {
                    self.acked_bytes = self.size_bytes;
                }
                // What a stranger writes may not steer our terminal.
                self.text = receipt.text.chars().filter(|letter| !letter.is_control()).collect();
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
    begun: Metadata,
    left: u64,
}

impl FileContent {
    /// Opens a file.
    ///
    /// # Errors
    /// It is not there, may not be read, or is no file: a folder, a pipe.
    pub fn open(path: &Path) -> io::Result<FileContent> {
        // Opened by name, a pipe without a writer would wait for one.
        match std::fs::metadata(path)?.file_type() {
            kind if kind.is_file() => {}
            kind if kind.is_dir() => return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
            _ => return Err(io::Error::new(ErrorKind::InvalidInput, "it is no file")),
        }
        let file = File::open(path)?;
        let begun = file.metadata()?;
        Ok(FileContent { file, left: begun.len(), begun })
    }

    fn has_changed(&self) -> io::Result<bool> {
        let now = self.file.metadata()?;
        let when = |of: &Metadata| (of.len(), of.mtime(), of.mtime_nsec());
        Ok(when(&now) != when(&self.begun))
    }
}

impl Content for FileContent {
    fn size_bytes(&self) -> u64 {
        self.begun.len()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Abandoned> {
        self.file.read_exact(buffer).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => Abandoned::Changed,
            _ => Abandoned::Unreadable,
        })?;
        self.left = self.left.saturating_sub(buffer.len() as u64);
        match self.left == 0 && self.has_changed().map_err(|_| Abandoned::Unreadable)? {
            true => Err(Abandoned::Changed),
            false => Ok(()),
        }
    }
}

/// Of a file that is gone as it comes up.
struct Nothing;

impl Content for Nothing {
    fn size_bytes(&self) -> u64 {
        0
    }

    fn read(&mut self, _: &mut [u8]) -> Result<(), Abandoned> {
        Err(Abandoned::Unreadable)
    }
}
