//! The most preferred good path carries alone, the others are held in reserve. While a
//! sender has more data than that path takes, every good path carries in the mode
//! [`Aggregate`](Mode::Aggregate).
//!
//! A path of which no signal tells when it recovers, and that was left, carries again only
//! after a hold-down, or when the path that carries instead is not good. The hold-down
//! doubles with each return that does not last, and is shorter while a path carries that costs more.
//!
//! While a handover that its modem announced lasts, a path is preferred to no good one.
//!
//! If no path is good and of none a signal tells when it recovers, the one that carries goes on until it stalls. Then one takes over
//! that answers: each is opened again as soon as its stalled subflow is closed, and its handshake is an answer. Until one answers
//! nothing is closed: a path that is being opened carries nothing.
//!
//! If no path is good and a signal tells of some, each carries in turn, first the one that was left the longest time ago, until
//! one proves to be good. One that carries precedes paths whose signal is too low, if it is only late, or if
//! none was received over them for a while.
//! Paths over one radio count as one: the strongest.

use alloc::format;
use alloc::vec::Vec;

use super::fullness::{FULL, Fullness};
use super::one_of_radio::{OneOfRadio, Params};
use super::{Allocator, Latest, Mode, PathInput, PathSupply, fallback_state};
use crate::assess::Belief;
use crate::assess::motion::Handover;
use crate::path::{Carried, PathState, PerPath};
use crate::reason::{Reason, Sentence};
use crate::time::{Duration, Instant};
use crate::wanted::Wanted;

/// The others stop to carry when the paths have not been full for this long.
const NOT_FULL: Duration = Duration::from_secs(2);
/// What paths carried counts for this long.
const RECENT: Duration = Duration::from_secs(1);
/// How long a path that is not good carries before the next one is tried: a subflow is
/// opened in two RTTs, and its first data is acknowledged in one more.
const TURN: Duration = Duration::from_millis(300);
/// How long a path that carries and is fading carries on beside paths whose signal does not let them
/// be entered, or a path that is stalled beside those over which no signal arrives: time to prove that it delivers.
const FIRST_TURN: Duration = Duration::from_millis(500);
/// A path whose last signal is older than this is out of reach.
const SILENCE: Duration = Duration::from_secs(1);
/// A path has no subflow any more if none was observed for this long: two sampling intervals, and some time.
const GONE: Duration = Duration::from_millis(25);
/// A path that was left is preferred again after this time; it doubles with each return that
/// lasts less than [`SHORT_RETURN`], at most so often.
const HOLD_DOWN: Duration = Duration::from_secs(60);
/// The same of a path that costs less than those that carry.
const CHEAPER_HOLD_DOWN: Duration = Duration::from_secs(10);
const SHORT_RETURN: Duration = Duration::from_secs(10);
const MAX_DOUBLINGS: u32 = 3;
/// Ranks of paths in hold-down begin here.
const HELD: u8 = 128;

/// The allocator.
#[derive(Clone, Debug)]
pub struct Adaptive {
    mode: Mode,
    one: OneOfRadio,
    /// Has no knowledge of the paths but that of `one`.
    all: OneOfRadio,
    now: Instant,
    tracks: Vec<Track>,
    turn: Option<Turn>,
    /// Of each path, while it carries.
    full: Vec<Fullness>,
    /// Whether every good path carries.
    shares: bool,
}

/// A path carries though it is not good.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: usize,
    until: Instant,
    /// Whether it ends as soon as the path stalls.
    delivers: bool,
}

/// How a path carried.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// Whether it carries, since when, and when it last did.
    is_active: bool,
    since: Instant,
    carried: Instant,
    /// Whether it is good.
    is_good: bool,
    /// Whether its signal tells when it may be entered, and when there last was one.
    needs_signal: bool,
    signal_at: Option<Instant>,
    /// Whether it shares no radio, and only its answers tell how it is.
    is_alone: bool,
    /// When there last was a subflow over it, while the one on which data waits is to be closed.
    closing: Option<Instant>,
    /// Whether that is done, and another is to be opened.
    reopens: bool,
    /// When it was left; it is not preferred for a while.
    left: Option<Instant>,
    doublings: u32,
    /// Whether it costs less than those that carry.
    is_cheaper: bool,
    handover: Handover,
}

