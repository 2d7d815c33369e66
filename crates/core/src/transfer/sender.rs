//! The sender: selects what to write next.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::frame::{ABANDON_BYTES, DATA_BYTES, END_BYTES, MAX_NAME_BYTES, OFFER_BYTES};
use super::{Abandoned, Late, MAX_BEGUN, demanded, due};
use crate::demand;
use crate::time::Instant;

/// Maximum length of a chunk. MPTCP ends a mapping with each write, and smaller writes end it with a small
/// packet.
pub const CHUNK_BYTES: u64 = 65_536;
/// Maximum number of open objects.
pub const MAX_OPEN: usize = 10_000;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A chunk: the offer before the first one, then the data, then the end after the last one.
    Chunk {
        /// The object.
        number: u32,
        /// Offset of the bytes in the object.
        offset: u64,
        /// Number of bytes, up to [`CHUNK_BYTES`].
        length: u32,
        /// Whether it is the object's last chunk.
        last: bool,
    },
    /// The object's abandonment.
    Abandon {
        /// The object.
        number: u32,
        /// The reason.
        why: Abandoned,
    },
}

/// The engine of the sending end.
#[derive(Debug, Default)]
pub struct Sender {
    late: Late,
    /// Open objects, the earliest deadline first.
    open: Vec<Open>,
    next_number: u32,
    /// Written chunks that are not acknowledged, in order.
    chunks: VecDeque<Chunk>,
    written: u64,
    acked: u64,
    backlog: Option<u64>,
    changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u32,
    size: u64,
    name_bytes: u64,
    start: Instant,
    deadline: Option<Instant>,
    /// Bytes written.
    written: u64,
    /// Bytes acknowledged, except those of a chunk acknowledged in part.
    acked: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Offered,
    /// Its last chunk is written.
    Written,
    Abandoned(Abandoned),
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    number: u32,
    /// Offset of the chunk and of its data in the stream.
    before: u64,
    begin: u64,
    length: u64,
    /// Offset of its end in the stream, with all its frames.
    end: u64,
    offers: bool,
    last: bool,
}

impl Sender {
    /// A sender at the start of the stream.
    pub fn new(late: Late) -> Sender {
        Sender { late, ..Sender::default() }
    }

