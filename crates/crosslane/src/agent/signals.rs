//! The signals of the last minutes, for those who look at the agent.

use std::collections::VecDeque;
use std::time::Duration;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;

/// Time between two of them.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of signals of a path: of five minutes.
const MAX_SIGNALS: usize = 300;

/// Of each path the last signals.
#[derive(Debug, Default)]
pub struct Signals(Vec<PathSignals>);

#[derive(Debug, Default)]
struct PathSignals {
    /// Their times and strengths.
    last: VecDeque<(Instant, f32)>,
    /// Name of the source of the last one.
    source: Option<&'static str>,
}

impl Signals {
    /// Keeps a signal, in dBm, and its source, unless the last one is more recent than a second.
    pub fn note(&mut self, now: Instant, path: PathId, rssi_dbm: f32, source: &'static str) {
        let place = usize::from(path.0);
        self.0.resize_with(self.0.len().max(place + 1), PathSignals::default);
        self.0[place].source = Some(source);
        let signals = &mut self.0[place].last;
        if signals.back().is_some_and(|(last, _)| now.since(*last) < PERIOD) {
            return;
        }
        if signals.len() == MAX_SIGNALS {
            signals.pop_front();
        }
        signals.push_back((now, rssi_dbm));
    }

    /// Another path has this place.
    pub fn forget(&mut self, path: PathId) {
        self.0.get_mut(usize::from(path.0)).into_iter().for_each(|signals| *signals = PathSignals::default());
    }

    /// The source of a path's last signal.
    pub fn source(&self, path: PathId) -> Option<&'static str> {
        self.0.get(usize::from(path.0))?.source
    }

    /// Time since each signal of a path, in s, and its strength, in dBm, both to a tenth; the oldest first.
    pub fn of(&self, now: Instant, path: PathId) -> Vec<(f32, f32)> {
        let tenth = |value: f32| (value * 10.0).round() / 10.0;
        let signals = self.0.get(usize::from(path.0)).into_iter().flat_map(|signals| &signals.last);
        signals.map(|(at, dbm)| (tenth(now.since(*at).as_secs_f32()), tenth(*dbm))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_a_second_is_kept_for_five_minutes_of_each_path() {
        let (mut signals, path) = (Signals::default(), PathId(1));
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        for ms in (0..400_000).step_by(100) {
            signals.note(at(ms), path, -60.0 - ms as f32 / 1e5, if ms == 0 { "vanetza" } else { "nl80211" });
        }
        assert_eq!((signals.source(path), signals.source(PathId(0))), (Some("nl80211"), None));
        let kept = signals.of(at(400_000), path);
        assert_eq!((kept.len(), kept[0], kept[299]), (300, (300.0, -61.0), (1.0, -64.0)));
        assert_eq!(signals.of(at(400_000), PathId(0)), []);
        signals.forget(path);
        assert_eq!((signals.of(at(400_000), path), signals.source(path)), (vec![], None));
    }
}