impl Track {
    fn observe(&mut self, now: Instant, path: &PathSupply) {
        let is_active = path.input.was == PathState::Active;
        if is_active && !self.is_active {
            self.since = now;
        }
        if let Some((at, is_announced)) = path.latest.handover {
            self.handover.on_report(at, is_announced);
        }
        (self.is_active, self.is_good) = (is_active, path.input.belief == Belief::Good);
        self.needs_signal = path.rat.needs_signal();
        self.signal_at = path.latest.signal.map(|(at, _)| at);
        if is_active {
            self.carried = now;
        }
        self.is_alone = path.input.radio.is_none() && !self.needs_signal;
        let is_stalled = self.is_alone && path.input.belief == Belief::Stalled;
        let is_closing = is_stalled && !self.reopens && path.input.was == PathState::Closed;
        self.closing = is_closing.then(|| path.latest.transport.map_or(Instant::ZERO, |(at, _)| at));
        self.reopens &= is_stalled;
    }

    /// Notes that the subflow on which data waited is closed; returns whether that is new.
    fn follow_closing(&mut self, now: Instant) -> bool {
        let is_gone = self.closing.is_some_and(|seen| now >= seen + GONE);
        self.reopens |= is_gone;
        is_gone
    }

    /// Whether its roadside unit or access point is out of reach.
    fn is_silent(&self, now: Instant) -> bool {
        self.needs_signal && self.signal_at.is_none_or(|at| now.since(at) >= SILENCE)
    }

    /// The path carries, and is not good any more.
    fn leave(&mut self, now: Instant) {
        let is_short = self.left.is_some() && now.since(self.since) < SHORT_RETURN;
        self.doublings = if is_short { (self.doublings + 1).min(MAX_DOUBLINGS) } else { 0 };
        self.left = Some(now);
    }

    fn hold_down(&self) -> Duration {
        let once = if self.is_cheaper { CHEAPER_HOLD_DOWN } else { HOLD_DOWN };
        once * (1 << self.doublings)
    }

    fn held_until(&self) -> Option<Instant> {
        self.left.map(|left| left + self.hold_down())
    }

    fn is_held(&self, now: Instant) -> bool {
        self.held_until().is_some_and(|until| now < until)
    }
}

impl Adaptive {
    /// An allocator without paths; its mode is that of `params`.
    pub fn new(params: Params) -> Adaptive {
        let alone = if params.mode == Mode::CostFirst { Mode::CostFirst } else { Mode::Backup };
        Adaptive {
            mode: params.mode,
            one: OneOfRadio::new(Params { mode: alone, ..params }),
            all: OneOfRadio::new(Params { mode: Mode::Aggregate, ..params }),
            now: Instant::ZERO,
            tracks: Vec::new(),
            turn: None,
            full: Vec::new(),
            shares: false,
        }
    }

    /// The state of a path that is not to carry. One that only its answers tell of is in reserve when it answers, and is opened
    /// again as soon as its stalled subflow is closed, since its handshake shows when it does.
    fn reserve(&self, place: usize, path: &PathInput, state: PathState) -> PathState {
        match self.tracks.get(place).filter(|track| track.is_alone) {
            Some(_) if path.belief == Belief::Fading => PathState::Backup,
            Some(track) if path.belief == Belief::Stalled && track.reopens => PathState::Backup,
            _ => state,
        }
    }

    /// Whether every good path is to carry.
    fn is_to_share(&mut self, now: Instant, paths: &[PathSupply]) -> bool {
        let is_active = |path: &&PathSupply| path.input.was == PathState::Active;
        self.full.resize_with(paths.len(), Fullness::default);
        let each = self.full.iter_mut().zip(paths).filter(|(_, path)| is_active(path));
        each.for_each(|(full, path)| full.observe(now, path.latest));
        let active = paths.iter().filter(is_active).map(|path| path.latest);
        self.mode == Mode::Aggregate
            && match self.shares {
                true => self.last_full().is_some_and(|last| now.since(last) < NOT_FULL) || needs_all(now, active),
                false => self.full.iter().any(|full| full.lasts(now)),
            }
    }

    /// When a path was full last.
    fn last_full(&self) -> Option<Instant> {
        self.full.iter().filter_map(Fullness::last).max()
    }

