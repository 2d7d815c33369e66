//! The wire format of version 4; numbers are in network byte order.
//!
//! The sender's stream on each connection begins with a [`Greeting`], the receiver's with a [`welcome`].
//! On an encrypted connection these streams are inside the records of the driver's cipher, after a handshake that
//! begins with [`ENCRYPTED_PREFACE`]. Ends, abandonments and receipts are those of
//! [version 1](crate::transfer::frame).

use alloc::vec::Vec;

use super::MAX_PATHS;
use super::ranges::Ranges;
use crate::transfer::frame::{self, Fault, Partial, Receipt};

pub use crate::transfer::frame::{CONNECTION, DIGEST_BYTES, Outcome, abandon, end, receipt};

/// Name and version.
pub const PREFACE: [u8; 8] = *b"XLANE\0\0\x04";
/// The same of an encrypted connection, before its handshake.
pub const ENCRYPTED_PREFACE: [u8; 8] = *b"XLANE\0\x01\x04";
/// The preface of another version differs in its last byte: in the clear, and encrypted.
const NAMES: [&[u8]; 2] = [b"XLANE\0\0", b"XLANE\0\x01"];
/// Length of a greeting, in bytes.
pub const GREETING_BYTES: usize = PREFACE.len() + 17;
/// Length of a welcome, in bytes.
pub const WELCOME_BYTES: usize = PREFACE.len() + 8;
/// Length of a piece's header, in bytes.
pub const PIECE_HEADER_BYTES: usize = 11;
/// Length of an offer without the name, in bytes.
pub const OFFER_BYTES: usize = 26;
/// Length of an offer of a part without the name, in bytes.
pub const PART_OFFER_BYTES: usize = OFFER_BYTES + PART_BYTES;
/// Maximum number of ranges of pieces that a receiver reports; it gets those beyond again.
pub const MAX_RANGES: usize = 1024;

pub(super) const PIECE: u8 = 6;
const RECEIVED: u8 = 7;
const RECEIVED_BYTES: usize = 9;
const HAVE: u8 = 8;
pub(super) const PART: u8 = 9;
/// Offset and mark of a part.
const PART_BYTES: usize = 9;
const HAVE_BYTES: usize = 7;
const RANGE_BYTES: usize = 8;

/// Start of the sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The transfer, drawn at random: connections that name the same one belong together.
    pub transfer: [u8; 16],
    /// The path's place in the sender's preference, from 0 on. A later connection of the same path replaces
    /// the earlier one.
    pub path: u8,
}

impl Greeting {
    /// Its bytes.
    pub fn emit(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&PREFACE);
        bytes[8..24].copy_from_slice(&self.transfer);
        bytes[24] = self.path;
        bytes
    }

    /// Reads a greeting; `None` while `bytes` is only the beginning of one.
    ///
    /// # Errors
    /// The peer is not a sender, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<Option<Greeting>, Fault> {
        check_preface(bytes)?;
        let Some((bytes, _)) = bytes.split_first_chunk::<GREETING_BYTES>() else { return Ok(None) };
        let mut transfer = [0; 16];
        transfer.copy_from_slice(&bytes[8..24]);
        let greeting = Greeting { transfer, path: bytes[24] };
        if usize::from(greeting.path) >= MAX_PATHS {
            return Err(Fault { offset: 24, what: alloc::format!("a path above {}", MAX_PATHS - 1) });
        }
        Ok(Some(greeting))
    }
}

/// The other version of which a stream that begins with these bytes is, in the clear or encrypted.
pub fn other_version(bytes: &[u8]) -> Option<u8> {
    let version = *bytes.get(PREFACE.len() - 1)?;
    let is_other = version != PREFACE[PREFACE.len() - 1] && NAMES.iter().any(|name| bytes.starts_with(name));
    is_other.then_some(version)
}

/// Whether these bytes, at most as many as a preface has, may be the beginning of a stream of any version.
pub fn may_be_preface(bytes: &[u8]) -> bool {
    NAMES.iter().any(|name| name.starts_with(&bytes[..bytes.len().min(name.len())]))
}

/// The start of a receiver's stream of another version, for a receipt about the connection: it is the same in all versions.
pub fn other_welcome(version: u8) -> Vec<u8> {
    let mut begin = PREFACE.to_vec();
    begin[PREFACE.len() - 1] = version;
    // Version 1 has no instance.
    begin.resize(if version == 1 { PREFACE.len() } else { WELCOME_BYTES }, 0);
    begin
}

/// Checks the beginning of a stream.
///
/// # Errors
/// The peer is not of a transfer, or of another version.
pub fn check_preface(bytes: &[u8]) -> Result<(), Fault> {
    let known = bytes.len().min(PREFACE.len());
    if bytes[..known] == PREFACE[..known] {
        return Ok(());
    }
    let what = match other_version(bytes) {
        Some(version) => alloc::format!("version {version} of the transfer, where this program has version 4,"),
        None if bytes.starts_with(&ENCRYPTED_PREFACE) => "an encrypted stream where one in the clear is due".into(),
        None => "not a Crosslane transfer of version 4".into(),
    };
    Err(Fault { offset: 0, what })
}

/// Appends the start of the receiver's stream. `instance` is drawn at random when a receiver begins a
/// transfer: a receiver that was restarted has another one, and none of the objects.
pub fn welcome(into: &mut Vec<u8>, instance: u64) {
    into.extend(PREFACE);
    into.extend(instance.to_be_bytes());
}

