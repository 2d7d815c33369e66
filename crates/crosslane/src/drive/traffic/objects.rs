//! Traffic of kind `deadline`: the transfer, with synthetic objects that are
//! not stored.

use std::sync::atomic::AtomicBool;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_sim::record::rows::MessageRow;
use crosslane_sim::scenario::{DeadlineTraffic, Starts, Traffic};
use socket2::Socket;

use crate::clock::Clock;
use crate::control::demand::client::Agent;
use crate::error::{Error, Result};
use crate::transfer::receiving::{self, Incomplete, Offer, Sink};
use crate::transfer::sending::{self, Content, News, Object, Source};

/// Sends the scenario's objects and returns their rows without receive times.
///
/// # Errors
/// The connection broke.
pub fn send(
    socket: &Socket,
    agent: Option<Agent>,
    (traffic, rules, seed): (&Traffic, DeadlineTraffic, u64),
    clock: Clock,
    stop: &AtomicBool,
) -> Result<Vec<MessageRow>> {
    let mut starts = rules.starts(traffic, seed);
    let mut periodic = Periodic { rules, due: starts.next(), starts, rows: Vec::new() };
    sending::send(socket, agent, &mut periodic, rules.late, clock, stop)
        .map_err(|cause| Error::message(cause.to_string(), 1))?;
    Ok(periodic.rows)
}

/// Receives the objects and returns when each was complete, by number.
///
/// # Errors
/// The connection broke, or bytes differ from those sent.
pub fn receive(socket: &Socket, clock: Clock, stop: &AtomicBool) -> Result<Vec<Option<u64>>> {
    let mut objects = Received::default();
    receiving::receive(socket, &mut objects, clock, stop).map_err(|cause| Error::message(cause.to_string(), 1))?;
    match objects.differs {
        Some(number) => {
            let cause = format!("object {number} differs from the one sent; report this, since TCP must prevent it");
            Err(Error::failure("checking received data", cause))
        }
        None => Ok(objects.received_ns),
    }
}

/// Objects that are generated periodically.
struct Periodic {
    rules: DeadlineTraffic,
    due: Option<Instant>,
    starts: Starts,
    rows: Vec<MessageRow>,
}

impl Source for Periodic {
    fn next_due(&self) -> Option<Instant> {
        self.due
    }

    fn take(&mut self) -> Option<Object> {
        let start = self.due?;
        self.due = self.starts.next();
        let (number, size_bytes) = (self.rows.len() as u64, self.rules.object_bytes);
        let content = Pattern { next: number << 40, size_bytes };
        let (sent_ns, name) = (start.as_nanos(), number.to_string());
        let size_bytes = size_bytes as u32;
        self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
        Some(Object { name, start, deadline: Some(start + self.rules.deadline()), content: Box::new(content) })
    }

    /// Objects are numbered in the order in which they are taken.
    fn on_news(&mut self, now: Instant, news: News) {
        if let News::Written(number) = news
            && let Some(row) = self.rows.get_mut(number as usize)
        {
            row.written_ns = Some(now.as_nanos());
        }
    }
}

/// 64-bit words that no other object contains, so that the digest detects
/// misplaced bytes.
struct Pattern {
    next: u64,
    size_bytes: u64,
}

impl Content for Pattern {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Abandoned> {
        for word in buffer.chunks_mut(8) {
            word.copy_from_slice(&self.next.to_le_bytes()[..word.len()]);
            self.next += 1;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Received {
    received_ns: Vec<Option<u64>>,
    differs: Option<u32>,
}

impl Sink for Received {
    fn begin(&mut self, offer: &Offer) -> Result<(), String> {
        let objects = self.received_ns.len().max(offer.number as usize + 1);
        self.received_ns.resize(objects, None);
        Ok(())
    }

    fn put(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn complete(&mut self, number: u32, last: Instant) -> Result<(), String> {
        self.received_ns[number as usize] = Some(last.as_nanos());
        Ok(())
    }

    fn incomplete(&mut self, number: u32, why: Incomplete) {
        if why == Incomplete::Differs {
            self.differs = Some(number);
        }
    }
}
