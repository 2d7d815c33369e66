//! The receiver: puts the objects together, in whichever order and over whichever connection their pieces
//! arrive.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::frame::{
    DIGEST_BYTES, GREETING_BYTES, OFFER_BYTES, PART, PART_OFFER_BYTES, PIECE, PIECE_HEADER_BYTES, Part,
};
use super::ranges::Ranges;
use super::{MAX_OBJECT_BYTES, extent, is_resumable, pieces};
use crate::recent::push_recent;
use crate::transfer::frame::{ABANDON, ABANDON_BYTES, ABANDONED, END, END_BYTES, Fault, OFFER, Partial, Receipt};
use crate::transfer::receiver::is_file_name;
use crate::transfer::{Abandoned, MAX_BEGUN};

/// An event of the transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An object begins. If it [can be resumed](super::is_resumable), the driver says what it
    /// [has](Receiver::have) of it, and answers.
    Offer {
        /// Its number.
        number: u32,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its deadline, in ms since it was generated; 0: none.
        deadline_ms: u32,
        /// When its content was last modified, in ns since 1970; 0: not known.
        modified_ns: u64,
        /// Its name, [safe](is_safe_name) as a path below a folder.
        name: String,
        /// Its place in a file that grows; `None`: it is a whole file.
        part: Option<Part>,
    },
    /// A piece that arrives for the first time.
    Piece {
        /// Its object.
        number: u32,
        /// Its place in the object, from 0 on.
        index: u32,
        /// Offset of its bytes in the object.
        offset: u64,
        /// The bytes; a piece that is whole in what was given is not copied.
        bytes: Cow<'a, [u8]>,
    },
    /// All pieces of an object and its digest have arrived. The driver checks the digest and
    /// [closes](Receiver::close) the object.
    Complete {
        /// Its number.
        number: u32,
        /// The digest that the sender reports.
        digest: [u8; DIGEST_BYTES],
    },
    /// An object was abandoned. The driver closes it.
    Abandon {
        /// Its number.
        number: u32,
        /// The reason.
        why: Abandoned,
    },
    /// An open object that can be resumed is offered on a further connection, which gets the answer too.
    OfferedAgain {
        /// Its number.
        number: u32,
    },
    /// The sender does not know that this object is closed: the receipt is to be sent again.
    Closed(Receipt),
}

/// The engine of the receiving end.
#[derive(Debug, Default)]
pub struct Receiver {
    connections: BTreeMap<u8, Connection>,
    objects: BTreeMap<u32, Incoming>,
    /// Objects closed last, at most [`MAX_BEGUN`].
    closed: VecDeque<Receipt>,
    /// One more than the highest number offered.
    offered: u64,
    /// An object of which everything has arrived.
    complete: Option<u32>,
    duplicates: u64,
}

#[derive(Debug, Default)]
struct Connection {
    partial: Partial,
    /// The piece that is arriving.
    piece: Option<Arriving>,
    received: u64,
    reported: u64,
}

#[derive(Debug)]
struct Arriving {
    number: u32,
    index: u32,
    length: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Incoming {
    size: u64,
    modified_ns: u64,
    name: String,
    part: Option<Part>,
    arrived: Ranges,
    digest: Option<[u8; DIGEST_BYTES]>,
}

impl Receiver {
    /// A connection of this path begins, after its greeting; it replaces an earlier one.
    pub fn connect(&mut self, path: u8) {
        let mut connection = Connection::default();
        connection.partial.offset = GREETING_BYTES as u64;
        self.connections.insert(path, connection);
    }

    /// The connection of this path ended.
    pub fn disconnect(&mut self, path: u8) {
        self.connections.remove(&path);
    }

