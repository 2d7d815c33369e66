//! Files that grow while they are sent: each part is an object, written to its place in `NAME.part`.
//!
//! A part counts once it is on the disk, with a state that says how far the file is there without a gap. So a sender and
//! a receiver that were killed go on with it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::multipath::frame::Part as Place;
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::{MAX_OBJECT_BYTES, PIECE_BYTES, bytes, pieces};

use super::super::receiving::{Incomplete, Offer};
use super::parts::{self, Content, Held, Part, Parts};
use super::{Folder, Kept, Notice, has_room_for_state, refusal};

/// The file of which a part is.
pub(super) struct Growing<'a> {
    part: Part,
    /// If it can be resumed.
    held: Option<Held<'a>>,
    /// Bytes of complete parts from its beginning on, without a gap, and parts after a gap.
    bytes: u64,
    after_gap: BTreeMap<u64, u64>,
}

/// An open part: the file's name, and where it is.
pub(super) struct OpenPart {
    pub name: String,
    place: Place,
    size_bytes: u64,
}

impl OpenPart {
    pub(super) fn new(offer: &Offer, place: Place) -> OpenPart {
        OpenPart { name: offer.name.clone(), place, size_bytes: offer.size_bytes }
    }

    /// Whether the file ends with it.
    pub(super) fn is_last(&self) -> bool {
        self.place.is_last
    }
}

impl<'a> Growing<'a> {
    /// The file of which this part is offered first, and a sentence if it goes on.
    pub(super) fn begin(
        parts: &'a Parts,
        offer: &Offer,
        wanted: &Arc<AtomicBool>,
    ) -> io::Result<(Growing<'a>, Option<String>)> {
        let is_resumable = offer.modified_ns > 0 && has_room_for_state(&offer.name);
        if !is_resumable {
            let part = parts.create(&offer.name)?;
            return Ok((Growing { part, held: None, bytes: 0, after_gap: BTreeMap::new() }, None));
        }
        // Its size is not known; that of another kind of object is smaller.
        let content =
            Content { name: offer.name.clone(), size_bytes: MAX_OBJECT_BYTES, modified_ns: offer.modified_ns };
        let (part, held, text) = parts.resume(&content, wanted)?;
        let bytes = part.bytes;
        Ok((Growing { part, held, bytes, after_gap: BTreeMap::new() }, text))
    }

    /// The pieces of a part that are there: a sender that was started again offers what it has from the beginning on.
    pub(super) fn pieces(&self, part: &OpenPart) -> Ranges {
        let there = self.bytes.saturating_sub(part.place.offset).min(part.size_bytes);
        match there > 0 && there == part.size_bytes {
            true => Ranges::below(pieces(there)),
            false => Ranges::below((there / PIECE_BYTES) as u32),
        }
    }

    pub(super) fn write(&self, part: &OpenPart, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.part.file.write_all_at(bytes, part.place.offset + offset)
    }

    pub(super) fn read(&self, part: &OpenPart, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.part.file.read_exact_at(buffer, part.place.offset + offset)
    }

    /// A part is complete and right: it is on the disk when this returns.
    pub(super) fn complete(&mut self, part: &OpenPart) -> io::Result<()> {
        let end = part.place.offset + part.size_bytes;
        let known = self.after_gap.entry(part.place.offset).or_default();
        *known = end.max(*known);
        while let Some((offset, end)) = self.after_gap.pop_first() {
            if offset > self.bytes {
                self.after_gap.insert(offset, end);
                break;
            }
            self.bytes = self.bytes.max(end);
        }
        match &self.held {
            Some(held) => parts::save_bytes(&self.part.file, &self.part.path, held.content.clone(), self.bytes),
            None => self.part.file.sync_data(),
        }
    }

    /// The file and its size, if it is whole with this part.
    pub(super) fn finish(self, last: &OpenPart) -> Result<(Part, u64), Box<Growing<'a>>> {
        let end = last.place.offset + last.size_bytes;
        match self.bytes == end && self.after_gap.is_empty() {
            true => Ok((self.part, end)),
            false => Err(Box::new(self)),
        }
    }

    /// What is left of a file that does not become whole; it is continued later unless it `is_wrong`.
    pub(super) fn keep(self, name: String, is_wrong: bool, incomplete: Incomplete, text: String) -> Kept {
        if is_wrong || self.held.is_none() {
            parts::forget(&self.part.path);
        }
        let file = Some(self.part.path.clone());
        Kept { name, size_bytes: self.bytes, bytes: self.bytes, file, incomplete: Some(incomplete), text }
    }
}

