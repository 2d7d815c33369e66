//! Files that grow: what is appended is sent as it appears, until the user or an idle time ends them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::Outcome;
use crosslane_core::transfer::multipath::frame::Part;

use super::files::{Ending, FileContent, Sent, Upload};
use super::source::{Content, News, Object, Source};
use crate::clock::Clock;

/// Interval at which it is looked for new bytes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How files are followed.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// When each part is to be at the receiver, after it was seen.
    pub deadline: Option<Duration>,
    /// A file ends when nothing was appended for this long.
    pub idle: Option<Duration>,
    /// All files end once this is set.
    pub end: &'a AtomicBool,
}

/// A source of files that grow.
pub struct Followed<'a, Report> {
    rules: Rules<'a>,
    clock: Clock,
    files: Vec<Growing>,
    all: Vec<Sent>,
    /// The file to look at next, and when.
    cursor: usize,
    next_poll: Instant,
    /// Index and size of each open part's file.
    open: BTreeMap<u32, OpenPart>,
    report: Report,
}

struct Growing {
    file: Arc<File>,
    /// When it was created, in ns since 1970; 0: not known.
    created_ns: u64,
    /// Bytes taken, and when they last became more.
    taken: u64,
    last_growth: Instant,
    /// Size of the part taken last.
    last_bytes: u64,
    /// Parts without a receipt, and bytes of those that have one.
    open: usize,
    stored: u64,
    is_ended: bool,
}

struct OpenPart {
    place: usize,
    size_bytes: u64,
    deadline: Option<Instant>,
    is_last: bool,
}

impl<'a, Report: FnMut(&News, Option<&Sent>)> Followed<'a, Report> {
    /// `report` receives all news, with the file that they refer to, if any.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn new(uploads: Vec<Upload>, rules: Rules<'a>, clock: Clock, report: Report) -> io::Result<Self> {
        let now = clock.now();
        let files: io::Result<_> = uploads.iter().map(|upload| Growing::open(&upload.path, now)).collect();
        let all = uploads.into_iter().map(|upload| Sent { parts: Some(0), ..Sent::new(upload) }).collect();
        let (open, next_poll) = (BTreeMap::new(), Instant::ZERO);
        Ok(Followed { rules, clock, files: files?, all, cursor: 0, next_poll, open, report })
    }

    /// All files, in the order given.
    pub fn all(&self) -> &[Sent] {
        &self.all
    }

    /// The next part of a file: what was appended, or its end.
    fn part(&mut self, now: Instant, place: usize) -> Option<Object> {
        let growing = self.files.get_mut(place)?;
        if growing.is_ended {
            return None;
        }
        let size = growing.file.metadata().map_or(0, |found| found.len());
        let is_shorter = size < growing.taken;
        if size > growing.taken {
            growing.last_growth = now;
        }
        let is_idle = self.rules.idle.is_some_and(|idle| now.since(growing.last_growth) >= idle);
        let is_over = size <= growing.taken && (is_idle || self.rules.end.load(Ordering::Relaxed));
        // The receiver has no gap when the last part arrives.
        let is_last = is_over && growing.open == 0;
        if !(size > growing.taken || is_shorter || is_last) {
            return None;
        }
        let part = Part { offset: growing.taken, is_last };
        let size_bytes = size.saturating_sub(growing.taken);
        growing.taken += size_bytes;
        growing.last_bytes = size_bytes;
        growing.open += 1;
        growing.is_ended = is_last || is_shorter;
        let (file, created_ns) = (growing.file.clone(), growing.created_ns);
        let content = PartContent { file, created_ns, offset: part.offset, size_bytes, is_shorter };
        let sent = &mut self.all[place];
        sent.size_bytes = growing.taken;
        let deadline = self.rules.deadline.map(|after| now + after);
        let (name, content) = (sent.upload.name.clone(), Box::new(content));
        Some(Object { name, start: now, deadline, content, part: Some(part), is_droppable: false })
    }

    fn update(&mut self, now: Instant, news: &News) -> Option<usize> {
        let number = match news {
            News::Numbered(number) => {
                let place = self.cursor;
                let sent = self.all.get_mut(place)?;
                let growing = self.files.get(place)?;
                let size_bytes = growing.last_bytes;
                sent.upload.deadline = self.rules.deadline.map(|after| now + after);
                let (deadline, is_last) = (sent.upload.deadline, growing.is_ended);
                self.open.insert(*number, OpenPart { place, size_bytes, deadline, is_last });
                return Some(place);
            }
            News::Acknowledged(number, _) | News::Resumed(number, _) => *number,
            News::Written(number) | News::Abandoned(number, _) => *number,
            News::Receipt(receipt) => receipt.number,
            _ => return None,
        };
        let place = self.open.get(&number)?.place;
        let sent = self.all.get_mut(place)?;
        match news {
            News::Resumed(_, bytes) => sent.resumed_bytes += bytes,
            News::Abandoned(_, why) => self.close(now, number, Err(Ending::Abandoned(*why))),
            News::Receipt(receipt) => {
                sent.text = super::printable(&receipt.text);
                let result = match receipt.outcome {
                    Outcome::Stored => Ok(()),
                    Outcome::Differs => Err(Ending::Differs),
                    Outcome::Refused | Outcome::Partial => Err(Ending::Refused),
                };
                let last = now.as_nanos().saturating_sub(receipt.waited.as_nanos() as u64);
                self.close(Instant::from_nanos(last), number, result);
            }
            _ => {}
        }
        Some(place)
    }

    /// A part has a result.
    fn close(&mut self, at: Instant, number: u32, result: Result<(), Ending>) {
        let Some(part) = self.open.remove(&number) else { return };
        let (Some(growing), Some(sent)) = (self.files.get_mut(part.place), self.all.get_mut(part.place)) else {
            return;
        };
        growing.open -= 1;
        sent.late_parts += u32::from(part.deadline.is_some_and(|deadline| at > deadline));
        match result {
            Ok(()) => {
                growing.stored += part.size_bytes;
                sent.acked_bytes = growing.stored;
                sent.parts = sent.parts.map(|parts| parts + 1);
                if part.is_last && sent.ending.is_none() {
                    (sent.ending, sent.ended) = (Some(Ending::Stored), Some(at));
                }
            }
            Err(ending) => {
                growing.is_ended = true;
                if sent.ending.is_none() {
                    (sent.ending, sent.ended) = (Some(ending), Some(at));
                }
            }
        }
    }
}

