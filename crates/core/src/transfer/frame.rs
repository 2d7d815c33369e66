//! The wire format; numbers are in network byte order.
//!
//! Both streams begin with [`PREFACE`]. The sender's stream continues with frames: an offer, chunks of
//! data, and an end or an abandonment for each object. The receiver's stream continues with receipts.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use thiserror::Error;

use super::Abandoned;
use crate::time::Duration;

/// Start of both streams: name and version.
pub const PREFACE: [u8; 8] = *b"XLANE\0\0\x01";
/// Object number of a receipt about the connection: with [`Outcome::Refused`], the receiver accepts no
/// object.
pub const CONNECTION: u32 = u32::MAX;
/// Maximum length of an object's name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a receipt's text, in bytes.
pub const MAX_TEXT_BYTES: usize = 255;
/// Length of a digest, in bytes: here SHA-256 (FIPS 180-4), in [`multipath`](super::multipath) BLAKE3.
pub const DIGEST_BYTES: usize = 32;

/// Length of an offer without the name, in bytes.
pub const OFFER_BYTES: usize = 18;
/// Length of a chunk's header, in bytes.
pub const DATA_BYTES: usize = 9;
/// Length of an end, in bytes.
pub const END_BYTES: usize = 5 + DIGEST_BYTES;
/// Length of an abandonment, in bytes.
pub const ABANDON_BYTES: usize = 6;
/// Length of a receipt without the text, in bytes.
pub const RECEIPT_BYTES: usize = 11;

pub(super) const OFFER: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const ABANDON: u8 = 4;
const RECEIPT: u8 = 5;

/// A malformed stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {offset} of the stream")]
pub struct Fault {
    /// Offset of the frame.
    pub offset: u64,
    /// The fault.
    pub what: String,
}

/// The receiver's answer for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The object's number.
    pub number: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// Time between the object's last byte and this receipt (up to 71 minutes).
    pub waited: Duration,
    /// A reason for the user.
    pub text: String,
}

/// The outcome of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is complete, its digest is correct, and it is stored.
    Stored,
    /// Its digest differs.
    Differs,
    /// It cannot be stored, such as for a full disk or an invalid name.
    Refused,
    /// It was abandoned; its data so far is kept.
    Partial,
}

const OUTCOMES: [Outcome; 4] = [Outcome::Stored, Outcome::Differs, Outcome::Refused, Outcome::Partial];
pub(super) const ABANDONED: [Abandoned; 4] =
    [Abandoned::Late, Abandoned::Changed, Abandoned::Unreadable, Abandoned::Refused];

/// Appends an offer; the sender's engine cuts names to [`MAX_NAME_BYTES`].
pub fn offer(into: &mut Vec<u8>, number: u32, size_bytes: u64, deadline_ms: u32, name: &str) {
    begin(into, OFFER, number);
    into.extend(size_bytes.to_be_bytes());
    into.extend(deadline_ms.to_be_bytes());
    put_text(into, name);
}

/// Appends the header of a chunk; its bytes follow.
pub fn data(into: &mut Vec<u8>, number: u32, length: u32) {
    begin(into, DATA, number);
    into.extend(length.to_be_bytes());
}

/// Appends an end with the digest of the whole object.
pub fn end(into: &mut Vec<u8>, number: u32, digest: &[u8; DIGEST_BYTES]) {
    begin(into, END, number);
    into.extend(digest);
}

/// Appends an abandonment.
pub fn abandon(into: &mut Vec<u8>, number: u32, why: Abandoned) {
    begin(into, ABANDON, number);
    into.push(code(&ABANDONED, why));
}

/// Appends a receipt; its text is cut to [`MAX_TEXT_BYTES`].
pub fn receipt(into: &mut Vec<u8>, receipt: &Receipt) {
    begin(into, RECEIPT, receipt.number);
    into.push(code(&OUTCOMES, receipt.outcome));
    into.extend(u32::try_from(receipt.waited.as_micros()).unwrap_or(u32::MAX).to_be_bytes());
    put_text(into, &receipt.text);
}

