//! Destination of the journal's lines: a file that is appended to and rotated
//! when it is full, or standard output.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crosslane_core::time::Instant;

use crate::output::write_promptly;

/// Suffix of the rotated file; one is kept.
const ROTATED_SUFFIX: &str = ".1";
/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes lines.
#[derive(Default)]
pub struct Sink {
    /// `None`: standard output.
    to: Option<Rotated>,
    /// Until when no write is tried, after a failed one.
    paused_until: Option<Instant>,
    /// The last line may be written in part.
    torn: bool,
}

struct Rotated {
    path: PathBuf,
    max_bytes: u64,
    open: Option<Open>,
}

struct Open {
    file: File,
    bytes: u64,
    /// A device or a pipe is never rotated.
    is_regular: bool,
}

impl Sink {
    /// A file that is appended to, opened with the first line. Beyond
    /// `max_bytes` it is renamed to `NAME.1` and a new one is begun.
    pub fn file(path: &Path, max_bytes: u64) -> Sink {
        Sink { to: Some(Rotated { path: path.into(), max_bytes, open: None }), ..Sink::default() }
    }

    /// Writes one line; `None` during the pause.
    ///
    /// # Errors
    /// The system's, or a pipe is full. This line and those of the next second are lost.
    pub fn write(&mut self, now: Instant, line: &str) -> Option<io::Result<()>> {
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        let written = match &mut self.to {
            None => write_promptly(io::stdout(), lines(self.torn, line).as_bytes()),
            Some(rotated) => rotated.write(self.torn, line),
        };
        self.torn = written.as_ref().is_err_and(|cause| self.torn || cause.kind() != ErrorKind::WouldBlock);
        self.paused_until = written.is_err().then(|| now + PAUSE);
        Some(written)
    }
}

/// The line, after a line break if the previous one may be written in part.
fn lines(torn: bool, line: &str) -> String {
    format!("{}{line}\n", if torn { "\n" } else { "" })
}

impl Rotated {
    fn write(&mut self, mut torn: bool, line: &str) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let open = Open::at(&self.path)?;
                torn = open.is_regular && open.bytes > 0 && last_byte(&self.path).is_ok_and(|last| last != b'\n');
                open
            }
        };
        let text = lines(torn, line);
        if open.is_regular && open.bytes > 0 && open.bytes + text.len() as u64 > self.max_bytes {
            open = self.rotate(open)?;
        }
        let open = self.open.insert(open);
        write_promptly(&open.file, text.as_bytes())?;
        open.bytes += text.len() as u64;
        Ok(())
    }

    /// Where the folder does not allow a rotated file, the old lines are discarded
    /// so that the disk does not fill.
    fn rotate(&self, full: Open) -> io::Result<Open> {
        let mut rotated = self.path.clone().into_os_string();
        rotated.push(ROTATED_SUFFIX);
        match fs::rename(&self.path, rotated) {
            Ok(()) => Open::at(&self.path),
            Err(_) => {
                full.file.set_len(0)?;
                Ok(Open { bytes: 0, ..full })
            }
        }
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Open> {
        // Without it, opening a pipe waits for a reader.
        let file = File::options().append(true).create(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        Ok(Open { bytes: metadata.len(), is_regular: metadata.is_file(), file })
    }
}

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sink: &mut Sink, line: &str) {
        sink.write(Instant::ZERO, line).unwrap().unwrap();
    }

    #[test]
    fn opening_appends_and_ends_a_partial_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        fs::write(&path, "before\nin par").unwrap();
        write(&mut Sink::file(&path, 1000), "after");
        write(&mut Sink::file(&path, 1000), "later");
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\nin par\nafter\nlater\n");
    }

    #[test]
    fn a_full_file_is_rotated_and_one_rotated_file_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let mut sink = Sink::file(&path, 100);
        for number in 0..1000 {
            write(&mut sink, &format!("line {number:04}"));
        }
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text("events").ends_with("line 0999\n") && text("events").len() <= 100);
        assert_eq!(text("events.1").len(), 100);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_full_device_pauses_and_is_retried() {
        let mut sink = Sink::file(Path::new("/dev/full"), 100);
        let second = Instant::ZERO + Duration::from_secs(1);
        let is_tried = [Instant::ZERO, Instant::ZERO, second].map(|now| sink.write(now, "x").is_some());
        assert_eq!(is_tried, [true, false, true]);
    }
}
