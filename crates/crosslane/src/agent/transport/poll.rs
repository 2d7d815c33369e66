//! A poll in parts. With a thousand connections it takes milliseconds: between two parts the loop serves what has
//! arrived meanwhile, so that a new connection does not wait for the poll (decision 86).
//!
//! Every subflow is looked up in the engine when its part is read: one that has ended since the poll began has no
//! sample, and one that opened meanwhile has one if the kernel lists it.

use std::time::Duration;
use std::vec::IntoIter;

use crosslane_core::agent::Agent;
use crosslane_core::mptcp::{MeasuredSubflow, Token};
use crosslane_core::path::{Sample, Transport};
use crosslane_core::time::Instant;

use super::{REPEAT_SUBFLOW, SubflowEntry, SubflowPoller, key};
use crate::clock::processor_time;
use crate::netlink::diag::{Diag, SocketInfo, SocketList};

/// Subflows looked at in one part, queried in one part (some 20 µs each), and samples repeated in one part.
const SUBFLOWS_IN_A_PART: usize = 128;
const QUERIES_IN_A_PART: usize = 8;
const REPEATS_IN_A_PART: usize = 64;
/// A part of a list that was prepared earlier is not used: the engine takes a sample as of now, and would count the time
/// since then as a silence.
const MAX_AGE: Duration = Duration::from_millis(10);

/// A poll in progress.
pub(super) struct Poll {
    began: Instant,
    /// Processor time so far.
    cost: Duration,
    /// Whether every idle subflow has a sample too.
    with_idle: bool,
    stage: Stage,
    /// Number of all subflows. If more are known in the end, some have ended.
    subflows: usize,
}

enum Stage {
    Sorting(Sorting),
    Listing(Listing),
    Querying {
        queried: IntoIter<MeasuredSubflow>,
        /// Idle ones whose samples are repeated afterwards.
        repeated: IntoIter<MeasuredSubflow>,
    },
    Done,
}

/// Divides the subflows into those that are active and those that are idle.
#[derive(Default)]
struct Sorting {
    /// The last connection that was looked at.
    after: Option<Token>,
    active: usize,
    idle: usize,
    queried: Vec<MeasuredSubflow>,
    repeated: Vec<MeasuredSubflow>,
    /// A list of all sockets costs less than queries of single ones.
    is_list_cheaper: bool,
}

/// The list of all sockets.
struct Listing {
    sockets: SocketList,
    is_ipv4: bool,
    /// Number of subflows that are not found so far.
    missing: usize,
    /// Processor time so far.
    cost: Duration,
    /// When the kernel prepared the next part.
    prepared: Instant,
}

impl SubflowPoller {
    /// Whether a poll is in progress.
    pub(in crate::agent) fn is_polling(&self) -> bool {
        self.poll.is_some()
    }

    /// Begins a poll.
    pub(super) fn begin(&mut self, now: Instant) {
        self.repeat_at = now + REPEAT_SUBFLOW;
        self.number = self.number.wrapping_add(1);
        let with_idle = self.stale && now >= self.idle_next;
        let stage = Stage::Sorting(Sorting::default());
        self.poll = Some(Poll { began: now, cost: Duration::ZERO, with_idle, stage, subflows: 0 });
    }

    /// The samples of the next part.
    pub(super) fn next_part(&mut self, now: Instant, engine: &Agent, diag: &mut Diag) -> Vec<Sample> {
        let Some(mut poll) = self.poll.take() else { return Vec::new() };
        let (mut stage, mut samples) = (std::mem::replace(&mut poll.stage, Stage::Done), Vec::new());
        if let Stage::Sorting(sorting) = stage {
            stage = self.sort(now, sorting, &mut poll, engine);
        }
        stage = match stage {
            Stage::Listing(list) => self.read_list(now, list, poll.with_idle, engine, &mut samples),
            Stage::Querying { mut queried, mut repeated } => {
                self.query(now, current(queried.by_ref().take(QUERIES_IN_A_PART), engine), diag, &mut samples);
                if queried.len() == 0 {
                    self.repeat(now, current(repeated.by_ref().take(REPEATS_IN_A_PART), engine), &mut samples);
                }
                let is_done = queried.len() == 0 && repeated.len() == 0;
                if is_done { Stage::Done } else { Stage::Querying { queried, repeated } }
            }
            stage => stage,
        };
        if matches!(stage, Stage::Done) {
            samples.append(&mut self.repeat_paths(now));
        }
        self.poll = Some(Poll { stage, ..poll });
        samples
    }