    /// Consumes `bytes` of the connection of a path until an event is complete or no bytes are left. The
    /// last event may come without further bytes.
    ///
    /// # Errors
    /// The stream is malformed; nothing after the fault can be read.
    pub fn take<'a>(&mut self, path: u8, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        loop {
            if let Some(event) = self.complete.take().and_then(|number| self.completed(number)) {
                return Ok(Some(event));
            }
            let Some(connection) = self.connections.get_mut(&path) else { return Ok(None) };
            if connection.piece.is_some() {
                let Some((number, index, bytes)) = connection.take_piece(bytes) else { return Ok(None) };
                if let Some(event) = self.on_piece(number, index, bytes) {
                    return Ok(Some(event));
                }
                continue;
            }
            let Some(mut partial) = connection.take_header(bytes)? else { return Ok(None) };
            let event = self.frame(path, &partial);
            partial.clear();
            if let Some(connection) = self.connections.get_mut(&path) {
                connection.partial = partial;
            }
            if let Some(event) = event? {
                return Ok(Some(event));
            }
        }
    }

    /// These pieces of an object that was just offered are there.
    pub fn have(&mut self, number: u32, pieces: Ranges) {
        if let Some(object) = self.objects.get_mut(&number) {
            object.arrived = pieces;
        }
    }

    /// The pieces of an open object that are there.
    pub fn arrived(&self, number: u32) -> Option<&Ranges> {
        self.objects.get(&number).map(|object| &object.arrived)
    }

    /// Closes an object; pieces of it that still arrive are ignored. True if it was open.
    pub fn close(&mut self, receipt: Receipt) -> bool {
        let was_open = self.objects.remove(&receipt.number).is_some();
        push_recent(&mut self.closed, MAX_BEGUN, receipt);
        was_open
    }

    /// The number of pieces read from the connection of a path, if it was not reported yet.
    pub fn poll_received(&mut self, path: u8) -> Option<u64> {
        let connection = self.connections.get_mut(&path)?;
        let is_new = connection.received > connection.reported;
        connection.reported = connection.received;
        is_new.then_some(connection.received)
    }

    /// Whether no object is open: the transfer may end here.
    pub fn is_between_objects(&self) -> bool {
        self.objects.is_empty()
    }

    /// Bytes that arrived more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicates
    }

    fn completed(&self, number: u32) -> Option<Event<'static>> {
        let digest = self.objects.get(&number)?.digest?;
        Some(Event::Complete { number, digest })
    }

    fn check_complete(&mut self, number: u32) {
        let is_complete = |object: &Incoming| object.digest.is_some() && object.arrived.count() == pieces(object.size);
        if self.objects.get(&number).is_some_and(is_complete) {
            self.complete = Some(number);
        }
    }

    fn on_piece<'a>(&mut self, number: u32, index: u32, bytes: Cow<'a, [u8]>) -> Option<Event<'a>> {
        let is_new = self.objects.get_mut(&number).is_some_and(|object| object.arrived.insert(index));
        if !is_new {
            self.duplicates += bytes.len() as u64;
            return None;
        }
        self.check_complete(number);
        let (offset, _) = extent(u64::MAX, index);
        Some(Event::Piece { number, index, offset, bytes })
    }

    /// Processes a complete frame, or the header of a piece.
    fn frame(&mut self, path: u8, frame: &Partial) -> Result<Option<Event<'static>>, Fault> {
        let number = frame.u32(1);
        let kind = frame.u8(0);
        if kind == OFFER || kind == PART {
            return self.offer(number, frame, kind == PART);
        }
        if u64::from(number) >= self.offered {
            return Err(frame.fault(format!("a frame of object {number}, which was not offered")));
        }
        match kind {
            PIECE => {
                let (index, length) = (frame.u32(5), frame.u32(7) as u16);
                let of_object = |object: &Incoming| {
                    index < pieces(object.size) && extent(object.size, index).1 == u32::from(length)
                };
                if !self.objects.get(&number).is_none_or(of_object) {
                    return Err(frame.fault(format!("a piece that object {number} does not have")));
                }
                let length = usize::from(length);
                let piece = Arriving { number, index, length, bytes: Vec::new() };
                if let Some(connection) = self.connections.get_mut(&path) {
                    connection.piece = Some(piece);
                }
                Ok(None)
            }
            END => {
                let digest = frame.tail(5).first_chunk::<DIGEST_BYTES>().copied();
                let Some(object) = self.objects.get_mut(&number) else { return Ok(None) };
                if object.digest.is_some() && object.digest != digest {
                    return Err(frame.fault(format!("two digests of object {number}")));
                }
                object.digest = digest;
                self.check_complete(number);
                Ok(None)
            }
            _ => {
                let Some(why) = ABANDONED.get(usize::from(frame.u8(5))).copied() else {
                    return Err(frame.fault("an abandonment for an unknown reason"));
                };
                Ok(self.objects.contains_key(&number).then_some(Event::Abandon { number, why }))
            }
        }
    }

    /// An object is offered on each connection that carries a part of it.
    fn offer(&mut self, number: u32, frame: &Partial, is_part: bool) -> Result<Option<Event<'static>>, Fault> {
        let (size_bytes, modified_ns) = (frame.u64(5), frame.u64(17));
        let part = is_part.then(|| Part { offset: frame.u64(25), is_last: frame.u8(33) != 0 });
        let name = frame.text(if is_part { PART_OFFER_BYTES } else { OFFER_BYTES });
        let name = name.filter(|name| is_safe_name(name));
        let Some(name) = name else { return Err(frame.fault("an object whose name is not a safe file name")) };
        if part.map_or(0, |part| part.offset).checked_add(size_bytes).is_none_or(|end| end > MAX_OBJECT_BYTES) {
            return Err(frame.fault(format!("an object of more than {MAX_OBJECT_BYTES} bytes")));
        }
        if let Some(known) = self.objects.get(&number) {
            if (known.size, known.modified_ns, &known.name, known.part) != (size_bytes, modified_ns, &name, part) {
                return Err(frame.fault(format!("object {number} offered twice")));
            }
            return Ok(is_resumable(size_bytes, modified_ns).then_some(Event::OfferedAgain { number }));
        }
        if let Some(receipt) = self.closed.iter().find(|receipt| receipt.number == number) {
            return Ok(Some(Event::Closed(receipt.clone())));
        }
        if self.objects.len() >= MAX_BEGUN {
            return Err(frame.fault(format!("more than {MAX_BEGUN} objects begun and not ended")));
        }
        self.offered = self.offered.max(u64::from(number) + 1);
        let (arrived, digest) = (Ranges::default(), None);
        let incoming = Incoming { size: size_bytes, modified_ns, name: name.clone(), part, arrived, digest };
        self.objects.insert(number, incoming);
        Ok(Some(Event::Offer { number, size_bytes, deadline_ms: frame.u32(13), modified_ns, name, part }))
    }
}

