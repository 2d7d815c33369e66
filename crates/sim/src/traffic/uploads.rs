//! Consecutive files, each as fast as possible.

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};
use serde::Serialize;
use toml::Table;

use super::keys::{Fault, Keys, table};
use super::{Source, Span, TrafficKind, Write};

pub(super) const KEYS: [&str; 2] = ["size_mb", "pause_s"];

/// Minimum and maximum size of an upload, in MB; smaller ones are messages.
const SIZE_MB: [f64; 2] = [0.001, 1000.0];
/// Minimum and maximum pause between uploads, in s.
const PAUSE_S: [f64; 2] = [0.0, 3600.0];

/// Files one after the other (simulator only).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Uploads {
    /// Minimum and maximum size, in bytes (1,000 to 10⁹); log-uniform, so each
    /// factor of two is equally likely.
    pub size_bytes: [u64; 2],
    /// Minimum and maximum pause between the acknowledgement of the last byte
    /// and the next file, in s (0 to 3600); uniform.
    pub pause_s: [f64; 2],
}

impl Uploads {
    pub(super) fn read(keys: &mut Keys) -> Result<Uploads, Fault> {
        let size_bytes = keys.range("size_mb", SIZE_MB)?.map(|mb| (mb * 1e6) as u64);
        Ok(Uploads { size_bytes, pause_s: keys.range("pause_s", PAUSE_S)? })
    }
}

impl TrafficKind for Uploads {
    fn name(&self) -> &'static str {
        "uploads"
    }

    fn parameters(&self) -> Table {
        table(self)
    }

    fn source(&self, span: Span, seed: u64) -> Box<dyn Source> {
        let rng = Rng::new(seed, "traffic");
        Box::new(Files { uploads: *self, stop: span.stop, due: Some(span.start), uploading: false, rng })
    }

    fn reports_bounds(&self) -> bool {
        true
    }

    fn only_simulated(&self) -> Option<&'static str> {
        Some("the emulator does not support uploads")
    }
}

#[derive(Debug)]
struct Files {
    uploads: Uploads,
    stop: Instant,
    due: Option<Instant>,
    /// The last byte of the file is not acknowledged yet.
    uploading: bool,
    rng: Rng,
}

impl Files {
    fn size_bytes(&mut self) -> u64 {
        let [min, max] = self.uploads.size_bytes.map(|bytes| bytes as f64);
        (min * libm::pow(max / min, self.rng.uniform())) as u64
    }

    fn pause(&mut self) -> Duration {
        let [min, max] = self.uploads.pause_s;
        Duration::from_secs_f64(min + (max - min) * self.rng.uniform())
    }
}

impl Source for Files {
    fn next_write(&self) -> Option<Instant> {
        self.due.filter(|_| !self.uploading)
    }

    fn poll(&mut self, now: Instant) -> Option<Write> {
        self.next_write().filter(|due| *due <= now)?;
        if now >= self.stop {
            self.due = None;
            return None;
        }
        self.uploading = true;
        Some(Write::Message(self.size_bytes()))
    }

    fn on_outstanding(&mut self, now: Instant, bytes: u64) {
        if self.uploading && bytes == 0 {
            self.uploading = false;
            self.due = Some(now + self.pause());
        }
    }
}