    /// Sets the time of the next poll if this one is done; `cost` is the processor time of the part, including the
    /// processing of its samples.
    pub(super) fn finish_part(&mut self, cost: Duration) {
        let Some(poll) = &mut self.poll else { return };
        poll.cost += cost;
        if let Some(poll) = self.poll.take_if(|poll| matches!(poll.stage, Stage::Done)) {
            if self.known.len() > poll.subflows {
                self.known.retain(|_, known| known.found == self.number);
            }
            self.schedule_next(poll.began, poll.cost);
        }
    }

    /// Looks at the next subflows.
    fn sort(&mut self, now: Instant, mut sorting: Sorting, poll: &mut Poll, engine: &Agent) -> Stage {
        let before = poll.subflows;
        for subflow in engine.subflows_after(sorting.after) {
            if poll.subflows - before >= SUBFLOWS_IN_A_PART && sorting.after != Some(subflow.token) {
                return Stage::Sorting(sorting);
            }
            poll.subflows += 1;
            sorting.after = Some(subflow.token);
            let known = self.known.get_mut(&key(&subflow)).map(|known| {
                known.found = self.number;
                *known
            });
            match known.filter(|known| known.is_idle(now)) {
                Some(known) => {
                    sorting.idle += 1;
                    if poll.with_idle {
                        sorting.queried.push(subflow);
                    } else if known.is_to_be_repeated(now) {
                        sorting.repeated.push(subflow);
                    }
                }
                None => {
                    sorting.active += 1;
                    sorting.queried.push(subflow);
                }
            }
            if sorting.is_list_cheaper || self.costs.query * sorting.queried.len() as u32 > self.costs.list_all() {
                (sorting.is_list_cheaper, sorting.queried, sorting.repeated) = (true, Vec::new(), Vec::new());
            }
        }
        self.sorted(now, sorting, poll)
    }

    /// How the samples are obtained once all subflows were looked at.
    fn sorted(&mut self, now: Instant, sorting: Sorting, poll: &mut Poll) -> Stage {
        self.busy = sorting.active;
        if poll.with_idle && sorting.idle > 0 {
            let cost = self.costs.of(sorting.idle);
            self.idle_next = poll.began + (cost * self.share()).clamp(self.period, REPEAT_SUBFLOW);
            self.stale = false;
        }
        if !sorting.is_list_cheaper {
            let (queried, repeated) = (sorting.queried.into_iter(), sorting.repeated.into_iter());
            return Stage::Querying { queried, repeated };
        }
        // What is not in the list is not known any more.
        let missing = std::mem::replace(&mut poll.subflows, 0);
        self.number = self.number.wrapping_add(1);
        begin_list(now, true, missing).map_or(Stage::Done, Stage::Listing)
    }

    fn query(
        &mut self,
        now: Instant,
        queried: impl Iterator<Item = MeasuredSubflow>,
        diag: &mut Diag,
        samples: &mut Vec<Sample>,
    ) {
        let (began, mut queries) = (processor_time(), 0);
        for subflow in queried {
            queries += 1;
            match diag.socket(subflow.local, subflow.remote).ok().flatten() {
                Some(socket) => samples.extend(self.take(now, &subflow, &socket, true)),
                None => {
                    self.known.remove(&key(&subflow));
                }
            }
        }
        if queries > 0 {
            let elapsed = processor_time().saturating_sub(began) / queries;
            self.costs.query = (self.costs.query * 7 + elapsed) / 8;
        }
    }

