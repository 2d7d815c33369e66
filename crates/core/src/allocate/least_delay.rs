//! The mode [`Interactive`](super::Mode::Interactive): of the good paths the one of the least delay carries alone.
//!
//! The delay of a path that carries is its smoothed RTT, which contains its queue. That of an idle one is its minimum RTT:
//! what was smoothed last may be of a load that is gone. Another path takes over when it is clearly faster for a while, and
//! not before the hold time is over; it doubles when the load moves along with the decision.

use alloc::format;
use alloc::vec::Vec;

use super::{Latest, PathInput, PathSupply};
use crate::assess::Belief;
use crate::path::Transport;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// A path without a packet for this time is idle.
const IDLE: Duration = Duration::from_millis(500);
/// Another path is clearly faster by this, or by a fifth of the present delay.
const MARGIN: Duration = Duration::from_millis(5);
/// For how long it must be.
const LASTS: Duration = Duration::from_millis(300);
/// First hold time.
const HOLD: Duration = Duration::from_secs(2);
/// Longest hold time.
const MAX_HOLD: Duration = Duration::from_secs(60);

/// The state of one allocator.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastDelay {
    delays: Vec<Delay>,
    /// The path that carries; `None`: no delay is known.
    chosen: Option<usize>,
    /// When it was chosen in the place of another good one.
    changed: Option<Instant>,
    hold: Option<Duration>,
    /// A faster path, and since when.
    faster: Option<(usize, Instant)>,
}

/// The delay of a path.
#[derive(Clone, Copy, Debug, Default)]
struct Delay {
    /// Counters of the subflow that was measured last, and when they changed.
    moved: Option<([u64; 3], Instant)>,
    value: Option<Duration>,
}

impl Delay {
    fn observe(&mut self, now: Instant, latest: &Latest) {
        let Some((at, transport)) = latest.transport else { return };
        let Transport { token, delivered, bytes_received, .. } = transport;
        let counters = [token.into(), delivered.into(), bytes_received];
        if self.moved.is_none_or(|(known, _)| known != counters) || transport.unacked > 0 {
            self.moved = Some((counters, at));
        }
        let is_idle = self.moved.is_none_or(|(_, moved)| now.since(moved) >= IDLE);
        self.value = Some(if is_idle { transport.min_rtt.unwrap_or(transport.rtt) } else { transport.rtt });
    }
}

impl LeastDelay {
    /// The place of the path that is to carry while it is good.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    /// Compares the delays; returns a reason if another path is to carry.
    pub(super) fn review(&mut self, now: Instant, inputs: &[PathInput], paths: &[PathSupply]) -> Option<Reason> {
        self.delays.resize_with(paths.len(), Delay::default);
        self.delays.iter_mut().zip(paths).for_each(|(delay, path)| delay.observe(now, path.latest));
        let delay = |place: usize| Some((self.delays[place].value?, inputs[place].rank));
        let good = (0..inputs.len()).filter(|place| inputs[*place].belief == Belief::Good);
        let (best, (least, _)) = good.filter_map(|place| Some((place, delay(place)?))).min_by_key(|(_, key)| *key)?;
        let present = self.chosen.filter(|place| inputs.get(*place).is_some_and(|path| path.belief == Belief::Good));
        let Some((present, (delay, _))) = present.and_then(|place| Some((place, delay(place)?))) else {
            let is_new = self.chosen.replace(best) != Some(best);
            return is_new.then(|| reason(least, None));
        };
        if least + MARGIN.max(delay / 5) >= delay {
            self.faster = None;
            return None;
        }
        let since = self.faster.filter(|(place, _)| *place == best).map_or(now, |(_, since)| since);
        self.faster = Some((best, since));
        if now < self.due(since) || best == present {
            return None;
        }
        let hold = self.hold.unwrap_or(HOLD);
        let is_soon = self.changed.is_some_and(|changed| now < changed + hold * 2);
        self.hold = Some(if is_soon { hold.saturating_mul(2).min(MAX_HOLD) } else { HOLD });
        (self.chosen, self.changed, self.faster) = (Some(best), Some(now), None);
        Some(reason(least, Some(delay)))
    }

    /// When to review if no sample arrives.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.faster.map(|(_, since)| self.due(since))
    }

    fn due(&self, since: Instant) -> Instant {
        let held = self.changed.map_or(Instant::ZERO, |changed| changed + self.hold.unwrap_or(HOLD));
        (since + LASTS).max(held)
    }
}

