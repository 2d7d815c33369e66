//! Home addresses by an OpenFlow switch: a client of `crosslane-lab openflow`
//! (`docs/reference/openflow.md`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use crosslane_core::time::Instant;
use serde::Deserialize;
use serde_json::json;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::{MAX_HOMES, Outcome, UnitPlace};
use crate::clock::Clock;
use crate::error::Error;

/// Requests without an answer, as many as the process reads.
const MAX_PENDING: usize = 256;
/// Longest answer, in bytes.
const MAX_LINE: usize = 4096;
/// First and longest pause before another attempt to connect.
const RETRY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];
/// A request without an answer for this time: the process hangs. It gives a switch 1 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The client. It connects again by itself, and then sends the last request of each address.
pub struct OpenFlow {
    socket: PathBuf,
    clock: Clock,
    wanted: BTreeMap<Ipv4Addr, Option<UnitPlace>>,
    /// Addresses whose last request is not sent.
    unsent: BTreeSet<Ipv4Addr>,
    connection: Option<Connection>,
    last_id: u64,
    retry_at: Instant,
    pause: Duration,
    /// Whether it was reported that the process does not answer.
    is_reported: bool,
    outcomes: VecDeque<Outcome>,
}

struct Connection {
    stream: UnixStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Time, address and unit of each request without an answer, by its id.
    pending: BTreeMap<u64, (Instant, Ipv4Addr, Option<String>)>,
}

/// An answer.
#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    #[serde(default)]
    done: bool,
    error: Option<String>,
}

impl OpenFlow {
    pub fn new(socket: PathBuf, clock: Clock) -> OpenFlow {
        OpenFlow {
            socket,
            clock,
            wanted: BTreeMap::new(),
            unsent: BTreeSet::new(),
            connection: None,
            last_id: 0,
            retry_at: clock.now(),
            pause: RETRY[0],
            is_reported: false,
            outcomes: VecDeque::new(),
        }
    }

    pub fn lead(&mut self, home: Ipv4Addr, unit: Option<&UnitPlace>) {
        if self.wanted.len() >= MAX_HOMES && !self.wanted.contains_key(&home) {
            let cause = format!("there are {MAX_HOMES} home addresses already");
            let fault = Error::usage(format!("leading {home}"), cause, "withdraw another one");
            return self.report(Outcome::Failed { home, fault });
        }
        self.wanted.insert(home, unit.cloned());
        self.unsent.insert(home);
    }

