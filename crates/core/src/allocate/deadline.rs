//! Objects before their deadlines at minimum cost: a higher-cost path carries only what
//! the cheaper ones cannot, and begins as late as is safe.
//!
//! On each acknowledgement the paths are considered from the cheapest on. What the
//! cheaper ones will carry by each deadline, with the wanted confidence, is subtracted
//! from what is due by then; the rest is the shortage. The next path waits while it
//! could still carry the shortage if it began slightly later: more is known then, and
//! the cheaper paths may carry more than forecast. A path that carries is switched off
//! when the cheaper ones suffice, including what is queued on it, or when it could
//! pause for long.
//!
//! A path that is switched on needs an RTT and a slow start, or the observed cost of
//! its earlier starts, before it carries its rate. A path that was never observed to
//! carry is assumed to have a part of the rate of the worst known one: it begins early,
//! is measured, and may pause. A path that delays the others more than it helps is
//! suspended (`suspension.rs`).

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

mod admission;
mod forecast;
mod hopeless;
mod late_paths;
mod suspension;

use forecast::{BRIEF_S, CHARGED_ONCE_S, has_plenty};
use hopeless::Hopeless;
use suspension::Suspensions;

use super::{Allocator, PathInput, PathSupply, select_active};
use crate::assess::Belief;
use crate::assess::throughput::History;
use crate::demand::{Admission, MAX_OBJECTS, Object};
use crate::path::{OnFade, PathState};
use crate::reason::Reason;
use crate::time::Instant;
use crate::wanted::Wanted;

crate::parameters! {
    /// Parameters of [`Deadline`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Probability that a path carries what is planned on it.
        confidence: f64 = 0.95, "0–1", 0.5 to 1.0;
        /// How long before its deadline an object is to be complete: for what no forecast includes, e.g. the last
        /// segment's retransmission.
        margin_ms: f64 = 70.0, "ms", 0.0 to 3.6e6;
        /// A path that carries is switched off when the cheaper ones would be done this long before the object
        /// must be complete.
        spare_ms: f64 = 50.0, "ms", 0.0 to 3.6e6;
        /// A path that carries pauses only if it could for this long: each change costs the queued data, an RTT
        /// and a slow start.
        pause_ms: f64 = 2000.0, "ms", 0.0 to 3.6e6;
        /// Rate assumed while no path has been observed for long, as a part of the rate it shows or, if it was
        /// never observed, of the lowest rate of the others.
        prior_share: f64 = 0.7, "0–1", 0.0 to 1.0;
        /// Part of the time until the deadline in which nothing is done while no path is known.
        learn_share: f64 = 0.15, "0–1", 0.0 to 1.0;
        /// Minimum and maximum of the sender's unacknowledged bytes, as multiples of rate × minimum RTT of each
        /// active path: 1 is in flight, the rest lets the rate grow and covers what waits for another path's
        /// bytes. It grows while no queue builds in the network. With several active paths it is at least what
        /// they carry while the slowest sends one burst.
        backlog_rtts: [f64; 2] = [2.0, 6.0], "RTT", 1.0 to 100.0;
    }
}

/// A path that waits must be able to wait until the next evaluation, in s.
const EVALUATION_S: f64 = 0.02;
/// On a separate connection a path that carries does not pause before it was observed for this long, in s.
const MIN_OBSERVED_S: f64 = 0.5;
/// Such a path that was never observed begins as if it had this part of the assumed rate: what it carries too early is
/// little, since it soon pauses.
const UNOBSERVED_SHARE: f64 = 0.4;
/// Ratio of the latest to the minimum RTT above which data queues in the network.
const QUEUEING_RATIO: f64 = 1.75;
/// Horizon of the rates with which queues are compared, in s.
const SKEW_HORIZON_S: f64 = 0.5;
/// Decay of the completion skew per evaluation: its half-life is 23 s, so that the next
/// object accounts for it from the beginning.
const SKEW_DECAY: f64 = 0.9997;
/// Maximum completion skew, in s.
const MAX_SKEW_S: f64 = 0.5;
/// Change of the backlog multiple per evaluation.
const BACKLOG_STEP: f64 = 0.02;
/// Unacknowledged bytes allowed in addition to those multiples: a write of 64 KiB.
const BACKLOG_WRITE: f64 = 65_536.0;
/// Bytes that the scheduler gives a path at once (Linux `MPTCP_SEND_BURST_SIZE`).
const BURST_BYTES: f64 = 65_388.0;
/// Maximum time allowed for a burst, in s.
const MAX_BURST_S: f64 = 1.0;
/// Backlog of an unknown path, so that its rate can be measured.
const BACKLOG_FIRST: f64 = 262_144.0;

