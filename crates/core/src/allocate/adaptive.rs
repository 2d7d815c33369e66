//! The most preferred good path carries alone, the others are held in reserve. While a
//! sender has more data than that path takes, every good path carries in the mode
//! [`Aggregate`](Mode::Aggregate).
//!
//! If no path is good, each carries in turn, first the one that was left the longest time
//! ago, until one proves to be good. Paths over one radio count as one: the strongest.

use alloc::format;
use alloc::vec::Vec;

use super::fullness::{FULL, Fullness};
use super::one_of_radio::{OneOfRadio, Params};
use super::{Allocator, Mode, PathInput, PathSupply, fallback_state};
use crate::assess::{Belief, Reason};
use crate::path::PathState;
use crate::time::{Duration, Instant};
use crate::wanted::Wanted;

/// The others stop to carry when the paths have not been full for this long.
const NOT_FULL: Duration = Duration::from_secs(2);
/// How long a path that is not good carries before the next one is tried: a subflow is
/// opened in two RTTs, and its first data is acknowledged in one more.
const TURN: Duration = Duration::from_millis(300);

/// The allocator.
#[derive(Clone, Debug)]
pub struct Adaptive {
    mode: Mode,
    one: OneOfRadio,
    all: OneOfRadio,
    now: Instant,
    /// When each path was last good, or last had its turn.
    tried: Vec<Instant>,
    /// The path that has its turn, and when it began.
    turn: Option<(usize, Instant)>,
    /// Of the active paths.
    full: Fullness,
    /// Whether every good path carries.
    shares: bool,
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
            tried: Vec::new(),
            turn: None,
            full: Fullness::default(),
            shares: false,
        }
    }

    /// Whether every good path is to carry.
    fn is_to_share(&mut self, now: Instant, paths: &[PathSupply]) -> bool {
        let active = paths.iter().filter(|path| path.input.was == PathState::Active);
        self.full.observe(now, active.map(|path| path.latest));
        self.mode == Mode::Aggregate
            && match self.shares {
                true => self.full.last().is_some_and(|last| now.since(last) < NOT_FULL),
                false => self.full.lasts(now),
            }
    }

    /// The path that carries if none is good; `None` if all are of one radio.
    fn next_turn(&mut self, paths: &[PathInput]) -> Option<usize> {
        let serves = |place: usize| self.one.serves(place, &paths[place]);
        let is_usable = |path: &PathInput| matches!(path.belief, Belief::Fading | Belief::Stalled);
        let usable = || (0..paths.len()).filter(|place| is_usable(&paths[*place]) && serves(*place));
        let radio = paths.first()?.radio;
        if radio.is_some() && paths.iter().all(|path| path.radio == radio) {
            return None;
        }
        if let Some((place, since)) = self.turn.filter(|(place, _)| *place < paths.len() && is_usable(&paths[*place]))
            && self.now < since + TURN
            && serves(place)
            && usable().all(|other| paths[other].belief >= paths[place].belief)
        {
            return Some(place);
        }
        let place =
            usable().min_by_key(|place| (paths[*place].belief, self.tried.get(*place).copied(), paths[*place].rank))?;
        self.turn = Some((place, self.now));
        if let Some(tried) = self.tried.get_mut(place) {
            *tried = self.now;
        }
        Some(place)
    }
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
        self.tried.resize(paths.len(), Instant::ZERO);
        for (tried, path) in self.tried.iter_mut().zip(paths) {
            if path.was == PathState::Active {
                *tried = self.now;
            }
        }
        let wanted = if self.shares { self.all.allocate(paths) } else { self.one.allocate(paths) };
        let is_any_good = paths.iter().any(|path| path.belief == Belief::Good);
        if !is_any_good && let Some(first) = self.next_turn(paths) {
            let state = |(place, path)| if place == first { PathState::Active } else { fallback_state(path) };
            return paths.iter().enumerate().map(state).collect();
        }
        self.turn = None;
        let states = paths.iter().zip(wanted.states());
        states
            .map(|(path, state)| if is_dead_reserve(paths, path, *state) { PathState::Closed } else { *state })
            .collect()
    }

    fn review(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        self.now = now;
        let (of_one, of_all) = (self.one.review(now, paths), self.all.review(now, paths));
        if self.turn.is_some_and(|(_, since)| now >= since + TURN) && paths.len() > 1 {
            return Some(Reason::plain("adaptive.turn", "no path is good, the next is tried"));
        }
        let shares = self.is_to_share(now, paths);
        if shares == core::mem::replace(&mut self.shares, shares) {
            return if shares { of_all } else { of_one };
        }
        let text = if shares {
            format!("the sender has had more data than one path takes for {} ms", FULL.as_millis())
        } else {
            format!("one path has sufficed for {} s", NOT_FULL.as_secs())
        };
        Some(Reason { rule: if shares { "adaptive.share" } else { "adaptive.alone" }, text, inputs: [].into() })
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let radio = if self.shares { self.all.next_wakeup() } else { self.one.next_wakeup() };
        let alone = self.full.last().filter(|_| self.shares).map(|last| last + NOT_FULL);
        let turn = self.turn.map(|(_, since)| since + TURN);
        radio.into_iter().chain(alone).chain(turn).filter(|at| *at > self.now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::Latest;
    use crate::path::Rat;
    use PathState::{Active, Backup, Closed};

    #[test]
    fn a_reserve_that_is_not_good_is_closed_only_beside_a_good_path_beyond_its_radio() {
        let smoothing = Duration::from_millis(300);
        let params =
            Params { mode: Mode::Backup, threshold_dbm: -82.0, hysteresis_db: 3.0, smoothing, prefers_stalled: true };
        let unit = |belief, was| PathInput { belief, was, rank: 0, radio: Some(0) };
        let lte = |belief| PathInput { belief, was: Backup, rank: 1, radio: None };
        let states = |paths: &[PathInput]| Adaptive::new(params).allocate(paths).states().to_vec();
        let units = [unit(Belief::Good, Active), unit(Belief::Fading, Backup)];
        assert_eq!(states(&[units[0], units[1], lte(Belief::Good)]), [Active, Closed, Backup]);
        assert_eq!(states(&[units[0], units[1], lte(Belief::Fading)]), [Active, Backup, Backup]);
        assert_eq!(states(&units), [Active, Backup]);
    }

    #[test]
    fn paths_of_one_radio_take_no_turns() {
        let smoothing = Duration::from_millis(300);
        let params =
            Params { mode: Mode::Backup, threshold_dbm: -82.0, hysteresis_db: 3.0, smoothing, prefers_stalled: true };
        let path = |belief, was, radio| PathInput { belief, was, rank: 0, radio };
        for (radio, takes_turns) in [(Some(0), false), (None, true)] {
            let mut allocator = Adaptive::new(params);
            let inputs = [path(Belief::Fading, Active, radio), path(Belief::Stalled, Active, radio)];
            assert_eq!(allocator.allocate(&inputs).states(), [Active, Closed]);
            let latest = Latest::default();
            let supply = |input| PathSupply { input, rat: Rat::Ieee80211p, history: None, latest: &latest };
            let reason = allocator.review(Instant::ZERO + TURN, &inputs.map(supply));
            assert_eq!(reason.is_some_and(|reason| reason.rule == "adaptive.turn"), takes_turns);
        }
    }
}