    /// Reads the next part of a list.
    fn read_list(
        &mut self,
        now: Instant,
        mut list: Listing,
        with_idle: bool,
        engine: &Agent,
        samples: &mut Vec<Sample>,
    ) -> Stage {
        let (began, mut found) = (processor_time(), Vec::new());
        let has_more = list.sockets.next_part(|socket| found.push(socket)).unwrap_or(false);
        list.cost += processor_time().saturating_sub(began);
        let is_recent = now.since(std::mem::replace(&mut list.prepared, now)) <= MAX_AGE;
        if is_recent {
            list.missing = list.missing.saturating_sub(self.take_all(now, &found, with_idle, engine, samples));
        }
        if has_more {
            return Stage::Listing(list);
        }
        let mut further = None;
        if list.is_ipv4 {
            self.costs.list = (self.costs.list * 7 + list.cost) / 8;
            self.costs.list_ipv6 = list.missing > 0;
            further = self.costs.list_ipv6.then(|| begin_list(now, false, list.missing)).flatten();
        }
        further.map_or(Stage::Done, Stage::Listing)
    }

    /// The samples of sockets that are subflows of the engine; returns the number of these.
    fn take_all(
        &mut self,
        now: Instant,
        sockets: &[SocketInfo],
        with_idle: bool,
        engine: &Agent,
        samples: &mut Vec<Sample>,
    ) -> usize {
        let mut found = 0;
        for socket in sockets {
            let token = socket.mptcp.map(|mptcp| Token(mptcp.token_local));
            let subflow = token.and_then(|token| engine.subflow(token, socket.local, socket.remote));
            if let Some(subflow) = subflow {
                found += 1;
                samples.extend(self.take(now, &subflow, socket, with_idle));
            }
        }
        found
    }

    /// The sample of a subflow; `None` as well for an idle one that did not change, unless it is to have one.
    fn take(
        &mut self,
        now: Instant,
        subflow: &MeasuredSubflow,
        socket: &SocketInfo,
        with_idle: bool,
    ) -> Option<Sample> {
        let (key, path) = (key(subflow), subflow.path);
        // The kernel keeps no statistics of a socket in TIME_WAIT; zeros would count as the path's.
        if socket.tcp.rtt.is_zero() {
            self.known.remove(&key);
            return None;
        }
        let transport = transport(subflow, socket);
        let mut entry = SubflowEntry { path, transport, moved: now, reported: now, found: self.number };
        if let Some(known) = self.known.get_mut(&key).filter(|known| known.transport == transport) {
            if !with_idle && known.is_idle(now) && !known.is_to_be_repeated(now) {
                known.found = self.number;
                return None;
            }
            entry.moved = known.moved;
        }
        self.known.insert(key, entry);
        self.reported.insert(path, (now, key));
        Some(entry.sample())
    }

    /// Repeats the last samples of subflows that were not queried.
    fn repeat(&mut self, now: Instant, repeated: impl Iterator<Item = MeasuredSubflow>, samples: &mut Vec<Sample>) {
        for subflow in repeated {
            let key = key(&subflow);
            let Some(known) = self.known.get_mut(&key) else { continue };
            known.reported = now;
            self.reported.insert(known.path, (now, key));
            samples.push(known.sample());
        }
    }
}

/// Begins a list in which this number of subflows is expected.
fn begin_list(now: Instant, is_ipv4: bool, missing: usize) -> Option<Listing> {
    let sockets = SocketList::begin(is_ipv4).ok()?;
    Some(Listing { sockets, is_ipv4, missing, cost: Duration::ZERO, prepared: now })
}

/// The subflows that the engine still has.
fn current(subflows: impl Iterator<Item = MeasuredSubflow>, engine: &Agent) -> impl Iterator<Item = MeasuredSubflow> {
    subflows.filter_map(|subflow| engine.subflow(subflow.token, subflow.local, subflow.remote))
}

fn transport(subflow: &MeasuredSubflow, socket: &SocketInfo) -> Transport {
    Transport {
        token: subflow.token.0,
        peer: subflow.remote,
        accepted: subflow.accepted,
        backup: socket.is_backup(),
        ..socket.tcp.transport()
    }
}

#[cfg(test)]
mod tests;