/// The allocator.
#[derive(Clone, Debug, Default)]
pub struct Deadline {
    params: Params,
    /// Whether data on one path waits for no other's.
    is_unordered: bool,
    /// Whether an object past its deadline is given up.
    gives_up: bool,
    /// Whether all objects have little time in all, on separate connections.
    is_brief: bool,
    /// Whether they have enough for what a window lost to be charged once.
    is_charged_once: bool,
    hopeless: Hopeless,
    /// Whether each path carries.
    on: Vec<bool>,
    suspensions: Suspensions,
    /// Whether the subflow of each path is closed during a suspension.
    closed: Vec<bool>,
    /// Number after that of the last object reported, and of the last one with a
    /// prediction.
    reported: u64,
    predicted: u64,
    admissions: VecDeque<Admission>,
    backlog: Option<u64>,
    backlog_rtts: f64,
    /// Completion skew: how much later the slowest active path empties its queue than
    /// all together would, in s; it decays slowly.
    skew_s: f64,
}

/// A good path, as used in the plan.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    place: usize,
    cost: f64,
    rank: u8,
    /// Its history; an empty one if its throughput is not measured.
    history: &'a History,
    on: bool,
    /// Assumed rate if its rate is unknown, in bytes/s.
    prior: f64,
}

/// What is due by a deadline.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// From now, in s.
    within_s: f64,
    /// All bytes due by then that are not acknowledged.
    bytes: f64,
}

impl Deadline {
    /// An allocator with these parameters; the most preferred path carries until a
    /// demand exists.
    pub fn new(params: Params) -> Deadline {
        Deadline { params, backlog_rtts: params.backlog_rtts[0], ..Deadline::default() }
    }

    /// The same for a connection on each path: none delays the others. `gives_up`: an object past its deadline is
    /// given up.
    pub fn without_ordering(params: Params, gives_up: bool) -> Deadline {
        Deadline { is_unordered: true, gives_up, ..Deadline::new(params) }
    }

