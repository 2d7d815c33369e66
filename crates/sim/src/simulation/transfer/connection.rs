//! A plain TCP connection of a path: its two endpoints, and the bytes on their way.

use std::collections::VecDeque;

use crosslane_core::path::{PathId, Transport};
use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::{Fault, Receipt};
use crosslane_core::transfer::multipath::frame::{self, GREETING_BYTES, Greeting, Replies, Reply};
use crosslane_core::transfer::multipath::receiver::{Event, Receiver};

use super::super::Side;
use crate::transport::{Endpoint, Segment, Settings, SubflowInfo};

const GREETING: u64 = GREETING_BYTES as u64;

pub(super) struct Connection {
    /// That of its subflow in the records.
    pub(super) number: u16,
    vehicle: Endpoint,
    server: Endpoint,
    up: Stream,
    down: Stream,
    replies: Replies,
}

/// What the receiver reads; the bytes of a piece are zeros.
pub(super) enum Read {
    Piece(u32),
    Complete(u32),
    Abandon(u32),
    Closed(Receipt),
}

/// The bytes of one direction that the reader has not read.
#[derive(Default)]
struct Stream {
    bytes: VecDeque<u8>,
    /// Of these, the bytes that the writer's socket has not accepted.
    pending: u64,
    read: u64,
}

impl Connection {
    /// A connection that the vehicle begins over a path, with the greeting of the path's place in its preference.
    pub(super) fn begin(
        now: Instant,
        number: u16,
        (path, place): (PathId, usize),
        [vehicle, server]: &[Settings; 2],
    ) -> Connection {
        let mut vehicle = Endpoint::client(vehicle.clone()).with_first_subflow(number);
        vehicle.connect(now, path);
        let mut up = Stream::default();
        up.put(&Greeting { transfer: [0; 16], path: place as u8 }.emit());
        Connection {
            number,
            vehicle,
            server: Endpoint::server(server.clone()).with_first_subflow(number),
            up,
            down: Stream::default(),
            replies: Replies::default(),
        }
    }

    pub(super) fn stands(&self) -> bool {
        self.vehicle.is_connected()
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.vehicle.next_wakeup().into_iter().chain(self.server.next_wakeup()).min()
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        for endpoint in [&mut self.vehicle, &mut self.server] {
            if endpoint.next_wakeup().is_some_and(|at| at <= now) {
                endpoint.on_time(now);
            }
        }
    }

    /// A segment reaches this endpoint.
    pub(super) fn on_segment(&mut self, now: Instant, to: Side, segment: &Segment, sent: Instant) {
        self.endpoint(to).on_segment(now, segment, sent);
    }

    pub(super) fn poll_segment(&mut self, from: Side) -> Option<Segment> {
        self.endpoint(from).poll_segment()
    }

    /// The sender writes.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.up.put(bytes);
    }

    /// Whether the receiver has read the greeting.
    pub(super) fn is_joined(&self) -> bool {
        self.up.read >= GREETING
    }

    /// Bytes that the receiver has read.
    pub(super) fn received(&self) -> u64 {
        self.up.read
    }

    /// The receiver writes.
    pub(super) fn reply(&mut self, now: Instant, bytes: &[u8]) {
        self.down.put(bytes);
        self.down.flush(now, &mut self.server);
    }

    /// True if the sender's socket has accepted everything.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        self.down.flush(now, &mut self.server);
        self.up.flush(now, &mut self.vehicle)
    }

    /// The receiver reads what has arrived over `path`, and reports the pieces.
    ///
    /// # Errors
    /// The stream is malformed.
    pub(super) fn receive(&mut self, now: Instant, path: u8, receiver: &mut Receiver) -> Result<Vec<Read>, Fault> {
        let (delivered, mut events, mut replies) = (self.server.delivered(), Vec::new(), Vec::new());
        if self.up.read < GREETING && delivered >= GREETING {
            self.up.read(GREETING, |_| Ok(()))?;
            receiver.connect(path);
            frame::welcome(&mut replies, 0);
        }
        if self.up.read >= GREETING && delivered > self.up.read {
            self.up.read(delivered, |bytes| {
                while let Some(event) = receiver.take(path, bytes)? {
                    events.extend(read(event));
                }
                Ok(())
            })?;
            receiver.poll_received(path).into_iter().for_each(|pieces| frame::received(&mut replies, pieces));
        }
        if !replies.is_empty() {
            self.reply(now, &replies);
        }
        Ok(events)
    }

    /// The sender reads the replies that have arrived.
    ///
    /// # Errors
    /// The stream is malformed.
    pub(super) fn read_replies(&mut self) -> Result<Vec<Reply>, Fault> {
        let (decoder, mut replies) = (&mut self.replies, Vec::new());
        self.down.read(self.vehicle.delivered(), |bytes| {
            while let Some(reply) = decoder.take(bytes)? {
                replies.push(reply);
            }
            Ok(())
        })?;
        Ok(replies)
    }

    /// The sender's statistics; what waits to be accepted or sent is not sent.
    pub(super) fn statistics(&self) -> Option<Transport> {
        let SubflowInfo { transport, bytes_sent, .. } = self.subflow()?;
        let written = self.vehicle.outstanding() + transport.bytes_acked + self.up.pending;
        Some(Transport { notsent_bytes: written.saturating_sub(bytes_sent) as u32, ..transport })
    }

    pub(super) fn subflow(&self) -> Option<SubflowInfo> {
        self.vehicle.subflows().next()
    }

    fn endpoint(&mut self, side: Side) -> &mut Endpoint {
        match side {
            Side::Vehicle => &mut self.vehicle,
            Side::Server => &mut self.server,
        }
    }
}

impl Stream {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.pending += bytes.len() as u64;
    }

    /// True if nothing is pending.
    fn flush(&mut self, now: Instant, writer: &mut Endpoint) -> bool {
        if self.pending > 0 {
            self.pending -= writer.write(now, self.pending);
        }
        self.pending == 0
    }

    /// Reads up to this offset of the stream.
    fn read(&mut self, end: u64, mut take: impl FnMut(&mut &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let count = (end - self.read) as usize;
        let (first, second) = self.bytes.as_slices();
        let of_first = count.min(first.len());
        let result = take(&mut &first[..of_first]).and_then(|()| take(&mut &second[..count - of_first]));
        self.bytes.drain(..count);
        self.read = end;
        result
    }
}

fn read(event: Event<'_>) -> Option<Read> {
    match event {
        Event::Piece { number, .. } => Some(Read::Piece(number)),
        Event::Complete { number, .. } => Some(Read::Complete(number)),
        Event::Abandon { number, .. } => Some(Read::Abandon(number)),
        Event::Closed(receipt) => Some(Read::Closed(receipt)),
        // No object is resumed.
        Event::Offer { .. } | Event::OfferedAgain { .. } => None,
    }
}
