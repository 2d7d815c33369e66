//! Of the paths over one radio, the strongest carries data; the others are in reserve.
//!
//! They share one transmit queue and one channel: a second one adds no rate, and frames for
//! a station that hardly answers hold up the frames for all others. So the strongest
//! carries, and another takes over when it is stronger by the hysteresis, while both still
//! carry. Paths on which nothing fades carry beside it: that costs nothing, and a station
//! that is gone of a sudden then holds up only a part of the data. One that is about as
//! strong carries beside it, too. One with a clearly longer round trip does not: each of its lost packets would hold up what the others deliver. A
//! radio counts as one path, with the rank of its most preferred one.
//!
//! Of one radio all paths stall at once. The path that delivered last is not at fault, nor
//! is one that begins to carry when another is left, until that one's frames are gone. If
//! none carries beside the one that stalls, it is left only then: of a first window over
//! another path most would be lost in the full queue, and the rate stays low for long.
//! That matters only while no path beyond the radio is good.

use alloc::format;
use alloc::vec::Vec;

use super::{Allocator, Mode, PathInput, PathSupply, fallback_state, select_active, tiers::Tiers};
use crate::assess::Belief;
use crate::path::{OnFade, PathState, PerPath};
use crate::reason::Reason;
use crate::time::{Duration, Instant};
use crate::wanted::Wanted;
use track::Track;

mod track;

/// How long the frames for a station that is gone hold up others: a queue of 50 packets,
/// each with seven tries at 18 Mbit/s, takes as long. For as long data delivered proves a
/// path alive.
const DRAIN: Duration = Duration::from_secs(1);
/// So far above its threshold a path does not fade, in dB: with Rayleigh fading one frame of
/// a hundred is received with less than the mean minus 20 dB.
const STRONG_DB: f64 = 20.0;
/// A path carries beside the one that serves its radio if it is not weaker by more, in dB:
/// frames to either fade, rarely to both at once, and the other's window is open when the
/// better one changes.
const NEAR_DB: f64 = 2.5;
/// A path without a subflow for this long is not proven: the CAMs of its station say that it
/// is there, nothing else does.
const PROOF: Duration = Duration::from_millis(200);
/// A path that is weaker than the one that carries by more is not opened, in dB: its
/// handshake would hold up data.
const RESERVE_DB: f64 = 10.0;
/// A least round-trip time that exceeds that of another path by more makes a path a detour:
/// for as long a lost packet holds up what the other delivers.
const DETOUR: Duration = Duration::from_millis(50);

/// Parameters of [`OneOfRadio`].
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// How the paths are used together.
    pub mode: Mode,
    /// Signal at which a path is left, in dBm.
    pub threshold_dbm: f64,
    /// By how much the signal of another path of the radio must be stronger, in dB.
    pub hysteresis_db: f64,
    /// Time constant of the smoothing of the signals.
    pub smoothing: Duration,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct OneOfRadio {
    params: Params,
    tiers: Tiers,
    now: Instant,
    tracks: Vec<Track>,
    serving: Vec<Serving>,
}

/// The strongest path of a radio.
#[derive(Clone, Copy, Debug)]
struct Serving {
    radio: u8,
    place: usize,
    /// When it began to carry because another was left.
    since: Option<Instant>,
}

impl OneOfRadio {
    /// An allocator without paths.
    pub fn new(params: Params) -> OneOfRadio {
        let (tiers, now) = (Tiers::new(params.mode), Instant::ZERO);
        OneOfRadio { params, tiers, now, tracks: Vec::new(), serving: Vec::new() }
    }