/// Whether a name is safe as the path of a file below a folder: names of folders and of the file, joined by `/`, none of
/// them empty, `.` or `..`, and no NUL.
pub fn is_safe_name(name: &str) -> bool {
    name.split('/').all(is_file_name)
}

impl Connection {
    /// The next frame, or the header of a piece, once it is complete.
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<Option<Partial>, Fault> {
        let partial = &mut self.partial;
        if !partial.fill(bytes, 1) {
            return Ok(None);
        }
        let is_complete = match partial.u8(0) {
            OFFER => partial.fill_with_text(bytes, OFFER_BYTES),
            PART => partial.fill_with_text(bytes, PART_OFFER_BYTES),
            PIECE => partial.fill(bytes, PIECE_HEADER_BYTES),
            END => partial.fill(bytes, END_BYTES),
            ABANDON => partial.fill(bytes, ABANDON_BYTES),
            other => return Err(partial.fault(format!("a frame of unknown type {other}"))),
        };
        Ok(is_complete.then(|| core::mem::take(partial)))
    }

    /// The piece that is arriving, once it is complete.
    fn take_piece<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<(u32, u32, Cow<'a, [u8]>)> {
        let Arriving { number, index, length, bytes: begun } = self.piece.as_mut()?;
        let (number, index) = (*number, *index);
        let part = bytes.len().min(*length - begun.len());
        let (now, later) = bytes.split_at(part);
        self.partial.offset += part as u64;
        *bytes = later;
        let whole = if part == *length {
            Cow::Borrowed(now)
        } else {
            begun.reserve_exact(*length - begun.len());
            begun.extend_from_slice(now);
            if begun.len() < *length {
                return None;
            }
            Cow::Owned(core::mem::take(begun))
        };
        self.received += 1;
        self.piece = None;
        Some((number, index, whole))
    }
}
