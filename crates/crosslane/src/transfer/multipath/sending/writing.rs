//! What the engine gives to a path, in bytes, and what an agent says of the paths.

use crosslane_core::assess::Belief;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::multipath::frame;
use crosslane_core::transfer::multipath::sender::Write;

use super::super::super::source::News;
use super::{Outgoing, Sending};

impl Sending<'_> {
    pub(super) fn encode(&mut self, now: Instant, path: usize, write: Write) {
        let Some(open) = self.links.get_mut(path).and_then(|link| link.open.as_mut()) else { return };
        let into = &mut open.stream.outbox;
        match write {
            Write::Abandon { number, why } => frame::abandon(into, number, why),
            Write::Offer { number } => {
                let Some(Outgoing { object, .. }) = self.outgoing.get(&number) else { return };
                let (size_bytes, modified_ns) = (object.content.size_bytes(), object.content.modified_ns());
                let (deadline_ms, name) = (object.deadline_ms(), &object.name);
                match object.part {
                    None => frame::offer(into, number, size_bytes, modified_ns, deadline_ms, name),
                    Some(part) => {
                        frame::offer_part(into, number, size_bytes, modified_ns, deadline_ms, name, part);
                    }
                }
            }
            Write::End { number } => {
                let Some(Outgoing { object, digests }) = self.outgoing.get_mut(&number) else { return };
                // The last piece may have been read long ago: whether the content has changed is checked again.
                match object.content.read(object.content.size_bytes(), &mut []) {
                    Ok(()) => {
                        frame::end(into, number, &digests.finish());
                        self.source.on_news(now, News::Written(number));
                    }
                    Err(why) => self.give_up(now, number, why),
                }
            }
            Write::Piece { number, index, offset, length } => {
                let begin = into.len();
                frame::piece(into, number, index, length);
                let head = into.len();
                into.resize(head + length as usize, 0);
                let read = match self.outgoing.get_mut(&number) {
                    Some(outgoing) => outgoing.read(index, offset, &mut into[head..]),
                    None => Err(Abandoned::Unreadable),
                };
                if let Err(why) = read {
                    into.truncate(begin);
                    self.engine.take_back(path, why);
                    self.abandoned(now, number, why);
                }
            }
        }
    }

    /// Passes what an agent believes to the plan.
    pub(super) fn doubt(&mut self, now: Instant) {
        let Some(beliefs) = self.beliefs else { return };
        for (place, path) in self.paths.iter().enumerate() {
            let belief = path.interface.as_deref().map_or(Belief::Unknown, |name| beliefs.of(now, name));
            self.engine.on_belief(place, belief);
            let was = std::mem::replace(&mut self.doubts[place], belief);
            if was != belief && was.max(belief) > Belief::Good {
                self.source.on_news(now, News::Belief(place, belief));
            }
        }
    }
}

impl Outgoing {
    fn read(&mut self, index: u32, offset: u64, buffer: &mut [u8]) -> Result<(), Abandoned> {
        self.object.content.read(offset, buffer)?;
        self.digests.add(index, buffer);
        Ok(())
    }
}
