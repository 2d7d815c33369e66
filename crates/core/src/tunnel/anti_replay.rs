//! The anti-replay window of RFC 6479: a receiver accepts every counter once, in any order of arrival.
//!
//! The bitmap is a ring of blocks. When the newest counter enters a new block, the whole block is cleared,
//! so no bits are shifted; the window is therefore one block shorter than the bitmap.

/// Bits of a block.
const BLOCK_BITS: u64 = 64;
/// Blocks of the bitmap, 1 KiB.
const BLOCKS: usize = 128;

/// Length of the window behind the newest counter: 8128 packets, which a path of 1 Gbit/s carries in 90 ms.
/// Links reorder less.
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
    /// Whether `counter` may be new. False if it was accepted, or is older than the window.
    pub fn check(&self, counter: u64) -> bool {
        match self.newest {
            Some(newest) if counter <= newest => {
                newest - counter < WINDOW && self.blocks[slot(counter)] & bit(counter) == 0
            }
            _ => true,
        }
    }

    /// Marks `counter` as accepted and returns the result of [`check`](Replay::check). To be called for
    /// authentic packets only: a forged counter would move the window.
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
    fn the_window_has_exactly_its_nominal_length() {
        let mut replay = Replay::default();
        assert!(replay.accept(WINDOW));
        assert!(replay.check(1) && !replay.check(0));
        assert!(replay.accept(1) && !replay.accept(0));
    }

    #[test]
    fn a_jump_ahead_clears_the_blocks_it_passes() {
        let mut replay = Replay::default();
        for counter in 0..2 * WINDOW {
            assert!(replay.accept(counter));
        }
        let ahead = 7 * WINDOW;
        assert!(replay.accept(ahead));
        for counter in ahead - WINDOW + 1..ahead {
            assert!(replay.accept(counter), "{counter} was not accepted before");
        }
    }

    /// Counters that mostly increase, with steps back of up to two windows and jumps ahead.
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
        fn the_bitmap_agrees_with_a_set_of_all_counters(counters in counters()) {
            let mut replay = Replay::default();
            let mut accepted = BTreeSet::new();
            for counter in counters {
                let in_window = accepted.last().is_none_or(|newest: &u64| newest.saturating_sub(counter) < WINDOW);
                let new = in_window && !accepted.contains(&counter);
                prop_assert_eq!(replay.check(counter), new);
                prop_assert_eq!(replay.accept(counter), new);
                prop_assert!(!replay.check(counter));
                if new {
                    accepted.insert(counter);
                }
            }
        }
    }
}
