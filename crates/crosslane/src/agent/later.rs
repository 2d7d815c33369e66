//! Parts of the agent that this machine cannot have yet: tried again with
//! growing pauses, while the rest works.

use std::collections::BTreeMap;
use std::time::Duration;

use crosslane_core::time::Instant;

/// Pause before the second try; each further one is twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two tries.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The socket for received CAMs.
    Datagrams,
    /// The socket for demands.
    Demands,
    /// The tunnel: its gateway's address, its socket, its interface.
    Tunnel,
}

/// The parts that are missing.
#[derive(Debug, Default)]
pub struct Missing(BTreeMap<Part, Wait>);

#[derive(Debug)]
struct Wait {
    /// When the next try is due; none while one is made.
    due: Option<Instant>,
    pause: Duration,
}

impl Missing {
    /// A try has failed; true if it was the first.
    pub fn failed(&mut self, now: Instant, part: Part) -> bool {
        let first = !self.0.contains_key(&part);
        let wait = self.0.entry(part).or_insert(Wait { due: None, pause: FIRST_PAUSE });
        wait.due = Some(now + wait.pause);
        wait.pause = (wait.pause * 2).min(LONGEST_PAUSE);
        first
    }

    /// The part is there; true if it had been missing.
    pub fn came(&mut self, part: Part) -> bool {
        self.0.remove(&part).is_some()
    }

    /// The parts whose next try is due; each is named once.
    pub fn take_due(&mut self, now: Instant) -> Vec<Part> {
        let due = |(part, wait): (&Part, &mut Wait)| wait.due.take_if(|due| *due <= now).map(|_| *part);
        self.0.iter_mut().filter_map(due).collect()
    }

    /// When the next try is due.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.0.values().filter_map(|wait| wait.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_longest_and_only_the_first_failure_is_the_first() {
        let (mut missing, mut now, mut pauses) = (Missing::default(), Instant::ZERO, Vec::new());
        assert!(missing.failed(now, Part::Tunnel));
        for _ in 0..8 {
            let due = missing.next_wakeup().expect("it is tried again");
            pauses.push(due.since(now).as_millis());
            assert_eq!(missing.take_due(now), []);
            now = due;
            assert_eq!(missing.take_due(now), [Part::Tunnel]);
            assert_eq!(missing.next_wakeup(), None, "one try at a time");
            assert!(!missing.failed(now, Part::Tunnel));
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert!(missing.came(Part::Tunnel) && !missing.came(Part::Tunnel));
        assert_eq!(missing.next_wakeup(), None);
    }
}
