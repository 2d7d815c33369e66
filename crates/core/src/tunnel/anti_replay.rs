//! Which counters have been seen: the window of RFC 6479, with which a receiver
//! accepts every packet once, in whatever order packets come.
//!
//! The bitmap is a ring of blocks. When the newest counter enters a new block,
//! that block is cleared whole, so nothing is ever shifted; the price is that the
//! window is one block shorter than the bitmap.

/// Bits of a block.
const BLOCK_BITS: u64 = 64;
/// Blocks of the bitmap, 1 KiB.
const BLOCKS: usize = 128;

/// How far behind the newest a counter may come and still be accepted: 8128
/// packets, which a path of 1 Gbit/s carries in 90 ms. Links reorder less.
pub const WINDOW: u64 = (BLOCKS as u64 - 1) * BLOCK_BITS;

/// The counters accepted so far.
#[derive(Clone, Debug)]
pub struct Replay {
    newest: Option<u64>,
    blocks: [u64; BLOCKS],
}

impl Default for Replay {
    fn default() -> Replay {
        Replay { newest: None, blocks: [0; BLOCKS] }
    }
}

impl Replay {
    /// May `counter` be new? False for one that was accepted, and for one that
    /// fell out of the window, of which nothing is known any more.
    pub fn check(&self, counter: u64) -> bool {
        match self.newest {
            Some(newest) if counter <= newest => {
                newest - counter < WINDOW && self.blocks[slot(counter)] & bit(counter) == 0
            }
            _ => true,
        }
    }

    /// Marks `counter` as seen, and says what [`check`](Replay::check) would
    /// have said. To be called for authentic packets only: a forged counter
    /// would move the window.
    pub fn accept(&mut self, counter: u64) -> bool {
        if !self.check(counter) {
            return false;
        }
        if let Some(newest) = self.newest {
            let passed = (counter / BLOCK_BITS).saturating_sub(newest / BLOCK_BITS).min(BLOCKS as u64);
            for back in 0..passed {
                self.blocks[slot(counter - back * BLOCK_BITS)] = 0;
            }
        }
        self.newest = self.newest.max(Some(counter));
        self.blocks[slot(counter)] |= bit(counter);
        true
    }
}

fn slot(counter: u64) -> usize {
    (counter / BLOCK_BITS) as usize % BLOCKS
}

fn bit(counter: u64) -> u64 {
    1 << (counter % BLOCK_BITS)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_is_accepted_once() {
        let mut replay = Replay::default();
        assert!(replay.check(0) && replay.accept(0));
        assert!(!replay.check(0) && !replay.accept(0));
        assert!(replay.accept(u64::MAX) && !replay.accept(u64::MAX));
    }

    #[test]
    fn the_window_is_exactly_as_long_as_it_says() {
        let mut replay = Replay::default();
        assert!(replay.accept(WINDOW));
        assert!(replay.check(1) && !replay.check(0));
        assert!(replay.accept(1) && !replay.accept(0));
    }

    #[test]
    fn a_leap_forgets_what_lay_in_the_same_blocks() {
        let mut replay = Replay::default();
        for counter in 0..2 * WINDOW {
            assert!(replay.accept(counter));
        }
        let leapt = 7 * WINDOW;
        assert!(replay.accept(leapt));
        for counter in leapt - WINDOW + 1..leapt {
            assert!(replay.accept(counter), "{counter} was never seen");
        }
    }

    /// Counters that mostly go forward, with steps back of up to two windows and
    /// leaps.
    fn counters() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![
            8 => 0..4i64,
            4 => -(2 * WINDOW as i64)..=0,
            2 => 0..3 * WINDOW as i64,
            1 => -70..70i64,
        ];
        (prop_oneof![Just(0u64), 0..3 * WINDOW, Just(u64::MAX - WINDOW)], prop::collection::vec(step, 1..600)).prop_map(
            |(begin, steps)| {
                let walk = |at: &mut u64, step: i64| {
                    *at = at.saturating_add_signed(step);
                    Some(*at)
                };
                steps.into_iter().scan(begin, walk).collect()
            },
        )
    }

    proptest! {
        #[test]
        fn the_bitmap_answers_as_a_set_of_all_counters_would(counters in counters()) {
            let mut replay = Replay::default();
            let mut seen = BTreeSet::new();
            for counter in counters {
                let in_window = seen.last().is_none_or(|newest: &u64| newest.saturating_sub(counter) < WINDOW);
                let new = in_window && !seen.contains(&counter);
                prop_assert_eq!(replay.check(counter), new);
                prop_assert_eq!(replay.accept(counter), new);
                prop_assert!(!replay.check(counter));
                if new {
                    seen.insert(counter);
                }
            }
        }
    }
}
