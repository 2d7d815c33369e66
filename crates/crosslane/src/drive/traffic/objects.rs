//! Traffic of kind `deadline`: the transfer over one connection, with synthetic
//! objects that are not stored.

use std::net::{IpAddr, SocketAddr};

use crosslane_core::agent::Output;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::frame::Outcome;
use crosslane_core::transfer::multipath::ranges::Ranges;
use crosslane_core::transfer::multipath::sender::Decision;
use crosslane_sim::record::messages::MessageLog;
use crosslane_sim::traffic::{DeadlineTraffic, Sizes, Starts};
use socket2::Socket;

use super::connection;
use super::driver::{Driver, EndpointRecord, Plan, Run};
use crate::control::client::Agent;
use crate::drive::agents::DEMANDS;
use crate::error::{Error, Result};
use crate::transfer::receiving::{self, Incomplete, Offer, Sink};
use crate::transfer::sending;
use crate::transfer::source::{Content, News, Object, Source};

pub struct Objects {
    pub rules: DeadlineTraffic,
    /// Deadlines are reported to an agent.
    pub demands: bool,
}

impl Driver for Objects {
    fn listen(&self, plan: &Plan, address: SocketAddr) -> Result<Socket> {
        connection::listen(plan, address)
    }

    fn serve(&self, run: Run, listener: Socket) -> Result<EndpointRecord> {
        let socket = connection::accept(run, &listener)?;
        let mut objects = Received::default();
        receiving::receive(&socket, &mut objects, run.clock, run.stop).map_err(Error::reported)?;
        objects.into_record()
    }

    fn drive(&self, run: Run, server: SocketAddr, local: Option<IpAddr>) -> Result<EndpointRecord> {
        let mut periodic = Periodic::await_first(self.rules, run, Vec::new());
        let socket = connection::dial(run, server, local)?;
        let agent = self.demands.then(|| Agent::connect(DEMANDS)).transpose();
        let agent = agent.map_err(|cause| Error::failure("reaching the agent", cause))?;
        sending::send(&socket, agent, &mut periodic, self.rules.late, run.clock, run.stop).map_err(Error::reported)?;
        Ok(periodic.into_record())
    }
}

/// Objects that are generated periodically.
pub(super) struct Periodic {
    rules: DeadlineTraffic,
    due: Option<Instant>,
    starts: Starts,
    sizes: Sizes,
    log: MessageLog,
    /// The paths by their place in the sender's preference.
    paths: Vec<PathId>,
    outputs: Vec<(Instant, Output)>,
}

impl Periodic {
    /// The objects of a run, once the first one is generated.
    pub(super) fn await_first(rules: DeadlineTraffic, run: Run, paths: Vec<PathId>) -> Periodic {
        let mut starts = rules.starts(run.plan.span, run.plan.seed);
        let due = starts.next();
        std::thread::sleep(due.unwrap_or_default().since(run.clock.now()));
        Periodic {
            rules,
            due,
            starts,
            sizes: Sizes::new(rules),
            log: MessageLog::new(true),
            paths,
            outputs: Vec::new(),
        }
    }

    pub(super) fn into_record(self) -> EndpointRecord {
        EndpointRecord { sent: self.log.finish().0, outputs: self.outputs, ..EndpointRecord::default() }
    }
}

impl Source for Periodic {
    fn next_due(&self) -> Option<Instant> {
        self.due
    }

    fn take(&mut self) -> Option<Object> {
        let start = self.due?;
        self.due = self.starts.next();
        // Over one MPTCP connection the size is constant.
        let size_bytes = if self.paths.is_empty() { self.rules.object_bytes } else { self.sizes.bytes() };
        let number = self.log.begin(start, size_bytes);
        self.sizes.begin(number, start);
        let content = Box::new(Pattern { first: number << 40, size_bytes });
        Some(Object {
            name: number.to_string(),
            start,
            deadline: Some(start + self.rules.deadline()),
            content,
            part: None,
            is_droppable: self.rules.is_droppable(number),
        })
    }

    /// Objects are numbered in the order in which they are taken.
    fn on_news(&mut self, now: Instant, news: News) {
        match news {
            News::Written(number) => self.log.accepted(now, number.into()),
            News::Admission(admission) if !self.paths.is_empty() => {
                self.outputs.push((now, Output::Admission(admission)));
            }
            News::Decision(Decision { path, state, was, reason }) => {
                let path = self.paths[path];
                self.outputs.push((now, Output::Decision { path, state, was, reason }));
            }
            News::Abandoned(number, _) => self.sizes.on_result(now, number.into(), false),
            News::Receipt(receipt) => {
                self.sizes.on_result(now, receipt.number.into(), receipt.outcome == Outcome::Stored);
            }
            _ => {}
        }
    }
}

/// 64-bit words that no other object contains, so that the digest detects
/// misplaced bytes.
struct Pattern {
    first: u64,
    size_bytes: u64,
}

impl Content for Pattern {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// `offset` is a multiple of 8.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), Abandoned> {
        for (value, word) in (self.first + offset / 8..).zip(buffer.chunks_mut(8)) {
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        Ok(())
    }
}

/// Objects that are not stored.
#[derive(Default)]
pub(super) struct Received {
    record: EndpointRecord,
    differs: Option<u32>,
}

impl Received {
    pub(super) fn into_record(self) -> Result<EndpointRecord> {
        let Some(number) = self.differs else { return Ok(self.record) };
        let cause = format!("object {number} differs from the one sent; report this, since TCP must prevent it");
        Err(Error::failure("checking received data", cause))
    }
}

impl Sink for Received {
    fn begin(&mut self, _: &Offer) -> Result<Ranges, String> {
        Ok(Ranges::default())
    }

    fn put(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn complete(&mut self, number: u32, last: Instant) -> Result<(), String> {
        self.record.note(number as usize, last);
        Ok(())
    }

    fn incomplete(&mut self, number: u32, why: Incomplete) {
        if why == Incomplete::Differs {
            self.differs = Some(number);
        }
    }
}
