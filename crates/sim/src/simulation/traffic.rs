//! The traffic of a run: a source of its kind, which writes to the connection or
//! sends datagrams.

use std::collections::VecDeque;

use crosslane_core::agent::Input;
use crosslane_core::link::Direction;
use crosslane_core::time::Instant;

use super::packet::Datagram;
use super::path_control::PathControl;
use crate::record::messages::{MessageLog, Results};
use crate::record::rows::MessageRow;
use crate::scenario::Scenario;
use crate::traffic::{Protocol, Source, Write};
use crate::transport::Endpoint;

pub(super) struct Traffic {
    source: Box<dyn Source>,
    log: MessageLog,
    protocol: Protocol,
    sender: Direction,
    /// The server sends everything back.
    echo: Option<Echo>,
    connection: Connection,
    ready: VecDeque<Datagram>,
}

/// The bytes of the connection's sender.
#[derive(Default)]
struct Connection {
    connected: bool,
    written: u64,
    /// Bytes written that the socket has not accepted.
    pending: u64,
    /// The object whose last byte is among the pending ones.
    ending: Option<u64>,
    /// End offset and number of the messages that are not read yet, in order.
    unread: VecDeque<(u64, u64)>,
    /// Bytes that the receiver has read.
    read: u64,
}

/// Bytes of answers.
#[derive(Default)]
struct Echo {
    requested: u64,
    /// Not written yet.
    pending: u64,
}

impl Traffic {
    pub(super) fn new(scenario: &Scenario, seed: u64, keep: bool) -> Traffic {
        let traffic = &scenario.traffic;
        Traffic {
            source: traffic.kind.source(traffic.span(), seed),
            log: MessageLog::new(keep),
            protocol: traffic.protocol,
            sender: if traffic.down { Direction::Down } else { Direction::Up },
            echo: traffic.kind.is_answered().then(Echo::default),
            connection: Connection::default(),
            ready: VecDeque::new(),
        }
    }

    /// Bytes of the connection that the receiver's application has read, of both ends if it answers.
    pub(super) fn delivered(&self, (vehicle, server): (&Endpoint, &Endpoint)) -> u64 {
        match (self.echo.is_some(), self.sender) {
            (true, _) => vehicle.delivered() + server.delivered(),
            (false, Direction::Up) => server.delivered(),
            (false, Direction::Down) => vehicle.delivered(),
        }
    }

    /// A writer that waits for the socket needs no timer: the events of the
    /// connection wake it.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        if self.protocol == Protocol::Udp {
            return self.source.next_write();
        }
        let write = self.source.next_write().filter(|_| self.connection.pending == 0);
        write.into_iter().chain(self.source.next_wakeup()).min().filter(|_| self.connection.connected)
    }

    /// Writes and reads at `now`, and passes the demand to the agent if it has
    /// changed or if the agent `queries` the transport, since acknowledgements
    /// change it too.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        queries: bool,
        (vehicle, server): (&mut Endpoint, &mut Endpoint),
        path_control: &mut PathControl,
    ) {
        if self.protocol == Protocol::Udp {
            return self.send_datagrams(now);
        }
        self.source.set_backlog(path_control.backlog_bytes());
        if let Some(echo) = &mut self.echo {
            echo.advance(now, server);
        }
        let (sender, receiver) = if self.sender == Direction::Down { (server, vehicle) } else { (vehicle, server) };
        let delivered = if self.echo.is_some() { sender.delivered() } else { receiver.delivered() };
        self.read(now, delivered);
        self.write(now, sender);
        if let Some(objects) = self.source.demand(queries) {
            path_control.handle(now, Input::Demand(objects));
        }
    }

    /// The next datagram to transmit in this direction.
    pub(super) fn poll_datagram(&mut self, direction: Direction) -> Option<Datagram> {
        if direction == self.sender { self.ready.pop_front() } else { None }
    }

    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram) {
        self.log.received(now, datagram.number);
    }

    /// Messages, their results, the number skipped, and the number of
    /// duplicates; none without datagrams.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64, Option<u64>) {
        let (rows, results) = self.log.finish();
        let duplicates = (self.protocol == Protocol::Udp).then_some(results.duplicates);
        (rows, results, self.source.skipped(), duplicates)
    }

    fn send_datagrams(&mut self, now: Instant) {
        while let Some(write) = self.source.poll(now) {
            if let Write::Message(bytes) = write {
                let number = self.log.begin(now, bytes);
                self.ready.push_back(Datagram { number, payload: bytes as u16 });
            }
        }
    }

    fn read(&mut self, now: Instant, delivered: u64) {
        if self.echo.is_none() && delivered > self.connection.read {
            self.connection.read = delivered;
            self.log.read(now);
        }
        let unread = &mut self.connection.unread;
        while let Some((_, number)) = unread.front().copied().filter(|(end, _)| *end <= delivered) {
            unread.pop_front();
            self.log.received(now, number);
            self.source.on_answer();
        }
    }

    fn write(&mut self, now: Instant, sender: &mut Endpoint) {
        let connection = &mut self.connection;
        connection.connected = sender.is_connected();
        if !connection.connected {
            return;
        }
        self.source.on_outstanding(now, sender.outstanding() + connection.pending);
        while let Some((at, size_bytes)) = self.source.generate(now) {
            self.log.begin(at, size_bytes);
        }
        while connection.flush(now, sender) {
            if let Some(number) = connection.ending.take() {
                self.log.accepted(now, number);
            }
            match self.source.poll(now) {
                Some(Write::Message(bytes)) => {
                    let number = self.log.begin(now, bytes);
                    connection.write(bytes, Some((number, 0)));
                }
                Some(Write::Part { bytes, ends }) => {
                    connection.write(bytes, ends);
                    connection.ending = ends.map(|(number, _)| number);
                }
                None => return,
            }
        }
    }
}

impl Connection {
    /// Writes bytes of which the last message has this number, and ends this many bytes before.
    fn write(&mut self, bytes: u64, ends: Option<(u64, u64)>) {
        self.written += bytes;
        self.pending = bytes;
        self.unread.extend(ends.map(|(number, after)| (self.written - after, number)));
    }

    /// False if the socket accepts no more data.
    fn flush(&mut self, now: Instant, sender: &mut Endpoint) -> bool {
        if self.pending > 0 {
            self.pending -= sender.write(now, self.pending);
        }
        self.pending == 0
    }
}

impl Echo {
    /// Answers with as many bytes as the server has received.
    fn advance(&mut self, now: Instant, server: &mut Endpoint) {
        let requested = server.delivered();
        self.pending += requested - self.requested;
        self.requested = requested;
        if self.pending > 0 {
            self.pending -= server.write(now, self.pending);
        }
    }
}
