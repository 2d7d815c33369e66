//! What the sending application does: messages and files, or objects with
//! deadlines.

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;

use super::datagrams::Datagrams;
use super::objects::Objects;
use super::packet::Datagram;
use super::path_control::PathControl;
use super::traffic::{Results, Traffic};
use crate::record::rows::MessageRow;
use crate::scenario::{Protocol, Scenario, TrafficKind};
use crate::transport::Endpoint;

pub(super) enum Source {
    Stream(Traffic),
    Objects(Objects),
    Datagrams(Datagrams),
}

impl Source {
    pub(super) fn new(scenario: &Scenario, seed: u64, keep: bool) -> Source {
        match scenario.traffic.kind {
            TrafficKind::Deadline(rules) => {
                Source::Objects(Objects::new(&scenario.traffic, rules, scenario.unit_costs(), seed))
            }
            _ if scenario.traffic.protocol == Protocol::Udp => {
                Source::Datagrams(Datagrams::new(&scenario.traffic, keep))
            }
            _ => Source::Stream(Traffic::new(&scenario.traffic, seed, keep)),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Source::Stream(traffic) => traffic.next_wakeup(),
            Source::Objects(objects) => objects.next_wakeup(),
            Source::Datagrams(datagrams) => datagrams.next_wakeup(),
        }
    }

    /// Writes and reads what can be at `now`, and tells the agent what is due
    /// when that has changed or, as acknowledgements come in, when it `looks`.
    pub(super) fn play(
        &mut self,
        now: Instant,
        looks: bool,
        (vehicle, server): (&mut Endpoint, &mut Endpoint),
        path_control: &mut PathControl,
    ) {
        match self {
            Source::Stream(traffic) => traffic.play(now, vehicle, server),
            Source::Datagrams(datagrams) => datagrams.play(now),
            Source::Objects(objects) => {
                objects.set_backlog(path_control.backlog_bytes());
                objects.play(now, vehicle, server);
                if let Some(demand) = objects.news().or_else(|| looks.then(|| objects.demand())) {
                    path_control.demand(now, demand);
                }
            }
        }
    }

    /// The next datagram that leaves this way.
    pub(super) fn poll_datagram(&mut self, way: Direction) -> Option<Datagram> {
        match self {
            Source::Datagrams(datagrams) if datagrams.is_down() == (way == Direction::Down) => datagrams.poll(),
            _ => None,
        }
    }

    /// A datagram has come.
    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram) {
        if let Source::Datagrams(datagrams) = self {
            datagrams.receive(now, datagram);
        }
    }

    /// Messages, what they add up to, how many were skipped, and how many came
    /// more than once; none where that cannot be.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64, Option<u64>) {
        let (rows, tally, skipped) = match self {
            Source::Stream(traffic) => traffic.finish(),
            Source::Objects(objects) => objects.finish(),
            Source::Datagrams(datagrams) => {
                let (rows, tally, duplicates) = datagrams.finish();
                return (rows, tally, 0, Some(duplicates));
            }
        };
        (rows, tally, skipped, None)
    }
}