    /// The good paths, the cheapest first, without suspended ones and those without a
    /// subflow, if others exist.
    fn sources<'a>(&self, now: Instant, paths: &[PathSupply<'a>], unmeasured: &'a History) -> Vec<Source<'a>> {
        let known = paths.iter().filter_map(|path| path.history?.mean_rate(0.0));
        let prior = known.min_by(f64::total_cmp).unwrap_or(0.0);
        let source = |(place, supply): (usize, &PathSupply<'a>)| Source {
            place,
            cost: supply.unit_cost.unwrap_or(f64::from(supply.input.rank)),
            rank: supply.input.rank,
            history: supply.history.unwrap_or(unmeasured),
            on: supply.input.was == PathState::Active,
            prior,
        };
        let mut sources: Vec<Source> =
            paths.iter().enumerate().filter(|(_, path)| path.input.belief == Belief::Good).map(source).collect();
        let usable = |source: &Source| {
            let is_gone = source.history.mean_rate(0.0).is_some() && !source.history.is_open(now);
            !self.suspensions.is_suspended(now, source.place) && !is_gone
        };
        if sources.iter().any(usable) {
            sources.retain(usable);
        }
        sources.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.rank.cmp(&b.rank)));
        sources
    }

    /// Which sources are to carry data.
    fn plan(&self, sources: &[Source], due: &[Due]) -> Vec<bool> {
        let (spare_s, pause_s) = (self.params.spare_ms / 1e3, self.params.pause_ms / 1e3);
        let mut shortage: Vec<Due> = due.to_vec();
        let mut on = vec![false; sources.len()];
        for (place, source) in sources.iter().enumerate() {
            let first = place == 0;
            // Queued data arrives even if the path is off. Switching off requires more
            // than not switching on.
            let queued = source.history.queued_bytes() as f64;
            let (spare_s, wait_s) = if source.on { (spare_s, pause_s) } else { (0.0, EVALUATION_S) };
            let may_pause = !(source.on && self.is_unordered) || source.history.observed_s() >= MIN_OBSERVED_S;
            // A single path has no skew.
            let spare_s = if place == 1 { spare_s - self.skew_s } else { spare_s };
            let spare = |due: &Due| {
                spare_s
                    * sources.iter().take(place).map(|cheaper| self.rate(sources, cheaper, due.within_s)).sum::<f64>()
            };
            let enough = |due: &Due| due.bytes + spare(due) <= queued;
            let is_new = self.is_unordered && source.history.mean_rate(0.0).is_none();
            let part = if is_new { UNOBSERVED_SHARE } else { 1.0 };
            let waits = |due: &Due| {
                due.bytes - queued <= self.carries_after_start(sources, source, due.within_s - wait_s) * part
            };
            let has_plenty = self.is_unordered && due.iter().all(|due| has_plenty(&sources[..place], due));
            if !first && (has_plenty || shortage.iter().all(enough) || (may_pause && shortage.iter().all(waits))) {
                break;
            }
            on[place] = true;
            for due in &mut shortage {
                due.bytes -= self.carries(sources, source, due.within_s);
            }
        }
        on
    }

    /// What is due by each deadline: to be acknowledged half an RTT later, or if unordered by then.
    fn due(&self, now: Instant, demand: &[Object], sources: &[Source]) -> Vec<Due> {
        let first = sources.first().filter(|_| !self.is_unordered);
        let one_way_s = first.map_or(0.0, |source| source.history.min_rtt().as_secs_f64() / 2.0);
        let mut bytes = 0.0;
        let due = |object: &Object| {
            bytes += object.remaining_bytes() as f64;
            let left_s = object.deadline.as_secs_f64() - now.as_secs_f64();
            Due { within_s: left_s + one_way_s - self.skew_s - self.params.margin_ms / 1e3, bytes }
        };
        demand.iter().take(MAX_OBJECTS).map(due).collect()
    }

    /// True while only the cheapest path is used, to learn its rate.
    fn is_learning(&self, now: Instant, demand: &[Object], sources: &[Source]) -> bool {
        let known = sources.iter().any(|source| source.history.peak().is_some());
        let early = |object: &Object| {
            let total = object.deadline.since(object.start);
            now.since(object.start).as_secs_f64() < total.as_secs_f64() * self.params.learn_share
        };
        !known && demand.iter().all(early)
    }

    /// Updates the completion skew: data queued on a path is carried by no other, and
    /// the scheduler does not let all queues end together.
    fn update_skew(&mut self, sources: &[Source]) {
        let mut slowest_s: f64 = 0.0;
        let (mut bytes, mut rates, mut queues) = (0.0, 0.0, 0);
        for source in sources {
            let queued = source.history.queued_bytes() as f64;
            let rate = self.rate(sources, source, SKEW_HORIZON_S);
            if queued > 0.0 && rate > 0.0 {
                slowest_s = slowest_s.max(queued / rate);
                (bytes, rates, queues) = (bytes + queued, rates + rate, queues + 1);
            }
        }
        if queues > 1 {
            self.skew_s = (self.skew_s * SKEW_DECAY).max(slowest_s - bytes / rates).min(MAX_SKEW_S);
        }
    }

    fn suspend(&mut self, now: Instant, sources: &[Source], carry: &mut [bool]) {
        let carrying = sources.iter().zip(carry.iter()).filter(|(_, carries)| **carries);
        let carrying: Vec<_> = carrying.map(|(source, _)| (source.place, source.history)).collect();
        if let Some(place) = self.suspensions.suspend_one(now, &carrying) {
            for (_, carries) in sources.iter().zip(carry).filter(|(source, _)| source.place == place) {
                *carries = false;
            }
        }
    }

    fn update_backlog(&mut self, sources: &[Source]) {
        let [min, max] = self.params.backlog_rtts;
        let carrying = || sources.iter().filter(|source| self.on.get(source.place).copied().unwrap_or(false));
        let queueing = |source: &Source| source.history.queueing() > QUEUEING_RATIO;
        let step = if carrying().any(queueing) { -BACKLOG_STEP } else { BACKLOG_STEP };
        self.backlog_rtts = (self.backlog_rtts + step).min(max).max(min);
        // Later data waits for a burst of the scheduler.
        let burst_s = |source: &Source| Some(BURST_BYTES / source.history.mean_rate(0.0)?.max(1.0));
        let together = carrying().count() > 1;
        let burst_s = carrying().filter(|_| together).filter_map(burst_s).fold(0.0, f64::max).min(MAX_BURST_S);
        let bytes = |(place, source): (usize, &Source)| {
            let Some(peak) = source.history.peak() else { return BACKLOG_FIRST };
            let rtt_s = source.history.min_rtt().as_secs_f64();
            let limit = peak * (rtt_s * self.backlog_rtts).max(rtt_s + burst_s);
            // Later data waits at the peer for the first on a higher-cost path.
            let started = source.history.started_bytes().filter(|_| place > 0);
            started.map_or(limit, |bytes| limit.min(2.0 * bytes as f64))
        };
        self.backlog = Some((BACKLOG_WRITE + carrying().enumerate().map(bytes).sum::<f64>()) as u64);
    }

    fn reason(&self, sources: &[Source], due: &[Due]) -> Reason {
        let carrying = sources.iter().filter(|source| self.on.get(source.place).copied().unwrap_or(false)).count();
        let Some(last) = due.last() else {
            return Reason::plain("deadline.idle", "nothing is due: only the cheapest path is used");
        };
        if let Some(reason) = self.hopeless.reason().filter(|_| carrying == 1) {
            return reason;
        }
        let cheapest = sources.first().map_or(0.0, |source| self.carries(sources, source, last.within_s));
        let text = format!(
            "{:.2} MB are due within {:.2} s, the cheapest path is predicted to carry {:.2}: {carrying} of {} paths",
            last.bytes / 1e6,
            last.within_s,
            cheapest / 1e6,
            sources.len()
        );
        let rule = if carrying > 1 { "deadline.short" } else { "deadline.enough" };
        let inputs = vec![("due_mb", last.bytes / 1e6), ("within_s", last.within_s), ("cheapest_mb", cheapest / 1e6)];
        Reason::plain(rule, text).with(inputs)
    }
}