/// Decoder of the receiver's stream; holds at most one receipt.
#[derive(Debug, Default)]
pub struct Receipts {
    partial: Partial,
}

impl Receipts {
    /// Whether the receiver's preface has arrived.
    pub fn is_greeted(&self) -> bool {
        self.partial.has_preface
    }

    /// Consumes `bytes` until a receipt is complete or no bytes are left.
    ///
    /// # Errors
    /// The stream is malformed; nothing after the fault can be read.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Receipt>, Fault> {
        if !self.partial.begin(bytes)? {
            return Ok(None);
        }
        self.partial.receipt(bytes)
    }
}

/// The received part of a frame.
#[derive(Debug, Default)]
pub(super) struct Partial {
    bytes: Vec<u8>,
    /// Offset of the frame in the stream.
    pub(super) offset: u64,
    pub(super) has_preface: bool,
}

impl Partial {
    /// Reads up to `wanted` bytes; true once they are complete.
    pub(super) fn fill(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let part = bytes.len().min(wanted.saturating_sub(self.bytes.len()));
        let (now, later) = bytes.split_at(part);
        self.bytes.extend_from_slice(now);
        *bytes = later;
        self.bytes.len() >= wanted
    }

    /// Reads up to the end of a frame's header and of the text after it, whose length is the header's
    /// last byte; true once they are complete.
    pub(super) fn fill_with_text(&mut self, bytes: &mut &[u8], header_bytes: usize) -> bool {
        self.fill(bytes, header_bytes) && self.fill(bytes, header_bytes + usize::from(self.u8(header_bytes - 1)))
    }

    /// True once a frame's first byte is read, after the preface. A wrong byte is detected at once.
    pub(super) fn begin(&mut self, bytes: &mut &[u8]) -> Result<bool, Fault> {
        if !self.has_preface {
            let whole = self.fill(bytes, PREFACE.len());
            if !PREFACE.starts_with(&self.bytes) {
                return Err(self.fault("not a Crosslane transfer of version 1"));
            }
            if whole {
                self.clear();
            }
            self.has_preface = whole;
        }
        Ok(self.has_preface && self.fill(bytes, 1))
    }

    /// The receipt whose first byte is read, once it is complete.
    pub(super) fn receipt(&mut self, bytes: &mut &[u8]) -> Result<Option<Receipt>, Fault> {
        if self.u8(0) != RECEIPT {
            return Err(self.fault("not a receipt"));
        }
        if !self.fill_with_text(bytes, RECEIPT_BYTES) {
            return Ok(None);
        }
        let Some(outcome) = OUTCOMES.get(usize::from(self.u8(5))).copied() else {
            return Err(self.fault("a receipt with an unknown outcome"));
        };
        let receipt = Receipt {
            number: self.u32(1),
            outcome,
            waited: Duration::from_micros(self.u32(6).into()),
            text: self.text(RECEIPT_BYTES).ok_or_else(|| self.fault("a receipt whose text is not UTF-8"))?,
        };
        self.clear();
        Ok(Some(receipt))
    }

    /// Discards the frame, which has been read.
    pub(super) fn clear(&mut self) {
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
    }

    pub(super) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { offset: self.offset, what: what.into() }
    }

    /// A byte read by [`fill`](Self::fill); 0 beyond.
    pub(super) fn u8(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        (0..4).fold(0, |value, index| value << 8 | u32::from(self.u8(at + index)))
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    pub(super) fn tail(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    pub(super) fn text(&self, at: usize) -> Option<String> {
        core::str::from_utf8(self.tail(at)).ok().map(ToString::to_string)
    }
}

fn code<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|other| *other == value).unwrap_or(0) as u8
}

pub(super) fn begin(into: &mut Vec<u8>, kind: u8, number: u32) {
    into.push(kind);
    into.extend(number.to_be_bytes());
}

/// Appends a length and a text, cut at a character boundary.
pub(super) fn put_text(into: &mut Vec<u8>, text: &str) {
    let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    into.push(end as u8);
    into.extend(text.bytes().take(end));
}
