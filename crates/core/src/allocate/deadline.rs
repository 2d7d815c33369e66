//! Objects in time at the least cost: a dearer path carries only what the
//! cheaper ones cannot, and begins as late as is safe.
//!
//! Each time acknowledgements come in, the paths are gone through from the
//! cheapest on. What the cheaper ones will carry by each deadline, with the
//! wanted confidence, is taken from what is due by then; the rest is the
//! shortage. While the next path can still carry the shortage if it begins a
//! little later, it waits: later, more is known, and what the cheaper paths
//! carry better than feared is saved. A path that carries is switched off when
//! the cheaper ones alone suffice, what is queued on it counted, or when it
//! could pause for long.
//!
//! A path that is switched on needs a round trip and a slow start before it
//! carries its rate, or what earlier starts of it were seen to cost. A path that
//! was never seen to carry is taken for a part of what the worst known one
//! carries: it begins early, is learned, and may pause. A path that holds up the
//! others more than it helps [rests](rests).

use crate::path::PathState;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

mod admission;
mod params;
mod suspension;

pub use params::Params;
use suspension::Suspensions;

use super::{Allocator, PathInput, PathSupply, chosen};
use crate::assess::{Belief, Reason};
use crate::demand::{Admission, Demand, MAX_OBJECTS, Object};
use crate::time::{Duration, Instant};

/// Between two looks at the plan, in s: a path that is to wait must be able to
/// wait until the next one.
const LOOK_S: f64 = 0.02;
/// Window with which a slow start begins, in bytes (RFC 6928: 10 segments).
const INITIAL_WINDOW_BYTES: f64 = 14_240.0;
/// Latest round trip over the least from which on what is sent queues.
const QUEUEING: f64 = 1.75;
/// Horizon of the rates that queues are held against, in s.
const TAIL_HORIZON_S: f64 = 0.5;
/// Part of the tail remembered from look to look: half of it for 23 s, so that
/// the next object reckons with it from its beginning.
const TAIL_KEPT: f64 = 0.9997;
/// A longer tail is not believed, in s.
const LONGEST_TAIL_S: f64 = 0.5;
/// Change of the backlog's multiple from look to look.
const BACKLOG_STEP: f64 = 0.02;
/// What may be unacknowledged beside those multiples: a write of 64 KiB.
const BACKLOG_WRITE: f64 = 65_536.0;
/// Bytes given to a path at once (Linux `MPTCP_SEND_BURST_SIZE`).
const BURST_BYTES: f64 = 65_388.0;
/// No more time is waited for that, in s.
const LONGEST_BURST_S: f64 = 1.0;
/// Length of the windows that a forecast is held against, in horizons.
const WINDOW_HORIZONS: f64 = 2.0;
/// What is guessed of a path weighs as much as so many windows seen of it.
const PRIOR_WINDOWS: f64 = 0.3;
/// Backlog of a path not yet known, so that its rate can show.
const BACKLOG_FIRST: f64 = 262_144.0;

/// The allocator.
#[derive(Clone, Debug)]
pub struct Deadline {
    params: Params,
    /// Whether each path carries.
    on: Vec<bool>,
    suspensions: Suspensions,
    /// Whether the subflow of each path is closed meanwhile.
    closed: Vec<bool>,
    /// Number after that of the last object judged, and of the last of which
    /// something could be said.
    judged: u64,
    known: u64,
    admissions: VecDeque<Admission>,
    backlog: Option<u64>,
    backlog_rtts: f64,
    /// How much later than all together the slowest of the paths that carry is
    /// done with its queue, in s; forgotten slowly.
    tail_s: f64,
}

/// A good path, as the plan sees it.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    place: usize,
    cost: f64,
    supply: &'a PathSupply<'a>,
    on: bool,
    /// Rate if nothing is known of it, in bytes a second.
    prior: f64,
}

/// What is due by when.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// From now, in s.
    within_s: f64,
    /// All that must have been carried by then and is still missing.
    bytes: f64,
}

impl Deadline {
    /// With these parameters; the most preferred path carries until there is a
    /// demand.
    pub fn new(params: Params) -> Deadline {
        Deadline {
            params,
            on: Vec::new(),
            suspensions: Suspensions::default(),
            closed: Vec::new(),
            judged: 0,
            known: 0,
            admissions: VecDeque::new(),
            backlog: None,
            backlog_rtts: params.backlog_rtts[0],
            tail_s: 0.0,
        }
    }