    pub async fn next(&mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.outcomes.pop_front() {
                return outcome;
            }
            let done = match self.connection.is_some() {
                true => self.exchange().await,
                false => self.connect().await,
            };
            if let Err(cause) = done {
                self.lose(&cause);
            }
        }
    }

    async fn connect(&mut self) -> io::Result<()> {
        tokio::time::sleep(self.retry_at.since(self.clock.now())).await;
        let stream = UnixStream::connect(&self.socket).await?;
        let (outgoing, incoming, pending) = (Vec::new(), Vec::new(), BTreeMap::new());
        self.connection = Some(Connection { stream, outgoing, incoming, pending });
        self.unsent = self.wanted.keys().copied().collect();
        self.is_reported = false;
        self.report(Outcome::Ready);
        Ok(())
    }

    /// Sends what can be sent and reads what has arrived.
    async fn exchange(&mut self) -> io::Result<()> {
        self.fill();
        let now = self.clock.now();
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let oldest = connection.pending.values().map(|(sent, ..)| *sent).min();
        let limit = oldest.map_or(Duration::MAX, |sent| (sent + ANSWER_TIMEOUT).since(now));
        let hangs = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
        tokio::time::timeout(limit, connection.exchange()).await.map_err(hangs)??;
        self.pause = RETRY[0];
        self.read_answers()
    }

    /// Turns requests into lines, as many as the process reads.
    fn fill(&mut self) {
        let now = self.clock.now();
        let Some(connection) = &mut self.connection else { return };
        while connection.pending.len() < MAX_PENDING
            && let Some(home) = self.unsent.pop_first()
        {
            let Some(unit) = self.wanted.get(&home) else { continue };
            self.last_id += 1;
            let (name, next_hop) = (unit.as_ref().map(|unit| &unit.name), unit.as_ref().map(|unit| unit.next_hop));
            let mut line = json!({ "id": self.last_id, "home": format!("{home}/32"), "unit": name });
            next_hop.into_iter().for_each(|next_hop| line["next_hop"] = json!(next_hop));
            connection.outgoing.extend_from_slice(format!("{line}\n").as_bytes());
            connection.pending.insert(self.last_id, (now, home, name.cloned()));
        }
    }

    fn read_answers(&mut self) -> io::Result<()> {
        while let Some(line) = self.connection.as_mut().and_then(Connection::line) {
            let answer: Answer = serde_json::from_slice(&line).map_err(io::Error::from)?;
            self.on_answer(answer)?;
        }
        let unread = self.connection.as_ref().map_or(0, |connection| connection.incoming.len());
        if unread > MAX_LINE {
            return Err(io::Error::other(format!("an answer of more than {MAX_LINE} bytes")));
        }
        Ok(())
    }

    fn on_answer(&mut self, answer: Answer) -> io::Result<()> {
        let pending = self.connection.as_mut().zip(answer.id).and_then(|(one, id)| one.pending.remove(&id));
        let Some((_, home, unit)) = pending else {
            let cause = answer.error.unwrap_or_else(|| "an answer without a request".into());
            return Err(io::Error::other(cause));
        };
        match (answer.done, answer.error) {
            (true, None) => {
                if unit.is_none() && self.wanted.get(&home).is_some_and(Option::is_none) {
                    self.wanted.remove(&home);
                }
                self.report(Outcome::Led { home, unit });
            }
            (_, error) => {
                let way = unit.map_or("withdrawing it".to_owned(), |unit| format!("leading it to unit {unit:?}"));
                let cause = error.unwrap_or_else(|| "the answer is neither `done` nor an error".into());
                let fault = Error::failure(format!("asking the switch about {home} ({way})"), cause);
                self.report(Outcome::Failed { home, fault });
            }
        }
        Ok(())
    }

    /// The process is gone: it is reported once, and asked again after a pause.
    fn lose(&mut self, cause: &dyn fmt::Display) {
        self.connection = None;
        self.retry_at = self.clock.now() + self.pause;
        self.pause = (self.pause * 2).min(RETRY[1]);
        if !std::mem::replace(&mut self.is_reported, true) {
            let attempt = format!("talking to the OpenFlow process at {}", self.socket.display());
            let remedy = "start `crosslane-lab openflow` with this --socket; the flows stay meanwhile";
            self.report(Outcome::Lost(Error::failure(attempt, cause).with_remedy(remedy)));
        }
    }

    /// Whoever leads without reading loses the oldest outcomes.
    fn report(&mut self, outcome: Outcome) {
        if self.outcomes.len() >= MAX_HOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }
}

impl Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = self.stream.ready(if self.outgoing.is_empty() { Interest::READABLE } else { both }).await?;
        if ready.is_writable() && !self.outgoing.is_empty() {
            let count = unless_blocked(self.stream.try_write(&self.outgoing))?;
            self.outgoing.drain(..count.unwrap_or(0));
        }
        if ready.is_readable() {
            let mut bytes = [0; MAX_LINE];
            match unless_blocked(self.stream.try_read(&mut bytes))? {
                Some(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
                Some(count) => self.incoming.extend_from_slice(&bytes[..count]),
                None => {}
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.incoming.iter().position(|byte| *byte == b'\n')?;
        Some(self.incoming.drain(..=end).collect())
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(cause) => Err(cause),
    }
}