impl<'a, Report: FnMut(Notice)> Folder<'a, Report> {
    /// A part of a file that grows.
    pub(super) fn begin_part(&mut self, offer: &Offer, place: Place) -> Result<Ranges, String> {
        let begun = self.open_part(offer, OpenPart::new(offer, place));
        if let Err(text) = &begun {
            self.open_parts.remove(&offer.number);
            match self.growing.remove(&offer.name) {
                Some(growing) => self.ended(growing.keep(offer.name.clone(), false, Incomplete::Refused, text.clone())),
                None => self.ended(Kept {
                    name: offer.name.clone(),
                    size_bytes: offer.size_bytes,
                    bytes: 0,
                    file: None,
                    incomplete: Some(Incomplete::Refused),
                    text: text.clone(),
                }),
            }
        }
        begun
    }

    fn open_part(&mut self, offer: &Offer, part: OpenPart) -> Result<Ranges, String> {
        if !self.growing.contains_key(&offer.name) {
            self.check(offer)?;
            let (growing, text) = Growing::begin(self.parts, offer, &self.wanted).map_err(refusal)?;
            self.growing.insert(offer.name.clone(), growing);
            if let Some(text) = text {
                (self.report)(Notice::Resumed(offer.name.clone(), text));
            }
        }
        let pieces = self.growing.get(&offer.name).map(|growing| growing.pieces(&part)).unwrap_or_default();
        self.open_parts.insert(offer.number, part);
        self.check_space(offer.size_bytes - bytes(offer.size_bytes, &pieces))?;
        Ok(pieces)
    }

    /// An open part, with its file unless that has ended.
    pub(super) fn part(&mut self, number: u32) -> Option<(&OpenPart, Option<&mut Growing<'a>>)> {
        let part = self.open_parts.get(&number)?;
        Some((part, self.growing.get_mut(&part.name)))
    }

    pub(super) fn complete_part(&mut self, number: u32) -> Result<(), String> {
        let Some((part, Some(growing))) = self.part(number) else {
            return Err("a part of it before was not stored; send it again".into());
        };
        growing.complete(part).map_err(refusal)?;
        let Some(part) = self.open_parts.remove(&number).filter(OpenPart::is_last) else { return Ok(()) };
        let Some(growing) = self.growing.remove(&part.name) else { return Ok(()) };
        match growing.finish(&part) {
            Ok((file, size_bytes)) => {
                // Bytes of a part that was cut off may follow.
                let renamed = file.file.set_len(size_bytes).and_then(|()| self.rename(&part.name, &file));
                let text = renamed.as_ref().err().map(|cause| refusal(cause.kind().into())).unwrap_or_default();
                let incomplete = renamed.is_err().then_some(Incomplete::Refused);
                let (name, file) = (part.name, Some(renamed.unwrap_or(file.path)));
                self.ended(Kept { name, size_bytes, bytes: size_bytes, file, incomplete, text: text.clone() });
                if incomplete.is_none() { Ok(()) } else { Err(text) }
            }
            Err(growing) => {
                let text = String::from("parts of it are missing; send it again from its beginning");
                self.ended(growing.keep(part.name, true, Incomplete::Refused, text.clone()));
                Err(text)
            }
        }
    }

    /// A part cannot be stored, and so its file neither; returns the reason.
    pub(super) fn refuse_part(&mut self, number: u32, text: String) -> String {
        if let Some(part) = self.open_parts.remove(&number) {
            self.incomplete_part(part, Incomplete::Refused, text.clone());
        }
        text
    }

    pub(super) fn incomplete_part(&mut self, part: OpenPart, why: Incomplete, text: String) {
        let Some(growing) = self.growing.remove(&part.name) else { return };
        let is_wrong = matches!(why, Incomplete::Differs | Incomplete::Abandoned(Abandoned::Changed));
        self.ended(growing.keep(part.name, is_wrong, why, text));
    }

    /// The transfer ends.
    pub(super) fn end_growing(&mut self) {
        for (name, growing) in std::mem::take(&mut self.growing) {
            self.ended(growing.keep(name, false, Incomplete::Ended, String::new()));
        }
    }

    fn ended(&mut self, kept: Kept) {
        (self.report)(Notice::Ended(kept));
    }
}
