//! What goes over the wire; numbers in network byte order.
//!
//! Both streams begin with [`PREFACE`]. Then the sender's is frames: an offer,
//! pieces of data, an end or an abandonment for each object. The receiver's is
//! receipts.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use thiserror::Error;

use super::Abandoned;
use crate::time::Duration;

/// What both ends begin with: name and version.
pub const PREFACE: [u8; 8] = *b"XLANE\0\0\x01";
/// Number of a receipt that is about the connection, not about an object: with
/// [`Outcome::Refused`], the receiver takes nothing over it.
pub const CONNECTION: u32 = u32::MAX;
/// Longest name of an object, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest text of a receipt, in bytes.
pub const MAX_TEXT_BYTES: usize = 255;
/// Bytes of a SHA-256 digest (FIPS 180-4).
pub const DIGEST_BYTES: usize = 32;

/// Bytes of an offer before the name.
pub const OFFER_BYTES: usize = 18;
/// Bytes of a piece before its data.
pub const DATA_BYTES: usize = 9;
/// Bytes of an end.
pub const END_BYTES: usize = 5 + DIGEST_BYTES;
/// Bytes of an abandonment.
pub const ABANDON_BYTES: usize = 6;
/// Bytes of a receipt before the text.
pub const RECEIPT_BYTES: usize = 11;

pub(super) const OFFER: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const ABANDON: u8 = 4;
const RECEIPT: u8 = 5;

/// What is wrong with a stream, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {offset} of the stream")]
pub struct Fault {
    /// Offset of the frame.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// What the receiver says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its number.
    pub number: u32,
    /// How it went.
    pub outcome: Outcome,
    /// Time between its last byte and this receipt (up to 71 minutes).
    pub waited: Duration,
    /// More about it, for people.
    pub text: String,
}

/// How it went with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is complete, its digest right, and where it belongs.
    Stored,
    /// Its digest differs.
    Differs,
    /// It cannot be kept: a disk full, a name not allowed.
    Refused,
    /// It was abandoned; what came is kept in part.
    Partial,
}

const OUTCOMES: [Outcome; 4] = [Outcome::Stored, Outcome::Differs, Outcome::Refused, Outcome::Partial];
const ABANDONED: [Abandoned; 4] = [Abandoned::Late, Abandoned::Changed, Abandoned::Unreadable, Abandoned::Refused];

/// Appends an offer; names are cut to [`MAX_NAME_BYTES`] by the sender's engine.
pub fn offer(into: &mut Vec<u8>, number: u32, size_bytes: u64, deadline_ms: u32, name: &str) {
    into.push(OFFER);
    into.extend(number.to_be_bytes());
    into.extend(size_bytes.to_be_bytes());
    into.extend(deadline_ms.to_be_bytes());
    put_text(into, name);
}

/// Appends the head of a piece; its bytes follow.
pub fn data(into: &mut Vec<u8>, number: u32, length: u32) {
    into.push(DATA);
    into.extend(number.to_be_bytes());
    into.extend(length.to_be_bytes());
}

/// Appends an end with the digest of the whole object.
pub fn end(into: &mut Vec<u8>, number: u32, digest: &[u8; DIGEST_BYTES]) {
    into.push(END);
    into.extend(number.to_be_bytes());
    into.extend(digest);
}

/// Appends an abandonment.
pub fn abandon(into: &mut Vec<u8>, number: u32, why: Abandoned) {
    into.push(ABANDON);
    into.extend(number.to_be_bytes());
    into.push(code(&ABANDONED, why));
}

/// Appends a receipt; its text is cut to [`MAX_TEXT_BYTES`].
pub fn receipt(into: &mut Vec<u8>, receipt: &Receipt) {
    into.push(RECEIPT);
    into.extend(receipt.number.to_be_bytes());
    into.push(code(&OUTCOMES, receipt.outcome));
    into.extend(u32::try_from(receipt.waited.as_micros()).unwrap_or(u32::MAX).to_be_bytes());
    put_text(into, &receipt.text);
}

/// The receiver's stream, cut into receipts. Holds at most one.
#[derive(Debug, Default)]
pub struct Receipts {
    partial: Partial,
    greeted: bool,
}

impl Receipts {
    /// True once the other end has shown that it is a receiver.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Takes bytes off the front of `bytes` until a receipt is complete or none
    /// are left.
    ///
    /// # Errors
    /// What is no receipt; nothing after it can be read.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Receipt>, Fault> {
        if !self.greeted {
            self.greeted = self.partial.greet(bytes)?;
        }
        if !self.greeted || !self.partial.fill(bytes, 1) {
            return Ok(None);
        }
        if self.partial.u8(0) != RECEIPT {
            return Err(self.partial.fault("no receipt"));
        }
        if !self.partial.fill(bytes, RECEIPT_BYTES) {
            return Ok(None);
        }
        let text_bytes = usize::from(self.partial.u8(RECEIPT_BYTES - 1));
        if !self.partial.fill(bytes, RECEIPT_BYTES + text_bytes) {
            return Ok(None);
        }
        let partial = &self.partial;
        let Some(outcome) = OUTCOMES.get(usize::from(partial.u8(5))).copied() else {
            return Err(partial.fault("a receipt of unknown outcome"));
        };
        let receipt = Receipt {
            number: partial.u32(1),
            outcome,
            waited: Duration::from_micros(partial.u32(6).into()),
            text: partial.text(RECEIPT_BYTES).ok_or_else(|| partial.fault("a receipt that is no UTF-8"))?,
        };
        self.partial.clear();
        Ok(Some(receipt))
    }
}

/// A frame's beginning, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Partial {
    bytes: Vec<u8>,
    /// Where it begins in the stream.
    pub(super) offset: u64,
}

impl Partial {
    /// True once there are `wanted` bytes.
    pub(super) fn fill(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let part = bytes.len().min(wanted.saturating_sub(self.bytes.len()));
        let (now, later) = bytes.split_at(part);
        self.bytes.extend_from_slice(now);
        *bytes = later;
        self.bytes.len() >= wanted
    }

    /// True once the preface has come. A stranger shows at his first byte.
    pub(super) fn greet(&mut self, bytes: &mut &[u8]) -> Result<bool, Fault> {
        let whole = self.fill(bytes, PREFACE.len());
        if !PREFACE.starts_with(&self.bytes) {
            return Err(self.fault("no Crosslane transfer of version 1"));
        }
        if whole {
            self.clear();
        }
        Ok(whole)
    }

    /// What was read is done with.
    pub(super) fn clear(&mut self) {
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
    }

    pub(super) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { offset: self.offset, what: what.into() }
    }

    /// A number that [`fill`](Self::fill) has brought; 0 beyond.
    pub(super) fn u8(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        (0..4).fold(0, |value, place| value << 8 | u32::from(self.u8(at + place)))
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

pub(super) fn why_abandoned(code: u8) -> Option<Abandoned> {
    ABANDONED.get(usize::from(code)).copied()
}

fn code<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|other| *other == value).unwrap_or(0) as u8
}

/// A length and a text, cut at a character's end.
fn put_text(into: &mut Vec<u8>, text: &str) {
    let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    into.push(end as u8);
    into.extend(text.bytes().take(end));
}