/// An object that is a part of a file which grows. The parts follow one another without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its place in the file, in bytes.
    pub offset: u64,
    /// Whether the file ends with it.
    pub is_last: bool,
}

/// Appends an offer; the name is cut to 255 bytes. `modified_ns`: when the content was last modified, in ns since
/// 1970; 0: not known. `deadline_ms`: since it was generated; 0: none.
pub fn offer(into: &mut Vec<u8>, number: u32, size_bytes: u64, modified_ns: u64, deadline_ms: u32, name: &str) {
    begin_offer(into, frame::OFFER, number, size_bytes, modified_ns, deadline_ms);
    frame::put_text(into, name);
}

/// Appends an offer of a part of a file that grows. `created_ns` is the same for all parts of a file, and tells it from
/// others of its name: when it was created, in ns since 1970; 0: not known.
pub fn offer_part(
    into: &mut Vec<u8>,
    number: u32,
    size_bytes: u64,
    created_ns: u64,
    deadline_ms: u32,
    name: &str,
    part: Part,
) {
    begin_offer(into, PART, number, size_bytes, created_ns, deadline_ms);
    into.extend(part.offset.to_be_bytes());
    into.push(part.is_last.into());
    frame::put_text(into, name);
}

fn begin_offer(into: &mut Vec<u8>, kind: u8, number: u32, size_bytes: u64, modified_ns: u64, deadline_ms: u32) {
    frame::begin(into, kind, number);
    into.extend(size_bytes.to_be_bytes());
    into.extend(deadline_ms.to_be_bytes());
    into.extend(modified_ns.to_be_bytes());
}

/// Appends the header of a piece; its bytes follow.
pub fn piece(into: &mut Vec<u8>, number: u32, index: u32, length: u32) {
    into.push(PIECE);
    into.extend(number.to_be_bytes());
    into.extend(index.to_be_bytes());
    into.extend((length as u16).to_be_bytes());
}

/// Appends the number of pieces read from this connection since its beginning.
pub fn received(into: &mut Vec<u8>, pieces: u64) {
    into.push(RECEIVED);
    into.extend(pieces.to_be_bytes());
}

/// Appends which pieces of an object the receiver has; ranges beyond [`MAX_RANGES`] are left out.
pub fn have(into: &mut Vec<u8>, number: u32, pieces: &Ranges) {
    let ranges: Vec<_> = pieces.iter().take(MAX_RANGES).collect();
    frame::begin(into, HAVE, number);
    into.extend((ranges.len() as u16).to_be_bytes());
    for range in ranges {
        into.extend(range.start.to_be_bytes());
        into.extend(range.end.to_be_bytes());
    }
}

/// A frame of the receiver's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Pieces read from this connection since its beginning.
    Received(u64),
    /// The pieces of an object that the receiver has.
    Have(u32, Ranges),
    /// The receiver's answer for an object.
    Receipt(Receipt),
}

/// Decoder of the receiver's stream; holds at most one frame.
#[derive(Debug, Default)]
pub struct Replies {
    partial: Partial,
    instance: Option<u64>,
}

impl Replies {
    /// The receiver's instance, once its [`welcome`] has arrived.
    pub fn instance(&self) -> Option<u64> {
        self.instance
    }

    /// Consumes `bytes` until a frame is complete or no bytes are left.
    ///
    /// # Errors
    /// The stream is malformed; nothing after the fault can be read.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Reply>, Fault> {
        let partial = &mut self.partial;
        if self.instance.is_none() {
            let is_complete = partial.fill(bytes, WELCOME_BYTES);
            check_preface(partial.tail(0))?;
            if !is_complete {
                return Ok(None);
            }
            self.instance = Some(partial.u64(PREFACE.len()));
            partial.clear();
        }
        if !partial.fill(bytes, 1) {
            return Ok(None);
        }
        match partial.u8(0) {
            RECEIVED => {}
            HAVE => return have_of(partial, bytes),
            _ => return Ok(partial.receipt(bytes)?.map(Reply::Receipt)),
        }
        if !partial.fill(bytes, RECEIVED_BYTES) {
            return Ok(None);
        }
        let pieces = partial.u64(1);
        partial.clear();
        Ok(Some(Reply::Received(pieces)))
    }
}

fn have_of(partial: &mut Partial, bytes: &mut &[u8]) -> Result<Option<Reply>, Fault> {
    if !partial.fill(bytes, HAVE_BYTES) {
        return Ok(None);
    }
    let count = usize::from(partial.u32(3) as u16);
    if count > MAX_RANGES {
        return Err(partial.fault(alloc::format!("more than {MAX_RANGES} ranges of pieces")));
    }
    if !partial.fill(bytes, HAVE_BYTES + count * RANGE_BYTES) {
        return Ok(None);
    }
    let places = (0..count).map(|range| HAVE_BYTES + range * RANGE_BYTES);
    let Some(pieces) = Ranges::ascending(places.map(|place| partial.u32(place)..partial.u32(place + 4))) else {
        return Err(partial.fault("ranges of pieces that do not ascend"));
    };
    let number = partial.u32(1);
    partial.clear();
    Ok(Some(Reply::Have(number, pieces)))
}