impl<Report: FnMut(&News, Option<&Sent>)> Source for Followed<'_, Report> {
    fn next_due(&self) -> Option<Instant> {
        self.files.iter().any(|file| !file.is_ended).then_some(self.next_poll)
    }

    fn take(&mut self) -> Option<Object> {
        let now = self.clock.now();
        for place in self.cursor..self.files.len() {
            self.cursor = place;
            if let Some(object) = self.part(now, place) {
                return Some(object);
            }
        }
        (self.cursor, self.next_poll) = (0, now + POLL_INTERVAL);
        None
    }

    fn on_news(&mut self, now: Instant, news: News) {
        // The prediction of a part is of no use after the next one.
        if matches!(news, News::Admission(_)) {
            return;
        }
        let ended = |all: &[Sent]| all.iter().filter(|sent| sent.ending.is_some()).count();
        let before = ended(&self.all);
        let place = self.update(now, &news);
        let sent = place.and_then(|place| self.all.get(place));
        // A file that has ended was reported.
        let is_known = ended(&self.all) == before && sent.is_some_and(|sent| sent.ending.is_some());
        if !is_known {
            (self.report)(&news, sent);
        }
    }
}

impl Growing {
    fn open(path: &Path, now: Instant) -> io::Result<Growing> {
        // It is a regular file.
        drop(FileContent::open(path)?);
        let file = File::open(path)?;
        let created = file.metadata().and_then(|found| found.created()).ok();
        let since = created.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let created_ns = u64::try_from(since.as_nanos()).unwrap_or(0);
        let (file, taken) = (Arc::new(file), 0);
        Ok(Growing { file, created_ns, taken, last_growth: now, last_bytes: 0, open: 0, stored: 0, is_ended: false })
    }
}

/// The bytes of a part, which does not change: only what follows it does.
struct PartContent {
    file: Arc<File>,
    created_ns: u64,
    offset: u64,
    size_bytes: u64,
    is_shorter: bool,
}

impl Content for PartContent {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modified_ns(&self) -> u64 {
        self.created_ns
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), Abandoned> {
        if self.is_shorter {
            return Err(Abandoned::Changed);
        }
        self.file.read_exact_at(buffer, self.offset + offset).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => Abandoned::Changed,
            _ => Abandoned::Unreadable,
        })
    }
}