    /// How the paths are used together from now on.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.tiers.set_mode(mode);
    }

    fn track(&self, place: usize) -> &Track {
        self.tracks.get(place).unwrap_or(&Track::NONE)
    }

    fn serving(&self, radio: u8) -> Option<Serving> {
        self.serving.iter().find(|serving| serving.radio == radio).copied()
    }

    /// Whether a path serves its radio, or shares none.
    pub(super) fn serves(&self, place: usize, path: &PathInput) -> bool {
        path.radio.and_then(|radio| self.serving(radio)).is_none_or(|serving| serving.place == place)
    }

    /// The belief about a path; a stalled one that is not at fault counts as good, unless a
    /// path beyond its radio is good: that one delivers, whatever holds up the radio. A good
    /// signal says nothing about a unit that does not answer.
    fn belief(&self, paths: &[PathInput], place: usize) -> Belief {
        let path = paths[place];
        if self.track(place).answers == Some(false) && matches!(path.belief, Belief::Good | Belief::Fading) {
            return Belief::Unknown;
        }
        let Some(radio) = path.radio.filter(|_| path.belief == Belief::Stalled) else { return path.belief };
        if paths.iter().any(|other| other.radio != Some(radio) && other.belief == Belief::Good) {
            return path.belief;
        }
        let is_recent = |at: Instant| self.now < at + DRAIN;
        let track = self.track(place);
        let follows = self.serving(radio).is_some_and(|last| last.place == place && last.since.is_some_and(is_recent));
        let delivered = track.delivered_at().filter(|at| is_recent(*at));
        let is_over = delivered.is_some_and(|at| track.stalled.is_some_and(|stalled| at > stalled));
        let is_last = delivered.is_some_and(|at| {
            let others = (0..paths.len()).filter(|other| *other != place && paths[*other].radio == Some(radio));
            let stalled = track.stalled.unwrap_or(self.now);
            let tracks = others.map(|other| self.track(other));
            let mut suspects =
                tracks.filter(|track| track.carried.is_some_and(|[since, until]| since < stalled && is_recent(until)));
            suspects.any(|track| track.delivered_at().is_some_and(|before| before < at))
        });
        let is_alone = !(0..paths.len()).any(|other| other != place && self.track(other).is_active);
        let is_queued = is_alone && track.is_active && track.drained_at().is_some_and(|at| self.now < at);
        if follows || is_over || is_last || is_queued { Belief::Good } else { path.belief }
    }

    /// The paths of each radio that several share, as they are to count.
    fn counted(&self, paths: &[PathInput]) -> PerPath<PathInput> {
        let mut counted: PerPath<PathInput> = paths.iter().copied().collect();
        for (place, path) in counted.iter_mut().enumerate() {
            path.belief = self.belief(paths, place);
            if path.radio.is_some() {
                let same = paths.iter().filter(|other| other.radio == path.radio);
                path.rank = same.map(|other| other.rank).min().unwrap_or(path.rank);
            }
        }
        counted
    }

    /// The path of a radio that is to carry: the present one, unless another has a better
    /// belief or is clearly stronger.
    fn choose(&self, counted: &[PathInput], radio: u8) -> Option<usize> {
        let class = |place: usize| match counted[place].belief {
            Belief::Good => 0,
            Belief::Fading => 1,
            Belief::Unknown if self.track(place).signal.is_some() => 2,
            Belief::Lost if self.track(place).signal.is_some() => 3,
            Belief::Stalled => 4,
            // No message of its station has ever arrived, or it is removed.
            Belief::Unknown | Belief::Lost => 5,
        };
        let rank = |place: usize| (class(place), !self.is_proven(place), self.is_detour(counted, place));
        let dbm = |place: usize| self.track(place).dbm();
        let of_radio = (0..counted.len()).filter(|place| counted[*place].radio == Some(radio));
        let best = of_radio.min_by(|a, b| rank(*a).cmp(&rank(*b)).then(dbm(*b).total_cmp(&dbm(*a))))?;
        let present = self.serving(radio).map(|serving| serving.place).filter(|place| *place < counted.len());
        let stays = |place: &usize| {
            let is_enough = self.is_strong(*place) || dbm(best) <= dbm(*place) + self.params.hysteresis_db;
            class(*place) == class(best)
                && self.is_proven(*place) >= self.is_proven(best)
                && self.is_detour(counted, *place) <= self.is_detour(counted, best)
                && (is_enough || !self.is_proven(best))
        };
        Some(present.filter(stays).unwrap_or(best))
    }

    /// Whether a path has a subflow.
    fn is_proven(&self, place: usize) -> bool {
        self.track(place).proven.is_some_and(|at| self.now < at + PROOF)
    }

    /// Whether a path does not fade. That of one that carries must tell more than the scatter of its signal.
    fn is_strong(&self, place: usize) -> bool {
        let track = self.track(place);
        let margin_db = if track.is_active { STRONG_DB - 2.0 * self.params.hysteresis_db } else { STRONG_DB };
        track.dbm() >= self.params.threshold_dbm + margin_db
    }

    /// Whether another path of the radio is strong, and has a clearly shorter round trip.
    fn is_detour(&self, counted: &[PathInput], place: usize) -> bool {
        let is_shorter = |other: usize| {
            let rtts = self.track(other).min_rtt.zip(self.track(place).min_rtt);
            rtts.is_some_and(|(least, rtt)| rtt > least + DETOUR)
        };
        let of_radio = (0..counted.len()).filter(|other| counted[*other].radio == counted[place].radio);
        let mut good = of_radio.filter(|other| counted[*other].belief == Belief::Good && self.is_proven(*other));
        good.any(|other| self.is_strong(other) && is_shorter(other))
    }

    /// The wanted states, if these paths serve their radios.
    fn states(&self, counted: &[PathInput], serving: &[(u8, usize)]) -> PerPath<PathState> {
        let is_on = |place, path: &PathInput| self.tiers.is_on(place, path);
        if serving.is_empty() {
            return select_active(counted, is_on, OnFade::Backup);
        }
        let of =
            |path: &PathInput| serving.iter().find(|(radio, _)| path.radio == Some(*radio)).map(|(_, place)| *place);
        let carries = |place: usize| of(&counted[place]).is_none_or(|first| first == place);
        let places: PerPath<usize> = (0..counted.len()).filter(|place| carries(*place)).collect();
        let inputs: PerPath<PathInput> = places.iter().map(|place| counted[*place]).collect();
        let chosen = select_active(&inputs, is_on, OnFade::Backup);
        let mut states: PerPath<PathState> = counted.iter().map(fallback_state).collect();
        for (&place, state) in places.iter().zip(chosen) {
            states[place] = state;
        }
        for (place, path) in counted.iter().enumerate() {
            let Some(first) = of(path).filter(|first| *first != place) else { continue };
            // One that stalls may count as good, and yet another must be there to take over.
            let is_steady = counted[first].belief == Belief::Good && self.track(first).stalled.is_none();
            let is_covered = is_steady && self.is_proven(first);
            if path.belief == Belief::Good {
                states[place] = self.beside(counted, place, first, states[first]);
            } else if is_covered && self.is_spent(place) {
                // While its station still answers. If the first one fails, data would be sent there.
                states[place] = PathState::Closed;
            }
        }
        states
    }

    /// The state of a good path beside the one that serves its radio.
    fn beside(&self, counted: &[PathInput], place: usize, first: usize, state: PathState) -> PathState {
        let is_apt = self.is_strong(place) || self.is_near(place, first);
        let carries = self.is_proven(place) && is_apt && !self.is_detour(counted, place);
        if state == PathState::Active && carries {
            return PathState::Active;
        }
        let is_far = self.track(place).answers != Some(true) && self.is_far(place, first);
        if counted[place].was == PathState::Closed && is_far { PathState::Closed } else { PathState::Backup }
    }

    /// Whether a path that is not good is no reserve any more: its station does not answer, or
    /// soon will not.
    fn is_spent(&self, place: usize) -> bool {
        let track = self.track(place);
        let least_dbm = self.params.threshold_dbm - self.params.hysteresis_db;
        track.answers.is_some_and(|answers| !answers || track.dbm() < least_dbm)
    }

    /// Whether the signal of a path is about as strong as that of another.
    fn is_near(&self, place: usize, first: usize) -> bool {
        let dbm = self.track(place).dbm();
        dbm.is_finite() && dbm + NEAR_DB >= self.track(first).dbm()
    }

    /// Whether a path is too weak beside another to be in reserve.
    fn is_far(&self, place: usize, first: usize) -> bool {
        self.track(place).dbm() + RESERVE_DB < self.track(first).dbm()
    }

    /// For each radio, in the order of their numbers, the path that is to serve it.
    fn chosen(&self, counted: &[PathInput]) -> PerPath<(u8, usize)> {
        let next = |last: Option<u8>| {
            let radios = counted.iter().filter_map(|path| path.radio);
            radios.filter(|radio| last.is_none_or(|last| *radio > last)).min()
        };
        let radios = core::iter::successors(next(None), |last| next(Some(*last)));
        radios.filter_map(|radio| Some((radio, self.choose(counted, radio)?))).collect()
    }

    /// Shares what it knows of the paths with another allocator, for a call.
    pub(super) fn share_with<R>(&mut self, other: &mut OneOfRadio, call: impl FnOnce(&mut OneOfRadio) -> R) -> R {
        core::mem::swap(&mut self.tracks, &mut other.tracks);
        let result = call(other);
        core::mem::swap(&mut self.tracks, &mut other.tracks);
        result
    }

    /// When to review next, with what another allocator knows of the paths.
    pub(super) fn next_wakeup_like(&self, other: &OneOfRadio) -> Option<Instant> {
        let since = self.serving.iter().filter_map(|serving| serving.since);
        let drained = other.tracks.iter().filter(|track| track.stalled.is_some()).filter_map(Track::drained_at);
        let wakeups = since.map(|since| since + DRAIN).chain(drained).chain(self.tiers.next_wakeup());
        wakeups.filter(|at| *at > self.now).min()
    }

    /// Reviews the paths that it knows already.
    pub(super) fn review_tracked(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        self.now = now;
        let shares_radio = paths.iter().any(|path| path.input.radio.is_some());
        if !shares_radio && !self.tiers.needs_review() {
            return None;
        }
        let inputs: PerPath<PathInput> = paths.iter().map(|path| path.input).collect();
        let counted = self.counted(&inputs);
        if let Some(reason) = self.tiers.review(now, &counted, paths) {
            return Some(reason);
        }
        if !shares_radio {
            return None;
        }
        let chosen = self.chosen(&counted);
        let states = self.states(&counted, &chosen);
        let changes = |place: &usize| {
            let path = &counted[*place];
            path.radio.is_some() && path.belief == Belief::Good && path.was != states[*place]
        };
        let mut changed = (0..counted.len()).filter(changes);
        let first_changed = changed.next()?;
        // It is left now, and was not when it stalled.
        let waited = |track: &Track| {
            let drained = track.drained_at().filter(|at| *at <= now);
            drained.zip(track.stalled).is_some_and(|(drained, stalled)| drained > stalled)
        };
        if let Some(track) = self.tracks.iter().find(|track| track.is_active && waited(track)) {
            return Some(Reason::new("radio.stall", [("unacked", f64::from(track.unacked))], |[unacked, ..]| {
                format!("{unacked} segments unacknowledged, their frames hold up others no longer")
            }));
        }
        let detour = core::iter::once(first_changed).chain(changed).find(|place| self.is_detour(&counted, *place));
        if let Some(rtt) = detour.and_then(|place| self.track(place).min_rtt) {
            let ms = rtt.as_secs_f64() * 1e3;
            return Some(Reason::new("radio.round-trip", [("min_rtt_ms", ms)], |[ms, ..]| {
                format!("its least RTT is {ms:.0} ms, that of another strong path of the radio is clearly less")
            }));
        }
        let place = first_changed;
        let first = chosen.iter().find(|(radio, _)| counted[place].radio == Some(*radio)).map(|(_, first)| *first)?;
        let (dbm, first_dbm) = (self.track(place).dbm(), self.track(first).dbm());
        let inputs = [("rssi_dbm", dbm), ("serving_rssi_dbm", first_dbm), ("hysteresis_db", self.params.hysteresis_db)];
        Some(Reason::new("radio.signal", inputs, |[dbm, first_dbm, ..]| {
            format!("received with {dbm:.1} dBm, the path that serves the radio with {first_dbm:.1} dBm")
        }))
    }
}

impl Allocator for OneOfRadio {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let mut counted = self.counted(paths);
        let chosen = self.chosen(&counted);
        let mut changes = false;
        for &(radio, place) in &chosen {
            let present = self.serving(radio);
            if present.is_some_and(|present| present.place == place) {
                continue;
            }
            self.serving.retain(|serving| serving.radio != radio);
            let left = present.and_then(|present| paths.get(present.place)).map(|path| path.belief);
            let begins = left.is_some_and(|left| left != Belief::Good) && paths[place].was != PathState::Active;
            self.serving.push(Serving { radio, place, since: begins.then_some(self.now) });
            changes = true;
        }
        if changes {
            counted = self.counted(paths);
        }
        self.states(&counted, &chosen).into()
    }

    fn review(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        self.tracks.resize(paths.len(), Track::NONE);
        for (track, path) in self.tracks.iter_mut().zip(paths) {
            track.observe(now, &path.input, path.latest, self.params.smoothing);
        }
        self.review_tracked(now, paths)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.next_wakeup_like(self)
    }
}

#[cfg(test)]
mod tests;