    /// The path that carries if none is good; `None` if all are of one radio.
    fn next_turn(&mut self, paths: &[PathInput]) -> Option<usize> {
        let serves = |place: usize| self.one.serves(place, &paths[place]);
        let is_usable = |path: &PathInput| matches!(path.belief, Belief::Fading | Belief::Stalled);
        let track = |place: usize| self.tracks.get(place).copied().unwrap_or_default();
        let usable = || (0..paths.len()).filter(|place| is_usable(&paths[*place]) && serves(*place));
        let radio = paths.first()?.radio;
        if radio.is_some() && paths.iter().all(|path| path.radio == radio) {
            return None;
        }
        let is_fading = |place: usize| paths[place].belief == Belief::Fading;
        let carries = usable().find(|place| paths[*place].was == PathState::Active);
        if usable().all(|place| track(place).is_alone) {
            self.turn = None;
            return usable().min_by_key(|place| (!is_fading(*place), Some(*place) != carries, paths[*place].rank));
        }
        if let Some(Turn { place, until, delivers }) = self.turn
            && self.now < until
            && usable().any(|other| other == place)
            && (!delivers || is_fading(place))
        {
            return Some(place);
        }
        let is_behind = |other: usize, place: usize| match is_fading(place) {
            true => track(other).needs_signal,
            false => track(other).is_silent(self.now) && !track(place).needs_signal,
        };
        let is_best = |place: &usize| usable().all(|other| other == *place || is_behind(other, *place));
        let present = carries.filter(|place| self.turn.is_none() && is_best(place));
        let longest_ago = || usable().min_by_key(|place| (track(*place).carried, paths[*place].rank));
        let place = present.or_else(longest_ago)?;
        let delivers = present.is_some_and(is_fading);
        self.turn = Some(Turn { place, until: self.now + if present.is_some() { FIRST_TURN } else { TURN }, delivers });
        if let Some(track) = self.tracks.get_mut(place) {
            track.carried = self.now;
        }
        Some(place)
    }

    /// The paths with the ranks by which they are preferred now: one in hold-down does not take
    /// over from a good path.
    fn ranked(&self, paths: &[PathInput]) -> PerPath<PathInput> {
        let mut ranked: PerPath<PathInput> = paths.iter().copied().collect();
        for (path, track) in ranked.iter_mut().zip(&self.tracks) {
            let carries = path.was == PathState::Active && path.belief == Belief::Good;
            if track.handover.lasts(self.now) || (!carries && track.is_held(self.now)) {
                path.rank = path.rank.saturating_add(HELD);
            }
        }
        ranked
    }

    /// Observes the paths, and begins and ends hold-downs. Returns the length of one that ends while its path is good,
    /// and a reason if the handover of a good one begins or ends.
    fn observe(&mut self, now: Instant, paths: &[PathSupply]) -> (Option<Duration>, Option<Reason>) {
        let (mut released, mut reason) = (None, None);
        let active = paths.iter().filter(|path| path.input.was == PathState::Active);
        let carries_at = active.filter_map(|path| path.unit_cost).min_by(f64::total_cmp);
        for (track, path) in self.tracks.iter_mut().zip(paths) {
            let (was_held, was_in_handover) = (track.is_held(self.now), track.handover.lasts(self.now));
            let is_bad = matches!(path.input.belief, Belief::Fading | Belief::Stalled | Belief::Lost);
            if track.is_active && track.is_good && is_bad && !path.rat.needs_signal() {
                track.leave(now);
            }
            track.is_cheaper =
                path.unit_cost.zip(carries_at).is_some_and(|(unit_cost, carries_at)| unit_cost < carries_at);
            if was_held && !track.is_held(now) && path.input.belief == Belief::Good {
                released = Some(track.hold_down());
            }
            track.observe(now, path);
            let is_in_handover = track.handover.lasts(now);
            if is_in_handover != was_in_handover && path.input.belief == Belief::Good {
                reason = track.handover.since().map(|since| handover_reason(now, since, is_in_handover));
            }
        }
        (released, reason)
    }
}

/// Whether these paths together carry more than any of them was seen to carry: then none suffices alone, though none is
/// full.
fn needs_all<'a>(now: Instant, paths: impl Iterator<Item = &'a Latest>) -> bool {
    let carried = paths.filter_map(|path| path.carried).filter(|(at, _)| now.since(*at) < RECENT);
    let sum = |(total, highest): (f64, f64), (_, carried): (Instant, Carried)| {
        (total + carried.bit_s, highest.max(carried.bit_s).max(carried.fastest_other_bit_s))
    };
    let (total, highest) = carried.fold((0.0, 0.0), sum);
    total > highest
}