impl Allocator for Deadline {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let mut states = select_active(paths, |place, _| self.on.get(place) == Some(&true), OnFade::Backup);
        for (state, _) in states.iter_mut().zip(&self.closed).filter(|(_, closed)| **closed) {
            *state = PathState::Closed;
        }
        states.into()
    }

    fn on_demand(&mut self, now: Instant, demand: &[Object], paths: &[PathSupply]) -> Option<Reason> {
        let unmeasured = History::default();
        let sources = self.sources(now, paths, &unmeasured);
        if !self.is_unordered {
            self.update_skew(&sources);
        }
        let has_s = |object: &Object| object.deadline.since(object.start).as_secs_f64();
        self.is_brief = self.is_unordered && demand.iter().all(|object| has_s(object) <= BRIEF_S);
        self.is_charged_once = self.is_brief && demand.iter().all(|object| has_s(object) >= CHARGED_ONCE_S);
        let mut due = self.due(now, demand, &sources);
        self.admit(now, demand, &sources, &due);
        if self.gives_up {
            self.limit_hopeless(demand, &sources, &mut due);
        }
        let mut carry = self.plan(&sources, if self.is_learning(now, demand, &sources) { &[] } else { &due });
        if !self.is_unordered {
            self.suspend(now, &sources, &mut carry);
        }
        self.pause_late_paths(now, demand, &sources, &mut carry);
        let was = core::mem::replace(&mut self.on, vec![false; paths.len()]);
        for (source, carry) in sources.iter().zip(carry) {
            self.on[source.place] = carry;
        }
        let carries: Vec<bool> = self.on.iter().map(|on| *on && !demand.is_empty()).collect();
        self.suspensions.set_carrying(now, &carries);
        self.update_backlog(&sources);
        let closed = core::mem::replace(&mut self.closed, self.suspensions.closed(now));
        (was != self.on || closed != self.closed).then(|| self.reason(&sources, &due))
    }

    fn poll_admission(&mut self) -> Option<Admission> {
        self.admissions.pop_front()
    }

    fn backlog_bytes(&self) -> Option<u64> {
        self.backlog
    }
}

#[cfg(test)]
mod tests;
