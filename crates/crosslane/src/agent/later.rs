//! Parts of the agent that are not available yet: retried with exponential
//! backoff, while the rest works.

use std::collections::BTreeMap;
use std::time::Duration;

use crosslane_core::time::Instant;

/// Pause before the second attempt; it doubles with each further one.
pub const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Maximum pause between two attempts.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A part that may become available later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A source of observations, by its index in [`SOURCES`](super::sources::SOURCES).
    Source(usize),
    /// The socket for demands.
    Demands,
    /// The tunnel: its gateway's address, its socket, its interface.
    Tunnel,
    /// The end of the tunnels of a roadside unit, and the socket of hellos.
    Unit,
    /// The page and metrics.
    Http,
    /// Writing the data volumes of the paths.
    Volumes,
}

/// The parts that are missing.
#[derive(Debug, Default)]
pub struct Missing(BTreeMap<Part, Wait>);

#[derive(Debug)]
struct Wait {
    /// When the next attempt is due; none during an attempt.
    due: Option<Instant>,
    pause: Duration,
    /// Why the last one failed.
    fault: String,
}

impl Missing {
    /// Records a failed attempt; true if it was the first.
    pub fn failed(&mut self, now: Instant, part: Part, fault: String) -> bool {
        let first = !self.0.contains_key(&part);
        let wait = self.0.entry(part).or_insert(Wait { due: None, pause: FIRST_PAUSE, fault: String::new() });
        (wait.due, wait.fault) = (Some(now + wait.pause), fault);
        wait.pause = (wait.pause * 2).min(MAX_PAUSE);
        first
    }

    /// Records that the part is available; true if it had been missing.
    pub fn resolve(&mut self, part: Part) -> bool {
        self.0.remove(&part).is_some()
    }

    /// The parts whose next attempt is due; each is returned once.
    pub fn take_due(&mut self, now: Instant) -> Vec<Part> {
        let due = |(part, wait): (&Part, &mut Wait)| wait.due.take_if(|due| *due <= now).map(|_| *part);
        self.0.iter_mut().filter_map(due).collect()
    }

    /// Why each part is missing, a sentence each.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|wait| wait.fault.as_str())
    }

    /// When the next attempt is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.0.values().filter_map(|wait| wait.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_only_the_first_failure_is_the_first() {
        let (mut missing, mut now, mut pauses) = (Missing::default(), Instant::ZERO, Vec::new());
        assert!(missing.failed(now, Part::Tunnel, String::new()));
        for _ in 0..8 {
            let due = missing.next_wakeup().expect("a retry is scheduled");
            pauses.push(due.since(now).as_millis());
            assert_eq!(missing.take_due(now), []);
            now = due;
            assert_eq!(missing.take_due(now), [Part::Tunnel]);
            assert_eq!(missing.next_wakeup(), None, "one attempt at a time");
            assert!(!missing.failed(now, Part::Tunnel, String::new()));
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert!(missing.resolve(Part::Tunnel) && !missing.resolve(Part::Tunnel));
        assert_eq!(missing.next_wakeup(), None);
    }
}