fn reason(least: Duration, before: Option<Duration>) -> Reason {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let text = match before {
        Some(before) => format!("its RTT is {:.0} ms, that of the path before {:.0} ms", ms(least), ms(before)),
        None => format!("its RTT of {:.0} ms is the least of the good paths", ms(least)),
    };
    Reason::plain("interactive.delay", text).with([("rtt_ms", ms(least))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathState, Rat};

    /// RTT and minimum RTT of each path in ms, and whether it carries.
    type Measured = [(u64, u64, bool); 2];

    struct Paths {
        least: LeastDelay,
        now_ms: u64,
        delivered: [u32; 2],
        beliefs: [Belief; 2],
    }

    impl Paths {
        fn new() -> Paths {
            Paths { least: LeastDelay::default(), now_ms: 0, delivered: [0; 2], beliefs: [Belief::Good; 2] }
        }

        /// Samples for a time; returns when which path was chosen.
        fn sample(&mut self, for_ms: u64, paths: Measured) -> Vec<(u64, usize)> {
            let mut changes = Vec::new();
            for _ in 0..for_ms / 10 {
                let now = Instant::from_millis(self.now_ms);
                let mut latest = [Latest::default(); 2];
                for (place, (rtt, min_rtt, carries)) in paths.into_iter().enumerate() {
                    self.delivered[place] += u32::from(carries);
                    let rtt = Duration::from_millis(rtt);
                    let min_rtt = Some(Duration::from_millis(min_rtt));
                    let transport = Transport { rtt, min_rtt, delivered: self.delivered[place], ..Transport::IDLE };
                    latest[place].transport = Some((now, transport));
                }
                let input = |place: usize| {
                    let (belief, was) = (self.beliefs[place], PathState::Backup);
                    PathInput { belief, was, rank: place as u8, radio: None }
                };
                let inputs = [input(0), input(1)];
                let supply = |place: usize| PathSupply {
                    unit_cost: None,
                    input: inputs[place],
                    rat: Rat::Lte,
                    history: None,
                    latest: &latest[place],
                };
                if self.least.review(now, &inputs, &[supply(0), supply(1)]).is_some() {
                    changes.push((self.now_ms, self.least.chosen().expect("a path")));
                }
                self.now_ms += 10;
            }
            changes
        }
    }

    #[test]
    fn the_path_of_the_least_delay_carries_whatever_the_user_prefers() {
        assert_eq!(Paths::new().sample(100, [(50, 50, false), (20, 20, false)]), [(0, 1)]);
    }

    #[test]
    fn a_queue_moves_it_to_a_faster_path_and_a_peak_does_not() {
        let mut paths = Paths::new();
        paths.sample(3000, [(20, 20, true), (30, 30, false)]);
        assert_eq!(paths.sample(200, [(200, 20, true), (30, 30, false)]), []);
        assert_eq!(paths.sample(1000, [(25, 20, true), (30, 30, false)]), []);
        assert_eq!(paths.sample(1000, [(200, 20, true), (30, 30, false)]), [(4500, 1)]);
    }

    #[test]
    fn what_an_idle_path_measured_under_load_does_not_count() {
        let mut paths = Paths::new();
        paths.sample(1000, [(200, 20, true), (30, 30, false)]);
        assert_eq!(paths.least.chosen(), Some(1));
        let back = paths.sample(3000, [(200, 20, false), (31, 30, true)]);
        assert_eq!(back, [(1790, 0)], "idle after 0.5 s, its minimum is less for 0.3 s");
    }

    #[test]
    fn each_return_within_the_hold_time_doubles_it() {
        let mut paths = Paths::new();
        let mut changes = paths.sample(1000, [(20, 20, true), (30, 30, false)]);
        // The path that carries has a queue, as under a load that follows it.
        for _ in 0..600 {
            let carries = paths.least.chosen() == Some(0);
            changes.extend(paths.sample(
                100,
                [(if carries { 200 } else { 20 }, 20, carries), (if carries { 30 } else { 200 }, 30, !carries)],
            ));
        }
        let pauses: Vec<u64> = changes.windows(2).map(|pair| (pair[1].0 - pair[0].0) / 1000).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16], "{changes:?}");
    }

    #[test]
    fn a_lost_path_is_replaced_at_once() {
        let mut paths = Paths::new();
        paths.sample(100, [(20, 20, true), (30, 30, false)]);
        paths.beliefs[0] = Belief::Lost;
        assert_eq!(paths.sample(100, [(20, 20, true), (30, 30, false)]), [(100, 1)]);
    }
}
