//! The receiver: splits the stream into objects.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::frame::{self, ABANDON_BYTES, DATA_BYTES, DIGEST_BYTES, END_BYTES, Fault, OFFER_BYTES, Partial};
use super::{Abandoned, MAX_BEGUN};

/// An event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An object begins.
    Offer {
        /// Its number.
        number: u32,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its deadline, in ms since it was generated; 0: none.
        deadline_ms: u32,
        /// Its name, valid as a file name: no separator, not `.`, not `..`.
        name: String,
    },
    /// The next bytes of an object.
    Data {
        /// Its number.
        number: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// An object is complete.
    End {
        /// Its number.
        number: u32,
        /// SHA-256 of the bytes sent.
        digest: [u8; DIGEST_BYTES],
    },
    /// An object was abandoned.
    Abandon {
        /// Its number.
        number: u32,
        /// The reason.
        why: Abandoned,
    },
}

/// The engine of the receiving end.
#[derive(Debug, Default)]
pub struct Receiver {
    partial: Partial,
    /// Missing bytes of each object begun.
    begun: BTreeMap<u32, u64>,
    /// The current chunk: its object, and its missing bytes.
    chunk: Option<(u32, u32)>,
}

impl Receiver {
    /// Consumes `bytes` until an event is complete or no bytes are left.
    ///
    /// # Errors
    /// The stream is malformed; nothing after the fault can be read.
    pub fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        loop {
            if let Some((number, missing)) = self.chunk {
                return Ok(self.take_data(number, missing, bytes));
            }
            if !self.partial.begin(bytes)? {
                return Ok(None);
            }
            let kind = self.partial.u8(0);
            let is_complete = match kind {
                frame::OFFER => self.partial.fill_with_text(bytes, OFFER_BYTES),
                frame::DATA => self.partial.fill(bytes, DATA_BYTES),
                frame::END => self.partial.fill(bytes, END_BYTES),
                frame::ABANDON => self.partial.fill(bytes, ABANDON_BYTES),
                other => return Err(self.partial.fault(format!("a frame of unknown type {other}"))),
            };
            if !is_complete {
                return Ok(None);
            }
            let number = self.partial.u32(1);
            let event = match kind {
                frame::OFFER => Some(self.offer(number)?),
                frame::DATA => self.begin_chunk(number)?,
                frame::END => Some(self.end(number)?),
                _ => Some(self.abandon(number)?),
            };
            self.partial.clear();
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Whether the sender's preface has arrived.
    pub fn is_greeted(&self) -> bool {
        self.partial.has_preface
    }

    /// Whether no object is open and no frame is incomplete: a stream may end here.
    pub fn is_between_objects(&self) -> bool {
        self.begun.is_empty() && self.partial.tail(0).is_empty() && self.chunk.is_none()
    }

    fn take_data<'a>(&mut self, number: u32, missing: u32, bytes: &mut &'a [u8]) -> Option<Event<'a>> {
        let part = bytes.len().min(missing as usize);
        if part == 0 {
            return None;
        }
        let (now, later) = bytes.split_at(part);
        *bytes = later;
        self.partial.offset += part as u64;
        let remaining = missing - part as u32;
        self.chunk = (remaining > 0).then_some((number, remaining));
        Some(Event::Data { number, bytes: now })
    }

    fn offer<'a>(&mut self, number: u32) -> Result<Event<'a>, Fault> {
        let size_bytes = self.partial.u64(5);
        let name = self.partial.text(OFFER_BYTES).filter(|name| is_file_name(name));
        let Some(name) = name else { return Err(self.partial.fault("an object whose name is not a file name")) };
        if self.begun.contains_key(&number) {
            return Err(self.partial.fault(format!("object {number} offered twice")));
        }
        if self.begun.len() >= MAX_BEGUN {
            return Err(self.partial.fault(format!("more than {MAX_BEGUN} objects begun and not ended")));
        }
        self.begun.insert(number, size_bytes);
        Ok(Event::Offer { number, size_bytes, deadline_ms: self.partial.u32(13), name })
    }

    /// Its bytes are the next events.
    fn begin_chunk<'a>(&mut self, number: u32) -> Result<Option<Event<'a>>, Fault> {
        let length = self.partial.u32(5);
        match self.begun.get_mut(&number) {
            None => Err(self.partial.fault(format!("data of object {number}, which is not open"))),
            Some(missing) if *missing < u64::from(length) => {
                Err(self.partial.fault(format!("more data of object {number} than offered")))
            }
            Some(missing) => {
                *missing -= u64::from(length);
                self.chunk = (length > 0).then_some((number, length));
                Ok(None)
            }
        }
    }

    fn end<'a>(&mut self, number: u32) -> Result<Event<'a>, Fault> {
        if self.begun.remove(&number) != Some(0) {
            return Err(self.partial.fault(format!("the end of object {number} before all of its data")));
        }
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(self.partial.tail(5));
        Ok(Event::End { number, digest })
    }

    fn abandon<'a>(&mut self, number: u32) -> Result<Event<'a>, Fault> {
        let why = frame::ABANDONED.get(usize::from(self.partial.u8(5)));
        match why.filter(|_| self.begun.remove(&number).is_some()) {
            Some(&why) => Ok(Event::Abandon { number, why }),
            None => Err(self.partial.fault(format!("an abandonment of object {number}, which is not open"))),
        }
    }
}

pub(super) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests;
