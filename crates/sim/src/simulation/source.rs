//! What the sending application does: messages and files, or objects with
//! deadlines.

use crosslane_core::time::Instant;

use super::brain::Brain;
use super::objects::Objects;
use super::traffic::{Tally, Traffic};
use crate::records::MessageRow;
use crate::scenario::{Scenario, TrafficKind};
use crate::transport::Endpoint;

pub(super) enum Source {
    Stream(Traffic),
    Objects(Objects),
}

impl Source {
    pub(super) fn new(scenario: &Scenario, seed: u64, keep: bool) -> Source {
        match scenario.traffic.kind {
            TrafficKind::Deadline(rules) => {
                Source::Objects(Objects::new(&scenario.traffic, rules, scenario.unit_costs(), seed))
            }
            _ => Source::Stream(Traffic::new(&scenario.traffic, seed, keep)),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Source::Stream(traffic) => traffic.next_wakeup(),
            Source::Objects(objects) => objects.next_wakeup(),
        }
    }

    /// Writes and reads what can be at `now`, and tells the agent what is due
    /// when that has changed or, as acknowledgements come in, when it `looks`.
    pub(super) fn play(
        &mut self,
        now: Instant,
        looks: bool,
        (vehicle, server): (&mut Endpoint, &mut Endpoint),
        brain: &mut Brain,
    ) {
        match self {
            Source::Stream(traffic) => traffic.play(now, vehicle, server),
            Source::Objects(objects) => {
                objects.set_backlog(brain.backlog_bytes());
                objects.play(now, vehicle, server);
                if let Some(demand) = objects.news().or_else(|| looks.then(|| objects.demand())) {
                    brain.demand(now, demand);
                }
            }
        }
    }

    pub(super) fn finish(self) -> (Vec<MessageRow>, Tally, u64) {
        match self {
            Source::Stream(traffic) => traffic.finish(),
            Source::Objects(objects) => objects.finish(),
        }
    }
}