    /// The good paths, the cheapest first, without those that rest or have no
    /// subflow, if there are others.
    fn sources<'a>(&self, now: Instant, demand: &Demand, paths: &'a [PathSupply<'a>]) -> Vec<Source<'a>> {
        let known = paths.iter().filter_map(|path| path.history?.level(0.0));
        let prior = known.min_by(f64::total_cmp).unwrap_or(0.0);
        let source = |(place, supply): (usize, &'a PathSupply<'a>)| Source {
            place,
            cost: demand.unit_costs.get(place).copied().unwrap_or(f64::from(supply.view.rank)),
            supply,
            on: supply.view.was == PathState::Active,
            prior,
        };
        let mut sources: Vec<Source> =
            paths.iter().enumerate().filter(|(_, path)| path.view.belief == Belief::Good).map(source).collect();
        let usable = |source: &Source| {
            let gone =
                source.supply.history.is_some_and(|history| history.level(0.0).is_some() && !history.is_open(now));
            !self.suspensions.is_resting(now, source.place) && !gone
        };
        if sources.iter().any(usable) {
            sources.retain(usable);
        }
        sources.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.supply.view.rank.cmp(&b.supply.view.rank)));
        sources
    }

    /// Which sources are to carry.
    fn plan(&self, sources: &[Source], due: &[Due]) -> Vec<bool> {
        let (spare_s, pause_s) = (self.params.spare_ms / 1e3, self.params.pause_ms / 1e3);
        let mut shortage: Vec<Due> = due.to_vec();
        let mut on = vec![false; sources.len()];
        for (place, source) in sources.iter().enumerate() {
            let first = place == 0;
            // What is queued arrives even if it is off. To be switched off takes
            // more than not to be switched on.
            let queued = source.supply.history.map_or(0, |history| history.queued_bytes()) as f64;
            let (spare_s, wait_s) = if source.on { (spare_s, pause_s) } else { (0.0, LOOK_S) };
            // One path alone has no tail.
            let spare_s = if place == 1 { spare_s - self.tail_s } else { spare_s };
            let spare = |due: &Due| {
                spare_s
                    * sources.iter().take(place).map(|cheaper| self.rate(sources, cheaper, due.within_s)).sum::<f64>()
            };
            let enough = |due: &Due| due.bytes + spare(due) <= queued;
            let waits = |due: &Due| due.bytes - queued <= self.starts(sources, source, due.within_s - wait_s);
            if !first && (shortage.iter().all(enough) || shortage.iter().all(waits)) {
                break;
            }
            on[place] = true;
            for due in &mut shortage {
                due.bytes -= self.carries(sources, source, due.within_s);
            }
        }
        on
    }

    /// Rate counted on over a horizon, in bytes a second. What is not known of a
    /// path is taken from the others, and what is known of none from a guess.
    fn rate(&self, sources: &[Source], source: &Source, horizon_s: f64) -> f64 {
        let evidence = |source: &Source| match source.supply.history {
            Some(history) => history.evidence(horizon_s * WINDOW_HORIZONS, self.params.confidence),
            None => (0.0, 1.0),
        };
        // What a longer window lost is set against this one: a path that stalls
        // once in a while loses no more in the long one, a rate that wanders does.
        let counted = |(windows, part): (f64, f64), guess: f64| {
            let part = (1.0 - WINDOW_HORIZONS * (1.0 - part)).max(0.0);
            (windows * part + PRIOR_WINDOWS * guess) / (windows + PRIOR_WINDOWS)
        };
        let others = sources.iter().filter(|other| other.place != source.place);
        let guess = others.fold(self.params.prior_share, |guess, other| counted(evidence(other), guess));
        match source.supply.history.and_then(|history| history.level(horizon_s)) {
            Some(level) => level * counted(evidence(source), guess),
            None => source.prior * guess,
        }
    }

    /// Bytes that it carries within a time if it is on from now.
    fn carries(&self, sources: &[Source], source: &Source, within_s: f64) -> f64 {
        if !source.on {
            return self.starts(sources, source, within_s);
        }
        self.rate(sources, source, within_s) * within_s.max(0.0)
    }

    /// Bytes that it carries within a time if it is switched on at its
    /// beginning.
    fn starts(&self, sources: &[Source], source: &Source, within_s: f64) -> f64 {
        let rate = self.rate(sources, source, within_s);
        let rtt_s = source.supply.history.map_or(Duration::ZERO, |history| history.least_rtt()).as_secs_f64();
        let doublings = libm::log2((rate * rtt_s / INITIAL_WINDOW_BYTES).max(1.0));
        let learned_s = source.supply.history.and_then(|history| history.start_cost_s());
        let warm = source.supply.history.is_some_and(|history| history.is_warm());
        let lead_s = if warm { rtt_s } else { (rtt_s * (1.0 + doublings)).max(learned_s.unwrap_or(0.0)) };
        rate * (within_s - lead_s).max(0.0)
    }

    /// What is due by each deadline. What the peer has now is acknowledged half
    /// a round trip later, so there is that much more time than the clock says.
    fn due(&self, now: Instant, demand: &Demand, sources: &[Source]) -> Vec<Due> {
        let rtt = |source: &Source| source.supply.history.map(|history| history.least_rtt());
        let way_s = sources.first().and_then(rtt).unwrap_or_default().as_secs_f64() / 2.0;
        let mut bytes = 0.0;
        let due = |object: &Object| {
            bytes += object.rest_bytes() as f64;
            let left_s = object.deadline.as_secs_f64() - now.as_secs_f64();
            Due { within_s: left_s + way_s - self.tail_s - self.params.margin_ms / 1e3, bytes }
        };
        demand.objects.iter().take(MAX_OBJECTS).map(due).collect()
    }

    /// True while the cheapest path is to show itself first.
    fn learns(&self, now: Instant, demand: &Demand, sources: &[Source]) -> bool {
        let known = sources.iter().any(|source| source.supply.history.is_some_and(|h| h.peak().is_some()));
        let early = |object: &Object| {
            let whole = object.deadline.since(object.start);
            now.since(object.start).as_secs_f64() < whole.as_secs_f64() * self.params.learn_share
        };
        !known && demand.objects.iter().all(early)
    }

    /// What is queued on a path is carried by no other: the scheduler does not
    /// let all queues end together.
    fn watch_tail(&mut self, sources: &[Source]) {
        let mut slowest_s: f64 = 0.0;
        let (mut bytes, mut rates, mut queues) = (0.0, 0.0, 0);
        for source in sources {
            let queued = source.supply.history.map_or(0, |history| history.queued_bytes()) as f64;
            let rate = self.rate(sources, source, TAIL_HORIZON_S);
            if queued > 0.0 && rate > 0.0 {
                slowest_s = slowest_s.max(queued / rate);
                (bytes, rates, queues) = (bytes + queued, rates + rate, queues + 1);
            }
        }
        if queues > 1 {
            self.tail_s = (self.tail_s * TAIL_KEPT).max(slowest_s - bytes / rates).min(LONGEST_TAIL_S);
        }
    }

    /// Lets a path rest that holds up the others.
    fn rest(&mut self, now: Instant, sources: &[Source], carry: &mut [bool]) {
        let carrying = sources.iter().zip(carry.iter()).filter(|(_, carries)| **carries);
        let carrying: Vec<_> =
            carrying.filter_map(|(source, _)| Some((source.place, source.supply.history?))).collect();
        if let Some(place) = self.suspensions.judge(now, &carrying) {
            for (_, carries) in sources.iter().zip(carry).filter(|(source, _)| source.place == place) {
                *carries = false;
            }
        }
    }

    /// A path is given no more while what it was given next would arrive after
    /// the earliest deadline, and over another that carries sooner.
    fn hold_back(&self, now: Instant, demand: &Demand, sources: &[Source], carry: &mut [bool]) {
        let Some(first) = demand.objects.first() else { return };
        let left_s = first.deadline.as_secs_f64() - now.as_secs_f64();
        let arrival_s = |(source, carries): (&Source, &bool)| {
            let history = source.supply.history.filter(|_| *carries)?;
            let (queued, way_s) = (history.queued_bytes() as f64, history.least_rtt().as_secs_f64() / 2.0);
            Some((queued > 0.0, (queued + BURST_BYTES) / history.level(0.0)?.max(1.0) + way_s))
        };
        let arrivals: Vec<Option<(bool, f64)>> = sources.iter().zip(carry.iter()).map(arrival_s).collect();
        let soonest_s = arrivals.iter().flatten().map(|(_, at_s)| *at_s).fold(f64::INFINITY, f64::min);
        for (carries, arrival) in carry.iter_mut().zip(arrivals) {
            *carries &= !arrival.is_some_and(|(queues, at_s)| queues && at_s > left_s.max(soonest_s));
        }
    }

    fn look_after_backlog(&mut self, sources: &[Source]) {
        let [least, most] = self.params.backlog_rtts;
        let carrying = || sources.iter().filter(|source| self.on.get(source.place).copied().unwrap_or(false));
        let queueing = |source: &Source| source.supply.history.is_some_and(|history| history.queueing() > QUEUEING);
        let step = if carrying().any(queueing) { -BACKLOG_STEP } else { BACKLOG_STEP };
        self.backlog_rtts = (self.backlog_rtts + step).min(most).max(least);
        // The scheduler gives a path so much at once, and what follows waits for it.
        let burst_s = |source: &Source| Some(BURST_BYTES / source.supply.history?.level(0.0)?.max(1.0));
        let together = carrying().count() > 1;
        let burst_s = carrying().filter(|_| together).filter_map(burst_s).fold(0.0, f64::max).min(LONGEST_BURST_S);
        let bytes = |(place, source): (usize, &Source)| {
            let Some((history, peak)) = source.supply.history.and_then(|history| Some((history, history.peak()?)))
            else {
                return BACKLOG_FIRST;
            };
            let rtt_s = history.least_rtt().as_secs_f64();
            let whole = peak * (rtt_s * self.backlog_rtts).max(rtt_s + burst_s);
            // What a dearer path is given at first may wait for its start, and all
            // that follows waits for it at the peer.
            let started = history.started_bytes().filter(|_| place > 0);
            started.map_or(whole, |bytes| whole.min(2.0 * bytes as f64))
        };
        self.backlog = Some((BACKLOG_WRITE + carrying().enumerate().map(bytes).sum::<f64>()) as u64);
    }

    fn reason(&self, sources: &[Source], due: &[Due]) -> Reason {
        let carrying = sources.iter().filter(|source| self.on.get(source.place).copied().unwrap_or(false)).count();
        let Some(last) = due.last() else {
            let text = "nothing is due: the cheapest path alone".into();
            return Reason { rule: "deadline.idle", text, inputs: Vec::new() };
        };
        let cheapest = sources.first().map_or(0.0, |source| self.carries(sources, source, last.within_s));
        let text = format!(
            "{:.2} MB are due within {:.2} s, of which the cheapest path carries {:.2} for sure: {carrying} of {} paths",
            last.bytes / 1e6,
            last.within_s,
            cheapest / 1e6,
            sources.len()
        );
        let rule = if carrying > 1 { "deadline.short" } else { "deadline.enough" };
        let inputs = vec![("due_mb", last.bytes / 1e6), ("within_s", last.within_s), ("cheapest_mb", cheapest / 1e6)];
        Reason { rule, text, inputs }
    }
}

impl Allocator for Deadline {
    fn allocate(&mut self, paths: &[PathInput]) -> Vec<PathState> {
        let mut states = chosen(paths, &self.on);
        for (state, _) in states.iter_mut().zip(&self.closed).filter(|(_, closed)| **closed) {
            *state = PathState::Closed;
        }
        states
    }

    fn meet(&mut self, now: Instant, demand: &Demand, paths: &[PathSupply]) -> Option<Reason> {
        let sources = self.sources(now, demand, paths);
        self.watch_tail(&sources);
        let due = self.due(now, demand, &sources);
        self.judge(now, demand, &sources, &due);
        let mut carry = match self.learns(now, demand, &sources) {
            true => self.plan(&sources, &[]),
            false => self.plan(&sources, &due),
        };
        self.rest(now, &sources, &mut carry);
        self.hold_back(now, demand, &sources, &mut carry);
        let was = core::mem::replace(&mut self.on, vec![false; paths.len()]);
        for (source, carry) in sources.iter().zip(carry) {
            self.on[source.place] = carry;
        }
        let carries: Vec<bool> = self.on.iter().map(|on| *on && !demand.objects.is_empty()).collect();
        self.suspensions.note(now, &carries);
        self.look_after_backlog(&sources);
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