    /// Adds an object generated at `start` and returns its number; `None` while [`MAX_OPEN`] are open.
    pub fn submit(&mut self, name: &str, size: u64, start: Instant, deadline: Option<Instant>) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let (name_bytes, state) = (name.len().min(MAX_NAME_BYTES) as u64, State::Waiting);
        let index = self.open.partition_point(|other| due(other.deadline) <= due(deadline));
        self.open.insert(index, Open { number, size, name_bytes, start, deadline, written: 0, acked: 0, state });
        self.changed = true;
        Some(number)
    }

    /// True while [`MAX_OPEN`] objects are open.
    pub fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN
    }

    /// Abandons an object; false if it is not open, or completely written.
    pub fn abandon(&mut self, number: u32, why: Abandoned) -> bool {
        let may_close = |open: &Open| open.number == number && matches!(open.state, State::Waiting | State::Offered);
        let closes = self.open.iter().any(may_close);
        if closes {
            self.close(number, why);
        }
        closes
    }

    /// Sets the maximum number of bytes written and not acknowledged; `None`: no limit.
    pub fn set_backlog(&mut self, bytes: Option<u64>) {
        self.backlog = bytes;
    }

    /// Sets the number of bytes written and not acknowledged.
    pub fn set_outstanding(&mut self, bytes: u64) {
        self.acked = self.acked.max(self.written.saturating_sub(bytes));
        while let Some(chunk) = self.chunks.front().copied().filter(|chunk| chunk.end <= self.acked) {
            self.chunks.pop_front();
            let Some(index) = self.open.iter().position(|open| open.number == chunk.number) else { continue };
            self.open[index].acked += chunk.length;
            if chunk.last {
                self.open.remove(index);
                self.changed = true;
            }
        }
    }

    /// The next object whose deadline is past, if such objects are given up. It is abandoned, or only
    /// removed if it is completely written.
    pub fn poll_late(&mut self, now: Instant) -> Option<u32> {
        if self.late == Late::Continue {
            return None;
        }
        let is_past = |open: &&Open| open.deadline.is_some_and(|deadline| deadline <= now);
        let &Open { number, state, .. } = self.active().find(is_past)?;
        if state == State::Written {
            self.open.retain(|open| open.number != number);
            self.changed = true;
        } else {
            self.close(number, Abandoned::Late);
        }
        Some(number)
    }

    /// When the next deadline passes.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.active().filter_map(|open| open.deadline).min().filter(|_| self.late == Late::GiveUp)
    }

    /// What to write now, and its length with all frames in bytes; `None` if nothing may be written.
    pub fn poll(&mut self) -> Option<(Write, u64)> {
        for index in 0..self.open.len() {
            if let Open { number, state: State::Abandoned(why), .. } = self.open[index] {
                self.open.remove(index);
                self.written += ABANDON_BYTES as u64;
                return Some((Write::Abandon { number, why }, ABANDON_BYTES as u64));
            }
        }
        let outstanding = self.written - self.acked;
        // A receiver accepts a limited number of objects that are begun and not ended.
        let begun = self.open.iter().filter(|open| open.state == State::Offered).count();
        let may_write = |state| state == State::Offered || state == State::Waiting && begun < MAX_BEGUN;
        let open = self.open.iter_mut().find(|open| may_write(open.state))?;
        let length = (open.size - open.written).min(CHUNK_BYTES);
        if self.backlog.is_some_and(|most| outstanding + length > most.max(CHUNK_BYTES)) {
            return None;
        }
        let offers = open.state == State::Waiting;
        let offer = if offers { OFFER_BYTES as u64 + open.name_bytes } else { 0 };
        let (number, offset) = (open.number, open.written);
        open.written += length;
        let last = open.written == open.size;
        open.state = if last { State::Written } else { State::Offered };
        let begin = self.written + offer + DATA_BYTES as u64;
        let end = begin + length + if last { END_BYTES as u64 } else { 0 };
        let before = self.written;
        self.chunks.push_back(Chunk { number, before, begin, length, end, offers, last });
        self.written = end;
        Some((Write::Chunk { number, offset, length: length as u32, last }, end - before))
    }

    /// Takes back the chunk that was polled last, since its bytes cannot be read, and abandons its object.
    pub fn take_back(&mut self, why: Abandoned) {
        let Some(chunk) = self.chunks.pop_back() else { return };
        self.written = chunk.before;
        let Some(open) = self.open.iter_mut().find(|open| open.number == chunk.number) else { return };
        open.written -= chunk.length;
        open.state = if chunk.offers { State::Waiting } else { State::Offered };
        self.close(chunk.number, why);
    }

    /// Whether an object was added or removed since the last call.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Whether no object is open and all bytes written are acknowledged.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.chunks.is_empty()
    }

    /// Open objects with deadlines, the earliest first.
    pub fn demand(&self) -> Vec<demand::Object> {
        let object =
            |open: &Open| demanded(open.number, [open.size, self.acked_bytes(open)], open.start, open.deadline);
        self.active().filter_map(object).take(demand::MAX_OBJECTS).collect()
    }

    /// Number and acknowledged bytes of each object with acknowledged bytes, at most as many as a demand
    /// has.
    pub fn progress(&self) -> impl Iterator<Item = (u32, u64)> {
        let acked = self.active().map(|open| (open.number, self.acked_bytes(open)));
        acked.filter(|(_, bytes)| *bytes > 0).take(demand::MAX_OBJECTS)
    }

    fn active(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| !matches!(open.state, State::Abandoned(_)))
    }

    fn acked_bytes(&self, open: &Open) -> u64 {
        let in_part = self.chunks.front().filter(|chunk| chunk.number == open.number);
        let more = |chunk: &Chunk| self.acked.saturating_sub(chunk.begin).min(chunk.length);
        open.acked + in_part.map_or(0, more)
    }

    fn close(&mut self, number: u32, why: Abandoned) {
        self.changed = true;
        let Some(index) = self.open.iter().position(|open| open.number == number) else { return };
        match self.open[index].state {
            // It was never offered to the receiver.
            State::Waiting => drop(self.open.remove(index)),
            _ => self.open[index].state = State::Abandoned(why),
        }
    }
}

#[cfg(test)]
mod tests;