/// Why the paths that are preferred change, as the handover of one begins or ends.
fn handover_reason(now: Instant, since: Instant, begins: bool) -> Reason {
    let ms = now.since(since).as_secs_f64() * 1e3;
    let sentence: Sentence = match begins {
        true => |_| "a modem announced a handover: another path carries while it lasts".into(),
        false => |[ms, ..]| format!("a handover was announced {ms:.0} ms ago, and is over"),
    };
    Reason::new("forecast.handover", [("announced_ms", ms)], sentence)
}

/// Whether a reserve over a shared radio would only hold up data: it is not good, and a path
/// beyond the radio is. When the active path fails, the kernel sends its data again over any
/// reserve.
fn is_dead_reserve(paths: &[PathInput], path: &PathInput, state: PathState) -> bool {
    let is_beside = |other: &PathInput| other.belief == Belief::Good && other.radio != path.radio;
    state == PathState::Backup && path.belief != Belief::Good && path.radio.is_some() && paths.iter().any(is_beside)
}

impl Allocator for Adaptive {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let mut wanted = match self.shares {
            true => self.one.share_with(&mut self.all, |all| all.allocate(paths)),
            false => self.one.allocate(&self.ranked(paths)),
        };
        let is_any_good = paths.iter().any(|path| path.belief == Belief::Good);
        if !is_any_good && let Some(first) = self.next_turn(paths) {
            let state = |(place, path)| {
                if place == first { PathState::Active } else { self.reserve(place, path, fallback_state(path)) }
            };
            return paths.iter().enumerate().map(state).collect();
        }
        self.turn = None;
        for (place, (path, state)) in paths.iter().zip(wanted.states_mut()).enumerate() {
            *state = match *state {
                PathState::Closed => self.reserve(place, path, PathState::Closed),
                state if is_dead_reserve(paths, path, state) => PathState::Closed,
                state => state,
            };
        }
        wanted
    }

    fn review(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        self.tracks.resize(paths.len(), Track::default());
        let (released, announced) = self.observe(now, paths);
        self.now = now;
        let of_one = self.one.review(now, paths);
        let of_all = self.one.share_with(&mut self.all, |all| all.review_tracked(now, paths));
        if let Some(held) = released.filter(|_| !self.shares) {
            return Some(Reason::new("adaptive.return", [("held_s", held.as_secs_f64())], |[held_s, ..]| {
                format!("a path that was left is good, and was held down for {held_s:.0} s")
            }));
        }
        if let Some(reason) = announced.filter(|_| !self.shares) {
            return Some(reason);
        }
        // Each is to follow.
        if self.tracks.iter_mut().fold(false, |is_any, track| is_any | track.follow_closing(now)) {
            return Some(Reason::plain(
                "adaptive.reserve",
                "the subflow on which data waited is closed, another is opened",
            ));
        }
        if self.turn.is_some_and(|turn| now >= turn.until) && paths.len() > 1 {
            return Some(Reason::plain("adaptive.turn", "no path is good, the next is tried"));
        }
        let shares = self.is_to_share(now, paths);
        if shares == core::mem::replace(&mut self.shares, shares) {
            return if shares { of_all } else { of_one };
        }
        let (rule, sentence): (_, Sentence) = match shares {
            true => ("adaptive.share", |_| {
                format!("the sender has had more data than one path takes for {} ms", FULL.as_millis())
            }),
            false => ("adaptive.alone", |_| format!("one path has sufficed for {} s", NOT_FULL.as_secs())),
        };
        Some(Reason::new(rule, [], sentence))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let radio = if self.shares { self.all.next_wakeup_like(&self.one) } else { self.one.next_wakeup() };
        let alone = self.last_full().filter(|_| self.shares).map(|last| last + NOT_FULL);
        let turn = self.turn.map(|turn| turn.until);
        let held = self.tracks.iter().filter_map(Track::held_until);
        let gone = self.tracks.iter().filter_map(|track| track.closing).map(|seen| seen + GONE);
        let handovers = self.tracks.iter().filter_map(|track| track.handover.until());
        radio
            .into_iter()
            .chain(alone)
            .chain(turn)
            .chain(held)
            .chain(gone)
            .chain(handovers)
            .filter(|at| *at > self.now)
            .min()
    }
}

#[cfg(test)]
mod tests;
