//! Objects that no path can deliver in time any more.
//!
//! Late objects are given up, so what has arrived of one is worth nothing. Of a hopeless object no further byte
//! is given to a higher-cost path. The cheapest one carries it on, and it is considered again at the next
//! evaluation: the paths may carry more than they ever did.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::{Deadline, Due, Source};
use crate::demand::Object;
use crate::reason::Reason;

/// An object is hopeless if all paths together would not carry it in time at this multiple of the rates observed.
const OPTIMISM: f64 = 3.0;

/// The hopeless objects, and the only path that carries them.
#[derive(Clone, Debug, Default)]
pub(super) struct Hopeless {
    cheapest: Option<usize>,
    numbers: Vec<u64>,
    /// What is due of the first one and before it, and what all paths would carry by then at best.
    first: Option<(Due, f64)>,
}

impl Hopeless {
    pub(super) fn reason(&self) -> Option<Reason> {
        let (due, at_best) = self.first?;
        let text = format!(
            "{:.2} MB are due within {:.2} s and cannot be there in time even at {OPTIMISM:.0} times the rates observed, \
             {:.2} MB: only the cheapest path carries them",
            due.bytes / 1e6,
            due.within_s,
            at_best / 1e6
        );
        let inputs = vec![("due_mb", due.bytes / 1e6), ("within_s", due.within_s), ("at_best_mb", at_best / 1e6)];
        Some(Reason::plain("deadline.hopeless", text).with(inputs))
    }
}

impl Deadline {
    /// Whether a path may carry an object of this number: a hopeless one only the cheapest.
    pub fn may_carry(&self, place: usize, number: u64) -> bool {
        self.hopeless.cheapest == Some(place) || !self.hopeless.numbers.contains(&number)
    }

    /// Limits what is due of hopeless objects to what the cheapest path carries.
    pub(super) fn limit_hopeless(&mut self, demand: &[Object], sources: &[Source], due: &mut [Due]) {
        self.hopeless = Hopeless::default();
        // Where no path is good, nothing is known.
        let Some(cheapest) = sources.first() else { return };
        let mut hopeless = Hopeless { cheapest: Some(cheapest.place), ..Hopeless::default() };
        let mut left_out = 0.0;
        for (object, due) in demand.iter().zip(due) {
            due.bytes -= left_out;
            let at_best = |source: &Source| {
                // A path that was never observed may carry all.
                let best_rate = source.history.best_rate(due.within_s);
                let further = best_rate.map_or(f64::INFINITY, |rate| rate * OPTIMISM * due.within_s.max(0.0));
                source.history.queued_bytes() as f64 + further
            };
            let at_best = sources.iter().map(at_best).sum();
            if due.bytes <= at_best {
                continue;
            }
            hopeless.numbers.push(object.number);
            hopeless.first.get_or_insert((*due, at_best));
            let excess = (due.bytes - self.carries(sources, cheapest, due.within_s).max(0.0)).max(0.0);
            due.bytes -= excess;
            left_out += excess;
        }
        self.hopeless = hopeless;
    }
}
