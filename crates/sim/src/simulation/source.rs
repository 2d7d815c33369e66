//! The application's traffic: messages, files, datagrams, or objects with
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
        match self {
            Source::Stream(traffic) => traffic.advance(now, vehicle, server),
            Source::Datagrams(datagrams) => datagrams.advance(now),
            Source::Objects(objects) => {
                objects.set_backlog(path_control.backlog_bytes());
                objects.advance(now, vehicle, server);
                if let Some(demand) = objects.changed_demand().or_else(|| queries.then(|| objects.demand())) {
                    path_control.demand(now, demand);
                }
            }
        }
    }

    /// The next datagram to transmit in this direction.
    pub(super) fn poll_datagram(&mut self, direction: Direction) -> Option<Datagram> {
        match self {
            Source::Datagrams(datagrams) if datagrams.is_down() == (direction == Direction::Down) => datagrams.poll(),
            _ => None,
        }
    }

    /// A datagram has arrived.
    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram) {
        if let Source::Datagrams(datagrams) = self {
            datagrams.receive(now, datagram);
        }
    }

    /// Messages, their results, the number skipped, and the number of
    /// duplicates; none without datagrams.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64, Option<u64>) {
        let (rows, results, skipped) = match self {
            Source::Stream(traffic) => traffic.finish(),
            Source::Objects(objects) => objects.finish(),
            Source::Datagrams(datagrams) => {
                let (rows, results, duplicates) = datagrams.finish();
                return (rows, results, 0, Some(duplicates));
            }
        };
        (rows, results, skipped, None)
    }
}
